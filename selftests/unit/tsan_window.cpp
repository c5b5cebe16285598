// SPDX-License-Identifier: GPL-2.0
// Channels on several CPUs share the windows: no data race, no credit lost, no wake-up lost.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

extern "C" {
#include "core/rmem/window.h"
}

namespace {

using Clock = std::chrono::steady_clock;

uint64_t now_ns() {
    return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

// A channel's bed: it sleeps until somebody kicks it. Nobody for so long: a lost wake-up.
struct Bed {
    std::atomic<bool> kicked{false};

    bool sleep() {
        auto give_up = Clock::now() + std::chrono::seconds(60);
        while (!kicked.exchange(false)) {
            if (Clock::now() > give_up)
                return false;
            std::this_thread::yield();
        }
        return true;
    }
};

class Shared : public testing::Test {
protected:
    static constexpr int threads = 4;
    static constexpr int rounds = 20000;

    void kick(uint64_t waiters) {
        for (int i = 0; i < threads; i++) {
            if (waiters >> i & 1)
                beds[i].kicked = true;
        }
    }

    template <class Body>
    void run(Body&& body) {
        std::vector<std::thread> all;
        for (int i = 0; i < threads; i++)
            all.emplace_back([&, i] { body(i); });
        for (auto& thread : all)
            thread.join();
    }

    Bed beds[threads];
    std::atomic<bool> lost{false};
};

TEST_F(Shared, WindowLosesNeitherCreditNorWakeUps) {
    rmem_window w;
    rmem_window_init(&w);
    w.cwnd = 2 * RMEM_CWND_ONE;
    run([&](int me) {
        for (int round = 0; round < rounds && !lost; round++) {
            uint32_t packets = 1 + (round + me) % 3;
            uint64_t until;
            while (!rmem_window_acquire(&w, now_ns(), packets, &until)) {
                if (until)
                    continue; // time opens it
                rmem_window_wait(&w, me);
                if (rmem_window_acquire(&w, now_ns(), packets, &until))
                    break;
                if (!until && !beds[me].sleep()) {
                    lost = true;
                    return;
                }
            }
            // Some congestion, so that cwnd moves on all sides while it is used.
            for (; packets; packets--) {
                uint64_t delay_ns = round % 64 == 0 ? 3'000'000 : 20'000;
                rmem_window_answered(&w, now_ns(), 1, delay_ns, 100'000);
                if (round % 512 == 0)
                    rmem_window_timeout(&w, now_ns(), 1'000'000);
                rmem_window_release(&w, 1);
                kick(rmem_window_waiting(&w));
            }
        }
    });
    EXPECT_FALSE(lost);
    EXPECT_EQ(rmem_window_in_flight(&w), 0u);
    EXPECT_GE(rmem_window_cwnd(&w), RMEM_CWND_MIN);
    EXPECT_LE(rmem_window_cwnd(&w), RMEM_CWND_MAX + threads * RMEM_CWND_ONE);
}

TEST_F(Shared, IncastLosesNeitherCreditNorWakeUps) {
    rmem_incast i;
    rmem_incast_init(&i, 2 * RMEM_IWND_ROOM_BYTES);
    run([&](int me) {
        for (int round = 0; round < rounds && !lost; round++) {
            uint32_t bytes = (round + me) % 5 ? 100'000 : RMEM_IWND_ROOM_BYTES;
            while (!rmem_incast_acquire(&i, bytes)) {
                rmem_incast_wait(&i, me);
                if (rmem_incast_acquire(&i, bytes))
                    break;
                if (!beds[me].sleep()) {
                    lost = true;
                    return;
                }
            }
            rmem_incast_release(&i, bytes / 2);
            kick(rmem_incast_waiting(&i));
            rmem_incast_release(&i, bytes - bytes / 2);
            kick(rmem_incast_waiting(&i));
        }
    });
    EXPECT_FALSE(lost);
    EXPECT_EQ(rmem_incast_used_bytes(&i), 0u);
}

} // namespace
