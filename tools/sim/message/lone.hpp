// SPDX-License-Identifier: GPL-2.0
// The time that a message takes alone in the network: what slowdowns are relative to. Each size is
// simulated, in a network of its own, up to a bound, and interpolated from its neighbours above.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "sim/params.hpp"

namespace sim {

class Lone {
public:
    // transport: that of the lone message.
    Lone(const Params& params, const std::string& transport);

    // far: between two leaves, else at one switch.
    Time of(bool read, std::uint32_t bytes, bool far = false);

private:
    Time simulate(bool read, std::uint32_t bytes, bool far);

    Params params_;
    std::map<std::tuple<bool, std::uint32_t, bool>, Time> known_;
};

} // namespace sim
