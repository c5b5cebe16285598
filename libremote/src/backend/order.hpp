// SPDX-License-Identifier: MIT
/*
 * Decides which ops wait for which (Clio, ASPLOS'22, section 4.5): of two ops that overlap, one of
 * them a change, the later one waits until the earlier one has ended, retries included (RAW, WAR,
 * WAW).
 *
 * Clio compares pages. This class compares bytes, so that neighbours never wait for each other. No
 * read or write is longer than a block of 256 KiB. Ranges that overlap it therefore begin in its
 * own blocks or in the one before, and are found there. Ranges of at most 1 KiB have blocks of that
 * size, for there can be thousands. A free can be longer, and is compared with all.
 *
 * A put has two ranges, its data (with the data that its call writes before) and its integer. A
 * copy has two, its destination and its source, which it only reads. A readv or writev has many.
 * Each range has its own place, and pairs of ranges are compared and counted: enter() counts the
 * ranges that an op must wait for, and leave() subtracts the same ones from later ops. Ranges of
 * one op don't wait for each other. A barrier waits for all earlier ops; its second range can be
 * one that later ops wait for. An op that its program
 * calls unordered has no places. No barrier waits for one that is aside. Not synchronised: the
 * caller holds a lock.
 */
#pragma once

#include <array>
#include <cstddef>

#include "src/op.hpp"

namespace remora::lib {

class Order {
public:
    Order() = default;
    Order(const Order&) = delete;
    Order& operator=(const Order&) = delete;

    // One more reason to wait, until the caller subtracts it.
    static void hold(Op& op) { op.blockers++; }
    // The caller has set op's from, end (and second_from, second_end, or 0), or ranges, and
    // kind. True: the op can begin.
    bool enter(Op& op);
    // The op has ended. Returns the ops that can begin now, linked by Op::next.
    Op* leave(Op& op);
    // Has the op entered and not left?
    static bool has(const Op& op) { return op.all.next != &op.all; }

    // By number, as they entered: the last one; the first that hasn't left, or the next to come,
    // without those that are aside.
    std::uint64_t last() const { return last_; }
    std::uint64_t first_left() const { return all_.next->op ? all_.next->op->number : last_ + 1; }

private:
    // Ranges no longer than a block, by the one they begin in.
    struct Blocks {
        static constexpr unsigned bucket_bits = 10;

        explicit Blocks(unsigned block_shift) : shift(block_shift) {}
        Link& ring(std::uint64_t block) {
            return ring_[block * 0x9e37'79b9'7f4a'7c15ULL >> (64 - bucket_bits)];
        }

        const unsigned shift;
        std::size_t ranges = 0;

    private:
        std::array<Link, 1U << bucket_bits> ring_;
    };
    static constexpr unsigned long_shift = 18, short_shift = 10;
    static_assert(op_bytes_max <= 1U << long_shift);

    // NULL: the range is longer than any block.
    Blocks* blocks_of(const Link& at);
    template <typename Fn>
    static void look(Blocks& blocks, const Link& at, Fn compare);
    template <typename Fn>
    void for_each_rival(const Link& at, Fn fn);
    template <typename Fn>
    static void for_each_place(Op& op, Fn fn);
    void enter_range(Op& op, Link& at, std::uint64_t from, std::uint64_t end);
    void remove_range(Link& at);
    void leave_range(const Op& op, const Link& at, Op*& free);

    Link all_; // by number
    Link aside_;
    Link barriers_; // of waiting barriers, by number: their near, which has no range
    Link wide_;
    std::size_t in_flight_ = 0;
    Blocks long_{long_shift}, short_{short_shift};
    std::uint64_t last_ = 0;
};

} // namespace remora::lib
