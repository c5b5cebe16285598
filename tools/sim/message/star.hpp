// SPDX-License-Identifier: GPL-2.0
// The network of the message transports that are packets over Ethernet: hosts with a FramePort, and
// one switch that stores and forwards. A transport sends through nic(), and overrides receive().
#pragma once

#include <deque>

#include "sim/message/budget.hpp"
#include "sim/message/frame_port.hpp"
#include "sim/message/leg.hpp"

namespace sim {

class Star : public LegCarrier, public FrameOwner {
public:
    // servers: machines beside the hosts, whose numbers follow those of the hosts.
    Star(Sim& sim, Messages& messages, const Budget& budget, std::uint64_t switch_bytes,
         std::uint32_t servers = 0);

    void check(bool idle) const override;
    std::uint64_t egress_peak_bytes() const override;
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    static constexpr std::uint32_t header_bytes = 40; // IP and transport
    static constexpr std::uint32_t payload_bytes = 1460;

    // A packet at its destination. Takes it over.
    virtual void receive(Packet* packet) = 0;
    // A packet at the switch, before it is queued.
    virtual void forwards(Packet& packet) {}

    // A packet between two hosts; bytes of payload.
    Packet* packet(Kind kind, std::uint16_t from, std::uint16_t to, std::uint32_t bytes);
    FramePort& nic(std::uint32_t host) { return up_[host]; }
    FramePort& egress(std::uint32_t host) { return down_[host]; }
    Time link() const { return budget_.link(); }
    // Both stacks' passages and the links', without serialisation.
    Time one_way() const { return budget_.one_way(); }
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    struct Middle final : Handler {
        explicit Middle(Star& owner) : star(owner) {}
        void fire(std::uint64_t packet) override;
        Star& star;
    };
    struct End final : Handler {
        explicit End(Star& owner) : star(owner) {}
        void fire(std::uint64_t packet) override;
        Star& star;
    };

    const Budget budget_;
    Middle middle_{*this};
    End end_{*this};
    std::deque<FramePort> up_, down_;
};

} // namespace sim
