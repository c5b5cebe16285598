// SPDX-License-Identifier: MIT
/*
 * A completion queue (queue.h): a bounded set of operations, each in a slot.
 *
 *   submit   slot: free -> taken -> in flight    calls, to the backend at once
 *   ended()  slot: in flight -> ended    by the thread that receives, under the backend's lock
 *   wait     slot: ended -> free         in the order of ended()
 *
 * Small READs of a batch that are adjacent there share a READV, a Group. Each still ends by itself.
 * READs alone, for cancelling one of them must leave the others alone: a range of a READV can be
 * detached, since the node's answer for it is thrown away.
 *
 * An operation belongs to the backend that the handle had when it was submitted, its Use. When the
 * node has restarted, a queue has two for a while, and waits for the older one first: all
 * operations of a lost backend end soon.
 *
 * Locks: a backend's, then the queue's, under which no call is made.
 */
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "remote/queue.h"
#include "src/backend/backend.hpp"
#include "src/backend/build.hpp"
#include "src/backend/cut.hpp"
#include "support/descriptor.hpp"

namespace remora::lib {

class Queue {
public:
    static constexpr std::uint32_t depth_max = 1U << 20;

    explicit Queue(std::uint32_t depth);
    // Nothing is in flight: end() before.
    ~Queue() = default;
    Queue(const Queue&) = delete;
    Queue& operator=(const Queue&) = delete;

    // Number of the first ops behind which none is linked.
    static std::size_t whole_rows(std::span<const remote_op> ops);
    // Number of operations started, of those valid, whose rows are whole; -EAGAIN, -ENOMEM: the
    // first can't be. maker: the backend's.
    int submit(const BackendRef& backend, StepsMaker& maker, std::span<const remote_op> ops);
    // Number taken.
    std::size_t wait(std::span<remote_completion> to, std::size_t at_least,
                     Clock::time_point until);
    // Number cancelled.
    std::size_t cancel(std::uint64_t user_data);
    // Cancels all operations in flight, and lets go of their backends.
    void end();
    // In a child of fork(), instead of end().
    void disown();
    // A descriptor, or a negative errno. next: when wait() is due even if it isn't readable.
    int descriptor(const BackendRef& backend, Clock::time_point& next);

private:
    struct Use {
        BackendRef backend;
        std::atomic<std::uint32_t> in_flight{0};
    };
    using UseRef = std::shared_ptr<Use>;
    enum class State : std::uint8_t { free, taken, in_flight, ended };
    struct Group;

    struct Slot final : Listener {
        void ended() override { queue->complete({&self, 1}); }

        Queue* queue = nullptr;
        Slot* self = this;
        State state = State::free;
        unsigned pins = 0; // threads that cancel it
        std::uint64_t user_data = 0;
        Use* use = nullptr;
        Group* group = nullptr; // of which the operation is a range
        std::uint32_t range = 0;
        Slot* next = nullptr;       // free, or ended after this one
        Slot* next_alike = nullptr; // in flight, in the same row of alike_
        Slot** at_alike = nullptr;  // the pointer to this slot there
        Call call;
        Built built; // unless it is of a group
    };
    struct Group final : Listener {
        void ended() override { queue->complete_group(*this); }

        Queue* queue = nullptr;
        Use* use = nullptr;    // NULL: free
        Group* next = nullptr; // of the free ones
        Call call;
        Op op;
        Ranges ranges;
        std::array<Slot*, ranges_max> slots{};
    };
    // Most operations that one call to a backend starts.
    static constexpr std::size_t batch_max = 128;

    std::size_t take_slots(Use& use, std::span<Slot*> to);
    void give_slots(Use& use, std::span<Slot* const> unused);
    void set_in_flight(std::span<Slot* const> slots);
    Slot*& alike(std::uint64_t user_data);
    Slot* find(std::uint64_t user_data);
    UseRef use_of(const BackendRef& backend);
    std::size_t start(const UseRef& use, StepsMaker& maker, std::span<const remote_op> ops,
                      std::span<Slot* const> slots);
    Group& take_group();
    Call& prepare_group(Use& use, std::span<Slot* const> slots, std::span<const remote_vec> pieces,
                        Clock::time_point limit);

    void complete(std::span<Slot* const> slots);
    void complete_group(Group& group);
    void add_ended(Slot& slot);
    void signal();
    static void hand_over(Slot& slot);
    void release(Slot& slot);
    std::size_t take(std::span<remote_completion> to);
    UseRef oldest_use();
    void drop_unused();
    void detach(Slot& slot);
    void cancel_groups();
    void cancel_pinned(Slot& slot, Backend& backend);

    std::mutex lock_; // all below
    std::vector<Slot> slots_;
    std::vector<Slot*> alike_; // slots in flight, by a hash of user_data: as many rows as slots
    Slot* free_ = nullptr;
    Slot* ended_ = nullptr;
    Slot* last_ended_ = nullptr;
    std::list<Group> groups_;
    Group* free_groups_ = nullptr;
    std::list<UseRef> uses_; // oldest first
    std::atomic<std::size_t> ended_count_{0};
    std::size_t in_flight_ = 0;
    // Once a program has asked for a descriptor: an epoll of the event, which says that an
    // operation has ended, and of the backend's descriptor.
    Descriptor epoll_, event_;
    const Backend* watched_ = nullptr;
    std::uint64_t watched_serial_ = 0; // of its Watch
    bool signalled_ = false;
};

} // namespace remora::lib
