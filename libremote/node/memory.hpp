// SPDX-License-Identifier: MIT
// Memory that is there: populated and, unless asked otherwise, locked, so that no request waits for
// a disk and the machine's lender doesn't swap to its borrower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace remora::node {

class MemoryFile;
class Store;

class Memory {
public:
    // Zeroed, page-aligned. Throws Failure, saying how to raise the limit that was met, or which
    // option to lower.
    // file: is mapped behind these bytes; it outlives this.
    Memory(std::size_t bytes, bool lock, const char* option, MemoryFile* file = nullptr);
    // Maps bytes of a store, from offset on, with their content.
    Memory(const Store& store, std::uint64_t offset, std::size_t bytes, bool lock,
           const char* option);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::uint8_t* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    void settle(bool lock, const char* option);

    std::uint8_t* data_ = nullptr;
    std::size_t bytes_;
    void* mapped_ = nullptr; // with a file's mapping, and room to align that
    std::size_t mapped_bytes_;
};

// Throws Failure, saying which limit so many bytes of new memory would meet.
void check_available(std::size_t bytes, const char* option);

// A control group with a limit on memory.
struct CgroupMemory {
    std::uint64_t limit_bytes;
    // Memory of all its processes that the kernel can't reclaim without swapping.
    std::uint64_t used_bytes;

    std::uint64_t free_bytes() const {
        return limit_bytes > used_bytes ? limit_bytes - used_bytes : 0;
    }
};

// The group with the least free memory among those that limit this process; none if there is no
// limit. groups: its /proc/PID/cgroup; mounts: where the groups are mounted.
std::optional<CgroupMemory> cgroup_memory(const std::filesystem::path& groups,
                                          const std::filesystem::path& mounts);

// Tells the OOM killer to take others first; false if that isn't permitted.
bool shield_from_oom_killer();

} // namespace remora::node
