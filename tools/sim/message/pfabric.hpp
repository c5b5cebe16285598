// SPDX-License-Identifier: GPL-2.0
// pFabric (SIGCOMM'13): packets carry the bytes their message has left; switches send the packet
// with the fewest and drop the one with the most. Hosts start at line rate, with a window of a
// bandwidth-delay product, and retransmit packets not acknowledged in time.
//
//   leg:  [ acknowledged | in flight, at most a window | not sent ]   by packet, in any order
//
// The same without limits, acknowledgements or losses is the floor: an output-queued switch that
// serves the shortest remaining message first.
#pragma once

#include <set>
#include <unordered_map>
#include <vector>

#include "sim/message/star.hpp"

namespace sim {

class Pfabric final : public Star {
public:
    // floor: the output-queued SRPT switch.
    Pfabric(Sim& sim, Messages& messages, bool floor);

    void check(bool idle) const override;
    void idle(FramePort& port) override;
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    void send(Leg leg) override;
    void receive(Packet* packet) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    enum class State : std::uint8_t { waits, flies, acked };
    struct Sending {
        std::uint64_t id; // of the leg: message numbers are used again
        Leg leg;
        std::uint32_t bytes, left; // left: not acknowledged
        std::uint32_t flying = 0;  // packets
        std::uint32_t next = 0;    // packets before it do not wait
        std::uint16_t source, destination;
        bool listed = false;
        Time heard;
        std::vector<State> packets;
    };
    struct Receiving {
        Leg leg;
        std::uint32_t left;
        std::vector<bool> received;
    };
    struct Timer final : Handler {
        explicit Timer(Pfabric& owner) : carrier(owner) {}
        void fire(std::uint64_t) override { carrier.expire(); }
        Pfabric& carrier;
    };

    bool may_send(const Sending& one) const;
    void list(Sending& one);
    void unlist(Sending& one);
    // Returns false if it was the last one that the floor has.
    bool send_packet(Sending& one);
    void acknowledged(const Packet& packet);
    void data(Packet* packet);
    void watch(std::uint64_t id);
    void expire();
    void resend(Sending& one);

    const bool floor_;
    const Time rto_;
    std::uint32_t window_; // packets
    Timer timer_{*this};
    std::unordered_map<std::uint64_t, Sending> sending_;
    std::unordered_map<std::uint64_t, Receiving> receiving_;
    std::vector<std::set<std::pair<std::uint32_t, std::uint64_t>>> ready_; // by host: left, id
    std::deque<std::pair<Time, std::uint64_t>> deadlines_; // of ids: the timeout is constant
    std::uint64_t next_id_ = 0;
    std::uint64_t retransmissions_ = 0;
};

} // namespace sim
