// SPDX-License-Identifier: MIT
/*
 * Decides how far to read ahead. A thread that touches pages in their order gets more pages with
 * each step, as a file's reader does. A thread that jumps gets only the page it touches. A few runs
 * at once are kept apart, for each thread can have one.
 */
#pragma once

#include <array>
#include <cstdint>

namespace remora::lib {

class ReadAhead {
public:
    // pages_max: at once, 1: never.
    explicit ReadAhead(std::uint32_t pages_max) : pages_max_(pages_max) {}

    // A page was touched that isn't here. So many are to be read from there on, itself included.
    std::uint32_t touch(std::uint64_t page);

private:
    struct Stream {
        std::uint64_t last = UINT64_MAX; // page that was touched
        std::uint64_t end = 0;           // of the pages asked for
        std::uint32_t window = 0;
        std::uint64_t used = 0; // when
    };

    Stream& stream_of(std::uint64_t page);

    std::uint32_t pages_max_;
    std::uint64_t now_ = 0;
    std::array<Stream, 8> streams_;
};

} // namespace remora::lib
