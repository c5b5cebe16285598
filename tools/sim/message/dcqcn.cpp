// SPDX-License-Identifier: GPL-2.0
#include "sim/message/dcqcn.hpp"

#include <algorithm>

namespace sim {

namespace {

// DCQCN's parameters (section 4 of the paper, for 40 Gb/s), rates scaled to the link.
constexpr Time cnp_interval = 50 * us, raise_interval = 55 * us, alpha_interval = 55 * us;
constexpr std::uint64_t raise_bytes = 10'000'000;
constexpr double alpha_gain = 1.0 / 256, mark_max = 0.01;
constexpr double additive = 1.0 / 1000, hyper = 1.0 / 200, rate_min = 1.0 / 1000; // of the link
constexpr std::uint32_t fast_recovery = 5;
constexpr std::uint64_t mark_from_bytes = 5'000, mark_to_bytes = 200'000;
// PFC: bytes of a host in the switch at which it is paused, and goes on.
constexpr std::uint64_t pause_bytes = 100'000, resume_bytes = 97'000;

const Budget& dcqcn_budget(const Sim& sim) {
    const std::string& stack = sim.params.message.stack;
    return budget_of(stack.empty() ? "roce" : stack);
}

} // namespace

Dcqcn::Dcqcn(Sim& sim, Messages& messages)
    : Star(sim, messages, dcqcn_budget(sim), ~std::uint64_t{0}, 0, true),
      line_rate_(sim.params.host_gbps / 8000),
      held_bytes_(sim.hosts.size()),
      paused_(sim.hosts.size()) {}

// No acknowledgement a packet: RoCEv2 coalesces them.
std::pair<double, double> Dcqcn::leg_wire(std::uint32_t bytes) const {
    return {Star::leg_wire(bytes).first, 0};
}

Dcqcn::Pair& Dcqcn::pair_of(std::uint16_t from, std::uint16_t to) {
    auto [found, fresh] = pairs_.try_emplace(std::uint32_t{from} << 16 | to);
    Pair& pair = found->second;
    if (fresh) {
        pair.source = from;
        pair.destination = to;
        pair.rate = pair.target = line_rate_;
    }
    return pair;
}

void Dcqcn::send(Leg leg) {
    if (landed_.size() <= leg.message)
        landed_.resize(leg.message + 1);
    landed_[leg.message] = 0;
    Pair& pair = pair_of(source(leg), destination(leg));
    pair.queue.push_back({leg, bytes(leg)});
    schedule(pair);
}

void Dcqcn::schedule(Pair& pair) {
    if (pair.scheduled || pair.queue.empty())
        return;
    pair.scheduled = true;
    sim_.events.at(std::max(pair.next, sim_.now()), pacer_, reinterpret_cast<std::uint64_t>(&pair));
}

void Dcqcn::pace(Pair& pair) {
    pair.scheduled = false;
    raise(pair);
    Sending& one = pair.queue.front();
    const std::uint32_t payload = std::min(payload_bytes, one.left);
    Packet* data = packet(Kind::leg_data, pair.source, pair.destination, payload);
    data->seq = one.leg.word();
    data->flags = flag_ect;
    one.left -= payload;
    if (!one.left)
        pair.queue.pop_front();
    const std::uint64_t wire = ethernet_bytes(data->bytes);
    pair.bytes += wire;
    pair.next = sim_.now() + static_cast<Time>(static_cast<double>(wire) / pair.rate);
    nic(pair.source).send(data);
    schedule(pair);
}

// A CNP has come.
void Dcqcn::cut(Pair& pair) {
    raise(pair);
    pair.target = pair.rate;
    pair.rate = std::max(pair.rate * (1 - pair.alpha / 2), rate_min * line_rate_);
    pair.alpha = (1 - alpha_gain) * pair.alpha + alpha_gain;
    pair.cut = pair.raised = pair.decayed = sim_.now();
    pair.bytes = 0;
    pair.timer_stage = pair.byte_stage = 0;
    pair.limited = true;
}

void Dcqcn::raise_once(Pair& pair) {
    const std::uint32_t least = std::min(pair.timer_stage, pair.byte_stage);
    const std::uint32_t most = std::max(pair.timer_stage, pair.byte_stage);
    if (least > fast_recovery)
        pair.target += hyper * line_rate_;
    else if (most > fast_recovery)
        pair.target += additive * line_rate_;
    pair.target = std::min(pair.target, line_rate_);
    pair.rate = (pair.rate + pair.target) / 2;
}

// Timers that have passed since the last packet take effect with the next one.
void Dcqcn::raise(Pair& pair) {
    if (!pair.limited)
        return;
    for (; sim_.now() >= pair.decayed + alpha_interval; pair.decayed += alpha_interval)
        pair.alpha *= 1 - alpha_gain;
    for (; sim_.now() >= pair.raised + raise_interval; pair.raised += raise_interval) {
        pair.timer_stage++;
        raise_once(pair);
    }
    for (; pair.bytes >= raise_bytes; pair.bytes -= raise_bytes) {
        pair.byte_stage++;
        raise_once(pair);
    }
    if (pair.rate >= line_rate_ * 0.999) {
        pair.rate = line_rate_;
        pair.limited = false;
    }
}

// At the switch: the mark, by the length of the queue, and the account of the host.
void Dcqcn::forwards(Packet& packet) {
    const std::uint64_t queued = egress(packet.dst).queued_bytes();
    if (packet.flags & flag_ect && queued > mark_from_bytes) {
        const double of = static_cast<double>(queued - mark_from_bytes) /
                          static_cast<double>(mark_to_bytes - mark_from_bytes);
        const bool marked =
            of >= 1 || static_cast<double>(sim_.rng.below(1 << 30)) < of * mark_max * (1 << 30);
        if (marked) {
            packet.flags |= flag_ce;
            marks_++;
        }
    }
    held_bytes_[packet.src] += packet.bytes;
    if (held_bytes_[packet.src] > pause_bytes && !paused_[packet.src]) {
        paused_[packet.src] = true;
        pauses_++;
        sim_.events.after(link(), pause_, std::uint64_t{packet.src} << 1 | 1);
    }
}

void Dcqcn::leaves(FramePort& port, const Packet& packet) {
    if (port.number < held_bytes_.size())
        return; // of a host
    held_bytes_[packet.src] -= packet.bytes;
    if (held_bytes_[packet.src] < resume_bytes && paused_[packet.src]) {
        paused_[packet.src] = false;
        sim_.events.after(link(), pause_, std::uint64_t{packet.src} << 1);
    }
}

void Dcqcn::receive(Packet* data) {
    const auto from = static_cast<std::uint16_t>(data->src);
    const auto to = static_cast<std::uint16_t>(data->dst);
    if (data->kind == Kind::leg_control) {
        sim_.pool.give(data);
        cut(pair_of(to, from));
        return;
    }
    Pair& pair = pair_of(from, to);
    if (data->flags & flag_ce && (!pair.was_marked || sim_.now() >= pair.marked + cnp_interval)) {
        pair.was_marked = true;
        pair.marked = sim_.now();
        cnps_++;
        nic(to).send(packet(Kind::leg_control, to, from, 0));
    }
    const Leg leg = Leg::of(data->seq);
    landed_[leg.message] += data->payload_bytes;
    sim_.pool.give(data);
    if (landed_[leg.message] == bytes(leg))
        arrived(leg);
}

std::vector<std::pair<std::string, std::uint64_t>> Dcqcn::counts() const {
    auto counts = Star::counts();
    counts.insert(counts.end(), {{"pauses", pauses_}, {"cnps", cnps_}, {"marked", marks_}});
    return counts;
}

} // namespace sim
