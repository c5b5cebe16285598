// SPDX-License-Identifier: MIT
/*
 * The memory node inside the process: the core by function calls, no messages, no threads.
 *
 *   a call: the locks of all its pages { of each piece: rmem_node_access(), copy }
 *   remote_free:  the locks of the region's pages { the call that takes them from the table }
 *
 * A page's lock, one of 64 that all pages share, serialises calls on the page. A call that needs
 * several locks takes them in a fixed order. A call of at most 1 MiB is therefore atomic for all
 * others, as in the backends where calls wait in order. A call has ended when it returns, so limits
 * of time are ignored. Only a call that waits for a lock (lock.h) observes its limit, without those
 * of pages meanwhile. A thread that has held every lock once has seen the end of all earlier
 * calls. The thread that finds the pool of zeroed pages half empty zeroes freed pages: no call
 * copies from them any more.
 */
#pragma once

#include <array>
#include <cerrno>
#include <mutex>
#include <thread>

#include "node/host.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/stats.hpp"

namespace remora::lib {

class Embedded final : public Backend {
public:
    // page_bytes: a power of two. Throws Failure.
    Embedded(std::uint64_t memory_bytes, std::uint64_t page_bytes);

    int transfer(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                 Clock::time_point) override;
    void start(std::span<Op> ops) override;
    std::uint32_t put_bytes() const override { return RMEM_PIECE_BYTES_MAX; }
    std::uint32_t vector_bytes() const override { return 0; }
    // Only a call that another thread is starting hasn't ended.
    void cancel(Call& call) override {
        call.given_up = -ECANCELED;
        while (!call.ended())
            std::this_thread::yield();
    }
    bool wait(const Call&, Clock::time_point) override { return true; }
    void wait_until(const void*, const std::function<bool()>&, Clock::time_point) override {}
    int release(Clock::time_point limit) override;
    int fence(Clock::time_point limit) override { return release(limit); }
    int zero(std::uint64_t address, std::uint32_t bytes) override;
    int change(std::uint64_t address, std::uint32_t bytes, Change& change,
               Clock::time_point) override;
    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              Region& region) override;
    int dealloc(const Region& region) override;
    void stats(remote_counters& counters) override;
    void info(remote_node& node, Clock::time_point) override;
    std::uint64_t page_bytes() const override;
    bool disown() override { return true; }

private:
    static constexpr unsigned lock_bits = 6;
    static constexpr std::uint64_t call_bytes_max = 1 << 20; // of a transfer, remote.h
    struct alignas(64) PageLock : std::mutex {
        Tally tally; // of the lock's holders
    };
    using Locks = std::uint64_t; // one bit for each lock
    static_assert(sizeof(Locks) * 8 == 1U << lock_bits);

    // Holds at least one lock.
    class Held {
    public:
        Held(Embedded& node, Locks locks);
        ~Held();
        Held(const Held&) = delete;
        Held& operator=(const Held&) = delete;
        void count(Kind kind, std::uint64_t bytes, int error);

    private:
        Embedded& node_;
        const Locks locks_;
    };

    static unsigned lock_of(std::uint64_t page);
    Locks locks_of(std::uint64_t address, std::uint64_t bytes) const;
    template <typename Access>
    int find(Access access);
    int find(Kind kind, std::uint64_t address, std::uint32_t bytes, rmem_answer& answer);
    int piece(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint32_t bytes);
    int pieces(Held& held, Kind kind, std::uint64_t address, std::uint8_t* data,
               std::uint64_t bytes);
    int apply(std::uint64_t address, std::uint32_t bytes, Change& change);
    int change(Held& held, std::uint64_t address, std::uint32_t bytes, Change& change);
    int put(Held& held, const Op& op);
    int put_both(const Op& op);
    int copy(Held& held, const Op& op);
    int run(Held& held, Op& op);
    int run_step(Op& op);
    int call(Kind kind, const void* payload, std::uint32_t bytes, rmem_node_payload* answer);
    int named(Op& op);
    void open();
    void refill();

    node::Host host_;
    rmem_peer peer_{};
    std::uint32_t space_index_ = 0;
    std::array<PageLock, 1U << lock_bits> lock_;
    std::mutex release_lock_; // serialises release()
    std::mutex refill_lock_;
    std::mutex call_lock_; // one call at a time, since its id is the oldest of the session
    Tally calls_;
    std::uint64_t session_ = 0; // for calls
    std::uint64_t id_ = 0;      // of the last one
};

} // namespace remora::lib
