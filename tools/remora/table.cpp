// SPDX-License-Identifier: GPL-2.0
#include "remora/table.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace remora {

void Table::print() const {
    std::vector<std::size_t> width(rows_.front().size());
    for (const Row& row : rows_) {
        for (std::size_t i = 0; i < row.size(); i++)
            width[i] = std::max(width[i], row[i].size());
    }
    for (const Row& row : rows_) {
        std::string line;
        for (std::size_t i = 0; i + 1 < row.size(); i++)
            line += fmt::format("{:<{}}  ", row[i], width[i]);
        fmt::print("{}{}\n", line, row.back());
    }
}

std::string time_text(std::uint64_t ns) {
    if (!ns)
        return "-";
    if (ns < 1'000'000)
        return fmt::format("{:.1f}us", static_cast<double>(ns) / 1e3);
    return fmt::format("{:.2f}ms", static_cast<double>(ns) / 1e6);
}

} // namespace remora
