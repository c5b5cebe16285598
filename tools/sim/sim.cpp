// SPDX-License-Identifier: GPL-2.0
#include "sim/sim.hpp"

#include <algorithm>

#include "sim/network.hpp"

namespace sim {

namespace {

// The expected time between events: each host's link busy, about a dozen events per packet.
Time event_spacing(const Params& params) {
    double packet_ps = params.mtu_bytes * 8e3 / params.host_gbps;
    return static_cast<Time>(
        packet_ps / (static_cast<double>(Network::host_count(params)) * 12 + 1) + 1);
}

} // namespace

void Host::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    sim_.on_wire--;
    sim_.watch("receive", *packet, id_);
    if (packet->kind == Kind::eqds_data || packet->kind == Kind::eqds_control)
        tunnel->receive(packet);
    else
        deliver(packet);
}

void Host::deliver(Packet* packet) {
    sim_.endpoints[2 * packet->flow + (packet->flags & flag_to_source ? 1 : 0)]->receive(packet);
}

void Host::send(Packet* packet) {
    packet->src = id_;
    if (tunnel && sim_.flows[packet->flow]->tunnelled)
        tunnel->enqueue(packet);
    else
        emit(packet);
}

void Host::emit(Packet* packet) {
    sim_.watch("send", *packet, id_);
    nic->send(packet);
}

void Host::ready(Sender& sender) {
    if (sender.listed)
        return;
    sender.listed = true;
    senders_.push_back(&sender);
    nic->kick();
}

bool Host::feed() {
    while (!senders_.empty()) {
        Sender* sender = senders_.front();
        senders_.pop_front();
        std::uint64_t before = nic->stats().sent_packets;
        bool more = sender->send_one();
        if (more)
            senders_.push_back(sender);
        else
            sender->listed = false;
        if (nic->stats().sent_packets != before)
            return true;
    }
    return false;
}

Sim::Sim(const Params& given) : params(given), events(event_spacing(given)), rng(given.seed) {
    network = std::make_unique<Network>(*this);
}

Sim::~Sim() = default;

Flow& Sim::add_flow(std::uint32_t src, std::uint32_t dst, std::uint64_t bytes,
                    Transport transport) {
    flows.push_back(std::make_unique<Flow>());
    Flow& flow = *flows.back();
    flow.index = static_cast<std::uint32_t>(flows.size() - 1);
    flow.id = flows.size();
    flow.src = src;
    flow.dst = dst;
    flow.bytes = bytes;
    flow.transport = transport;
    unfinished += bytes != 0;
    endpoints.resize(2 * flows.size());
    return flow;
}

void Sim::start_flow(Flow& flow, Time when) {
    flow.start = when;
    events.at(when, starter_, flow.index);
}

void Sim::Starter::fire(std::uint64_t index) {
    Flow& flow = *sim.flows[index];
    // Endpoints exist while the flow does: thousands of flows may wait for their start.
    create_endpoints(sim, flow);
    sim.endpoints[2 * index] = flow.sink.get();
    sim.endpoints[2 * index + 1] = flow.source.get();
    flow.started = true;
    flow.source->start();
}

void Sim::finish(Flow& flow) {
    if (flow.done() || !flow.bytes || flow.listener)
        return;
    flow.end = now();
    unfinished--;
    if (on_done)
        on_done(flow);
    if (!unfinished && !params.end_us)
        events.stop();
}

void Sim::flow_delivered(Flow& flow) {
    if (params.fct == "delivered")
        finish(flow);
}

void Sim::flow_acked(Flow& flow) {
    finish(flow);
}

void Sim::dropped(const Packet& packet, std::uint32_t port) {
    flows[packet.flow]->drops++;
    watch("drop", packet, port);
}

void Sim::trimmed(const Packet& packet, std::uint32_t port) {
    flows[packet.flow]->trims++;
    watch("trim", packet, port);
}

void Sim::run(const std::function<void()>& every) {
    Time end = params.end_us > 0 ? static_cast<Time>(params.end_us * us) : never;
    Time warmup = static_cast<Time>(params.warmup_us * us);
    if (warmup) {
        events.run(warmup);
        for (auto& flow : flows)
            flow->delivered_at_warmup = flow->delivered_bytes;
        for (Port* port : network->ports())
            port->reset_area();
    }
    std::uint64_t next = events.executed() + (1 << 20);
    while (!events.stopped() && events.due(end)) {
        events.step();
        if (events.executed() >= next) {
            next = events.executed() + (1 << 20);
            if (params.check)
                check();
            if (every)
                every();
        }
    }
    if (!events.stopped() && end != never)
        events.run(end);
    if (params.check)
        check();
}

void Sim::check() const {
    std::uint64_t held = on_wire;
    for (const Port* port : network->ports()) {
        port->check();
        held += port->queued_packets();
    }
    for (const Host& host : hosts) {
        if (host.tunnel) {
            host.tunnel->check();
            held += host.tunnel->held();
        }
    }
    require(held == pool.live(), "packets were lost or doubled without a drop");
    for (const auto& flow : flows) {
        require(!flow->bytes || flow->delivered_bytes <= flow->bytes,
                "a flow delivered more than it has");
        require(!flow->done() || flow->delivered_bytes == flow->bytes,
                "a flow ended before all of it was delivered");
        if (flow->source) {
            flow->source->check();
            flow->sink->check();
        }
    }
}

} // namespace sim
