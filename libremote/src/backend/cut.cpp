// SPDX-License-Identifier: MIT
#include "src/backend/cut.hpp"

#include <algorithm>
#include <cerrno>

namespace remora::lib {

namespace {

// Does the error concern one range, or a message with it? Any other error ends the whole op.
bool is_refusal(int error) {
    return error == -EFAULT || error == -EACCES || error == -EINVAL;
}

} // namespace

void make_vector(Op& op, Kind kind, std::span<const remote_vec> pieces, Ranges& ranges,
                 std::size_t first) {
    op.kind = kind == Kind::read ? Kind::readv : Kind::writev;
    op.address = 0;
    op.bytes = 0;
    op.range_room = &ranges.room[first];
    op.ranges = std::span(ranges.range).subspan(first, pieces.size());
    for (std::size_t i = first; const remote_vec& piece : pieces) {
        Range& range = ranges.range[i++];
        range.address = piece.address;
        range.data = static_cast<std::uint8_t*>(piece.buffer);
        range.bytes = static_cast<std::uint32_t>(piece.bytes);
        op.bytes += range.bytes;
    }
}

void begin_ranges(Op& op) {
    op.now = op.ranges;
    op.refused = 0;
}

bool retry_next_range(Op& op, int& error) {
    bool together = op.now.size() == op.ranges.size();
    for (Range& range : op.now)
        range.result = error;
    if (!together && error && !is_refusal(error))
        end_ranges(op, error);
    if (together ? !is_refusal(error) : error && !is_refusal(error))
        return false;
    if (!together && !op.refused)
        op.refused = error;
    std::size_t next = together ? 0 : static_cast<std::size_t>(&op.now.back() - &op.ranges[0]) + 1;
    if (next == op.ranges.size()) {
        error = op.refused;
        op.bytes = 0;
        for (const Range& range : op.ranges)
            op.bytes += range.bytes;
        return false;
    }
    op.now = op.ranges.subspan(next, 1);
    op.bytes = op.now.front().bytes;
    return true;
}

void end_ranges(Op& op, int error) {
    auto from = static_cast<std::size_t>(&op.now.front() - op.ranges.data());
    for (Range& range : op.ranges.subspan(from))
        range.result = error;
}

std::size_t together(Kind kind, std::span<const remote_vec> pieces, std::uint32_t vector_bytes) {
    std::size_t count = 0;
    std::size_t data_bytes = 0;
    for (const remote_vec& piece : pieces.first(std::min(pieces.size(), ranges_max))) {
        if (piece.bytes > small_bytes)
            break;
        data_bytes += piece.bytes;
        std::size_t ranges_bytes = (count + 1) * range_bytes;
        if ((kind == Kind::write ? data_bytes + ranges_bytes : std::max(data_bytes, ranges_bytes)) >
            vector_bytes)
            break;
        count++;
    }
    return count;
}

// Calls fn for each group of pieces: several make one op; a single one makes as many as it needs.
template <typename Fn>
void Cut::for_each_row(Fn fn) const {
    for (std::span<const remote_vec> left = pieces_; !left.empty();) {
        std::size_t count = std::max<std::size_t>(together(kind_, left, vector_bytes_), 1);
        fn(left.first(count));
        left = left.subspan(count);
    }
}

Cut::Cut(Kind kind, std::span<const remote_vec> pieces, std::uint32_t vector_bytes)
    : kind_(kind), pieces_(pieces), vector_bytes_(vector_bytes) {
    for_each_row([this](std::span<const remote_vec> row) {
        bool many = row.size() > 1;
        ops_ += many ? 1 : ops_for(row.front().bytes);
        ranges_ += many ? row.size() : 0;
    });
}

void Cut::make(std::span<Op> ops, Call& call, Ranges& ranges) const {
    std::size_t taken = 0;
    for_each_row([&](std::span<const remote_vec> row) {
        if (row.size() > 1) {
            ops.front().call = &call;
            make_vector(ops.front(), kind_, row, ranges, taken);
            ops = ops.subspan(1);
            taken += row.size();
            return;
        }
        const remote_vec& piece = row.front();
        auto* data = static_cast<std::uint8_t*>(piece.buffer);
        ops = ops.subspan(cut(ops, call, kind_, piece.address, data, piece.bytes).size());
    });
}

} // namespace remora::lib
