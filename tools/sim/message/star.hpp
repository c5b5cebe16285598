// SPDX-License-Identifier: GPL-2.0
// The network of the message transports that are packets over Ethernet: hosts with a FramePort, and
// a switch that stores and forwards, or leaves and spines of such. A transport sends through nic(),
// and overrides receive().
#pragma once

#include <deque>
#include <vector>

#include "sim/message/budget.hpp"
#include "sim/message/frame_port.hpp"
#include "sim/message/leg.hpp"

namespace sim {

class Star : public LegCarrier, public FrameOwner {
public:
    // servers: machines beside the hosts, whose numbers follow those of the hosts; they want one
    // switch.
    Star(Sim& sim, Messages& messages, const Budget& budget, std::uint64_t switch_bytes,
         std::uint32_t servers = 0, bool one_switch = false);

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
    // Both stacks' passages and the links', without serialisation, by the longest way.
    Time one_way() const { return budget_.one_way() + (leaves_ > 1 ? 2 * budget_.hop() : 0); }
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    // A switch. Links to another are equal, and a packet goes by the one with the shortest queue.
    struct Middle final : Handler {
        Middle(Star& owner, std::uint32_t number) : star(owner), leaf(number) {}
        void fire(std::uint64_t packet) override;
        Star& star;
        std::uint32_t leaf;                       // its number; of a spine: that of the leaves
        std::vector<std::deque<FramePort>> links; // of a leaf: up; of a spine: by leaf
        std::size_t next = 0;
    };
    void build_spines(const FramePort::Config& config);
    struct End final : Handler {
        explicit End(Star& owner) : star(owner) {}
        void fire(std::uint64_t packet) override;
        Star& star;
    };

    std::vector<const FramePort*> switch_ports() const;

    const Budget budget_;
    std::uint32_t leaves_ = 1, leaf_hosts_;
    std::deque<Middle> middle_, spines_; // by leaf
    End end_{*this};
    std::deque<FramePort> up_, down_;
};

} // namespace sim
