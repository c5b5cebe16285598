// SPDX-License-Identifier: MIT
#include "src/backend/queued.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "src/backend/cut.hpp"
#include "src/backend/probes.hpp"
#include "src/backend/slide.hpp"

namespace remora::lib {

namespace {

// Ops of one synchronous transfer in flight at once.
constexpr unsigned transfer_ops = 4;
// Period at which cancelled ops that still haven't ended are cancelled again.
constexpr auto again_after = std::chrono::milliseconds(10);

// Address for counters and probes; of many ranges the first.
std::uint64_t address_of(const Op& op) {
    return op.ranges.empty() ? op.from + op.before : op.ranges.front().address;
}

std::uint64_t bytes_of(const Op& op) {
    return op.ranges.empty() ? op.end - op.from - op.before : op.bytes;
}

} // namespace

// ---- ops ----

// Lock. The op is about to send a message, or to wait for its turn to.
void Queued::begin_message(Op& op, std::uint64_t now_ns) {
    if (!op.ranges.empty()) {
        begin_ranges(op);
        op.from = op.end = 0; // its ranges have places of their own
    } else if (op.kind == Kind::free) {
        op.from = op.region.address;
        op.end = op.from + op.region.bytes;
    } else if (has_trait(op.kind, trait::bytes)) {
        op.from = op.address - op.before;
        op.end = op.address + op.bytes;
    } else {
        op.from = op.end = 0;
    }
    op.entered_ns = now_ns;
    REMOTE_PROBE_START(this, op.kind, address_of(op), bytes_of(op));
}

bool Queued::enter(Op& op, std::uint64_t now_ns) {
    begin_message(op, now_ns);
    op.second_from = op.second_end = 0;
    if (op.kind == Kind::put) {
        op.second_from = op.signal.address;
        op.second_end = op.second_from + op.signal.bytes;
    }
    if (op.kind == Kind::copy) {
        op.second_from = op.source;
        op.second_end = op.second_from + op.bytes;
    }
    if (op.kind == Kind::release) { // an UNLOCK's word; else none
        op.second_from = op.address;
        op.second_end = op.second_from + op.bytes;
    }
    return order_.enter(op);
}

// The op, or its last message, has ended. Returns as end_last().
Op* Queued::end_one(Op& op, int error, Op* idle) {
    Op* free = op.keeps_place ? nullptr : order_.leave(op);
    op.paused.remove();
    std::uint64_t bytes = bytes_of(op);
    REMOTE_PROBE_END(this, op.kind, address_of(op), bytes, error);
    if (op.kind != Kind::none)
        tally_.count(op.kind, bytes, error);
    note(error);
    if (!op.steps || !op.steps->next(op, error))
        return end_last(op, error, op.keeps_place ? order_.leave(op) : free, idle);
    begin_step(op);
    return begin_free(free, idle);
}

// Begins ops that waited for another one. Returns idle, preceded by those of them that end without
// the node: silent ones that aren't their starter's, and a put whose earlier data failed.
Op* Queued::begin_free(Op* free, Op* idle) {
    while (free) {
        Op* next = free->next;
        const bool is_silent = has_trait(free->kind, trait::silent) && !starter_executes();
        if (is_silent || (free->before && free->call->result))
            free->next = std::exchange(idle, free);
        else
            begin(*free);
        free = next;
    }
    return idle;
}

// Begins the ops that waited for this one. Returns as begin_free().
Op* Queued::end_last(Op& op, int error, Op* free, Op* idle) {
    const void* queue = nullptr;
    Call* then = nullptr;
    bool succeeded = false;
    if (op.call->left.load(std::memory_order_relaxed) == 1) {
        op.call->timed.remove();
        wake_waiters(*op.call);
        queue = op.call->queue;
        // Ended before its turn, the call might be another one's when that comes.
        if (op.call->after)
            op.call->after->then = nullptr;
        then = op.call->then;
        if (then)
            then->after = nullptr;
        succeeded = has_succeeded(op, error);
    }
    op.call->end_op(error);
    if (queue)
        ask({nullptr, queue});
    idle = begin_free(free, idle);
    if (then)
        succeeded ? go_on(*then) : give_up(*then, -ECANCELED);
    return idle;
}

// Lock. The op can begin.
void Queued::go(Op& op) {
    has_trait(op.kind, trait::silent) ? end(op, 0) : begin(op);
}

// Lock. The call before has ended, which held this one's ops.
void Queued::go_on(Call& call) {
    if (call.is_outside)
        enter_row(call);
    for (Op& op : call.ops) {
        if (!--op.blockers)
            go(op);
    }
}

// ---- steps ----

// Lock. The op is set to its next message, and takes a place in the order for that, unless it has
// kept one. True: the op can begin.
bool Queued::enter_step(Op& op) {
    if (!op.keeps_place)
        return enter(op, now_ns());
    begin_message(op, now_ns());
    return true;
}

// Lock.
void Queued::begin_step(Op& op) {
    if (op.begins_at != Clock::time_point{})
        return pause(op);
    if (enter_step(op))
        begin(op);
}

// Lock. Held back in the order, so that it ends like one that hasn't begun.
void Queued::pause(Op& op) {
    enter_step(op);
    Order::hold(op);
    Link* before = paused_.prev;
    while (before->op && before->op->begins_at > op.begins_at)
        before = before->prev;
    op.paused.op = &op;
    op.paused.add_before(*before->next);
    // Where no thread receives, one of those that sleep has to watch this.
    wake_receiver();
}

// Lock. flush() follows.
void Queued::resume() {
    const Clock::time_point now = Clock::now();
    while (first_pause() <= now) {
        Op& op = *paused_.next->op;
        op.paused.remove();
        op.begins_at = {};
        if (!--op.blockers)
            go(op);
    }
}

// Lock.
Clock::time_point Queued::first_pause() const {
    return paused_.next->op ? paused_.next->op->begins_at : never;
}

void Queued::end(Op& op, int error) {
    if (!op.ranges.empty() && retry_next_range(op, error)) {
        if (!op.call->given_up)
            return begin(op);
        error = op.call->given_up;
        end_ranges(op, error);
    }
    Op* idle = end_one(op, error, nullptr);
    while (idle)
        idle = end_one(*idle, has_trait(idle->kind, trait::silent) ? 0 : -ECANCELED, idle->next);
    ask({});
    wake_receiver();
}

void Queued::start(std::span<Op> ops) {
    Call* call = ops.front().call;
    call->ops = ops;
    start_all({&call, 1});
}

void Queued::start_all(std::span<Call* const> calls) {
    Lock lock(lock_, std::try_to_lock);
    bool left = !lock;
    if (left) {
        for (Call* call : calls)
            left_.add(*call);
        lock.lock();
    }
    start_left();
    if (!left) {
        clock_ns_ = now_ns();
        for (Call* call : calls)
            begin_call(*call, clock_ns_);
    }
    flush();
    expire();
}

// Lock.
void Queued::begin_call(Call& call, std::uint64_t now_ns) {
    if (call.limit != never)
        add_timed(call);
    if (call.then)
        return begin_linked(call);
    if (call.given_up) // before it began
        return end_unbegun(call, now_ns);
    for (Op& op : call.ops) {
        if (enter(op, now_ns))
            go(op);
    }
}

// Lock. The call and those behind it take their places in the order. Calls behind a LOCK or a FREE
// wait outside until it has succeeded: a lock's holder might need those bytes first, and each step
// of a FREE takes a place behind all that are there.
void Queued::enter_row(Call& call) {
    for (Call* each = &call; each; each = each->then) {
        each->is_outside = false;
        for (Op& op : each->ops) {
            enter(op, now_ns());
            Order::hold(op);
        }
        const Op& first = each->ops.front();
        if (first.steps && !first.keeps_place)
            break;
    }
}

// Lock. The calls of the row take their places before the first one begins, for it can end, and be
// gone, as it begins.
void Queued::begin_linked(Call& call) {
    for (Call* each = &call; each; each = each->then) {
        if (each->then)
            each->then->after = each;
        if (each != &call && each->limit != never)
            add_timed(*each);
        each->is_outside = true;
    }
    enter_row(call);
    for (Call* each = &call; each; each = each->then) {
        if (!each->given_up) // before it began
            continue;
        give_up(*each, each->given_up); // and those behind it
        if (each == &call)
            return;
        break;
    }
    go_on(call);
}

// Lock. Ends the ops of a call that was given up before it began.
void Queued::end_unbegun(Call& call, std::uint64_t now_ns) {
    for (Op& op : call.ops)
        enter(op, now_ns);
    const int error = call.given_up;
    for_each_left(call, [&](Op& op) { end(op, error); });
}

// Lock. flush() follows. A call can end, and be gone, as it begins.
void Queued::start_left() {
    for (Call* call = left_.take(); call;) {
        Call* next = call->next_left;
        begin_call(*call, now_ns());
        call = next;
    }
}

// ---- giving up ----

// Lock. Programs use few different limits, so the call's place is near the end of the list.
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

// Lock. Handles answers that have arrived before it ends calls by their limit: those aren't late.
// Begins ops whose pause is over.
void Queued::expire() {
    if (first_pause() != never) {
        resume();
        flush();
    }
    if (first_limit() == never || receiving_)
        return; // the receiving thread does this
    Clock::time_point now = Clock::now();
    if (first_limit() > now)
        return;
    take_in();
    while (first_limit() <= now) {
        Call& call = *timed_.next->op->call;
        give_up(call, call.error_of_end(-ETIMEDOUT));
    }
    flush();
}

// Lock. Ends the remaining ops of the call with error: at once if they haven't begun, else when
// they have been taken back. Ops that waited for them in order begin after that.
void Queued::give_up(Call& call, int error) {
    call.given_up = error;
    if (call.is_outside) {
        call.is_outside = false;
        return end_unbegun(call, now_ns());
    }
    std::uint32_t begun = 0;
    // A put is the call's last op, and would end by itself with the op before it.
    for_each_left(call, [&](Op& op) {
        if (op.blockers && !starter_executes())
            end(op, error);
        else
            begun++;
    });
    if (!begun)
        return;
    if (starter_executes())
        ask({});
    call.timed.remove();
    call.limit = Clock::now() + again_after;
    add_timed(call);
    const Op& op = call.ops.front();
    const auto settle_ns = std::chrono::nanoseconds(settle_time).count();
    if (op.settles && now_ns() < op.entered_ns + static_cast<std::uint64_t>(settle_ns))
        return;
    take_back(call); // can end the call
}

void Queued::cancel(Call& call) {
    {
        Lock lock(lock_);
        start_left();
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

int Queued::transfer(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                     Clock::time_point limit) {
    if (bytes <= op_bytes_max)
        return transfer_by<1>(kind, address, data, bytes, limit);
    if (bytes <= std::uint64_t{transfer_ops} * op_bytes_max)
        return transfer_by<transfer_ops>(kind, address, data, bytes, limit);
    return transfer_long(kind, address, data, bytes, limit);
}

// All of it in flight at once.
template <unsigned most>
int Queued::transfer_by(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                        Clock::time_point limit) {
    Call call;
    std::array<Op, most> ops;
    std::span<Op> all = cut(ops, call, kind, address, data, bytes);
    call.begin(all.size(), limit);
    start(all);
    wait(call, never);
    return call.result;
}

int Queued::transfer_long(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                          Clock::time_point limit) {
    return slide<transfer_ops>(*this, bytes, op_bytes_max, limit,
                               [&](Op& op, Call& call, std::uint64_t offset, std::uint64_t now) {
                                   cut({&op, 1}, call, kind, address + offset, data + offset, now);
                               });
}

int Queued::change(std::uint64_t address, std::uint32_t bytes, Change& change,
                   Clock::time_point limit) {
    Op op;
    op.kind = Kind::integer;
    op.address = address;
    op.bytes = bytes;
    op.change = change;
    int error = one(op, limit);
    change = op.change;
    return error;
}

int Queued::zero(std::uint64_t address, std::uint32_t bytes) {
    Op op;
    op.kind = Kind::zero;
    op.address = address;
    op.bytes = bytes;
    return one(op);
}

int Queued::fence(Clock::time_point limit) {
    Op op;
    op.kind = Kind::fence;
    return one(op, limit);
}

// ---- waiting ----

bool Queued::wait(const Call& call, Clock::time_point until) {
    if (call.ended() || until == at_once)
        return call.ended();
    return wait_for([&] { return call.ended(); }, until, {&call, nullptr});
}

// Lock, released meanwhile.
void Queued::sleep(Lock& lock, Waiter& waiter, Clock::time_point until) {
    waiter.add_before(waiter.waits_for.call ? call_waiters_ : watchers_);
    waiter.next_alike = std::exchange(row_of(waiter.waits_for), &waiter);
    waiter.in_row = true;
    if (until == never)
        waiter.wake.wait(lock);
    else
        waiter.wake.wait_until(lock, until);
    wake_ups_++;
    waiter.remove();
    // A call that has ended might be gone; its waiters were taken off it before.
    if (!waiter.in_row)
        return;
    Waiter** at = &row_of(waiter.waits_for);
    while (*at != &waiter)
        at = &(*at)->next_alike;
    *at = waiter.next_alike;
}

// Lock. The threads that wait for the call; or for the queue, and for others of the same hash.
Waiter*& Queued::row_of(const WaitsFor& what) {
    if (what.call)
        return what.call->waiters;
    return rows_[std::hash<const void*>()(what.queue) / 64 % rows_.size()];
}

// Lock, for all of these. A thread that sleeps has its Waiter; it can't leave without the lock.
void Queued::wake(Waiter& waiter) {
    waiter.woken = true;
    waiter.wake.notify_one();
}

// The call ends.
void Queued::wake_waiters(const Call& call) {
    for (Waiter* waiter = std::exchange(call.waiters, nullptr); waiter;
         waiter = waiter->next_alike) {
        waiter->in_row = false;
        wake(*waiter);
    }
}

// A call of the queue has ended; without one: an op.
void Queued::ask(const WaitsFor& what) {
    for (Waiter* waiter = row_of(what); waiter; waiter = waiter->next_alike) {
        if (waiter->waits_for.queue == what.queue)
            ask(*waiter);
    }
}

void Queued::ask(Waiter& waiter) {
    if (!waiter.woken && waiter.done())
        wake(waiter);
}

// Where no thread receives, one of those that sleep has to do so, or watch the limits. One that was
// woken will, or find its wait over and come here.
void Queued::wake_receiver() {
    if (receiving_)
        return;
    for (Link* ring : {&call_waiters_, &watchers_}) {
        for (Link* each = ring->next; each != ring; each = each->next) {
            auto& waiter = static_cast<Waiter&>(*each);
            if (!waiter.woken)
                return wake(waiter);
        }
    }
}

void Queued::exclusively(const std::function<void()>& fn) {
    Lock lock(lock_);
    fn();
    for (Link* each = watchers_.next; each != &watchers_; each = each->next)
        ask(static_cast<Waiter&>(*each));
    wake_receiver();
}

Clock::time_point Queued::next_event() {
    Lock lock(lock_);
    return std::min({first_limit(), first_pause(), next_timer()});
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
