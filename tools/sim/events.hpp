// SPDX-License-Identifier: GPL-2.0
// The event queue: a timing wheel of short slots, and a heap for what lies beyond one turn.
//
//   slot      one list per 2^shift ps, in the order of scheduling; a bit per slot says "not empty"
//   current   the events of the slot being worked off, sorted by time
//   far       a binary heap; its events enter their slot as soon as the wheel reaches that far
//
// Order: by time, and among equal times the order of scheduling. A far event enters its slot before
// any event can be put there directly, so each list is in scheduling order and a stable sort by
// time suffices. There is no cancel: a handler that no longer wants an event ignores it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <iterator>
#include <vector>

#include "sim/units.hpp"

namespace sim {

class Handler {
public:
    virtual void fire(std::uint64_t arg) = 0;

protected:
    ~Handler() = default;
};

class Events {
public:
    // spacing: the expected time between two events; it decides about speed, not about order.
    explicit Events(Time spacing)
        : shift_(std::clamp<int>(std::bit_width(spacing * 8), 6, 24)),
          tail_(slots, none),
          busy_(slots / 64) {}

    Time now() const { return now_; }
    std::uint64_t executed() const { return executed_; }
    std::uint64_t pending() const { return pending_; }

    void at(Time when, Handler& handler, std::uint64_t arg = 0) {
        pending_++;
        std::uint64_t slot = when >> shift_;
        if (slot <= slot_)
            insert_current({when, &handler, arg});
        else if (slot - slot_ < slots)
            append(slot, {when, &handler, arg});
        else
            push_far({{when, &handler, arg}, far_order_++});
    }
    void after(Time delay, Handler& handler, std::uint64_t arg = 0) {
        at(now_ + delay, handler, arg);
    }

    // The time of the next event; never: there is none.
    Time peek() {
        if (next_ == current_.size() && !advance())
            return never;
        return current_[next_].when;
    }

    // Whether there is an event up to and including this time.
    bool due(Time until) { return peek() != never && peek() <= until; }

    // Executes the next event, which due() has found.
    void step() {
        Event event = current_[next_++];
        now_ = event.when;
        executed_++;
        pending_--;
        event.handler->fire(event.arg);
    }

    // Executes all events up to and including this time; the clock then stands there.
    void run(Time until) {
        while (!stopped_ && due(until))
            step();
        if (!stopped_ && until != never)
            now_ = std::max(now_, until);
    }
    void stop() { stopped_ = true; }
    bool stopped() const { return stopped_; }

private:
    static constexpr std::uint64_t slots = 1 << 16;
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct Event {
        Time when;
        Handler* handler;
        std::uint64_t arg;
    };
    // A piece of a slot's list: several events side by side, for the cache's sake.
    struct Node {
        Event event[5];
        std::uint32_t count;
        std::uint32_t next;
    };
    struct Far {
        Event event;
        std::uint64_t order;
        bool operator<(const Far& other) const { // the heap's top is the earliest
            return event.when != other.event.when ? event.when > other.event.when
                                                  : order > other.order;
        }
    };

    void push_far(const Far& far) {
        far_.push_back(far);
        std::push_heap(far_.begin(), far_.end());
    }

    // tail_ holds a slot's last node, whose next is the first.
    void append(std::uint64_t slot, const Event& event) {
        std::uint32_t& tail = tail_[slot % slots];
        if (tail != none && nodes_[tail].count < std::size(nodes_[tail].event)) {
            nodes_[tail].event[nodes_[tail].count++] = event;
            return;
        }
        std::uint32_t at = free_;
        if (at == none) {
            at = static_cast<std::uint32_t>(nodes_.size());
            nodes_.emplace_back();
        } else {
            free_ = nodes_[at].next;
        }
        Node& node = nodes_[at];
        node.event[0] = event;
        node.count = 1;
        if (tail == none) {
            node.next = at;
            busy_[slot % slots / 64] |= std::uint64_t{1} << slot % 64;
        } else {
            node.next = nodes_[tail].next;
            nodes_[tail].next = at;
        }
        tail = at;
    }

    void insert_current(const Event& event) {
        auto place = current_.end();
        auto first = current_.begin() + static_cast<std::ptrdiff_t>(next_);
        while (place != first && event.when < (place - 1)->when)
            --place;
        current_.insert(place, event);
    }

    // The first slot after slot_ that has events; slot_ + slots if none within a turn.
    std::uint64_t next_busy() const {
        for (std::uint64_t slot = slot_ + 1; slot < slot_ + slots;) {
            std::uint64_t word = busy_[slot % slots / 64] >> slot % 64;
            if (word)
                return slot + static_cast<unsigned>(std::countr_zero(word));
            slot = (slot | 63) + 1;
        }
        return slot_ + slots;
    }

    // Moves far events that the wheel reaches from slot_.
    void pull_far() {
        while (!far_.empty() && (far_.front().event.when >> shift_) - slot_ < slots) {
            std::pop_heap(far_.begin(), far_.end());
            append(far_.back().event.when >> shift_, far_.back().event);
            far_.pop_back();
        }
    }

    // Makes the next slot with events the current one.
    bool advance() {
        current_.clear();
        next_ = 0;
        if (!pending_)
            return false;
        std::uint64_t slot = next_busy();
        if (!far_.empty()) {
            // A far event's slot lies at or beyond slot_ + slots, unless the wheel is empty.
            std::uint64_t far_slot = far_.front().event.when >> shift_;
            if (slot == slot_ + slots)
                slot = far_slot;
            slot_ = std::min(slot, far_slot) - 1;
            pull_far();
        }
        slot_ = slot;
        std::uint32_t tail = tail_[slot % slots];
        for (std::uint32_t at = nodes_[tail].next;; at = nodes_[at].next) {
            const Node& node = nodes_[at];
            for (std::uint32_t i = 0; i < node.count; i++) {
                // All of the slot's misses at once, before the first handler runs. An argument that
                // is no pointer does no harm.
                __builtin_prefetch(reinterpret_cast<const void*>(node.event[i].arg), 1);
                __builtin_prefetch(node.event[i].handler, 1);
                current_.push_back(node.event[i]);
            }
            if (at == tail)
                break;
        }
        std::uint32_t first = nodes_[tail].next;
        nodes_[tail].next = free_;
        free_ = first;
        tail_[slot % slots] = none;
        busy_[slot % slots / 64] &= ~(std::uint64_t{1} << slot % 64);
        pull_far();
        std::uint64_t following = next_busy();
        if (following != slot_ + slots)
            __builtin_prefetch(&nodes_[tail_[following % slots]]);
        sort_current();
        return true;
    }

    void sort_current() {
        auto earlier = [](const Event& a, const Event& b) { return a.when < b.when; };
        if (current_.size() > 32) {
            std::stable_sort(current_.begin(), current_.end(), earlier);
            return;
        }
        for (std::size_t i = 1; i < current_.size(); i++) {
            Event event = current_[i];
            std::size_t place = i;
            for (; place && event.when < current_[place - 1].when; place--)
                current_[place] = current_[place - 1];
            current_[place] = event;
        }
    }

    int shift_;
    Time now_ = 0;
    std::uint64_t slot_ = 0; // of current_
    std::vector<Event> current_;
    std::size_t next_ = 0;
    std::vector<Node> nodes_;
    std::uint32_t free_ = none;
    std::vector<std::uint32_t> tail_;
    std::vector<std::uint64_t> busy_;
    std::vector<Far> far_;
    std::uint64_t far_order_ = 0;
    std::uint64_t executed_ = 0, pending_ = 0;
    bool stopped_ = false;
};

} // namespace sim
