// SPDX-License-Identifier: MIT
#include "src/order.hpp"

namespace remora::lib {

namespace {

bool rivals(const Op& a, const Op& b) {
    return a.from < b.end && b.from < a.end &&
           (a.core.type != RMEM_READ || b.core.type != RMEM_READ);
}

} // namespace

// fn for each op under way that op must not pass, or that must not pass it.
template <typename Fn>
void Order::for_each_rival(const Op& op, Fn fn) {
    auto look = [&](Link& head) {
        for (Link* link = head.next; link != &head; link = link->next) {
            if (link->op != &op && rivals(*link->op, op))
                fn(*link->op);
        }
    };
    if (is_wide(op))
        return look(all_);
    look(wide_);
    std::uint64_t block = op.from >> block_shift;
    std::uint64_t end = (op.end - 1) >> block_shift;
    std::size_t looked[3] = {near_.size(), near_.size(), near_.size()};
    for (unsigned i = 0; i < 3; i++) {
        std::uint64_t wanted = block + i - 1;
        std::size_t at = bucket(wanted);
        // Blocks may share a bucket, which is to be looked at once.
        if (wanted == end + 1 || at == looked[0] || at == looked[1])
            continue;
        looked[i] = at;
        look(near_[at]);
    }
}

bool Order::enter(Op& op) {
    op.number = ++last_;
    op.blockers = 0;
    for_each_rival(op, [&](const Op&) { op.blockers++; });
    op.all.op = op.near.op = &op;
    op.all.add_before(all_);
    op.near.add_before(is_wide(op) ? wide_ : near_[bucket(op.from >> block_shift)]);
    return op.blockers == 0;
}

rmem_op* Order::leave(Op& op) {
    rmem_op* free = nullptr;
    op.all.remove();
    op.near.remove();
    for_each_rival(op, [&](Op& other) {
        if (other.number < op.number || --other.blockers)
            return;
        other.core.next = free;
        free = &other.core;
    });
    return free;
}

} // namespace remora::lib
