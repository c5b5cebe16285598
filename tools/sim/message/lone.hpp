// SPDX-License-Identifier: GPL-2.0
// The time that a message takes alone in the network: what slowdowns are relative to. Each size is
// simulated, in a network of its own, up to a bound, and interpolated from its neighbours above.
#pragma once

#include <map>
#include <string>
#include <utility>

#include "sim/params.hpp"

namespace sim {

class Lone {
public:
    // transport: that of the lone message.
    Lone(const Params& params, const std::string& transport);

    Time of(bool read, std::uint32_t bytes);

private:
    Time simulate(bool read, std::uint32_t bytes);

    Params params_;
    std::map<std::pair<bool, std::uint32_t>, Time> known_;
};

} // namespace sim
