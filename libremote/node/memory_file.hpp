// SPDX-License-Identifier: MIT
/*
 * A file that holds a node's persistent memory: persistent memory itself (a devdax, or a file that
 * can be mapped by MAP_SYNC), or any file, whose pages msync() writes back.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/descriptor.hpp"

namespace remora::node {

class MemoryFile {
public:
    // bytes: of a file that is made or is empty; 0: the file has its size already. The size is a
    // multiple of page_bytes. Throws Failure: it can't be opened, has another size, or another
    // process has it.
    MemoryFile(const std::string& path, std::uint64_t bytes, std::uint64_t page_bytes);

    std::uint64_t bytes() const { return bytes_; }
    // Maps it there, a multiple of mapping_align in reserved addresses. Throws Failure.
    static constexpr std::size_t mapping_align = std::size_t{2} << 20;
    void map(void* at);
    // After map(). Does the processor write to the medium?
    bool is_direct() const { return direct_; }

    // Begins to make bytes of the mapping durable; drain() ends that. Only one thread at a time.
    // False: the medium failed.
    void persist(const void* at, std::size_t bytes);
    bool drain();

private:
    std::string path_;
    Descriptor fd_;
    std::uint64_t bytes_ = 0;
    bool is_device_ = false, direct_ = false;
    std::vector<std::pair<std::uintptr_t, std::uintptr_t>> begun_; // pages from, to
};

} // namespace remora::node
