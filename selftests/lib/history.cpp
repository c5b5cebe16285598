// SPDX-License-Identifier: GPL-2.0
#include "history.hpp"

#include <algorithm>
#include <bitset>
#include <limits>
#include <set>
#include <stdexcept>
#include <utility>

namespace remora::test {

namespace {

constexpr std::size_t events_max = 128;
constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
using Done = std::bitset<events_max>;

// ---- effect of an event on a state ----

bool fits(const Event& event, std::uint64_t value) {
    return event.kind == Event::write || event.kind == Event::nothing || event.found == value;
}

std::uint64_t after(const Event& event, std::uint64_t value) {
    switch (event.kind) {
    case Event::read:
    case Event::nothing:
        return value;
    case Event::write:
        return event.value;
    case Event::add:
        return value + event.value;
    default:
        return value == event.compare ? event.value : value;
    }
}

bool fits(const WordsEvent& event, const Words& words) {
    return event.is_write ||
           std::equal(words.begin() + event.first, words.begin() + event.first + event.count,
                      event.value.begin() + event.first);
}

Words after(const WordsEvent& event, Words words) {
    if (event.is_write)
        std::copy_n(event.value.begin() + event.first, event.count, words.begin() + event.first);
    return words;
}

// ---- the search ----

template <typename Event, typename State>
class Search {
public:
    explicit Search(const std::vector<Event>& events) : events_(events) {
        if (events.size() > events_max)
            throw std::length_error("a history of more than 128 events");
        for (const Event& event : events)
            settled_.push_back(event.known ? never : settled(event));
    }

    bool run(const Done& done, const State& state) {
        std::int64_t first_end = never, last_begin = std::numeric_limits<std::int64_t>::min();
        bool all = true;
        for (std::size_t i = 0; i < events_.size(); i++) {
            if (done[i]) {
                last_begin = std::max(last_begin, events_[i].begin);
            } else if (events_[i].known) {
                all = false;
                first_end = std::min(first_end, events_[i].end);
            }
        }
        if (all)
            return true;
        if (!tried_.emplace(halves(done), state).second)
            return false;
        for (std::size_t i = 0; i < events_.size(); i++) {
            const Event& event = events_[i];
            if (done[i] || event.begin > first_end)
                continue;
            if (event.known ? !fits(event, state)
                            : last_begin > settled_[i] || is_past(event, done))
                continue;
            Done next = done;
            next.set(i);
            if (run(next, after(event, state)))
                return true;
        }
        return false;
    }

private:
    using Halves = std::pair<std::uint64_t, std::uint64_t>;

    static Halves halves(const Done& done) {
        constexpr std::uint64_t all = ~0ULL;
        return {(done >> 64).to_ullong(), (done & Done(all)).to_ullong()};
    }
    static bool is_later(const Event& event, const Event& other) {
        return event.handle >= 0 && other.handle == event.handle && other.begin > event.end;
    }
    // Of a cancelled event: the time from which on it can't take effect any more.
    std::int64_t settled(const Event& event) const {
        std::int64_t settled = never;
        for (const Event& other : events_) {
            if (other.known && is_later(event, other))
                settled = std::min(settled, other.end);
        }
        return settled;
    }
    // The event's handle has completed an operation that it started later.
    bool is_past(const Event& event, const Done& done) const {
        for (std::size_t i = 0; i < events_.size(); i++) {
            if (done[i] && is_later(event, events_[i]))
                return true;
        }
        return false;
    }

    const std::vector<Event>& events_;
    std::vector<std::int64_t> settled_;
    std::set<std::pair<Halves, State>> tried_;
};

} // namespace

bool is_linearizable(const std::vector<Event>& events, std::uint64_t initial) {
    return Search<Event, std::uint64_t>(events).run({}, initial);
}

bool is_linearizable(const std::vector<WordsEvent>& events, const Words& initial) {
    return Search<WordsEvent, Words>(events).run({}, initial);
}

} // namespace remora::test
