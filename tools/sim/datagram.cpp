// SPDX-License-Identifier: GPL-2.0
#include "sim/datagram.hpp"

#include <algorithm>

#include "support/failure.hpp"

namespace sim {

UdpSource::UdpSource(Sim& sim, Flow& flow)
    : sim_(sim), flow_(flow), path_(static_cast<std::uint32_t>(sim.rng.next())) {
    double gbps = sim.params.udp_gbps > 0 ? sim.params.udp_gbps : sim.params.host_gbps;
    interval_ = static_cast<Time>(sim.params.mtu_bytes * 8e3 / gbps);
}

void UdpSource::fire(std::uint64_t) {
    std::uint64_t bytes =
        sim_.params.mtu_bytes - (flow_.tunnelled ? sim_.params.tunnel_overhead_bytes : 0);
    if (flow_.bytes)
        bytes = std::min(bytes, flow_.bytes - sent_bytes_);
    if (!bytes)
        return;
    sent_bytes_ += bytes;
    Packet* packet = sim_.pool.take();
    packet->kind = Kind::udp_data;
    packet->flow = flow_.index;
    packet->dst = flow_.dst;
    packet->path = path_;
    packet->bytes = packet->payload_bytes = static_cast<std::uint16_t>(bytes);
    packet->seq = flow_.packets++;
    packet->stamp = sim_.now();
    sim_.hosts[flow_.src].send(packet);
    sim_.events.after(interval_, *this);
}

void UdpSink::receive(Packet* packet) {
    flow_.delivered_bytes += packet->payload_bytes;
    sim_.pool.give(packet);
    if (flow_.bytes && flow_.delivered_bytes == flow_.bytes)
        sim_.flow_delivered(flow_);
}

void PingSource::fire(std::uint64_t) {
    Packet* packet = sim_.pool.take();
    packet->kind = Kind::ping;
    packet->flow = flow_.index;
    packet->dst = flow_.dst;
    packet->path = static_cast<std::uint32_t>(sim_.rng.next());
    packet->bytes = static_cast<std::uint16_t>(sim_.params.header_bytes);
    packet->seq = flow_.packets++;
    packet->stamp = sim_.now();
    sim_.hosts[flow_.src].send(packet);
    sim_.events.after(static_cast<Time>(sim_.params.ping_interval_us * us), *this);
}

void PingSource::receive(Packet* packet) {
    flow_.rtts.push_back(sim_.now() - packet->stamp);
    sim_.pool.give(packet);
}

void PingSink::receive(Packet* packet) {
    packet->kind = Kind::pong;
    packet->dst = flow_.src;
    packet->flags = flag_to_source;
    packet->hops = 0;
    sim_.hosts[flow_.dst].send(packet);
}

} // namespace sim
