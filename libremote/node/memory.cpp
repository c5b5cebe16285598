// SPDX-License-Identifier: MIT
#include "node/memory.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "node/memory_file.hpp"
#include "node/store.hpp"
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

// Names of a group's files and of the lines in its memory.stat, by the version of control groups.
struct CgroupNames {
    const char* limit;
    const char* usage;
    // Lines of memory.stat: memory that the kernel reclaims before it kills a process.
    std::array<std::string_view, 3> reclaimable;
};

constexpr CgroupNames version_2{
    "memory.max", "memory.current", {"inactive_file", "active_file", "slab_reclaimable"}};
constexpr CgroupNames version_1{
    "memory.limit_in_bytes", "memory.usage_in_bytes", {"total_inactive_file", "total_active_file"}};

// 0 if the file doesn't exist or holds no number.
std::uint64_t number_in(const std::string& file) {
    std::uint64_t number = 0;
    std::ifstream(file) >> number;
    return number;
}

std::uint64_t reclaimable_bytes(const std::string& folder, const CgroupNames& names) {
    std::ifstream file(folder + "memory.stat");
    std::string name;
    std::uint64_t bytes = 0, sum = 0;
    while (file >> name >> bytes) {
        if (std::find(names.reclaimable.begin(), names.reclaimable.end(), name) !=
            names.reclaimable.end())
            sum += bytes;
    }
    return sum;
}

// None if the group in this folder has no limit.
std::optional<CgroupMemory> group_memory(const std::string& folder, const CgroupNames& names) {
    std::uint64_t limit; // "max" is no number
    if (!(std::ifstream(folder + names.limit) >> limit))
        return std::nullopt;
    std::uint64_t used = number_in(folder + names.usage);
    return CgroupMemory{limit, used - std::min(used, reclaimable_bytes(folder, names))};
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

std::optional<CgroupMemory> cgroup_memory(const std::filesystem::path& groups,
                                          const std::filesystem::path& mounts) {
    std::optional<CgroupMemory> least;
    // From the group up to the root. Where the namespaces differ, maybe only the root is mounted.
    auto look = [&](const std::filesystem::path& mount, std::string group,
                    const CgroupNames& names) {
        for (;; group.erase(group.rfind('/'))) {
            auto memory = group_memory(mount.string() + group + "/", names);
            if (memory && (!least || memory->free_bytes() < least->free_bytes()))
                least = memory;
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
            look(mounts, group, version_2);
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
            look(mounts / "memory", group, version_1);
    }
    return least;
}

void check_available(std::size_t bytes, const char* option) {
    std::uint64_t available = available_bytes();
    if (available && bytes > available)
        throw Failure(ENOMEM, "{} of memory are more than the {} available: lower {}",
                      size_text(bytes), size_text(available), option);
    auto group = cgroup_memory("/proc/self/cgroup", "/sys/fs/cgroup");
    if (group && bytes > group->free_bytes())
        throw Failure(ENOMEM,
                      "{} of memory don't fit into this process's control group, which has {} of "
                      "its {} free: lower {}, or raise the group's limit",
                      size_text(bytes), size_text(group->free_bytes()),
                      size_text(group->limit_bytes), option);
}

Memory::Memory(std::size_t bytes, bool lock, const char* option, MemoryFile* file)
    : bytes_(bytes), mapped_bytes_(bytes) {
    check_available(bytes, option);
    const std::size_t align = file ? MemoryFile::mapping_align : 0;
    mapped_bytes_ += align + (file ? file->bytes() : 0);
    mapped_ = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | (file ? MAP_NORESERVE : 0), -1, 0);
    if (mapped_ == MAP_FAILED)
        throw Failure(ENOMEM, "no {} of memory: {}: lower {}", size_text(bytes),
                      std::strerror(errno), option);
    void* at = mapped_;
    if (file) {
        // The file begins at a multiple of align.
        auto end = reinterpret_cast<std::uintptr_t>(at) + bytes + align - 1;
        at = reinterpret_cast<void*>(end / align * align - bytes);
    }
    data_ = static_cast<std::uint8_t*>(at);
    settle(lock, option);
    try {
        if (file)
            file->map(data_ + bytes);
    } catch (...) {
        munmap(mapped_, mapped_bytes_);
        throw;
    }
}

Memory::Memory(const Store& store, std::uint64_t offset, std::size_t bytes, bool lock,
               const char* option)
    : bytes_(bytes), mapped_(store.map(offset, bytes)), mapped_bytes_(bytes) {
    data_ = static_cast<std::uint8_t*>(mapped_);
    settle(lock, option);
}

// Unmaps it, if it throws.
void Memory::settle(bool lock, const char* option) {
    // Advice only: keep lent memory out of core dumps, and use large pages.
    madvise(data_, bytes_, MADV_DONTDUMP);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    if (lock && mlock(data_, bytes_)) {
        int error = errno;
        munmap(mapped_, mapped_bytes_);
        explain_lock(bytes_, error);
    }
    // Populate after the advice; MAP_POPULATE would do it before.
    if (!lock && madvise(data_, bytes_, MADV_POPULATE_WRITE)) {
        int error = errno;
        munmap(mapped_, mapped_bytes_);
        throw Failure(ENOMEM, "no {} of memory: {}: lower {}", size_text(bytes_),
                      std::strerror(error), option);
    }
}

Memory::~Memory() {
    munmap(mapped_, mapped_bytes_);
}

bool shield_from_oom_killer() {
    static constexpr char lowest[] = "-1000";
    Descriptor fd(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    return fd && write(fd.get(), lowest, sizeof(lowest) - 1) == sizeof(lowest) - 1;
}

} // namespace remora::node
