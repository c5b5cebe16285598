// SPDX-License-Identifier: MIT
/*
 * Counts of ended operations: remote_stats(). The probes (probes.hpp) show their durations.
 *
 * Not synchronised: the caller holds a lock.
 */
#pragma once

#include <array>
#include <cstdint>

#include "remote/remote.h"
#include "src/op.hpp"

namespace remora::lib {

class Tally {
public:
    void count(Kind op, std::uint64_t bytes, int result) {
        remote_kind_stats& kind = kinds_[kind_of(op)];
        (result ? kind.failed : kind.done)++;
        kind.bytes += result ? 0 : bytes;
    }
    void add_to(remote_counters& counters) const;

private:
    static remote_kind kind_of(Kind op);

    std::array<remote_kind_stats, REMOTE_KINDS> kinds_{};
};

} // namespace remora::lib
