// SPDX-License-Identifier: GPL-2.0
// Remote reads and writes over the simulated network. The simulator itself fails a run if a read
// returns wrong bytes or an operation ends twice.
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/rmem.hpp"
#include "sim_rig.hpp"
#include "support/failure.hpp"

namespace {

using namespace sim;

Params remote(std::uint32_t hosts) {
    Params params = small("rmem");
    params.topology = "star";
    params.hosts = hosts;
    params.workload = "incast";
    params.mtu_bytes = 9000;
    params.flow_bytes = 1'000'000;
    return params;
}

Params over_eqds(Params params) {
    params.over_eqds = true;
    params.queue = "trim";
    params.queue_packets = 15;
    return params;
}

// Endless TCP flows from hosts 1 up into host 0, where the last host reads memory.
Params beside_senders(std::uint32_t senders) {
    Params params = remote(senders + 2);
    params.transport = "newreno";
    params.transport_of = {std::to_string(senders + 1) + "=rmem"};
    params.flow_bytes = 0;
    params.rto_min_us = 1000;
    params.start_spread_us = 100;
    params.warmup_us = 10'000;
    params.end_us = 300'000;
    return params;
}

Time median(const Flow& flow) {
    std::vector<Time> times = flow.rtts;
    if (times.empty())
        return 0;
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

TEST(SimRmem, ReadsAndWritesMoveEachByteOnce) {
    for (bool tunnels : {false, true}) {
        for (std::uint32_t mtu : {1500u, 9000u}) {
            Params params = remote(5);
            params.mtu_bytes = mtu;
            params.rmem_depth = 8;
            params.rmem_op_bytes = 10'001; // several packets, the last one short
            params.rmem_write_percent = 50;
            Finished run(tunnels ? over_eqds(params) : params);
            for (const auto& flow : run.sim.flows) {
                EXPECT_TRUE(flow->done());
                EXPECT_EQ(flow->delivered_bytes, 1'000'000u);
                EXPECT_EQ(flow->rtts.size(), 100u);
            }
        }
    }
}

TEST(SimRmem, IdleReadTakesTheTimeOfItsPackets) {
    Params params = remote(2);
    params.flow_bytes = 40'960;
    Finished run(params);
    const Flow& flow = *run.sim.flows[0];
    ASSERT_EQ(flow.rtts.size(), 10u);
    // Two links each way; a request of 108 bytes and a response of 4204 at 10 Gb/s.
    for (Time time : flow.rtts)
        EXPECT_EQ(time, 2 * (108 * 800 + us) + 2 * (4204 * 800 + us));
}

TEST(SimRmem, FinishedFlowsLeaveNothingBehind) {
    Params params = remote(4);
    params.end_us = 100'000;
    Finished run(params);
    for (const auto& flow : run.sim.flows)
        EXPECT_TRUE(flow->done());
    struct rmem_node_usage usage = run.sim.rmem->node(0).usage();
    EXPECT_EQ(usage.sessions, 0u);
    EXPECT_EQ(usage.regions, 0u);
    EXPECT_EQ(run.sim.pool.contents.live(), 0u);
    EXPECT_EQ(run.sim.pool.live(), 0u);
}

TEST(SimRmem, LostDatagramsAreSentAgain) {
    Params params = remote(9);
    params.queue_packets = 1;
    params.rmem_depth = 4;
    params.rmem_write_percent = 50;
    params.end_us = 30'000'000;
    Finished run(params);
    std::uint64_t drops = 0, again = 0;
    for (const auto& flow : run.sim.flows) {
        EXPECT_EQ(flow->delivered_bytes, 1'000'000u);
        drops += flow->drops;
        again += flow->retransmissions;
    }
    EXPECT_GT(drops, 0u);
    EXPECT_GT(again, 0u);
    EXPECT_EQ(run.sim.pool.contents.live(), 0u);
}

TEST(SimRmem, DepthOverlapsOperations) {
    auto duration = [](std::uint32_t depth) {
        Params params = remote(2);
        params.rmem_depth = depth;
        Finished run(params);
        return run.sim.flows[0]->end;
    };
    EXPECT_GT(duration(1), 3 * duration(8));
}

TEST(SimRmem, IntervalSpacesOperations) {
    Params params = remote(2);
    params.flow_bytes = 4'096'000;
    params.rmem_interval_us = 1000;
    Finished run(params);
    EXPECT_GT(run.sim.flows[0]->end, 900 * ms);
    EXPECT_LT(run.sim.flows[0]->end, 1100 * ms);
}

// Reads of more than the incast window: clients of one machine wait for each other.
TEST(SimRmem, ClientsOfOneHostShareTheIncastWindow) {
    Params params = remote(4);
    params.workload = "all-to-all";
    params.rmem_depth = 16;
    params.rmem_op_bytes = RMEM_OP_BYTES_MAX;
    params.flow_bytes = std::uint64_t{20} * RMEM_OP_BYTES_MAX;
    params.queue_packets = 1000;
    Finished run(params);
    for (const auto& flow : run.sim.flows)
        EXPECT_TRUE(flow->done()) << flow->src << "->" << flow->dst;
}

TEST(SimRmem, ReadsBesideSendersWaitLessInTunnels) {
    Params params = beside_senders(20);
    params.queue_packets = 200;
    Time plain = median(*Finished(params).sim.flows[20]);
    Time tunnels = median(*Finished(over_eqds(params)).sim.flows[20]);
    ASSERT_GT(tunnels, 0u);
    EXPECT_GT(plain, 2 * tunnels);
}

// Of long writes: a request for a read is so short that it hardly waits for a turn.
TEST(SimRmem, TunnelOfHigherPriorityIsPulledFirst) {
    Params params = over_eqds(beside_senders(20));
    params.rmem_write_percent = 100;
    params.rmem_op_bytes = 65536;
    Time equal = median(*Finished(params).sim.flows[20]);
    params.eqds_priority = {"21=0"};
    Time first = median(*Finished(params).sim.flows[20]);
    ASSERT_GT(first, 0u);
    EXPECT_GT(equal, 2 * first);
}

TEST(SimRmem, SameSeedGivesTheSameTimes) {
    auto times = [](std::uint64_t seed) {
        Params params = over_eqds(beside_senders(5));
        params.end_us = 30'000;
        params.rmem_write_percent = 30;
        params.seed = seed;
        Finished run(params);
        return std::make_pair(digest(run.sim), run.sim.flows[5]->rtts);
    };
    EXPECT_EQ(times(7), times(7));
    EXPECT_NE(times(7), times(8));
}

TEST(SimRmem, RejectsParametersThatCannotBe) {
    auto rejected = [](auto change) {
        Params params = remote(3);
        params.end_us = 1000;
        change(params);
        EXPECT_THROW(Finished run(params), remora::Misuse);
    };
    rejected([](Params& p) { p.mtu_bytes = 1131; });
    rejected([](Params& p) { p.rmem_depth = 0; });
    rejected([](Params& p) { p.rmem_depth = RMEM_WINDOW + 1; });
    rejected([](Params& p) { p.rmem_op_bytes = 0; });
    rejected([](Params& p) { p.rmem_op_bytes = RMEM_OP_BYTES_MAX + 1; });
    rejected([](Params& p) { p.rmem_write_percent = 101; });
    rejected([](Params& p) { p.rmem_interval_us = -1; });
    rejected([](Params& p) { p.workload = "closed-loop"; });
    rejected([](Params& p) {
        p.over_eqds = true;
        p.eqds_priority = {"1=8"};
    });
}

} // namespace
