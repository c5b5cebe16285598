// SPDX-License-Identifier: GPL-2.0
// Topologies: which switches there are, their links, and which up ports reach a destination.
//
// Every topology is a tree of tiers with equal parents: a packet goes up to any switch above the
// destination and then down the one way there is. So a switch needs no table: the hosts below it
// are a range, and elsewhere is up. Only after failures masks say which up ports still lead there.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "sim/sim.hpp"

namespace sim {

class Network {
public:
    // Creates hosts and switches. Throws remora::Misuse for an impossible topology.
    explicit Network(Sim& sim);

    const std::deque<Switch>& switches() const { return switches_; }
    const std::vector<Port*>& ports() const { return ports_; }
    std::string port_name(std::uint32_t port) const { return names_[port]; }
    // The down port of its ToR to a host.
    Port& last_hop(std::uint32_t host) { return *ports_[last_hops_[host]]; }

    // Takes one link, both directions, out of service now. tier 0: ToR; port counts up ports.
    void fail(std::uint32_t tier, std::uint32_t index, std::uint32_t port);
    // Recomputes the masks.
    void reroute();
    std::uint32_t tor_of(std::uint32_t host) const { return host / hosts_per_tor_; }

    static std::uint64_t host_count(const Params& params);

private:
    struct Link { // between tiers
        Switch* lower;
        std::uint32_t up_port;
        Switch* upper;
        std::uint32_t down_port;
        bool alive = true;
    };
    struct Failure final : Handler {
        Failure(Network& owner, std::uint32_t t, std::uint32_t i, std::uint32_t p)
            : network(owner), tier(t), index(i), port(p) {}
        void fire(std::uint64_t stage) override;
        Network& network;
        std::uint32_t tier, index, port;
    };

    void build_fat_tree();
    void build_leaf_spine(std::uint32_t leaves, std::uint32_t spines, std::uint32_t per_leaf,
                          std::uint32_t bundle);
    void build_dumbbell(std::uint32_t per_side);
    Switch& add_switch(std::uint32_t tier, std::uint32_t index, std::uint32_t first,
                       std::uint32_t span, std::uint32_t per_down);
    void add_hosts(std::uint32_t per_tor);
    void connect(Switch& lower, Switch& upper);
    Port& add_port(std::vector<std::unique_ptr<Port>>& to, double gbps, Handler& peer,
                   std::string name, bool nic, bool at_host = false);
    void name_paths();
    void schedule_failures();

    Sim& sim_;
    std::deque<Switch> switches_;
    std::vector<Port*> ports_;
    std::vector<std::string> names_;
    std::vector<Link> links_;
    std::deque<Failure> failures_;
    std::vector<std::uint32_t> last_hops_;
    std::vector<double> host_gbps_;
    std::uint32_t hosts_per_tor_ = 1, tors_ = 0;
};

// The tier and index of a switch as text: tor3, agg1, core0.
std::string switch_name(const Switch& one);

// "A-B=VALUE" or "A=VALUE" as first, last, VALUE. Throws remora::Misuse.
struct HostRange {
    std::uint32_t first, last;
    std::string value;
};
HostRange parse_host_range(const std::string& text);

} // namespace sim
