// SPDX-License-Identifier: GPL-2.0
// One simulation: clock, packets, network, hosts and flows.
//
//   Workload ─> Flow ─> source Endpoint ─> Host ─> [tunnel] ─> Port ... Switch ... ─> Host ─> sink
//
// Nothing here knows a transport: endpoints receive packets of their flow and send through hosts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sim/events.hpp"
#include "sim/packet.hpp"
#include "sim/params.hpp"
#include "sim/port.hpp"

namespace sim {

// An invariant doesn't hold: the simulator is wrong.
struct Broken : std::runtime_error {
    using std::runtime_error::runtime_error;
};

inline void require(bool good, const char* what) {
    if (!good)
        throw Broken(what);
}

class Sim;
class Host;
struct Flow;
class NdpPacer;
class EqdsNet;
class RmemNet;

class Endpoint {
public:
    virtual ~Endpoint() = default;
    virtual void start() {}
    // Takes the packet over.
    virtual void receive(Packet* packet) = 0;
    // The flow has got more bytes.
    virtual void more() {}
    // Throws Broken if the endpoint's own books don't balance.
    virtual void check() const {}
};

// Follows a flow whose bytes are a stream: it gets more of them as it goes, and never ends.
class StreamListener {
public:
    // All bytes before this one are there.
    virtual void progress(Flow& flow, std::uint64_t in_order) = 0;

protected:
    ~StreamListener() = default;
};

struct Flow {
    std::uint32_t index = 0; // in Sim::flows
    std::uint32_t src = 0, dst = 0;
    std::uint64_t id = 0;    // as the matrix names it
    std::uint64_t bytes = 0; // 0: sends until the end
    Time start = 0, end = never;
    bool started = false, tunnelled = false;
    Transport transport = Transport::newreno;
    std::unique_ptr<Endpoint> source, sink;

    std::uint64_t delivered_bytes = 0, delivered_at_warmup = 0;
    std::uint64_t packets = 0, retransmissions = 0, timeouts = 0;
    std::uint64_t drops = 0, trims = 0, marks = 0;
    std::uint64_t edge_drops = 0, edge_retransmissions = 0; // by the flow's tunnel
    std::uint32_t reorder_depth = 0; // most packets that waited for an earlier one
    std::vector<Time> rtts;          // of pings; times of remote reads and writes
    StreamListener* listener = nullptr;

    bool done() const { return end != never; }
};

// The way of packets inside a tunnel. Implemented by the EQDS adapter.
class Tunnel {
public:
    virtual ~Tunnel() = default;
    // A packet of a flow on this host. Takes it over.
    virtual void enqueue(Packet* packet) = 0;
    // A tunnel packet from the network. Takes it over.
    virtual void receive(Packet* packet) = 0;
    virtual void check() const {}
    // Packets held: queued, in flight copies, reordered.
    virtual std::uint64_t held() const = 0;
};

// Sends one packet through the host's NIC when its turn comes; returns whether it has more.
class Sender {
public:
    virtual bool send_one() = 0;
    bool listed = false;

protected:
    ~Sender() = default;
};

class Host final : public Handler, public Feeder {
public:
    Host(Sim& sim, std::uint32_t id) : sim_(sim), id_(id) {}

    void fire(std::uint64_t packet) override; // arrival
    // From an endpoint: into the tunnel if the flow has one, else to the NIC.
    void send(Packet* packet);
    // To the NIC.
    void emit(Packet* packet);
    // To the endpoint of a flow.
    void deliver(Packet* packet);
    // The sender gets turns at the NIC until send_one() returns false.
    void ready(Sender& sender);
    bool feed() override;

    std::uint32_t id() const { return id_; }
    std::unique_ptr<Port> nic;
    std::unique_ptr<Tunnel> tunnel;
    std::shared_ptr<NdpPacer> pull_pacer;

private:
    Sim& sim_;
    std::uint32_t id_;
    std::deque<Sender*> senders_;
};

class Switch final : public Handler {
public:
    Switch(Sim& sim, std::uint32_t tier, std::uint32_t index);
    void fire(std::uint64_t packet) override;

    std::uint32_t tier, index;            // tier 0: next to hosts
    std::uint32_t place = 0;              // in Network::switches()
    std::uint32_t first_host, hosts_span; // hosts below
    std::uint32_t hosts_per_down;         // below each group of down ports
    std::uint32_t down_bundle = 1;        // parallel links to each child
    std::size_t path_divisor = 0;         // of the path id, whose digits name links; 0: hash it
    std::vector<std::unique_ptr<Port>> down, up;
    // Only after failures: the usable up ports for a destination's ToR.
    std::vector<std::uint64_t> up_mask;
    std::vector<std::uint64_t> down_mask; // by child

private:
    Port* route(const Packet& packet) const;
    std::size_t pick(const Packet& packet, std::size_t links) const;

    Sim& sim_;
    std::uint64_t salt_;
};

// Receives the events of single packets; set for traces.
class Watcher {
public:
    virtual ~Watcher() = default;
    virtual void packet(const char* what, const Packet& packet, std::uint32_t where) = 0;
};

class Network;

class Sim {
public:
    explicit Sim(const Params& params);
    ~Sim();

    Time now() const { return events.now(); }
    Flow& add_flow(std::uint32_t src, std::uint32_t dst, std::uint64_t bytes, Transport transport);
    // Starts the flow at that time.
    void start_flow(Flow& flow, Time when);
    // The flow's bytes have all been delivered (or acknowledged, as params.fct says).
    void flow_delivered(Flow& flow);
    void flow_acked(Flow& flow);

    void dropped(const Packet& packet, std::uint32_t port);
    void trimmed(const Packet& packet, std::uint32_t port);
    void watch(const char* what, const Packet& packet, std::uint32_t where) {
        if (packet.flow == watched_flow) [[unlikely]]
            watcher->packet(what, packet, where);
    }

    // Runs to the end. every: called about once per million events.
    void run(const std::function<void()>& every);
    void check() const;

    Params params;
    Events events;
    Pool pool;
    Rng rng;
    std::unique_ptr<Network> network;
    std::shared_ptr<EqdsNet> eqds;
    std::shared_ptr<RmemNet> rmem;
    std::deque<Host> hosts;
    std::vector<std::unique_ptr<Flow>> flows;
    std::vector<Endpoint*> endpoints; // by 2 * flow: sink, source
    std::function<void(Flow&)> on_done;
    std::uint64_t on_wire = 0;    // packets whose arrival is scheduled
    std::uint64_t unfinished = 0; // flows with an end that haven't reached it
    std::uint32_t watched_flow = ~std::uint32_t{0};
    Watcher* watcher = nullptr;
    std::uint64_t unroutable = 0;

private:
    struct Starter final : Handler {
        explicit Starter(Sim& owner) : sim(owner) {}
        void fire(std::uint64_t flow) override;
        Sim& sim;
    } starter_{*this};

    void finish(Flow& flow);
};

// Creates the endpoints of a flow: transports.cpp.
void create_endpoints(Sim& sim, Flow& flow);

} // namespace sim
