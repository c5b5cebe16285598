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

namespace remora::lib {

class Tally {
public:
    void count(std::uint8_t type, std::uint64_t bytes, int result) {
        remote_kind_stats& kind = kinds_[kind_of(type)];
        (result ? kind.failed : kind.done)++;
        kind.bytes += result ? 0 : bytes;
    }
    void add_to(remote_counters& counters) const;

private:
    static remote_kind kind_of(std::uint8_t type);

    std::array<remote_kind_stats, REMOTE_KINDS> kinds_{};
};

} // namespace remora::lib
