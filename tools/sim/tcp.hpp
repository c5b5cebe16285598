// SPDX-License-Identifier: GPL-2.0
// TCP: recovery by selective acknowledgements (RFC 6675) under the congestion control of cc.hpp,
// and MPTCP, which is several of them sharing one supply of bytes.
//
//   open ──3 segments SACKed──> recovery ──ACK of all that was sent before──> open
//     └──────timer──────> slow start from the first unacknowledged byte
//
//   pipe = sent - acknowledged - SACKed - (holes below the highest SACK that wait to be sent again)
//
// As RACK does (RFC 8985), a hole is sent once more when data sent after it was SACKed.
//
// An ACK reports one block, the one around the segment that it answers; with an ACK per segment the
// sender learns all of them.
//
// The receiver's buffer has no bound. Connections are established from the start, or opened:
//
//   --tcp-open connect:  source ──SYN──> sink ──SYN+ACK──> source ──data──>
//   --tcp-open fetch:    sink ──SYN──> source ──SYN+ACK──> sink ──request──> source ──data──>
#pragma once

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "sim/cc.hpp"
#include "sim/sim.hpp"

namespace sim {

class TcpSource;

// A lazily moved timer: at most one event is scheduled; an early one schedules the next.
class LazyTimer {
public:
    // Moves the deadline; the handler's fire() must call due().
    void set(Sim& sim, Handler& handler, Time deadline, std::uint64_t arg = 0) {
        deadline = std::max(deadline, sim.now());
        deadline_ = deadline;
        if (scheduled_ <= deadline)
            return;
        scheduled_ = deadline;
        sim.events.at(deadline, handler, arg);
    }
    void clear() { deadline_ = never; }
    bool active() const { return deadline_ != never; }
    // Whether the deadline has come. Else an event for it is scheduled if there is one.
    bool due(Sim& sim, Handler& handler, std::uint64_t arg = 0) {
        if (sim.now() < scheduled_)
            return false; // an earlier set() has replaced this event
        scheduled_ = never;
        if (deadline_ <= sim.now()) {
            deadline_ = never;
            return true;
        }
        if (deadline_ != never)
            set(sim, handler, deadline_, arg);
        return false;
    }

private:
    Time deadline_ = never, scheduled_ = never;
};

// Disjoint ranges [from, to), sorted.
using Islands = std::vector<std::pair<std::uint64_t, std::uint64_t>>;

// Adds a range; returns the island it is then part of.
std::pair<std::uint64_t, std::uint64_t> add_island(Islands& islands, std::uint64_t from,
                                                   std::uint64_t to);

class TcpSubflow final : public Handler {
public:
    TcpSubflow(TcpSource& owner, std::uint8_t index, CcGroup* group);
    void send_more();
    void ack(const Packet& packet);
    void fire(std::uint64_t) override; // the retransmission timer
    bool all_acked() const { return una_ == assigned_; }
    void check() const;

private:
    void send_segment(std::uint64_t seq, std::uint32_t bytes);
    void new_ack(std::uint64_t bytes, bool ece);
    void sacked(std::uint64_t from, std::uint64_t to);
    std::uint64_t pipe() const;
    // The first byte from `from` on that was not SACKed.
    std::uint64_t next_hole(std::uint64_t from) const;
    std::uint64_t highest_sacked() const {
        return islands_.empty() ? una_ : islands_.back().second;
    }
    bool retransmit_hole();
    void measure(Time rtt);
    std::uint32_t segment_at(std::uint64_t seq);
    std::uint64_t in_flight() const { return nxt_ - una_; }
    void arm(bool progress);
    bool probe();

    TcpSource& owner_;
    Cc cc_;
    std::uint64_t una_ = 0, nxt_ = 0, max_sent_ = 0; // bytes of this subflow
    std::uint64_t assigned_ = 0;                     // bytes taken from the connection
    std::uint64_t recover_ = 0;
    std::uint64_t again_ = 0;        // in recovery: holes below have been sent again
    std::uint64_t pass_end_ = never; // highest byte sent when all holes had been; never: not yet
    Islands islands_;                // SACKed
    std::uint64_t ecn_recover_ = 0, window_end_ = 0;
    std::uint32_t path_;
    std::uint64_t probe_end_ = 0; // end of the segment that a tail loss probe repeated; 0: none
    bool recovering_ = false, timer_probes_ = false;
    std::uint8_t index_;
    Time srtt_ = 0, rttvar_ = 0, rto_;
    std::uint32_t backoff_ = 0;
    LazyTimer timer_;
};

// How a connection opens: both of its ends. The end that opens repeats what isn't answered.
class TcpOpening final : public Handler {
public:
    explicit TcpOpening(Sim& sim, Flow& flow);
    // Whether the source may send at once.
    bool start();
    // A packet of the opening. Takes it over; returns whether the source may send from now on.
    bool receive(Packet* packet);
    // Data has arrived at the sink.
    void data() { timer_.clear(); }
    void fire(std::uint64_t) override;

private:
    enum Step : std::uint8_t { syn, syn_ack, request };

    void send(Step step);
    void ask(Step step);

    Sim& sim_;
    Flow& flow_;
    bool established_, fetch_;
    bool sending_ = false; // the source has been told
    Step asked_ = syn;
    std::uint32_t backoff_ = 0;
    LazyTimer timer_;
};

class TcpSource final : public Endpoint {
public:
    TcpSource(Sim& sim, Flow& flow);
    void start() override;
    void receive(Packet* packet) override;
    void more() override { send_all(); }
    void check() const override;

    // Up to so many of the connection's unassigned bytes.
    std::uint32_t supply(std::uint32_t bytes);

    Sim& sim;
    Flow& flow;
    Host& host;
    std::uint32_t mss;
    TcpOpening opening;

private:
    void send_all();

    std::deque<TcpSubflow> subflows_;
    CcGroup group_;
    std::uint64_t supplied_bytes_ = 0;
};

class TcpSink final : public Endpoint {
public:
    TcpSink(Sim& sim, Flow& flow);
    void receive(Packet* packet) override;

private:
    struct Subflow {
        std::uint64_t next = 0;
        Islands islands;
        std::uint32_t waiting_packets = 0, unacked = 0;
    };

    Sim& sim_;
    Flow& flow_;
    TcpSource& source_;
    std::vector<Subflow> subflows_;
};

} // namespace sim
