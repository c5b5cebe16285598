// SPDX-License-Identifier: GPL-2.0
// tools/offloads/filter: its answers beside those of a plain loop over the same rows.
#include <algorithm>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#define OFFLOAD offload_filter
#define OFFLOAD_TEST_MEMORY
#include "memory.hpp"
#include "offloads/filter/filter.h"

namespace {

using namespace offload_test;

constexpr uint64_t mib = 1 << 20;
constexpr uint8_t types[] = {FILTER_U8,
                             FILTER_U16,
                             FILTER_U32,
                             FILTER_U64,
                             FILTER_U8 | FILTER_SIGNED,
                             FILTER_U16 | FILTER_SIGNED,
                             FILTER_U32 | FILTER_SIGNED,
                             FILTER_U64 | FILTER_SIGNED};

std::vector<uint8_t> bytes_of(const filter_args& args) {
    std::vector<uint8_t> bytes(sizeof(args));
    std::memcpy(bytes.data(), &args, sizeof(args));
    return bytes;
}

filter_column column(uint16_t offset, uint8_t type) {
    return {offset, type, {}};
}

filter_test test(uint16_t offset, uint8_t type, uint8_t compare, uint64_t value) {
    return {value, column(offset, type), compare, {}};
}

const filter_test any{0, {}, FILTER_ANY, {}};

struct Rig {
    explicit Rig(uint64_t bytes) : memory(bytes) {}

    // Each step has one slice, or the copies of one row; and so many steps.
    Call run(uint32_t function, const filter_args& args, uint32_t room = 8192) {
        Call call(memory, function, bytes_of(args), room);
        for (bool more = true; more;) {
            const uint64_t slices = memory.slices;
            more = call.step();
            require(memory.slices - slices <= 3);
            require(call.steps() <= FILTER_STEPS + 1);
        }
        return call;
    }
    int error(uint32_t function, const filter_args& args, uint32_t room = 8192) {
        return run(function, args, room).outcome();
    }
    filter_found found(const filter_args& args) {
        Call call = run(FILTER_RUN, args, sizeof(filter_found));
        filter_found found{};
        require(!call.outcome() && call.result().size() == sizeof(found));
        std::memcpy(&found, call.result().data(), sizeof(found));
        return found;
    }
    struct Rows {
        uint64_t next;
        std::vector<uint64_t> numbers;
    };
    Rows rows(const filter_args& args, uint32_t room = 8192) {
        Call call = run(FILTER_ROWS, args, room);
        filter_rows head{};
        require(!call.outcome() && call.result().size() >= sizeof(head));
        std::memcpy(&head, call.result().data(), sizeof(head));
        Rows rows{head.next, std::vector<uint64_t>(head.count)};
        require(call.result().size() == sizeof(head) + 8 * head.count);
        if (head.count)
            std::memcpy(rows.numbers.data(), call.result().data() + sizeof(head), 8 * head.count);
        return rows;
    }

    Memory memory;
};

// ---- a plain loop ----

__int128 value_at(const uint8_t* row, const filter_column& column) {
    const unsigned bytes = column.type & 15;
    uint64_t value = 0;
    std::memcpy(&value, row + column.offset, bytes);
    if (column.type & FILTER_SIGNED) {
        const unsigned up = 64 - 8 * bytes;
        return static_cast<int64_t>(value << up) >> up;
    }
    return value;
}

bool matches(const uint8_t* row, const filter_test& test) {
    if (!test.column.type)
        return true;
    const __int128 value = value_at(row, test.column);
    const __int128 limit = test.column.type & FILTER_SIGNED
                               ? __int128{static_cast<int64_t>(test.value)}
                               : __int128{test.value};
    switch (test.compare) {
    case FILTER_LT:
        return value < limit;
    case FILTER_LE:
        return value <= limit;
    case FILTER_EQ:
        return value == limit;
    case FILTER_NE:
        return value != limit;
    case FILTER_GE:
        return value >= limit;
    case FILTER_GT:
        return value > limit;
    default:
        return true;
    }
}

struct Plain {
    std::vector<uint64_t> rows;
    __int128 sum = 0;
    std::optional<__int128> least, greatest;

    Plain(Memory& memory, const filter_args& args) {
        for (uint64_t n = args.first; n < args.rows; n++) {
            const uint8_t* row = memory.at(args.addr) + n * args.row_bytes;
            const bool one = matches(row, args.test[0]), other = matches(row, args.test[1]);
            if (args.either ? !one && !other : !one || !other)
                continue;
            rows.push_back(n);
            if (!args.column.type)
                continue;
            const __int128 value = value_at(row, args.column);
            sum += value;
            least = std::min(least.value_or(value), value);
            greatest = std::max(greatest.value_or(value), value);
        }
    }
};

void expect_plain(const filter_found& found, const Plain& plain) {
    EXPECT_EQ(found.matches, plain.rows.size());
    EXPECT_EQ(found.sum_low, static_cast<uint64_t>(plain.sum));
    EXPECT_EQ(found.sum_high, static_cast<uint64_t>(plain.sum >> 64));
    EXPECT_EQ(found.least, static_cast<uint64_t>(plain.least.value_or(0)));
    EXPECT_EQ(found.greatest, static_cast<uint64_t>(plain.greatest.value_or(0)));
}

// ---- answers ----

TEST(Filter, AnswersEqualAPlainLoops) {
    Rig rig(mib);
    unsigned mixed = 0;
    for (unsigned seed = 0; seed < 1000; seed++) {
        std::mt19937_64 random(seed);
        filter_args args{};
        const uint64_t sizes[] = {1 + random() % 16, 1 + random() % 200, 8ull << random() % 8,
                                  1 + random() % FILTER_ROW_BYTES_MAX};
        args.row_bytes = static_cast<uint32_t>(sizes[random() % 4]);
        args.rows = random() % (random() % 8 ? 100 : FILTER_STEPS); // one call's
        args.rows = std::min<uint64_t>(args.rows, (mib - 8192) / args.row_bytes);
        args.first = random() % 3 ? 0 : random() % (args.rows + 1);
        // Often across a page's border, and its last row at the memory's end.
        const uint64_t size = args.rows * args.row_bytes, last = base + mib - size;
        args.addr = last;
        if (random() % 4)
            args.addr =
                std::min(last, base + page_bytes - random() % std::min(page_bytes, size + 1));
        args.either = random() % 2;
        auto chosen = [&]() -> filter_column {
            for (;;) {
                const uint8_t type = types[random() % std::size(types)];
                const unsigned bytes = type & 15u;
                if (bytes <= args.row_bytes)
                    return column(static_cast<uint16_t>(random() % (args.row_bytes - bytes + 1)),
                                  type);
            }
        };
        for (filter_test& each : args.test) {
            if (random() % 5 == 0) {
                each = any;
                continue;
            }
            each.column = chosen();
            each.compare = static_cast<uint8_t>(1 + random() % 7);
            const uint64_t values[] = {random() % 8, random() % 256, ~(random() % 8), random(),
                                       1ull << random() % 64};
            each.value = values[random() % std::size(values)];
        }
        args.column = chosen();
        // Small values, so that equal ones are met, and all kinds of bits.
        uint8_t* bytes = rig.memory.at(args.addr);
        for (uint64_t n = 0; n < args.rows * args.row_bytes; n++)
            bytes[n] = static_cast<uint8_t>(random() % 3 ? random() % 4 - random() % 2 : random());
        const Plain plain(rig.memory, args);
        const filter_found found = rig.found(args);
        EXPECT_EQ(found.next, args.rows);
        expect_plain(found, plain);
        mixed += !plain.rows.empty() && plain.rows.size() < args.rows - args.first;

        args.column = {};
        const uint32_t room = random() % 2 ? 8192 : static_cast<uint32_t>(24 + random() % 100);
        const Rig::Rows rows = rig.rows(args, room);
        const size_t fits = (room - sizeof(filter_rows)) / 8;
        ASSERT_EQ(rows.numbers.size(), std::min(fits, plain.rows.size())) << "seed " << seed;
        ASSERT_TRUE(std::equal(rows.numbers.begin(), rows.numbers.end(), plain.rows.begin()));
        EXPECT_EQ(rows.next, plain.rows.size() > fits ? plain.rows[fits] : args.rows);
        ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
    }
    EXPECT_GT(mixed, 200u);
}

TEST(Filter, EachComparisonOfEachTypeHoldsAtItsBorders) {
    Rig rig(mib);
    for (uint8_t type : types) {
        const unsigned bits = 8 * (type & 15u);
        const uint64_t ones = ~0ull >> (64 - bits), high = 1ull << (bits - 1);
        const uint64_t values[] = {0, 1, ones, high, high - 1, ones - 1};
        for (size_t n = 0; n < std::size(values); n++)
            std::memcpy(rig.memory.at(base + n * 8), &values[n], 8);
        for (uint64_t value : values)
            for (uint8_t compare = FILTER_LT; compare <= FILTER_ANY; compare++) {
                // A limit is extended as its column is.
                const uint64_t limit = type & FILTER_SIGNED && value & high ? value | ~ones : value;
                filter_args args{base,
                                 std::size(values),
                                 0,
                                 8,
                                 0,
                                 {test(0, type, compare, limit), any},
                                 column(0, type)};
                expect_plain(rig.found(args), Plain(rig.memory, args));
            }
    }
}

TEST(Filter, SumHas128Bits) {
    Rig rig(mib);
    const uint64_t rows = FILTER_STEPS * 64;
    std::memset(rig.memory.at(base), 0xff, mib);
    filter_args args{base, rows, 0, 8, 0, {any, any}, column(0, FILTER_U64)};
    filter_found found = rig.found(args);
    EXPECT_EQ(found.matches, rows);
    EXPECT_EQ(found.sum_high, rows - 1);
    EXPECT_EQ(found.sum_low, ~0ull - rows + 1);
    args.column = column(0, FILTER_U64 | FILTER_SIGNED);
    found = rig.found(args);
    EXPECT_EQ(found.sum_high, ~0ull);
    EXPECT_EQ(static_cast<int64_t>(found.sum_low), -static_cast<int64_t>(rows));
    EXPECT_EQ(static_cast<int64_t>(found.least), -1);
    EXPECT_EQ(static_cast<int64_t>(found.greatest), -1);
}

TEST(Filter, CallEndsAfterItsStepsAndTheNextOneContinues) {
    const uint64_t bytes = (FILTER_STEPS + 192ull) * FILTER_ROW_BYTES_MAX;
    Rig rig(bytes);
    std::mt19937_64 random(1);
    for (uint64_t at = 0; at < bytes; at += 512) {
        const uint64_t value = random();
        std::memcpy(rig.memory.at(base + at), &value, 8);
    }
    for (uint32_t row_bytes : {1024u, 1000u, 513u}) {
        filter_args args{base + 40,
                         (bytes - 40) / row_bytes,
                         0,
                         row_bytes,
                         0,
                         {test(0, FILTER_U8, FILTER_GE, 200), any},
                         column(2, FILTER_U32 | FILTER_SIGNED)};
        const Plain plain(rig.memory, args);
        uint64_t matches = 0, calls = 0;
        __int128 sum = 0;
        while (args.first < args.rows) {
            const filter_found found = rig.found(args);
            ASSERT_GT(found.next, args.first);
            matches += found.matches;
            sum += static_cast<__int128>(found.sum_high) << 64 | found.sum_low;
            args.first = found.next;
            calls++;
        }
        EXPECT_EQ(matches, plain.rows.size());
        EXPECT_TRUE(sum == plain.sum);
        EXPECT_EQ(calls, row_bytes < 600 ? 3u : 2u);
        // The rows come by many calls.
        args.first = 0;
        args.column = {};
        std::vector<uint64_t> numbers;
        while (args.first < args.rows) {
            const Rig::Rows rows = rig.rows(args);
            numbers.insert(numbers.end(), rows.numbers.begin(), rows.numbers.end());
            args.first = rows.next;
        }
        EXPECT_EQ(numbers, plain.rows);
    }
}

TEST(Filter, SmallRowsTakeManyStepsOfFewRows) {
    Rig rig(mib);
    filter_args args{base, mib, 0, 1, 0, {any, any}, column(0, FILTER_U8)};
    EXPECT_EQ(rig.run(FILTER_RUN, args).steps(), FILTER_STEPS + 1);
    args.rows = 0;
    EXPECT_EQ(rig.run(FILTER_RUN, args).steps(), 1u);
    EXPECT_EQ(rig.found(args).matches, 0u);
}

// A FENCE of another client waits for a call: 10 ms at most.
TEST(Filter, CallsAreShort) {
    EXPECT_LE(FILTER_STEPS * FILTER_ROW_BYTES_MAX, mib);
    EXPECT_GT(offload_filter.budget_us, 2 * FILTER_STEPS) << "steps of up to 2 us";
    EXPECT_LE(offload_filter.budget_us, 10'000u);
}

// ---- refusals ----

TEST(Filter, ArgumentsOfOtherLengthsAreRefused) {
    Rig rig(mib);
    const filter_args args{base, 10, 0, 8, 0, {any, any}, column(0, FILTER_U8)};
    for (size_t bytes = 0; bytes <= 1024; bytes++)
        for (uint32_t function = 0; function < 32; function++) {
            std::vector<uint8_t> data = bytes_of(args);
            if (function)
                std::fill(data.end() - sizeof(filter_column), data.end(), 0);
            data.resize(bytes);
            Call call(rig.memory, function, data);
            EXPECT_EQ(call.run(), function > FILTER_ROWS         ? -ENOSYS
                                  : bytes == sizeof(filter_args) ? 0
                                                                 : -EINVAL);
        }
}

TEST(Filter, ArgumentsThatCantBeAreRefused) {
    Rig rig(mib);
    const filter_args good{
        base, 10, 0, 8, 0, {test(4, FILTER_U32, FILTER_LT, 7), any}, column(0, FILTER_U8)};
    EXPECT_EQ(rig.error(FILTER_RUN, good), 0);
    auto refused = [&](auto change, int error = -EINVAL) {
        filter_args args = good;
        change(args);
        EXPECT_EQ(rig.error(FILTER_RUN, args), error);
    };
    refused([](auto& args) { args.row_bytes = 0; });
    refused([](auto& args) { args.row_bytes = FILTER_ROW_BYTES_MAX + 1; });
    refused([](auto& args) { args.row_bytes = 7; });
    refused([](auto& args) { args.rows = FILTER_ROWS_MAX + 1; });
    refused([](auto& args) { args.first = 11; });
    refused([](auto& args) { args.addr = ~0ull - 79; });
    refused([](auto& args) { args.either = 2; });
    refused([](auto& args) { args.test[0].column.offset = 5; });
    refused([](auto& args) { args.test[0].column.reserved[4] = 1; });
    refused([](auto& args) { args.test[0].reserved[6] = 1; });
    refused([](auto& args) { args.test[0].compare = 0; });
    refused([](auto& args) { args.test[0].compare = 8; });
    refused([](auto& args) { args.test[1].value = 1; });
    refused([](auto& args) { args.test[1].compare = FILTER_EQ; });
    refused([](auto& args) { args.test[1].column.type = FILTER_SIGNED; });
    refused([](auto& args) { args.column = {}; });
    for (unsigned type = 0; type < 256; type++)
        if (std::find(std::begin(types), std::end(types), type) == std::end(types))
            refused([=](auto& args) { args.column.type = static_cast<uint8_t>(type); });
    refused([](auto& args) { args.addr = base - 8; }, -EFAULT);
    refused([](auto& args) { args.addr = base + mib - 79; }, -EFAULT);
    refused(
        [](auto& args) {
            args.rows = FILTER_ROWS_MAX;
            args.first = mib / 8 - 1;
        },
        -EFAULT);
    EXPECT_EQ(rig.error(FILTER_ROWS, good), -EINVAL) << "it sums up nothing";
    EXPECT_EQ(rig.error(FILTER_RUN, good, sizeof(filter_found) - 1), -EMSGSIZE);
    filter_args rows = good;
    rows.column = {};
    EXPECT_EQ(rig.error(FILTER_ROWS, rows), 0);
    EXPECT_EQ(rig.error(FILTER_ROWS, rows, sizeof(filter_rows) + 7), -EMSGSIZE);
    std::memset(rig.memory.at(base), 0xff, 80);
    EXPECT_EQ(rig.error(FILTER_ROWS, rows, sizeof(filter_rows)), 0) << "no row matches";
}

// Random arguments over random rows that change between the steps.
TEST(Filter, CallsOfHostileClientsEnd) {
    Rig rig(2 * page_bytes);
    unsigned good = 0;
    for (unsigned seed = 0; seed < 30'000; seed++) {
        std::mt19937_64 random(seed);
        filter_args args{};
        uint8_t bytes[sizeof(args)];
        for (uint8_t& each : bytes)
            each = static_cast<uint8_t>(random());
        std::memcpy(&args, bytes, sizeof(args));
        if (random() % 16) {
            args.addr = base + random() % (2 * page_bytes);
            args.row_bytes = static_cast<uint32_t>(random() % (FILTER_ROW_BYTES_MAX + 2));
            args.rows = random() % 300;
            args.first = random() % 2 ? 0 : random() % 300;
            args.either = random() % 2;
            for (filter_column* each : {&args.test[0].column, &args.test[1].column, &args.column})
                *each = column(static_cast<uint16_t>(random() % (args.row_bytes + 1)),
                               types[random() % std::size(types)]);
            for (filter_test& each : args.test) {
                each.compare %= 9;
                std::memset(each.reserved, 0, sizeof(each.reserved));
            }
            if (random() % 4 == 0)
                args.test[1] = any;
        }
        const uint32_t function = random() % 2;
        if (function)
            args.column = {};
        Call call(rig.memory, function, bytes_of(args), random() % 8192);
        while (call.step())
            for (unsigned n = 0; n < 16; n++)
                *rig.memory.at(base + random() % (2 * page_bytes)) = static_cast<uint8_t>(random());
        ASSERT_LE(call.steps(), 302u);
        ASSERT_TRUE(call.outcome() == 0 || call.outcome() == -EINVAL || call.outcome() == -EFAULT ||
                    call.outcome() == -EMSGSIZE)
            << seed;
        good += !call.outcome();
    }
    EXPECT_GT(good, 3000u);
}

} // namespace
