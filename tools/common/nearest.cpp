// SPDX-License-Identifier: GPL-2.0
#include "common/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace remora {

namespace {

// Letters to change, add or drop.
std::size_t distance(const std::string& from, const std::string& to) {
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), 0u);
    for (std::size_t i = 0; i < from.size(); i++) {
        std::size_t diagonal = row[0]++;
        for (std::size_t j = 0; j < to.size(); j++)
            diagonal = std::exchange(
                row[j + 1], std::min({row[j] + 1, row[j + 1] + 1, diagonal + (from[i] != to[j])}));
    }
    return row.back();
}

} // namespace

std::string nearest(const std::string& word, const std::vector<std::string>& known) {
    auto far = [&](const std::string& name) { return distance(word, name); };
    auto found = std::ranges::min_element(known, {}, far);
    if (found == known.end() || far(*found) > std::max<std::size_t>(1, word.size() / 3))
        return {};
    return *found;
}

} // namespace remora
