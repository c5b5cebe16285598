// SPDX-License-Identifier: GPL-2.0
#include "apps/dlrm/data.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace remora::dlrm {

namespace {

constexpr double skew = 0.9;
constexpr double length_mean = 40, length_sigma = 0.6;
constexpr double single_share = 0.3; // draws of a single item, which has no companions
constexpr double member_share = 0.6; // of a cluster's members that a draw takes
constexpr std::uint32_t cluster_min = 2, cluster_max = 8;

} // namespace

Data::Data(std::uint32_t items, std::uint64_t seed) : items_(items), random_(seed) {
    std::iota(items_.begin(), items_.end(), 0);
    std::shuffle(items_.begin(), items_.end(), random_);
    for (std::uint32_t at = 0; at < items;) {
        cluster_.push_back(at);
        at += std::uniform_int_distribution(cluster_min, cluster_max)(random_);
    }
    cluster_.push_back(items);
}

// From 0, by a power law: Zipf's, whose sum is replaced by an integral.
std::uint64_t Data::rank(std::uint64_t count) {
    const double most = std::pow(static_cast<double>(count) + 1, 1 - skew);
    const double u = std::uniform_real_distribution<>()(random_);
    const double at = std::pow(1 + u * (most - 1), 1 / (1 - skew));
    return std::min(static_cast<std::uint64_t>(at) - 1, count - 1);
}

void Data::draw(std::vector<std::uint32_t>& query, std::size_t length) {
    auto take = [&](std::uint32_t at) {
        const std::uint32_t item = items_[at];
        if (query.size() < length && std::ranges::find(query, item) == query.end())
            query.push_back(item);
    };
    std::uniform_real_distribution<> share;
    if (share(random_) < single_share)
        return take(static_cast<std::uint32_t>(rank(items_.size())));
    const std::uint64_t which = rank(cluster_.size() - 1);
    for (std::uint32_t at = cluster_[which]; at < cluster_[which + 1]; at++)
        if (share(random_) < member_share)
            take(at);
}

Queries Data::queries(std::size_t count) {
    const double median = std::log(length_mean) - length_sigma * length_sigma / 2;
    std::lognormal_distribution<> lengths(median, length_sigma);
    Queries made;
    std::vector<std::uint32_t> query;
    for (std::size_t n = 0; n < count; n++) {
        // A quarter of the items at most, or few items could not fill a long query.
        const double length_of_chance = std::clamp(lengths(random_), 1.0, double{length_max});
        const std::size_t length = std::clamp<std::size_t>(
            static_cast<std::size_t>(length_of_chance), 1, items_.size() / 4);
        query.clear();
        while (query.size() < length)
            draw(query, length);
        made.add(query);
    }
    return made;
}

std::int8_t Data::number(std::uint32_t item, unsigned column) {
    std::uint64_t mixed = (std::uint64_t{item} * 64 + column + 1) * 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
    return static_cast<std::int8_t>(mixed >> 56);
}

} // namespace remora::dlrm
