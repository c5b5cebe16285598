// SPDX-License-Identifier: MIT
/*
 * A memory node on the network: the client's core (core/rmem/client.h) over a UDP socket.
 *
 *   start:  lock { order: may it begin? -> core -> messages } -> datagrams -> sendmsg
 *   wait:   one of those who wait receives for all:
 *             spin, then poll -> datagrams -> lock { core -> data to its buffer -> ended? -> order
 * }
 *
 * There is no thread of our own: whoever waits also sends again what timed out, and ends calls
 * whose limit of time has come. Data goes from the program's buffers into the socket and, once it
 * has verified, back into them.
 *
 * One handle is one session, with one socket and windows of its own: credit comes back only where
 * somebody waits, so what one handle owes must not stop another.
 */
#pragma once

#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/socket.h>

#include "src/backend.hpp"
#include "src/order.hpp"
#include "src/stats.hpp"
#include "src/target.hpp"
#include "support/descriptor.hpp"
#include "support/key.hpp"

extern "C" {
#include "core/rmem/datagram.h"
}

namespace remora::lib {

struct UdpOptions {
    std::uint64_t timeout_ns; // 0: never
    rmem_integrity integrity;
};

class Udp final : public Backend {
public:
    // Throws Failure: no such host, no answer, refused.
    Udp(const Target& target, const Key& key, const UdpOptions& options);
    ~Udp() override;

    int transfer(std::uint8_t type, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                 Clock::time_point limit) override;
    void start(std::span<Op> ops) override;
    void cancel(Call& call) override;
    std::uint32_t put_bytes() const override { return put_bytes_; }
    bool wait(const Call& call, Clock::time_point until) override;
    int release(Clock::time_point limit) override;
    int fence(Clock::time_point limit) override;
    int zero(std::uint64_t address, std::uint32_t bytes) override;
    int atomic(std::uint64_t address, std::uint32_t bytes, rmem_op_atomic& atomic,
               Clock::time_point limit) override;
    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              rmem_op_range& range) override;
    int dealloc(const rmem_op_range& range) override;
    void stats(remote_counters& counters) override;
    std::uint64_t page_bytes() const override { return page_bytes_; }
    bool disown() override;

private:
    class Outgoing;
    class Incoming;
    using Lock = std::unique_lock<std::mutex>;

    void connect(const Target& target);
    void configure(const Target& target, const Key& key, const UdpOptions& options);
    void open(const std::string& name);

    template <typename Done>
    bool wait_for(Done done, Clock::time_point until);
    void receive(Lock& lock, Clock::time_point until);
    unsigned listen(Clock::time_point until, std::uint64_t spin_ns);
    void take_in(unsigned datagrams);
    void expire(std::uint64_t now_ns);
    void take_datagram(std::uint64_t now_ns, std::span<const std::uint8_t> bytes);
    void settle(std::uint64_t now_ns);
    void submit(Op& op);
    void end(rmem_op* chain, rmem_client_result result);
    void give_up(Call& call, rmem_client_result result);
    int one(Op& op, Clock::time_point limit = never);
    Clock::time_point first_limit() const;
    void add_timed(Call& call);

    Descriptor socket_;
    std::unique_ptr<Incoming> incoming_;
    std::uint32_t datagram_bytes_ = 0;
    std::uint64_t page_bytes_ = 0; // as the node said first
    std::uint32_t put_bytes_ = 0;  // the same

    std::mutex lock_; // all below
    std::unique_ptr<rmem_client> client_;
    rmem_window window_;
    rmem_incast incast_;
    Order order_;
    Link timed_; // calls with a limit, by that
    Tally tally_;
    bool receiving_ = false; // somebody does, for all
    unsigned waiting_ = 0;
    std::condition_variable changed_;
};

} // namespace remora::lib
