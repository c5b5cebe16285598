// SPDX-License-Identifier: GPL-2.0
// EDM in the simulator: the cores of its hosts and its matcher (kmod/core/edm), as the modules use
// them, joined by links of 66-bit blocks (block_port.hpp).
//
//   Messages -> EdmHost (edm_host) -> BlockPort -> EdmLeaf (edm_leaf) -> BlockPort -> EdmHost
//                                                    |  ^
//                                             BlockPort BlockPort   none if all hosts are at one
//                                             switch
//                                                    v  |
//                                                   EdmSpine
//
//   write:  N ->, <- G, data -> -> ->            G and N are control blocks
//   read:   RREQ ->, [ waits for its match ], RREQ ->, <- <- data: the request is the first grant
//
// Time in the cores is in picoseconds. A DEMAND of the core is an N block an entry. Its
// acknowledgements, leases and joins have no blocks: a link of the PHY loses nothing, so nothing is
// told twice. Processing of hosts and switch, in cycles of the paper, is part of links' delays.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "sim/message/block_port.hpp"
#include "sim/message/message.hpp"

extern "C" {
#include "core/edm/block.h"
#include "core/edm/host.h"
#include "core/edm/leaf.h"
#include "core/edm/pim.h"
}

namespace sim {

class EdmRack;

// An operation of a host's core, and the message it is.
struct EdmOp {
    edm_op core; // first: a pointer to it is one to the operation
    std::uint32_t message;
    std::uint32_t landed; // bytes that are there
};

class EdmHost final : public Handler {
public:
    EdmHost(EdmRack& rack, std::uint16_t port);

    void submit(std::uint32_t message);
    void fire(std::uint64_t packet) override; // arrival
    void check() const;

    BlockPort nic;

private:
    void join();
    bool knows(const Packet& packet) const;
    void grant(const Packet& packet);
    void request(const Packet& packet);
    void data(const Packet& packet);
    void landed(EdmOp& op, std::uint32_t bytes);
    void drain();
    void act(const edm_host_action& action);
    void ask(const edm_host_action& action);
    void send_data(const edm_host_action& action);

    EdmRack& rack_;
    std::uint16_t port_;
    std::vector<std::uint64_t> memory_;
    edm_host core_;
    std::uint32_t seq_ = 0;     // of the bytes that the switch has sent
    std::vector<Packet> early_; // grants that passed their request
};

// Equal links from one switch to another.
class EdmLinks {
public:
    BlockPort& add(EdmRack& rack, const BlockPort::Delays& delays, Handler& peer);
    // By the link with the shortest queue; links that are equal take turns.
    void send(Packet* packet, BlockLane lane);

    std::deque<BlockPort> links;

private:
    std::size_t next_ = 0;
};

// The switch of a leaf, or the only one.
class EdmLeaf final : public Handler, public BlockListener {
public:
    EdmLeaf(EdmRack& rack, std::uint16_t number);

    void fire(std::uint64_t packet) override; // arrival, or 0: the matcher's time has come
    void egress(std::uint32_t port, std::uint32_t bytes) override;
    void check() const;
    static BlockLane lane_of(const Packet& packet);

    std::deque<BlockPort> down;
    EdmLinks up;
    // Arrivals from spines.
    struct Above final : Handler {
        void fire(std::uint64_t packet) override;
        EdmLeaf* leaf;
    } above;
    std::uint64_t grants = 0, offers = 0;

private:
    friend Above;
    bool has(std::uint32_t host) const { return host / core_.config.hosts == core_.config.leaf; }
    void forward(Packet* packet, BlockLane lane);
    void announce(Packet* packet);
    void offer(Packet* packet);
    void match();
    void tick();
    void act(const edm_leaf_action& action);
    void charge(const edm_leaf_action& action);

    EdmRack& rack_;
    std::vector<std::uint64_t> memory_;
    edm_leaf core_;
    std::unique_ptr<edm_pim> pim_;
    std::vector<Packet*> request_; // by announcer and slot: RREQ that waits for its match
    Time wake_at_ = never;
    Time pim_cycle_;
};

class EdmSpine final : public Handler {
public:
    explicit EdmSpine(EdmRack& rack) : rack_(rack) {}
    void fire(std::uint64_t packet) override; // arrival

    std::deque<EdmLinks> down; // by leaf

private:
    EdmRack& rack_;
};

// Ethernet frames between random hosts, beside the messages: Poisson arrivals of one size.
class EdmFrames final : public Handler {
public:
    explicit EdmFrames(EdmRack& rack);
    void fire(std::uint64_t) override; // the next frame

    std::uint64_t sent = 0, received = 0;

private:
    EdmRack& rack_;
    Rng rng_;
    std::uint32_t bytes_; // of the frame's blocks, and the gap behind it
    Time gap_;            // mean, of all hosts
};

class EdmRack final : public Carrier {
public:
    EdmRack(Sim& sim, Messages& messages);
    ~EdmRack();

    void submit(std::uint32_t message) override;
    Wire wire(bool read, std::uint32_t bytes) const override;
    void check(bool idle) const override;
    std::uint64_t egress_peak_bytes() const override;
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

    // Time for the cores, which take 0 for "never yet".
    u64 now() const { return sim.now() + us; }
    // Blocks of a data message, in bytes on the wire.
    std::uint32_t data_bytes(bool read, std::uint32_t bytes) const;
    Packet* packet(Kind kind, std::uint16_t from, std::uint16_t to, std::uint32_t bytes);
    EdmOp& take_op();
    void give_op(EdmOp& op) { free_.push_back(&op); }

    Sim& sim;
    Messages& messages;
    Time block;
    BlockPort::Delays up, down, across,
        back; // host to leaf, leaf to host, leaf to spine, spine to leaf
    std::uint16_t leaf_hosts, leaf_count;
    std::deque<EdmHost> hosts;
    std::deque<EdmLeaf> leaves;
    std::deque<EdmSpine> spines;
    std::unique_ptr<EdmFrames> frames; // null: there are none
    std::uint32_t request_bytes;       // RREQ's blocks

private:
    void delays();
    void build();

    std::deque<EdmOp> ops_;
    std::vector<EdmOp*> free_;
};

} // namespace sim
