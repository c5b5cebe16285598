// SPDX-License-Identifier: GPL-2.0
// The targets whose input is a script of a hostile other end share this.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

inline void require(bool holds) {
    if (!holds)
        std::abort();
}

// Numbers of so many bytes, one after the other; what the input lacks is 0.
class Script {
public:
    Script(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}
    bool done() const { return at_ == end_; }
    uint64_t take(size_t bytes) {
        uint64_t value = 0;
        bytes = std::min<size_t>(bytes, end_ - at_);
        std::memcpy(&value, at_, bytes);
        at_ += bytes;
        return value;
    }

private:
    const uint8_t* at_;
    const uint8_t* end_;
};
