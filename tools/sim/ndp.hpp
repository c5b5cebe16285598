// SPDX-License-Identifier: GPL-2.0
// NDP (SIGCOMM'17), the baseline: a first window at line rate, trimmed packets answered by NACKs,
// and then one packet per PULL, which the receiver paces at its link's rate.
#pragma once

#include <deque>
#include <vector>

#include "sim/sim.hpp"
#include "sim/tcp.hpp"

namespace sim {

// The retransmission timeout of what is sprayed: given_us, or if that is 0 one for full queues.
double spray_rto_us(const Params& params, double given_us);

// Random permutations of the paths, one after the other.
class Spray {
public:
    Spray(Sim& sim, std::uint32_t paths);
    std::uint32_t next();

private:
    Sim& sim_;
    std::vector<std::uint32_t> order_;
    std::size_t at_ = 0;
    std::uint32_t base_;
};

class NdpSource final : public Endpoint, public Sender, public Handler {
public:
    NdpSource(Sim& sim, Flow& flow);
    void start() override;
    void receive(Packet* packet) override;
    void more() override;
    bool send_one() override;
    void fire(std::uint64_t) override; // the retransmission timer
    void check() const override;

private:
    struct Sent {
        Time at;
        std::uint32_t bytes; // of payload
        bool waiting;        // for an ACK or NACK
        bool acked;
    };

    bool has_packet() const {
        return !again_.empty() || (flow_.listener ? supplied_bytes_ < flow_.bytes : next_ < total_);
    }
    std::uint32_t next_bytes();
    void send_packet(std::uint64_t number, bool again);
    Sent& sent(std::uint64_t number) { return window_[number - base_]; }
    void arm();

    Sim& sim_;
    Flow& flow_;
    Spray spray_;
    std::uint32_t payload_bytes_;
    std::uint64_t total_, next_ = 0;   // packets; a stream has no end
    std::uint64_t supplied_bytes_ = 0; // of a stream: in packets before next_
    std::uint64_t base_ = 0;           // first packet that isn't acknowledged
    std::deque<Sent> window_;          // from base_
    std::deque<std::uint64_t> again_;
    std::uint64_t permits_, pulled_ = 0;
    std::uint64_t in_flight_ = 0;
    Time rto_;
    LazyTimer timer_;
};

class NdpSink;

// Sends the PULLs of one host, one per MTU time, its senders in turn.
class NdpPacer final : public Handler {
public:
    NdpPacer(Sim& sim, Host& host);
    void add(NdpSink& sink);
    void fire(std::uint64_t) override;

private:
    Sim& sim_;
    Host& host_;
    Time interval_;
    std::deque<NdpSink*> turns_;
    bool running_ = false;
};

class NdpSink final : public Endpoint {
public:
    NdpSink(Sim& sim, Flow& flow);
    void receive(Packet* packet) override;
    // The pacer's turn: sends a PULL; returns whether more are wanted.
    bool pull();
    bool listed = false;

private:
    Sim& sim_;
    Flow& flow_;
    NdpPacer& pacer_;
    std::uint64_t total_, next_ = 0;     // packets; next_: first one missing
    std::deque<std::uint16_t> received_; // from next_: payloads; 0: missing
    std::uint64_t in_order_bytes_ = 0;
    std::uint64_t waiting_ = 0; // received beyond next_
    std::uint64_t pulls_ = 0, wanted_ = 0, wanted_max_;
};

} // namespace sim
