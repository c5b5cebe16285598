// SPDX-License-Identifier: GPL-2.0
#include "sim/message/star.hpp"

#include <algorithm>

#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

Star::Star(Sim& sim, Messages& messages, const Budget& budget, std::uint64_t switch_bytes,
           std::uint32_t servers)
    : LegCarrier(sim, messages), budget_(budget) {
    if (sim.params.topology != "star")
        throw Misuse("topology '{}': transport {} wants star", sim.params.topology,
                     sim.params.transport);
    FramePort::Config to_switch{sim.params.host_gbps,
                                budget.stack + budget.link() + budget.forward};
    FramePort::Config to_host{sim.params.host_gbps, budget.link() + budget.stack, switch_bytes};
    const auto ports = static_cast<std::uint32_t>(sim.hosts.size()) + servers;
    for (std::uint32_t port = 0; port < ports; port++) {
        up_.emplace_back(sim, to_switch, middle_, *this, port);
        down_.emplace_back(sim, to_host, end_, *this, ports + port);
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
    star.forwards(*packet);
    star.down_[packet->dst].send(packet);
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

std::uint64_t Star::egress_peak_bytes() const {
    std::uint64_t peak = 0;
    for (const FramePort& port : down_)
        peak = std::max(peak, port.peak_bytes());
    return peak;
}

std::vector<std::pair<std::string, std::uint64_t>> Star::counts() const {
    std::uint64_t packets = 0, drops = 0;
    for (const FramePort& port : down_) {
        packets += port.sent_packets();
        drops += port.drops();
    }
    return {{"switch_packets", packets}, {"switch_drops", drops}};
}

void Star::check(bool idle) const {
    std::uint64_t held = sim_.on_wire;
    for (const auto* ports : {&up_, &down_}) {
        for (const FramePort& port : *ports)
            held += port.queued_packets();
    }
    require(held == sim_.pool.live(), "packets were lost or doubled without a drop");
}

} // namespace sim
