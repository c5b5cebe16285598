// SPDX-License-Identifier: GPL-2.0
#include "remora-node/slow.hpp"

#include <cstring>
#include <utility>

#include "remora-node/clock.hpp"

namespace remora::daemon {

namespace {

SlowPath::Job& job_of(rmem_job& job) {
    return reinterpret_cast<SlowPath::Job&>(job);
}

} // namespace

SlowPath::SlowPath(node::Host& host)
    : host_(host), jobs_(RMEM_QUEUE_JOBS), lanes_(rmem_queue_bytes(host.config().spaces_max)) {
    rmem_queue_init(&queue_, lanes_.data(), host.config().spaces_max);
    for (Job& job : jobs_)
        rmem_queue_give(&queue_, &job.core);
}

SlowPath::Added SlowPath::add(const rmem_head& head, const Path& path,
                              std::span<const std::uint8_t> payload) {
    bool dropped = false;
    {
        std::lock_guard lock(lock_);
        rmem_job* job = rmem_queue_add(&queue_, host_.core(), &head, &dropped);
        if (!job)
            return Added::no_room;
        std::memcpy(&job->payload, payload.data(), payload.size());
        job_of(*job).path = path;
    }
    added_.notify_one();
    return dropped ? Added::for_another : Added::waits;
}

SlowPath::Job* SlowPath::take(Take whose) {
    std::lock_guard lock(lock_);
    rmem_job* job = whose(&queue_);
    return job ? &job_of(*job) : nullptr;
}

void SlowPath::let_go(Job& job, void (*how)(rmem_queue*, rmem_job*)) {
    std::lock_guard lock(lock_);
    how(&queue_, &job.core);
}

void SlowPath::add(Errand errand) {
    {
        std::lock_guard lock(lock_);
        errands_.push_back(std::move(errand));
    }
    added_.notify_one();
}

void SlowPath::run_errands(const Events& events) {
    std::vector<Errand> errands;
    {
        std::lock_guard lock(lock_);
        errands.swap(errands_);
    }
    for (const Errand& errand : errands)
        errand([&](const rmem_node_call& under_way) { execute_between(under_way, events); });
}

void SlowPath::serve(std::chrono::milliseconds timeout, const Events& events) {
    {
        std::unique_lock lock(lock_);
        auto ready = [this] {
            return stopped_ || poked_ || !errands_.empty() || rmem_queue_any(&queue_);
        };
        if (timeout == timeout.max())
            added_.wait(lock, ready);
        else
            added_.wait_for(lock, timeout, ready);
        poked_ = false;
        if (stopped_)
            return;
    }
    run_errands(events);
    for (std::uint32_t spent = 0; spent < RMEM_QUEUE_BRIEF;) {
        Job* job = take(rmem_queue_take_brief);
        if (!job)
            break;
        spent += execute(*job, events);
    }
    if (Job* job = take(rmem_queue_take_work))
        execute(*job, events);
}

std::uint32_t SlowPath::execute(Job& job, const Events& events) {
    bool executed = host_.call(job.core, job.path.peer, now_ns,
                               [&](const rmem_node_call& call) { execute_between(call, events); });
    (executed ? events.ended : events.orphan)(job);
    const std::uint32_t cost = rmem_queue_cost(&job.core);
    let_go(job, rmem_queue_give);
    return cost;
}

void SlowPath::execute_between(const rmem_node_call& under_way, const Events& events) {
    if (under_way.divisible)
        execute_brief(under_way, events);
    events.between();
}

void SlowPath::execute_brief(const rmem_node_call& under_way, const Events& events) {
    using enum node::Host::Entered;
    for (std::uint32_t spent = 0; spent < RMEM_QUEUE_BRIEF;) {
        Job* job = take(rmem_queue_take_brief);
        if (!job)
            return;
        const auto entered = host_.enter(job->core, job->path.peer, now_ns(), under_way);
        spent += rmem_queue_cost(&job->core);
        switch (entered) {
        case executed:
            events.ended(*job);
            break;
        case space_gone:
            events.orphan(*job);
            break;
        case must_wait:
            let_go(*job, rmem_queue_put_off);
            continue;
        }
        let_go(*job, rmem_queue_give);
    }
}

void SlowPath::poke() {
    {
        std::lock_guard lock(lock_);
        if (std::exchange(poked_, true))
            return;
    }
    added_.notify_one();
}

void SlowPath::stop() {
    {
        std::lock_guard lock(lock_);
        stopped_ = true;
    }
    added_.notify_all();
}

bool SlowPath::is_stopped() {
    std::lock_guard lock(lock_);
    return stopped_;
}

} // namespace remora::daemon
