// SPDX-License-Identifier: GPL-2.0
/*
 * Memoised sums (after MERCI, ASPLOS'21): items that queries often name together form groups of 2
 * to 8. The memo has the sum of each subset of a group that has two members or more, so that a
 * query needs one access for all members that it names.
 *
 *   queries of the past ──> clusters ──> groups, as far as the memo has room ──> entries
 *   a query ──> for each group a mask of its members there ──> entries and single rows
 */
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "apps/dlrm/data.hpp"

namespace remora::dlrm {

inline constexpr unsigned group_items_max = 8;

class Memo {
public:
    // Without entries.
    explicit Memo(std::uint32_t items) : member_(items), groups_(1), mask_(1) {}
    // Learns from the queries of the past; ids are below items.
    Memo(std::uint32_t items, const Queries& past, std::uint32_t entries_max);

    std::uint32_t entries() const { return entries_; }
    // Appends rows and entries (DLRM_MEMO) to words, whose sum is that of the ids: single rows,
    // then those of each group. An id that is there n times counts n times. Not for two threads at
    // once.
    void rewrite(std::span<const std::uint32_t> ids, std::vector<std::uint32_t>& words);
    // Each entry, in the order of their numbers, with the items that it is the sum of.
    void each(const std::function<void(std::span<const std::uint32_t>)>& entry) const;

private:
    static constexpr unsigned member_bits = 3;
    static_assert(1U << member_bits == group_items_max);

    struct Group {
        std::uint32_t entry; // its first one
        std::uint32_t item;  // in items_
        std::uint32_t size;
    };
    void add_group(std::span<const std::uint32_t> items);

    // A group that the query names, and the first id of it.
    struct Touched {
        std::uint32_t group, id;
    };
    std::vector<std::uint32_t> member_; // of each item: group << member_bits | number in it
    std::vector<Group> groups_;         // the first one is empty, for items without a group
    std::vector<std::uint32_t> items_;  // of the groups, one behind the other
    std::uint32_t entries_ = 0;
    std::vector<std::uint8_t> mask_; // of each group, members of the query; else 0
    std::vector<std::uint32_t> members_;
    std::vector<Touched> touched_;
};

} // namespace remora::dlrm
