// SPDX-License-Identifier: MIT
#include "src/queued.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "src/cut.hpp"
#include "src/probes.hpp"

namespace remora::lib {

namespace {

// Ops of one synchronous transfer that are under way at once.
constexpr unsigned transfer_ops = 4;
// What was taken back and still hasn't ended is taken back again.
constexpr auto again_after = std::chrono::milliseconds(10);

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
}

// As they are counted and traced; of many ranges the first one's.
std::uint64_t address_of(const Op& op) {
    return op.ranges.empty() ? op.from + op.before : op.ranges.front().address;
}

std::uint64_t bytes_of(const Op& op) {
    return op.ranges.empty() ? op.end - op.from - op.before : op.core.len;
}

} // namespace

// ---- ops ----

bool Queued::enter(Op& op) {
    op.signal_from = op.signal_end = 0;
    if (!op.ranges.empty()) {
        begin_ranges(op);
        op.from = op.end = 0; // its ranges have places of their own
    } else if (op.core.type == RMEM_FREE) {
        op.from = op.core.range.addr;
        op.end = op.from + op.core.range.bytes;
    } else if (op.core.type != RMEM_ALLOC && op.core.type != RMEM_FENCE) {
        op.from = op.core.addr - op.before;
        op.end = op.core.addr + op.core.len;
    }
    if (op.core.type == RMEM_PUT) {
        op.signal_from = op.core.put.addr;
        op.signal_end = op.signal_from + op.core.put.bytes;
    }
    op.entered_ns = now_ns();
    REMOTE_PROBE_START(this, op.core.type, address_of(op), bytes_of(op));
    return order_.enter(op);
}

// Those PUTs that may begin now, but whose data before isn't all there, are put before hopeless.
rmem_op* Queued::end_one(Op& op, int error, rmem_op* hopeless) {
    rmem_op* free = order_.leave(op);
    std::uint64_t bytes = bytes_of(op);
    REMOTE_PROBE_END(this, op.core.type, address_of(op), bytes, error);
    tally_.count(op.core.type, bytes, error);
    tally_.time(op.core.type, now_ns() - op.entered_ns);
    note(error);
    if (op.call->left.load(std::memory_order_relaxed) == 1)
        op.call->timed.remove();
    op.call->end_op(error);
    while (free) {
        rmem_op* next = free->next;
        if (op_of(free).before && op_of(free).call->result)
            free->next = std::exchange(hopeless, free);
        else
            begin(op_of(free));
        free = next;
    }
    return hopeless;
}

void Queued::end(Op& op, int error) {
    if (!op.ranges.empty() && goes_on(op, error)) {
        if (!op.call->given_up)
            return begin(op);
        error = op.call->given_up;
    }
    rmem_op* hopeless = end_one(op, error, nullptr);
    while (hopeless) {
        Op& put = op_of(hopeless);
        hopeless = end_one(put, -ECANCELED, hopeless->next);
    }
    if (waiting_)
        changed_.notify_all();
}

void Queued::start(std::span<Op> ops) {
    Lock lock(lock_);
    Call& call = *ops.front().call;
    call.ops = ops;
    if (call.limit != never)
        add_timed(call);
    for (Op& op : ops) {
        if (enter(op))
            begin(op);
    }
    flush();
    expire();
}

// ---- giving up ----

// Lock. Those who use limits use few lengths of time, so its place is near the end.
void Queued::add_timed(Call& call) {
    Link* before = timed_.prev;
    while (before->op && before->op->call->limit > call.limit)
        before = before->prev;
    call.timed.op = &call.ops.front();
    call.timed.add_before(*before->next);
}

// Lock.
Clock::time_point Queued::first_limit() const {
    return timed_.next->op ? timed_.next->op->call->limit : never;
}

// Lock. What is here already isn't late: it is taken in before anything counts as timed out.
void Queued::expire() {
    if (first_limit() == never || receiving_)
        return; // who receives sees to it
    Clock::time_point now = Clock::now();
    if (first_limit() > now)
        return;
    take_in();
    while (first_limit() <= now) {
        Call& call = *timed_.next->op->call;
        give_up(call, call.given_up ? call.given_up : -ETIMEDOUT);
    }
    flush();
}

// Lock. What is left of the call ends so: here what hasn't begun, and what has when that has been
// taken back. What waited for it in order begins after that.
void Queued::give_up(Call& call, int error) {
    call.given_up = error;
    std::uint32_t begun = 0;
    // Its PUT, if it has one, is the last, and would end by itself with the last one before.
    for_each_left(call, [&](Op& op) {
        if (op.blockers)
            end(op, error);
        else
            begun++;
    });
    if (!begun)
        return;
    call.timed.remove();
    call.limit = Clock::now() + again_after;
    add_timed(call);
    take_back(call); // which may end it
}

void Queued::cancel(Call& call) {
    {
        Lock lock(lock_);
        if (call.ended())
            return;
        give_up(call, -ECANCELED);
        flush();
    }
    wait(call, never);
}

// ---- synchronous calls ----

int Queued::one(Op& op, Clock::time_point limit) {
    Call call;
    call.begin(1, limit);
    op.call = &call;
    start({&op, 1});
    wait(call, never);
    return call.result;
}

int Queued::transfer(std::uint8_t type, std::uint64_t address, std::uint8_t* data,
                     std::uint64_t bytes, Clock::time_point limit) {
    while (bytes) {
        Call call;
        std::array<Op, transfer_ops> ops;
        std::uint64_t now =
            std::min<std::uint64_t>(bytes, std::uint64_t{transfer_ops} * op_bytes_max);
        std::span<Op> now_ops = cut(ops, call, type, address, data, now);
        call.begin(now_ops.size(), limit);
        start(now_ops);
        wait(call, never);
        if (call.result)
            return call.result;
        address += now;
        data += now;
        bytes -= now;
    }
    return 0;
}

int Queued::atomic(std::uint64_t address, std::uint32_t bytes, rmem_op_atomic& atomic,
                   Clock::time_point limit) {
    Op op;
    op.core.type = RMEM_ATOMIC;
    op.core.addr = address;
    op.core.len = bytes;
    op.core.atomic = atomic;
    int error = one(op, limit);
    atomic = op.core.atomic;
    return error;
}

int Queued::zero(std::uint64_t address, std::uint32_t bytes) {
    Op op;
    op.core.type = RMEM_ZERO;
    op.core.addr = address;
    op.core.len = bytes;
    return one(op);
}

int Queued::fence(Clock::time_point limit) {
    if (int error = release(limit))
        return error;
    Op op;
    op.core.type = RMEM_FENCE;
    return one(op, limit);
}

// ---- waiting ----

bool Queued::wait(const Call& call, Clock::time_point until) {
    if (call.ended() || until == at_once)
        return call.ended();
    return wait_for([&] { return call.ended(); }, until);
}

int Queued::release(Clock::time_point limit) {
    std::uint64_t last;
    {
        Lock lock(lock_);
        last = order_.last();
    }
    bool done = wait_for([&] { return order_.first_left() > last; }, limit);
    return done ? 0 : -ETIMEDOUT;
}

} // namespace remora::lib
