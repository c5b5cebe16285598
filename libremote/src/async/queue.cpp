// SPDX-License-Identifier: MIT
#include "src/async/queue.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <functional>
#include <new>
#include <thread>
#include <utility>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace remora::lib {

namespace {

// How often a backend is looked at while it has no descriptor: its node is gone.
constexpr auto look_again = std::chrono::milliseconds(10);

Clock::time_point limit_of(const remote_op& op) {
    return op.timeout_us ? from_now(op.timeout_us) : never;
}

bool may_share(const remote_op& op, const remote_op& first) {
    return op.kind == REMOTE_OP_READ && op.bytes <= small_bytes &&
           op.timeout_us == first.timeout_us && !op.flags;
}

bool is_linked(const remote_op& op) {
    return op.flags & REMOTE_OP_LINK;
}

} // namespace

Queue::Queue(std::uint32_t depth) : slots_(depth), alike_(std::bit_ceil(depth)) {
    for (Slot& slot : slots_) {
        slot.queue = this;
        slot.call.listener = &slot;
        slot.call.queue = this;
        slot.next = std::exchange(free_, &slot);
    }
}

// ---- slots, uses, groups ----

std::size_t Queue::take_slots(Use& use, std::span<Slot*> to) {
    std::lock_guard lock(lock_);
    std::size_t taken = 0;
    for (; taken < to.size() && free_; taken++) {
        Slot& slot = *std::exchange(free_, free_->next);
        slot.state = State::taken;
        slot.use = &use;
        slot.group = nullptr;
        slot.user_data = 0;
        to[taken] = &slot;
    }
    in_flight_ += taken;
    use.in_flight += static_cast<std::uint32_t>(taken);
    return taken;
}

void Queue::give_slots(Use& use, std::span<Slot* const> unused) {
    std::lock_guard lock(lock_);
    in_flight_ -= unused.size();
    use.in_flight -= static_cast<std::uint32_t>(unused.size());
    for (Slot* slot : unused) {
        slot->built.clear();
        slot->state = State::free;
        slot->next = std::exchange(free_, slot);
    }
}

// Lock. The row of operations with this user_data, and of others. The numbers of a program that
// counts, or its pointers, differ in the upper bits of the product.
Queue::Slot*& Queue::alike(std::uint64_t user_data) {
    const std::uint64_t mixed = user_data * 0x9e37'79b9'7f4a'7c15;
    return alike_[mixed >> 32 & (alike_.size() - 1)];
}

// From now on the operations can be cancelled.
void Queue::set_in_flight(std::span<Slot* const> slots) {
    std::lock_guard lock(lock_);
    for (Slot* slot : slots) {
        slot->state = State::in_flight;
        Slot*& row = alike(slot->user_data);
        slot->at_alike = &row;
        slot->next_alike = std::exchange(row, slot);
        if (slot->next_alike)
            slot->next_alike->at_alike = &slot->next_alike;
    }
}

Queue::UseRef Queue::use_of(const BackendRef& backend) {
    std::lock_guard lock(lock_);
    if (!uses_.empty() && uses_.back()->backend.get() == backend.get())
        return uses_.back();
    auto use = std::make_shared<Use>();
    use->backend = backend;
    uses_.push_back(use);
    return use;
}

Queue::UseRef Queue::oldest_use() {
    std::lock_guard lock(lock_);
    for (const UseRef& use : uses_) {
        if (use->in_flight)
            return use;
    }
    return nullptr;
}

// Backends end without the lock.
void Queue::drop_unused() {
    std::list<UseRef> dropped;
    std::lock_guard lock(lock_);
    while (uses_.size() > 1 && !uses_.front()->in_flight)
        dropped.splice(dropped.end(), uses_, uses_.begin());
    if (!dropped.empty())
        watched_ = nullptr;
}

Queue::Group& Queue::take_group() {
    std::lock_guard lock(lock_);
    if (free_groups_)
        return *std::exchange(free_groups_, free_groups_->next);
    Group& group = groups_.emplace_back();
    group.queue = this;
    group.call.listener = &group;
    group.call.queue = this;
    return group;
}

// ---- starting ----

// Throws bad_alloc.
Call& Queue::prepare_group(Use& use, std::span<Slot* const> slots,
                           std::span<const remote_vec> pieces, Clock::time_point limit) {
    Group& group = take_group();
    try {
        if (group.ranges.range.size() < pieces.size())
            group.ranges = Ranges(pieces.size());
    } catch (...) {
        std::lock_guard lock(lock_);
        group.next = std::exchange(free_groups_, &group);
        throw;
    }
    group.use = &use;
    std::ranges::copy(slots, group.slots.begin());
    for (std::uint32_t i = 0; i < slots.size(); i++) {
        slots[i]->group = &group;
        slots[i]->range = i;
    }
    make_vector(group.op, Kind::read, pieces, group.ranges, 0);
    group.op.call = &group.call;
    group.call.begin(1, limit);
    group.call.ops = {&group.op, 1};
    return group.call;
}

std::size_t Queue::whole_rows(std::span<const remote_op> ops) {
    std::size_t count = ops.size();
    while (count && is_linked(ops[count - 1]))
        count--;
    return count;
}

// Number of the first ops that were started. Throws bad_alloc if it is none.
std::size_t Queue::start(const UseRef& use, StepsMaker& maker, std::span<const remote_op> ops,
                         std::span<Slot* const> slots) {
    Backend& backend = *use->backend;
    std::array<Call*, batch_max> calls;
    std::array<remote_vec, batch_max> pieces;
    std::size_t made = 0, done = 0, heads = 0; // heads: calls of whole rows
    const bool shares = backend.can_detach();
    try {
        while (done < slots.size()) {
            std::size_t row = 0;
            // A linked operation holds back the next one alone, so that isn't grouped with others.
            const bool is_behind = done && is_linked(ops[done - 1]);
            for (; shares && !is_behind && done + row < slots.size() &&
                   may_share(ops[done + row], ops[done]);
                 row++)
                pieces[row] = {ops[done + row].address, ops[done + row].buffer,
                               ops[done + row].bytes};
            row = row ? together(Kind::read, {pieces.data(), row}, backend.vector_bytes()) : 0;
            row = std::max<std::size_t>(row, 1);
            for (std::size_t i = done; i < done + row; i++)
                slots[i]->user_data = ops[i].user_data;
            Slot& slot = *slots[done];
            Call* call = row > 1 ? &prepare_group(*use, slots.subspan(done, row),
                                                  {pieces.data(), row}, limit_of(ops[done]))
                                 : &slot.call;
            if (row == 1)
                slot.built.make(ops[done], backend, maker, slot.call, limit_of(ops[done]));
            if (is_behind)
                slots[done - 1]->call.then = call;
            else
                calls[made++] = call;
            done += row;
            if (!is_linked(ops[done - 1]))
                heads = made;
        }
    } catch (const std::bad_alloc&) {
        done = whole_rows(ops.first(done));
        if (!done)
            throw;
    }
    set_in_flight(slots.first(done));
    backend.start_all({calls.data(), heads});
    return done;
}

int Queue::submit(const BackendRef& backend, StepsMaker& maker, std::span<const remote_op> ops) {
    UseRef use = use_of(backend);
    std::size_t started = 0;
    int error = -EAGAIN;
    while (!ops.empty()) {
        std::array<Slot*, batch_max> place;
        std::span<Slot*> slots(place.data(), std::min(ops.size(), batch_max));
        slots = slots.first(take_slots(*use, slots));
        const std::size_t most = whole_rows(ops.first(slots.size()));
        std::size_t now = 0;
        try {
            if (most)
                now = start(use, maker, ops, slots.first(most));
        } catch (const std::bad_alloc&) {
            error = -ENOMEM;
        }
        give_slots(*use, slots.subspan(now));
        started += now;
        if (!most && slots.size() == slots_.size())
            error = -EINVAL; // no queue of this depth holds the row
        if (!most || now < most)
            break;
        ops = ops.subspan(now);
    }
    return started ? static_cast<int>(started) : error;
}

// ---- ended ----

// Lock.
void Queue::add_ended(Slot& slot) {
    slot.state = State::ended;
    *slot.at_alike = slot.next_alike;
    if (slot.next_alike)
        slot.next_alike->at_alike = slot.at_alike;
    slot.next = nullptr;
    (ended_ ? last_ended_->next : ended_) = &slot;
    last_ended_ = &slot;
    slot.use->in_flight--;
    in_flight_--;
    ended_count_++;
}

// Lock.
void Queue::signal() {
    if (event_ && !signalled_) {
        signalled_ = true;
        eventfd_write(event_.get(), 1);
    }
}

void Queue::complete(std::span<Slot* const> slots) {
    std::lock_guard lock(lock_);
    for (Slot* slot : slots)
        add_ended(*slot);
    signal();
}

void Queue::complete_group(Group& group) {
    std::lock_guard lock(lock_);
    for (const Range& range : group.op.ranges) {
        Slot& slot = *group.slots[static_cast<std::size_t>(&range - group.op.ranges.data())];
        if (!range.data)
            continue; // detached: the slot might be another operation's
        slot.call.result = range.result;
        add_ended(slot);
    }
    group.use = nullptr;
    group.next = std::exchange(free_groups_, &group);
    signal();
}

// Lock. The operation has ended: gives the program the value found.
void Queue::hand_over(Slot& slot) {
    if (!slot.group && !slot.call.result)
        slot.call.result = slot.built.hand_over(0);
}

// Lock.
void Queue::release(Slot& slot) {
    slot.built.clear();
    slot.state = State::free;
    slot.next = std::exchange(free_, &slot);
}

// Lock.
std::size_t Queue::take(std::span<remote_completion> to) {
    std::size_t taken = 0;
    for (; taken < to.size() && ended_; taken++) {
        Slot& slot = *std::exchange(ended_, ended_->next);
        hand_over(slot);
        to[taken] = {slot.user_data, slot.call.result, 0};
        if (!slot.pins)
            release(slot);
        else
            slot.state = State::free; // the thread that cancels it releases it
    }
    ended_count_ -= taken;
    if (signalled_ && !ended_) {
        eventfd_t count;
        eventfd_read(event_.get(), &count);
        signalled_ = false;
    }
    return taken;
}

std::size_t Queue::wait(std::span<remote_completion> to, std::size_t at_least,
                        Clock::time_point until) {
    drop_unused();
    at_least = std::min(at_least, to.size());
    if (!at_least)
        until = std::min(until, Clock::now());
    std::size_t taken = 0;
    for (bool looked = false;; looked = true) {
        bool over;
        BackendRef idle;
        {
            std::lock_guard lock(lock_);
            taken += take(to.subspan(taken));
            over = !in_flight_;
            if (over && !looked && epoll_ && !uses_.empty())
                idle = uses_.back()->backend;
        }
        // A late answer, or a node that ended, makes the descriptor readable as well.
        if (idle)
            idle->wait_until(
                this, [] { return false; }, Clock::now());
        if (over || (taken >= at_least && (taken || looked)) || (looked && Clock::now() >= until))
            return taken;
        UseRef use = oldest_use();
        if (!use)
            continue; // all operations have ended meanwhile
        const std::size_t wanted = std::max<std::size_t>(at_least - taken, 1);
        auto done = [&] { return ended_count_ >= wanted || !use->in_flight; };
        // By reference, for a copy takes memory, and completions taken must not be lost.
        use->backend->wait_until(this, std::ref(done), until);
    }
}

// ---- cancelling ----

// The slot was in flight when the caller pinned it.
void Queue::cancel_pinned(Slot& slot, Backend& backend) {
    if (slot.group)
        backend.exclusively([&] { detach(slot); });
    else
        backend.cancel(slot.call);
    std::unique_lock lock(lock_);
    while (slot.state == State::in_flight) { // its listener is told right after its end
        lock.unlock();
        std::this_thread::yield();
        lock.lock();
    }
    slot.pins--;
    if (slot.state == State::free && !slot.pins)
        release(slot);
    else if (slot.state == State::ended)
        hand_over(slot);
}

// While no operation ends. Nothing else can be in the slot meanwhile, for it is pinned.
void Queue::detach(Slot& slot) {
    std::lock_guard lock(lock_);
    if (slot.state != State::in_flight)
        return;
    slot.group->ranges.range[slot.range].data = nullptr;
    slot.call.result = -ECANCELED;
    add_ended(slot);
    signal();
}

// Lock. One of those in flight, or null.
Queue::Slot* Queue::find(std::uint64_t user_data) {
    Slot* slot = alike(user_data);
    while (slot && slot->user_data != user_data)
        slot = slot->next_alike;
    return slot;
}

// Without memory, so that it can't fail.
std::size_t Queue::cancel(std::uint64_t user_data) {
    std::size_t cancelled = 0;
    // Other threads can submit more of them meanwhile.
    for (; cancelled < slots_.size(); cancelled++) {
        Slot* slot;
        BackendRef backend;
        {
            std::lock_guard lock(lock_);
            slot = find(user_data);
            if (!slot)
                break;
            slot->pins++;
            backend = slot->use->backend;
        }
        cancel_pinned(*slot, *backend);
    }
    return cancelled;
}

// Ends groups all of whose operations were detached, for their messages are still under way.
void Queue::cancel_groups() {
    for (Group& group : groups_) {
        BackendRef backend;
        {
            std::lock_guard lock(lock_);
            if (!group.use)
                continue;
            backend = group.use->backend;
        }
        backend->cancel(group.call);
    }
}

void Queue::end() {
    for (Slot& slot : slots_) {
        BackendRef backend;
        {
            std::lock_guard lock(lock_);
            if (slot.state != State::in_flight)
                continue;
            slot.pins++;
            backend = slot.use->backend;
        }
        cancel_pinned(slot, *backend);
    }
    cancel_groups();
    std::list<UseRef> dropped;
    std::lock_guard lock(lock_);
    uses_.swap(dropped);
}

// The child must not destroy the backend, which has locks that other threads held.
void Queue::disown() {
    for (const UseRef& use : uses_)
        static_cast<void>(use->backend->disown());
    static_cast<void>(new std::list<UseRef>(std::move(uses_)));
    uses_.clear();
}

// ---- the descriptor ----

int Queue::descriptor(const BackendRef& backend, Clock::time_point& next) {
    drop_unused();
    UseRef newest = use_of(backend), use = oldest_use();
    Backend& waited_for = use ? *use->backend : *newest->backend;
    next = use ? waited_for.next_event() : never;
    const Watch watch = waited_for.watch();
    if (use && watch.fd < 0)
        next = std::min(next, Clock::now() + look_again);
    if (use && watch.is_ready)
        next = Clock::now();
    std::lock_guard lock(lock_);
    if (!epoll_) {
        Descriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
            epoll(epoll_create1(EPOLL_CLOEXEC));
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        if (!event || !epoll || epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wanted))
            return -errno;
        epoll_ = std::move(epoll);
        event_ = std::move(event);
        if (ended_)
            signal();
    }
    if (watch.fd >= 0 && (watched_ != &waited_for || watched_serial_ != watch.serial)) {
        // A closed descriptor has left the epoll by itself.
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, watch.fd, &wanted) && errno != EEXIST)
            return -errno;
        watched_ = &waited_for;
        watched_serial_ = watch.serial;
    }
    return epoll_.get();
}

} // namespace remora::lib
