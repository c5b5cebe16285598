// SPDX-License-Identifier: GPL-2.0
// Hosts, and the rule by which datagrams to them go through tunnels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "udp/wire.hpp"

namespace eqds_run {

using Host = std::array<std::uint8_t, 16>; // IPv4 as mapped address

Host host_of(const eqds_udp::Address& address);

class Peers {
public:
    // "10.0.0.0/24" or "fd00::1". Throws Failure.
    void add(const std::string& prefix);
    bool has(const Host& host) const;

private:
    struct Prefix {
        Host host;
        unsigned bits;
    };
    std::vector<Prefix> prefixes_;
};

bool is_loopback(const Host& host);

// This machine's own addresses, as they were when the object was made.
class LocalHosts {
public:
    LocalHosts();
    bool has(const Host& host) const;
    // A broadcast address of a link, or a multicast address: no tunnel leads to many hosts.
    bool is_group(const Host& host) const;

private:
    std::vector<Host> hosts_, broadcasts_;
};

} // namespace eqds_run
