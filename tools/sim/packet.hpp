// SPDX-License-Identifier: GPL-2.0
// Packets and their pool. Switches touch the first cache line only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include <sys/mman.h>

#include "sim/units.hpp"

namespace sim {

enum class Kind : std::uint8_t {
    tcp_data,
    tcp_ack,
    udp_data,
    ping,
    pong,
    ndp_data,
    ndp_ack,
    ndp_nack,
    ndp_pull,
    eqds_data,
    eqds_control,
};

enum Flag : std::uint8_t {
    flag_ect = 1,         // the sender reacts to marks
    flag_ce = 2,          // marked by a queue
    flag_ece = 4,         // an acknowledgement that reports a mark
    flag_trimmed = 8,     // the payload was cut off
    flag_control = 16,    // travels in the header queue
    flag_to_source = 32,  // for the flow's source endpoint, else for its sink
    flag_retransmit = 64, // not sent for the first time
    flag_sprayed = 128,   // may be trimmed; other packets are dropped
};

struct alignas(64) Packet {
    Packet* next; // in a queue or in the pool
    std::uint32_t dst;
    std::uint32_t src;
    std::uint32_t flow; // index into Sim::flows
    std::uint32_t path; // hashed by switches besides the flow
    std::uint16_t bytes;
    Kind kind;
    std::uint8_t flags;
    std::uint16_t payload_bytes;
    std::uint8_t subflow;
    std::uint8_t hops;
    std::uint64_t seq;   // TCP: first byte; NDP: packet number
    std::uint64_t ack;   // TCP: next expected byte; NDP: pull number
    std::uint64_t stamp; // time of sending, echoed by acknowledgements
    // The second line: the packet's EQDS header as bytes on the wire, and its packet inside.
    std::uint8_t tunnel_header[40];
    std::uint8_t tunnel_header_bytes;
    Kind inner_kind;
    std::uint8_t inner_flags;
    std::uint16_t inner_bytes;
    std::uint32_t tunnel; // its index
    // TCP's first SACK block, as distances from ack; 0: none.
    std::uint32_t sack_from, sack_to;
};
static_assert(sizeof(Packet) == 128);

class Pool {
public:
    // Zeroed.
    Packet* take() {
        if (!free_)
            grow();
        Packet* packet = free_;
        free_ = packet->next;
        *packet = Packet{};
        live_++;
        return packet;
    }
    void give(Packet* packet) {
        packet->next = free_;
        free_ = packet;
        live_--;
    }
    std::uint64_t live() const { return live_; }

private:
    struct Release {
        void operator()(void* block) const { std::free(block); }
    };

    // Blocks grow with the demand, up to those that the kernel can back with one huge page.
    void grow() {
        std::size_t count = std::clamp<std::size_t>(live_, 1024, huge_page / sizeof(Packet));
        std::size_t bytes = count * sizeof(Packet);
        void* block =
            std::aligned_alloc(bytes == huge_page ? huge_page : 4096, (bytes + 4095) / 4096 * 4096);
        if (!block)
            throw std::bad_alloc();
        blocks_.emplace_back(block);
        if (bytes == huge_page)
            madvise(block, bytes, MADV_HUGEPAGE);
        for (std::size_t i = count; i--;)
            give_new(static_cast<Packet*>(block) + i);
    }
    void give_new(Packet* packet) {
        packet->next = free_;
        free_ = packet;
    }

    static constexpr std::size_t huge_page = 2 << 20;

    std::vector<std::unique_ptr<void, Release>> blocks_;
    Packet* free_ = nullptr;
    std::uint64_t live_ = 0;
};

// A queue of packets, linked through Packet::next.
class Fifo {
public:
    bool empty() const { return !head_; }
    std::uint64_t bytes() const { return bytes_; }
    std::uint32_t packets() const { return packets_; }
    Packet* tail() const { return tail_; }

    void push(Packet* packet) {
        packet->next = nullptr;
        (head_ ? tail_->next : head_) = packet;
        tail_ = packet;
        bytes_ += packet->bytes;
        packets_++;
    }
    Packet* pop() {
        Packet* packet = head_;
        head_ = packet->next;
        bytes_ -= packet->bytes;
        packets_--;
        __builtin_prefetch(head_, 1); // next in the list
        return packet;
    }
    // The last packet's place is taken by this one; returns a packet with the last one's contents.
    Packet* replace_tail(Packet* packet) {
        bytes_ += packet->bytes;
        bytes_ -= tail_->bytes;
        Packet last = *tail_;
        *tail_ = *packet;
        tail_->next = nullptr;
        *packet = last;
        return packet;
    }

private:
    Packet *head_ = nullptr, *tail_ = nullptr;
    std::uint64_t bytes_ = 0;
    std::uint32_t packets_ = 0;
};

} // namespace sim
