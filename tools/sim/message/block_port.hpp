// SPDX-License-Identifier: GPL-2.0
// A port of EDM's PHY: memory blocks and frames share a link, block by block (EDM, ASPLOS'25,
// 3.2.3). Higher lanes go first:
//
//   control   N, G: go anywhere, also inside a message, which they stretch
//   request   RREQ: a message, so it waits for the end of one under way, but goes before data
//   data      RRES, WREQ: never cut by another message
//   frame     cut by all of the above; a frame is stretched by the blocks that pass it
//
// Memory waits for at most one block of a frame. A packet in service keeps Packet::stamp, the time
// at which its last block reaches the peer. A port that stretches it moves that time, so the peer
// asks is_late() and takes an event that comes too early as a reason to wait once more.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "sim/sim.hpp"

namespace sim {

enum class BlockLane : std::uint8_t { control, request, data, frame };

// Told when the queue of a port passes a bound, up or down.
class BlockListener {
public:
    virtual void egress(std::uint32_t port, std::uint32_t bytes) = 0;

protected:
    ~BlockListener() = default;
};

class BlockPort final : public Handler {
public:
    // Delays until the peer has processed a packet of each kind, from its block on the link.
    struct Delays {
        std::array<Time, static_cast<std::size_t>(Kind::kinds)> of{};
        bool cut_through = false; // data: the peer is told at the first block
    };

    BlockPort(Sim& sim, Time block, const Delays& delays, Handler& peer)
        : sim_(sim), peer_(peer), delays_(delays), block_(block) {}

    // bytes: 8 for each block.
    void send(Packet* packet, BlockLane lane);
    void fire(std::uint64_t) override; // a lane's service might have ended

    void listen(BlockListener& listener, std::uint32_t port, std::uint32_t bound_bytes) {
        listener_ = &listener;
        port_ = port;
        bound_bytes_ = bound_bytes;
    }
    // Until a message that is sent now could leave, if no control block comes.
    Time backlog() const {
        const Time until = std::max({memory_until_, control_until_, sim_.now()});
        return until - sim_.now() + queued_bytes() / 8 * block_;
    }
    std::uint64_t queued_bytes() const { return requests_.bytes() + data_.bytes(); }
    std::uint64_t peak_bytes() const { return peak_bytes_; }
    std::uint64_t sent_bytes() const { return sent_bytes_; }
    std::uint64_t queued_packets() const {
        return requests_.packets() + data_.packets() + frames_.packets();
    }
    // Longest wait of memory for the rest of a frame's block.
    Time frame_wait_max() const { return frame_wait_max_; }

    // Has the packet been stretched, so that its last block comes later? Then an event follows.
    static bool is_late(Sim& sim, Packet* packet, Handler& peer) {
        if (packet->stamp <= sim.now())
            return false;
        sim.events.at(packet->stamp, peer, reinterpret_cast<std::uint64_t>(packet));
        return true;
    }

private:
    Time tx(const Packet& packet) const { return packet.bytes / 8 * block_; }
    Time delay(const Packet& packet) const {
        return delays_.of[static_cast<std::size_t>(packet.kind)];
    }
    void send_control(Packet* packet);
    void start_memory(Packet* packet);
    void start_frame(Packet* packet);
    void next();
    void arrive(Packet* packet, Time when);
    void wake(Time when);
    void told();
    // Blocks that pass a frame under way delay it.
    void pass_frame(Time time) {
        if (frame_ && frame_until_ > sim_.now()) {
            frame_until_ += time;
            frame_->stamp += time;
        }
    }

    Sim& sim_;
    Handler& peer_;
    const Delays& delays_;
    BlockListener* listener_ = nullptr;
    Time block_;
    Time control_until_ = 0, memory_until_ = 0, frame_until_ = 0, wake_at_ = never;
    Packet *memory_ = nullptr, *frame_ = nullptr; // in service until then
    Fifo requests_, data_, frames_;
    std::uint32_t port_ = 0, bound_bytes_ = 0;
    bool above_ = false;
    std::uint64_t peak_bytes_ = 0, sent_bytes_ = 0;
    Time frame_wait_max_ = 0;
};

} // namespace sim
