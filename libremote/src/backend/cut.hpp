// SPDX-License-Identifier: MIT
/*
 * A call's pieces as ops:
 *
 *   [small][small][small] [large] [small] [small][small]
 *    one readv or writev   ops_for  read    one readv
 *
 * Adjacent small pieces share a message, as many as fit. A large one between them ends the row:
 * overlapping pieces must be executed in their order, which is that of the ops.
 *
 * A refused piece doesn't affect the others, however they travel.
 */
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "remote/remote.h"
#include "src/op.hpp"

namespace remora::lib {

// Memory that ops of many ranges need while they are in flight.
struct Ranges {
    Ranges() = default;
    explicit Ranges(std::size_t count) : range(count), room(count) {}

    std::vector<Range> range;
    std::vector<RangeRoom> room;
};

// Largest piece that shares a message. A message with any content costs the node some hundred
// nanoseconds. The sender copies data of a shared message once more, which takes as long for more
// bytes. With an MTU of 1500 no second piece of that size fits into a packet.
inline constexpr std::size_t small_bytes = 1024;
// A range's bytes in a message, beside its data.
inline constexpr std::size_t range_bytes = 16;

// Number of the first pieces that share a message; 0: the first piece is too large to share.
std::size_t together(Kind kind, std::span<const remote_vec> pieces, std::uint32_t vector_bytes);
// Sets the op to these pieces, as the ranges from first on.
void make_vector(Op& op, Kind kind, std::span<const remote_vec> pieces, Ranges& ranges,
                 std::size_t first);

class Cut {
public:
    // kind: read or write. vector_bytes: Backend's. The pieces must stay.
    Cut(Kind kind, std::span<const remote_vec> pieces, std::uint32_t vector_bytes);

    // Sizes of the arrays for make().
    std::size_t ops() const { return ops_; }
    std::size_t ranges() const { return ranges_; }
    void make(std::span<Op> ops, Call& call, Ranges& ranges) const;

private:
    template <typename Fn>
    void for_each_row(Fn fn) const;

    Kind kind_;
    std::span<const remote_vec> pieces_;
    std::uint32_t vector_bytes_;
    std::size_t ops_ = 0;
    std::size_t ranges_ = 0;
};

// Sets an op of many ranges to all of them, for its first message.
void begin_ranges(Op& op);
// The op's message ended with error. An error in one range refuses the whole message; then the
// ranges go one by one, in their order, so that the others are executed all the same. True: the op
// is set to the next range. False: the op has ended with error. Sets the ranges' results.
bool retry_next_range(Op& op, int& error);
// The op ends with error, and so do the ranges that it is set to and those behind them.
void end_ranges(Op& op, int error);

} // namespace remora::lib
