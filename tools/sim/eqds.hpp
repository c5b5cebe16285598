// SPDX-License-Identifier: GPL-2.0
// EQDS in the simulator: the protocol's core (kmod/core/eqds) between hosts and NICs.
//
//   TCP, UDP, ping ─> class ─> ┌──────────────┐                        ┌─ active sender list: PULLs
//   EQDS flows ──────────────> │ eqds_sender  │─> drr ─> NIC ... ─> eqds_receiver ─> endpoint, flow
//                              └──────────────┘<────── control ────────┘
//
// A host pair has one tunnel for what is sent through it; an EQDS flow has its own. Packets carry
// the headers as bytes. A tunnel is found by an index in the packet, in place of a hash of its
// address.
#pragma once

#include <deque>
#include <unordered_map>
#include <vector>

#include "sim/sim.hpp"
#include "sim/tcp.hpp"

extern "C" {
#include "core/eqds/asl.h"
#include "core/eqds/class.h"
#include "core/eqds/drr.h"
#include "core/eqds/receiver.h"
#include "core/eqds/sender.h"
}

namespace sim {

class EqdsHost;
struct EqdsTunnel;

// The core's structs with their tunnel behind them: a pointer to the struct is one to the end.
struct SenderEnd {
    eqds_sender core;
    EqdsTunnel* tunnel;
};
struct ReceiverEnd {
    eqds_receiver core;
    EqdsTunnel* tunnel;
};

// Both ends of one tunnel.
struct EqdsTunnel final : Handler {
    EqdsTunnel(Sim& owner, std::uint32_t from, std::uint32_t to, Flow* flow, std::uint32_t place);
    void fire(std::uint64_t receiving) override;
    void prioritize(u8 priority);

    Sim& sim;
    EqdsHost &from, &to;
    Flow* native; // owner of the only flow it carries, or null
    std::uint32_t index;
    std::uint32_t sender_host, receiver_host;
    std::uint32_t last_flow = 0; // sender of the last packet; control packets count as its
    SenderEnd sender_end;
    eqds_sender& sender = sender_end.core;
    eqds_class_queue admission;
    eqds_paths paths;
    std::vector<eqds_path> path_memory;
    std::vector<eqds_packet*> sender_slots, receiver_slots;
    LazyTimer sender_timer, receiver_timer;
    ReceiverEnd receiver_end;
    eqds_receiver& receiver = receiver_end.core;
    std::uint64_t retransmissions_unpulled = 0;   // of --eqds-retransmissions-first
    bool receiving = false;                       // receiver holds state
    std::uint64_t fed_bytes = 0, acked_bytes = 0; // of native
};

// State that all tunnels share.
class EqdsNet {
public:
    explicit EqdsNet(Sim& sim);

    EqdsHost& host(std::uint32_t id);
    EqdsTunnel& add_tunnel(std::uint32_t from, std::uint32_t to, Flow* native);
    bool has_priorities() const {
        return !priorities_.empty() || sim.params.eqds_retransmissions_first;
    }
    u8 priority_of(std::uint32_t sender_host) const;

    // The packet as the core holds it, at either end.
    struct Node {
        eqds_packet core; // first: a pointer to it is one to the node
        Packet* packet;   // null: an EQDS flow's bytes
        std::uint32_t payload_bytes;
    };
    Node* take_node();
    void give_node(Node* node) { free_.push_back(node); }

    Sim& sim;
    eqds_config config;
    eqds_class admission;
    std::deque<EqdsTunnel> tunnels;

private:
    struct Priority {
        std::uint32_t first, last; // hosts
        u8 priority;
    };
    std::vector<Priority> priorities_;
    std::deque<Node> nodes_;
    std::vector<Node*> free_;
};

class EqdsHost final : public Tunnel, public Sender, public Handler {
public:
    EqdsHost(EqdsNet& net, Host& host);

    void enqueue(Packet* packet) override;
    void receive(Packet* packet) override;
    void check() const override;
    std::uint64_t held() const override { return held_; }
    bool send_one() override;
    void fire(std::uint64_t) override; // the active sender list's turn
    void start(EqdsTunnel& tunnel);
    void more(EqdsTunnel& tunnel) { feed_native(tunnel); }
    void expire_sender(EqdsTunnel& tunnel);
    void expire_receiver(EqdsTunnel& tunnel);

private:
    void receive_data(EqdsTunnel& tunnel, Packet* packet, const eqds_head& head);
    void after_sender(EqdsTunnel& tunnel, eqds_out& out);
    void after_receiver(EqdsTunnel& tunnel, eqds_out& out);
    void feed_native(EqdsTunnel& tunnel);
    void release(EqdsTunnel& tunnel, eqds_packet* chain);
    void give_up(EqdsTunnel& tunnel, eqds_packet* chain);
    void hand_over(EqdsTunnel& tunnel, EqdsNet::Node* node);
    void send_head(EqdsTunnel& tunnel, const eqds_head& head);
    void write_header(Packet& packet, const eqds_head& head);
    void arm_list();

    EqdsNet& net_;
    Sim& sim_;
    Host& host_;
    std::unordered_map<std::uint32_t, std::uint32_t> tunnel_to_; // by destination host
    std::vector<EqdsTunnel*> sending_;                           // for check()
    eqds_drr drr_;
    eqds_eqif tcp_, native_;
    eqds_asl list_;
    LazyTimer list_timer_;
    std::uint64_t held_ = 0;
};

// For transports.cpp.
void create_eqds_endpoints(Sim& sim, Flow& flow);
void create_tunnels(Sim& sim, const Flow& flow);

} // namespace sim
