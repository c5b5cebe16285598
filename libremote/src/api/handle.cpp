// SPDX-License-Identifier: MIT
#include "src/api/handle.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "src/backend/build.hpp"
#include "src/backend/slide.hpp"
#include "support/fork.hpp"

namespace remora::lib {

namespace {

// Messages of a synchronous copy that counts as one operation (remote.h).
constexpr std::size_t copies_in_flight = (1 << 20) / copy_op_bytes_max;
// Number of forks between this process and the first one.
std::atomic<unsigned> process_generation;

unsigned current_generation() {
    static const AtFork watched(nullptr, nullptr, [] { process_generation++; });
    return process_generation;
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
    const EpochRef now = epoch();
    now->backend->info(node, limit());
    node.result_bytes = now->backend->can_run() ? now->backend->vector_bytes() : 0;
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

int Handle::execute(const remote_op& op, Clock::time_point limit) {
    EpochRef now = epoch();
    Call call;
    Built built;
    built.make(op, *now->backend, *now, call,
               std::min(limit, op.timeout_us ? from_now(op.timeout_us) : never));
    now->backend->start(call.ops);
    now->backend->wait(call, never);
    return built.hand_over(call.result);
}

int Handle::copy(raddr_t to, raddr_t from, std::uint64_t bytes, Clock::time_point limit) {
    EpochRef now = epoch();
    return slide<copies_in_flight>(
        *now->backend, bytes, copy_op_bytes_max, limit,
        [&](Op& op, Call& call, std::uint64_t offset, std::uint64_t piece) {
            cut_copy({&op, 1}, call, to + offset, from + offset, piece);
        });
}

} // namespace remora::lib
