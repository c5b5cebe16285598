// SPDX-License-Identifier: GPL-2.0
// A model of persistent memory, which keeps any part of the writes that weren't made durable.
//
// A write is a row of stores of up to 8 aligned bytes. Each line of 64 bytes has the
// versions that its stores made since it was last durable; persist() marks the version of now, and
// drain() makes marked versions durable. A power cut keeps one version of each line, any of them:
// the cache can write a line back at any time. The death of a process keeps all stores, but those
// that weren't durable can still be lost by a later power cut.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

extern "C" {
#include "offloads/tx/log.h"
}

namespace persistent {

inline constexpr std::size_t line_bytes = TX_LINE_BYTES;
inline constexpr int no_point = -1;

struct Crash {};

using Line = std::array<std::uint8_t, line_bytes>;

class Persistent {
public:
    explicit Persistent(std::vector<std::uint8_t> bytes)
        : now_(bytes), durable_(std::move(bytes)) {}

    // Throws Crash before the event with this number; 0: none. Events are the stores, persists and
    // drains that change anything.
    std::uint64_t crash_at = 0;
    // A point that does nothing: a fault to be found.
    int left_out = no_point;
    std::uint64_t events = 0;

    void read(u64 at, void* to, u32 bytes) const { std::memcpy(to, &now_[at], bytes); }
    void write(u64 at, const void* from, u32 bytes) {
        const auto* data = static_cast<const std::uint8_t*>(from);
        while (bytes) {
            const u32 piece = std::min<u32>(bytes, 8 - at % 8);
            if (std::memcmp(&now_[at], data, piece) != 0) {
                event();
                std::memcpy(&now_[at], data, piece);
                dirty_[at / line_bytes].versions.push_back(line_of(now_, at / line_bytes));
            }
            at += piece;
            data += piece;
            bytes -= piece;
        }
    }
    void persist(tx_log_point point, u64 at, u64 bytes) {
        if (point == left_out)
            return;
        event();
        auto each = dirty_.lower_bound(at / line_bytes);
        for (; each != dirty_.end() && each->first * line_bytes < at + bytes; ++each)
            each->second.marked = each->second.versions.size();
    }
    void drain(tx_log_point point) {
        if (point == left_out)
            return;
        event();
        for (auto each = dirty_.begin(); each != dirty_.end();) {
            Dirty& dirty = each->second;
            if (dirty.marked) {
                put(durable_, each->first, dirty.versions[dirty.marked - 1]);
                dirty.versions.erase(dirty.versions.begin(),
                                     dirty.versions.begin() + std::ptrdiff_t(dirty.marked));
                dirty.marked = 0;
            }
            each = dirty.versions.empty() ? dirty_.erase(each) : std::next(each);
        }
    }

    // In how many ways a crash of now can end; limited to `most`.
    std::uint64_t outcomes(std::uint64_t most) const {
        std::uint64_t ways = 1;
        for (const auto& [line, dirty] : dirty_)
            ways = std::min(most, ways * (dirty.versions.size() + 1));
        return ways;
    }
    // The memory after a crash of now. choose(n) gives a number below n for each line: 0 is its
    // durable version.
    template <typename Choose>
    Persistent after_crash(Choose choose) const {
        Persistent after(durable_);
        for (const auto& [line, dirty] : dirty_) {
            if (std::size_t which = choose(dirty.versions.size() + 1))
                put(after.durable_, line, dirty.versions[which - 1]);
        }
        after.now_ = after.durable_;
        after.left_out = left_out;
        return after;
    }
    // The process dies, the caches survive. Its marks are lost: it didn't come to the drain.
    Persistent after_death() const {
        Persistent after = *this;
        for (auto& [line, dirty] : after.dirty_)
            dirty.marked = 0;
        after.crash_at = 0;
        after.events = 0;
        return after;
    }
    void damage(u64 at) { now_[at] ^= 1; }

private:
    struct Dirty {
        std::vector<Line> versions; // since the durable one
        std::size_t marked = 0; // the version, counted from 1, that the next drain makes durable
    };
    void event() {
        if (++events == crash_at)
            throw Crash();
    }
    static Line line_of(const std::vector<std::uint8_t>& bytes, u64 line) {
        Line copy;
        std::memcpy(copy.data(), &bytes[line * line_bytes], line_bytes);
        return copy;
    }
    static void put(std::vector<std::uint8_t>& bytes, u64 line, const Line& version) {
        std::memcpy(&bytes[line * line_bytes], version.data(), line_bytes);
    }

    std::vector<std::uint8_t> now_, durable_;
    std::map<u64, Dirty> dirty_;
};

} // namespace persistent
