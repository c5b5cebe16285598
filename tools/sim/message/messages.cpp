// SPDX-License-Identifier: GPL-2.0
#include <algorithm>

#include "sim/message/message.hpp"
#include "sim/message/trace_csv.hpp"
#include "sim/network.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

namespace {

// Draws that estimate the mean cost of a message on the wire.
constexpr int mean_draws = 1 << 16;

} // namespace

Messages::Messages(Sim& sim)
    : sim_(sim),
      rng_(mix(sim.params.seed)),
      sizes_(sim.params.sizes, sim.params.flow_bytes),
      carrier_(make_carrier(sim, *this)),
      warmup_(sim.params.message.count * sim.params.message.warmup_percent / 100),
      wanted_(sim.params.message.count) {
    const MessageParams& params = sim.params.message;
    if (params.memory_hosts >= sim.hosts.size())
        throw Misuse("memory-hosts {}: one of the {} hosts at least has to ask",
                     params.memory_hosts, sim.hosts.size());
    if (!params.trace.empty()) {
        trace_ = read_trace_csv(params.trace, static_cast<std::uint32_t>(sim.hosts.size()));
        warmup_ = 0;
        wanted_ = trace_.size();
    }
    samples_.reserve(wanted_);
}

Messages::~Messages() = default;

// The mean cost of a message by another transport. A carrier belongs to a Sim, so it gets its own.
Wire Messages::wire_of(const std::string& transport) const {
    Params params = sim_.params;
    params.transport = transport;
    params.topology = "star";
    params.hosts = 2;
    params.message.load_of.clear();
    params.message.trace.clear();
    params.message.memory_hosts = 0;
    params.message.frame_load = 0;
    params.message.loss_percent = 0;
    params.message.scheduler_dies_us = params.message.port_down_us = 0;
    Sim other(message_params(params));
    return Messages(other).mean_wire();
}

// Mean time between two messages of all hosts at which the busiest direction of a host's link has
// the load asked for.
std::uint64_t Messages::mean_gap_q10() const {
    const std::string& load_of = sim_.params.message.load_of;
    return gap_of(load_of.empty() ? mean_wire() : wire_of(load_of));
}

Wire Messages::mean_wire() const {
    const MessageParams& params = sim_.params.message;
    Rng rng(mix(1));
    Wire sum;
    for (int i = 0; i < mean_draws; i++) {
        const bool read = rng.below(100) < params.read_percent;
        const Wire one = carrier_->wire(read, draw_bytes(rng, read));
        sum.requester_tx += one.requester_tx / mean_draws;
        sum.requester_rx += one.requester_rx / mean_draws;
        sum.memory_tx += one.memory_tx / mean_draws;
        sum.memory_rx += one.memory_rx / mean_draws;
    }
    return sum;
}

std::uint64_t Messages::gap_of(const Wire& wire) const {
    const Params& params = sim_.params;
    const auto hosts = static_cast<double>(sim_.hosts.size());
    const double memory = params.message.memory_hosts;
    double bytes_of_all; // on the busiest link, for one message of all hosts
    if (memory == 0)
        bytes_of_all =
            std::max(wire.requester_tx + wire.memory_tx, wire.requester_rx + wire.memory_rx) /
            hosts;
    else
        bytes_of_all = std::max(std::max(wire.requester_tx, wire.requester_rx) / (hosts - memory),
                                std::max(wire.memory_tx, wire.memory_rx) / memory);
    const double ps = bytes_of_all * 8000 / params.host_gbps / params.load;
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(ps * 1024), 1);
}

std::uint32_t Messages::draw_bytes(Rng& rng, bool read) const {
    const std::uint32_t write_bytes = sim_.params.message.write_bytes;
    return !read && write_bytes ? write_bytes : static_cast<std::uint32_t>(sizes_.draw(rng));
}

std::uint32_t Messages::take() {
    if (free_.empty()) {
        messages_.emplace_back();
        return static_cast<std::uint32_t>(messages_.size() - 1);
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    return index;
}

void Messages::issue(bool read, std::uint32_t bytes, std::uint16_t requester, std::uint16_t memory,
                     std::uint32_t trace_line) {
    const std::uint64_t number = issued_++;
    const bool measured = number >= warmup_ && number < warmup_ + wanted_;
    if (measured && samples_.empty() && !measured_left_)
        window_start_ = sim_.now();
    if (measured)
        window_end_ = sim_.now();
    measured_left_ += measured;
    in_flight_++;
    const std::uint32_t index = take();
    messages_[index] = {sim_.now(), bytes, requester, memory, read, measured, trace_line};
    carrier_->submit(index);
}

void Messages::issue_random() {
    const MessageParams& params = sim_.params.message;
    const std::uint64_t hosts = sim_.hosts.size(), memories = params.memory_hosts;
    const bool read = rng_.below(100) < params.read_percent;
    const std::uint32_t bytes = draw_bytes(rng_, read);
    std::uint64_t requester, memory;
    if (memories) {
        requester = memories + rng_.below(hosts - memories);
        memory = rng_.below(memories);
    } else {
        requester = rng_.below(hosts);
        memory = rng_.below(hosts - 1);
        memory += memory >= requester;
    }
    issue(read, bytes, static_cast<std::uint16_t>(requester), static_cast<std::uint16_t>(memory),
          0);
}

// A load that the network can't carry has no steady state, so the end doesn't wait for one.
bool Messages::wants_more() const {
    if (issued_ < warmup_ + wanted_)
        return true;
    return trace_.empty() && measured_left_ && issued_ < warmup_ + 2 * wanted_;
}

void Messages::next_random() {
    fraction_q10_ += rng_.exponential(gap_q10_);
    sim_.events.after(fraction_q10_ >> 10, *this);
    fraction_q10_ &= 1023;
}

void Messages::issue_trace() {
    const TraceLine& line = trace_[issued_];
    issue(line.read, line.bytes, line.requester, line.memory, line.number);
    if (issued_ < trace_.size())
        sim_.events.at(trace_[issued_].issued, *this);
}

void Messages::fire(std::uint64_t) {
    if (!trace_.empty()) {
        issue_trace();
        return;
    }
    issue_random();
    if (wants_more())
        next_random();
}

void Messages::finished(std::uint32_t index) {
    const Message& message = messages_[index];
    last_latency_ = sim_.now() - message.issued;
    if (message.measured) {
        measured_left_--;
        samples_.push_back(
            {last_latency_, message.bytes, message.read,
             sim_.network->tor_of(message.requester) != sim_.network->tor_of(message.memory),
             message.trace_line});
    }
    if (sim_.now() > window_start_ && issued_ > warmup_ && issued_ < warmup_ + wanted_)
        goodput_bytes_ += message.bytes;
    in_flight_--;
    free_.push_back(index);
    if (!in_flight_ && !wants_more())
        sim_.events.stop();
}

void Messages::run(const std::function<void()>& every) {
    if (trace_.empty()) {
        gap_q10_ = mean_gap_q10();
        next_random();
    } else {
        sim_.events.at(trace_.front().issued, *this);
    }
    sim_.run(every);
    carrier_->check(!in_flight_);
    require(samples_.size() == wanted_ && !in_flight_, "messages are left that never end");
}

Time Messages::lone(bool read, std::uint32_t bytes) {
    trace_ = {{us, bytes, 1, 1, 0, read}};
    warmup_ = 0;
    wanted_ = 1;
    run({});
    return last_latency_;
}

} // namespace sim
