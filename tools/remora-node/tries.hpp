// SPDX-License-Identifier: GPL-2.0
// Forwards to one node: which of them is sent now, and which is sent again, and when.
//
//   add() ─> waits ── start() ──> under way ── end() ──> the forward's end
//              ^                                 |
//              '──── after a pause: an error that can pass
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include <remote/remote.h>

#include "remora-node/forward.hpp"

namespace remora::daemon {

// The caller serialises calls. `now` never goes back.
class Tries {
public:
    using Clock = std::chrono::steady_clock;

    // A forward, and the function of its message.
    struct Try {
        std::shared_ptr<Forward> forward;
        Clock::time_point deadline;
        remote_function function{};
        std::array<std::uint8_t, RMEM_FORWARDED_BYTES> answer{};
    };

    explicit Tries(ForwardEnd ended) : ended_(std::move(ended)) {}

    void add(std::shared_ptr<Forward> forward, Clock::time_point now);
    // Starts those that wait, in order, until begin() returns false, which says that there is no
    // room; and ends those whose time is up.
    void start(Clock::time_point now, const std::function<bool(Try&)>& begin);
    // result: 0 or more, or -errno. which is gone unless it waits again.
    void end(Try& which, int result, Clock::time_point now);

    std::size_t under_way() const { return under_way_; }
    // When start() has something to do, if no try ends before that.
    Clock::time_point next() const;
    // All of them.
    void each(const std::function<void(Try&)>& visit) const;

private:
    void finish(Try& which, int error);

    const ForwardEnd ended_;
    std::map<Try*, std::unique_ptr<Try>> all_;
    std::deque<Try*> waiting_;
    std::size_t under_way_ = 0;
    bool lacks_room_ = false; // the end of a try under way makes some
    Clock::time_point not_before_;
};

} // namespace remora::daemon
