// SPDX-License-Identifier: MIT
// Memory that is there: populated and, unless asked otherwise, locked, so that no request waits for
// a disk and the machine's lender doesn't swap to its borrower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace remora::node {

class Memory {
public:
    // Zeroed, page-aligned. Throws Failure, saying how to raise the limit that was met.
    Memory(std::size_t bytes, bool lock);
    ~Memory();
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::uint8_t* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }

private:
    std::uint8_t* data_ = nullptr;
    std::size_t bytes_;
};

// The least limit on memory that control groups set this process, or 0. groups: its
// /proc/PID/cgroup; mounts: where the groups are mounted.
std::uint64_t cgroup_limit_bytes(const std::filesystem::path& groups,
                                 const std::filesystem::path& mounts);

// Tells the OOM killer to take others first; false if that isn't permitted.
bool shield_from_oom_killer();

} // namespace remora::node
