// SPDX-License-Identifier: MIT
#include "src/api/handle.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <utility>

#include <pthread.h>

#include "src/backend/slide.hpp"
#include "support/failure.hpp"

namespace remora::lib {

namespace {

constexpr std::size_t async_bytes_max = std::size_t{1} << 30;
// Messages of a synchronous copy that counts as one operation (remote.h).
constexpr std::size_t copies_in_flight = (1 << 20) / copy_op_bytes_max;
// Number of forks between this process and the first one.
std::atomic<unsigned> process_generation;

unsigned current_generation() {
    static const int watched = pthread_atfork(nullptr, nullptr, [] { process_generation++; });
    if (watched)
        throw Failure(ENOMEM, "no memory to watch for fork()");
    return process_generation;
}

bool are_too_long(std::span<const remote_vec> pieces) {
    std::size_t bytes = 0;
    for (const remote_vec& piece : pieces)
        bytes += std::min(piece.bytes, async_bytes_max + 1);
    return bytes > async_bytes_max;
}

} // namespace

// ---- opening and closing ----

Handle::Handle(Target target, const remote_options& options)
    : generation_(current_generation()),
      target_(std::move(target)),
      epoch_(std::make_shared<Epoch>(target_.open(never))),
      backend_(epoch_->backend.get()),
      buffers_(*epoch_->backend),
      call_timeout_us_(options.call_timeout_us) {}

Handle::~Handle() {
    bool foreign = is_foreign();
    if (foreign)
        mappings_.disown();
    else
        mappings_.finish();
    for (Queue* queue : queues_)
        foreign ? queue->disown() : queue->end();
    if (foreign)
        disown(epoch_);
    epoch_.reset();
}

// Leaks an epoch whose backend must not be destroyed in this process.
void Handle::disown(EpochRef& epoch) {
    if (epoch && !epoch->backend->disown())
        static_cast<void>(new EpochRef(epoch));
}

void Handle::leave_to_parent() {
    static_cast<void>(backend_.load()->disown());
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
    auto next = std::make_shared<Epoch>(target_.open(limit()));
    if (int error = buffers_.move_to(*next->backend))
        return error;
    std::lock_guard lock(epoch_lock_);
    before->backend->stats(past_);
    epoch_ = std::move(next);
    backend_ = epoch_->backend.get();
    return 0;
}

void Handle::stats(remote_counters& counters) {
    std::lock_guard lock(epoch_lock_);
    counters = past_;
    epoch_->backend->stats(counters);
}

void Handle::info(remote_node& node) {
    epoch()->backend->info(node, limit());
}

void Handle::add(Queue& queue) {
    std::lock_guard lock(queues_lock_);
    queues_.insert(&queue);
}

void Handle::remove(Queue& queue) {
    std::lock_guard lock(queues_lock_);
    queues_.erase(&queue);
}

// ---- synchronous ones ----

int Handle::transfer(Kind kind, std::span<const remote_vec> pieces, Clock::time_point limit) {
    if (are_too_long(pieces))
        return -EINVAL;
    EpochRef now = epoch();
    Cut cut(kind, pieces, now->backend->vector_bytes());
    Call call;
    Ranges ranges(cut.ranges());
    std::vector<Op> ops(cut.ops());
    cut.make(ops, call, ranges);
    call.begin(ops.size(), limit);
    now->backend->start(ops);
    now->backend->wait(call, never);
    return call.result;
}

int Handle::put(raddr_t address, std::uint8_t* data, std::size_t bytes, const remote_signal& signal,
                Clock::time_point limit) {
    EpochRef now = epoch();
    std::size_t before = before_put(bytes, now->backend->put_bytes());
    Call call;
    Op alone;
    std::vector<Op> more(before ? ops_for(before) + 1 : 0);
    std::span<Op> ops = before ? std::span(more) : std::span(&alone, 1);
    cut(ops, call, Kind::write, address, data, before);
    make_put(ops.back(), call, address + before, data + before,
             static_cast<std::uint32_t>(bytes - before), signal, before);
    call.begin(ops.size(), limit);
    now->backend->start(ops);
    now->backend->wait(call, never);
    return call.result;
}

int Handle::copy(raddr_t to, raddr_t from, std::uint64_t bytes, Clock::time_point limit) {
    EpochRef now = epoch();
    return slide<copies_in_flight>(
        *now->backend, bytes, copy_op_bytes_max, limit,
        [&](Op& op, Call& call, std::uint64_t offset, std::uint64_t piece) {
            cut_copy({&op, 1}, call, to + offset, from + offset, piece);
        });
}

int Handle::name(Kind kind, const char* name, raddr_t address, Region& region,
                 Clock::time_point limit) {
    EpochRef now = epoch();
    const RegionName kept(name);
    Call call;
    Op op;
    make_named(op, call, kind, kept, address);
    call.begin(1, limit);
    now->backend->start({&op, 1});
    now->backend->wait(call, never);
    region = op.region;
    return call.result;
}

} // namespace remora::lib
