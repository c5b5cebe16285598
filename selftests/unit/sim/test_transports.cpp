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
