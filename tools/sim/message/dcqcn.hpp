// SPDX-License-Identifier: GPL-2.0
// RoCEv2 with DCQCN (SIGCOMM'15) over links with PFC: a queue pair for each pair of hosts paces its
// packets. Switches mark packets by the length of the queue (RED). A receiver of marks sends a CNP
// at most each 50 us. Nothing is dropped: a switch pauses a host while more than a bound of its
// bytes are in the switch.
//
//   rate of a queue pair:  cut by CNPs:  target = rate, rate *= 1 - alpha / 2
//                          raised by timer and byte counter: fast recovery to the target, then
//                          additive, then hyper increase of the target
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "sim/message/star.hpp"

namespace sim {

class Dcqcn final : public Star {
public:
    Dcqcn(Sim& sim, Messages& messages);

    void leaves(FramePort& port, const Packet& packet) override;
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    void send(Leg leg) override;
    void receive(Packet* packet) override;
    void forwards(Packet& packet) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    struct Sending {
        Leg leg;
        std::uint32_t left;
    };
    struct Pair {
        std::deque<Sending> queue;
        std::uint16_t source, destination;
        double rate, target, alpha = 1; // bytes a ps
        Time next = 0;                  // packet
        Time cut = 0, raised = 0, decayed = 0;
        std::uint64_t bytes = 0; // since the last raise by bytes
        std::uint32_t timer_stage = 0, byte_stage = 0;
        bool limited = false, scheduled = false;
        Time marked = 0; // receiver: last CNP
        bool was_marked = false;
    };
    struct Pacer final : Handler {
        explicit Pacer(Dcqcn& owner) : carrier(owner) {}
        void fire(std::uint64_t pair) override { carrier.pace(*reinterpret_cast<Pair*>(pair)); }
        Dcqcn& carrier;
    };
    struct Pause final : Handler {
        explicit Pause(Dcqcn& owner) : carrier(owner) {}
        void fire(std::uint64_t word) override {
            carrier.nic(static_cast<std::uint32_t>(word >> 1)).pause(word & 1);
        }
        Dcqcn& carrier;
    };

    Pair& pair_of(std::uint16_t from, std::uint16_t to);
    void schedule(Pair& pair);
    void pace(Pair& pair);
    void cut(Pair& pair);
    void raise(Pair& pair);
    void raise_once(Pair& pair);

    Pacer pacer_{*this};
    Pause pause_{*this};
    const double line_rate_;
    std::unordered_map<std::uint32_t, Pair> pairs_;
    std::vector<std::uint64_t> held_bytes_; // by host: of its packets in the switch
    std::vector<bool> paused_;
    std::vector<std::uint32_t> landed_; // by message
    std::uint64_t pauses_ = 0, cnps_ = 0, marks_ = 0;
};

} // namespace sim
