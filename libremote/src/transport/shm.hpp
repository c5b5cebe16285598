// SPDX-License-Identifier: MIT
/*
 * Messages over a pair of rings in memory that a node on this machine shares (remora/ring.h,
 * core/ring/ring.h).
 *
 *   send()     messages -> plain ones, or a datagram each -> request ring, in place -> pointer word
 *   wait()     looks at the next entry of the response ring, pauses, then sleeps by futex
 *   watch()    sets a flag; the node then sends a byte by the socket, once, when it has written
 *   deliver()  heads copied out of the response ring and checked; payload handed up where it is
 *
 * A node that has gone is noticed by its end of the socket. The transport then tries to reach a new
 * one at the same path; until that answers, messages are lost as a network would lose them.
 */
#pragma once

#include <array>
#include <atomic>
#include <span>
#include <string>

#include "src/transport/shm_link.hpp"
#include "src/transport/transport.hpp"

extern "C" {
#include "core/rmem/datagram.h"
#include "core/rmem/plain.h"
}

namespace remora::lib {

class Shm final : public Transport {
public:
    // path: of the node's socket. Throws Failure: no node there, or it refuses.
    Shm(const std::string& path, Clock::time_point limit);

    const rmem_cipher& seal() override;
    Limits limits() const override;
    void send(const rmem_client_config& session, Messages& messages) override;
    void wait(Clock::time_point until, std::uint64_t spin_ns) override;
    void deliver(const rmem_client_config& session, Messages& messages) override;
    void take_in(const rmem_client_config& session, Messages& messages) override;
    Failure silence(const std::string& name, std::chrono::milliseconds patience) const override;
    Watch watch() override;
    void disown() override { link_.disown(); }

private:
    std::uint32_t room();
    std::uint32_t send_row(const rmem_client_config& session, Messages& messages,
                           std::uint32_t room);
    void add_plain(const rmem_client_tx& tx);
    void post_plain();
    void post_datagram(const rmem_client_config& session, rmem_client_tx& tx);
    void signal();
    bool spins(Clock::time_point until, std::uint64_t spin_ns);
    void sleep(Clock::time_point until);
    bool has_news() const;
    bool take_record(const rmem_client_config& session, Messages& messages,
                     std::span<const std::uint8_t> record);

    void take_plain(const rmem_client_config& session, Messages& messages,
                    std::span<const std::uint8_t> record);

    ShmLink link_;
    const bool may_spin_;
    rmem_plain_sum plain_{}; // messages in the entry that will be posted next
    // The node has to free entries before the rest can be sent. Read by wait(), without the lock.
    std::atomic<bool> full_ = false;
    std::atomic<std::uint32_t> full_at_ = 0; // credit word at that time
    bool idle_ = false;                      // the last wait() ended with nothing new
    std::array<std::uint8_t, RMEM_DATAGRAM_BYTES_MAX> copied_;
};

} // namespace remora::lib
