// SPDX-License-Identifier: MIT
#include "src/backend/target.hpp"

#include <bit>
#include <functional>
#include <limits>
#include <map>

#include "remora/rmem.h"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::lib {

namespace {

using Settings = std::map<std::string_view, std::function<void(std::string_view)>>;

std::string names(const Settings& settings) {
    std::string text;
    for (const auto& [name, set] : settings)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
    return text;
}

// NAME=VALUE,NAME=VALUE
void parse_settings(std::string_view text, const Settings& settings) {
    while (!text.empty()) {
        std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        auto equals = item.find('=');
        auto setting = settings.find(item.substr(0, equals));
        if (setting == settings.end() || equals == std::string_view::npos)
            throw Misuse("'{}' is no setting here: write NAME=VALUE, of {}", item, names(settings));
        setting->second(item.substr(equals + 1));
    }
}

void parse_embedded(std::string_view text, Target& target) {
    parse_settings(text, {{"size", [&](auto value) { target.memory_bytes = parse_size(value); }},
                          {"page", [&](auto value) { target.page_bytes = parse_size(value); }}});
    if (!std::has_single_bit(target.page_bytes) || target.page_bytes >> RMEM_PAGE_SHIFT_MIN == 0 ||
        target.page_bytes > std::uint64_t{1} << RMEM_PAGE_SHIFT_MAX)
        throw Misuse("a page of {} can't be: write a power of two from 64K to 4M",
                     size_text(target.page_bytes));
    if (target.memory_bytes < target.page_bytes)
        throw Misuse("size {} is less than a page of {}: write more",
                     size_text(target.memory_bytes), size_text(target.page_bytes));
}

void parse_udp(std::string_view text, Target& target) {
    std::string_view address = text.substr(0, text.find(','));
    text.remove_prefix(std::min(address.size() + 1, text.size()));
    Endpoint endpoint = parse_endpoint(address, RMEM_PORT);
    target.host = endpoint.host;
    target.port = endpoint.port;
    parse_settings(text, {{"key", [&](auto value) { target.key_file = value; }},
                          {"space", [&](auto value) {
                               target.space = static_cast<std::uint32_t>(parse_number(
                                   value, 1, std::numeric_limits<std::uint32_t>::max(), "space"));
                           }}});
    if (target.key_file.empty())
        throw Misuse("target 'udp:{}' has no key: add ,key=FILE", address);
}

} // namespace

Target parse_target(std::string_view text) {
    auto colon = text.find(':');
    std::string_view kind = text.substr(0, colon);
    std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
    Target target;
    if (kind == "embedded") {
        target.backend = Target::Backend::embedded;
        parse_embedded(rest, target);
    } else if (kind == "udp") {
        target.backend = Target::Backend::udp;
        parse_udp(rest, target);
    } else if (kind == "dev" && !rest.empty()) {
        target.backend = Target::Backend::dev;
        target.path = rest;
    } else {
        throw Misuse("target '{}' is none: write embedded:, udp:HOST,key=FILE or dev:/dev/rmemN",
                     text);
    }
    return target;
}

} // namespace remora::lib
