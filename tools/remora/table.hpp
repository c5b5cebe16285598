// SPDX-License-Identifier: GPL-2.0
// A table whose columns are as wide as their text, two spaces apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace remora {

class Table {
public:
    using Row = std::vector<std::string>;

    explicit Table(Row header) : rows_{std::move(header)} {}
    void add(Row row) { rows_.push_back(std::move(row)); }
    void print() const;

private:
    std::vector<Row> rows_;
};

// 0: "-".
std::string time_text(std::uint64_t ns);

} // namespace remora
