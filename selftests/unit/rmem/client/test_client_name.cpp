// SPDX-License-Identifier: GPL-2.0
// PUBLISH and LOOKUP of the client: executed once, however often they are sent.
#include <gtest/gtest.h>

#include <string>

#include "client_rig.hpp"

namespace {

using net::ms;
using net::Op;

struct NameClient : net::ClientTest {
    rmem_client_result ask(uint8_t type, std::string_view name, uint64_t addr) {
        named = wire::named_of(name, addr);
        Op op;
        net::make(op, type, 0, 0);
        op.op.name = {&named, 0, 0, &listed};
        rmem_client_result result = net::finish(world, op);
        status = op.op.status;
        found = op.op.name.addr;
        found_bytes = op.op.name.bytes;
        return result;
    }
    rmem_client_result publish(std::string_view name, uint64_t addr) {
        return ask(RMEM_PUBLISH, name, addr);
    }
    rmem_client_result lookup(std::string_view name) { return ask(RMEM_LOOKUP, name, 0); }

    rmem_named named{};
    rmem_listed listed{};
    uint8_t status = 0;
    uint64_t found = 0, found_bytes = 0;
};

TEST_F(NameClient, LookupBringsTheWholeRegion) {
    uint64_t addr = net::allocate(world, 200'000);
    ASSERT_EQ(publish("a", addr), RMEM_CLIENT_OK);
    ASSERT_EQ(lookup("a"), RMEM_CLIENT_OK);
    EXPECT_EQ(found, addr);
    EXPECT_EQ(found_bytes, 4u << RMEM_PAGE_SHIFT_MIN);
}

TEST_F(NameClient, ListBringsTheRegionOrNone) {
    uint64_t addr = net::allocate(world, 200'000);
    ASSERT_EQ(publish("a", addr), RMEM_CLIENT_OK);
    ASSERT_EQ(ask(RMEM_LIST, "", addr), RMEM_CLIENT_OK);
    EXPECT_EQ(found, addr);
    EXPECT_EQ(found_bytes, 4u << RMEM_PAGE_SHIFT_MIN);
    EXPECT_EQ(base_load_le32(&listed.names), 1u);
    EXPECT_EQ(listed.name[0], 'a');
    ASSERT_EQ(ask(RMEM_LIST, "", ~uint64_t{0}), RMEM_CLIENT_OK);
    EXPECT_EQ(found_bytes, 0u);
}

TEST_F(NameClient, RefusalsCarryTheNodesWord) {
    ASSERT_EQ(publish("a", base), RMEM_CLIENT_OK);
    const struct {
        uint8_t type;
        const char* name;
        uint64_t addr;
        uint8_t status;
    } cases[] = {{RMEM_PUBLISH, "a", base, RMEM_EXISTS},
                 {RMEM_PUBLISH, "b", 0, RMEM_NO_NAME},
                 {RMEM_PUBLISH, "b", base + (64 << 20), RMEM_FAULT},
                 {RMEM_PUBLISH, "", base, RMEM_INVALID},
                 {RMEM_LOOKUP, "b", 0, RMEM_NO_NAME}};
    for (auto [type, name, addr, want] : cases) {
        EXPECT_EQ(ask(type, name, addr), RMEM_CLIENT_REFUSED);
        EXPECT_EQ(status, want);
    }
}

// Lost and repeated requests and answers: a name that was published is there, once, and a second
// PUBLISH of it is refused, as is a second withdrawal.
TEST_F(NameClient, RetransmittedPublishIsExecutedOnce) {
    world.weather = {.loss = 200, .dup = 300, .damage = 20, .cut = 20, .jitter_ns = 3 * ms};
    for (int round = 0; round < 100; round++) {
        const std::string name = std::to_string(round % 3);
        ASSERT_EQ(publish(name, base), RMEM_CLIENT_OK);
        ASSERT_EQ(publish(name, base), RMEM_CLIENT_REFUSED);
        ASSERT_EQ(status, RMEM_EXISTS);
        ASSERT_EQ(lookup(name), RMEM_CLIENT_OK);
        ASSERT_EQ(publish(name, 0), RMEM_CLIENT_OK);
        ASSERT_EQ(publish(name, 0), RMEM_CLIENT_REFUSED);
        ASSERT_EQ(status, RMEM_NO_NAME);
    }
    EXPECT_GT(client().count.timeouts, 20u);
}

// Whether the node executed it before the session ended can't be known, so it isn't sent again.
TEST_F(NameClient, PublishOfAnEndedSessionEndsAsUnknown) {
    Op op, search;
    named = wire::named_of("a", base);
    net::make(op, RMEM_PUBLISH, 0, 0);
    op.op.name = {&named, 0, 0, &listed};
    world.submit(op, 0);
    world.host->evict_all();
    ASSERT_TRUE(world.run([&] { return !op.flying; }));
    EXPECT_EQ(op.result, RMEM_CLIENT_UNKNOWN);
    EXPECT_EQ(lookup("a"), RMEM_CLIENT_REFUSED) << "a LOOKUP goes on in the next session";
}

} // namespace
