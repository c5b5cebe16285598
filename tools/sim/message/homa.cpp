// SPDX-License-Identifier: GPL-2.0
#include "sim/message/homa.hpp"

#include <algorithm>

namespace sim {

namespace {

constexpr std::uint32_t overcommitment = 4, unscheduled_ranks = 4;
constexpr std::uint32_t shortest_bytes = 256;

const Budget& homa_budget(const Sim& sim) {
    const std::string& stack = sim.params.message.stack;
    return budget_of(stack.empty() ? "raw" : stack);
}

} // namespace

Homa::Homa(Sim& sim, Messages& messages)
    : Star(sim, messages, homa_budget(sim), ~std::uint64_t{0}),
      ready_(sim.hosts.size()),
      arriving_(sim.hosts.size()) {
    const double packets = 2 * static_cast<double>(one_way()) * sim.params.host_gbps / 8000 /
                           static_cast<double>(ethernet_bytes(payload_bytes + header_bytes));
    window_bytes_ = (static_cast<std::uint32_t>(packets) + 2) * payload_bytes;
}

// Besides the packets: a GRANT for each scheduled one.
std::pair<double, double> Homa::leg_wire(std::uint32_t bytes) const {
    const std::uint32_t scheduled = bytes > window_bytes_ ? bytes - window_bytes_ : 0;
    const std::uint32_t grants = (scheduled + payload_bytes - 1) / payload_bytes;
    return {Star::leg_wire(bytes).first,
            grants * static_cast<double>(ethernet_bytes(header_bytes))};
}

std::uint32_t Homa::unscheduled_rank(std::uint32_t bytes) const {
    if (bytes <= shortest_bytes)
        return 0;
    if (bytes <= payload_bytes)
        return 1;
    return bytes <= window_bytes_ ? 2 : 3;
}

void Homa::send(Leg leg) {
    const std::uint64_t id = next_id_++;
    const std::uint32_t size = bytes(leg), first = std::min(size, window_bytes_);
    incoming_[id] = {leg, size, 0, first, source(leg)};
    Sending& one = sending_[id];
    one = {size, 0, first, unscheduled_ranks, source(leg), destination(leg)};
    list(id, one);
}

void Homa::list(std::uint64_t id, Sending& one) {
    if (one.listed || one.sent >= one.granted)
        return;
    one.listed = true;
    ready_[one.source].insert({one.bytes - one.sent, id});
    nic(one.source).kick();
}

void Homa::idle(FramePort& port) {
    if (port.number >= ready_.size() || ready_[port.number].empty())
        return;
    Order& ready = ready_[port.number];
    const std::uint64_t id = ready.begin()->second;
    ready.erase(ready.begin());
    Sending& one = sending_[id];
    one.listed = false;
    send_packet(id, one);
    port.kick();
}

void Homa::send_packet(std::uint64_t id, Sending& one) {
    const std::uint32_t payload = std::min(payload_bytes, one.granted - one.sent);
    Packet* data = packet(Kind::leg_data, one.source, one.destination, payload);
    data->seq = id;
    data->rank = one.sent < window_bytes_ ? unscheduled_rank(one.bytes) : one.rank;
    one.sent += payload;
    nic(one.source).send(data);
    if (one.sent == one.bytes)
        sending_.erase(id);
    else
        list(id, one);
}

void Homa::receive(Packet* packet) {
    if (packet->kind == Kind::leg_control)
        granted(*packet);
    else
        data(*packet);
    sim_.pool.give(packet);
}

void Homa::granted(const Packet& packet) {
    auto found = sending_.find(packet.seq);
    if (found == sending_.end())
        return;
    Sending& one = found->second;
    one.granted = std::max(one.granted, static_cast<std::uint32_t>(packet.ack));
    one.rank = packet.tunnel;
    list(packet.seq, one);
}

void Homa::data(const Packet& packet) {
    const auto host = static_cast<std::uint16_t>(packet.dst);
    Incoming& one = incoming_[packet.seq];
    if (one.known)
        arriving_[host].erase({one.bytes - one.received, packet.seq});
    one.received += packet.payload_bytes;
    one.known = one.granted < one.bytes;
    if (one.known)
        arriving_[host].insert({one.bytes - one.received, packet.seq});
    const Leg leg = one.leg;
    const bool ended = one.received == one.bytes;
    if (ended)
        incoming_.erase(packet.seq);
    grant(host);
    if (ended)
        arrived(leg);
}

// The first few messages get grants, up to a window beyond the bytes that have arrived.
void Homa::grant(std::uint16_t host) {
    Order& arriving = arriving_[host];
    std::uint32_t place = 0;
    for (auto at = arriving.begin(); at != arriving.end() && place < overcommitment; place++) {
        const std::uint64_t id = at->second;
        Incoming& one = incoming_[id];
        const auto next = std::next(at);
        const std::uint32_t wanted = std::min(one.bytes, one.received + window_bytes_);
        if (wanted > one.granted &&
            (wanted - one.granted >= payload_bytes || wanted == one.bytes)) {
            one.granted = wanted;
            Packet* control = packet(Kind::leg_control, host, one.source, 0);
            control->seq = id;
            control->ack = one.granted;
            control->tunnel = unscheduled_ranks + place;
            nic(host).send(control);
            if (one.granted == one.bytes) {
                one.known = false;
                arriving.erase(at);
            }
        }
        at = next;
    }
}

} // namespace sim
