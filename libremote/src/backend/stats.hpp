// SPDX-License-Identifier: MIT
/*
 * Counts and durations of ended operations: remote_stats(). Times lie in the buckets of
 * core/base/times.h.
 *
 * Not synchronised: the caller holds a lock.
 */
#pragma once

#include <array>
#include <cstdint>

#include "remote/remote.h"

namespace remora::lib {

class Tally {
public:
    void count(std::uint8_t type, std::uint64_t bytes, int result) {
        Kind& kind = kinds_[kind_of(type)];
        (result ? kind.failed : kind.done)++;
        kind.bytes += result ? 0 : bytes;
    }
    void time(std::uint8_t type, std::uint64_t ns) { kinds_[kind_of(type)].times[bucket_of(ns)]++; }
    void add_to(remote_counters& counters) const;

    static std::size_t bucket_of(std::uint64_t ns);
    // Of a bucket; the last one has no end.
    static std::uint64_t upper_bound_ns(std::size_t bucket);

private:
    struct Kind {
        std::uint64_t done = 0, failed = 0, bytes = 0;
        std::array<std::uint64_t, REMOTE_BUCKETS> times{};
    };
    static remote_kind kind_of(std::uint8_t type);

    std::array<Kind, REMOTE_KINDS> kinds_{};
};

// The upper bound of the bucket that holds the one.
std::uint64_t percentile_ns(const remote_kind_stats& kind, double percent);

} // namespace remora::lib
