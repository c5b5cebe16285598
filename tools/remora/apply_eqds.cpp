// SPDX-License-Identifier: GPL-2.0
// [eqds DEV]: a device of tunnels, its settings and rules. A rule that was declared once and is so
// no longer goes; one that a user made stays.
#include <algorithm>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <net/if.h>

#include "remora/apply.hpp"
#include "remora/eqds.hpp"
#include "remora/made.hpp"
#include "support/parse.hpp"
#include "uapi/remora_eqds.h"

namespace remora {

namespace {

using declared::Section;
using netlink::Attributes;

constexpr const char* rule_kinds[] = {"map", "allow", "share"};

std::optional<Attributes> device_of(const std::string& name) {
    try {
        for (const Attributes& each : eqds_devices())
            if (each.string(EQDS_A_DEVICE) == name)
                return each;
    } catch (const netlink::NoFamily&) {
    }
    return std::nullopt;
}

// A later device of that name has another index.
std::string identity(const std::string& name) {
    return fmt::to_string(if_nametoindex(name.c_str()));
}

std::optional<std::uint64_t> number(const Section& section, std::string_view key) {
    const std::string* text = section.find(key);
    return text ? std::optional(parse_number(*text, 0, UINT64_MAX, key)) : std::nullopt;
}

// The declared settings that the device doesn't have.
EqdsSettings missing(const Section& section, const Attributes* device) {
    auto differs = [&](std::uint16_t type, std::uint64_t declared) {
        return !device || device->number(type) != declared;
    };
    EqdsSettings settings;
    if (auto ttl = number(section, "ttl"); ttl && differs(EQDS_A_TTL, *ttl))
        settings.ttl = static_cast<std::uint8_t>(*ttl);
    if (const std::string* text = section.find("tos")) {
        const auto tos = *text == "inherit" ? eqds_tos_inherit : *number(section, "tos");
        if (differs(EQDS_A_TOS, tos))
            settings.tos = static_cast<std::uint16_t>(tos);
    }
    if (auto window = number(section, "window"); window && differs(EQDS_A_WINDOW_MTUS, *window))
        settings.window_mtus = static_cast<std::uint16_t>(*window);
    if (const std::string* rdma = section.find("rdma"))
        if (differs(EQDS_A_CNP, *rdma == "cnp"))
            settings.cnp = *rdma == "cnp";
    if (auto tunnels = number(section, "tunnels"); tunnels && differs(EQDS_A_TUNNELS_MAX, *tunnels))
        settings.tunnels = static_cast<std::uint32_t>(*tunnels);
    if (const std::string* memory = section.find("memory"))
        if (differs(EQDS_A_HELD_MAX, parse_size(*memory)))
            settings.held_bytes = parse_size(*memory);
    return settings;
}

bool is_empty(const EqdsSettings& settings) {
    return !settings.ttl && !settings.tos && !settings.window_mtus && !settings.cnp &&
           !settings.tunnels && !settings.held_bytes;
}

EqdsRule rule_of(const std::string& device, const std::string& kind, const std::string& text) {
    EqdsRule rule;
    rule.device = device;
    rule.kind = kind;
    std::istringstream words(text);
    std::string prefix;
    unsigned priority = 0;
    words >> prefix;
    rule.prefix = eqds_prefix_text(prefix);
    if (kind == "map")
        words >> rule.peer;
    if (kind == "share" && words >> priority >> rule.weight)
        rule.priority = static_cast<std::uint8_t>(priority);
    return rule;
}

std::string resource_of(const EqdsRule& rule) {
    return fmt::format("eqds/{}/{}/{}", rule.device, rule.kind, rule.prefix);
}

std::string text_of(const EqdsRule& rule) {
    return fmt::format("{} {}", rule.kind, rule.prefix);
}

void make_rules(Applying& applying, const Section& section) {
    std::vector<EqdsRule> declared, present;
    for (const char* kind : rule_kinds)
        for (const std::string& text : section.all(kind))
            declared.push_back(rule_of(section.name, kind, text));
    if (device_of(section.name))
        present = eqds_rules();
    for (const EqdsRule& rule : declared) {
        if (std::ranges::find(present, rule) != present.end())
            continue;
        applying.change("given " + text_of(rule), [&] {
            eqds_set_rule(rule);
            note_made(resource_of(rule), identity(rule.device));
        });
    }
    const auto all = made();
    for (const EqdsRule& rule : present) {
        const auto noted = all.find(resource_of(rule));
        const bool is_declared = std::ranges::any_of(
            declared, [&](const EqdsRule& each) { return resource_of(each) == resource_of(rule); });
        if (is_declared || noted == all.end() || noted->second != identity(rule.device))
            continue;
        applying.change("stripped of " + text_of(rule), [&] {
            eqds_remove_rule(rule);
            forget_made(resource_of(rule));
        });
    }
}

void make_eqds(Applying& applying, const Section& section) {
    const std::string& name = section.name;
    const std::string& link = *section.find("link");
    const auto device = device_of(name);
    if (device && device->string(EQDS_A_LINK) != link)
        throw Conflict("its link is {}, declared as {}: 'ip link del {}' first",
                       device->string(EQDS_A_LINK), link, name);
    if (!device)
        applying.change("added", [&] {
            eqds_add(link, name);
            note_made(section.resource(), identity(name));
        });
    const EqdsSettings settings = missing(section, device ? &*device : nullptr);
    if (!is_empty(settings))
        applying.change("given its settings", [&] { eqds_set(name, settings); });
    // The kernel tells no key: one that is there counts as the declared one.
    const std::string* key = section.find("key");
    if (key && !(device && device->has(EQDS_A_KEYED)))
        applying.change("given its key", [&] { eqds_set_key(name, *key); });
    make_rules(applying, section);
}

void remove_eqds(Applying& applying, const std::string& name, const std::string& made_as) {
    if (device_of(name) && identity(name) == made_as)
        applying.change("removed", [&] { eqds_remove(name); });
    if (applying.only_checks())
        return;
    for (const auto& [resource, each] : made())
        if (resource == "eqds/" + name || resource.starts_with("eqds/" + name + "/"))
            forget_made(resource);
}

} // namespace

const ApplyKind apply_eqds{"eqds", make_eqds, remove_eqds};

} // namespace remora
