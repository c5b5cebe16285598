// SPDX-License-Identifier: GPL-2.0
#include "sim/message/cxl.hpp"

#include <algorithm>
#include <bit>

#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

namespace {

constexpr std::uint32_t slot_bytes = 17; // of a flit's 68
constexpr std::uint32_t line_bytes = 64, slot_data_bytes = 16;
constexpr std::uint32_t cell_bytes = 4 * line_bytes;

} // namespace

Cxl::Cxl(Sim& sim, Messages& messages, bool virtual_queues)
    : LegCarrier(sim, messages),
      budget_(budget_of(sim.params.message.stack.empty() ? "cxl" : sim.params.message.stack)),
      virtual_(virtual_queues),
      sources_(sim.hosts.size()),
      inputs_(sim.hosts.size()),
      outputs_(sim.hosts.size()) {
    const auto hosts = static_cast<std::uint32_t>(sim.hosts.size());
    const std::uint32_t credit = sim.params.message.credit_bytes;
    if (sim.params.topology != "star")
        throw Misuse("topology '{}': transport cxl wants star", sim.params.topology);
    if (credit < wire_bytes(false, cell_bytes))
        throw Misuse("credit-bytes {}: a packet has {}", credit, wire_bytes(false, cell_bytes));
    const FramePort::Config to_switch{sim.params.host_gbps, budget_.link() + budget_.forward,
                                      ~std::uint64_t{0}, false};
    const FramePort::Config to_host{sim.params.host_gbps, budget_.link(), ~std::uint64_t{0}, false};
    for (std::uint32_t host = 0; host < hosts; host++) {
        up_.emplace_back(sim, to_switch, middle_, *this, host);
        down_.emplace_back(sim, to_host, end_, *this, hosts + host);
        std::fill_n(sources_[host].credit_bytes, +channels, credit);
        inputs_[host].fifos.resize(channels * (virtual_ ? hosts : 1));
        for (auto& heads : outputs_[host].heads)
            heads.resize((hosts + 63) / 64);
    }
}

bool Cxl::is_request(Leg leg) const {
    return messages_[leg.message].read && !leg.answer;
}

std::uint32_t Cxl::wire_bytes(bool request, std::uint32_t bytes) {
    if (request)
        return slot_bytes;
    const std::uint32_t lines = (bytes + line_bytes - 1) / line_bytes;
    return slot_bytes * (lines + (bytes + slot_data_bytes - 1) / slot_data_bytes);
}

// A leg as short as a request is one.
std::pair<double, double> Cxl::leg_wire(std::uint32_t bytes) const {
    return {wire_bytes(bytes <= sim_.params.message.request_bytes, bytes), 0};
}

std::deque<Packet*>& Cxl::fifo(std::uint32_t input, std::uint32_t channel, std::uint32_t output) {
    return inputs_[input].fifos[virtual_ ? output * channels + channel : channel];
}

void Cxl::send(Leg leg) {
    if (landed_.size() <= leg.message)
        landed_.resize(leg.message + 1);
    landed_[leg.message] = 0;
    const std::uint32_t host = source(leg);
    sources_[host].turns[is_request(leg) ? requests : data].push_back({leg, bytes(leg)});
    up_[host].kick();
}

void Cxl::idle(FramePort& port) {
    const auto hosts = static_cast<std::uint32_t>(sim_.hosts.size());
    if (port.number < hosts) {
        if (feed(port.number, requests) || feed(port.number, data))
            port.kick();
    } else {
        serve(port.number - hosts);
    }
}

bool Cxl::feed(std::uint32_t host, std::uint32_t channel) {
    Source& source = sources_[host];
    auto& turns = source.turns[channel];
    if (turns.empty())
        return false;
    Sending one = turns.front();
    const std::uint32_t payload = std::min(one.left, cell_bytes);
    const std::uint32_t wire = wire_bytes(channel == requests, payload);
    if (source.credit_bytes[channel] < wire)
        return false;
    turns.pop_front();
    source.credit_bytes[channel] -= wire;
    Packet* packet = sim_.pool.take();
    packet->kind = Kind::leg_data;
    packet->src = host;
    packet->dst = destination(one.leg);
    packet->bytes = static_cast<std::uint16_t>(wire);
    packet->payload_bytes = static_cast<std::uint16_t>(payload);
    packet->seq = one.leg.word();
    packet->subflow = static_cast<std::uint8_t>(channel);
    one.left -= payload;
    if (one.left)
        turns.push_back(one);
    up_[host].send(packet);
    return true;
}

void Cxl::Middle::fire(std::uint64_t arg) {
    Packet* packet = reinterpret_cast<Packet*>(arg);
    cxl.sim_.on_wire--;
    Input& input = cxl.inputs_[packet->src];
    input.bytes += packet->bytes;
    cxl.peak_bytes_ = std::max(cxl.peak_bytes_, input.bytes);
    auto& fifo = cxl.fifo(packet->src, packet->subflow, packet->dst);
    fifo.push_back(packet);
    if (fifo.size() == 1)
        cxl.head(*packet);
}

void Cxl::head(const Packet& packet) {
    outputs_[packet.dst].heads[packet.subflow][packet.src / 64] |= std::uint64_t{1}
                                                                   << packet.src % 64;
    if (!down_[packet.dst].is_busy())
        serve(packet.dst);
    else
        down_[packet.dst].kick();
}

void Cxl::serve(std::uint32_t output) {
    std::uint32_t& first = outputs_[output].channel;
    if (down_[output].is_busy())
        return;
    if (serve(output, first) || serve(output, 1 - first)) {
        first = 1 - first;
        down_[output].kick();
    }
}

// Moves the packet of the next input to the output.
bool Cxl::serve(std::uint32_t output, std::uint32_t channel) {
    Output& out = outputs_[output];
    auto& heads = out.heads[channel];
    const auto words = static_cast<std::uint32_t>(heads.size());
    std::uint32_t& next = out.next[channel];
    for (std::uint32_t step = 0; step <= words; step++) {
        const std::uint32_t word = (next / 64 + step) % words;
        const std::uint64_t mask = step ? ~std::uint64_t{0} : ~std::uint64_t{0} << next % 64;
        const std::uint64_t left = heads[word] & mask;
        if (!left)
            continue;
        const std::uint32_t input = 64 * word + static_cast<std::uint32_t>(std::countr_zero(left));
        heads[word] &= ~(std::uint64_t{1} << input % 64);
        next = (input + 1) % static_cast<std::uint32_t>(sim_.hosts.size());
        auto& fifo = this->fifo(input, channel, output);
        Packet* packet = fifo.front();
        fifo.pop_front();
        inputs_[input].bytes -= packet->bytes;
        sim_.events.after(budget_.link(), credit_,
                          std::uint64_t{packet->bytes} << 32 | input << 1 | channel);
        down_[output].send(packet);
        if (!fifo.empty())
            head(*fifo.front());
        return true;
    }
    return false;
}

void Cxl::Credit::fire(std::uint64_t arg) {
    const auto host = static_cast<std::uint32_t>(arg) >> 1;
    cxl.sources_[host].credit_bytes[arg & 1] += static_cast<std::int64_t>(arg >> 32);
    cxl.up_[host].kick();
}

void Cxl::End::fire(std::uint64_t arg) {
    cxl.sim_.on_wire--;
    cxl.landed(reinterpret_cast<Packet*>(arg));
}

void Cxl::landed(Packet* packet) {
    const Leg leg = Leg::of(packet->seq);
    landed_[leg.message] += packet->payload_bytes;
    sim_.pool.give(packet);
    if (landed_[leg.message] == bytes(leg))
        arrived(leg);
}

std::vector<std::pair<std::string, std::uint64_t>> Cxl::counts() const {
    std::uint64_t packets = 0;
    for (const FramePort& port : down_)
        packets += port.sent_packets();
    return {{"switch_packets", packets}};
}

void Cxl::check(bool idle) const {
    if (!idle)
        return;
    for (std::uint32_t host = 0; host < sources_.size(); host++)
        require(!inputs_[host].bytes, "CXL: a packet is left in an input");
    require(!sim_.pool.live(), "CXL: a packet is left");
}

} // namespace sim
