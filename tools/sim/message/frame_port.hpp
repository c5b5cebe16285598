// SPDX-License-Identifier: GPL-2.0
// A port of message transports: one queue by Packet::rank, 0 first, and by arrival among equals.
//
//   send ─> queue (limit; the worst packet is dropped) ─> transmitter ─> link ─> peer
//                                            idle: the owner is asked for a packet
#pragma once

#include <vector>

#include "sim/sim.hpp"

namespace sim {

class FramePort;

class FrameOwner {
public:
    // The port is idle: the owner may send one packet.
    virtual void idle(FramePort& port) {}
    virtual void dropped(Packet* packet) {}
    // The packet leaves the queue.
    virtual void leaves(FramePort& port, const Packet& packet) {}

protected:
    ~FrameOwner() = default;
};

class FramePort final : public Handler {
public:
    struct Config {
        double gbps;
        Time delay;
        std::uint64_t limit_bytes = ~std::uint64_t{0};
        bool ethernet = true; // packets' bytes are those of IP; else those on the link
    };

    FramePort(Sim& sim, const Config& config, Handler& peer, FrameOwner& owner,
              std::uint32_t number);

    void send(Packet* packet);
    // The owner has something to send.
    void kick();
    void pause(bool paused);
    void fire(std::uint64_t) override; // the transmission has ended

    Time tx(const Packet& packet) const;
    // Bytes that wait, and one if a packet is under way.
    std::uint64_t backlog() const { return queued_bytes_ + is_busy(); }
    bool is_busy() const { return sim_.now() < busy_until_; }
    std::uint64_t queued_bytes() const { return queued_bytes_; }
    std::size_t queued_packets() const { return heap_.size(); }
    std::uint64_t peak_bytes() const { return peak_bytes_; }
    std::uint64_t drops() const { return drops_; }
    std::uint64_t sent_packets() const { return sent_packets_; }

    const std::uint32_t number; // the owner's

private:
    struct Entry {
        std::uint64_t key; // rank, order of arrival
        Packet* packet;
        bool operator<(const Entry& other) const { return key > other.key; } // least on top
    };

    void transmit(Packet* packet);
    void drop_worst();
    void wake();

    Sim& sim_;
    Config config_;
    Handler& peer_;
    FrameOwner& owner_;
    std::uint64_t ps_per_byte_q16_;
    std::vector<Entry> heap_;
    std::uint32_t order_ = 0;
    std::uint64_t queued_bytes_ = 0, peak_bytes_ = 0, drops_ = 0, sent_packets_ = 0;
    Time busy_until_ = 0;
    bool wake_scheduled_ = false, paused_ = false;
};

} // namespace sim
