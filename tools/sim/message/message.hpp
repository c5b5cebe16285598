// SPDX-License-Identifier: GPL-2.0
// Remote memory messages: reads and writes that hosts issue, open loop, and how long each takes.
//
//   Messages ── submit ──> Carrier (one per transport) ── network ──> Carrier ── finished ──>
//   Messages
//      │                                                                             │
//      └─ Poisson arrivals, or a trace                    latency of each measured message ─┘
//
// A message exists from its issue to its end, so memory grows with those in flight, and 16 bytes
// for each measured one. A run issues warm-up messages, then those that are measured, and goes on
// issuing until the last measured one has ended, so that it ends under the same load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/sim.hpp"
#include "sim/workload.hpp"

namespace sim {

struct Message {
    Time issued;
    std::uint32_t bytes; // of data
    std::uint16_t requester, memory;
    bool read, measured;
    std::uint32_t trace_line; // of a trace; 0: generated
};

// Bytes that a message puts on the links of its two hosts, with everything that surrounds them.
struct Wire {
    double requester_tx = 0, requester_rx = 0, memory_tx = 0, memory_rx = 0;
};

// A transport. It calls Messages::finished() once for each message.
class Carrier {
public:
    virtual ~Carrier() = default;
    virtual void submit(std::uint32_t message) = 0;
    // The cost of a lone message.
    virtual Wire wire(bool read, std::uint32_t bytes) const = 0;
    // Throws Broken if the books don't balance. idle: no message is in flight.
    virtual void check(bool idle) const {}
    // Largest egress queue of a switch, in bytes on the wire.
    virtual std::uint64_t egress_peak_bytes() const { return 0; }
    // Further figures, for the JSON.
    virtual std::vector<std::pair<std::string, std::uint64_t>> counts() const { return {}; }
};

// A measured message that has ended.
struct Sample {
    Time latency;
    std::uint32_t bytes;
    bool read;
    bool far; // between leaves
    std::uint32_t trace_line;
};

struct TraceLine {
    Time issued;
    std::uint32_t bytes, number;
    std::uint16_t requester, memory;
    bool read;
};

class Messages final : public Handler {
public:
    explicit Messages(Sim& sim);
    ~Messages();

    // Issues and runs to the end of all messages.
    void run(const std::function<void()>& every);
    // One message in an idle network; returns its latency.
    Time lone(bool read, std::uint32_t bytes);

    Message& operator[](std::uint32_t index) { return messages_[index]; }
    void finished(std::uint32_t index);
    void fire(std::uint64_t) override; // the next arrival

    Carrier& carrier() { return *carrier_; }
    const std::vector<Sample>& samples() const { return samples_; }
    std::uint64_t issued() const { return issued_; }
    std::uint64_t in_flight() const { return in_flight_; }
    std::uint64_t in_flight_peak() const { return messages_.size(); }
    // Data bytes of messages that ended between the first and the last measured issue, and that
    // time.
    std::uint64_t goodput_bytes() const { return goodput_bytes_; }
    Time measured_time() const { return window_end_ - window_start_; }
    // The mean cost of a message.
    Wire mean_wire() const;

private:
    std::uint32_t take();
    std::uint32_t draw_bytes(Rng& rng, bool read) const;
    void issue(bool read, std::uint32_t bytes, std::uint16_t requester, std::uint16_t memory,
               std::uint32_t trace_line);
    void issue_random();
    void next_random();
    void issue_trace();
    bool wants_more() const;
    Wire wire_of(const std::string& transport) const;
    std::uint64_t gap_of(const Wire& wire) const;
    std::uint64_t mean_gap_q10() const;

    Sim& sim_;
    Rng rng_; // of arrivals: the same ones for any transport
    Sizes sizes_;
    std::vector<TraceLine> trace_;
    std::unique_ptr<Carrier> carrier_;
    std::vector<Message> messages_;
    std::vector<std::uint32_t> free_;
    std::vector<Sample> samples_;
    std::uint64_t warmup_, wanted_; // messages
    std::uint64_t issued_ = 0, in_flight_ = 0, measured_left_ = 0;
    std::uint64_t gap_q10_ = 0, fraction_q10_ = 0;
    std::uint64_t goodput_bytes_ = 0;
    Time window_start_ = 0, window_end_ = 0, last_latency_ = 0;
};

// carriers.cpp. Parameters of a Sim whose messages go by params.transport.
Params message_params(const Params& params);
// Throws remora::Misuse for an unknown transport.
std::unique_ptr<Carrier> make_carrier(Sim& sim, Messages& messages);

} // namespace sim
