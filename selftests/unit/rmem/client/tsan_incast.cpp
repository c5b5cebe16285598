// SPDX-License-Identifier: GPL-2.0
// Channels on several CPUs share the incast window: no data race, no credit lost, no wake-up lost,
// no waiter overtaken, whoever vanishes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

extern "C" {
#include "core/rmem/client/incast.h"
}

namespace {

using Clock = std::chrono::steady_clock;

class SharedIncast : public testing::Test {
protected:
    static constexpr int threads = 4;
    static constexpr int rounds = 20000;

    // As a shell does after each call into a client: wake the next waiter, which looks again.
    void kick() { kick(incast); }
    void kick(rmem_incast& queue) {
        int waiter = rmem_incast_next(&queue);
        if (waiter != RMEM_WAITER_NONE)
            beds[waiter] = true;
    }

    // Until it is kicked. No progress for so long: a lost wake-up.
    bool sleep(int me) {
        auto give_up = Clock::now() + std::chrono::seconds(60);
        while (!beds[me].exchange(false)) {
            if (Clock::now() > give_up)
                return false;
            std::this_thread::yield();
        }
        return true;
    }

    template <class Body>
    void run(Body&& body) {
        std::vector<std::thread> all;
        for (int i = 0; i < threads; i++)
            all.emplace_back([&, i] { body(i); });
        for (auto& thread : all)
            thread.join();
    }

    rmem_incast incast;
    std::atomic<bool> beds[threads] = {};
    std::atomic<bool> lost{false};
};

TEST_F(SharedIncast, LosesNeitherCreditNorWakeUps) {
    rmem_incast_init(&incast, 2 * RMEM_IWND_ROOM_BYTES);
    run([&](int me) {
        rmem_incast_turn turn{};
        for (int round = 0; round < rounds && !lost; round++) {
            uint32_t bytes = (round + me) % 5 ? 100'000 : RMEM_IWND_ROOM_BYTES;
            bool got = false;
            while (!(got = rmem_incast_acquire(&incast, &turn, me, bytes))) {
                if (round % 7 == me) {
                    rmem_incast_leave(&incast, &turn);
                    kick();
                    break;
                }
                if (!sleep(me)) {
                    lost = true;
                    return;
                }
            }
            if (got) {
                kick(); // its turn is over
                rmem_incast_release(&incast, bytes / 2);
                kick();
                rmem_incast_release(&incast, bytes - bytes / 2);
                kick();
            }
        }
        rmem_incast_leave(&incast, &turn);
        kick();
    });
    EXPECT_FALSE(lost);
    EXPECT_EQ(rmem_incast_used_bytes(&incast), 0u);
    EXPECT_EQ(rmem_incast_next(&incast), RMEM_WAITER_NONE);
}

// Two devices of two channels each. A waiter might be gone when its turn comes.
TEST_F(SharedIncast, DevicesLoseNeitherCreditNorWakeUps) {
    rmem_incast_share devices[2];
    for (rmem_incast_share& device : devices)
        rmem_incast_share_init(&device);
    rmem_incast_init(&incast, 2 * RMEM_IWND_ROOM_BYTES);
    run([&](int me) {
        rmem_incast_share& device = devices[me % 2];
        rmem_incast_place place{};
        auto look = [&] {
            kick(device.queue);
            kick();
        };
        for (int round = 0; round < rounds && !lost; round++) {
            uint32_t bytes = (round + me) % 5 ? 100'000 : RMEM_IWND_ROOM_BYTES;
            bool got = false;
            while (!(got = rmem_incast_place_acquire(&incast, &device, &place, me, bytes))) {
                look();
                if (round % 7 == me) {
                    rmem_incast_place_leave(&incast, &device, &place);
                    look();
                    break;
                }
                if (!sleep(me)) {
                    lost = true;
                    return;
                }
            }
            if (got) {
                look();
                rmem_incast_release(&incast, bytes);
                look();
            }
        }
        rmem_incast_place_leave(&incast, &device, &place);
        look();
    });
    EXPECT_FALSE(lost);
    EXPECT_EQ(rmem_incast_used_bytes(&incast), 0u);
    EXPECT_EQ(rmem_incast_next(&incast), RMEM_WAITER_NONE);
    for (rmem_incast_share& device : devices) {
        EXPECT_EQ(rmem_incast_used_bytes(&device.queue), 0u);
        EXPECT_EQ(rmem_incast_next(&device.queue), RMEM_WAITER_NONE);
    }
}

} // namespace
