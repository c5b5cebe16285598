// SPDX-License-Identifier: GPL-2.0
// IRD, the receiver-driven transport that EDM (ASPLOS'25, 4.3) compares with, idealised: a receiver
// knows each message at once, and its grants arrive at once and cost nothing. In each packet's time
// a receiver grants a packet to the message with the fewest bytes left. Grants are pipelined: a
// bandwidth-delay product of them can be outstanding.
//
//   a host's packets that were granted wait in its NIC, those of the shortest message first
//
// One thing keeps IRD from the ideal: several receivers grant to one sender at a time.
#pragma once

#include <set>
#include <unordered_map>
#include <vector>

#include "sim/message/star.hpp"

namespace sim {

class Ird final : public Star {
public:
    Ird(Sim& sim, Messages& messages);

protected:
    void send(Leg leg) override;
    void receive(Packet* packet) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    struct Incoming {
        Leg leg;
        std::uint32_t bytes, granted = 0, received = 0;
        std::uint16_t source, destination;
    };
    struct Receiver {
        std::set<std::pair<std::uint32_t, std::uint64_t>> waiting; // bytes to grant, id
        std::uint64_t outstanding_bytes = 0;                       // on the wire
        Time free = 0;                                             // next grant
        bool scheduled = false;
    };
    struct Pacer final : Handler {
        explicit Pacer(Ird& owner) : carrier(owner) {}
        void fire(std::uint64_t host) override { carrier.grant(static_cast<std::uint32_t>(host)); }
        Ird& carrier;
    };

    void schedule(std::uint32_t host);
    void grant(std::uint32_t host);

    Pacer pacer_{*this};
    std::uint64_t outstanding_max_;
    std::unordered_map<std::uint64_t, Incoming> incoming_;
    std::vector<Receiver> receivers_;
    std::uint64_t next_id_ = 0;
};

} // namespace sim
