// SPDX-License-Identifier: GPL-2.0
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string_view>

namespace remora::kv {

// The whole text as a number.
template <std::integral T>
std::optional<T> number_of(std::string_view text) {
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
}

// An expiry that has passed.
inline constexpr std::uint32_t expired_s = 1;

// memcached's exptime: 0 never, negative at once, up to 30 days from now, else Unix time.
inline std::uint32_t expiry_of(std::int64_t exptime, std::uint32_t now_s) {
    constexpr std::int64_t month_s = 60 * 60 * 24 * 30;
    if (exptime <= 0)
        return exptime ? expired_s : 0;
    const std::int64_t at = exptime <= month_s ? now_s + exptime : exptime;
    return at > UINT32_MAX ? UINT32_MAX : static_cast<std::uint32_t>(at);
}

} // namespace remora::kv
