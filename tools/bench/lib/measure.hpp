// SPDX-License-Identifier: GPL-2.0
// The measurements. Each gives its figures by name; times are in microseconds unless they say ns.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <sys/types.h>

#include "store.hpp"

namespace remora::bench {

using Figures = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

inline std::uint32_t elapsed_ns(Clock::time_point from, Clock::time_point to) {
    return static_cast<std::uint32_t>(
        std::min<std::int64_t>((to - from).count(), std::numeric_limits<std::uint32_t>::max()));
}

// The same sequence each time.
class Random {
public:
    std::uint32_t below(std::uint32_t limit) {
        state_ = state_ * 6364136223846793005 + 1442695040888963407;
        return static_cast<std::uint32_t>((state_ >> 32) * limit >> 32);
    }

private:
    std::uint64_t state_ = 1;
};

struct Load {
    bool write = false;
    double seconds = 1;
    std::uint32_t depth = 64; // pipeline()'s
    pid_t server = 0;         // process whose CPU time is measured, if any
};

// One at a time: p50, p99, p99.9.
Figures latency(Store& store, const Load& load);
// depth at a time: rate, and with a server ops-per-server-core, which is by its CPU time.
Figures pipeline(Store& store, const Load& load);

// One at a time, by turns over so many handles of the library: p50 by count.
Figures sessions(const std::string& target, const std::vector<std::uint32_t>& counts,
                 double seconds, std::uint32_t integrity);

// Reads a second by one handle, alone and beside so many others that are idle or slow.
Figures crowd(const std::string& target, std::uint32_t count, double seconds,
              std::uint32_t integrity);

// 16 bytes by `embedded`, and the same by hand; all in ns.
Figures embedded(double seconds);

// How often the allocator looked for another place, by tenths of the node's memory.
Figures alloc(std::uint64_t page_bytes, std::uint32_t seeds);

struct OrderLoad {
    std::uint32_t bytes = 16, region_bytes = 16 << 20;
    std::uint32_t depth = 64; // under way
};

// Percent of operations that wait for another in order, were that told by bytes or by pages; and ns
// that an operation's order takes, by bytes.
Figures order(const OrderLoad& load);

// A cache line there and back between two processors, in ns.
Figures distance(unsigned one, unsigned other);

// p of all, which are reordered.
double percentile(std::vector<std::uint32_t>& all, double p);

} // namespace remora::bench
