// SPDX-License-Identifier: MIT
/*
 * remote_wait(): until an integer in remote memory compares as wanted with a value. A waiter polls,
 * at first without a pause; so nodes know nothing of waiters, and a put costs the same however many
 * there are.
 */
#pragma once

#include "remote/remote.h"
#include "src/backend/backend.hpp"

namespace remora::lib {

// found: the integer last read. -EAGAIN: until has come. limit: for a read that gets no answer; the
// first read has no other, so that there is a last one.
int wait_for_integer(Backend& backend, raddr_t address, std::size_t bytes, remote_compare compare,
                     std::uint64_t value, Clock::time_point until, Clock::time_point limit,
                     std::uint64_t& found);

} // namespace remora::lib
