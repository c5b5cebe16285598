// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "core.hpp"

namespace {

struct Paths {
    explicit Paths(uint32_t count, uint64_t seed = 1) : path(count) {
        eqds_paths_init(&paths, path.data(), count, seed);
    }
    std::vector<uint16_t> round() {
        std::vector<uint16_t> ids;
        for (size_t i = 0; i < path.size(); i++)
            ids.push_back(eqds_paths_pick(&paths));
        return ids;
    }
    std::vector<eqds_path> path;
    eqds_paths paths;
};

TEST(EqdsPath, EveryRoundTakesEachPathOnce) {
    for (uint32_t count : {1u, 2u, 16u, 256u, 65536u}) {
        Paths p(count);
        for (int round = 0; round < 3; round++) {
            std::vector<uint16_t> ids = p.round();
            EXPECT_EQ(std::set<uint16_t>(ids.begin(), ids.end()).size(), count);
        }
        EXPECT_EQ(p.path[count - 1].sent, 3u);
    }
}

TEST(EqdsPath, RoundsAndSeedsDifferInTheirOrder) {
    Paths a(64, 1), b(64, 1000);
    std::set<std::vector<uint16_t>> orders;
    for (int round = 0; round < 20; round++) {
        orders.insert(a.round());
        orders.insert(b.round());
    }
    EXPECT_GE(orders.size(), 39u);
}

TEST(EqdsPath, PathThatTrimmedLostOrMarkedIsSkippedOnce) {
    void (*const reports[])(eqds_paths*, uint16_t) = {eqds_paths_trimmed, eqds_paths_lost,
                                                      eqds_paths_marked};
    for (auto report : reports) {
        Paths p(8);
        report(&p.paths, 3);
        report(&p.paths, 3); // does not add up
        for (int pick = 0; pick < 15; pick++)
            eqds_paths_pick(&p.paths);
        for (uint32_t id = 0; id < 8; id++)
            EXPECT_EQ(p.path[id].sent, id == 3 ? 1u : 2u) << id;
    }
}

TEST(EqdsPath, ReportsAreCountedByKind) {
    Paths p(4);
    eqds_paths_trimmed(&p.paths, 1);
    eqds_paths_lost(&p.paths, 2);
    eqds_paths_lost(&p.paths, 2);
    eqds_paths_marked(&p.paths, 3);
    EXPECT_EQ(p.path[1].trimmed, 1u);
    EXPECT_EQ(p.path[2].lost, 2u);
    EXPECT_EQ(p.path[3].marked, 1u);
    EXPECT_EQ(p.path[0].trimmed + p.path[0].lost + p.path[0].marked, 0u);
    EXPECT_FALSE(p.path[0].skip);
}

TEST(EqdsPath, SenderGetsAPathWhenAllAreBad) {
    Paths p(8);
    for (uint16_t id = 0; id < 8; id++)
        eqds_paths_lost(&p.paths, id);
    std::vector<uint16_t> ids = p.round();
    EXPECT_EQ(std::set<uint16_t>(ids.begin(), ids.end()).size(), 8u);
}

TEST(EqdsPath, IdBeyondTheCountIsReducedToAPath) {
    Paths p(4);
    eqds_paths_lost(&p.paths, 6);
    eqds_paths_acked(&p.paths, 65535, 100);
    EXPECT_EQ(p.path[2].lost, 1u);
    EXPECT_EQ(p.path[3].rtt_ns, 100u);
}

TEST(EqdsPath, RoundTripIsTheFirstSampleAndThenMovesByAnEighth) {
    Paths p(2);
    eqds_paths_acked(&p.paths, 0, 8000);
    EXPECT_EQ(p.path[0].rtt_ns, 8000u);
    eqds_paths_acked(&p.paths, 0, 16000);
    EXPECT_EQ(p.path[0].rtt_ns, 9000u);
    EXPECT_EQ(p.path[1].rtt_ns, 0u);
    eqds_paths_acked(&p.paths, 1, ~0ull);
    EXPECT_EQ(p.path[1].rtt_ns, ~0u);
}

} // namespace
