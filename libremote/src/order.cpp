// SPDX-License-Identifier: MIT
#include "src/order.hpp"

namespace remora::lib {

namespace {

bool rivals(const Link& a, const Link& b) {
    return a.from < b.end && b.from < a.end && a.op != b.op &&
           (a.op->core.type != RMEM_READ || b.op->core.type != RMEM_READ);
}

} // namespace

// fn for the op of each range under way that at's op must not pass, or that must not pass it.
template <typename Fn>
void Order::for_each_rival(const Link& at, Fn fn) {
    auto compare = [&](const Link& other) {
        if (rivals(other, at))
            fn(*other.op);
    };
    if (is_wide(at)) {
        for (Link* link = all_.next; link != &all_; link = link->next) {
            compare(link->op->near);
            compare(link->op->near_signal);
        }
        return;
    }
    auto look = [&](Link& head) {
        for (Link* link = head.next; link != &head; link = link->next)
            compare(*link);
    };
    look(wide_);
    std::uint64_t block = at.from >> block_shift;
    std::uint64_t end = (at.end - 1) >> block_shift;
    std::size_t looked[3] = {near_.size(), near_.size(), near_.size()};
    for (unsigned i = 0; i < 3; i++) {
        std::uint64_t wanted = block + i - 1;
        std::size_t which = bucket(wanted);
        // Blocks may share a bucket, which is to be looked at once.
        if (wanted == end + 1 || which == looked[0] || which == looked[1])
            continue;
        looked[i] = which;
        look(near_[which]);
    }
}

void Order::enter_range(Op& op, Link& at, std::uint64_t from, std::uint64_t end) {
    at.op = &op;
    at.from = from;
    at.end = end;
    for_each_rival(at, [&](const Op&) { op.blockers++; });
    at.add_before(is_wide(at) ? wide_ : near_[bucket(from >> block_shift)]);
}

bool Order::enter(Op& op) {
    op.number = ++last_;
    op.blockers = 0;
    enter_range(op, op.near, op.from, op.end);
    // One that is in no ring is found by whoever looks at all, and overlaps nothing.
    op.near_signal.from = op.near_signal.end = 0;
    if (op.signal_end)
        enter_range(op, op.near_signal, op.signal_from, op.signal_end);
    op.all.op = &op;
    op.all.add_before(all_);
    return op.blockers == 0;
}

void Order::leave_range(const Op& op, const Link& at, rmem_op*& free) {
    for_each_rival(at, [&](Op& other) {
        if (other.number < op.number || --other.blockers)
            return;
        other.core.next = free;
        free = &other.core;
    });
}

rmem_op* Order::leave(Op& op) {
    rmem_op* free = nullptr;
    op.all.remove();
    op.near.remove();
    op.near_signal.remove();
    leave_range(op, op.near, free);
    if (op.signal_end)
        leave_range(op, op.near_signal, free);
    return free;
}

} // namespace remora::lib
