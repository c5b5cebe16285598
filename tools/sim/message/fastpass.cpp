// SPDX-License-Identifier: GPL-2.0
#include "sim/message/fastpass.hpp"

#include <algorithm>

namespace sim {

namespace {

constexpr std::uint32_t grant_packets = 8;

const Budget& fastpass_budget(const Sim& sim) {
    const std::string& stack = sim.params.message.stack;
    return budget_of(stack.empty() ? "raw" : stack);
}

} // namespace

Fastpass::Fastpass(Sim& sim, Messages& messages)
    : Star(sim, messages, fastpass_budget(sim), ~std::uint64_t{0}, 1),
      arbiter_(static_cast<std::uint16_t>(sim.hosts.size())),
      source_free_(sim.hosts.size()),
      destination_free_(sim.hosts.size()) {}

std::pair<double, double> Fastpass::leg_wire(std::uint32_t bytes) const {
    const std::uint32_t chunk = grant_packets * payload_bytes;
    const auto control = static_cast<double>(ethernet_bytes(header_bytes));
    return {Star::leg_wire(bytes).first + control, (bytes + chunk - 1) / chunk * control};
}

void Fastpass::send(Leg leg) {
    const std::uint64_t id = next_id_++;
    Demand& demand = demands_[id];
    demand.leg = leg;
    demand.bytes = bytes(leg);
    demand.source = source(leg);
    demand.destination = destination(leg);
    Packet* request = packet(Kind::leg_control, demand.source, arbiter_, 0);
    request->seq = id;
    nic(demand.source).send(request);
}

void Fastpass::receive(Packet* packet) {
    const std::uint64_t id = packet->seq;
    if (packet->kind == Kind::leg_data) {
        data(*packet);
    } else if (packet->dst == arbiter_) {
        waiting_.insert({demands_[id].bytes, id});
        arbitrate();
    } else {
        granted(id, static_cast<std::uint32_t>(packet->ack));
    }
    sim_.pool.give(packet);
}

void Fastpass::arbitrate() {
    const Time now = sim_.now();
    Time soonest = never;
    if (now >= wake_at_)
        wake_at_ = never;
    for (auto at = waiting_.begin(); at != waiting_.end();) {
        const std::uint64_t id = at->second;
        Demand& demand = demands_[id];
        const Time free =
            std::max(source_free_[demand.source], destination_free_[demand.destination]);
        if (free > now) {
            soonest = std::min(soonest, free);
            ++at;
            continue;
        }
        at = waiting_.erase(at);
        grant(id, demand);
        // The rest sorts before this place; its hosts are busy, so it waits for the next round.
        if (demand.granted < demand.bytes)
            waiting_.insert({demand.bytes - demand.granted, id});
        soonest = std::min(soonest, source_free_[demand.source]);
    }
    if (!waiting_.empty() && soonest < wake_at_) {
        wake_at_ = soonest;
        sim_.events.at(soonest, clock_);
    }
}

void Fastpass::grant(std::uint64_t id, Demand& demand) {
    const std::uint32_t bytes =
        std::min(grant_packets * payload_bytes, demand.bytes - demand.granted);
    demand.granted += bytes;
    const auto time = static_cast<Time>(Star::leg_wire(bytes).first * 8000 / sim_.params.host_gbps);
    source_free_[demand.source] = destination_free_[demand.destination] = sim_.now() + time;
    grants_++;
    Packet* grant = packet(Kind::leg_ack, arbiter_, demand.source, 0);
    grant->seq = id;
    grant->ack = bytes;
    nic(arbiter_).send(grant);
}

void Fastpass::granted(std::uint64_t id, std::uint32_t bytes) {
    Demand& demand = demands_[id];
    while (bytes) {
        const std::uint32_t payload = std::min(payload_bytes, bytes);
        Packet* data = packet(Kind::leg_data, demand.source, demand.destination, payload);
        data->seq = id;
        demand.sent += payload;
        bytes -= payload;
        nic(demand.source).send(data);
    }
}

void Fastpass::data(const Packet& packet) {
    Demand& demand = demands_[packet.seq];
    demand.received += packet.payload_bytes;
    if (demand.received < demand.bytes)
        return;
    const Leg leg = demand.leg;
    demands_.erase(packet.seq);
    arrived(leg);
}

std::vector<std::pair<std::string, std::uint64_t>> Fastpass::counts() const {
    auto counts = Star::counts();
    counts.push_back({"grants", grants_});
    return counts;
}

} // namespace sim
