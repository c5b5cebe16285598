// SPDX-License-Identifier: GPL-2.0
// Data and a signal that it is there; who waits for the signal, and what he finds then.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();

using Data = std::vector<std::uint8_t>;

// Bytes that no other number has, wherever one looks.
Data item_of(std::uint64_t number, std::size_t bytes) {
    Data data(bytes);
    std::mt19937_64 random(number);
    std::generate(data.begin(), data.end(), [&] { return static_cast<std::uint8_t>(random()); });
    return data;
}

class Put : public Backends {
protected:
    std::uint64_t integer(raddr_t at) {
        std::uint64_t value = 0xdead;
        EXPECT_EQ(rread(r, at, &value, sizeof(value)), 0);
        return value;
    }
    Data read(raddr_t at, std::size_t bytes) {
        Data data(bytes);
        EXPECT_EQ(rread(r, at, data.data(), bytes), 0);
        return data;
    }
    // Whichever way, to its end.
    int put(bool async, raddr_t at, const Data& data, const remote_signal& signal) {
        if (!async)
            return remote_put(r, at, data.data(), data.size(), &signal);
        AsyncOp op;
        remote_signal used_up = signal;
        if (int error = put_async(r, at, data.data(), data.size(), &used_up, &op))
            return error;
        used_up = {};
        return poll_all(r, &op, 1, forever);
    }
    // For another thread; over a network, by a way of its own, on which nothing is lost.
    remote_t* another() {
        if (!is_shared())
            return r;
        if (!node)
            return open();
        remote_t* handle = nullptr;
        EXPECT_EQ(remote_open(&handle, udp_target(node->port()).c_str(), nullptr), 0)
            << remote_why();
        return handle;
    }
    void close(remote_t* handle) {
        if (handle != r)
            remote_close(handle);
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Put, testing::ValuesIn(kinds()), kind_name);

TEST_P(Put, BringsDataAndTheSignal) {
    raddr_t a = alloc(4 << 20), signal = alloc(64);
    std::uint64_t sum = 0;
    for (bool async : {false, true}) {
        for (std::size_t bytes :
             {1, 8, 1000, 8679, 8680, 8681, 8704, 8705, 20'000, 300'000, 1 << 21}) {
            Data data = item_of(bytes, bytes);
            ASSERT_EQ(put(async, a + 77, data, {signal, 8, REMOTE_ADD, bytes}), 0);
            sum += bytes;
            EXPECT_EQ(integer(signal), sum);
            EXPECT_EQ(read(a + 77, bytes), data);
        }
    }
    EXPECT_EQ(put(false, a, {1}, {signal, 4, REMOTE_SWAP, ~0ULL}), 0);
    EXPECT_EQ(put(true, a, {1}, {signal + 4, 4, REMOTE_OR, 6}), 0);
    EXPECT_EQ(integer(signal), 0x6'ffff'ffffU);
}

TEST_P(Put, DataIsFirstWhereTheyOverlap) {
    raddr_t a = alloc(1 << 16);
    Data data(30'000, 0);
    for (std::uint64_t at : {0, 8, 29'992}) {
        std::fill(data.begin(), data.end(), 3);
        ASSERT_EQ(put(at == 8, a, data, {a + at, 8, REMOTE_SWAP, 9}), 0);
        EXPECT_EQ(integer(a + at), 9U);
        std::fill_n(data.begin() + static_cast<std::ptrdiff_t>(at), 8, 0);
        data[at] = 9;
        EXPECT_EQ(read(a, data.size()), data);
    }
}

// Puts overlap in their integers and in their data, which may be longer than a message.
TEST_P(Put, OverlappingPutsKeepTheirOrder) {
    constexpr std::size_t bytes = 24'000;
    raddr_t a = alloc(bytes);
    Data mirror(bytes, 0);
    std::mt19937 random(12);
    const int rounds = is_slow() ? 10 : 40;
    for (int round = 0; round < rounds; round++) {
        struct Started {
            Data data, expected; // expected: of a read
            std::uint64_t found = 0, expected_found = 0;
        };
        std::vector<Started> started(48);
        std::vector<AsyncOp> ops(started.size());
        auto add = [&](std::size_t at, std::uint64_t value) {
            std::uint64_t was;
            std::memcpy(&was, &mirror[at], 8);
            value += was;
            std::memcpy(&mirror[at], &value, 8);
            return was;
        };
        for (std::size_t i = 0; i < started.size(); i++) {
            Started& it = started[i];
            std::size_t from = random() % bytes;
            std::size_t count =
                1 +
                random() % (random() % 4 ? std::min<std::size_t>(500, bytes - from) : bytes - from);
            std::size_t where = random() % (bytes / 8) * 8;
            auto first = mirror.begin() + static_cast<std::ptrdiff_t>(from);
            auto last = first + static_cast<std::ptrdiff_t>(count);
            switch (random() % 4) {
            case 0:
                it.data.resize(count);
                it.expected.assign(first, last);
                ASSERT_EQ(read_async(r, a + from, it.data.data(), count, &ops[i]), 0);
                break;
            case 1:
                it.expected_found = add(where, 1);
                ASSERT_EQ(fetch_async(r, a + where, 8, REMOTE_ADD, 1, &it.found, &ops[i]), 0);
                break;
            default: {
                it.data = item_of(random(), count);
                std::copy(it.data.begin(), it.data.end(), first);
                add(where, i);
                remote_signal signal{a + where, 8, REMOTE_ADD, i};
                ASSERT_EQ(put_async(r, a + from, it.data.data(), count, &signal, &ops[i]), 0);
            }
            }
        }
        ASSERT_EQ(poll_all(r, ops.data(), ops.size(), forever), 0);
        for (const Started& each : started) {
            ASSERT_EQ(each.found, each.expected_found);
            if (!each.expected.empty()) {
                ASSERT_EQ(each.data, each.expected);
            }
        }
        ASSERT_EQ(read(a, bytes), mirror);
    }
}

// Its last bytes could have been written.
TEST_P(Put, GivesNoSignalWithoutAllTheData) {
    raddr_t a = alloc(1 << 20), signal = alloc(8), fixed = alloc(1 << 20, REMOTE_READ);
    Data data(30'000, 1);
    for (bool async : {false, true}) {
        EXPECT_EQ(put(async, a - 100, data, {signal, 8, REMOTE_ADD, 1}), -EFAULT);
        EXPECT_EQ(put(async, a + (1 << 20) - 29'999, data, {signal, 8, REMOTE_ADD, 1}), -EFAULT);
        EXPECT_EQ(put(async, fixed, data, {signal, 8, REMOTE_ADD, 1}), -EACCES);
    }
    EXPECT_EQ(integer(signal), 0U);
    EXPECT_EQ(read(a + 29'899, 1), Data{0}) << "the last message went all the same";
    // The handle goes on.
    EXPECT_EQ(put(true, a, data, {signal, 8, REMOTE_ADD, 1}), 0);
    EXPECT_EQ(integer(signal), 1U);
}

TEST_P(Put, RejectsInvalidArguments) {
    raddr_t a = alloc(1 << 16), fixed = alloc(64, REMOTE_READ), nowhere = raddr_t{1} << 50;
    AsyncOp op;
    Data data(100, 1);
    auto both = [&](raddr_t at, const remote_signal& signal) {
        int error = put(false, at, data, signal);
        EXPECT_EQ(put(true, at, data, signal), error);
        return error;
    };
    EXPECT_EQ(both(a, {a + 4, 8, REMOTE_ADD, 1}), -EINVAL);
    EXPECT_EQ(both(a, {a + 2, 4, REMOTE_ADD, 1}), -EINVAL);
    for (std::size_t bytes : {0, 1, 2, 3, 16})
        EXPECT_EQ(both(a, {a, bytes, REMOTE_ADD, 1}), -EINVAL);
    for (int what : {0, 2, 11})
        EXPECT_EQ(both(a, {a, 8, static_cast<remote_change>(what), 1}), -EINVAL);
    EXPECT_EQ(both(~raddr_t{0} - 10, {a, 8, REMOTE_ADD, 1}), -EINVAL);
    EXPECT_EQ(both(a, {fixed, 8, REMOTE_ADD, 1}), -EACCES);
    EXPECT_EQ(both(fixed, {a, 8, REMOTE_ADD, 1}), -EACCES);
    EXPECT_EQ(both(a, {nowhere, 8, REMOTE_ADD, 1}), -EFAULT);
    EXPECT_EQ(both(nowhere, {a, 8, REMOTE_ADD, 1}), -EFAULT);
    remote_signal signal{a, 8, REMOTE_ADD, 1};
    EXPECT_EQ(remote_put(nullptr, a, data.data(), 1, &signal), -EINVAL);
    EXPECT_EQ(remote_put(r, a, nullptr, 1, &signal), -EINVAL);
    EXPECT_EQ(remote_put(r, a, data.data(), 0, &signal), -EINVAL);
    EXPECT_EQ(remote_put(r, a, data.data(), 1, nullptr), -EINVAL);
    EXPECT_EQ(put_async(r, a, data.data(), 1, &signal, nullptr), -EINVAL);
    EXPECT_EQ(put_async(r, a, data.data(), 1, nullptr, &op), -EINVAL);
    EXPECT_EQ(put_async(r, a, data.data(), (std::size_t{1} << 30) + 1, &signal, &op), -EINVAL);
    EXPECT_EQ(read(a, 100), Data(100, 0));
}

// ---- waiting ----

TEST_P(Put, WaitersCompareUnsigned) {
    raddr_t a = alloc(16);
    std::uint64_t there = 0x8000'0000'0000'0005, found = 0;
    ASSERT_EQ(rwrite(r, a, &there, sizeof(there)), 0);
    struct {
        remote_compare compare;
        bool below, same, above; // with a value there is below, ...
    } const all[] = {
        {REMOTE_EQ, false, true, false}, {REMOTE_NE, true, false, true},
        {REMOTE_GT, false, false, true}, {REMOTE_GE, false, true, true},
        {REMOTE_LT, true, false, false}, {REMOTE_LE, true, true, false},
    };
    for (const auto& each : all) {
        auto look = [&](std::size_t bytes, std::uint64_t value) {
            found = 0;
            int error = remote_wait(r, a, bytes, each.compare, value, 0, &found);
            EXPECT_EQ(found, bytes == 8 ? there : 5);
            EXPECT_TRUE(!error || error == -EAGAIN) << error;
            return !error;
        };
        EXPECT_EQ(look(8, there + 1), each.below) << each.compare;
        EXPECT_EQ(look(8, there), each.same) << each.compare;
        EXPECT_EQ(look(8, 7), each.above) << each.compare;
        EXPECT_EQ(look(4, 6), each.below) << each.compare;
        EXPECT_EQ(look(4, there), each.same) << "of 4 bytes, 4 are looked at";
        EXPECT_EQ(look(4, 4), each.above) << each.compare;
    }
    EXPECT_EQ(remote_wait(r, a, 8, REMOTE_EQ, there, forever, nullptr), 0);
    EXPECT_EQ(remote_wait(r, a, 8, REMOTE_EQ, 0, 3000, nullptr), -EAGAIN);
}

TEST_P(Put, WaitEndsAtTheHandlesTimeLimit) {
    remote_t* limited = open(0, 1'000'000);
    raddr_t a = 0;
    ASSERT_EQ(ralloc(limited, 16, REMOTE_RW, &a), 0);
    EXPECT_EQ(remote_wait(limited, a, 8, REMOTE_EQ, 1, forever, nullptr), -ETIMEDOUT);
    // On a busy machine a read that was lost may take longer than the limit.
    int error;
    while ((error = remote_wait(limited, a, 8, REMOTE_EQ, 0, forever, nullptr)) == -ETIMEDOUT) {
    }
    EXPECT_EQ(error, 0);
    EXPECT_EQ(rfree(limited, a), 0);
    remote_close(limited);
}

TEST_P(Put, WaitsThatCantBe) {
    raddr_t a = alloc(16);
    std::uint64_t found = 7;
    for (int compare : {0, 7})
        EXPECT_EQ(remote_wait(r, a, 8, static_cast<remote_compare>(compare), 0, forever, &found),
                  -EINVAL);
    for (std::size_t bytes : {0, 1, 2, 16})
        EXPECT_EQ(remote_wait(r, a, bytes, REMOTE_EQ, 0, forever, &found), -EINVAL);
    EXPECT_EQ(remote_wait(r, a + 4, 8, REMOTE_EQ, 0, forever, &found), -EINVAL);
    EXPECT_EQ(remote_wait(nullptr, a, 8, REMOTE_EQ, 0, forever, &found), -EINVAL);
    EXPECT_EQ(remote_wait(r, raddr_t{1} << 50, 8, REMOTE_EQ, 0, forever, &found), -EFAULT);
    EXPECT_EQ(found, 7U);
    // remote_wait() needs read permission only.
    EXPECT_EQ(remote_wait(r, alloc(8, REMOTE_READ), 8, REMOTE_EQ, 0, forever, &found), 0);
    EXPECT_EQ(found, 0U);
}

// ---- both ----

// A ring: items come in their order, each whole and once; its places are used again and again.
TEST_P(Put, ConsumersGetEachItemWholeAndOnce) {
    constexpr std::uint64_t places = 4;
    constexpr std::size_t sizes[] = {8, 100, 1500, 9000, 24'000, 60}, place_bytes = 24'576;
    const std::uint64_t items = is_slow() ? 150 : 1200;
    raddr_t ring = alloc(places * place_bytes), made = alloc(8), used = alloc(8);
    auto place = [&](std::uint64_t i) { return ring + i % places * place_bytes; };
    remote_t* consumers = another();
    std::thread consumer([&] {
        for (std::uint64_t i = 0; i < items; i++) {
            std::uint64_t found = 0;
            Data item(sizes[i % std::size(sizes)]);
            EXPECT_EQ(remote_wait(consumers, made, 8, REMOTE_GT, i, forever, &found), 0);
            EXPECT_LE(found, i + places) << "signalled twice, or too early";
            EXPECT_EQ(rread(consumers, place(i), item.data(), item.size()), 0);
            EXPECT_EQ(item, item_of(i, item.size())) << i;
            EXPECT_EQ(remote_fetch(consumers, used, 8, REMOTE_ADD, 1, nullptr), 0);
        }
    });
    for (std::uint64_t i = 0; i < items && !testing::Test::HasFailure(); i++) {
        if (i >= places) {
            EXPECT_EQ(remote_wait(r, used, 8, REMOTE_GT, i - places, forever, nullptr), 0);
        }
        EXPECT_EQ(
            put(false, place(i), item_of(i, sizes[i % std::size(sizes)]), {made, 8, REMOTE_ADD, 1}),
            0);
    }
    consumer.join();
    EXPECT_EQ(integer(made), items);
    EXPECT_EQ(integer(used), items);
    close(consumers);
}

// Several under way at once: a place's own signal tells of it, whatever the others do.
TEST_P(Put, SignalsOfManyAtOnceAreEachOnesOwn) {
    constexpr std::uint64_t places = 32;
    constexpr std::size_t place_bytes = 10'000;
    const std::uint64_t rounds = is_slow() ? 4 : 25;
    raddr_t ring = alloc(places * place_bytes), made = alloc(8 * places), used = alloc(8);
    auto bytes_of = [](std::uint64_t i) { return i % 8 ? 200 + i % 300 : place_bytes; };
    remote_t* consumers = another();
    std::thread consumer([&] {
        for (std::uint64_t i = 0; i < rounds * places; i++) {
            // Any order will do.
            std::uint64_t at = i / places * places + i * 7 % places, which = at % places;
            Data item(bytes_of(at));
            EXPECT_EQ(
                remote_wait(consumers, made + 8 * which, 8, REMOTE_EQ, at + 1, forever, nullptr),
                0);
            EXPECT_EQ(rread(consumers, ring + which * place_bytes, item.data(), item.size()), 0);
            EXPECT_EQ(item, item_of(at, item.size())) << at;
            EXPECT_EQ(remote_fetch(consumers, used, 8, REMOTE_ADD, 1, nullptr), 0);
        }
    });
    for (std::uint64_t round = 0; round < rounds && !testing::Test::HasFailure(); round++) {
        EXPECT_EQ(remote_wait(r, used, 8, REMOTE_GE, round * places, forever, nullptr), 0);
        std::vector<Data> items(places);
        std::vector<AsyncOp> ops(places);
        for (std::uint64_t which = 0; which < places; which++) {
            std::uint64_t at = round * places + which;
            items[which] = item_of(at, bytes_of(at));
            remote_signal signal{made + 8 * which, 8, REMOTE_SWAP, at + 1};
            EXPECT_EQ(put_async(r, ring + which * place_bytes, items[which].data(),
                                items[which].size(), &signal, &ops[which]),
                      0);
        }
        EXPECT_EQ(poll_all(r, ops.data(), ops.size(), forever), 0);
    }
    consumer.join();
    close(consumers);
}

// Threads about the same pages, one's data being beside the others' integers.
TEST_P(Put, ThreadsLoseNoSignal) {
    constexpr int threads = 4;
    const int rounds = is_slow() ? 30 : 300;
    raddr_t a = alloc(1 << 18), integers[] = {a + 8192, a + 2 * 65536 + 8192};
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++) {
        all.emplace_back([&, t] {
            remote_t* mine = t ? another() : r;
            std::mt19937 random(static_cast<unsigned>(t));
            Data data(700, 1);
            for (int i = 0; i < rounds; i++) {
                // Each has bytes of its own, one of them across the end of a page.
                raddr_t at = a + (1 + random() % 3) * 65536 - 1750 + 700 * static_cast<raddr_t>(t);
                remote_signal signal{integers[random() % 2], 8, REMOTE_ADD, 1};
                EXPECT_EQ(remote_put(mine, at, data.data(), 1 + random() % data.size(), &signal),
                          0);
            }
            close(mine);
        });
    }
    for (std::thread& thread : all)
        thread.join();
    EXPECT_EQ(integer(integers[0]) + integer(integers[1]),
              static_cast<std::uint64_t>(threads * rounds));
}

} // namespace

} // namespace remora::test
