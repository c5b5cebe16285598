// SPDX-License-Identifier: MIT
/*
 * A handle: its epoch (epoch.hpp), buffers and mappings, and the asynchronous operations under way.
 * Implements the C functions of remote.h for arguments that were checked.
 */
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "remote/remote.h"
#include "src/api/epoch.hpp"
#include "src/backend/backend.hpp"
#include "src/backend/buffers.hpp"
#include "src/backend/cut.hpp"
#include "src/backend/target.hpp"
#include "src/mmap/mappings.hpp"

namespace remora::lib {

class Handle {
public:
    // Throws Failure.
    Handle(Target target, const remote_options& options);
    ~Handle();

    // Was the handle opened by another process?
    bool is_foreign() const;
    // The epoch for an operation that begins now; the operation keeps it until it ends.
    EpochRef epoch();
    Buffers& buffers() { return buffers_; }
    Mappings& mappings() { return mappings_; }

    // 1: this range was lost. 0: none was, or all are reported and another epoch has begun. Throws
    // Failure: the new epoch gets no backend.
    int lost(raddr_t& address, std::uint64_t& bytes);
    void stats(remote_counters& counters);

    // READ or WRITE of all pieces; the caller has checked them.
    int transfer(std::uint8_t type, std::span<const remote_vec> pieces, Clock::time_point limit);
    int start(std::uint8_t type, std::span<const remote_vec> pieces, rop_t& rop,
              Clock::time_point limit);
    // found (may be null) gets as many bytes as the integer has.
    int start_atomic(raddr_t address, std::uint32_t bytes, const rmem_op_atomic& atomic,
                     std::uint64_t* found, rop_t& rop, Clock::time_point limit);
    // Data, then the integer.
    int put(raddr_t address, std::uint8_t* data, std::size_t bytes, const rmem_op_put& put,
            Clock::time_point limit);
    int start_put(raddr_t address, std::uint8_t* data, std::size_t bytes, const rmem_op_put& put,
                  rop_t& rop, Clock::time_point limit);
    int poll(rop_t* rops, std::size_t count, std::uint64_t timeout_us);
    // Index of the first that has ended, or -EAGAIN.
    int poll_any(std::span<rop_t* const> rops, std::uint64_t timeout_us);
    int cancel(const rop_t& rop);

private:
    struct Slot {
        EpochRef epoch;
        Call call;
        Op first;
        std::vector<Op> more; // further ops of a long operation
        Ranges ranges;
        std::uint64_t* found = nullptr; // destination of an integer found
        std::uint32_t generation = 0;   // 0: free
        std::uint32_t next_free = 0;
        std::uint32_t pollers = 0; // threads that wait for its end; the last one frees the slot
    };

    std::span<Op> ops_of(Slot& slot, std::size_t count, std::size_t ranges = 0);
    void begin(std::uint32_t index, EpochRef epoch, std::span<Op> ops, rop_t& rop,
               Clock::time_point limit);
    Slot* slot_of(const rop_t& rop);
    Slot* enter_poll(rop_t& rop);
    bool leave_poll(rop_t& rop, Slot& slot);
    bool poll_one(rop_t& rop, Clock::time_point until);
    static void hand_over(Slot& slot);
    void make_slots();
    int take_slot(std::uint32_t& index); // 0, -EAGAIN, -ENOMEM
    void give_slot(std::uint32_t index);

    int begin_epoch(const EpochRef& before);
    static void disown(EpochRef& epoch);

    unsigned generation_; // number of forks when it was opened
    const Target target_;
    std::mutex epoch_lock_; // epoch_, past_
    EpochRef epoch_;
    remote_counters past_{}; // counters of earlier epochs
    std::mutex lost_lock_;   // serialises lost()
    Buffers buffers_;
    std::mutex slots_lock_; // free_, generations, results, and freeing of slots
    std::uint32_t async_max_;
    std::vector<Slot> slots_; // async_max, or none yet
    std::uint32_t free_ = 0;
    Mappings mappings_;
};

} // namespace remora::lib
