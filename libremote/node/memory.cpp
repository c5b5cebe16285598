// SPDX-License-Identifier: MIT
#include "node/memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/descriptor.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::node {

namespace {

// Populating more than this would wake the OOM killer; 0 if the kernel doesn't say.
std::uint64_t available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string name;
    std::uint64_t kib = 0;
    std::string unit;
    while (file >> name >> kib && std::getline(file, unit)) {
        if (name == "MemAvailable:")
            return kib * 1024;
    }
    return 0;
}

std::uint64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    std::uint64_t pages = 0, resident = 0;
    file >> pages >> resident;
    return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

[[noreturn]] void explain_lock(std::size_t bytes, int error) {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (error == EPERM || (error == ENOMEM && limit.rlim_cur < bytes))
        throw Failure(ENOMEM,
                      "can't lock {}: this user may lock {}: run it as root, or under "
                      "'prlimit --memlock=unlimited', or give --no-lock",
                      size_text(bytes), size_text(limit.rlim_cur));
    throw Failure(ENOMEM, "can't lock {}: {}: lower --memory, or give --no-lock", size_text(bytes),
                  std::strerror(error));
}

} // namespace

std::uint64_t cgroup_limit_bytes(const std::filesystem::path& groups,
                                 const std::filesystem::path& mounts) {
    std::uint64_t least = 0;
    // From the group up to the root. Where the namespaces differ, only the root may be mounted.
    auto look = [&](const std::filesystem::path& mount, std::string group, const char* name) {
        for (;; group.erase(group.rfind('/'))) {
            std::uint64_t limit; // "max" is no number
            if (std::ifstream(mount.string() + group + "/" + name) >> limit)
                least = least ? std::min(least, limit) : limit;
            if (group.find('/') == std::string::npos)
                return;
        }
    };
    // Lines: number:controllers:/group; version 2 names no controllers.
    std::ifstream file(groups);
    std::string number, controllers, group;
    while (std::getline(file, number, ':') && std::getline(file, controllers, ':') &&
           std::getline(file, group)) {
        if (controllers.empty())
            look(mounts, group, "memory.max");
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
            look(mounts / "memory", group, "memory.limit_in_bytes");
    }
    return least;
}

Memory::Memory(std::size_t bytes, bool lock) : bytes_(bytes) {
    std::uint64_t available = available_bytes();
    if (available && bytes > available)
        throw Failure(ENOMEM, "{} of memory are more than the {} available: lower --memory",
                      size_text(bytes), size_text(available));
    std::uint64_t limit = cgroup_limit_bytes("/proc/self/cgroup", "/sys/fs/cgroup");
    if (limit && bytes + resident_bytes() > limit)
        throw Failure(ENOMEM,
                      "{} of memory don't fit into the {} of this process's control group: lower "
                      "--memory, or raise the group's limit",
                      size_text(bytes), size_text(limit));
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        throw Failure(ENOMEM, "no {} of memory: {}: lower --memory", size_text(bytes),
                      std::strerror(errno));
    data_ = static_cast<std::uint8_t*>(at);
    // Advice only: keep lent memory out of core dumps, and use large pages.
    madvise(at, bytes, MADV_DONTDUMP);
    madvise(at, bytes, MADV_HUGEPAGE);
    if (lock && mlock(at, bytes)) {
        int error = errno;
        munmap(at, bytes);
        explain_lock(bytes, error);
    }
    // Populate after the advice; MAP_POPULATE would do it before.
    if (!lock && madvise(at, bytes, MADV_POPULATE_WRITE)) {
        int error = errno;
        munmap(at, bytes);
        throw Failure(ENOMEM, "no {} of memory: {}: lower --memory", size_text(bytes),
                      std::strerror(error));
    }
}

Memory::~Memory() {
    munmap(data_, bytes_);
}

bool shield_from_oom_killer() {
    static constexpr char lowest[] = "-1000";
    Descriptor fd(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    return fd && write(fd.get(), lowest, sizeof(lowest) - 1) == sizeof(lowest) - 1;
}

} // namespace remora::node
