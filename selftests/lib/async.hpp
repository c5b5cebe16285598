// SPDX-License-Identifier: GPL-2.0
// Asynchronous operations one by one, for tests of what operations do to each other. Each handle
// has a queue for them, which any thread may use.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "remote/queue.h"

namespace remora::test {

struct AsyncOp {
    std::uint64_t token = 0;
    int result = -EINPROGRESS; // until it's polled after its end
};

// Depth of the handle's queue, before its first operation.
void set_depth(remote_t* r, std::uint32_t depth);

// As the synchronous calls. -EAGAIN: the queue is full.
int read_async(remote_t* r, raddr_t address, void* buffer, std::size_t bytes, AsyncOp* op);
int write_async(remote_t* r, raddr_t address, const void* buffer, std::size_t bytes, AsyncOp* op);
int copy_async(remote_t* r, raddr_t to, raddr_t from, std::size_t bytes, AsyncOp* op);
int publish_async(remote_t* r, const char* name, raddr_t address, AsyncOp* op);
// found: the address, then the bytes.
int lookup_async(remote_t* r, const char* name, std::uint64_t* found, AsyncOp* op);
int readv_async(remote_t* r, const remote_vec* pieces, std::size_t count, AsyncOp* op);
int writev_async(remote_t* r, const remote_vec* pieces, std::size_t count, AsyncOp* op);
int fetch_async(remote_t* r, raddr_t address, std::size_t bytes, remote_change change,
                std::uint64_t value, std::uint64_t* found, AsyncOp* op);
// *expected becomes the integer found; the exchange took place if it hasn't changed.
int cas_async(remote_t* r, raddr_t address, std::size_t bytes, std::uint64_t* expected,
              std::uint64_t desired, AsyncOp* op);
int put_async(remote_t* r, raddr_t address, const void* buffer, std::size_t bytes,
              const remote_signal* signal, AsyncOp* op);

// Waits until all have ended. -EAGAIN: some haven't. Else the first error.
int poll_all(remote_t* r, AsyncOp* ops, std::size_t count, std::uint64_t timeout_us);
// The index of the first that has ended; waits for one. -EAGAIN: none has.
int poll_any(remote_t* r, AsyncOp* const* ops, std::size_t count, std::uint64_t timeout_us);
int cancel(remote_t* r, const AsyncOp* op);

// The synchronous call, or, within a Within, the asynchronous one and its end.
int read_in_time(remote_t* r, raddr_t address, void* buffer, std::size_t bytes);
int write_in_time(remote_t* r, raddr_t address, const void* buffer, std::size_t bytes);
int add_in_time(remote_t* r, raddr_t address, std::uint64_t value, std::uint64_t* found);
// 0 or an error; *expected becomes the integer found.
int cas_in_time(remote_t* r, raddr_t address, std::uint64_t* expected, std::uint64_t desired);

// The timeout of the operations that this thread starts meanwhile; 0: none.
class Within {
public:
    explicit Within(std::uint64_t us);
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    ~Within();
    void set(std::uint64_t us);

private:
    std::uint64_t before_;
};

} // namespace remora::test
