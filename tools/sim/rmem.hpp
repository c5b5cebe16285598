// SPDX-License-Identifier: GPL-2.0
// Remote memory in the simulator: the memory protocol's own client (core/rmem/client) and node
// (core/rmem/node), with the protocol's datagrams as bytes in simulated packets.
//
//   host src                                                   host dst
//   operations ─> rmem_client ─> requests ─> [tunnel] ─> ... ─> rmem_node ─> pages
//                      ^                                            │
//                      └─────── responses <─ ... <─ [tunnel] <──────┘
//
// An rmem flow is one session. Its source opens it, allocates a region, and keeps --rmem-depth
// reads and writes of that region outstanding until the flow's bytes have been moved. Then it frees
// the region and closes the session. A host has one node for all sessions, and one incast window.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "node/host.hpp"
#include "sim/sim.hpp"
#include "sim/tcp.hpp"

extern "C" {
#include "core/rmem/client/client.h"
}

namespace sim {

class RmemClient;

// Messages of one end, on their way into a datagram.
class RmemDatagram {
public:
    explicit RmemDatagram(const base_siphash_key& key) : key_(key) {}

    std::uint32_t messages() const { return added_; }
    // Whether a message of this head may be added to those that are in it; the first one may.
    bool admits(std::uint32_t limit_bytes, const rmem_head& head);
    // The caller has asked admits().
    void add(rmem_head head, std::span<const std::uint8_t> payload);
    // Seals it. Empty afterwards.
    Bytes take();

private:
    const base_siphash_key& key_;
    rmem_bundle bundle_{};
    struct base_siphash hash_ {};
    std::uint32_t added_ = 0;
    bool more_ = false, shares_ = false;
    Bytes heads_, payloads_;
};

// The memory node of one host.
class RmemNode {
public:
    RmemNode(Sim& sim, std::uint32_t host, std::uint32_t sessions);

    // Executes a datagram of the flow and sends the answers. Takes the packet over.
    void receive(Flow& flow, Packet* packet);
    struct rmem_node_usage usage() {
        return host_.usage();
    }

private:
    struct Carrier;
    static const rmem_execute_ops carrier_ops;
    void serve(Flow& flow, const rmem_head& head, const std::uint8_t* payload, RmemDatagram& out);
    void answer(Flow& flow, const rmem_head& head, std::span<const std::uint8_t> payload,
                std::uint32_t limit_bytes, RmemDatagram& out);
    void flush(Flow& flow, RmemDatagram& out);
    void refill();

    Sim& sim_;
    std::uint32_t id_;
    remora::node::Host host_;
};

// State that the clients of one host share.
struct RmemMachine {
    RmemMachine() { rmem_incast_init(&incast, RMEM_IWND_BYTES); }
    rmem_base& base_of(std::uint32_t node);
    // Lets clients send that wait for the incast window.
    void wake_waiters();

    rmem_incast incast;
    std::map<std::uint32_t, rmem_base> bases; // by node
    std::vector<RmemClient*> clients;
    bool waking = false;
};

// State that all sessions share.
class RmemNet {
public:
    explicit RmemNet(Sim& sim);

    RmemNode& node(std::uint32_t host);
    RmemMachine& machine(std::uint32_t host) { return machines_[host]; }

    Sim& sim;
    base_siphash_key key;

private:
    std::map<std::uint32_t, RmemNode> nodes_;
    std::map<std::uint32_t, RmemMachine> machines_;
};

// The source of a flow.
class RmemClient final : public Endpoint, public Handler {
public:
    RmemClient(RmemNet& net, Flow& flow);

    void start() override;
    void receive(Packet* packet) override;
    void check() const override;
    void fire(std::uint64_t arg) override;
    // Sends what the windows allow.
    void pump();
    unsigned waiter() const { return client_.config.waiter; }

private:
    struct Operation {
        rmem_op core; // first: a pointer to it is one to the operation
        Bytes data;
        std::uint32_t index;
        bool outstanding;
        Time begun;
    };
    static Operation& operation_of(rmem_op* core) { return *reinterpret_cast<Operation*>(core); }

    rmem_client_config config();
    void send_message(RmemDatagram& out, const rmem_client_tx& tx);
    void flush(RmemDatagram& out);
    void submit(Operation& operation);
    // Begins the next read or write, if there is one.
    void begin(Operation& operation);
    void ended(rmem_op* chain, rmem_client_result result);
    void moved(Operation& operation);
    void expire();
    void settle();

    RmemNet& net_;
    Sim& sim_;
    Flow& flow_;
    RmemMachine& machine_;
    rmem_client client_;
    Operation region_{};               // the ALLOC, later the FREE
    std::deque<Operation> operations_; // --rmem-depth
    std::uint64_t region_address_ = 0; // 0: not allocated yet
    std::uint64_t begun_bytes_ = 0;    // of operations
    std::uint32_t outstanding_ = 0;    // the same
    std::uint32_t path_;
    LazyTimer timer_;
};

// Throws remora::Misuse if rmem flows can't be with these parameters.
void check_rmem_params(const Params& params);

// For transports.cpp.
void create_rmem_endpoints(Sim& sim, Flow& flow);

} // namespace sim
