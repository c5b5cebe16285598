// SPDX-License-Identifier: MIT
#include "src/mmap/mapping.hpp"

#include <cerrno>
#include <system_error>

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "support/thread.hpp"

namespace remora::lib {

namespace {

Descriptor event_descriptor() {
    Descriptor fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!fd)
        throw std::system_error(errno, std::generic_category(), "eventfd");
    return fd;
}

} // namespace

Mapping::Mapping(Backend& backend, std::uint64_t address, std::size_t bytes, bool writable,
                 const PagerLimits& limits)
    : pager_(backend, address, bytes, writable, limits),
      range_(memory(), bytes),
      wakeup_(event_descriptor()),
      scratch_(new Scratch),
      // A handler might touch the mapping.
      thread_(thread_without_signals([this] { run(); })) {}

Mapping::~Mapping() {
    finish();
}

// ---- the thread ----

void Mapping::run() {
    pthread_setname_np(pthread_self(), "remote_mmap");
    lend_scratch(scratch_.get());
    for (bool is_last = false; !is_last;) {
        pager_.work(Clock::time_point::max());
        Request* request = take_request();
        if (!request) {
            wait_for_work();
            continue;
        }
        is_last = request->is_last;
        int result = pager_.write_back(request->first, request->last);
        std::lock_guard lock(lock_);
        request->result = result;
        request->done = true;
        done_.notify_all();
    }
    // Transfers in flight use this object's buffers.
    while (pager_.is_busy())
        pager_.work(Clock::time_point::max());
    lend_scratch(nullptr);
}

void Mapping::wait_for_work() {
    if (pager_.is_busy())
        return;
    pollfd ready[] = {{pager_.userfault().fd(), POLLIN, 0}, {wakeup_.get(), POLLIN, 0}};
    poll(ready, 2, -1);
    eventfd_t count;
    eventfd_read(wakeup_.get(), &count);
}

Mapping::Request* Mapping::take_request() {
    std::lock_guard lock(lock_);
    Request* request = requests_;
    if (request)
        requests_ = request->next;
    return request;
}

// ---- requests ----

void Mapping::submit(Request& request) {
    Request** last = &requests_;
    while (*last)
        last = &(*last)->next;
    *last = &request;
    eventfd_write(wakeup_.get(), 1);
}

int Mapping::sync(const void* from, std::size_t bytes) {
    auto begin = static_cast<std::size_t>(static_cast<const std::uint8_t*>(from) - memory());
    if (!bytes || begin >= this->bytes() || bytes > this->bytes() - begin)
        return -EINVAL;
    Request request{page_of(begin), page_of(begin + bytes - 1), false};
    std::unique_lock lock(lock_);
    if (finishing_)
        return -EINVAL;
    submit(request);
    done_.wait(lock, [&] { return request.done; });
    return request.result;
}

void Mapping::begin_finish() {
    std::lock_guard lock(lock_);
    if (finishing_)
        return;
    finishing_ = true;
    finish_ = {0, page_of(bytes() - 1), true};
    submit(finish_);
}

int Mapping::finish() {
    begin_finish();
    if (thread_.joinable())
        thread_.join();
    return finish_.result;
}

void Mapping::disown() {
    pager_.userfault().disown();
    wakeup_ = Descriptor();
}

} // namespace remora::lib
