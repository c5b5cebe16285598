// SPDX-License-Identifier: MIT
#include "src/stats.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "remora/rmem.h"

namespace remora::lib {

namespace {

// The first bucket ends at 64 ns; from there on four to each power of two.
constexpr unsigned first_shift = 6;
constexpr unsigned quarter_bits = 2;

} // namespace

std::size_t Tally::bucket_of(std::uint64_t ns) {
    if (ns < std::uint64_t{1} << first_shift)
        return 0;
    auto shift = static_cast<unsigned>(std::bit_width(ns)) - 1;
    std::size_t quarter = (ns >> (shift - quarter_bits)) & ((1U << quarter_bits) - 1);
    return std::min<std::size_t>(1 + ((shift - first_shift) << quarter_bits) + quarter,
                                 REMOTE_BUCKETS - 1);
}

std::uint64_t Tally::upper_bound_ns(std::size_t bucket) {
    if (bucket >= REMOTE_BUCKETS - 1)
        return std::numeric_limits<std::uint64_t>::max();
    unsigned shift = first_shift + static_cast<unsigned>(bucket >> quarter_bits);
    std::uint64_t quarter = bucket & ((1U << quarter_bits) - 1);
    return ((1U << quarter_bits) + quarter) << (shift - quarter_bits);
}

remote_kind Tally::kind_of(std::uint8_t type) {
    switch (type) {
    case RMEM_READ:
        return REMOTE_KIND_READ;
    case RMEM_WRITE:
    case RMEM_PUT:
        return REMOTE_KIND_WRITE;
    case RMEM_ATOMIC:
        return REMOTE_KIND_INTEGER;
    default:
        return REMOTE_KIND_OTHER;
    }
}

std::uint64_t percentile_ns(const remote_kind_stats& kind, double percent) {
    std::uint64_t all =
        std::accumulate(std::begin(kind.times), std::end(kind.times), std::uint64_t{0});
    auto wanted = static_cast<std::uint64_t>(std::clamp(percent, 0.0, 100.0) / 100 *
                                             static_cast<double>(all));
    std::uint64_t seen = 0;
    for (std::size_t bucket = 0; bucket < REMOTE_BUCKETS; bucket++) {
        seen += kind.times[bucket];
        if (seen && seen >= wanted)
            return Tally::upper_bound_ns(bucket);
    }
    return 0;
}

void Tally::add_to(remote_counters& counters) const {
    for (std::size_t i = 0; i < kinds_.size(); i++) {
        remote_kind_stats& to = counters.kind[i];
        to.done += kinds_[i].done;
        to.failed += kinds_[i].failed;
        to.bytes += kinds_[i].bytes;
        for (std::size_t bucket = 0; bucket < REMOTE_BUCKETS; bucket++)
            to.times[bucket] += kinds_[i].times[bucket];
    }
}

} // namespace remora::lib
