// SPDX-License-Identifier: MIT
/*
 * A call's pieces as ops:
 *
 *   [small][small][small] [large] [small] [small][small]
 *    one READV or WRITEV   ops_for  READ    one READV
 *
 * Small pieces that follow each other share a message, as many as fit. A large one between them
 * ends the row: pieces that overlap are to be done in their order, which is that of the ops.
 *
 * One that is refused spoils no other, however they travel.
 */
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "remote/remote.h"
#include "src/op.hpp"

namespace remora::lib {

// What ops of many ranges need beside themselves, for as long as they are under way.
struct Ranges {
    Ranges() = default;
    explicit Ranges(std::size_t count) : range(count), wire(count), vec(count) {}

    std::vector<Range> range;
    std::vector<rmem_range> wire; // as messages have them
    std::vector<rmem_io_vec> vec; // as /dev/rmemN has them
};

class Cut {
public:
    // type: READ or WRITE. vector_bytes: Backend's. The pieces must stay.
    Cut(std::uint8_t type, std::span<const rvec> pieces, std::uint32_t vector_bytes);

    // How many of each are wanted below.
    std::size_t ops() const { return ops_; }
    std::size_t ranges() const { return ranges_; }
    void make(std::span<Op> ops, Call& call, Ranges& ranges) const;

private:
    std::size_t together(std::span<const rvec> pieces) const;
    template <typename Fn>
    void for_each_row(Fn fn) const;

    std::uint8_t type_;
    std::span<const rvec> pieces_;
    std::uint32_t vector_bytes_;
    std::size_t ops_ = 0;
    std::size_t ranges_ = 0;
};

// An op of many ranges is about all of them at first.
void begin_ranges(Op& op);
// Its message has ended so. What is wrong with one range has all of a message refused, and nothing
// of it done; then they go one by one, in their order, so that the others are done all the same.
// True: the op is about the next one now. False: it has ended, with error.
bool goes_on(Op& op, int& error);

} // namespace remora::lib
