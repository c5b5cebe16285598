// SPDX-License-Identifier: GPL-2.0
#include "sim/message/stream.hpp"

#include <algorithm>
#include <cmath>

#include "sim/message/budget.hpp"
#include "sim/network.hpp"

namespace sim {

namespace {

constexpr std::uint32_t tcp_header_bytes = 40;
constexpr std::uint32_t ack_bytes = 40;

// The user's value if there is one.
template <typename T>
void use(T& value, const T& usual, const T& wanted) {
    if (value == usual)
        value = wanted;
}

} // namespace

Params stream_params(Params params) {
    const Params usual;
    const bool trims = params.transport == "eqds" || params.transport == "ndp";
    const std::string& stack = params.message.stack;
    const Budget& budget = budget_of(!stack.empty() ? stack : trims ? "raw" : "tcp");
    params.host_hop_us = static_cast<double>(budget.one_way()) / 2 / us;
    params.hop_us = static_cast<double>(budget.hop()) / us;
    params.ethernet = true;
    // Windows and marks are for the longest way.
    auto scaled = [&](double packets) {
        const Time far = params.topology == "leaf-spine" ? 2 * budget.hop() : 0;
        return std::ceil(packets * static_cast<double>(budget.one_way() + far) /
                         static_cast<double>(budget.one_way()));
    };
    const auto window = static_cast<std::uint32_t>(scaled(16));
    if (trims) {
        use<std::string>(params.queue, usual.queue, "trim");
        use(params.queue_packets, usual.queue_packets, 16.0);
        use(params.eqds_window, usual.eqds_window, window);
        use(params.ndp_window, usual.ndp_window, window);
        use(params.pull_rate, usual.pull_rate, 0.97); // a link also carries preambles and gaps
        return params;
    }
    // Windows from the start at which a link is busy for a round trip. Marks as DCTCP's paper has
    // them, at a seventh of the bandwidth-delay product.
    use(params.initial_window, usual.initial_window, 4 * window);
    use(params.mark_packets, usual.mark_packets, scaled(8));
    use(params.header_bytes, usual.header_bytes, ack_bytes);
    use(params.rto_min_us, usual.rto_min_us, params.message.rto_us);
    use(params.rto_initial_us, usual.rto_initial_us, params.message.rto_us);
    return params;
}

Stream::Stream(Sim& sim, Messages& messages)
    : LegCarrier(sim, messages), transport_(parse_transport(sim.params.transport)) {}

void Stream::send(Leg leg) {
    const std::uint32_t from = source(leg), to = destination(leg);
    Pair& pair = pairs_[from << 16 | to];
    if (!pair.flow) {
        pair.flow = &sim_.add_flow(from, to, 0, transport_);
        pair.flow->listener = this;
        by_flow_.push_back(&pair);
    }
    pair.flow->bytes += bytes(leg);
    pair.ends.push_back({pair.flow->bytes, leg});
    if (pair.flow->started)
        pair.flow->source->more();
    else
        start(*pair.flow);
}

// At once: an event of the start would come behind packets that go at this time.
void Stream::start(Flow& flow) {
    create_endpoints(sim_, flow);
    sim_.endpoints[2 * flow.index] = flow.sink.get();
    sim_.endpoints[2 * flow.index + 1] = flow.source.get();
    flow.start = sim_.now();
    flow.started = true;
    flow.source->start();
}

void Stream::progress(Flow& flow, std::uint64_t in_order) {
    Pair& pair = *by_flow_[flow.index];
    while (!pair.ends.empty() && pair.ends.front().first <= in_order) {
        const Leg leg = pair.ends.front().second;
        pair.ends.pop_front();
        arrived(leg);
    }
}

std::pair<double, double> Stream::leg_wire(std::uint32_t bytes) const {
    const bool trims = transport_ == Transport::eqds || transport_ == Transport::ndp;
    const std::uint32_t header = trims ? sim_.params.header_bytes : tcp_header_bytes;
    const std::uint32_t payload = sim_.params.mtu_bytes - header;
    const std::uint32_t full = bytes / payload, rest = bytes % payload;
    double there = full * static_cast<double>(ethernet_bytes(sim_.params.mtu_bytes));
    if (rest)
        there += static_cast<double>(ethernet_bytes(rest + header));
    // NDP answers each packet by an ACK and a PULL.
    const std::uint32_t answers = transport_ == Transport::ndp ? 2 : 1;
    const double answer = static_cast<double>(ethernet_bytes(sim_.params.header_bytes));
    return {there, answers * (full + (rest != 0)) * answer};
}

std::uint64_t Stream::egress_peak_bytes() const {
    std::uint64_t peak = 0;
    for (const Port* port : sim_.network->ports()) {
        if (port->queue().discipline != Discipline::nic)
            peak = std::max(peak, port->stats().peak_bytes);
    }
    return peak;
}

std::vector<std::pair<std::string, std::uint64_t>> Stream::counts() const {
    std::uint64_t packets = 0, retransmissions = 0, timeouts = 0;
    for (const auto& flow : sim_.flows) {
        packets += flow->packets;
        retransmissions += flow->retransmissions;
        timeouts += flow->timeouts;
    }
    return {{"packets", packets}, {"retransmissions", retransmissions}, {"timeouts", timeouts}};
}

void Stream::check(bool idle) const {
    sim_.check();
    for (const Pair* pair : by_flow_)
        require(!idle || pair->ends.empty(), "a stream has bytes that never arrived");
}

} // namespace sim
