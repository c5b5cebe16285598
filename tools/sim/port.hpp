// SPDX-License-Identifier: GPL-2.0
// An output port: its queues, the transmitter and the link to the next node.
//
//   send ─> headers (trim and NIC only) ──┐ strict priority
//        ─> data    (limit; trim or drop) ├──> transmitter ──> link ──> peer
//        ─> legacy  (trim only)  ─────────┘ data and legacy take turns by bytes
//
// A transmission costs one event, the packet's arrival at the peer. A second one, the end of the
// transmission, is scheduled only if something waits for it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/events.hpp"
#include "sim/packet.hpp"

namespace sim {

class Sim;

enum class Discipline : std::uint8_t {
    nic,       // no limit; control packets first
    drop_tail, // one queue
    trim,      // NDP's queue (SIGCOMM'17, section 3.1)
    fair,      // one queue per flow, round robin by bytes; the longest queue loses its last packet
};

enum class TrimVictim : std::uint8_t { arriving, tail, either };

struct QueueParams {
    Discipline discipline = Discipline::drop_tail;
    std::uint64_t limit_bytes = 0;
    std::uint64_t header_limit_bytes = 0;
    std::uint64_t legacy_limit_bytes = 0;
    std::uint64_t mark_bytes = 0; // ECN: mark arrivals that find more than this; 0: never
    TrimVictim victim = TrimVictim::either;
};

struct PortStats {
    std::uint64_t sent_packets = 0, sent_bytes = 0;
    std::uint64_t drops = 0, trims = 0, marks = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t area = 0; // queued bytes * time, in byte * 2^10 ps
    Time area_at = 0;
};

// Asked for a packet when a NIC has nothing to send.
class Feeder {
public:
    // Sends one packet through the port, or returns false.
    virtual bool feed() = 0;

protected:
    ~Feeder() = default;
};

class Port final : public Handler {
public:
    // id: its place in Sim's list of ports, for reports.
    Port(Sim& sim, std::uint32_t id, std::uint64_t bits_per_second, Time delay, Handler& peer,
         const QueueParams& queue);
    ~Port();

    void send(Packet* packet);
    void fire(std::uint64_t) override; // the transmission has ended

    void set_feeder(Feeder& feeder) { feeder_ = &feeder; }
    // The feeder has something to send.
    void kick();
    // A port that is down loses what is sent and what it holds.
    void set_up(bool up);

    Time transmit_time(std::uint64_t bytes) const {
        return static_cast<Time>(bytes * ps_per_byte_16_ >> 16);
    }
    std::uint64_t queued_bytes() const { return queued_bytes_; }
    std::uint32_t queued_packets() const;
    std::uint64_t bits_per_second() const { return bits_per_second_; }
    const PortStats& stats() const { return stats_; }
    void reset_area();
    std::uint32_t id() const { return id_; }
    void check() const;
    const QueueParams& queue() const { return queue_; }
    Handler& peer() const { return peer_; }

private:
    struct FairQueues;

    void enqueue(Packet* packet);
    void enqueue_trim(Packet* packet);
    void enqueue_fair(Packet* packet);
    void enqueue_header(Packet* packet);
    Packet* dequeue();
    Packet* dequeue_fair();
    void transmit(Packet* packet);
    void drop(Packet* packet);
    void mark(Packet* packet, std::uint64_t queued);
    void account(std::int64_t bytes);
    bool idle() const;
    void wake_at_end();

    Sim& sim_;
    Handler& peer_;
    std::uint64_t ps_per_byte_16_; // 16 fractional bits
    Time delay_;
    Time busy_until_ = 0;
    Feeder* feeder_ = nullptr;
    bool wake_scheduled_ = false, up_ = true;
    bool legacy_turn_ = false;
    std::uint32_t serving_bytes_ = 0; // data in transmission until busy_until_
    Fifo headers_, data_, legacy_;
    std::uint64_t queued_bytes_ = 0;
    std::int64_t legacy_deficit_bytes_ = 0;
    QueueParams queue_;
    std::unique_ptr<FairQueues> fair_;
    std::uint64_t bits_per_second_;
    std::uint32_t id_;
    PortStats stats_;
};

} // namespace sim
