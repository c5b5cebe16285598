// SPDX-License-Identifier: MIT
#include "node/memory_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::node {

namespace {

constexpr std::size_t cache_line = 64;

// A devdax has its size in sysfs.
std::uint64_t device_bytes(const struct stat& status) {
    std::uint64_t bytes = 0;
    std::ifstream("/sys/dev/char/" + std::to_string(major(status.st_rdev)) + ":" +
                  std::to_string(minor(status.st_rdev)) + "/size") >>
        bytes;
    return bytes;
}

#if defined(__x86_64__)
bool has_clwb() {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 24 & 1);
}

__attribute__((target("clwb"))) void write_back(std::uintptr_t from, std::uintptr_t to) {
    for (; from < to; from += cache_line)
        _mm_clwb(reinterpret_cast<void*>(from));
}

void flush_lines(std::uintptr_t from, std::uintptr_t to) {
    static const bool clwb = has_clwb();
    if (clwb)
        return write_back(from, to);
    for (; from < to; from += cache_line)
        _mm_clflush(reinterpret_cast<void*>(from));
}
constexpr bool can_flush = true;
#else
void flush_lines(std::uintptr_t, std::uintptr_t) {}
constexpr bool can_flush = false;
#endif

} // namespace

MemoryFile::MemoryFile(const std::string& path, std::uint64_t bytes, std::uint64_t page_bytes)
    : path_(path), fd_(open(path.c_str(), O_RDWR | O_CLOEXEC | (bytes ? O_CREAT : 0), 0600)) {
    struct stat status {};
    if (!fd_ || fstat(fd_.get(), &status)) {
        if (errno == ENOENT)
            throw Failure("there is no file {}: give its size for a new one, as in "
                          "--memory-file ID={},size=64M",
                          path, path);
        throw Failure("can't open {}: {}", path, std::strerror(errno));
    }
    if (flock(fd_.get(), LOCK_EX | LOCK_NB))
        throw Failure("{} is the memory of another process: stop that one, or name another file",
                      path);
    is_device_ = S_ISCHR(status.st_mode);
    bytes_ = is_device_ ? device_bytes(status) : static_cast<std::uint64_t>(status.st_size);
    if (bytes && !bytes_ && !is_device_)
        bytes_ = bytes;
    if (bytes && bytes != bytes_)
        throw Failure("{} has {}, not {}: leave out its size, or name another file", path,
                      size_text(bytes_), size_text(bytes));
    if (!bytes_ || bytes_ % page_bytes)
        throw Failure("{} has {} bytes, which is no number of pages of {}: name another file, or "
                      "choose another --page",
                      path, bytes_, size_text(page_bytes));
    // A write to a hole of a full file system would be a SIGBUS: an existing file can have some.
    if (S_ISREG(status.st_mode)) {
        if (int error = posix_fallocate(fd_.get(), 0, static_cast<off_t>(bytes_)))
            throw Failure("no {} for {}: {}", size_text(bytes_), path, std::strerror(error));
    }
}

void MemoryFile::map(void* at) {
    constexpr int access = PROT_READ | PROT_WRITE;
    void* mapped = MAP_FAILED;
    if (can_flush && !is_device_)
        mapped = mmap(at, bytes_, access, MAP_SHARED_VALIDATE | MAP_SYNC | MAP_FIXED, fd_.get(), 0);
    direct_ = can_flush && (is_device_ || mapped != MAP_FAILED);
    if (mapped == MAP_FAILED)
        mapped = mmap(at, bytes_, access, MAP_SHARED | MAP_FIXED, fd_.get(), 0);
    if (mapped == MAP_FAILED)
        throw Failure("can't map {}: {}", path_, std::strerror(errno));
    madvise(at, bytes_, MADV_DONTDUMP);
}

void MemoryFile::persist(const void* at, std::size_t bytes) {
    const auto from = reinterpret_cast<std::uintptr_t>(at);
    if (direct_)
        return flush_lines(from & ~(cache_line - 1), from + bytes);
    static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = from & ~(page - 1), last = (from + bytes + page - 1) & ~(page - 1);
    if (!begun_.empty() && first <= begun_.back().second && begun_.back().first <= last) {
        begun_.back().first = std::min(begun_.back().first, first);
        begun_.back().second = std::max(begun_.back().second, last);
    } else {
        begun_.emplace_back(first, last);
    }
}

bool MemoryFile::drain() {
#if defined(__x86_64__)
    if (direct_) {
        _mm_sfence();
        return true;
    }
#endif
    bool done = true;
    for (auto [from, to] : begun_)
        done &= !msync(reinterpret_cast<void*>(from), to - from, MS_SYNC);
    begun_.clear();
    return done;
}

} // namespace remora::node
