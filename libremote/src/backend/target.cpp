// SPDX-License-Identifier: MIT
#include "src/backend/target.hpp"

#include <array>

#include "support/failure.hpp"

namespace remora::lib {

namespace {

constexpr std::uint64_t timeout_us_default = 10'000'000;
constexpr std::uint64_t timeout_us_most = std::uint64_t{1} << 50; // 35 years: as good as never

constexpr std::array schemes{&embedded_scheme, &udp_scheme, &shm_scheme, &edm_scheme, &dev_scheme};

std::string names(const Settings& settings) {
    std::string text;
    for (const auto& [name, set] : settings)
        text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
    return text;
}

std::string forms() {
    std::string text;
    for (const Scheme* each : schemes)
        text += fmt::format("{}{}",
                            each == schemes.front()  ? ""
                            : each == schemes.back() ? " or "
                                                     : ", ",
                            each->form);
    return text;
}

} // namespace

rmem_integrity integrity_of(const remote_options& options) {
    switch (options.integrity) {
    case REMOTE_DIGEST:
        return RMEM_DIGEST;
    case REMOTE_LINK:
        return RMEM_LINK;
    case REMOTE_FULL:
        return RMEM_FULL;
    case REMOTE_SEALED:
        return RMEM_SEALED;
    default:
        throw Misuse("integrity {} is unknown: use one of enum remote_integrity",
                     options.integrity);
    }
}

rmem_integrity parse_integrity(std::string_view text) {
    static constexpr std::pair<std::string_view, rmem_integrity> levels[] = {
        {"link", RMEM_LINK}, {"digest", RMEM_DIGEST}, {"full", RMEM_FULL}, {"sealed", RMEM_SEALED}};
    for (const auto& [name, level] : levels)
        if (name == text)
            return level;
    throw Misuse("integrity '{}' is unknown: use link, digest, full or sealed", text);
}

std::uint64_t timeout_ns_of(const remote_options& options) {
    std::uint64_t us = options.timeout_us ? options.timeout_us : timeout_us_default;
    return us > timeout_us_most ? 0 : us * 1000;
}

void parse_settings(std::string_view text, const Settings& settings) {
    while (!text.empty()) {
        std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(item.size() + 1, text.size()));
        auto equals = item.find('=');
        auto setting = settings.find(item.substr(0, equals));
        if (setting == settings.end() || equals == std::string_view::npos)
            throw Misuse("'{}' is no setting here: write NAME=VALUE, of {}; a comma ends each, so "
                         "no file's name in a target may have one",
                         item, names(settings));
        setting->second(item.substr(equals + 1));
    }
}

Target parse_target(std::string_view text, const remote_options& options) {
    integrity_of(options); // wrong for any target
    auto colon = text.find(':');
    if (colon != std::string_view::npos)
        for (const Scheme* each : schemes)
            if (each->name == text.substr(0, colon))
                return {each->parse(text.substr(colon + 1), options), each->lasts};
    throw Misuse("'{}' is not a target: use {}", text, forms());
}

} // namespace remora::lib
