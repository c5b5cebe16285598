// SPDX-License-Identifier: MIT
#include "src/backend/stats.hpp"

#include <algorithm>
#include <numeric>

extern "C" {
#include "core/base/times.h"
#include "core/rmem/types.h"
}

namespace remora::lib {

static_assert(REMOTE_BUCKETS == BASE_TIMES_BUCKETS);

std::size_t Tally::bucket_of(std::uint64_t ns) {
    return base_times_bucket(ns);
}

std::uint64_t Tally::upper_bound_ns(std::size_t bucket) {
    return base_times_bound_ns(static_cast<u32>(bucket));
}

remote_kind Tally::kind_of(std::uint8_t type) {
    if (rmem_type_reads(type))
        return REMOTE_KIND_READ;
    if (rmem_type_writes(type))
        return REMOTE_KIND_WRITE;
    return rmem_type_is_exactly_once(type) ? REMOTE_KIND_INTEGER : REMOTE_KIND_OTHER;
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
