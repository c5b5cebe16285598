// SPDX-License-Identifier: GPL-2.0
// What a UDP port that gives no answer may be. A memory node answers nobody whose key or space it
// doesn't know, so only the machine's own refusals tell.
#pragma once

#include "support/parse.hpp"

namespace remora {

enum class Reach {
    silent,   // nothing came back, not even a refusal: no machine there, or a firewall
    refused,  // the machine is there, and nobody listens at the port
    listened, // the machine refuses another port, but not this one
};

// Throws Failure: no such host.
Reach reach(const Endpoint& endpoint);

} // namespace remora
