// SPDX-License-Identifier: GPL-2.0
// Flows of every transport: they end, deliver each byte once, and share as they should.
#include <gtest/gtest.h>

#include "sim/cc.hpp"
#include "sim_rig.hpp"

namespace {

using namespace sim;

struct EveryTransport : testing::TestWithParam<const char*> {};

TEST_P(EveryTransport, PermutationCompletes) {
    Finished run(small(GetParam()));
    for (const auto& flow : run.sim.flows) {
        EXPECT_TRUE(flow->done());
        EXPECT_EQ(flow->delivered_bytes, 200'000u);
    }
}

TEST_P(EveryTransport, IncastIntoShortQueuesCompletes) {
    Params params = small(GetParam());
    params.workload = "incast";
    params.queue_packets = 8;
    params.rto_min_us = 1000;
    Finished run(params);
    for (const auto& flow : run.sim.flows)
        EXPECT_EQ(flow->delivered_bytes, 200'000u);
    std::uint64_t harmed = 0;
    for (const auto& flow : run.sim.flows)
        harmed += flow->drops + flow->trims;
    EXPECT_GT(harmed, 0u);
}

TEST_P(EveryTransport, SameSeedSameResults) {
    Params params = small(GetParam());
    params.seed = 42;
    std::string first = digest(Finished(params).sim);
    EXPECT_EQ(digest(Finished(params).sim), first);
    params.seed = 43;
    EXPECT_NE(digest(Finished(params).sim), first);
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryTransport,
                         testing::Values("newreno", "cubic", "dctcp", "mptcp", "ndp", "eqds"));

// Two long flows into one link, in Gb/s of payload.
std::pair<double, double> share(Params params) {
    params.topology = "star";
    params.hosts = 3;
    params.workload = "incast";
    params.flow_bytes = 0;
    params.end_us = 60'000;
    params.warmup_us = 20'000;
    params.mtu_bytes = 9000;
    Finished run(params);
    double us_measured = 40'000;
    auto gbps = [&](const Flow& flow) {
        return static_cast<double>(flow.delivered_bytes - flow.delivered_at_warmup) * 8 /
               us_measured / 1000;
    };
    return {gbps(*run.sim.flows[0]), gbps(*run.sim.flows[1])};
}

TEST(SimTcp, TwoFlowsFillTheLink) {
    for (const char* name : {"newreno", "cubic", "dctcp"}) {
        auto [a, b] = share(small(name));
        EXPECT_GT(a + b, 9) << name;
        EXPECT_LT(a + b, 10) << name;
        EXPECT_GT(std::min(a, b), 1.5) << name;
    }
}

TEST(SimTcp, DctcpKeepsTheQueueShort) {
    Params params = small("dctcp");
    params.topology = "star";
    params.hosts = 3;
    params.workload = "incast";
    params.flow_bytes = 20'000'000;
    params.queue_packets = 500;
    params.mark_packets = 20;
    Finished run(params);
    EXPECT_LT(run.sim.network->last_hop(0).stats().peak_bytes, 80u * 1500);
    for (const auto& flow : run.sim.flows)
        EXPECT_EQ(flow->retransmissions, 0u);
}

TEST(SimTcp, CubeRootIsExact) {
    for (std::uint64_t x : {0ull, 1ull, 2ull, 7ull, 8ull, 9ull, 26ull, 27ull, 1'000'000ull}) {
        std::uint64_t root = cube_root(x);
        EXPECT_LE(Wide(root) * root * root, Wide(x));
        EXPECT_GT(Wide(root + 1) * (root + 1) * (root + 1), Wide(x));
    }
    EXPECT_EQ(cube_root(Wide(1'000'000'007) * 1'000'000'007 * 1'000'000'007), 1'000'000'007u);
}

Params lone_transfer(std::uint64_t bytes) {
    Params params = small("newreno");
    params.topology = "star";
    params.hosts = 3;
    params.workload = "incast";
    params.flows = 1;
    params.flow_bytes = bytes;
    return params;
}

TEST(SimTcp, OpeningAddsItsPacketsToTheTransfer) {
    Params params = lone_transfer(10'000); // fits the first window
    auto end = [&](const char* open) {
        params.tcp_open = open;
        return Finished(params).sim.flows[0]->end;
    };
    const Time one_way = 2 * (51'200 + us); // two hops of a packet without payload
    const Time established = end("established");
    EXPECT_EQ(end("connect"), established + 2 * one_way);
    EXPECT_EQ(end("fetch"), established + 3 * one_way);
}

TEST(SimTcp, LostOpeningIsRepeated) {
    struct Losses final : Watcher {
        void packet(const char* what, const Packet& packet, std::uint32_t) override {
            lost += std::string(what) == "drop" && packet.kind == Kind::tcp_open;
        }
        unsigned lost = 0;
    } losses;
    for (const char* open : {"connect", "fetch"}) {
        losses.lost = 0;
        Params params = lone_transfer(50'000);
        params.hosts = 6;
        params.tcp_open = open;
        params.flows = 5;
        params.transport_of = {"2-5=udp"};
        params.extra_flow = {"2->1=udp:9000000", "3->1=udp:9000000"};
        params.queue_packets = 2;
        params.flow_bytes = 3'000'000;
        params.start_spread_us = 1000;
        params.rto_min_us = params.rto_initial_us = 500;
        params.end_us = 200'000;
        Sim sim(params);
        Workload workload(sim);
        sim.watched_flow = 0;
        sim.watcher = &losses;
        sim.run({});
        EXPECT_GT(losses.lost, 0u) << open;
        EXPECT_TRUE(sim.flows[0]->done()) << open;
    }
}

TEST(SimTcp, TailProbeRepairsALostTailBeforeTheTimeout) {
    Params params = lone_transfer(28'000);
    params.initial_window = 20; // more than the tunnel's queue and credit hold
    params.over_eqds = true;
    params.queue = "trim";
    params.eqds_window = 4;
    params.eqif_packets = 12;
    params.rto_min_us = params.rto_initial_us = 200'000;
    Finished without(params);
    EXPECT_GT(without.sim.flows[0]->edge_drops, 0u);
    EXPECT_GT(without.sim.flows[0]->end, 200'000 * us);
    params.tail_probe_us = 100;
    Finished with(params);
    EXPECT_LT(with.sim.flows[0]->end, 5'000 * us);
    EXPECT_EQ(with.sim.flows[0]->timeouts, 0u);
}

TEST(SimEqds, PullingForRetransmissionsFirstEndsTheirFlowsSooner) {
    Params params = small("eqds");
    params.topology = "star";
    params.hosts = 61;
    params.workload = "incast";
    params.queue_packets = 15;
    auto first_end = [&] {
        Finished run(params);
        Time first = never;
        for (const auto& flow : run.sim.flows)
            first = std::min(first, flow->end);
        return first;
    };
    const Time in_turn = first_end();
    params.eqds_retransmissions_first = true;
    EXPECT_LT(first_end(), in_turn);
}

TEST(SimMptcp, SubflowsUseSeveralPaths) {
    Params params = small("newreno");
    params.flow_bytes = 0;
    params.end_us = 20'000;
    params.warmup_us = 5'000;
    auto total = [](const Params& p) {
        Finished run(p);
        std::uint64_t bytes = 0;
        for (const auto& flow : run.sim.flows)
            bytes += flow->delivered_bytes - flow->delivered_at_warmup;
        return bytes;
    };
    std::uint64_t single = total(params);
    params.transport = "mptcp";
    EXPECT_GT(total(params), single * 5 / 4);
}

TEST(SimPing, IdleRoundTripIsExact) {
    Params params = small("ping");
    params.topology = "star";
    params.hosts = 2;
    params.workload = "incast";
    params.end_us = 1000;
    Finished run(params);
    ASSERT_EQ(run.sim.flows[0]->rtts.size(), 10u);
    EXPECT_EQ(run.sim.flows[0]->rtts[0], 4 * (51'200 + us));
}

} // namespace
