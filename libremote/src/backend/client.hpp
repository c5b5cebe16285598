// SPDX-License-Identifier: MIT
/*
 * A memory node on the network: the client's core (core/rmem/client/client.h) over a UDP socket.
 *
 *   start:  lock { order: may it begin? -> core -> messages } -> datagrams -> sendmsg
 *   wait:   one waiter receives for all:
 *             spin, then poll -> datagrams -> lock { core -> data to its buffer -> ended? -> order
 * }
 *
 * The library has no thread of its own: the waiting thread also retransmits what timed out and ends
 * calls whose limit has come. Data goes from the program's buffers into the socket and, once
 * verified, back into them. Data of many ranges is copied once more, for it is little.
 *
 * A handle is one session, with its own socket and windows. Credit comes back only where a thread
 * waits, so the debts of one handle must not stop another.
 */
#pragma once

#include <memory>
#include <span>
#include <string>

#include <netdb.h>
#include <sys/socket.h>

#include "src/backend/queued.hpp"
#include "src/backend/target.hpp"
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

class Incoming;
struct Endpoint;

class Udp final : public Queued {
public:
    // Throws Failure: no such host, no answer, refused.
    Udp(const Target& target, const Key& key, const UdpOptions& options);
    ~Udp() override;

    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              rmem_op_range& range) override;
    int dealloc(const rmem_op_range& range) override;
    void stats(remote_counters& counters) override;
    std::uint32_t put_bytes() const override { return put_bytes_; }
    std::uint32_t vector_bytes() const override { return vector_bytes_; }
    std::uint64_t page_bytes() const override { return page_bytes_; }
    bool disown() override;

private:
    void open_any(const Target& target, const Key& key, const UdpOptions& options);
    void connect(const Target& target, const addrinfo& address);
    void configure(const Target& target, const Key& key, const UdpOptions& options);
    void open(const std::string& name, Clock::time_point limit);

    void begin(Op& op) override;
    void flush() override;
    bool expects() const override { return true; } // and retransmits
    void receive(Lock& lock, Clock::time_point until) override;
    void take_in() override;
    void take_back(Call& call) override;

    unsigned listen(Incoming& incoming, Clock::time_point until, std::uint64_t spin_ns);
    bool sleep(Clock::time_point until);
    void take_packets(Incoming& incoming, unsigned count);
    void take_datagram(std::uint64_t now_ns, std::span<const std::uint8_t> bytes);
    void end_all(rmem_op* chain, rmem_client_result result);
    void expire_core(std::uint64_t now_ns);

    Descriptor socket_;
    std::uint32_t datagram_bytes_ = 0;
    std::uint64_t page_bytes_ = 0;   // from the node's first answer
    std::uint32_t put_bytes_ = 0;    // the same
    std::uint32_t vector_bytes_ = 0; // the same

    // lock_'s
    std::unique_ptr<rmem_client> client_;
    std::unique_ptr<Endpoint> endpoint_;
    rmem_base base_;
    rmem_incast incast_;
};

} // namespace remora::lib
