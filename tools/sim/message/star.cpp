// SPDX-License-Identifier: GPL-2.0
#include "sim/message/star.hpp"

#include <algorithm>

#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

Star::Star(Sim& sim, Messages& messages, const Budget& budget, std::uint64_t switch_bytes,
           std::uint32_t servers, bool one_switch)
    : LegCarrier(sim, messages),
      budget_(budget),
      leaf_hosts_(static_cast<std::uint32_t>(sim.hosts.size()) + servers) {
    const bool spread = sim.params.topology == "leaf-spine";
    if (sim.params.topology != "star" && !(spread && !servers && !one_switch))
        throw Misuse("topology '{}': transport {} wants star", sim.params.topology,
                     sim.params.transport);
    if (spread) {
        leaves_ = sim.params.leaves;
        leaf_hosts_ = sim.params.hosts_per_leaf;
    }
    for (std::uint32_t leaf = 0; leaf < leaves_; leaf++)
        middle_.emplace_back(*this, leaf);
    FramePort::Config to_switch{sim.params.host_gbps,
                                budget.stack + budget.link() + budget.forward};
    FramePort::Config to_host{sim.params.host_gbps, budget.link() + budget.stack, switch_bytes};
    const auto ports = static_cast<std::uint32_t>(sim.hosts.size()) + servers;
    for (std::uint32_t port = 0; port < ports; port++) {
        up_.emplace_back(sim, to_switch, middle_[port / leaf_hosts_], *this, port);
        down_.emplace_back(sim, to_host, end_, *this, ports + port);
    }
    if (leaves_ > 1)
        build_spines({sim.params.fabric_gbps > 0 ? sim.params.fabric_gbps : sim.params.host_gbps,
                      budget.hop(), switch_bytes});
}

void Star::build_spines(const FramePort::Config& config) {
    auto number = static_cast<std::uint32_t>(up_.size() + down_.size());
    for (Middle& leaf : middle_)
        leaf.links.resize(1);
    for (std::uint32_t at = 0; at < sim_.params.spines; at++) {
        Middle& spine = spines_.emplace_back(*this, leaves_);
        spine.links.resize(leaves_);
        for (Middle& leaf : middle_) {
            for (std::uint32_t link = 0; link < sim_.params.links_per_spine; link++) {
                leaf.links[0].emplace_back(sim_, config, spine, *this, number++);
                spine.links[leaf.leaf].emplace_back(sim_, config, leaf, *this, number++);
            }
        }
    }
}

Packet* Star::packet(Kind kind, std::uint16_t from, std::uint16_t to, std::uint32_t bytes) {
    Packet* packet = sim_.pool.take();
    packet->kind = kind;
    packet->src = from;
    packet->dst = to;
    packet->bytes = static_cast<std::uint16_t>(bytes + header_bytes);
    packet->payload_bytes = static_cast<std::uint16_t>(bytes);
    return packet;
}

void Star::Middle::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    star.sim_.on_wire--;
    const std::uint32_t to = packet->dst / star.leaf_hosts_;
    if (to == leaf) {
        star.forwards(*packet);
        star.down_[packet->dst].send(packet);
        return;
    }
    std::deque<FramePort>& ways = leaf == star.leaves_ ? links[to] : links[0];
    // Links that are equal take turns.
    FramePort* best = nullptr;
    for (std::size_t tried = 0; tried < ways.size(); tried++) {
        FramePort& way = ways[(next + tried) % ways.size()];
        if (!best || way.backlog() < best->backlog())
            best = &way;
        if (!best->backlog())
            break;
    }
    next++;
    best->send(packet);
}

void Star::End::fire(std::uint64_t arg) {
    star.sim_.on_wire--;
    star.receive(reinterpret_cast<Packet*>(arg));
}

// An acknowledgement for each packet.
std::pair<double, double> Star::leg_wire(std::uint32_t bytes) const {
    const std::uint32_t full = bytes / payload_bytes, rest = bytes % payload_bytes;
    double there = full * static_cast<double>(ethernet_bytes(payload_bytes + header_bytes));
    if (rest)
        there += static_cast<double>(ethernet_bytes(rest + header_bytes));
    return {there, (full + (rest != 0)) * static_cast<double>(ethernet_bytes(header_bytes))};
}

std::vector<const FramePort*> Star::switch_ports() const {
    std::vector<const FramePort*> ports;
    for (const FramePort& port : down_)
        ports.push_back(&port);
    for (const auto* switches : {&middle_, &spines_}) {
        for (const Middle& one : *switches) {
            for (const auto& links : one.links) {
                for (const FramePort& port : links)
                    ports.push_back(&port);
            }
        }
    }
    return ports;
}

std::uint64_t Star::egress_peak_bytes() const {
    std::uint64_t peak = 0;
    for (const FramePort& port : down_)
        peak = std::max(peak, port.peak_bytes());
    return peak;
}

std::vector<std::pair<std::string, std::uint64_t>> Star::counts() const {
    std::uint64_t packets = 0, drops = 0, fabric = 0;
    for (const FramePort* port : switch_ports()) {
        packets += port->sent_packets();
        drops += port->drops();
        if (port->number >= up_.size() + down_.size())
            fabric = std::max(fabric, port->peak_bytes());
    }
    return {{"switch_packets", packets}, {"switch_drops", drops}, {"fabric_peak_bytes", fabric}};
}

void Star::check(bool idle) const {
    std::uint64_t held = sim_.on_wire;
    for (const FramePort& port : up_)
        held += port.queued_packets();
    for (const FramePort* port : switch_ports())
        held += port->queued_packets();
    require(held == sim_.pool.live(), "packets were lost or doubled without a drop");
}

} // namespace sim
