// SPDX-License-Identifier: GPL-2.0
/*
 * Numbers and times of the protocols. The table's expiries are whole seconds of Unix time, and an
 * item is gone from that second on. So an expiry that counts from now is rounded up: no item goes
 * before its time, and it can stay for up to a second more.
 */
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <limits>
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

// Unix time.
inline std::int64_t clock_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// The expiry at a time, at least expired_s.
inline std::uint32_t expiry_at(std::int64_t at_ms) {
    const std::int64_t at_s = at_ms / 1000 + (at_ms % 1000 > 0);
    return static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(at_s, expired_s, std::numeric_limits<std::uint32_t>::max()));
}

// An item that expires stays for so long.
inline std::int64_t left_ms(std::uint32_t expiry_s, std::int64_t now_ms) {
    return std::max<std::int64_t>(std::int64_t{expiry_s} * 1000 - now_ms, 0);
}

// memcached's exptime: 0 never, negative at once, up to 30 days from now, else Unix time.
inline std::uint32_t expiry_of(std::int64_t exptime_s, std::int64_t now_ms) {
    constexpr std::int64_t month_s = 60 * 60 * 24 * 30;
    constexpr std::int64_t most_s = std::numeric_limits<std::uint32_t>::max();
    if (exptime_s <= 0)
        return exptime_s ? expired_s : 0;
    exptime_s = std::min(exptime_s, most_s);
    return expiry_at(exptime_s * 1000 + (exptime_s <= month_s ? now_ms : 0));
}

// Redis' EX, PX, EXAT and PXAT: from now or Unix time, in seconds or milliseconds. 0: it isn't a
// time, or not a positive one.
inline std::uint32_t expiry_by(std::string_view unit, std::string_view text, std::int64_t now_ms) {
    const auto number = number_of<std::int64_t>(text);
    if (!number || *number <= 0)
        return 0;
    constexpr std::int64_t most_ms = std::int64_t{1} << 53;
    const std::int64_t scale = unit[0] == 'P' ? 1 : 1000;
    const std::int64_t time_ms = std::min(*number, most_ms / scale) * scale;
    return expiry_at(time_ms + (unit.ends_with("AT") ? 0 : now_ms));
}

} // namespace remora::kv
