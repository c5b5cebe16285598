// SPDX-License-Identifier: GPL-2.0
// CXL's flow control: link by link, by credits of the receiver's buffer, and a switch with a FIFO
// at each input. A packet at the head whose output is busy holds those behind it.
//
//   host: round robin over messages ─> link, by credit ─> [ input FIFO ] ─> crossbar ─> output ─>
//   host
//                                          credit <──────────── leaves ┘
//
// Flits have 68 bytes in four slots. A line of 64 bytes takes a slot of header and four of data;
// a read's request takes one. Requests and data have buffers of their own, so neither blocks the
// other. Lines of a message travel four at a time. With virtual queues an input has a FIFO for each
// output.
#pragma once

#include <deque>
#include <vector>

#include "sim/message/budget.hpp"
#include "sim/message/frame_port.hpp"
#include "sim/message/leg.hpp"

namespace sim {

class Cxl final : public LegCarrier, public FrameOwner {
public:
    Cxl(Sim& sim, Messages& messages, bool virtual_queues);

    void idle(FramePort& port) override;
    void check(bool idle) const override;
    std::uint64_t egress_peak_bytes() const override { return peak_bytes_; }
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    void send(Leg leg) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    enum Channel : std::uint8_t { requests, data, channels };

    struct Sending {
        Leg leg;
        std::uint32_t left;
    };
    // A host's side of its link.
    struct Source {
        std::deque<Sending> turns[channels];
        std::int64_t credit_bytes[channels];
    };
    struct Input {
        std::vector<std::deque<Packet*>> fifos; // by channel, with virtual queues by output as well
        std::uint64_t bytes = 0;
    };
    struct Output {
        std::uint32_t next[channels] = {};          // first input in turn
        std::vector<std::uint64_t> heads[channels]; // set of inputs with a packet for it at a head
        std::uint32_t channel = 0;                  // first channel in turn
    };
    struct Middle final : Handler {
        explicit Middle(Cxl& owner) : cxl(owner) {}
        void fire(std::uint64_t packet) override;
        Cxl& cxl;
    };
    struct End final : Handler {
        explicit End(Cxl& owner) : cxl(owner) {}
        void fire(std::uint64_t packet) override;
        Cxl& cxl;
    };
    struct Credit final : Handler {
        explicit Credit(Cxl& owner) : cxl(owner) {}
        void fire(std::uint64_t credit) override;
        Cxl& cxl;
    };

    static std::uint32_t wire_bytes(bool request, std::uint32_t bytes);
    bool is_request(Leg leg) const;
    std::deque<Packet*>& fifo(std::uint32_t input, std::uint32_t channel, std::uint32_t output);
    bool feed(std::uint32_t host, std::uint32_t channel);
    // A packet has come to the head of a FIFO.
    void head(const Packet& packet);
    void serve(std::uint32_t output);
    bool serve(std::uint32_t output, std::uint32_t channel);
    void landed(Packet* packet);

    const Budget budget_;
    const bool virtual_;
    Middle middle_{*this};
    End end_{*this};
    Credit credit_{*this};
    std::vector<Source> sources_;
    std::vector<Input> inputs_;
    std::vector<Output> outputs_;
    std::deque<FramePort> up_, down_;
    std::vector<std::uint32_t> landed_; // by message: bytes of its leg that are there
    std::uint64_t peak_bytes_ = 0;
};

} // namespace sim
