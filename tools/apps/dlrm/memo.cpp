// SPDX-License-Identifier: GPL-2.0
#include "apps/dlrm/memo.hpp"

#include <algorithm>
#include <bit>
#include <queue>
#include <utility>

#include "offloads/dlrm/dlrm.h"

namespace remora::dlrm {

namespace {

constexpr std::size_t samples_max = 32; // queries of an item that are looked at
constexpr std::uint32_t together_min = 2;
constexpr double together_share = 0.3; // of the queries of either item

using Cluster = std::vector<std::uint32_t>; // items, those that belong together most first

// The numbers of subsets of two items or more, by their masks, in the order of the masks. A small
// group's subsets come first, so one table serves groups of all sizes.
constexpr auto subset_number = [] {
    std::array<std::uint8_t, 1 << group_items_max> numbers{};
    std::uint8_t next = 0;
    for (unsigned mask = 0; mask < numbers.size(); mask++)
        if (std::popcount(mask) > 1)
            numbers[mask] = next++;
    return numbers;
}();

constexpr std::uint32_t subsets(std::uint32_t size) {
    return (1U << size) - size - 1;
}

// For each item: how often queries name it, and some of these queries.
struct Index {
    Index(std::uint32_t items, const Queries& past) : count(items), begin(items + 1) {
        for (std::size_t n = 0; n < past.size(); n++)
            for (std::uint32_t item : past[n])
                count[item]++;
        for (std::uint32_t item = 0; item < items; item++)
            begin[item + 1] = begin[item] + std::min<std::size_t>(count[item], samples_max);
        query.resize(begin[items]);
        std::vector<std::uint8_t> taken(items);
        for (std::size_t n = 0; n < past.size(); n++)
            for (std::uint32_t item : past[n])
                if (taken[item] < samples_max)
                    query[begin[item] + taken[item]++] = static_cast<std::uint32_t>(n);
    }
    std::span<const std::uint32_t> samples(std::uint32_t item) const {
        return std::span(query).subspan(begin[item], begin[item + 1] - begin[item]);
    }

    std::vector<std::uint32_t> count;
    std::vector<std::size_t> begin;
    std::vector<std::uint32_t> query;
};

// Clusters, each around the most popular item that no earlier one has.
class Clustering {
public:
    Clustering(std::uint32_t items, const Queries& past)
        : past_(past), index_(items, past), taken_(items), together_(items) {
        std::vector<std::uint32_t> order;
        for (std::uint32_t item = 0; item < items; item++)
            if (index_.count[item] >= together_min)
                order.push_back(item);
        std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
            return index_.count[a] > index_.count[b];
        });
        for (std::uint32_t item : order)
            if (!taken_[item])
                add_around(item);
    }

    std::vector<Cluster> clusters;

private:
    struct Companion {
        double score;
        std::uint32_t item;
    };

    void add_around(std::uint32_t item) {
        std::vector<Companion> companions = companions_of(item);
        if (companions.empty())
            return;
        const std::size_t count = std::min<std::size_t>(companions.size(), group_items_max - 1);
        std::ranges::partial_sort(companions, companions.begin() + static_cast<long>(count),
                                  [](const Companion& a, const Companion& b) {
                                      return a.score != b.score ? a.score > b.score
                                                                : a.item < b.item;
                                  });
        Cluster made{item};
        for (std::size_t n = 0; n < count; n++)
            made.push_back(companions[n].item);
        for (std::uint32_t each : made)
            taken_[each] = true;
        clusters.push_back(std::move(made));
    }
    // Free items of the item's queries. The score is the share of the queries of one that have the
    // other, or the other way round, whichever is less: an item that is everywhere is nobody's
    // companion.
    std::vector<Companion> companions_of(std::uint32_t item) {
        const auto samples = index_.samples(item);
        std::vector<std::uint32_t> seen;
        for (std::uint32_t query : samples)
            for (std::uint32_t other : past_[query])
                if (other != item && !taken_[other] && !together_[other]++)
                    seen.push_back(other);
        std::vector<Companion> companions;
        for (std::uint32_t other : seen) {
            const double share = double(together_[other]) / static_cast<double>(samples.size());
            const double score = std::min(share, share * index_.count[item] / index_.count[other]);
            if (together_[other] >= together_min && score >= together_share)
                companions.push_back({score, other});
            together_[other] = 0;
        }
        return companions;
    }

    const Queries& past_;
    const Index index_;
    std::vector<bool> taken_;
    std::vector<std::uint16_t> together_; // with the item that is looked at
};

// How a cluster's items are cut into groups of `size`, the last one smaller.
std::uint32_t cost(std::size_t items, std::size_t size) {
    std::uint32_t sum = 0;
    for (std::size_t at = 0; at < items; at += size)
        sum += subsets(static_cast<std::uint32_t>(std::min(size, items - at)));
    return sum;
}

// By cluster: accesses of the past that groups of each size would have saved.
using Gain = std::array<std::uint32_t, group_items_max + 1>;

std::vector<Gain> gains(std::uint32_t items, const Queries& past,
                        const std::vector<Cluster>& clusters) {
    constexpr std::uint32_t none = UINT32_MAX;
    std::vector<std::uint32_t> member(items, none);
    std::vector<Gain> gain(clusters.size());
    std::vector<std::uint8_t> mask(clusters.size());
    std::vector<std::uint32_t> touched;
    for (std::uint32_t n = 0; n < clusters.size(); n++)
        for (std::uint32_t bit = 0; bit < clusters[n].size(); bit++)
            member[clusters[n][bit]] = n * group_items_max + bit;
    for (std::size_t n = 0; n < past.size(); n++) {
        touched.clear();
        for (std::uint32_t item : past[n]) {
            if (member[item] == none)
                continue;
            const std::uint32_t cluster = member[item] / group_items_max;
            if (!mask[cluster])
                touched.push_back(cluster);
            mask[cluster] |= static_cast<std::uint8_t>(1U << member[item] % group_items_max);
        }
        for (std::uint32_t cluster : touched) {
            const unsigned all = std::exchange(mask[cluster], std::uint8_t{0});
            for (unsigned size = 2; size <= clusters[cluster].size(); size++) {
                unsigned groups = 0;
                for (unsigned at = 0; at < group_items_max; at += size)
                    groups += (all >> at & ((1U << size) - 1)) != 0;
                gain[cluster][size] += static_cast<unsigned>(std::popcount(all)) - groups;
            }
        }
    }
    return gain;
}

// A cluster's next larger groups: the accesses saved for each entry that they need.
struct Step {
    double worth;
    std::uint32_t cluster, size;
    bool operator<(const Step& other) const { return worth < other.worth; }
};

class Plan {
public:
    Plan(std::uint32_t items, const Queries& past, const std::vector<Cluster>& clusters,
         std::uint32_t entries_max)
        : size(clusters.size(), 1), clusters_(clusters), gain_(gains(items, past, clusters)) {
        std::priority_queue<Step> steps;
        for (std::uint32_t n = 0; n < clusters.size(); n++)
            offer(steps, n);
        std::uint32_t left = entries_max;
        while (!steps.empty()) {
            const Step step = steps.top();
            steps.pop();
            const std::size_t items_of = clusters[step.cluster].size();
            const std::uint32_t more =
                cost(items_of, step.size) - cost(items_of, size[step.cluster]);
            if (more > left)
                continue;
            left -= more;
            size[step.cluster] = step.size;
            offer(steps, step.cluster);
        }
    }

    std::vector<std::uint32_t> size; // of the cluster's groups; 1: it has none

private:
    void offer(std::priority_queue<Step>& steps, std::uint32_t cluster) const {
        const std::size_t items = clusters_[cluster].size();
        const std::uint32_t now = size[cluster];
        Step best{0, cluster, 0};
        for (std::uint32_t next = now + 1; next <= items; next++) {
            const double more = gain_[cluster][next] - double(gain_[cluster][now]);
            const double entries = double(cost(items, next)) - cost(items, now);
            if (more > 0 && entries > 0 && more / entries > best.worth)
                best = {more / entries, cluster, next};
        }
        if (best.size)
            steps.push(best);
    }

    const std::vector<Cluster>& clusters_;
    const std::vector<Gain> gain_;
};

} // namespace

Memo::Memo(std::uint32_t items, const Queries& past, std::uint32_t entries_max) : Memo(items) {
    const Clustering clustering(items, past);
    const Plan plan(items, past, clustering.clusters, entries_max);
    for (std::size_t n = 0; n < clustering.clusters.size(); n++) {
        const std::span<const std::uint32_t> cluster = clustering.clusters[n];
        for (std::size_t at = 0; at + 1 < cluster.size() && plan.size[n] > 1; at += plan.size[n])
            add_group(
                cluster.subspan(at, std::min<std::size_t>(plan.size[n], cluster.size() - at)));
    }
    mask_.resize(groups_.size());
}

void Memo::add_group(std::span<const std::uint32_t> items) {
    const auto group = static_cast<std::uint32_t>(groups_.size());
    const auto size = static_cast<std::uint32_t>(items.size());
    groups_.push_back({entries_, static_cast<std::uint32_t>(items_.size()), size});
    for (std::uint32_t n = 0; n < size; n++)
        member_[items[n]] = group << member_bits | n;
    items_.insert(items_.end(), items.begin(), items.end());
    entries_ += subsets(size);
}

// Almost without branches, which can't be foretold here: a cell is written in any case, and kept if
// it counts. The members are looked up first, so that their cache misses overlap.
void Memo::rewrite(std::span<const std::uint32_t> ids, std::vector<std::uint32_t>& words) {
    const std::size_t first = words.size();
    words.resize(first + ids.size());
    members_.resize(ids.size());
    touched_.resize(ids.size());
    for (std::size_t n = 0; n < ids.size(); n++)
        members_[n] = member_[ids[n]];
    std::uint32_t* word = words.data() + first;
    std::size_t touched = 0;
    for (std::size_t n = 0; n < ids.size(); n++) {
        const std::uint32_t group = members_[n] >> member_bits;
        const unsigned bit = 1U << (members_[n] % group_items_max), mask = mask_[group];
        *word = ids[n];
        word += unsigned{group == 0} | unsigned{(mask & bit) != 0};
        touched_[touched] = {group, ids[n]};
        touched += unsigned{group != 0} & unsigned{mask == 0};
        mask_[group] = static_cast<std::uint8_t>(mask | bit);
    }
    for (const Touched& each : std::span(touched_).first(touched)) {
        const unsigned mask = std::exchange(mask_[each.group], std::uint8_t{0});
        const std::uint32_t entry = DLRM_MEMO | (groups_[each.group].entry + subset_number[mask]);
        *word++ = std::has_single_bit(mask) ? each.id : entry;
    }
    words.resize(static_cast<std::size_t>(word - words.data()));
}

void Memo::each(const std::function<void(std::span<const std::uint32_t>)>& entry) const {
    std::vector<std::uint32_t> items;
    for (const Group& group : groups_) {
        for (unsigned mask = 0; mask < 1U << group.size; mask++) {
            if (std::popcount(mask) < 2)
                continue;
            items.clear();
            for (unsigned n = 0; n < group.size; n++)
                if (mask >> n & 1)
                    items.push_back(items_[group.item + n]);
            entry(items);
        }
    }
}

} // namespace remora::dlrm
