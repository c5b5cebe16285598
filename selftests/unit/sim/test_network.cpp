// SPDX-License-Identifier: GPL-2.0
// Topologies, routing, queues.
#include <gtest/gtest.h>

#include "sim_rig.hpp"
#include "support/failure.hpp"

namespace {

using namespace sim;

// One ping between every two hosts: all come back, over the expected number of links.
void expect_all_reachable(Params params) {
    params.workload = "all-to-all";
    params.transport = "newreno";
    params.flow_bytes = 100;
    params.check = true;
    Finished run(params);
    for (const auto& flow : run.sim.flows)
        EXPECT_TRUE(flow->done()) << flow->src << "->" << flow->dst;
    EXPECT_EQ(run.sim.unroutable, 0u);
}

TEST(SimNetwork, EveryTopologyConnectsAllHosts) {
    Params params;
    params.k = 4;
    expect_all_reachable(params);
    params.oversubscription = 3;
    expect_all_reachable(params);
    params = {};
    params.topology = "leaf-spine";
    expect_all_reachable(params);
    params.links_per_spine = 3;
    expect_all_reachable(params);
    for (const char* name : {"star", "dumbbell"}) {
        params = {};
        params.topology = name;
        params.hosts = 8;
        expect_all_reachable(params);
    }
}

TEST(SimNetwork, RoutesAroundFailedLinks) {
    Params params;
    params.k = 4;
    params.fail_link = {"tor:0:1", "agg:2:0"};
    expect_all_reachable(params);
    params = {};
    params.topology = "leaf-spine";
    params.links_per_spine = 2;
    params.fail_link = {"tor:1:0", "tor:2:3"};
    expect_all_reachable(params);
}

TEST(SimNetwork, LinkThatFailsMidwayLosesPacketsUntilRerouted) {
    Params params = small("newreno");
    params.flow_bytes = 3'000'000;
    params.fail_link = {"tor:0:0@300"};
    params.reroute_us = 500;
    Finished run(params);
    std::uint64_t drops = 0;
    for (const auto& flow : run.sim.flows) {
        EXPECT_TRUE(flow->done());
        drops += flow->drops;
    }
    EXPECT_GT(drops, 0u);
}

TEST(SimNetwork, RejectsImpossibleTopologies) {
    for (auto change : std::initializer_list<void (*)(Params&)>{
             [](Params& p) { p.topology = "ring"; }, [](Params& p) { p.k = 5; },
             [](Params& p) { p.queue = "lifo"; }, [](Params& p) { p.trim = "head"; },
             [](Params& p) { p.host_speeds = {"0-99=10"}; },
             [](Params& p) { p.host_speeds = {"all"}; }, [](Params& p) { p.fail_link = {"tor:0"}; },
             [](Params& p) { p.workload = "nothing"; }, [](Params& p) { p.flow_bytes = 0; }}) {
        Params params = small("newreno");
        change(params);
        EXPECT_THROW(Finished run(params), remora::Misuse);
    }
}

// An unloaded path: serialisation on every link, and the links' latency.
TEST(SimNetwork, UnloadedDelayIsExact) {
    Params params;
    params.topology = "star";
    params.hosts = 2;
    params.workload = "incast";
    params.flow_bytes = 1460;
    params.fct = "acked";
    Finished run(params);
    // 1500 bytes at 10 Gb/s over two links, then 64 bytes back.
    EXPECT_EQ(run.sim.flows[0]->end, 2 * (1200 * ns + us) + 2 * (51'200 + us));
}

TEST(SimNetwork, MixedSpeedsLimitTheirHosts) {
    Params params;
    params.topology = "star";
    params.hosts = 3;
    params.workload = "incast";
    params.flow_bytes = 1'000'000;
    params.queue_packets = 1000;
    params.host_speeds = {"1=1"};
    Finished run(params);
    EXPECT_LT(run.sim.flows[1]->end, 2 * ms);
    EXPECT_GT(run.sim.flows[0]->end, 8 * ms);
}

struct Collect : Handler {
    explicit Collect(Sim& owner) : sim(owner) {}
    virtual ~Collect() = default;
    void fire(std::uint64_t arg) override {
        Packet* packet = reinterpret_cast<Packet*>(arg);
        sim.on_wire--;
        seen.push_back(*packet);
        sim.pool.give(packet);
    }
    Sim& sim;
    std::vector<Packet> seen;
};

struct Queue : testing::Test {
    Queue() : sim(small("newreno")), peer(sim) { sim.add_flow(0, 1, 1, Transport::udp); }

    void offer(Port& port, unsigned count, std::uint8_t flags, std::uint16_t bytes = 1500,
               std::uint32_t flow = 0) {
        for (unsigned i = 0; i < count; i++) {
            Packet* packet = sim.pool.take();
            packet->bytes = bytes;
            packet->flags = flags;
            packet->flow = flow;
            packet->seq = i;
            port.send(packet);
        }
    }
    Sim sim;
    Collect peer;
};

TEST_F(Queue, DropTailHoldsItsLimitAndMarks) {
    QueueParams params;
    params.limit_bytes = 10 * 1500;
    params.mark_bytes = 4 * 1500;
    Port port(sim, 0, 10'000'000'000, us, peer, params);
    offer(port, 20, flag_ect);
    port.check();
    sim.events.run(never);
    // The limit counts the packet in transmission.
    EXPECT_EQ(peer.seen.size(), 10u);
    EXPECT_EQ(port.stats().drops, 10u);
    EXPECT_EQ(port.stats().marks, 4u);
}

TEST_F(Queue, TrimKeepsHeadersAndSendsThemFirst) {
    for (TrimVictim victim : {TrimVictim::arriving, TrimVictim::tail, TrimVictim::either}) {
        peer.seen.clear();
        QueueParams params;
        params.discipline = Discipline::trim;
        params.limit_bytes = 4 * 1500;
        params.header_limit_bytes = 64 * 10;
        params.victim = victim;
        Port port(sim, 0, 10'000'000'000, us, peer, params);
        offer(port, 20, flag_sprayed);
        port.check();
        sim.events.run(never);
        // One in transmission, three queued, ten headers, six lost.
        EXPECT_EQ(peer.seen.size(), 14u);
        EXPECT_EQ(port.stats().trims, 16u);
        EXPECT_EQ(port.stats().drops, 6u);
        for (unsigned i = 1; i <= 10; i++) {
            EXPECT_TRUE(peer.seen[i].flags & flag_trimmed);
            EXPECT_EQ(peer.seen[i].bytes, 64);
        }
        if (victim == TrimVictim::arriving) {
            EXPECT_EQ(peer.seen[11].seq, 1u);
            EXPECT_EQ(peer.seen[13].seq, 3u);
        } else if (victim == TrimVictim::tail) {
            EXPECT_EQ(peer.seen[13].seq, 19u);
        }
    }
}

TEST_F(Queue, LegacyPacketsShareTheLinkWithSprayedOnes) {
    QueueParams params;
    params.discipline = Discipline::trim;
    params.limit_bytes = 20 * 1500;
    params.legacy_limit_bytes = 20 * 1500;
    Port port(sim, 0, 10'000'000'000, us, peer, params);
    offer(port, 18, flag_sprayed);
    offer(port, 18, 0);
    sim.events.run(never);
    ASSERT_EQ(peer.seen.size(), 36u);
    unsigned legacy = 0;
    for (unsigned i = 0; i < 20; i++)
        legacy += !(peer.seen[i].flags & flag_sprayed);
    EXPECT_NEAR(legacy, 10, 1);
}

TEST_F(Queue, FairQueueServesAModestFlowBesideAGreedyOne) {
    sim.add_flow(0, 1, 1, Transport::udp);
    QueueParams params;
    params.discipline = Discipline::fair;
    params.limit_bytes = 20 * 1500;
    Port port(sim, 0, 10'000'000'000, us, peer, params);
    offer(port, 40, 0);
    offer(port, 5, 0, 1500, 1);
    port.check();
    sim.events.run(never);
    unsigned modest = 0;
    for (unsigned i = 0; i < 12; i++)
        modest += peer.seen[i].flow == 1;
    EXPECT_EQ(modest, 5u);
    EXPECT_EQ(sim.flows[1]->drops, 0u);
    EXPECT_EQ(sim.pool.live(), 0u);
}

} // namespace
