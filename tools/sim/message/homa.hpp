// SPDX-License-Identifier: GPL-2.0
// Homa (SIGCOMM'18): the first bandwidth-delay product of a message goes unscheduled. A receiver
// grants the rest to the few messages with the fewest bytes left, so each has that much
// outstanding.
//
//   sender:    [ sent | granted | not granted ]   the shortest message of a host first
//   receiver:  the messages it grants to, at most 4 (overcommitment); one GRANT a packet received
//
// Switches have eight priorities: 0 for control and the shortest messages, 1 to 3 for unscheduled
// packets by the size of their message, 4 to 7 for scheduled ones by the receiver's order.
#pragma once

#include <set>
#include <unordered_map>
#include <vector>

#include "sim/message/star.hpp"

namespace sim {

class Homa final : public Star {
public:
    Homa(Sim& sim, Messages& messages);

    void idle(FramePort& port) override;

protected:
    void send(Leg leg) override;
    void receive(Packet* packet) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    struct Sending {
        std::uint32_t bytes, sent = 0, granted;
        std::uint32_t rank; // of scheduled packets
        std::uint16_t source, destination;
        bool listed = false;
    };
    struct Incoming {
        Leg leg;
        std::uint32_t bytes, received = 0, granted;
        std::uint16_t source;
        bool known = false; // to the receiver
    };

    std::uint32_t unscheduled_rank(std::uint32_t bytes) const;
    void list(std::uint64_t id, Sending& one);
    void send_packet(std::uint64_t id, Sending& one);
    void granted(const Packet& packet);
    void data(const Packet& packet);
    void grant(std::uint16_t host);

    std::uint32_t window_bytes_;
    std::unordered_map<std::uint64_t, Sending> sending_;
    std::unordered_map<std::uint64_t, Incoming> incoming_;
    using Order = std::set<std::pair<std::uint32_t, std::uint64_t>>; // bytes left, id
    std::vector<Order> ready_, arriving_;                            // by host
    std::uint64_t next_id_ = 0;
};

} // namespace sim
