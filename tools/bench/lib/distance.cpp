// SPDX-License-Identifier: GPL-2.0
// How far two processors are from each other: a cache line there and back.
#include <atomic>
#include <thread>

#include "measure.hpp"
#include "processor.hpp"

namespace remora::bench {

namespace {

// Together a few milliseconds.
constexpr std::uint32_t round_trips = 20000;

} // namespace

Figures distance(unsigned one, unsigned other) {
    alignas(64) std::atomic<std::uint32_t> line{0};
    run_on(one); // to fail before there is another thread, if it does
    // A thread begins where its creator is.
    run_on(other);
    std::thread echo([&] {
        for (std::uint32_t i = 1; i < 2 * round_trips; i += 2) {
            while (line.load(std::memory_order_acquire) != i) {
            }
            line.store(i + 1, std::memory_order_release);
        }
    });
    run_on(one);
    auto from = Clock::now();
    for (std::uint32_t i = 1; i < 2 * round_trips; i += 2) {
        line.store(i, std::memory_order_release);
        while (line.load(std::memory_order_acquire) != i + 1) {
        }
    }
    auto to = Clock::now();
    echo.join();
    return {{"ns", std::chrono::duration<double, std::nano>(to - from).count() / round_trips}};
}

} // namespace remora::bench
