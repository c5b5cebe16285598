// SPDX-License-Identifier: MIT
/*
 * Which ops wait for which (Clio, ASPLOS'22, section 4.5): of two that overlap, one of them a
 * change, the later one waits until the earlier one has ended, retries included (RAW, WAR, WAW).
 *
 * Clio tells by pages. Here it's told by bytes, so that neighbours never wait for each other. No
 * READ or WRITE is longer than a block of 256 KiB; so those that overlap one begin in its own
 * blocks or the one before, and are found there. FREE may be longer, and is compared with all.
 *
 * A PUT is about two ranges, its data (with what its call writes before) and its integer. Each has
 * a place of its own, and it is pairs of ranges that are compared and counted: enter() counts those
 * an op must wait for; leave() discounts the same ones from those that came after it.
 * Not synchronised: the caller holds a lock.
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

    // op's from, end (and signal_from, signal_end, or 0) and core.type are set. True: it may begin.
    bool enter(Op& op);
    // The op has ended. Those that may begin now, linked by core.next.
    rmem_op* leave(Op& op);
    // It has entered, and hasn't left.
    static bool has(const Op& op) { return op.all.next != &op.all; }

    // By number, as they entered: the last one; the first that hasn't left, or the next to come.
    std::uint64_t last() const { return last_; }
    std::uint64_t first_left() const { return all_.next->op ? all_.next->op->number : last_ + 1; }

private:
    static constexpr unsigned block_shift = 18;
    static constexpr unsigned bucket_bits = 10;
    static_assert(RMEM_OP_BYTES_MAX <= 1U << block_shift);

    static bool is_wide(const Link& at) { return (at.end - at.from) > 1U << block_shift; }
    static std::size_t bucket(std::uint64_t block) {
        return block * 0x9e37'79b9'7f4a'7c15ULL >> (64 - bucket_bits);
    }
    template <typename Fn>
    void for_each_rival(const Link& at, Fn fn);
    void enter_range(Op& op, Link& at, std::uint64_t from, std::uint64_t end);
    void leave_range(const Op& op, const Link& at, rmem_op*& free);

    Link all_; // by number
    Link wide_;
    std::array<Link, 1U << bucket_bits> near_; // by the block a range begins in
    std::uint64_t last_ = 0;
};

} // namespace remora::lib
