// SPDX-License-Identifier: GPL-2.0
// tools/offloads/dlrm: exact sums, arguments and addresses that are wrong, rows across pages, and
// calls whose steps take turns. Memory outside of a step's slices is poisoned.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#define OFFLOAD offload_dlrm
#define OFFLOAD_TEST_MEMORY
#include "memory.hpp"
#include "offloads/dlrm/dlrm.h"

namespace {

using namespace offload_test;
using Bytes = std::vector<uint8_t>;
using Groups = std::vector<std::vector<uint32_t>>;

constexpr uint32_t rows = 3000, entries = 500;
constexpr size_t args_bytes_max = 1024; // of a message

// Arguments that the tests damage.
struct Query {
    dlrm_args head{};
    Groups groups;

    Bytes bytes() const {
        Bytes made(sizeof(head));
        std::memcpy(made.data(), &head, sizeof(head));
        auto put = [&](const auto& value) {
            const auto* from = reinterpret_cast<const uint8_t*>(&value);
            made.insert(made.end(), from, from + sizeof(value));
        };
        for (const auto& group : groups)
            put(static_cast<uint16_t>(group.size()));
        if (groups.size() % 2)
            put(uint16_t{0});
        for (const auto& group : groups)
            for (uint32_t id : group)
                put(id);
        return made;
    }
};

// A table and a memo of numbers of chance, `shift` bytes behind where rows would fill pages.
template <typename Row, typename Entry, typename To>
struct Table {
    static constexpr bool floats = std::is_same_v<To, float>;
    using Sum = std::array<To, DLRM_DIM>;

    explicit Table(uint64_t shift = 0)
        : memory(16 * page_bytes), rows_at(base + shift), memo_at(base + 14 * page_bytes + shift) {
        for (uint32_t n = 0; n < rows * DLRM_DIM; n++)
            set<Row>(rows_at, n);
        for (uint32_t n = 0; n < entries * DLRM_DIM; n++)
            set<Entry>(memo_at, n);
    }
    template <typename T>
    void set(uint64_t at, uint32_t n) {
        if constexpr (floats)
            put(at, n, static_cast<T>(random() % 4096) / 8 - 256);
        else
            put(at, n, static_cast<T>(random()));
    }
    template <typename T>
    void put(uint64_t at, uint32_t n, T value) {
        std::memcpy(memory.at(at + n * sizeof(T)), &value, sizeof(value));
    }
    template <typename T>
    T get(uint64_t at, uint32_t n) {
        T value;
        std::memcpy(&value, memory.at(at + n * sizeof(T)), sizeof(value));
        return value;
    }

    Query query(const Groups& groups) const {
        Query made;
        size_t ids = 0;
        for (const auto& group : groups)
            ids += group.size();
        made.head.rows = rows_at;
        made.head.memo = memo_at;
        made.head.row_count = rows;
        made.head.memo_count = entries;
        made.head.groups = static_cast<uint16_t>(groups.size());
        made.head.ids = static_cast<uint16_t>(ids);
        made.groups = groups;
        return made;
    }
    Call call(const Bytes& args, uint32_t room = 8192) {
        return Call(memory, floats ? DLRM_SUM_F32 : DLRM_SUM_I8, args, room);
    }
    int run(const Query& query) {
        Call made = call(query.bytes());
        return made.run();
    }
    std::vector<Sum> expected(const Groups& groups) {
        std::vector<Sum> sums;
        for (const auto& group : groups) {
            Sum& sum = sums.emplace_back();
            sum.fill(0);
            for (uint32_t id : group)
                for (uint32_t n = 0; n < DLRM_DIM; n++)
                    sum[n] +=
                        id & DLRM_MEMO
                            ? static_cast<To>(get<Entry>(memo_at, (id & ~DLRM_MEMO) * DLRM_DIM + n))
                            : static_cast<To>(get<Row>(rows_at, id * DLRM_DIM + n));
        }
        return sums;
    }
    static std::vector<Sum> answered(const Call& call) {
        std::vector<Sum> sums(call.result().size() / sizeof(Sum));
        require(call.result().size() % sizeof(Sum) == 0);
        std::memcpy(sums.data(), call.result().data(), call.result().size());
        return sums;
    }
    uint32_t any_id() {
        return random() % 4 ? static_cast<uint32_t>(random() % rows)
                            : DLRM_MEMO | static_cast<uint32_t>(random() % entries);
    }
    Groups any_groups() {
        Groups made(1 + random() % DLRM_GROUPS_MAX);
        uint32_t left = (1024 - 32 - DLRM_COUNTS_BYTES(static_cast<uint32_t>(made.size()))) / 4;
        for (auto& group : made)
            for (uint32_t count = static_cast<uint32_t>(random() % 60); count && left;
                 count--, left--)
                group.push_back(any_id());
        return made;
    }

    std::mt19937_64 random{1};
    Memory memory;
    const uint64_t rows_at, memo_at;
};

using Integers = Table<int8_t, int16_t, int32_t>;
using Floats = Table<float, float, float>;

template <typename T>
class DlrmSums : public testing::Test {};
using Tables = testing::Types<Integers, Floats>;
TYPED_TEST_SUITE(DlrmSums, Tables);

TYPED_TEST(DlrmSums, OfAnyQueryEqualPlainSums) {
    for (uint64_t shift : {0, 256, 1, 100}) { // of the last two, rows lie in two pages
        TypeParam table(shift);
        for (unsigned n = 0; n < 200; n++) {
            const Groups groups = table.any_groups();
            Call call = table.call(table.query(groups).bytes());
            ASSERT_EQ(call.run(), 0);
            EXPECT_EQ(table.answered(call), table.expected(groups));
        }
    }
}

TYPED_TEST(DlrmSums, EmptyGroupsAre0) {
    TypeParam table;
    for (const Groups& groups :
         {Groups{{}}, Groups{{}, {}, {}}, Groups{{}, {}, {7}, {}, {8, 9}, {}}}) {
        Call call = table.call(table.query(groups).bytes());
        ASSERT_EQ(call.run(), 0);
        EXPECT_EQ(table.answered(call), table.expected(groups));
    }
}

TYPED_TEST(DlrmSums, StayApartWhileCallsTakeTurns) {
    TypeParam table;
    std::vector<Groups> groups;
    std::vector<Call> calls;
    for (unsigned n = 0; n < 16; n++) {
        groups.push_back(table.any_groups());
        calls.push_back(table.call(table.query(groups.back()).bytes()));
    }
    for (bool more = true; more;) {
        more = false;
        for (Call& call : calls)
            more |= call.step();
    }
    for (unsigned n = 0; n < 16; n++) {
        EXPECT_EQ(calls[n].outcome(), 0);
        EXPECT_EQ(table.answered(calls[n]), table.expected(groups[n]));
    }
}

// A step looks at a constant number of rows, for any arguments.
TYPED_TEST(DlrmSums, AStepLooksAtFewRows) {
    TypeParam table;
    Groups groups(1);
    for (uint32_t n = 0; n < DLRM_IDS_MAX; n++)
        groups[0].push_back(n);
    Call call = table.call(table.query(groups).bytes());
    uint64_t before = 0;
    do {
        EXPECT_LE(table.memory.slices - before, 16u);
        before = table.memory.slices;
    } while (call.step());
    EXPECT_EQ(call.outcome(), 0);
    EXPECT_EQ(table.memory.slices, DLRM_IDS_MAX) << "an access for each row";
}

TYPED_TEST(DlrmSums, ArgumentsOfAWrongLengthAreRefused) {
    TypeParam table;
    const Bytes right = table.query({{1, 2, 3}, {}, {4, 5}}).bytes();
    Bytes wrong = right;
    wrong.resize(args_bytes_max);
    for (size_t bytes = 0; bytes <= args_bytes_max; bytes++) {
        Call call = table.call(Bytes(wrong.begin(), wrong.begin() + static_cast<long>(bytes)));
        EXPECT_EQ(call.run(), bytes == right.size() ? 0 : -EINVAL) << bytes;
    }
}

TYPED_TEST(DlrmSums, WrongCountsAreRefused) {
    TypeParam table;
    Query query = table.query({{1, 2, 3}, {4}, {5}});
    const Bytes right = query.bytes();
    // Each count, and the padding: none can be another number. So no loop runs longer than ids.
    for (size_t at = sizeof(dlrm_args); at < sizeof(dlrm_args) + 8; at++) {
        for (unsigned value = 1; value < 256; value++) {
            Bytes wrong = right;
            wrong[at] = static_cast<uint8_t>(wrong[at] ^ value);
            EXPECT_EQ(table.call(wrong).run(), -EINVAL) << at;
        }
    }
    for (auto field : {&dlrm_args::groups, &dlrm_args::ids}) {
        for (uint32_t value = 0; value < 65536; value++) {
            Query other = query;
            other.head.*field = static_cast<uint16_t>(value);
            // Four groups have as many bytes of counts as three: the padding is the fourth's.
            const bool same =
                value == query.head.*field || (field == &dlrm_args::groups && value == 4);
            EXPECT_EQ(table.run(other), same ? 0 : -EINVAL) << value;
        }
    }
    // The sum is right if the padding counts.
    Bytes padded = right;
    padded[sizeof(dlrm_args)]--;
    padded[sizeof(dlrm_args) + 6]++;
    EXPECT_EQ(table.call(padded).run(), -EINVAL);
    query.head.reserved = 1;
    EXPECT_EQ(table.run(query), -EINVAL);
    EXPECT_EQ(table.run(table.query({std::vector(DLRM_IDS_MAX + 1, 0U)})), -EINVAL);
    EXPECT_EQ(table.run(table.query(Groups(DLRM_GROUPS_MAX + 1))), -EINVAL);
    EXPECT_EQ(table.run(table.query({})), -EINVAL);
}

TYPED_TEST(DlrmSums, IdsBeyondTheirArrayAreRefused) {
    TypeParam table;
    for (uint32_t wrong : {rows, 0x7fffffffU, DLRM_MEMO | entries, 0xffffffffU}) {
        EXPECT_EQ(table.run(table.query({{0, 1}, {2, wrong}})), -EINVAL) << wrong;
        Groups late(1, std::vector<uint32_t>(100, 1)); // in a later step
        late[0].push_back(wrong);
        EXPECT_EQ(table.run(table.query(late)), -EINVAL) << wrong;
    }
    Query without = table.query({{0, DLRM_MEMO}});
    without.head.memo_count = 0;
    EXPECT_EQ(table.run(without), -EINVAL);
}

TYPED_TEST(DlrmSums, AddressesOfNoMemoryFail) {
    TypeParam table;
    const uint64_t end = base + 16 * page_bytes;
    for (uint64_t at : {uint64_t{0}, base - 1, base - page_bytes, end - 1, end, ~uint64_t{0},
                        ~uint64_t{0} - 63, uint64_t{1} << 63}) {
        for (uint32_t id : {0U, DLRM_MEMO}) {
            Query query = table.query({{id}});
            query.head.rows = query.head.memo = at;
            EXPECT_EQ(table.run(query), -EFAULT) << at;
        }
    }
    // The arguments claim more rows than the memory has.
    Query large = table.query({{0x7fffffff}, {DLRM_MEMO | 0x7fffffff}});
    large.head.row_count = large.head.memo_count = ~0U;
    EXPECT_EQ(table.run(large), -EFAULT);
    large.head.rows = ~uint64_t{0} - (uint64_t{0x7fffffff} << 8); // the sum wraps
    EXPECT_EQ(table.run(large), -EFAULT);
}

TYPED_TEST(DlrmSums, NeedRoomForEachGroup) {
    TypeParam table;
    const Bytes args = table.query({{1}, {2}}).bytes();
    EXPECT_EQ(table.call(args, 2 * DLRM_SUM_BYTES - 1).run(), -EMSGSIZE);
    EXPECT_EQ(table.call(args, 0).run(), -EMSGSIZE);
    EXPECT_EQ(table.call(args, 2 * DLRM_SUM_BYTES).run(), 0);
}

TEST(Dlrm, UnknownFunctionIsRefused) {
    Integers table;
    for (uint32_t function = 2; function < 32; function++)
        EXPECT_EQ(Call(table.memory, function, table.query({{1}}).bytes()).run(), -ENOSYS);
}

// As many of the largest numbers as a call has room for.
TEST(Dlrm, IntegersDontOverflow) {
    for (bool memo : {false, true}) {
        for (bool least : {false, true}) {
            Integers table;
            for (uint32_t n = 0; n < DLRM_DIM; n++) {
                table.put<int8_t>(table.rows_at, n, least ? -128 : 127);
                table.put<int16_t>(table.memo_at, n, least ? -32768 : 32767);
            }
            const Groups groups{std::vector(DLRM_IDS_MAX, memo ? DLRM_MEMO : 0)};
            Call call = table.call(table.query(groups).bytes());
            ASSERT_EQ(call.run(), 0);
            const int64_t each = memo ? (least ? -32768 : 32767) : (least ? -128 : 127);
            const auto sums = Integers::answered(call);
            for (int32_t sum : sums.at(0))
                EXPECT_EQ(sum, each * int64_t{DLRM_IDS_MAX});
        }
    }
}

TEST(Dlrm, FloatsOverflowAsInIeee754) {
    Floats table;
    const float most = std::numeric_limits<float>::max();
    const float infinite = std::numeric_limits<float>::infinity();
    const float row[4] = {most, infinite, std::numeric_limits<float>::quiet_NaN(), -0.0F};
    for (uint32_t n = 0; n < 4; n++)
        table.put(table.rows_at, n, row[n]);
    table.put(table.rows_at, DLRM_DIM + 1, -infinite);
    Call call = table.call(table.query({{0, 0}, {0, 1}}).bytes());
    ASSERT_EQ(call.run(), 0);
    const auto sums = Floats::answered(call);
    EXPECT_EQ(sums[0][0], infinite);
    EXPECT_EQ(sums[0][1], infinite);
    EXPECT_TRUE(std::isnan(sums[0][2]));
    EXPECT_FALSE(std::signbit(sums[0][3])) << "a sum begins at 0";
    EXPECT_TRUE(std::isnan(sums[1][1])) << "infinity less infinity";
}

// The order that the header tells: a group's ids, one after the other.
TEST(Dlrm, FloatsAreAddedInTheOrderOfTheIds) {
    Floats table;
    for (uint32_t n = 0; n < DLRM_DIM; n++) {
        table.put(table.rows_at, n, 1e8F);
        table.put(table.rows_at, DLRM_DIM + n, 1.0F);
        table.put(table.rows_at, 2 * DLRM_DIM + n, -1e8F);
    }
    const Groups groups{{0, 1, 2}, {0, 2, 1}};
    Call call = table.call(table.query(groups).bytes());
    ASSERT_EQ(call.run(), 0);
    EXPECT_EQ(Floats::answered(call)[0][0], 0.0F);
    EXPECT_EQ(Floats::answered(call)[1][0], 1.0F);
}

} // namespace
