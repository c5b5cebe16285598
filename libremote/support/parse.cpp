// SPDX-License-Identifier: MIT
#include "support/parse.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "support/failure.hpp"

namespace remora {

namespace {

constexpr std::string_view units = "KMGTP";

// The digits text begins with, taken off it; nothing if there are none or too many.
std::optional<std::uint64_t> take_digits(std::string_view& text) {
    std::uint64_t value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{})
        return std::nullopt;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return value;
}

// Log2 of a size's unit, or nothing if it is none.
std::optional<unsigned> unit_shift(std::string_view unit) {
    if (unit.empty() || unit == "B")
        return 0;
    auto index = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
    if (index == std::string_view::npos || (unit.size() > 1 && unit.substr(1) != "iB"))
        return std::nullopt;
    return 10 * (static_cast<unsigned>(index) + 1);
}

std::uint16_t parse_port(std::string_view text) {
    return static_cast<std::uint16_t>(parse_number(text, 1, 65535, "port"));
}

std::string_view checked_host(std::string_view host, std::string_view text) {
    if (host.empty())
        throw Misuse("address '{}' has no host: write HOST:PORT or [IPV6]:PORT", text);
    return host;
}

} // namespace

std::uint64_t parse_size(std::string_view text) {
    std::string_view rest = text;
    auto number = take_digits(rest);
    auto shift = unit_shift(rest);
    if (!number || !shift)
        throw Misuse("'{}' is not a size: use bytes, or a number with K, M, G or T (512M, 64KiB)",
                     text);
    if (*number > std::numeric_limits<std::uint64_t>::max() >> *shift)
        throw Misuse("size '{}' is beyond 64 bits: write a smaller one", text);
    return *number << *shift;
}

std::string size_text(std::uint64_t bytes) {
    unsigned unit = 0;
    while (unit < units.size() && bytes >> (10 * (unit + 1)))
        unit++;
    if (unit == 0)
        return fmt::format("{}", bytes);
    std::uint64_t scale = std::uint64_t{1} << (10 * unit);
    if (bytes % scale == 0)
        return fmt::format("{}{}", bytes / scale, units[unit - 1]);
    return fmt::format("{:.2f}{}", static_cast<double>(bytes) / static_cast<double>(scale),
                       units[unit - 1]);
}

std::uint32_t parse_seconds_ms(std::string_view text) {
    return parse_seconds_ms(text, 0, std::numeric_limits<std::uint32_t>::max(), "time");
}

std::uint32_t parse_seconds_ms(std::string_view text, std::uint32_t min_ms, std::uint32_t max_ms,
                               std::string_view what) {
    static constexpr std::array<std::uint64_t, 4> scale = {1000, 100, 10, 1};
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
    std::string_view rest = text;
    auto whole = take_digits(rest);
    std::uint64_t ms = whole && *whole <= max_ms / 1000 ? *whole * 1000 : none;
    if (whole && rest.starts_with('.')) {
        rest.remove_prefix(1);
        std::size_t before = rest.size();
        auto fraction = take_digits(rest);
        std::size_t digits = before - rest.size();
        bool readable = ms != none && fraction && digits < scale.size();
        ms = readable ? ms + *fraction * scale[digits] : none;
    }
    if (!rest.empty() || ms < min_ms || ms > max_ms)
        throw Misuse("{} '{}' is not {} to {} seconds, with at most 3 decimals", what, text,
                     min_ms / 1e3, max_ms / 1e3);
    return static_cast<std::uint32_t>(ms);
}

std::uint64_t parse_number(std::string_view text, std::uint64_t min, std::uint64_t max,
                           std::string_view what) {
    std::string_view rest = text;
    auto value = take_digits(rest);
    if (!value || !rest.empty() || *value < min || *value > max)
        throw Misuse("{} '{}' is not a number from {} to {}", what, text, min, max);
    return *value;
}

Endpoint parse_endpoint(std::string_view text, std::uint16_t default_port) {
    if (text.starts_with('[')) {
        auto close = text.find(']');
        if (close == std::string_view::npos)
            throw Misuse("address '{}' has no ']': write [IPV6] or [IPV6]:PORT", text);
        std::string host(checked_host(text.substr(1, close - 1), text));
        std::string_view rest = text.substr(close + 1);
        if (rest.empty())
            return {host, default_port};
        if (!rest.starts_with(':'))
            throw Misuse("address '{}' goes on behind ']': write [IPV6] or [IPV6]:PORT", text);
        return {host, parse_port(rest.substr(1))};
    }
    auto colon = text.find(':');
    // More than one colon: an IPv6 address by itself, whose last group is no port.
    if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos)
        return {std::string(checked_host(text, text)), default_port};
    return {std::string(checked_host(text.substr(0, colon), text)),
            parse_port(text.substr(colon + 1))};
}

std::string endpoint_text(std::string_view host, std::uint16_t port) {
    bool bracket = host.find(':') != std::string_view::npos;
    return fmt::format("{}{}{}:{}", bracket ? "[" : "", host, bracket ? "]" : "", port);
}

std::uint32_t parse_space_id(std::string_view text) {
    return static_cast<std::uint32_t>(
        parse_number(text, 1, std::numeric_limits<std::uint32_t>::max(), "space id"));
}

SpaceOption parse_space(std::string_view text) {
    static constexpr std::string_view quota = ",quota=", read_only = ",read-only-of=",
                                      member = ",member-of=";
    static constexpr std::string_view require = ",require=";
    static constexpr std::string_view forms =
        "write ID=KEYFILE, ID=KEYFILE,quota=SIZE, ID=KEYFILE,read-only-of=ID or "
        "ID=KEYFILE,member-of=ID, and behind that ,require=sealed if its clients have to seal";
    auto equals = text.find('=');
    if (equals == std::string_view::npos)
        throw Misuse("space '{}' has no key: {}", text, forms);
    SpaceOption space{};
    space.id = parse_space_id(text.substr(0, equals));
    std::string_view file = text.substr(equals + 1);
    if (auto at = file.rfind(require); at != std::string_view::npos) {
        if (file.substr(at + require.size()) != "sealed")
            throw Misuse("space '{}' requires '{}', which isn't 'sealed': {}", text,
                         file.substr(at + require.size()), forms);
        space.sealed_only = true;
        file = file.substr(0, at);
    }
    if (auto at = file.rfind(member); at != std::string_view::npos) {
        space.member_of = parse_space_id(file.substr(at + member.size()));
        file = file.substr(0, at);
    }
    if (auto at = file.rfind(read_only); at != std::string_view::npos) {
        space.read_only_of = parse_space_id(file.substr(at + read_only.size()));
        file = file.substr(0, at);
    }
    if (auto at = file.rfind(quota); at != std::string_view::npos) {
        space.quota_bytes = parse_size(file.substr(at + quota.size()));
        file = file.substr(0, at);
    }
    if (file.empty())
        throw Misuse("space '{}' names no key file: {}", text, forms);
    if (!!space.read_only_of + !!space.member_of + !!space.quota_bytes > 1)
        throw Misuse("space '{}' has two of quota, read-only-of and member-of: {}", text, forms);
    space.key_file = file;
    return space;
}

DeviceName parse_device(std::string_view text) {
    std::string_view rest = text, stem;
    if (rest.starts_with("/dev/r"))
        rest.remove_prefix(5);
    for (std::string_view known : {"rmb", "rmem"}) {
        if (rest.starts_with(known)) {
            stem = known;
            rest.remove_prefix(known.size());
            break;
        }
    }
    auto index = take_digits(rest);
    if (!index || !rest.empty() || *index > std::numeric_limits<std::uint32_t>::max())
        throw Misuse("'{}' is not a device: use rmb0, /dev/rmem1 or 0, for instance", text);
    return {stem, static_cast<std::uint32_t>(*index)};
}

} // namespace remora
