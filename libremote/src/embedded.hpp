// SPDX-License-Identifier: MIT
/*
 * The memory node inside the process: the core by function calls, no messages, no threads.
 *
 *   transfer: page by page, the lock of the page's session { id, rmem_node_request(), copy }
 *
 * Sessions go by addresses, not by threads: so their locks, which are the core's slot locks, also
 * keep apart those who are about the same page. An operation has ended when its call returns, so
 * all order holds by itself. A page that was given back is zeroed by whoever finds the pool of
 * zeroed ones half empty.
 */
#pragma once

#include <array>
#include <mutex>

#include "node/host.hpp"
#include "src/backend.hpp"
#include "src/target.hpp"

namespace remora::lib {

class Embedded final : public Backend {
public:
    // Throws Failure.
    explicit Embedded(const Target& target);

    int transfer(std::uint8_t type, std::uint64_t address, std::uint8_t* data,
                 std::uint64_t bytes) override;
    void start(std::span<Op> ops) override;
    bool wait(const Call&, Clock::time_point) override { return true; }
    void release() override {}
    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              rmem_op_range& range) override;
    int free(const rmem_op_range& range) override;
    std::uint64_t page_bytes() const override;
    void disown() override {}

private:
    static constexpr unsigned session_bits = 6;
    static constexpr unsigned sessions = 1U << session_bits;
    struct alignas(64) Session {
        std::uint64_t name = 0;
        std::uint64_t id = 0; // of its last request
        std::mutex* lock = nullptr;
    };

    Session& session_of(std::uint64_t address);
    rmem_head head(Session& session, std::uint8_t type, std::uint64_t address, std::uint32_t bytes);
    int piece(Session& session, std::uint8_t type, std::uint64_t address, std::uint8_t* data,
              std::uint32_t bytes);
    int call(std::uint8_t type, const void* payload, std::uint32_t bytes, void* answer);
    void open(Session& session, std::uint8_t number);
    void refill();

    node::Host host_;
    rmem_peer peer_{};
    std::mutex refill_lock_;
    std::mutex call_lock_; // one call at a time, since its id is the oldest of its session
    Session calls_;
    std::array<Session, sessions> session_;
};

} // namespace remora::lib
