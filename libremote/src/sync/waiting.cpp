// SPDX-License-Identifier: MIT
#include "src/sync/waiting.hpp"

#include <algorithm>
#include <array>
#include <thread>

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

// Time before the first sleep, so that a value about to appear is found without one. Over a network
// each read takes a round trip.
constexpr auto eager_time = std::chrono::microseconds(50);
constexpr auto pause_first = std::chrono::microseconds(20);
constexpr auto pause_most = std::chrono::milliseconds(1);

bool holds(remote_compare compare, std::uint64_t found, std::uint64_t value) {
    switch (compare) {
    case REMOTE_EQ:
        return found == value;
    case REMOTE_NE:
        return found != value;
    case REMOTE_GT:
        return found > value;
    case REMOTE_GE:
        return found >= value;
    case REMOTE_LT:
        return found < value;
    case REMOTE_LE:
        return found <= value;
    }
    return false;
}

} // namespace

int wait_for_integer(Backend& backend, raddr_t address, std::size_t bytes, remote_compare compare,
                     std::uint64_t value, Clock::time_point until, Clock::time_point limit,
                     std::uint64_t& found) {
    if (bytes == 4)
        value = static_cast<std::uint32_t>(value);
    Clock::time_point eager_until = Clock::now() + eager_time;
    auto pause = std::chrono::duration_cast<Clock::duration>(pause_first);
    Clock::time_point read_limit = limit;
    for (;; read_limit = std::min(until, limit)) {
        std::array<std::uint8_t, 8> integer{};
        int error = backend.transfer(Kind::read, address, integer.data(), bytes, read_limit);
        if (error == -ETIMEDOUT && read_limit == until && Clock::now() >= until)
            return -EAGAIN;
        if (error)
            return error;
        found = base_load_le64(integer.data());
        if (holds(compare, found, value))
            return 0;
        Clock::time_point now = Clock::now();
        if (now >= until)
            return -EAGAIN;
        if (now >= limit)
            return -ETIMEDOUT;
        if (now < eager_until)
            continue;
        std::this_thread::sleep_for(std::min(pause, std::min(until, limit) - now));
        pause = std::min<Clock::duration>(pause * 2, pause_most);
    }
}

} // namespace remora::lib
