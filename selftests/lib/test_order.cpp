// SPDX-License-Identifier: GPL-2.0
// Which operations wait for which, against a comparison of each with all.
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "src/backend/order.hpp"

namespace remora::test {

namespace {

using lib::Kind;
using lib::Op;
using lib::op_bytes_max;
using lib::Order;

struct Reference {
    Op op;
    std::vector<lib::Range> ranges; // the op's, if it is about many
    bool begun = false;
};

struct Place {
    std::uint64_t from, end;
    bool reads; // only
};

std::vector<Place> places_of(const Op& op) {
    const bool reads = op.kind == Kind::read || op.kind == Kind::readv;
    if (op.ranges.empty())
        return {{op.from, op.end, reads}, {op.second_from, op.second_end, op.kind == Kind::copy}};
    std::vector<Place> places;
    for (const lib::Range& range : op.ranges)
        places.push_back({range.address, range.address + range.bytes, reads});
    return places;
}

bool rivals(const Op& a, const Op& b) {
    for (const Place& one : places_of(a)) {
        for (const Place& other : places_of(b)) {
            if (one.from < other.end && other.from < one.end && !(one.reads && other.reads))
                return true;
        }
    }
    return false;
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
    std::uint64_t long_bytes = std::min<std::uint64_t>(span, op_bytes_max);
    for (int step = 0; step < 4000; step++) {
        if (random() % 2 || under_way.empty()) {
            Reference& it = all.emplace_back();
            bool wide = random() % 50 == 0;
            it.op.kind = wide ? Kind::free : random() % 2 ? Kind::read : Kind::write;
            it.op.from = base + random() % span;
            it.op.end = it.op.from + 1 + random() % (wide ? span : long_bytes);
            if (random() % 4 == 0) {
                it.op.kind = Kind::put;
                it.op.second_from = base + random() % span / 8 * 8;
                it.op.second_end = it.op.second_from + 8;
            } else if (random() % 4 == 0) {
                it.op.kind = Kind::copy;
                std::uint64_t bytes = 1 + random() % std::min<std::uint64_t>(span, 1 << 16);
                it.op.end = it.op.from + bytes;
                it.op.second_from = base + random() % span;
                it.op.second_end = it.op.second_from + bytes;
            } else if (random() % 4 == 0) {
                it.op.kind = random() % 2 ? Kind::readv : Kind::writev;
                it.ranges = std::vector<lib::Range>(2 + random() % 10);
                for (lib::Range& range : it.ranges) {
                    range.address = base + random() % span;
                    range.bytes =
                        static_cast<std::uint32_t>(1 + random() % (random() % 4 ? 16 : 2000));
                }
                it.op.ranges = it.ranges;
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
            for (Op* free = order->leave(it.op); free; free = free->next) {
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

// Of one op, though they overlap; another one waits for it as long as it's there, whichever range
// it is about.
TEST(Order, RangesOfAnOpDontWaitForEachOther) {
    Order order;
    std::vector<lib::Range> ranges(3);
    for (std::uint64_t i = 0; i < 3; i++) {
        ranges[i].address = 4096 + 8 * i;
        ranges[i].bytes = 16;
    }
    Op many, one;
    many.kind = Kind::writev;
    many.ranges = ranges;
    EXPECT_TRUE(order.enter(many));
    one.kind = Kind::read;
    one.from = 4096 + 20;
    one.end = one.from + 1;
    EXPECT_FALSE(order.enter(one));
    EXPECT_EQ(one.blockers, 2U) << "two of them have it";
    EXPECT_EQ(order.leave(many), &one);
    EXPECT_EQ(order.leave(one), nullptr);
}

// A COPY reads its source, so others may read that meanwhile, and copy from it.
TEST(Order, CopiesOfOneSourceDontWait) {
    Order order;
    Op first, second, read, write;
    for (Op* copy : {&first, &second}) {
        copy->kind = Kind::copy;
        copy->from = copy == &first ? 8192 : 16384;
        copy->end = copy->from + 100;
        copy->second_from = 4096;
        copy->second_end = 4196;
        EXPECT_TRUE(order.enter(*copy));
    }
    read.kind = Kind::read;
    read.from = 4096;
    read.end = 4097;
    EXPECT_TRUE(order.enter(read));
    write.kind = Kind::write;
    write.from = 4195;
    write.end = 4196;
    EXPECT_FALSE(order.enter(write));
    EXPECT_EQ(write.blockers, 2U);
    EXPECT_EQ(order.leave(read), nullptr);
    EXPECT_EQ(order.leave(first), nullptr);
    EXPECT_EQ(order.leave(second), &write);
    EXPECT_EQ(order.leave(write), nullptr);
}

TEST(Order, BarrierWaitsForAllEarlierOpsAndNoOtherWaitsForIt) {
    Order order;
    std::deque<Op> ops(3);
    std::uint64_t at = 0;
    for (Op& op : ops) {
        op.kind = Kind::write;
        op.from = at;
        op.end = at += 16;
        EXPECT_TRUE(order.enter(op));
    }
    Op barrier, behind, second;
    barrier.kind = Kind::release;
    second.kind = Kind::fence;
    behind.kind = Kind::write;
    behind.from = at;
    behind.end = at + 16;
    EXPECT_FALSE(order.enter(barrier));
    EXPECT_TRUE(order.enter(behind));
    EXPECT_FALSE(order.enter(second));
    EXPECT_EQ(order.leave(behind), nullptr);
    EXPECT_EQ(order.leave(ops[1]), nullptr);
    EXPECT_EQ(order.leave(ops[0]), nullptr);
    EXPECT_EQ(order.leave(ops[2]), &barrier);
    EXPECT_EQ(barrier.next, nullptr);
    EXPECT_EQ(order.leave(barrier), &second);
    EXPECT_EQ(order.leave(second), nullptr);
    EXPECT_TRUE(order.enter(barrier)) << "there is nothing before it";
    EXPECT_EQ(order.leave(barrier), nullptr);
}

TEST(Order, UnorderedOpWaitsForNoneAndNoneForIt) {
    Order order;
    std::vector<lib::Range> ranges(2);
    ranges[0].address = 4096;
    ranges[1].address = 4100;
    ranges[0].bytes = ranges[1].bytes = 16;
    Op first, unordered, many, last, release;
    for (Op* op : {&first, &unordered, &last}) {
        op->kind = Kind::write;
        op->from = 4096;
        op->end = 4196;
    }
    many.kind = Kind::writev;
    many.ranges = ranges;
    unordered.is_unordered = many.is_unordered = true;
    EXPECT_TRUE(order.enter(first));
    EXPECT_TRUE(order.enter(unordered));
    EXPECT_TRUE(order.enter(many));
    EXPECT_FALSE(order.enter(last));
    EXPECT_EQ(last.blockers, 1U);
    release.kind = Kind::release;
    EXPECT_FALSE(order.enter(release));
    EXPECT_EQ(release.blockers, 4U);
    EXPECT_EQ(order.leave(unordered), nullptr);
    EXPECT_EQ(order.leave(many), nullptr);
    EXPECT_EQ(order.leave(first), &last);
    EXPECT_EQ(order.leave(last), &release);
    EXPECT_EQ(order.leave(release), nullptr);
}

// Clio compares pages: neighbours on one would wait.
TEST(Order, NeighboursDontWait) {
    Order order;
    std::deque<Op> ops(100);
    std::uint64_t at = 4096;
    for (Op& op : ops) {
        op.kind = Kind::write;
        op.from = at;
        op.end = at += 16;
        EXPECT_TRUE(order.enter(op));
    }
    for (Op& op : ops)
        EXPECT_EQ(order.leave(op), nullptr);
}

} // namespace

} // namespace remora::test
