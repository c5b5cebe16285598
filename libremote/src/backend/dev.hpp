// SPDX-License-Identifier: MIT
/*
 * The kernel module's device, /dev/rmemN (uapi/remora_rmem_io.h): the protocol's client is in the
 * kernel, and so are its windows, which all programs of the machine share.
 *
 *   start:  lock { order: can it begin? -> SQE } -> io_uring_enter
 *   wait:   one of the waiters: spin, then io_uring_enter -> CQEs -> lock { ended; order }
 *
 * The kernel reads and writes the program's buffers itself. Where the system gives a program no
 * io_uring, each operation is an ioctl() of the thread that starts it, and has ended when that
 * returns.
 *
 * To cancel operations, or when their limit has come, the library names their call to the kernel.
 * The kernel cancels them and reports their end as usual.
 */
#pragma once

#include <map>
#include <string>
#include <utility>

#include <liburing.h>

#include "src/backend/queued.hpp"
#include "support/descriptor.hpp"

namespace remora::lib {

class Dev final : public Queued {
public:
    // Throws Failure: no such device, not to be opened.
    explicit Dev(const std::string& path);
    ~Dev() override;

    void start(std::span<Op> ops) override;
    void start_all(std::span<Call* const> calls) override;
    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              Region& region) override;
    int dealloc(const Region& region) override;
    int keep_buffer(unsigned number, std::span<std::uint8_t> memory) override;
    void drop_buffer(unsigned number) override;
    void stats(remote_counters& counters) override;
    std::uint64_t page_bytes() const override { return page_bytes_; }
    std::uint32_t put_bytes() const override { return put_bytes_; }
    std::uint32_t vector_bytes() const override { return vector_bytes_; }
    bool can_allocate() const override { return false; } // only by ioctl(), without limit
    void info(remote_node& node, Clock::time_point) override;
    bool disown() override;
    Watch watch() override { return {.fd = has_ring_ ? ring_.ring_fd : -1}; }

private:
    void begin(Op& op) noexcept override;
    void flush() noexcept override;
    bool expects() const override { return under_way_ > 0; }
    void receive(Lock& lock, Clock::time_point until) noexcept override;
    void take_in() noexcept override;
    void take_back(Call& call) noexcept override;
    bool starter_executes() const override { return !has_ring_; }

    void submit(Op& op);
    const std::uint16_t* buffer_of(const Op& op) const;
    void begin_later(Op& op);
    void end_later(const Call* call);
    bool listen(Clock::time_point until);
    int by_ioctl(Op& op, Clock::time_point limit);
    int steps_by_ioctl(Op& op, Clock::time_point limit);
    int pause(const Op& op, Clock::time_point until, Clock::time_point limit);
    void enter_all(std::span<Op> ops);
    template <typename Request>
    int carry_out(Op& op, Clock::time_point limit, Op* put, Request request);

    Descriptor device_;
    std::uint64_t page_bytes_ = 0, memory_bytes_ = 0;
    std::uint32_t put_bytes_ = 0;
    std::uint32_t vector_bytes_ = 0;
    bool has_ring_ = false;
    io_uring ring_{}; // submissions: under the lock; completions: of the receiving thread
    std::uint64_t spin_ns_ = 0;
    unsigned under_way_ = 0; // in the ring, up to its size
    Op* later_ = nullptr;    // ops for which the ring has no room yet
    Op* last_ = nullptr;
    bool closing_ = false; // no op begins any more
    // Registered buffers by their end: begin, and number in the ring.
    std::map<const std::uint8_t*, std::pair<const std::uint8_t*, std::uint16_t>> buffers_;
    bool has_buffers_ = false;
};

} // namespace remora::lib
