// SPDX-License-Identifier: GPL-2.0
// The objects' names where a store wants names: short ones.
#pragma once

#include <array>

#include "store.hpp"

namespace remora::bench {

class Keys {
public:
    static constexpr std::size_t bytes = 5;

    Keys() {
        for (std::uint32_t i = 0; i < objects; i++) {
            std::string text = fmt::format("k{:04}", i);
            std::memcpy(text_[i].data(), text.c_str(), bytes + 1);
        }
    }
    const char* text(std::uint32_t object) const { return text_[object].data(); }

private:
    std::array<std::array<char, bytes + 1>, objects> text_;
};

} // namespace remora::bench
