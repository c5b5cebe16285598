// SPDX-License-Identifier: GPL-2.0
// Demands of hosts that repeat themselves, restart, lie and are silent.
#include <gtest/gtest.h>

#include <vector>

#include "core.hpp"

namespace edm {

namespace {

struct EdmDemand : testing::Test {
    EdmDemand() : memory(edm_demand_bytes(&config) / 8) {
        EXPECT_TRUE(edm_demand_config_is_valid(&config));
        edm_demand_init(&d, &config, memory.data());
    }
    ~EdmDemand() override {
        const char* broken = edm_demand_check(&d);
        EXPECT_FALSE(broken) << broken;
    }

    edm_demand_verdict announce(uint32_t id, uint32_t size = 1000, uint16_t source = 0,
                                uint16_t destination = 1, uint8_t type = EDM_WRITE,
                                uint32_t granted = 0) {
        const edm_announcement a = {.id = id,
                                    .size = size,
                                    .granted = granted,
                                    .source = source,
                                    .destination = destination,
                                    .type = type};
        return edm_demand_announce(&d, now, &a, &demand);
    }

    edm_demand_config config = {4, 4, 2, EDM_SRPT, false, 1, 1000};
    std::vector<uint64_t> memory;
    edm_demands d;
    edm_demand* demand = nullptr;
    uint64_t now = 5000;
};

TEST_F(EdmDemand, RepeatedAnnouncementRenewsAndAddsNothing) {
    EXPECT_EQ(announce(0), EDM_DEMAND_NEW);
    edm_demand_grant(&d, demand, 600);
    now += 900;
    EXPECT_EQ(announce(0), EDM_DEMAND_KNOWN);
    EXPECT_EQ(edm_demand_left(demand), 400u);
    EXPECT_EQ(d.queued, 1u);
    EXPECT_EQ(edm_demand_deadline_ns(&d), now + 1000);
}

TEST_F(EdmDemand, EndedMessageIsNotAnnouncedAgainByALateCopy) {
    announce(0);
    edm_demand_end(&d, demand);
    EXPECT_EQ(announce(0), EDM_DEMAND_STALE);
    EXPECT_EQ(announce(4), EDM_DEMAND_NEW) << "the slot's next id";
    EXPECT_EQ(announce(0), EDM_DEMAND_STALE);
    EXPECT_EQ(d.queued, 1u);
}

TEST_F(EdmDemand, LaterMessageOfASlotEndsTheOneBeforeAcrossTheWrapOfIds) {
    EXPECT_EQ(announce(0xfffffffc), EDM_DEMAND_NEW);
    EXPECT_EQ(announce(0), EDM_DEMAND_NEW);
    EXPECT_EQ(d.live, 1u);
    EXPECT_EQ(announce(0xfffffffc), EDM_DEMAND_STALE);
}

TEST_F(EdmDemand, KnownIdWithAnotherSizeOrPeerIsRefused) {
    announce(0);
    EXPECT_EQ(announce(0, 1001), EDM_DEMAND_STALE);
    EXPECT_EQ(announce(0, 1000, 0, 2), EDM_DEMAND_STALE);
    EXPECT_EQ(edm_demand_find(&d, 0, 0)->size, 1000u);
}

TEST_F(EdmDemand, AnnouncerHasXMessagesInAPairWhateverItClaims) {
    EXPECT_EQ(announce(0), EDM_DEMAND_NEW);
    EXPECT_EQ(announce(1), EDM_DEMAND_NEW);
    EXPECT_EQ(announce(2), EDM_DEMAND_FULL);
    EXPECT_EQ(announce(2, 1000, 0, 3), EDM_DEMAND_NEW) << "another pair";
    EXPECT_EQ(announce(0, 1000, 0, 1, EDM_READ), EDM_DEMAND_NEW) << "announced by the destination";
}

TEST_F(EdmDemand, RetractionsDoNotExceedXMessagesInAPair) {
    edm_demand* spent[2];
    for (uint32_t id = 0; id < 2; id++) {
        announce(id);
        edm_demand_grant(&d, demand, 1000);
        spent[id] = demand;
    }
    announce(2);
    announce(3);
    EXPECT_FALSE(edm_demand_retract(&d, now, spent[0], 0));
    edm_demand_end(&d, demand);
    EXPECT_TRUE(edm_demand_retract(&d, now, spent[0], 300));
    EXPECT_EQ(edm_demand_left(spent[0]), 700u);
    EXPECT_FALSE(edm_demand_retract(&d, now, spent[1], 0));
}

TEST_F(EdmDemand, MessageWithAnEndedLeaseMayBeAnnouncedAgain) {
    announce(0);
    now += 999;
    EXPECT_FALSE(edm_demand_expired(&d, now));
    now += 1;
    ASSERT_EQ(edm_demand_expired(&d, now), demand);
    edm_demand_expire(&d, demand);
    EXPECT_EQ(edm_demand_deadline_ns(&d), EDM_NEVER);
    EXPECT_EQ(d.live, 0u);
    EXPECT_EQ(announce(0, 1000, 0, 1, EDM_WRITE, 400), EDM_DEMAND_NEW);
    EXPECT_EQ(edm_demand_left(demand), 600u);
}

TEST_F(EdmDemand, LeasesEndInTheOrderOfRenewals) {
    announce(0);
    edm_demand* first = demand;
    now += 10;
    announce(1);
    edm_demand* second = demand;
    now += 10;
    announce(0);
    EXPECT_EQ(edm_demand_expired(&d, now + 990), second);
    edm_demand_expire(&d, second);
    EXPECT_EQ(edm_demand_expired(&d, now + 1000), first);
}

TEST_F(EdmDemand, MessageGrantedByAnEarlierSchedulerIsNotQueued) {
    EXPECT_EQ(announce(0, 1000, 0, 1, EDM_WRITE, 1000), EDM_DEMAND_NEW);
    EXPECT_EQ(d.queued, 0u);
    EXPECT_EQ(announce(1, 1000, 0, 1, EDM_READ), EDM_DEMAND_NEW);
    edm_demand_advance(&d, demand, 1000);
    EXPECT_EQ(d.queued, 0u);
}

TEST_F(EdmDemand, NewLifeOfAnAnnouncerEndsItsMessagesAlone) {
    announce(0);
    announce(1, 1000, 0, 1, EDM_READ); // of port 1
    edm_demand_forget(&d, 0);
    EXPECT_EQ(d.live, 1u);
    EXPECT_EQ(announce(0), EDM_DEMAND_NEW);
}

TEST_F(EdmDemand, ConfigurationOutOfItsBoundsIsRefused) {
    auto refused = [&](auto change) {
        edm_demand_config c = config;
        change(c);
        return !edm_demand_config_is_valid(&c);
    };
    EXPECT_TRUE(refused([](auto& c) { c.ports = 1; }));
    EXPECT_TRUE(refused([](auto& c) { c.ports = EDM_PORTS_MAX + 1; }));
    EXPECT_TRUE(refused([](auto& c) { c.slots = 3; }));
    EXPECT_TRUE(refused([](auto& c) { c.slots = 2 * EDM_SLOTS_MAX; }));
    EXPECT_TRUE(refused([](auto& c) { c.active_max = EDM_ACTIVE_MAX + 1; }));
    EXPECT_TRUE(refused([](auto& c) { c.lease_ns = 0; }));
    EXPECT_TRUE(refused([](auto& c) {
        c.policy = EDM_FCFS;
        c.turn_ns = 0;
    }));
}

} // namespace

} // namespace edm
