// SPDX-License-Identifier: GPL-2.0
// A synthetic data set: the items that people looked at together, as queries of a recommendation
// model name them. Clusters of 2 to 8 items, of which queries often have several, are planted in
// it.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace remora::dlrm {

// Many queries: the ids of each, in any order.
class Queries {
public:
    std::size_t size() const { return begin_.size() - 1; }
    std::span<const std::uint32_t> operator[](std::size_t n) const {
        return std::span(ids_).subspan(begin_[n], begin_[n + 1] - begin_[n]);
    }
    void add(std::span<const std::uint32_t> ids) {
        ids_.insert(ids_.end(), ids.begin(), ids.end());
        begin_.push_back(ids_.size());
    }

private:
    std::vector<std::uint32_t> ids_;
    std::vector<std::size_t> begin_{0};
};

class Data {
public:
    // items: 8 to 2^31 - 1. The same items and seed give the same data.
    Data(std::uint32_t items, std::uint64_t seed);

    // Lengths are lognormal with a mean of 40, from 1 to length_max; no id is there twice.
    Queries queries(std::size_t count);
    // Rows: numbers from -128 to 127. Queries' sums are exact as floats, too.
    static std::int8_t number(std::uint32_t item, unsigned column);

    static constexpr std::size_t length_max = 400;

private:
    std::uint64_t rank(std::uint64_t count);
    void draw(std::vector<std::uint32_t>& query, std::size_t length);

    std::vector<std::uint32_t> items_;   // by popularity; a cluster's are neighbours
    std::vector<std::uint32_t> cluster_; // where each begins in items_, and the end
    std::mt19937_64 random_;
};

} // namespace remora::dlrm
