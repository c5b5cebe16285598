// SPDX-License-Identifier: GPL-2.0
// The eqds devices of this network namespace, for commands other than remora eqds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "remora/netlink.hpp"

namespace remora {

// Attributes of EQDS_CMD_DEVICES, one set for each device. NoFamily if eqds isn't loaded.
std::vector<netlink::Attributes> eqds_devices();

// `ip link add link LINK name NAME type eqds`, and up. All below throw Failure, or Misuse.
void eqds_add(const std::string& link, const std::string& name);
void eqds_remove(const std::string& name);

inline constexpr std::uint16_t eqds_tos_inherit = 256;

struct EqdsSettings {
    std::optional<std::uint8_t> ttl;
    std::optional<std::uint16_t> tos; // or eqds_tos_inherit
    std::optional<std::uint16_t> window_mtus;
    std::optional<bool> cnp;
    std::optional<std::uint32_t> tunnels;
    std::optional<std::uint64_t> held_bytes;
};
void eqds_set(const std::string& device, const EqdsSettings& settings);
// file: of the key.
void eqds_set_key(const std::string& device, const std::string& file);

struct EqdsRule {
    std::string device, kind;  // "map", "allow", "share"
    std::string prefix;        // ADDRESS/LENGTH
    std::string peer;          // of a map
    std::uint32_t weight = 1;  // of a share
    std::uint8_t priority = 0; // the same

    bool operator==(const EqdsRule&) const = default;
};
std::vector<EqdsRule> eqds_rules();
void eqds_set_rule(const EqdsRule& rule);
void eqds_remove_rule(const EqdsRule& rule);
// ADDRESS or ADDRESS/LENGTH as eqds_rules() has it.
std::string eqds_prefix_text(const std::string& prefix);

} // namespace remora
