// SPDX-License-Identifier: GPL-2.0
#include "remora-node/tries.hpp"

#include <algorithm>
#include <utility>

#include "common/transient.hpp"

namespace remora::daemon {

namespace {

// From an error to the next tries.
constexpr std::chrono::milliseconds pause{20};

} // namespace

void Tries::add(std::shared_ptr<Forward> forward, Clock::time_point now) {
    auto made = std::make_unique<Try>();
    made->deadline = now + std::chrono::milliseconds(RMEM_FORWARD_MS_MAX);
    made->function.offload = forward->offload;
    made->function.function = forward->function;
    made->function.args = forward->args.data();
    made->function.args_bytes = forward->args.size();
    made->forward = std::move(forward);
    waiting_.push_back(made.get());
    all_.emplace(made.get(), std::move(made));
}

void Tries::start(Clock::time_point now, const std::function<bool(Try&)>& begin) {
    if (now < not_before_)
        return;
    std::deque<Try*> waiting;
    for (Try* each : std::exchange(waiting_, {})) {
        if (now >= each->deadline)
            finish(*each, -ETIMEDOUT);
        else
            waiting.push_back(each);
    }
    for (; !waiting.empty(); waiting.pop_front()) {
        Try& first = *waiting.front();
        first.function.result = first.answer.data();
        first.function.result_bytes = first.answer.size();
        lacks_room_ = !begin(first);
        if (lacks_room_)
            break;
        under_way_++;
    }
    waiting_ = std::move(waiting);
    if (!waiting_.empty() && !under_way_)
        not_before_ = now + pause;
}

void Tries::end(Try& which, int result, Clock::time_point now) {
    under_way_--;
    lacks_room_ = false;
    if (is_transient(result) && now < which.deadline) {
        not_before_ = now < not_before_ ? not_before_ : now + pause;
        waiting_.push_back(&which);
        return;
    }
    if (is_transient(result))
        result = -ETIMEDOUT;
    if (result == -EREMOTEIO && which.function.detail)
        result = -static_cast<int>(which.function.detail);
    finish(which, std::min(result, 0));
}

void Tries::finish(Try& which, int error) {
    ended_(*which.forward, error, which.answer.data());
    all_.erase(&which);
}

Tries::Clock::time_point Tries::next() const {
    if (waiting_.empty() || (lacks_room_ && under_way_))
        return Clock::time_point::max();
    return not_before_;
}

void Tries::each(const std::function<void(Try&)>& visit) const {
    for (const auto& [key, made] : all_)
        visit(*key);
}

} // namespace remora::daemon
