// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <memory>
#include <vector>

extern "C" {
#include "core/rmem/client/op.h"
}

namespace {

rmem_op op_of(uint8_t type, uint32_t len) {
    rmem_op op;
    std::memset(static_cast<void*>(&op), 0xee, sizeof(op)); // as the caller's memory comes
    op.type = type;
    op.len = len;
    return op;
}

TEST(Op, CutIntoParts) {
    for (uint8_t type : {RMEM_READ, RMEM_WRITE}) {
        rmem_op op = op_of(type, 10'000);
        rmem_op_cut(&op, 4096);
        EXPECT_EQ(op.parts, 3u);
        EXPECT_EQ(op.parts_done, 0u);
        EXPECT_EQ(op.flying_parts, 0u);
        EXPECT_EQ(rmem_op_offset(&op, 0), 0u);
        EXPECT_EQ(rmem_op_offset(&op, 2), 8192u);
        EXPECT_EQ(rmem_op_offset(&op, 3), 10'000u) << "the end";
        EXPECT_EQ(rmem_op_ids(&op), type == RMEM_WRITE ? 3u : 1u);
    }
    rmem_op op = op_of(RMEM_ZERO, RMEM_ZERO_BYTES_MAX);
    rmem_op_cut(&op, 1024);
    EXPECT_EQ(op.parts, 1u);
    EXPECT_EQ(rmem_op_ids(&op), 1u);
    for (uint8_t type : {RMEM_PUT, RMEM_READV, RMEM_WRITEV, RMEM_COPY}) {
        op = op_of(type, 10'000);
        rmem_op_cut(&op, 4096);
        EXPECT_EQ(op.parts, 1u);
        EXPECT_EQ(rmem_op_ids(&op), 1u);
        EXPECT_EQ(rmem_op_bytes(&op, 0, 1), 10'000u);
    }
    op = op_of(RMEM_WRITE, RMEM_OP_BYTES_MAX);
    rmem_op_cut(&op, RMEM_PIECE_BYTES_MIN);
    EXPECT_EQ(op.parts, RMEM_OP_PARTS_MAX);
}

TEST(Op, FindsWantedParts) {
    for (uint32_t parts : {1u, 63u, 64u, 65u, 200u, uint32_t{RMEM_OP_PARTS_MAX}}) {
        rmem_op op = op_of(RMEM_WRITE, parts * RMEM_PIECE_BYTES_MIN);
        rmem_op_cut(&op, RMEM_PIECE_BYTES_MIN);
        EXPECT_EQ(rmem_op_find_part(&op, 0, true), 0u);
        EXPECT_EQ(rmem_op_find_part(&op, 0, false), parts);
        for (uint32_t n = 0; n < parts; n++)
            rmem_op_bit_set(n % 2 ? op.done : op.flying, n);
        EXPECT_EQ(rmem_op_find_part(&op, 0, true), parts) << "done or flying, none is wanted";
        EXPECT_EQ(rmem_op_find_part(&op, parts - 1, false), parts - 1);
        for (uint32_t n = 0; n < parts; n++) {
            rmem_op_bit_clear(n % 2 ? op.done : op.flying, n);
            EXPECT_EQ(rmem_op_find_part(&op, 0, true), n);
            EXPECT_EQ(rmem_op_find_part(&op, n, true), n);
            EXPECT_EQ(rmem_op_find_part(&op, n + 1, true), parts);
            rmem_op_bit_set(n % 2 ? op.done : op.flying, n);
        }
    }
}

struct OpLists : testing::Test {
    std::unique_ptr<rmem_client> client = std::make_unique<rmem_client>();
    std::list<rmem_op> ops;

    rmem_op* add(rmem_op_state state) {
        rmem_op* op = &ops.emplace_back(op_of(RMEM_READ, 1));
        rmem_op_put(client.get(), op, state);
        return op;
    }

    static void expect(const rmem_op_list& list, const std::vector<rmem_op*>& wanted) {
        std::vector<rmem_op*> forward, backward;
        for (rmem_op* op = list.head; op; op = op->next)
            forward.push_back(op);
        for (rmem_op* op = list.tail; op; op = op->prev)
            backward.insert(backward.begin(), op);
        EXPECT_EQ(forward, wanted);
        EXPECT_EQ(backward, wanted);
        EXPECT_EQ(list.ops, wanted.size());
    }
};

TEST_F(OpLists, FirstInFirstAndOutFromAnywhere) {
    struct {
        rmem_op_state state;
        rmem_op_list& list;
    } const all[] = {{RMEM_OP_WAITING, client->waiting},
                     {RMEM_OP_AGAIN, client->again},
                     {RMEM_OP_PARTLY, client->partly},
                     {RMEM_OP_FLYING, client->flying}};
    for (const auto& each : all) {
        rmem_op *a = add(each.state), *b = add(each.state), *c = add(each.state);
        expect(each.list, {a, b, c});
        rmem_op_pick(client.get(), b);
        expect(each.list, {a, c});
        rmem_op_pick(client.get(), a);
        expect(each.list, {c});
        rmem_op_put(client.get(), a, each.state);
        expect(each.list, {c, a});
        rmem_op_pick(client.get(), a);
        rmem_op_pick(client.get(), c);
        expect(each.list, {});
    }
}

TEST_F(OpLists, ByDeadlineThenInOrder) {
    std::vector<rmem_op*> in_order(5);
    const uint64_t deadlines[] = {30, 10, 20, 10, 30};
    const size_t place[] = {3, 0, 2, 1, 4};
    for (size_t n = 0; n < 5; n++) {
        rmem_op* op = &ops.emplace_back(op_of(RMEM_READ, 1));
        rmem_op_put_timed(client.get(), op, n % 2 ? RMEM_OP_SLOW : RMEM_OP_DELAYED, deadlines[n]);
        in_order[place[n]] = op;
    }
    expect(client->timed, in_order);
    rmem_op_pick(client.get(), in_order[2]);
    in_order.erase(in_order.begin() + 2);
    expect(client->timed, in_order);
}

TEST_F(OpLists, TheOneBeingSentIsInNoList) {
    rmem_op op = op_of(RMEM_WRITE, 1);
    op.state = RMEM_OP_SENDING;
    client->sending = &op;
    rmem_op_pick(client.get(), &op);
    EXPECT_EQ(client->sending, nullptr);
}

} // namespace
