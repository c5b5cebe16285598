// SPDX-License-Identifier: MIT
#include "src/mmap/read_ahead.hpp"

#include <algorithm>

namespace remora::lib {

namespace {

constexpr std::uint32_t window_first = 4; // of a run's second step; then it doubles

} // namespace

// The one that it continues, else a new one in place of the one that rested longest.
ReadAhead::Stream& ReadAhead::stream_of(std::uint64_t page) {
    auto continues = [&](const Stream& each) { return each.last <= page && page <= each.end; };
    auto found = std::find_if(streams_.begin(), streams_.end(), continues);
    if (found == streams_.end()) {
        found = std::min_element(streams_.begin(), streams_.end(),
                                 [](const Stream& a, const Stream& b) { return a.used < b.used; });
        *found = {page, page + 1, 1, 0};
    }
    found->used = ++now_;
    return *found;
}

std::uint32_t ReadAhead::touch(std::uint64_t page) {
    Stream& stream = stream_of(page);
    // Again, by another thread: that is no step.
    if (page == stream.last)
        return 1;
    std::uint32_t window = stream.window == 1 ? window_first : 2 * stream.window;
    stream.window = std::min(window, pages_max_);
    stream.last = page;
    stream.end = std::max(stream.end, page + stream.window);
    return stream.window;
}

} // namespace remora::lib
