// SPDX-License-Identifier: GPL-2.0
#include "remora-node/link.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <span>
#include <thread>

#include <remote/queue.h>
#include <remote/remote.hpp>

#include "remora-node/tries.hpp"
#include "support/failure.hpp"

namespace remora::daemon {

namespace {

using Clock = Tries::Clock;

// A try waits so long for its answer.
constexpr std::uint64_t try_us = 1'000'000;
constexpr std::uint32_t depth = 1024; // of 256 calls with 16 forwards few are under way at once
// After an error of the queue itself.
constexpr std::chrono::milliseconds pause{20};

// The time of remote_queue_wait().
std::uint64_t us_until(Clock::time_point until) {
    if (until == Clock::time_point::max())
        return UINT64_MAX;
    const auto left = std::chrono::ceil<std::chrono::microseconds>(until - Clock::now());
    return static_cast<std::uint64_t>(std::max<std::int64_t>(left.count(), 0));
}

// The thread takes the answers. It sleeps until one comes, or until a forward is to be sent again.
class RemoteLink final : public Link {
public:
    RemoteLink(const std::string& target, const ForwardEnd& ended) : tries_(ended) {
        remote_options options{};
        options.size = sizeof(options);
        options.timeout_us = try_us;
        auto node = remote::handle::open(target.c_str(), &options);
        if (!node)
            throw Failure("can't open the link to '{}': {}", target, remote_why());
        node_ = std::move(*node);
        remote_queue_options queue{sizeof(queue), depth, 0};
        if (int error = remote_queue_open(&queue_, node_.get(), &queue))
            throw Failure("no queue for the link to '{}': {}", target, remote_strerror(error));
        thread_ = std::thread([this] { run(); });
    }
    ~RemoteLink() override {
        {
            std::lock_guard lock(lock_);
            stopped_ = true;
            // So that the thread's wait ends.
            tries_.each(
                [&](Tries::Try& each) { (void)remote_queue_cancel(queue_, name_of(each)); });
        }
        changed_.notify_all();
        thread_.join();
        remote_queue_close(queue_);
    }

    void send(std::shared_ptr<Forward> forward) override {
        {
            std::lock_guard lock(lock_);
            const auto now = Clock::now();
            tries_.add(std::move(forward), now);
            start(now);
        }
        changed_.notify_all();
    }

private:
    static std::uint64_t name_of(const Tries::Try& each) {
        return reinterpret_cast<std::uint64_t>(&each);
    }

    // lock_.
    void start(Clock::time_point now) {
        tries_.start(now, [&](Tries::Try& each) {
            remote_op op = remote_op_call(&each.function, name_of(each));
            op.timeout_us = try_us;
            return !lost_ && remote_queue_submit(queue_, &op, 1) == 1;
        });
    }

    void run() {
        std::unique_lock lock(lock_);
        while (!stopped_) {
            if (tries_.under_way())
                take(lock);
            else
                changed_.wait_until(lock, tries_.next());
            if (stopped_ || Clock::now() < tries_.next())
                continue;
            if (lost_)
                accept_loss(lock);
            start(Clock::now());
        }
    }

    void take(std::unique_lock<std::mutex>& lock) {
        const auto until = tries_.next();
        lock.unlock();
        std::array<remote_completion, 32> done;
        const int count = remote_queue_wait(queue_, done.data(), done.size(), 1, us_until(until));
        if (count < 0)
            std::this_thread::sleep_for(pause);
        lock.lock();
        const auto now = Clock::now();
        for (const remote_completion& each :
             std::span(done).first(static_cast<std::size_t>(std::max(count, 0)))) {
            if (stopped_)
                return; // the forwards' calls have ended
            lost_ |= each.result == -ESTALE;
            tries_.end(*reinterpret_cast<Tries::Try*>(each.user_data), each.result, now);
        }
    }

    // The link holds no memory of the node, so none is lost.
    void accept_loss(std::unique_lock<std::mutex>& lock) {
        lock.unlock();
        raddr_t address;
        std::uint64_t bytes;
        int told;
        while ((told = remote_lost(node_.get(), &address, &bytes)) == 1) {
        }
        lock.lock();
        lost_ = told < 0;
    }

    remote::handle node_;
    remote_queue_t* queue_ = nullptr;
    std::mutex lock_; // all below; before the lock of Calls
    std::condition_variable changed_;
    Tries tries_;
    bool stopped_ = false;
    bool lost_ = false; // the node has restarted, and remote_lost() wasn't through since
    std::thread thread_;
};

} // namespace

Links open_links(const std::vector<std::string>& texts, const ForwardEnd& ended) {
    Links links;
    for (const std::string& text : texts) {
        const std::size_t equals = text.find('=');
        if (equals == std::string::npos || !equals || equals + 1 == text.size())
            throw Misuse("'{}' is no link: write NAME=TARGET, as in "
                         "next=udp:HOST,key=FILE",
                         text);
        const std::string name = text.substr(0, equals);
        if (links.contains(name))
            throw Misuse("there are two links of the name '{}': leave one out", name);
        links[name] = std::make_unique<RemoteLink>(text.substr(equals + 1), ended);
    }
    return links;
}

} // namespace remora::daemon
