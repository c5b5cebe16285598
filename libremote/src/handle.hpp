// SPDX-License-Identifier: MIT
/*
 * A handle: a backend, the regions it allocated, and the asynchronous operations under way. What
 * the C functions of remote.h do once their arguments are sound.
 */
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "remote/remote.h"
#include "src/backend.hpp"
#include "src/mappings.hpp"
#include "src/target.hpp"

namespace remora::lib {

class Handle {
public:
    // Throws Failure.
    Handle(const Target& target, const remote_options& options);
    ~Handle();

    // Another process than the one that opened it?
    bool is_foreign() const;
    Backend& backend() { return *backend_; }

    int alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
              raddr_t& address);
    int free(raddr_t address);

    int start(std::uint8_t type, raddr_t address, void* data, std::size_t bytes, rop_t& rop);
    int poll(rop_t* rops, std::size_t count, std::uint64_t timeout_us);

    Mappings& mappings() { return mappings_; }

private:
    struct Slot {
        Call call;
        Op first;
        std::vector<Op> more;         // of a long one
        std::uint32_t generation = 0; // 0: free
        std::uint32_t next_free = 0;
    };

    std::span<Op> ops_of(Slot& slot, std::size_t count);
    Slot* slot_of(const rop_t& rop);
    bool poll_one(rop_t& rop, Clock::time_point until);
    std::uint32_t take_slot();
    void give_slot(std::uint32_t index);

    unsigned generation_; // of processes, as forks go
    std::unique_ptr<Backend> backend_;
    std::mutex regions_lock_;
    std::map<raddr_t, rmem_op_range> regions_;
    std::mutex slots_lock_; // free_, generations
    std::vector<Slot> slots_;
    std::uint32_t free_ = 0;
    Mappings mappings_;
};

} // namespace remora::lib
