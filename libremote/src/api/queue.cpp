// SPDX-License-Identifier: MIT
// queue.h's functions.
#include "remote/queue.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/api/checked.hpp"
#include "src/async/queue.hpp"
#include "support/fork.hpp"
#include "support/names.hpp"

using remora::lib::BackendRef;
using remora::lib::Clock;
using remora::lib::EpochRef;
using remora::lib::guarded;
using remora::lib::Handle;
using remora::lib::handle_of;
using remora::lib::Queue;

namespace {

struct Opened {
    Opened(remote_t* its, std::uint32_t depth) : r(its), queue(depth) {}

    remote_t* r;
    Queue queue;
};

constinit remora::Names<Opened, remote_queue_t> names;

// Throws std::bad_alloc.
remote_queue_t* name_queue(std::unique_ptr<Opened> opened) {
    static const remora::AtFork watched([] { names.lock(); }, [] { names.unlock(); },
                                        [] { names.unlock(); });
    return names.add(std::move(opened));
}

// The queue of that name, and the C functions' result if it can't be used.
struct Found {
    Opened* opened = nullptr;
    int error = -EBADF;
};

Found find(const remote_queue_t* q) {
    if (!q)
        return {nullptr, -EINVAL};
    Opened* opened = names.find(q);
    return opened ? Found{opened, remora::lib::check(opened->r)} : Found{};
}

constexpr std::uint32_t depth_default = 256;

BackendRef backend_of(const remote_t* r) {
    return remora::lib::backend_of(handle_of(r)->epoch());
}

// Operations of another version's program, as this library knows them, up to the first one that
// sets an unknown field.
std::vector<remote_op> shortened(const remote_op* ops, std::size_t count) {
    std::vector<remote_op> known(count);
    const auto* from = reinterpret_cast<const unsigned char*>(ops);
    const std::size_t size = ops->size;
    for (std::size_t n = 0; n < count; n++, from += size) {
        remote_op& op = known[n];
        const std::size_t bytes = std::min(size, sizeof(op));
        std::span tail(from + bytes, size - bytes);
        if (std::ranges::any_of(tail, [](unsigned char byte) { return byte != 0; })) {
            known.resize(n);
            break;
        }
        std::memcpy(&op, from, bytes);
        op.size = op.size == size ? sizeof(op) : 0;
    }
    return known;
}

// Number of the first ones that are valid, without a row of linked ones that isn't whole, or is too
// long. error: why it isn't all of them.
std::size_t count_valid(const remote_t* r, std::span<const remote_op> ops, int& error) {
    std::size_t valid = 0, linked = 0;
    for (error = 0; valid < ops.size(); valid++) {
        const remote_op& op = ops[valid];
        error = op.size == sizeof(op) ? remora::lib::check_op(r, op) : -EINVAL;
        linked = op.flags & REMOTE_OP_LINK ? linked + 1 : 0;
        if (error || linked >= REMOTE_LINKED_MAX)
            break;
    }
    const std::size_t whole = Queue::whole_rows(ops.first(valid));
    error = error ? error : -EINVAL;
    return whole;
}

int submit(Opened& q, std::span<const remote_op> ops) {
    int error = 0;
    const std::size_t valid = count_valid(q.r, ops, error);
    if (!valid)
        return error;
    const EpochRef epoch = handle_of(q.r)->epoch();
    return q.queue.submit(remora::lib::backend_of(epoch), *epoch, ops.first(valid));
}

void close(Opened& q) {
    Handle* handle = handle_of(q.r);
    if (!handle)
        return; // remote_close() has ended its operations
    if (handle->is_foreign()) {
        q.queue.disown();
        return;
    }
    handle->remove(q.queue);
    q.queue.end();
}

} // namespace

REMOTE_API int remote_queue_open(remote_queue_t** q, remote_t* r,
                                 const remote_queue_options* options) {
    if (int error = q ? remora::lib::check(r) : -EINVAL)
        return error;
    return remora::lib::opening([&] {
        const remote_queue_options chosen =
            remora::lib::options_of(options, "remote_queue_options");
        if (chosen.depth > Queue::depth_max || chosen.reserved)
            throw remora::Misuse("a queue's depth is at most {}", Queue::depth_max);
        auto made = std::make_unique<Opened>(r, chosen.depth ? chosen.depth : depth_default);
        Queue& queue = made->queue;
        remote_queue_t* name = name_queue(std::move(made));
        try {
            handle_of(r)->add(queue);
        } catch (...) {
            names.take(name);
            throw;
        }
        *q = name;
        return 0;
    });
}

REMOTE_API void remote_queue_close(remote_queue_t* q) {
    guarded([&] {
        if (std::unique_ptr<Opened> closed = names.take(q))
            close(*closed);
        return 0;
    });
}

REMOTE_API int remote_queue_submit(remote_queue_t* q, const remote_op* ops, size_t count) {
    if (!ops || !count || count > INT_MAX || ops->size < remora::lib::bytes_of_first<remote_op> ||
        ops->size > remora::lib::structure_bytes_max)
        return -EINVAL;
    const auto [opened, error] = find(q);
    if (error)
        return error;
    return guarded([&, &to = *opened] {
        if (ops->size == sizeof(remote_op))
            return submit(to, {ops, count});
        std::vector<remote_op> known = shortened(ops, count);
        return known.empty() ? -EINVAL : submit(to, known);
    });
}

REMOTE_API int remote_execute(remote_t* r, const remote_op* op) {
    if (!op || op->size < remora::lib::bytes_of_first<remote_op> ||
        op->size > remora::lib::structure_bytes_max)
        return -EINVAL;
    return guarded([&] {
        std::vector<remote_op> known;
        if (op->size != sizeof(*op)) {
            known = shortened(op, 1);
            op = known.data();
        }
        if (!op || op->flags & REMOTE_OP_LINK)
            return -EINVAL;
        const int error = remora::lib::check_op(r, *op);
        return error ? error : handle_of(r)->execute(*op);
    });
}

REMOTE_API int remote_queue_wait(remote_queue_t* q, remote_completion* completions, size_t max,
                                 size_t at_least, uint64_t timeout_us) {
    if ((!completions && max) || max > INT_MAX || at_least > max)
        return -EINVAL;
    const auto [opened, error] = find(q);
    // A closed handle's queue still gives completions of operations that have ended.
    if (!opened || error == -ECHILD)
        return error;
    int taken = guarded([&, &from = *opened] {
        return static_cast<int>(
            from.queue.wait({completions, max}, at_least, remora::lib::from_now(timeout_us)));
    });
    return taken ? taken : error;
}

REMOTE_API int remote_queue_cancel(remote_queue_t* q, uint64_t user_data) {
    const auto [opened, error] = find(q);
    if (error)
        return error;
    return guarded([&, &of = *opened] {
        std::size_t cancelled = of.queue.cancel(user_data);
        return cancelled ? static_cast<int>(cancelled) : -ENOENT;
    });
}

REMOTE_API int remote_queue_fd(remote_queue_t* q, uint64_t* next_us) {
    if (!next_us)
        return -EINVAL;
    const auto [opened, error] = find(q);
    if (error)
        return error;
    return guarded([&, &of = *opened] {
        Clock::time_point next;
        int fd = of.queue.descriptor(backend_of(of.r), next);
        *next_us = remora::lib::us_until(next);
        return fd;
    });
}
