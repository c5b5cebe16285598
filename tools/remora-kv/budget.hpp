// SPDX-License-Identifier: GPL-2.0
/*
 * Memory that a thread's connections take for commands and replies.
 *
 *   limit ┌ half: equal shares of all possible connections ┬ half: for needs beyond ┐
 *
 * A connection always has its share. Beyond it, a connection can take as much as it leaves free for
 * the others (the dynamic threshold of switches' buffers: Choudhury, Hahne, 1998). So N greedy
 * connections take N parts of N + 1, and the last part is there for a modest one.
 */
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

namespace remora::kv {

class Budget {
public:
    Budget(std::size_t limit_bytes, std::size_t connections_max)
        : share_(limit_bytes / 2 / std::max<std::size_t>(connections_max, 1)),
          common_(limit_bytes / 2) {}

    // How many bytes a connection can take that holds so many.
    std::size_t room(std::size_t held) const { return room_of(held, common_); }
    bool permits(std::size_t held, std::size_t more) const { return more <= room(held); }
    // The same for commands behind its first one. They leave half of the common memory: else all of
    // it might be theirs, and first commands wait for each other.
    std::size_t room_behind(std::size_t held) const { return room_of(held, common_ / 2); }
    bool exceeds_share(std::size_t held) const { return held > share_; }

    // A connection holds another number of bytes.
    void change(std::size_t before, std::size_t after) {
        used_ = used_ - beyond(before) + beyond(after);
        freed_ |= after < before;
    }
    // Was something given back since the last call? Then connections that waited might go on.
    bool take_freed() { return std::exchange(freed_, false); }

private:
    std::size_t room_of(std::size_t held, std::size_t common) const {
        const std::size_t others = used_ - beyond(held);
        const std::size_t most = share_ + (common - std::min(common, others)) / 2;
        return most - std::min(most, held);
    }
    std::size_t beyond(std::size_t held) const { return held - std::min(held, share_); }

    std::size_t share_, common_;
    std::size_t used_ = 0; // beyond the shares
    bool freed_ = false;
};

} // namespace remora::kv
