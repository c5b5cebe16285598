// SPDX-License-Identifier: GPL-2.0
#include "sim/ndp.hpp"

#include <algorithm>
#include <numeric>

namespace sim {

namespace {

std::uint32_t ndp_payload(const Params& params) {
    return params.mtu_bytes - params.header_bytes;
}

std::uint64_t packet_count(const Params& params, const Flow& flow) {
    if (!flow.bytes || flow.listener)
        return never;
    return (flow.bytes + ndp_payload(params) - 1) / ndp_payload(params);
}

NdpPacer& pacer_of(Sim& sim, Host& host) {
    if (!host.pull_pacer)
        host.pull_pacer = std::make_shared<NdpPacer>(sim, host);
    return *host.pull_pacer;
}

} // namespace

// Three congested hops, each with a full queue of both classes, as the public simulator has it.
double spray_rto_us(const Params& params, double given_us) {
    if (given_us > 0)
        return given_us;
    return 50 + params.queue_packets * params.mtu_bytes * 48e-3 / params.host_gbps;
}

Spray::Spray(Sim& sim, std::uint32_t paths)
    : sim_(sim), order_(paths), base_(static_cast<std::uint32_t>(sim.rng.next())) {
    std::iota(order_.begin(), order_.end(), 0u);
}

std::uint32_t Spray::next() {
    // Fisher-Yates, one step per packet.
    std::size_t pick = at_ + sim_.rng.below(order_.size() - at_);
    std::swap(order_[at_], order_[pick]);
    std::uint32_t path = order_[at_];
    at_ = (at_ + 1) % order_.size();
    return base_ + path;
}

NdpSource::NdpSource(Sim& sim, Flow& flow)
    : sim_(sim),
      flow_(flow),
      spray_(sim, sim.params.paths),
      payload_bytes_(ndp_payload(sim.params)),
      total_(packet_count(sim.params, flow)),
      permits_(sim.params.ndp_window) {
    rto_ = static_cast<Time>(spray_rto_us(sim.params, sim.params.ndp_rto_us) * us);
}

void NdpSource::start() {
    sim_.hosts[flow_.src].ready(*this);
}

void NdpSource::more() {
    if (permits_ && has_packet())
        sim_.hosts[flow_.src].ready(*this);
}

bool NdpSource::send_one() {
    if (!permits_ || !has_packet())
        return false;
    permits_--;
    if (!again_.empty()) {
        std::uint64_t number = again_.front();
        again_.pop_front();
        send_packet(number, true);
    } else {
        window_.push_back({0, next_bytes(), false, false});
        send_packet(next_++, false);
    }
    return permits_ && has_packet();
}

// Payload of the next packet; a stream's packets are as long as what there is.
std::uint32_t NdpSource::next_bytes() {
    std::uint64_t bytes = payload_bytes_;
    if (flow_.listener)
        bytes = std::min(bytes, flow_.bytes - supplied_bytes_);
    else if (next_ + 1 == total_)
        bytes = flow_.bytes - next_ * payload_bytes_;
    supplied_bytes_ += bytes;
    return static_cast<std::uint32_t>(bytes);
}

void NdpSource::send_packet(std::uint64_t number, bool again) {
    const std::uint32_t bytes = sent(number).bytes;
    Packet* packet = sim_.pool.take();
    packet->kind = Kind::ndp_data;
    packet->flow = flow_.index;
    packet->dst = flow_.dst;
    packet->path = spray_.next();
    packet->bytes = static_cast<std::uint16_t>(bytes + sim_.params.header_bytes);
    packet->payload_bytes = static_cast<std::uint16_t>(bytes);
    packet->seq = number;
    packet->stamp = sim_.now();
    packet->flags = flag_sprayed | flag_ect | (again ? flag_retransmit : 0);
    flow_.packets++;
    flow_.retransmissions += again;
    sent(number) = {sim_.now(), bytes, true, false};
    in_flight_++;
    sim_.hosts[flow_.src].send(packet);
    arm();
}

void NdpSource::arm() {
    if (in_flight_)
        timer_.set(sim_, *this, sim_.now() + rto_);
    else
        timer_.clear();
}

void NdpSource::receive(Packet* packet) {
    bool known =
        packet->kind != Kind::ndp_pull && packet->seq >= base_ && sent(packet->seq).waiting;
    if (known) {
        sent(packet->seq).waiting = false;
        in_flight_--;
        if (packet->kind == Kind::ndp_nack)
            again_.push_back(packet->seq);
        else
            sent(packet->seq).acked = true;
        while (!window_.empty() && window_.front().acked) {
            window_.pop_front();
            base_++;
        }
        arm();
    }
    if (packet->ack > pulled_) {
        permits_ += packet->ack - pulled_;
        pulled_ = packet->ack;
    }
    sim_.pool.give(packet);
    if (base_ == total_)
        sim_.flow_acked(flow_);
    else if (permits_ && has_packet())
        sim_.hosts[flow_.src].ready(*this);
}

void NdpSource::fire(std::uint64_t) {
    if (!timer_.due(sim_, *this))
        return;
    // The receiver does not pull for a lost packet: the timer is the permit.
    for (std::uint64_t number = base_; number < next_; number++) {
        Sent& one = sent(number);
        if (!one.waiting || one.at + rto_ > sim_.now())
            continue;
        one.waiting = false;
        in_flight_--;
        again_.push_back(number);
        permits_++;
        flow_.timeouts++;
    }
    if (in_flight_)
        arm();
    if (permits_ && has_packet())
        sim_.hosts[flow_.src].ready(*this);
}

void NdpSource::check() const {
    std::uint64_t waiting = 0;
    for (const Sent& one : window_)
        waiting += one.waiting;
    require(waiting == in_flight_, "NDP: packets in flight miscounted");
}

NdpPacer::NdpPacer(Sim& sim, Host& host)
    : sim_(sim), host_(host), interval_(host.nic->transmit_time(sim.params.mtu_bytes)) {}

void NdpPacer::add(NdpSink& sink) {
    if (sink.listed)
        return;
    sink.listed = true;
    turns_.push_back(&sink);
    if (!running_) {
        running_ = true;
        sim_.events.after(0, *this);
    }
}

void NdpPacer::fire(std::uint64_t) {
    if (turns_.empty()) {
        running_ = false;
        return;
    }
    NdpSink* sink = turns_.front();
    turns_.pop_front();
    sink->listed = sink->pull();
    if (sink->listed)
        turns_.push_back(sink);
    sim_.events.after(interval_, *this);
}

NdpSink::NdpSink(Sim& sim, Flow& flow)
    : sim_(sim),
      flow_(flow),
      pacer_(pacer_of(sim, sim.hosts[flow.dst])),
      total_(packet_count(sim.params, flow)),
      wanted_max_(total_ == never || total_ < sim.params.ndp_window
                      ? (total_ == never ? never / 2 : 0)
                      : total_ - sim.params.ndp_window) {}

bool NdpSink::pull() {
    if (next_ == total_ || !wanted_)
        return false;
    wanted_--;
    pulls_++;
    Packet* packet = sim_.pool.take();
    packet->kind = Kind::ndp_pull;
    packet->flow = flow_.index;
    packet->dst = flow_.src;
    packet->path = static_cast<std::uint32_t>(sim_.rng.next());
    packet->bytes = static_cast<std::uint16_t>(sim_.params.header_bytes);
    packet->ack = pulls_;
    packet->flags = flag_to_source | flag_control;
    sim_.hosts[flow_.dst].send(packet);
    return wanted_ != 0;
}

void NdpSink::receive(Packet* packet) {
    bool trimmed = packet->flags & flag_trimmed;
    std::uint64_t number = packet->seq;
    if (!trimmed && number >= next_) {
        if (received_.size() <= number - next_)
            received_.resize(number - next_ + 1);
        if (!received_[number - next_]) {
            received_[number - next_] = packet->payload_bytes;
            flow_.delivered_bytes += packet->payload_bytes;
            waiting_++;
        }
        while (!received_.empty() && received_.front()) {
            in_order_bytes_ += received_.front();
            received_.pop_front();
            next_++;
            waiting_--;
        }
        flow_.reorder_depth = std::max(flow_.reorder_depth, static_cast<std::uint32_t>(waiting_));
    }
    // An answer to a stream's message goes before its acknowledgement.
    if (flow_.listener)
        flow_.listener->progress(flow_, in_order_bytes_);
    packet->kind = trimmed ? Kind::ndp_nack : Kind::ndp_ack;
    packet->dst = flow_.src;
    packet->path = static_cast<std::uint32_t>(sim_.rng.next());
    packet->bytes = static_cast<std::uint16_t>(sim_.params.header_bytes);
    packet->payload_bytes = 0;
    packet->ack = pulls_;
    packet->flags = flag_to_source | flag_control;
    packet->hops = 0;
    sim_.hosts[flow_.dst].send(packet);
    if (next_ == total_) {
        sim_.flow_delivered(flow_);
        return;
    }
    // Every transmission after the first window takes one PULL: those of new packets, and one per
    // trimmed packet.
    wanted_max_ += trimmed;
    if (pulls_ + wanted_ < wanted_max_) {
        wanted_++;
        pacer_.add(*this);
    }
}

} // namespace sim
