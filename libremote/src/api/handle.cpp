// SPDX-License-Identifier: MIT
#include "src/api/handle.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include <pthread.h>

#include "support/failure.hpp"

namespace remora::lib {

namespace {

constexpr std::size_t async_bytes_max = std::size_t{1} << 30;
constexpr std::uint32_t async_max_default = 1024;
constexpr std::uint32_t async_max_most = 1U << 20;
constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

std::atomic<std::uint32_t> next_generation;

// Number of forks between this process and the first one.
std::atomic<unsigned> process_generation;

unsigned current_generation() {
    static const int watched = pthread_atfork(nullptr, nullptr, [] { process_generation++; });
    if (watched)
        throw Failure("no memory to watch for fork()");
    return process_generation;
}

bool are_too_long(std::span<const remote_vec> pieces) {
    std::size_t bytes = 0;
    for (const remote_vec& piece : pieces)
        bytes += std::min(piece.bytes, async_bytes_max + 1);
    return bytes > async_bytes_max;
}

// Bytes of a put that don't fit into the message with its integer and are written before it.
std::size_t before_last(const Backend& backend, std::size_t bytes) {
    return bytes - std::min<std::size_t>(bytes, backend.put_bytes());
}

// Of an operation's slot.
std::uint32_t index_of(const rop_t& rop) {
    return static_cast<std::uint32_t>(rop.token) - 1;
}

// Result of an operation that another thread may be polling, too.
int result_of(rop_t& rop) {
    return std::atomic_ref(rop.result).load(std::memory_order_acquire);
}

void set_result(rop_t& rop, int result) {
    std::atomic_ref(rop.result).store(result, std::memory_order_release);
}

} // namespace

// ---- opening and closing ----

Handle::Handle(Target target, const remote_options& options)
    : generation_(current_generation()),
      target_(std::move(target)),
      epoch_(std::make_shared<Epoch>(target_.open())),
      buffers_(*epoch_->backend) {
    std::uint32_t most = options.async_max ? options.async_max : async_max_default;
    async_max_ = std::min(most, async_max_most);
}

Handle::~Handle() {
    bool foreign = is_foreign();
    if (foreign)
        mappings_.disown();
    else
        mappings_.finish();
    // The end of an epoch ends operations in flight, whose ops are in the slots: free the slots
    // last.
    for (Slot& slot : slots_) {
        if (foreign)
            disown(slot.epoch);
        slot.epoch.reset();
    }
    if (foreign)
        disown(epoch_);
    epoch_.reset();
}

// Leaks an epoch whose backend must not be destroyed in this process.
void Handle::disown(EpochRef& epoch) {
    if (epoch && !epoch->backend->disown())
        static_cast<void>(new EpochRef(epoch));
}

bool Handle::is_foreign() const {
    return process_generation.load(std::memory_order_relaxed) != generation_;
}

// ---- epochs ----

EpochRef Handle::epoch() {
    if (target_.lasts)
        return {EpochRef(), epoch_.get()}; // which costs nothing
    std::lock_guard lock(epoch_lock_);
    return epoch_;
}

int Handle::lost(raddr_t& address, std::uint64_t& bytes) {
    EpochRef now = epoch();
    if (!now->backend->is_lost())
        return 0;
    return now->heap.tell_lost(address, bytes) ? 1 : begin_epoch(now);
}

// Unless another thread has done so.
int Handle::begin_epoch(const EpochRef& before) {
    std::lock_guard one(lost_lock_);
    if (epoch() != before)
        return 0;
    auto next = std::make_shared<Epoch>(target_.open());
    if (int error = buffers_.move_to(*next->backend))
        return error;
    std::lock_guard lock(epoch_lock_);
    before->backend->stats(past_);
    epoch_ = std::move(next);
    return 0;
}

void Handle::stats(remote_counters& counters) {
    std::lock_guard lock(epoch_lock_);
    counters = past_;
    epoch_->backend->stats(counters);
}

// ---- asynchronous operations ----

// Slots' lock. Called on the first use, for the slots are most of a handle's memory.
void Handle::make_slots() {
    slots_ = std::vector<Slot>(async_max_);
    for (std::uint32_t i = 0; i < async_max_; i++)
        slots_[i].next_free = i + 1 < async_max_ ? i + 1 : none;
}

int Handle::take_slot(std::uint32_t& index) {
    std::lock_guard lock(slots_lock_);
    try {
        if (slots_.empty())
            make_slots();
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
    index = free_;
    if (index == none)
        return -EAGAIN;
    free_ = slots_[index].next_free;
    // A token is unique among handles and over time; 0 is none.
    while (!(slots_[index].generation = ++next_generation)) {
    }
    return 0;
}

// Slots' lock.
void Handle::give_slot(std::uint32_t index) {
    slots_[index].generation = 0;
    slots_[index].next_free = free_;
    free_ = index;
}

std::span<Op> Handle::ops_of(Slot& slot, std::size_t count, std::size_t ranges) {
    slot.ranges = Ranges(ranges);
    if (count == 1)
        return {&slot.first, 1};
    std::vector<Op> more(count);
    slot.more.swap(more);
    return slot.more;
}

void Handle::begin(std::uint32_t index, EpochRef epoch, std::span<Op> ops, rop_t& rop,
                   Clock::time_point limit) {
    Slot& slot = slots_[index];
    slot.epoch = std::move(epoch);
    slot.call.begin(ops.size(), limit);
    rop.token = std::uint64_t{slot.generation} << 32 | (index + 1);
    rop.result = -EINPROGRESS;
    slot.epoch->backend->start(ops);
}

int Handle::start(std::uint8_t type, std::span<const remote_vec> pieces, rop_t& rop,
                  Clock::time_point limit) {
    if (are_too_long(pieces))
        return -EINVAL;
    EpochRef now = epoch();
    Cut cut(type, pieces, now->backend->vector_bytes());
    std::uint32_t index;
    if (int error = take_slot(index))
        return error;
    Slot& slot = slots_[index];
    std::span<Op> ops;
    try {
        ops = ops_of(slot, cut.ops(), cut.ranges());
    } catch (const std::bad_alloc&) {
        std::lock_guard lock(slots_lock_);
        give_slot(index);
        return -ENOMEM;
    }
    cut.make(ops, slot.call, slot.ranges);
    begin(index, std::move(now), ops, rop, limit);
    return 0;
}

int Handle::start_atomic(raddr_t address, std::uint32_t bytes, const rmem_op_atomic& atomic,
                         std::uint64_t* found, rop_t& rop, Clock::time_point limit) {
    std::uint32_t index;
    if (int error = take_slot(index))
        return error;
    Slot& slot = slots_[index];
    Op& op = slot.first;
    op.core.type = RMEM_ATOMIC;
    op.core.addr = address;
    op.core.len = bytes;
    op.core.atomic = atomic;
    op.call = &slot.call;
    slot.found = found;
    begin(index, epoch(), {&op, 1}, rop, limit);
    return 0;
}

int Handle::start_put(raddr_t address, std::uint8_t* data, std::size_t bytes,
                      const rmem_op_put& put, rop_t& rop, Clock::time_point limit) {
    if (bytes > async_bytes_max)
        return -EINVAL;
    EpochRef now = epoch();
    std::size_t before = before_last(*now->backend, bytes);
    std::uint32_t index;
    if (int error = take_slot(index))
        return error;
    Slot& slot = slots_[index];
    std::span<Op> ops;
    try {
        ops = ops_of(slot, ops_for(before) + 1);
    } catch (const std::bad_alloc&) {
        std::lock_guard lock(slots_lock_);
        give_slot(index);
        return -ENOMEM;
    }
    cut(ops, slot.call, RMEM_WRITE, address, data, before);
    make_put(ops.back(), slot.call, address + before, data + before,
             static_cast<u32>(bytes - before), put, before);
    begin(index, std::move(now), ops, rop, limit);
    return 0;
}

// ---- synchronous ones ----

int Handle::transfer(std::uint8_t type, std::span<const remote_vec> pieces,
                     Clock::time_point limit) {
    if (are_too_long(pieces))
        return -EINVAL;
    EpochRef now = epoch();
    Cut cut(type, pieces, now->backend->vector_bytes());
    Call call;
    Ranges ranges(cut.ranges());
    std::vector<Op> ops(cut.ops());
    cut.make(ops, call, ranges);
    call.begin(ops.size(), limit);
    now->backend->start(ops);
    now->backend->wait(call, never);
    return call.result;
}

int Handle::put(raddr_t address, std::uint8_t* data, std::size_t bytes, const rmem_op_put& put,
                Clock::time_point limit) {
    EpochRef now = epoch();
    std::size_t before = before_last(*now->backend, bytes);
    Call call;
    Op alone;
    std::vector<Op> more(before ? ops_for(before) + 1 : 0);
    std::span<Op> ops = before ? std::span(more) : std::span(&alone, 1);
    cut(ops, call, RMEM_WRITE, address, data, before);
    make_put(ops.back(), call, address + before, data + before, static_cast<u32>(bytes - before),
             put, before);
    call.begin(ops.size(), limit);
    now->backend->start(ops);
    now->backend->wait(call, never);
    return call.result;
}

// ---- polling and cancelling ----

// Slots' lock. NULL: no operation of this handle that hasn't been polled to its end.
Handle::Slot* Handle::slot_of(const rop_t& rop) {
    std::uint32_t index = index_of(rop);
    if (index >= slots_.size())
        return nullptr;
    std::uint32_t generation = slots_[index].generation;
    return generation && generation == rop.token >> 32 ? &slots_[index] : nullptr;
}

// Slots' lock. The operation has ended: give the caller the integer found, and forget its pointer.
void Handle::hand_over(Slot& slot) {
    if (slot.found && !slot.call.result)
        *slot.found = slot.first.core.atomic.found[0];
    slot.found = nullptr;
}

// Keeps the operation's slot until leave_poll(). NULL: rop has a result.
Handle::Slot* Handle::enter_poll(rop_t& rop) {
    if (result_of(rop) != -EINPROGRESS)
        return nullptr;
    std::lock_guard lock(slots_lock_);
    Slot* slot = slot_of(rop);
    if (slot)
        slot->pollers++;
    else if (result_of(rop) == -EINPROGRESS)
        set_result(rop, -EINVAL);
    return slot;
}

// Has the operation ended? Then rop gets its result. The last thread that polls it frees the slot.
bool Handle::leave_poll(rop_t& rop, Slot& slot) {
    std::vector<Op> done;
    Ranges done_ranges;
    EpochRef done_epoch;
    std::lock_guard lock(slots_lock_);
    slot.pollers--;
    if (!slot.call.ended())
        return false;
    hand_over(slot);
    set_result(rop, slot.call.result);
    if (slot.pollers)
        return true;
    slot.more.swap(done);
    slot.first.ranges = {};
    std::swap(slot.ranges, done_ranges);
    slot.epoch.swap(done_epoch);
    give_slot(static_cast<std::uint32_t>(&slot - slots_.data()));
    return true;
}

bool Handle::poll_one(rop_t& rop, Clock::time_point until) {
    Slot* slot = enter_poll(rop);
    if (!slot)
        return true;
    static_cast<void>(slot->epoch->backend->wait(slot->call, until));
    return leave_poll(rop, *slot);
}

// Another thread may poll the operation meanwhile. It frees the slot under the lock that is held
// here, and has stored the result by then.
int Handle::cancel(const rop_t& rop) {
    std::lock_guard lock(slots_lock_);
    Slot* slot = slot_of(rop);
    if (!slot)
        return rop.result == -EINPROGRESS ? -EINVAL : 0;
    slot->epoch->backend->cancel(slot->call);
    hand_over(*slot);
    return 0;
}

int Handle::poll(rop_t* rops, std::size_t count, std::uint64_t timeout_us) {
    Clock::time_point until = from_now(timeout_us);
    int error = 0;
    bool all = true;
    for (rop_t& rop : std::span(rops, count)) {
        if (!poll_one(rop, until)) {
            all = false;
            until = at_once; // the time is up for the other ops, too
        }
        int result = result_of(rop);
        if (!error && result != -EINPROGRESS)
            error = result;
    }
    return all ? error : -EAGAIN;
}

// Operations may be of several epochs, and a wait is for one backend. Prefers a lost one, whose
// operations all end soon.
int Handle::poll_any(std::span<rop_t* const> rops, std::uint64_t timeout_us) {
    auto has_result = [](rop_t* rop) { return result_of(*rop) != -EINPROGRESS; };
    auto slot_at = [this](rop_t* rop) -> Slot& { return slots_[index_of(*rop)]; };
    std::size_t entered = 0;
    if (std::ranges::none_of(rops, has_result)) {
        while (entered < rops.size() && enter_poll(*rops[entered]))
            entered++;
    }
    auto mine = rops.first(entered);
    auto has_ended = [&](rop_t* rop) { return slot_at(rop).call.ended(); };
    if (entered == rops.size()) {
        auto lost = std::ranges::find_if(
            mine, [&](rop_t* rop) { return slot_at(rop).epoch->backend->is_lost(); });
        slot_at(lost == mine.end() ? mine.back() : *lost)
            .epoch->backend->wait_until([&] { return std::ranges::any_of(mine, has_ended); },
                                        from_now(timeout_us));
    }
    for (rop_t* rop : mine)
        leave_poll(*rop, slot_at(rop));
    auto ended = std::ranges::find_if(rops, has_result);
    return ended == rops.end() ? -EAGAIN : static_cast<int>(ended - rops.begin());
}

} // namespace remora::lib
