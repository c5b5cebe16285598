// SPDX-License-Identifier: GPL-2.0
/*
 * The control socket of remora-node, a Unix socket. Each line is a request, and gets a line back; a
 * line is an object of JSON.
 *
 *   {"verb": "status"}                          {"ok": true, "status": node_report_json()}
 *   {"verb": "space add", "space": ID, "key": HEX[, "quota_bytes": N | "read_only_of": ID
 *    | "member_of": ID][, "sealed_only": true]}
 *                                               {"ok": true}
 *   {"verb": "space del", "space": ID[, "force": true]}
 *                                               {"ok": true}
 *   {"verb": "space revoke", "space": ID}       {"ok": true}
 *   {"verb": "space list"}                      {"ok": true, "spaces": [space_json(), ...]}
 *   {"verb": "regions", "space": ID[, "from": ADDRESS]}
 *                                               {"ok": true, "regions": [region_json(), ...]}, of
 *                                               the space, by address; the next ones are behind
 *                                               the last: an empty list ends them
 *   {"verb": "offload load", "file": PATH, "space": ID[, "clients": [ID, ...]]
 *    [, "budget_us": N]}
 *                                               {"ok": true}
 *   {"verb": "offload remove", "name": NAME, "space": ID}
 *                                               {"ok": true}
 *   {"verb": "offload list"}                    {"ok": true, "offloads": [offload_json(), ...]}
 *   {"verb": "stop"}                            {"ok": true}; the connection ends with the node
 *   a request that fails                        {"ok": false, "error": "one line"}
 *
 * Only root and the node's user are served.
 */
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace remora {

// Limit of a request: several times the longest one.
inline constexpr std::size_t control_request_bytes_max = 4096;

// Where a daemon listens unless told otherwise, and remora looks: /run/remora-node.sock for root,
// remora-node.sock in $XDG_RUNTIME_DIR for others. Empty: there is no such directory.
std::string control_path_default(std::string_view daemon = "remora-node");

// The answer that says why a request failed.
std::string control_error(std::string_view why);

} // namespace remora
