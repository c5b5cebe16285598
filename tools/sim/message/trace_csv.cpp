// SPDX-License-Identifier: GPL-2.0
#include "sim/message/trace_csv.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

#include "support/failure.hpp"

namespace sim {

using remora::Failure;

namespace {

constexpr std::int64_t type_read = 1, type_write = 3, type_other = 100;
constexpr std::size_t columns = 7;

using Columns = std::array<std::int64_t, columns>;

bool split(const std::string& line, Columns& values) {
    const char* at = line.data();
    const char* const end = at + line.size();
    for (std::size_t i = 0; i < columns; i++) {
        auto [next, error] = std::from_chars(at, end, values[i]);
        if (error != std::errc() || (i + 1 < columns ? next == end || *next != ',' : next != end))
            return false;
        at = next + 1;
    }
    return true;
}

// A line's message, or false for other traffic.
bool message_of(const Columns& values, std::uint32_t hosts, const std::string& where,
                TraceLine& line) {
    const auto& [id, type, src, dst, bytes, read_bytes, slot] = values;
    if (type == type_other)
        return false;
    const std::int64_t size = type == type_read ? read_bytes : bytes;
    if (type != type_read && type != type_write)
        throw Failure("{}: type {} is none of 1, 3, 100", where, type);
    if (src < 0 || dst < 0 || src >= hosts || dst >= hosts || src == dst)
        throw Failure("{}: hosts {} and {} are not two of {}", where, src, dst, hosts);
    if (size < 1 || size > 1 << 30 || slot < 0)
        throw Failure("{}: a message of {} bytes in slot {} is not possible", where, size, slot);
    line = {static_cast<Time>(slot) * trace_slot, static_cast<std::uint32_t>(size),
            static_cast<std::uint32_t>(id),       static_cast<std::uint16_t>(src),
            static_cast<std::uint16_t>(dst),      type == type_read};
    return true;
}

} // namespace

std::vector<TraceLine> read_trace_csv(const std::string& file, std::uint32_t hosts) {
    std::ifstream in(file);
    if (!in)
        throw Failure("{}: {}", file, std::strerror(errno));
    std::vector<TraceLine> trace;
    std::string text;
    for (std::size_t number = 1; std::getline(in, text); number++) {
        const std::string where = file + ":" + std::to_string(number);
        Columns values;
        TraceLine line;
        if (!text.empty() && text.back() == '\r')
            text.pop_back();
        if (number == 1 && text.rfind("id,", 0) == 0)
            continue;
        if (!split(text, values))
            throw Failure("{}: wants id,type,src,dst,bytes,read_bytes,slot", where);
        if (message_of(values, hosts, where, line))
            trace.push_back(line);
    }
    if (trace.empty())
        throw Failure("{}: has no messages", file);
    std::stable_sort(trace.begin(), trace.end(),
                     [](const auto& a, const auto& b) { return a.issued < b.issued; });
    return trace;
}

} // namespace sim
