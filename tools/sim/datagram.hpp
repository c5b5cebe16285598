// SPDX-License-Identifier: GPL-2.0
// Traffic without congestion control: UDP at a constant rate, and pings.
#pragma once

#include "sim/sim.hpp"

namespace sim {

class UdpSource final : public Endpoint, public Handler {
public:
    UdpSource(Sim& sim, Flow& flow);
    void start() override { fire(0); }
    void fire(std::uint64_t) override;
    void receive(Packet* packet) override { sim_.pool.give(packet); }

private:
    Sim& sim_;
    Flow& flow_;
    Time interval_;
    std::uint32_t path_;
    std::uint64_t sent_bytes_ = 0;
};

class UdpSink final : public Endpoint {
public:
    UdpSink(Sim& sim, Flow& flow) : sim_(sim), flow_(flow) {}
    void receive(Packet* packet) override;

private:
    Sim& sim_;
    Flow& flow_;
};

// Sends one small packet per interval, forever.
class PingSource final : public Endpoint, public Handler {
public:
    PingSource(Sim& sim, Flow& flow) : sim_(sim), flow_(flow) {}
    void start() override { fire(0); }
    void fire(std::uint64_t) override;
    void receive(Packet* packet) override;

private:
    Sim& sim_;
    Flow& flow_;
};

class PingSink final : public Endpoint {
public:
    PingSink(Sim& sim, Flow& flow) : sim_(sim), flow_(flow) {}
    void receive(Packet* packet) override;

private:
    Sim& sim_;
    Flow& flow_;
};

} // namespace sim
