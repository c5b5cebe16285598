// SPDX-License-Identifier: GPL-2.0
// Which operations wait for which, against a comparison of each with all.
#include <deque>
#include <random>

#include <gtest/gtest.h>

#include "src/order.hpp"

namespace remora::test {

namespace {

using lib::Op;
using lib::Order;

struct Reference {
    Op op;
    bool begun = false;
};

bool overlap(std::uint64_t from, std::uint64_t end, std::uint64_t other, std::uint64_t other_end) {
    return from < other_end && other < end;
}

bool rivals(const Op& a, const Op& b) {
    return (overlap(a.from, a.end, b.from, b.end) ||
            overlap(a.from, a.end, b.signal_from, b.signal_end) ||
            overlap(a.signal_from, a.signal_end, b.from, b.end) ||
            overlap(a.signal_from, a.signal_end, b.signal_from, b.signal_end)) &&
           !(a.core.type == RMEM_READ && b.core.type == RMEM_READ);
}

// Of those under way, in their order: nobody before it is its rival.
bool may_begin(const std::deque<Reference*>& under_way, const Reference& it) {
    for (const Reference* each : under_way) {
        if (each == &it)
            return true;
        if (rivals(each->op, it.op))
            return false;
    }
    return true;
}

class RandomOrder : public testing::TestWithParam<unsigned> {};

TEST_P(RandomOrder, IsThatOfAComparisonWithAll) {
    std::mt19937_64 random(GetParam());
    auto order = std::make_unique<Order>();
    std::deque<Reference> all;
    std::deque<Reference*> under_way;
    std::uint64_t span = std::uint64_t{1} << (10 + random() % 14);
    std::uint64_t base = random() % 2 ? 0 : 0ULL - 2 * span;
    std::uint64_t long_bytes = std::min<std::uint64_t>(span, RMEM_OP_BYTES_MAX);
    for (int step = 0; step < 4000; step++) {
        if (random() % 2 || under_way.empty()) {
            Reference& it = all.emplace_back();
            bool wide = random() % 50 == 0;
            it.op.core.type = wide ? RMEM_FREE : random() % 2 ? RMEM_READ : RMEM_WRITE;
            it.op.from = base + random() % span;
            it.op.end = it.op.from + 1 + random() % (wide ? span : long_bytes);
            if (random() % 4 == 0) {
                it.op.core.type = RMEM_PUT;
                it.op.signal_from = base + random() % span / 8 * 8;
                it.op.signal_end = it.op.signal_from + 8;
            }
            under_way.push_back(&it);
            it.begun = order->enter(it.op);
            ASSERT_EQ(it.begun, may_begin(under_way, it));
            ASSERT_EQ(order->last(), all.size());
        } else {
            std::size_t at = random() % under_way.size();
            Reference& it = *under_way[at];
            if (!it.begun)
                continue;
            under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(at));
            for (rmem_op* free = order->leave(it.op); free; free = free->next) {
                Reference& other = *reinterpret_cast<Reference*>(free);
                ASSERT_FALSE(other.begun);
                other.begun = true;
            }
            for (const Reference* each : under_way)
                ASSERT_EQ(each->begun, may_begin(under_way, *each));
        }
        std::uint64_t first = order->last() + 1;
        if (!under_way.empty())
            first = under_way.front()->op.number;
        ASSERT_EQ(order->first_left(), first);
    }
}

INSTANTIATE_TEST_SUITE_P(Lib, RandomOrder, testing::Range(1U, 21U));

// Clio compares pages: neighbours on one would wait.
TEST(Order, NeighboursDontWait) {
    Order order;
    std::deque<Op> ops(100);
    std::uint64_t at = 4096;
    for (Op& op : ops) {
        op.core.type = RMEM_WRITE;
        op.from = at;
        op.end = at += 16;
        EXPECT_TRUE(order.enter(op));
    }
    for (Op& op : ops)
        EXPECT_EQ(order.leave(op), nullptr);
}

} // namespace

} // namespace remora::test
