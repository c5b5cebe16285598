// SPDX-License-Identifier: GPL-2.0
// Calls that a program sends to another node (rmem_forward()), as calls.cpp and the links see them.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "remora/offload.h"

namespace remora::daemon {

struct Forward {
    rmem_call* call; // null: it has ended; under the lock of Calls, and the fields below
    bool done = false;
    int error = 0; // -errno
    std::uint64_t offload = 0;
    std::uint32_t function = 0;
    std::vector<std::uint8_t> args;
    std::array<std::uint8_t, RMEM_FORWARDED_BYTES> answer{};
};

class Link {
public:
    virtual ~Link() = default;
    // Ends within RMEM_FORWARD_MS_MAX, in another thread.
    virtual void send(std::shared_ptr<Forward> forward) = 0;
};

// Called once for each forward, with its answer or an error of 0 or -errno.
using ForwardEnd = std::function<void(Forward& forward, int error, const void* answer)>;
using Links = std::map<std::string, std::unique_ptr<Link>>;
// Opens links that call the function given to it.
using OpenLinks = std::function<Links(const ForwardEnd&)>;

} // namespace remora::daemon
