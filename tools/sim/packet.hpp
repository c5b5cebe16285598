// SPDX-License-Identifier: GPL-2.0
// Packets and their pool. Switches touch the first cache line only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "sim/units.hpp"

namespace sim {

enum class Kind : std::uint8_t {
    tcp_data,
    tcp_ack,
    tcp_open, // SYN, SYN+ACK or request: ack is 0, 1 or 2
    udp_data,
    ping,
    pong,
    ndp_data,
    ndp_ack,
    ndp_nack,
    ndp_pull,
    eqds_data,
    eqds_control,
    rmem_request,
    rmem_response,
    edm_note, // N
    edm_grant,
    edm_request, // RREQ
    edm_data,    // RRES, WREQ
    edm_taken,   // between leaves
    edm_frame,
    leg_data, // of a message transport, as are the next ones
    leg_ack,
    leg_control,
    kinds,
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
    std::uint64_t seq;     // TCP: first byte; NDP: packet number
    std::uint64_t ack;     // TCP: next expected byte; NDP: pull number
    std::uint64_t stamp;   // time of sending, echoed by acknowledgements
    std::uint32_t content; // of the pool's contents; 0: the payload's bytes don't matter
    std::uint32_t rank;    // in a priority queue: 0 first
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

// Bytes of an IP packet on Ethernet's link: MAC header and FCS, padding, preamble and gap.
inline constexpr std::uint64_t ethernet_bytes(std::uint64_t packet_bytes) {
    return std::max<std::uint64_t>(packet_bytes + 18, 64) + 20;
}

using Bytes = std::vector<std::uint8_t>;

// Payloads of packets whose receivers read them. Copies of a packet share one, and the last copy
// that is given back frees it.
class Contents {
public:
    std::uint32_t add(Bytes bytes) {
        if (free_.empty()) {
            all_.emplace_back();
            free_.push_back(static_cast<std::uint32_t>(all_.size()));
        }
        std::uint32_t index = free_.back();
        free_.pop_back();
        all_[index - 1] = {std::move(bytes), 1};
        return index;
    }
    const Bytes& operator[](std::uint32_t index) const { return all_[index - 1].bytes; }
    void share(std::uint32_t index) { all_[index - 1].owners++; }
    void drop(std::uint32_t index) {
        Content& one = all_[index - 1];
        if (--one.owners)
            return;
        one.bytes = {};
        free_.push_back(index);
    }
    std::size_t live() const { return all_.size() - free_.size(); }

private:
    struct Content {
        Bytes bytes;
        std::uint32_t owners;
    };
    std::deque<Content> all_;
    std::vector<std::uint32_t> free_;
};

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
    Packet* copy(const Packet& packet) {
        Packet* other = take();
        *other = packet;
        if (packet.content)
            contents.share(packet.content);
        return other;
    }
    void give(Packet* packet) {
        if (packet->content) [[unlikely]]
            contents.drop(packet->content);
        packet->next = free_;
        free_ = packet;
        live_--;
    }
    std::uint64_t live() const { return live_; }

    Contents contents;

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
