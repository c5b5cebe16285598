// SPDX-License-Identifier: MIT
/*
 * Which memory of the process is that of mappings. An operation's buffer must not be there: data is
 * copied to and from it under locks, and a page that isn't here would be waited for under them,
 * while the thread that fetches it waits for the same locks.
 */
#pragma once

#include <cstddef>

namespace remora::lib {

// Registers a range for its lifetime. Throws bad_alloc.
class MappedRange {
public:
    MappedRange(const void* memory, std::size_t bytes);
    ~MappedRange();
    MappedRange(const MappedRange&) = delete;
    MappedRange& operator=(const MappedRange&) = delete;

private:
    const void* memory_;
};

// Is any of these bytes in a registered range?
bool is_mapped(const void* memory, std::size_t bytes);

} // namespace remora::lib
