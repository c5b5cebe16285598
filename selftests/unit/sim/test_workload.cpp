// SPDX-License-Identifier: GPL-2.0
// Generated workloads: a closed loop, and pings beside an incast.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim_rig.hpp"

namespace {

using namespace sim;

TEST(SimWorkload, ClosedLoopKeepsItsTransfersOpen) {
    Params params = small("newreno");
    params.workload = "closed-loop";
    params.concurrency = 3;
    params.flows = 10;
    params.end_us = 20'000;
    Finished run(params);
    std::map<std::uint32_t, std::uint32_t> open;
    std::set<std::uint32_t> servers;
    std::uint64_t done = 0;
    for (const auto& flow : run.sim.flows) {
        EXPECT_NE(flow->src, flow->dst);
        servers.insert(flow->src);
        if (flow->done())
            done++;
        else
            open[flow->dst]++;
    }
    EXPECT_GT(done, 100u);
    EXPECT_EQ(servers, (std::set<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})); // one another's
    ASSERT_EQ(open.size(), 10u);
    for (const auto& [client, transfers] : open)
        EXPECT_EQ(transfers, 3u) << "client " << client;
}

// The slowest ping from host 21 to the receiver of 20 flows.
Time slowest_ping(Params params) {
    params.topology = "star";
    params.hosts = 22;
    params.workload = "incast";
    params.flow_bytes = 0;
    params.flows = 21;
    params.transport_of = {"21=ping"};
    params.start_spread_us = 1000;
    params.end_us = 100'000;
    params.rto_min_us = 1000;
    Finished run(params);
    // The first ones find the senders starting.
    const auto& rtts = run.sim.flows[20]->rtts;
    return *std::max_element(rtts.begin() + static_cast<std::ptrdiff_t>(rtts.size() / 2),
                             rtts.end());
}

TEST(SimWorkload, PingBesideSendersWaitsForNoQueueOverEqds) {
    Params params = small("newreno");
    params.queue_packets = 1000;
    Time plain = slowest_ping(params);
    params.over_eqds = true;
    params.native = "21";
    params.queue = "trim";
    params.queue_packets = 15;
    Time tunnels = slowest_ping(params);
    EXPECT_GT(plain, 500 * us);
    EXPECT_LT(tunnels, 30 * us);
}

} // namespace
