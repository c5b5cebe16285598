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
using Done = std::bitset<events_max>;

class Search {
public:
    explicit Search(const std::vector<Event>& events) : events_(events) {
        if (events.size() > events_max)
            throw std::length_error("a history of more than 128 events");
    }

    bool run(const Done& done, std::uint64_t value) {
        std::int64_t first_end = std::numeric_limits<std::int64_t>::max();
        bool all = true;
        for (std::size_t i = 0; i < events_.size(); i++) {
            if (done[i] || !events_[i].known)
                continue;
            all = false;
            first_end = std::min(first_end, events_[i].end);
        }
        if (all)
            return true;
        if (!tried_.emplace(done.to_string(), value).second)
            return false;
        for (std::size_t i = 0; i < events_.size(); i++) {
            if (done[i] || events_[i].begin > first_end || !fits(events_[i], value))
                continue;
            Done next = done;
            next.set(i);
            if (run(next, after(events_[i], value)))
                return true;
        }
        return false;
    }

private:
    static bool fits(const Event& event, std::uint64_t value) {
        return event.kind == Event::write || !event.known || event.found == value;
    }
    static std::uint64_t after(const Event& event, std::uint64_t value) {
        switch (event.kind) {
        case Event::read:
            return value;
        case Event::write:
            return event.value;
        case Event::add:
            return value + event.value;
        default:
            return value == event.compare ? event.value : value;
        }
    }

    const std::vector<Event>& events_;
    std::set<std::pair<std::string, std::uint64_t>> tried_;
};

} // namespace

bool is_linearizable(const std::vector<Event>& events, std::uint64_t initial) {
    return Search(events).run({}, initial);
}

} // namespace remora::test
