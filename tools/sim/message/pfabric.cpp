// SPDX-License-Identifier: GPL-2.0
#include "sim/message/pfabric.hpp"

#include <algorithm>

namespace sim {

namespace {

// A port's buffer, as in the paper: twice the bandwidth-delay product.
std::uint64_t buffer_bytes(const Sim& sim, const Budget& budget) {
    return static_cast<std::uint64_t>(4 * static_cast<double>(budget.one_way()) *
                                      sim.params.host_gbps / 8000);
}

} // namespace

Pfabric::Pfabric(Sim& sim, Messages& messages, bool floor)
    : Star(sim, messages,
           budget_of(!sim.params.message.stack.empty() ? sim.params.message.stack
                     : floor                           ? "raw"
                                                       : "tcp"),
           floor ? ~std::uint64_t{0} : buffer_bytes(sim, budget_tcp)),
      floor_(floor),
      rto_(static_cast<Time>(sim.params.message.rto_us * us)),
      ready_(sim.hosts.size()) {
    const double packet_ps =
        ethernet_bytes(payload_bytes + header_bytes) * 8000 / sim.params.host_gbps;
    window_ = static_cast<std::uint32_t>(2.2 * static_cast<double>(one_way()) / packet_ps) + 2;
}

std::pair<double, double> Pfabric::leg_wire(std::uint32_t bytes) const {
    auto [there, back] = Star::leg_wire(bytes);
    return {there, floor_ ? 0 : back};
}

bool Pfabric::may_send(const Sending& one) const {
    return one.next < one.packets.size() && (floor_ || one.flying < window_);
}

void Pfabric::list(Sending& one) {
    if (one.listed || !may_send(one))
        return;
    one.listed = true;
    ready_[one.source].insert({one.left, one.id});
    nic(one.source).kick();
}

void Pfabric::unlist(Sending& one) {
    if (one.listed)
        ready_[one.source].erase({one.left, one.id});
    one.listed = false;
}

void Pfabric::send(Leg leg) {
    const std::uint64_t id = next_id_++;
    const std::uint32_t size = bytes(leg);
    const std::size_t packets = (size + payload_bytes - 1) / payload_bytes;
    receiving_[id] = {leg, size, std::vector<bool>(packets)};
    Sending& one = sending_[id];
    one.id = id;
    one.leg = leg;
    one.bytes = one.left = size;
    one.source = source(leg);
    one.destination = destination(leg);
    one.heard = sim_.now();
    one.packets.resize(packets);
    list(one);
    if (!floor_)
        watch(id);
}

void Pfabric::idle(FramePort& port) {
    if (port.number >= ready_.size())
        return; // of the switch
    auto& ready = ready_[port.number];
    if (ready.empty())
        return;
    Sending& one = sending_[ready.begin()->second];
    unlist(one);
    if (send_packet(one))
        list(one);
    port.kick();
}

bool Pfabric::send_packet(Sending& one) {
    const std::uint32_t number = one.next, from = number * payload_bytes;
    const std::uint32_t payload = std::min(payload_bytes, one.bytes - from);
    Packet* data = packet(Kind::leg_data, one.source, one.destination, payload);
    data->seq = one.id;
    data->ack = number;
    data->rank = one.left;
    one.packets[number] = State::flies;
    one.flying++;
    while (one.next < one.packets.size() && one.packets[one.next] != State::waits)
        one.next++;
    nic(one.source).send(data);
    if (!floor_)
        return true;
    one.left -= payload;
    if (one.left)
        return true;
    sending_.erase(one.id);
    return false;
}

void Pfabric::receive(Packet* packet) {
    if (packet->kind == Kind::leg_ack) {
        acknowledged(*packet);
        sim_.pool.give(packet);
    } else {
        data(packet);
    }
}

void Pfabric::data(Packet* data) {
    const std::uint64_t id = data->seq, number = data->ack;
    const std::uint32_t payload = data->payload_bytes;
    const auto from = static_cast<std::uint16_t>(data->src);
    const auto to = static_cast<std::uint16_t>(data->dst);
    sim_.pool.give(data);
    if (!floor_) {
        Packet* ack = packet(Kind::leg_ack, to, from, 0);
        ack->seq = id;
        ack->ack = number;
        nic(to).send(ack);
    }
    auto found = receiving_.find(id);
    if (found == receiving_.end() || found->second.received[number])
        return;
    found->second.received[number] = true;
    found->second.left -= payload;
    if (found->second.left)
        return;
    const Leg leg = found->second.leg;
    receiving_.erase(found);
    arrived(leg);
}

void Pfabric::acknowledged(const Packet& ack) {
    auto found = sending_.find(ack.seq);
    if (found == sending_.end() || found->second.packets[ack.ack] == State::acked)
        return;
    Sending& one = found->second;
    unlist(one);
    one.flying -= one.packets[ack.ack] == State::flies;
    one.packets[ack.ack] = State::acked;
    const auto from = static_cast<std::uint32_t>(ack.ack) * payload_bytes;
    one.left -= std::min(payload_bytes, one.bytes - from);
    one.heard = sim_.now();
    while (one.next < one.packets.size() && one.packets[one.next] != State::waits)
        one.next++;
    if (!one.left) {
        sending_.erase(found);
        return;
    }
    list(one);
}

void Pfabric::watch(std::uint64_t id) {
    deadlines_.push_back({sim_.now() + rto_, id});
    if (deadlines_.size() == 1)
        sim_.events.after(rto_, timer_);
}

void Pfabric::expire() {
    while (!deadlines_.empty() && deadlines_.front().first <= sim_.now()) {
        auto found = sending_.find(deadlines_.front().second);
        deadlines_.pop_front();
        if (found != sending_.end())
            resend(found->second);
    }
    if (!deadlines_.empty())
        sim_.events.at(deadlines_.front().first, timer_);
}

// Packets that fly for a timeout without an acknowledgement are lost.
void Pfabric::resend(Sending& one) {
    // Looked at once a timeout, so a loss is seen after one timeout at least and two at most.
    deadlines_.push_back({sim_.now() + rto_, one.id});
    if (sim_.now() < one.heard + rto_)
        return;
    unlist(one);
    for (std::size_t i = one.packets.size(); i-- > 0;) {
        if (one.packets[i] != State::flies)
            continue;
        one.packets[i] = State::waits;
        one.next = std::min(one.next, static_cast<std::uint32_t>(i));
        one.flying--;
        retransmissions_++;
    }
    one.heard = sim_.now();
    list(one);
}

std::vector<std::pair<std::string, std::uint64_t>> Pfabric::counts() const {
    auto counts = Star::counts();
    counts.push_back({"retransmissions", retransmissions_});
    return counts;
}

void Pfabric::check(bool idle) const {
    Star::check(idle);
    require(receiving_.empty() || !idle, "pFabric: a message has ended before its bytes arrived");
}

} // namespace sim
