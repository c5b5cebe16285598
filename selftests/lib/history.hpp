// SPDX-License-Identifier: GPL-2.0
/*
 * Is what threads saw of one integer what they could have seen, had each operation happened at one
 * moment between its begin and its end (linearizability)?
 *
 * The search is Wing and Gong's, with Lowe's memory of what was tried: one operation after the
 * other is put next that had begun before all left over ended, if it finds what it should.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace remora::test {

struct Event {
    enum Kind { read, write, add, cas };

    Kind kind;
    std::uint64_t value = 0;         // write, add, cas: the new one
    std::uint64_t compare = 0;       // cas
    std::uint64_t found = 0;         // read, add, cas: what was there
    std::int64_t begin = 0, end = 0; // of one clock
    bool known = true;               // else it happened at any time after begin, or never
};

// 128 events at most.
bool is_linearizable(const std::vector<Event>& events, std::uint64_t initial);

inline std::int64_t history_now() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

} // namespace remora::test
