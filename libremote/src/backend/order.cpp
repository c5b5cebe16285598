// SPDX-License-Identifier: MIT
#include "src/backend/order.hpp"

namespace remora::lib {

namespace {

// Does the op only read this range?
bool reads(const Op& op, const Link& at) {
    return has_trait(op.kind, trait::reads) || (op.kind == Kind::copy && &at == &op.near_second);
}

bool rivals(const Link& a, const Link& b) {
    return a.from < b.end && b.from < a.end && a.op != b.op && !(a.is_read && b.is_read);
}

// One op less that the other one waits for.
void count_down(Op& other, Op*& free) {
    if (--other.blockers)
        return;
    other.next = free;
    free = &other;
}

} // namespace

// Calls fn for the places of an op's ranges.
template <typename Fn>
void Order::for_each_place(Op& op, Fn fn) {
    if (op.ranges.empty()) {
        fn(op.near);
        fn(op.near_second);
        return;
    }
    for (Range& range : op.ranges)
        fn(range.near);
}

Order::Blocks* Order::blocks_of(const Link& at) {
    std::uint64_t bytes = at.end - at.from;
    if (bytes <= 1U << short_shift)
        return &short_;
    return bytes <= 1U << long_shift ? &long_ : nullptr;
}

// Blocks can share a ring, so skip ranges of other blocks.
template <typename Fn>
void Order::look(Blocks& blocks, const Link& at, Fn compare) {
    if (!blocks.ranges)
        return;
    std::uint64_t behind = ((at.end - 1) >> blocks.shift) + 1;
    for (std::uint64_t block = (at.from >> blocks.shift) - 1; block != behind; block++) {
        Link& head = blocks.ring(block);
        for (Link* link = head.next; link != &head; link = link->next) {
            if (link->from >> blocks.shift == block)
                compare(*link);
        }
    }
}

// Calls fn for the op of each range in flight that conflicts with at.
template <typename Fn>
void Order::for_each_rival(const Link& at, Fn fn) {
    auto compare = [&](const Link& other) {
        if (rivals(other, at))
            fn(*other.op);
    };
    if (!blocks_of(at)) {
        for (Link* link = all_.next; link != &all_; link = link->next)
            for_each_place(*link->op, compare);
        return;
    }
    for (Link* link = wide_.next; link != &wide_; link = link->next)
        compare(*link);
    look(long_, at, compare);
    look(short_, at, compare);
}

// An empty range is in no ring.
void Order::enter_range(Op& op, Link& at, std::uint64_t from, std::uint64_t end) {
    at.op = &op;
    at.from = from;
    at.end = end;
    at.is_read = reads(op, at);
    if (from == end)
        return;
    for_each_rival(at, [&](const Op&) { op.blockers++; });
    Blocks* blocks = blocks_of(at);
    at.add_before(blocks ? blocks->ring(from >> blocks->shift) : wide_);
    if (blocks)
        blocks->ranges++;
}

void Order::remove_range(Link& at) {
    if (at.from == at.end)
        return;
    at.remove();
    if (Blocks* blocks = blocks_of(at))
        blocks->ranges--;
}

bool Order::enter(Op& op) {
    op.number = ++last_;
    op.blockers = 0;
    const std::uint64_t ordered = op.is_unordered ? 0 : ~std::uint64_t{0}; // empty ranges are at 0
    for (Range& range : op.ranges)
        enter_range(op, range.near, range.address & ordered,
                    (range.address + range.bytes) & ordered);
    if (op.ranges.empty()) {
        enter_range(op, op.near, op.from & ordered, op.end & ordered);
        enter_range(op, op.near_second, op.second_from & ordered, op.second_end & ordered);
    }
    if (has_trait(op.kind, trait::barrier)) {
        op.blockers += static_cast<std::uint32_t>(in_flight_);
        op.near.add_before(barriers_);
    }
    op.all.op = &op;
    op.all.add_before(op.is_aside ? aside_ : all_);
    in_flight_ += !op.is_aside;
    return op.blockers == 0;
}

void Order::leave_range(const Op& op, const Link& at, Op*& free) {
    if (at.from == at.end)
        return;
    for_each_rival(at, [&](Op& other) {
        if (other.number > op.number)
            count_down(other, free);
    });
}

Op* Order::leave(Op& op) {
    Op* free = nullptr;
    op.all.remove();
    in_flight_ -= !op.is_aside;
    if (op.near.from == op.near.end)
        op.near.remove(); // of a barrier, which can be of another kind by now
    for_each_place(op, [this](Link& at) { remove_range(at); });
    for_each_place(op, [&](const Link& at) { leave_range(op, at, free); });
    for (Link* link = barriers_.prev;
         !op.is_aside && link != &barriers_ && link->op->number > op.number; link = link->prev)
        count_down(*link->op, free);
    return free;
}

} // namespace remora::lib
