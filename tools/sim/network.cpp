// SPDX-License-Identifier: GPL-2.0
#include "sim/network.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "support/failure.hpp"
#include "support/parse.hpp"

namespace sim {

using remora::Misuse;

namespace {

constexpr const char* tier_names[] = {"tor", "agg", "core"};

std::uint64_t packets_bytes(double packets, const Params& params) {
    return static_cast<std::uint64_t>(packets * params.mtu_bytes);
}

QueueParams queue_params(const Params& params) {
    QueueParams queue;
    if (params.queue == "trim")
        queue.discipline = Discipline::trim;
    else if (params.queue == "fair")
        queue.discipline = Discipline::fair;
    else if (params.queue != "drop-tail")
        throw Misuse("queue '{}' is none of drop-tail, trim, fair", params.queue);
    queue.limit_bytes = packets_bytes(params.queue_packets, params);
    queue.header_limit_bytes = params.header_queue_packets > 0
                                   ? packets_bytes(params.header_queue_packets, params)
                                   : 2 * queue.limit_bytes;
    queue.legacy_limit_bytes = packets_bytes(params.legacy_packets, params);
    queue.mark_bytes = packets_bytes(params.mark_packets, params);
    if (params.trim == "arriving")
        queue.victim = TrimVictim::arriving;
    else if (params.trim == "tail")
        queue.victim = TrimVictim::tail;
    else if (params.trim != "either")
        throw Misuse("trim '{}' is none of arriving, tail, either", params.trim);
    return queue;
}

// The smallest even k whose fat tree has that many hosts.
std::uint32_t fat_tree_k(const Params& params) {
    if (params.k)
        return params.k;
    std::uint32_t k = 2;
    while (std::uint64_t{k} * k * k / 4 * params.oversubscription < params.hosts)
        k += 2;
    return k;
}

} // namespace

std::string switch_name(const Switch& one) {
    return fmt::format("{}{}", tier_names[one.tier], one.index);
}

HostRange parse_host_range(const std::string& text) {
    std::size_t equals = text.find('=');
    if (equals == std::string::npos)
        throw Misuse("'{}' isn't of the form FIRST-LAST=VALUE", text);
    std::string hosts = text.substr(0, equals);
    std::size_t dash = hosts.find('-');
    auto first = remora::parse_number(hosts.substr(0, dash), 0, ~0u, "host");
    auto last = dash == std::string::npos
                    ? first
                    : remora::parse_number(hosts.substr(dash + 1), first, ~0u, "host");
    return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(last),
            text.substr(equals + 1)};
}

Switch::Switch(Sim& sim, std::uint32_t tier_, std::uint32_t index_)
    : tier(tier_),
      index(index_),
      sim_(sim),
      salt_(mix(sim.params.seed ^ mix((std::uint64_t{tier_} << 32) + index_))) {}

// One of so many equal links.
std::size_t Switch::pick(const Packet& packet, std::size_t links) const {
    if (path_divisor)
        return packet.path / path_divisor % links;
    std::uint64_t hash = mix((std::uint64_t{packet.flow} << 32 | packet.path) ^ salt_) >> 32;
    return hash * links >> 32;
}

Port* Switch::route(const Packet& packet) const {
    std::uint32_t below = packet.dst - first_host;
    if (below < hosts_span) {
        std::uint32_t child = below / hosts_per_down;
        if (!down_mask.empty()) [[unlikely]] {
            std::uint64_t mask = down_mask[child];
            if (!mask)
                return nullptr;
            for (auto skip = pick(packet, static_cast<std::size_t>(std::popcount(mask))); skip;
                 skip--)
                mask &= mask - 1;
            return down[child * down_bundle + static_cast<unsigned>(std::countr_zero(mask))].get();
        }
        if (down_bundle == 1)
            return down[child].get();
        return down[child * down_bundle + pick(packet, down_bundle)].get();
    }
    if (!up_mask.empty()) [[unlikely]] {
        std::uint64_t mask = up_mask[sim_.network->tor_of(packet.dst)];
        if (!mask)
            return nullptr;
        for (auto skip = pick(packet, static_cast<std::size_t>(std::popcount(mask))); skip; skip--)
            mask &= mask - 1;
        return up[static_cast<unsigned>(std::countr_zero(mask))].get();
    }
    return up[pick(packet, up.size())].get();
}

void Switch::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    sim_.on_wire--;
    packet->hops++;
    Port* port = route(*packet);
    if (!port) {
        sim_.unroutable++;
        sim_.dropped(*packet, ~0u);
        sim_.pool.give(packet);
        return;
    }
    sim_.watch("forward", *packet, port->id());
    port->send(packet);
}

std::uint64_t Network::host_count(const Params& params) {
    if (params.topology == "fat-tree") {
        std::uint64_t k = fat_tree_k(params);
        return k * k * k / 4 * params.oversubscription;
    }
    if (params.topology == "leaf-spine")
        return std::uint64_t{params.leaves} * params.hosts_per_leaf;
    if (params.topology == "dumbbell" || params.topology == "star")
        return params.hosts;
    throw Misuse("topology '{}' is none of fat-tree, leaf-spine, dumbbell, star", params.topology);
}

Network::Network(Sim& sim) : sim_(sim) {
    const Params& params = sim.params;
    std::uint64_t hosts = host_count(params);
    if (hosts < 2 || hosts > 1 << 20)
        throw Misuse("{} hosts: a network has 2 to 1048576 (see --hosts)", hosts);
    host_gbps_.assign(hosts, params.host_gbps);
    for (const std::string& text : params.host_speeds) {
        HostRange range = parse_host_range(text);
        if (range.last >= hosts)
            throw Misuse("host-speed '{}': the last host is {}", text, hosts - 1);
        for (std::uint32_t host = range.first; host <= range.last; host++)
            host_gbps_[host] = std::stod(range.value);
    }
    if (params.topology == "fat-tree")
        build_fat_tree();
    else if (params.topology == "leaf-spine")
        build_leaf_spine(params.leaves, params.spines, params.hosts_per_leaf,
                         params.links_per_spine);
    else if (params.topology == "dumbbell")
        build_dumbbell(static_cast<std::uint32_t>(hosts / 2));
    else
        build_leaf_spine(1, 0, static_cast<std::uint32_t>(hosts), 1);
    name_paths();
    schedule_failures();
}

// Each tier's links are a digit of the path id, the ToRs' the lowest one.
void Network::name_paths() {
    if (sim_.params.routing == "hash")
        return;
    if (sim_.params.routing != "path")
        throw Misuse("routing '{}' is none of hash, path", sim_.params.routing);
    std::size_t below = 1;
    for (std::uint32_t tier = 0; tier < 3; tier++) {
        std::size_t links = 1;
        for (Switch& one : switches_) {
            if (one.tier != tier)
                continue;
            one.path_divisor = below;
            links = std::max(links, one.up.size());
        }
        below *= links;
    }
}

Port& Network::add_port(std::vector<std::unique_ptr<Port>>& to, double gbps, Handler& peer,
                        std::string name, bool nic, bool at_host) {
    QueueParams queue = queue_params(sim_.params);
    if (nic)
        queue.discipline = Discipline::nic;
    if (gbps <= 0)
        throw Misuse("a link needs a speed above 0 Gb/s");
    const Params& params = sim_.params;
    double delay_us = at_host && params.host_hop_us > 0 ? params.host_hop_us : params.hop_us;
    auto id = static_cast<std::uint32_t>(ports_.size());
    to.push_back(std::make_unique<Port>(sim_, id, static_cast<std::uint64_t>(gbps * 1e9),
                                        static_cast<Time>(delay_us * us), peer, queue));
    ports_.push_back(to.back().get());
    names_.push_back(std::move(name));
    return *to.back();
}

Switch& Network::add_switch(std::uint32_t tier, std::uint32_t index, std::uint32_t first,
                            std::uint32_t span, std::uint32_t per_down) {
    Switch& one = switches_.emplace_back(sim_, tier, index);
    one.place = static_cast<std::uint32_t>(switches_.size() - 1);
    one.first_host = first;
    one.hosts_span = span;
    one.hosts_per_down = per_down;
    return one;
}

// Hosts below the ToRs, which are the first switches.
void Network::add_hosts(std::uint32_t per_tor) {
    hosts_per_tor_ = per_tor;
    for (std::uint32_t id = 0; id < tors_ * per_tor; id++) {
        Host& host = sim_.hosts.emplace_back(sim_, id);
        Switch& tor = switches_[id / per_tor];
        std::vector<std::unique_ptr<Port>> nic;
        add_port(nic, host_gbps_[id], tor, fmt::format("host{}", id), true, true);
        host.nic = std::move(nic[0]);
        host.nic->set_feeder(host);
        last_hops_.push_back(static_cast<std::uint32_t>(ports_.size()));
        add_port(tor.down, host_gbps_[id], host, fmt::format("{}>host{}", switch_name(tor), id),
                 false, true);
    }
}

void Network::connect(Switch& lower, Switch& upper) {
    double gbps = sim_.params.fabric_gbps > 0 ? sim_.params.fabric_gbps : sim_.params.host_gbps;
    add_port(lower.up, gbps, upper, fmt::format("{}>{}", switch_name(lower), switch_name(upper)),
             false);
    add_port(upper.down, gbps, lower, fmt::format("{}>{}", switch_name(upper), switch_name(lower)),
             false);
    links_.push_back({&lower, static_cast<std::uint32_t>(lower.up.size() - 1), &upper,
                      static_cast<std::uint32_t>(upper.down.size() - 1)});
}

void Network::build_fat_tree() {
    std::uint32_t k = fat_tree_k(sim_.params), half = k / 2;
    if (k % 2 || k < 2 || k > 128)
        throw Misuse("k={}: a fat tree's k is an even number from 2 to 128", k);
    std::uint32_t per_tor = half * sim_.params.oversubscription, per_pod = per_tor * half;
    tors_ = k * half;
    for (std::uint32_t i = 0; i < tors_; i++)
        add_switch(0, i, i * per_tor, per_tor, 1);
    for (std::uint32_t i = 0; i < k * half; i++)
        add_switch(1, i, i / half * per_pod, per_pod, per_tor);
    for (std::uint32_t i = 0; i < half * half; i++)
        add_switch(2, i, 0, per_pod * k, per_pod);
    add_hosts(per_tor);
    for (std::uint32_t tor = 0; tor < tors_; tor++) {
        for (std::uint32_t a = 0; a < half; a++)
            connect(switches_[tor], switches_[tors_ + tor / half * half + a]);
    }
    for (std::uint32_t agg = 0; agg < k * half; agg++) {
        for (std::uint32_t c = 0; c < half; c++)
            connect(switches_[tors_ + agg], switches_[2 * tors_ + agg % half * half + c]);
    }
}

void Network::build_leaf_spine(std::uint32_t leaves, std::uint32_t spines, std::uint32_t per_leaf,
                               std::uint32_t bundle) {
    if (leaves > 1 && (!spines || spines * bundle > 64))
        throw Misuse("a leaf has {} up links; 1 to 64 are possible", spines * bundle);
    tors_ = leaves;
    for (std::uint32_t i = 0; i < leaves; i++)
        add_switch(0, i, i * per_leaf, per_leaf, 1);
    for (std::uint32_t i = 0; i < spines; i++)
        add_switch(2, i, 0, per_leaf * leaves, per_leaf).down_bundle = bundle;
    add_hosts(per_leaf);
    for (std::uint32_t leaf = 0; leaf < leaves; leaf++) {
        for (std::uint32_t link = 0; link < spines * bundle; link++)
            connect(switches_[leaf], switches_[leaves + link / bundle]);
    }
}

// Two switches, each the other's only way up.
void Network::build_dumbbell(std::uint32_t per_side) {
    tors_ = 2;
    for (std::uint32_t i = 0; i < 2; i++)
        add_switch(0, i, i * per_side, per_side, 1);
    add_hosts(per_side);
    double gbps = sim_.params.fabric_gbps > 0 ? sim_.params.fabric_gbps : sim_.params.host_gbps;
    add_port(switches_[0].up, gbps, switches_[1], "left>right", false);
    add_port(switches_[1].up, gbps, switches_[0], "right>left", false);
}

void Network::Failure::fire(std::uint64_t stage) {
    if (!stage)
        network.fail(tier, index, port);
    else
        network.reroute();
}

void Network::schedule_failures() {
    const Params& params = sim_.params;
    for (std::uint32_t i = 0; i < params.fail_links; i++) {
        std::uint32_t alive = 0;
        for (const Link& link : links_)
            alive += link.alive;
        if (!alive)
            throw Misuse("fail-links={}: there are {} links", params.fail_links, links_.size());
        std::size_t pick = sim_.rng.below(links_.size());
        while (!links_[pick].alive)
            pick = (pick + 1) % links_.size();
        fail(links_[pick].lower->tier, links_[pick].lower->index, links_[pick].up_port);
    }
    if (params.fail_links)
        reroute();
    for (const std::string& text : params.fail_link) {
        std::size_t colon = text.find(':'), second = text.find(':', colon + 1);
        std::size_t at = text.find('@');
        if (colon == std::string::npos || second == std::string::npos)
            throw Misuse("fail-link '{}' isn't of the form TIER:SWITCH:PORT[@US]", text);
        std::string tier = text.substr(0, colon);
        auto found = std::find(std::begin(tier_names), std::end(tier_names), tier);
        if (found == std::end(tier_names) || found == std::begin(tier_names) + 2)
            throw Misuse("fail-link '{}': the tier is tor or agg", text);
        auto index =
            remora::parse_number(text.substr(colon + 1, second - colon - 1), 0, ~0u, "switch");
        auto port = remora::parse_number(text.substr(second + 1, at - second - 1), 0, ~0u, "port");
        failures_.emplace_back(*this, static_cast<std::uint32_t>(found - std::begin(tier_names)),
                               static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(port));
        Time when =
            at == std::string::npos ? 0 : static_cast<Time>(std::stod(text.substr(at + 1)) * us);
        sim_.events.at(when, failures_.back(), 0);
        sim_.events.at(when + static_cast<Time>(params.reroute_us * us), failures_.back(), 1);
    }
}

void Network::fail(std::uint32_t tier, std::uint32_t index, std::uint32_t port) {
    for (Link& link : links_) {
        if (link.lower->tier != tier || link.lower->index != index || link.up_port != port)
            continue;
        link.alive = false;
        link.lower->up[link.up_port]->set_up(false);
        link.upper->down[link.down_port]->set_up(false);
        return;
    }
    throw Misuse("fail-link {}:{}:{}: there is no such link", tier_names[tier], index, port);
}

void Network::reroute() {
    if (links_.empty())
        return; // a dumbbell or a star has no second way
    std::size_t count = switches_.size();
    std::vector<std::vector<const Link*>> above(count), below(count);
    for (Switch& one : switches_) {
        one.down_mask.assign(one.hosts_span / one.hosts_per_down,
                             (std::uint64_t{1} << one.down_bundle) - 1);
        one.up_mask.assign(one.up.empty() ? 0 : tors_, 0);
    }
    for (const Link& link : links_) {
        std::uint32_t bundle = link.upper->down_bundle;
        if (link.alive) {
            above[link.lower->place].push_back(&link);
            below[link.upper->place].push_back(&link);
        } else {
            link.upper->down_mask[link.down_port / bundle] &=
                ~(std::uint64_t{1} << link.down_port % bundle);
        }
    }
    // Whether a switch can reach a ToR by going down: lower tiers come first in switches_.
    std::vector<std::vector<bool>> reaches(count, std::vector<bool>(tors_));
    for (std::size_t i = 0; i < count; i++) {
        if (i < tors_)
            reaches[i][i] = true;
        for (const Link* link : below[i]) {
            for (std::uint32_t tor = 0; tor < tors_; tor++)
                reaches[i][tor] = reaches[i][tor] || reaches[link->lower->place][tor];
        }
    }
    for (std::size_t i = count; i-- > 0;) {
        for (const Link* link : above[i]) {
            const Switch& upper = *link->upper;
            for (std::uint32_t tor = 0; tor < tors_; tor++) {
                // A switch above the destination never sends up.
                bool is_above = tor * hosts_per_tor_ - upper.first_host < upper.hosts_span;
                if (is_above ? reaches[upper.place][tor]
                             : !upper.up_mask.empty() && upper.up_mask[tor] != 0)
                    switches_[i].up_mask[tor] |= std::uint64_t{1} << link->up_port;
            }
        }
    }
}

} // namespace sim
