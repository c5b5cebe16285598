// SPDX-License-Identifier: GPL-2.0
#include "sim/message/ird.hpp"

#include <algorithm>

namespace sim {

Ird::Ird(Sim& sim, Messages& messages)
    : Star(sim, messages,
           budget_of(sim.params.message.stack.empty() ? "raw" : sim.params.message.stack),
           ~std::uint64_t{0}),
      receivers_(sim.hosts.size()) {
    const double packet = static_cast<double>(ethernet_bytes(payload_bytes + header_bytes));
    outstanding_max_ = static_cast<std::uint64_t>(
        static_cast<double>(one_way()) * sim.params.host_gbps / 8000 + 2 * packet);
}

// Grants cost nothing.
std::pair<double, double> Ird::leg_wire(std::uint32_t bytes) const {
    return {Star::leg_wire(bytes).first, 0};
}

void Ird::send(Leg leg) {
    const std::uint64_t id = next_id_++;
    Incoming& one = incoming_[id];
    one.leg = leg;
    one.bytes = bytes(leg);
    one.source = source(leg);
    one.destination = destination(leg);
    receivers_[one.destination].waiting.insert({one.bytes, id});
    schedule(one.destination);
}

void Ird::schedule(std::uint32_t host) {
    Receiver& receiver = receivers_[host];
    if (receiver.scheduled || receiver.waiting.empty() ||
        receiver.outstanding_bytes >= outstanding_max_)
        return;
    receiver.scheduled = true;
    sim_.events.at(std::max(receiver.free, sim_.now()), pacer_, host);
}

void Ird::grant(std::uint32_t host) {
    Receiver& receiver = receivers_[host];
    receiver.scheduled = false;
    const auto [left, id] = *receiver.waiting.begin();
    receiver.waiting.erase(receiver.waiting.begin());
    Incoming& one = incoming_[id];
    const std::uint32_t payload = std::min(payload_bytes, left);
    one.granted += payload;
    if (left > payload)
        receiver.waiting.insert({left - payload, id});
    Packet* data = packet(Kind::leg_data, one.source, one.destination, payload);
    data->seq = id;
    data->rank = left;
    receiver.outstanding_bytes += ethernet_bytes(data->bytes);
    receiver.free = sim_.now() + nic(one.source).tx(*data);
    nic(one.source).send(data);
    schedule(host);
}

void Ird::receive(Packet* packet) {
    const std::uint64_t id = packet->seq;
    const std::uint32_t payload = packet->payload_bytes;
    receivers_[packet->dst].outstanding_bytes -= ethernet_bytes(packet->bytes);
    schedule(packet->dst);
    sim_.pool.give(packet);
    Incoming& one = incoming_[id];
    one.received += payload;
    if (one.received < one.bytes)
        return;
    const Leg leg = one.leg;
    incoming_.erase(id);
    arrived(leg);
}

} // namespace sim
