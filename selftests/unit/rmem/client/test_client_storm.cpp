// SPDX-License-Identifier: GPL-2.0
// Random work in random weather: every byte is right, and all of it ends.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <random>

#include "client_rig.hpp"

namespace {

using net::Bytes;
using net::ms;
using net::noise;
using net::Op;
using net::World;

// Random work, random weather, and all the node may do to us but restart.
// The seed is the test's number, or REMORA_SEED.
class Storm : public testing::TestWithParam<int> {
protected:
    std::mt19937_64 random{seed()};

    static uint64_t seed() {
        const char* given = std::getenv("REMORA_SEED");
        return given ? std::strtoull(given, nullptr, 0) : GetParam();
    }

    void run(World& world, const std::function<void()>& storm) {
        const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
        SCOPED_TRACE("replay: REMORA_SEED=" + std::to_string(seed()) +
                     " out/bin/unit --gtest_filter='*" + name + "'");
        world.weather.loss = random() % 3 ? random() % 100 : 0;
        world.weather.dup = random() % 100;
        world.weather.damage = random() % 30;
        world.weather.delay_ns = 10'000 + random() % 1'000'000;
        world.weather.jitter_ns = random() % 3'000'000;
        world.unsent = random() % 3 ? 0 : random() % 50;
        world.lends_bytes_min = random() % 3 ? 0 : 1 + random() % 20'000;
        world.refuses = random() % 2 ? 0 : random() % 500;
        world.late_ns = random() % 2 ? 0 : 50'000'000;
        try {
            storm();
        } catch (const net::Broken& broken) {
            FAIL() << broken.what();
        }
    }
};

struct Slot {
    Bytes now;
    Op op;
};

// The bytes as some ranges, in their order.
std::vector<net::Range> cut(std::mt19937_64& random, uint64_t at, uint32_t bytes) {
    std::vector<net::Range> ranges;
    while (bytes) {
        uint32_t now = ranges.size() + 1 == RMEM_RANGES_MAX / 4
                           ? bytes
                           : std::min<uint32_t>(bytes, 1 + random() % 60);
        ranges.push_back({at, now});
        at += now;
        bytes -= now;
    }
    return ranges;
}

bool writes(const rmem_op& op) {
    return op.type == RMEM_WRITE || op.type == RMEM_WRITEV;
}

void storm(World& world, std::mt19937_64& random, size_t channels, size_t wanted,
           uint32_t slot_bytes = 40000) {
    std::vector<std::unique_ptr<Slot>> slots;
    for (size_t i = 0; i < channels; i++)
        world.add_channel(world.config(i + 1));
    uint64_t base = net::allocate(world, 4 << 20);
    size_t ended = 0;
    std::function<void(Op&)> again;
    auto submit = [&](size_t index) {
        Slot& slot = *slots[index];
        uint64_t at = base + index * slot_bytes;
        bool fits = slot_bytes + RMEM_RANGES_MAX / 4 * sizeof(rmem_range) < RMEM_PIECE_BYTES_MIN;
        slot.op.data.clear();
        switch (random() % (fits ? 12 : 8)) {
        case 0:
            net::make(slot.op, RMEM_ZERO, at, slot_bytes);
            break;
        case 1:
        case 2:
        case 3:
            net::make_write(slot.op, at, noise(random, slot_bytes));
            break;
        case 8:
        case 9:
            net::make_vector(slot.op, RMEM_WRITEV, cut(random, at, slot_bytes),
                             noise(random, slot_bytes));
            break;
        case 10:
        case 11:
            net::make_vector(slot.op, RMEM_READV, cut(random, at, slot_bytes));
            break;
        default:
            net::make(slot.op, RMEM_READ, at, slot_bytes);
        }
        world.submit(slot.op, random() % channels);
    };
    again = [&](Op& op) {
        size_t index = 0;
        while (&slots[index]->op != &op)
            index++;
        Slot& slot = *slots[index];
        net::require(op.result == RMEM_CLIENT_OK, "an op failed");
        if (writes(op.op))
            slot.now = op.data;
        else if (op.op.type == RMEM_ZERO)
            slot.now.assign(slot_bytes, 0);
        else
            net::require(op.data == slot.now, "read what wasn't written last");
        ended++;
        if (ended < wanted)
            submit(index);
    };
    for (size_t i = 0; i < 24; i++) {
        slots.push_back(std::make_unique<Slot>());
        slots.back()->now.assign(slot_bytes, 0);
        slots.back()->op.ended = again;
    }
    for (size_t i = 0; i < slots.size(); i++)
        submit(i);
    uint64_t next_eviction = world.now_ns + 200 * ms;
    bool done = world.run(
        [&] {
            if (world.now_ns > next_eviction) {
                world.host->evict_all();
                next_eviction = world.now_ns + 100 * ms + random() % (400 * ms);
            }
            return ended >= wanted && world.idle();
        },
        3'600'000 * ms);
    net::require(done, "work came to a standstill");
    for (const auto& channel : world.channels)
        net::require(!channel->client.window.in_flight, "cwnd: credit is out though nothing is");
    net::require(!rmem_incast_used_bytes(&world.incast), "iwnd: credit is out though nothing is");
}

TEST_P(Storm, EveryByteIsRight) {
    World world(seed(), random() % 2 ? RMEM_IWND_BYTES : 100'000);
    world.slow_service_ns = random() % 2 ? random() % 20'000 : 0;
    run(world, [&] { storm(world, random, 1 + random() % 3, 150); });
}

// Small ops, many to a datagram.
TEST_P(Storm, EveryByteIsRightInSharedDatagrams) {
    World world(seed());
    world.datagram_bytes = random() % 2 ? 1472 : 8972;
    world.weather.cut = random() % 30;
    run(world, [&] { storm(world, random, 1 + random() % 2, 600, random() % 3 ? 300 : 3000); });
}

// Sealed: no plaintext twice under one nonce, which the rig sees to, and no old copy is taken.
TEST_P(Storm, EveryByteIsRightInSealedDatagrams) {
    World world(seed());
    world.sealed = true;
    world.datagram_bytes = random() % 2 ? 0 : 1472;
    world.weather.cut = random() % 30;
    std::vector<net::Packet> sent;
    world.on_sent = [&](const net::Packet& packet) {
        if (sent.size() < 4000)
            sent.push_back(packet);
        // An eavesdropper plays one again, or the header of one before the rest of another.
        if (random() % 8)
            return;
        net::Packet again = sent[random() % sent.size()];
        const net::Packet& other = sent[random() % sent.size()];
        if (random() % 2 && again.to_node == other.to_node && other.bytes.size() > RMEM_HDR_BYTES) {
            again.bytes.resize(RMEM_HDR_BYTES);
            again.bytes.insert(again.bytes.end(), other.bytes.begin() + RMEM_HDR_BYTES,
                               other.bytes.end());
        }
        again.at_ns = world.now_ns + random() % 2'000'000;
        again.order = ~0ULL - random() % 1'000'000;
        world.inject(again);
    };
    run(world, [&] {
        world.lends_bytes_min = 0;
        storm(world, random, 1 + random() % 2, 300, random() % 3 ? 300 : 3000);
    });
    EXPECT_GE(world.seals.keys(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Storm, testing::Range(0, 25));

// Ten of a hundred packets lost each way: slow, but all of it gets there.
TEST(ClientLoss, TenPercentMakesProgress) {
    World world(9);
    world.weather.loss = 100;
    std::mt19937_64 random(9);
    storm(world, random, 2, 300);
    EXPECT_LT(world.now_ns, 120'000 * ms);
}

} // namespace
