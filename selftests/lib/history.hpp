// SPDX-License-Identifier: GPL-2.0
/*
 * Is what threads saw of a register what they could have seen, had each operation happened at one
 * moment between its begin and its end (linearizability)?
 *
 * The search is Wing and Gong's, with Lowe's memory of what was tried: one operation after the
 * other is put next that had begun before all left over ended, if it finds what it should.
 *
 * One that was given up has happened, or not (remote.h): if so, after its begin; before all that
 * its handle began later; and before all that anybody began after one of those had succeeded.
 */
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

namespace remora::test {

// An operation on an integer.
struct Event {
    enum Kind { read, write, add, cas, nothing }; // nothing: it concerned another integer

    Kind kind;
    std::uint64_t value = 0;         // write, add, cas: the operand
    std::uint64_t compare = 0;       // cas
    std::uint64_t found = 0;         // read, add, cas: the value found
    std::int64_t begin = 0, end = 0; // times of one clock
    bool known = true;               // false: cancelled or timed out
    int handle = -1;                 // the handle; -1: a handle that started nothing else
};

constexpr std::size_t words_max = 8;
using Words = std::array<std::uint64_t, words_max>;

// An operation that reads or writes several words at once.
struct WordsEvent {
    bool is_write = false;
    std::size_t first = 0, count = 0;
    Words value{}; // values written or found
    std::int64_t begin = 0, end = 0;
    bool known = true;
    int handle = -1;
};

// 128 events at most.
bool is_linearizable(const std::vector<Event>& events, std::uint64_t initial);
bool is_linearizable(const std::vector<WordsEvent>& events, const Words& initial);

inline std::int64_t history_now() {
    return std::chrono::steady_clock::now().time_since_epoch().count();
}

} // namespace remora::test
