// SPDX-License-Identifier: GPL-2.0
// Fastpass (SIGCOMM'14): an arbiter beside an ordinary switch allots every packet its time, as EDM
// (ASPLOS'25, 4.3) simulates it: its decisions take no time, but each request and grant is a packet
// on the one link of the arbiter.
//
//   host -- request --> arbiter: shortest first among pairs of idle hosts -- grant --> host -- data
//   -->
//
// A grant covers up to eight packets, and both hosts are busy for their time.
#pragma once

#include <set>
#include <unordered_map>
#include <vector>

#include "sim/message/star.hpp"

namespace sim {

class Fastpass final : public Star {
public:
    Fastpass(Sim& sim, Messages& messages);

    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    void send(Leg leg) override;
    void receive(Packet* packet) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    struct Demand {
        Leg leg;
        std::uint32_t bytes, granted = 0, sent = 0, received = 0;
        std::uint16_t source, destination;
    };
    struct Clock final : Handler {
        explicit Clock(Fastpass& owner) : carrier(owner) {}
        void fire(std::uint64_t) override { carrier.arbitrate(); }
        Fastpass& carrier;
    };

    void arbitrate();
    void grant(std::uint64_t id, Demand& demand);
    void granted(std::uint64_t id, std::uint32_t bytes);
    void data(const Packet& packet);

    Clock clock_{*this};
    const std::uint16_t arbiter_;
    std::unordered_map<std::uint64_t, Demand> demands_;
    std::set<std::pair<std::uint32_t, std::uint64_t>> waiting_; // bytes to grant, id
    std::vector<Time> source_free_, destination_free_;
    Time wake_at_ = never;
    std::uint64_t next_id_ = 0, grants_ = 0;
};

} // namespace sim
