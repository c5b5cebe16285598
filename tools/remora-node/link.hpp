// SPDX-License-Identifier: GPL-2.0
// A link to another node, by libremote.
#pragma once

#include <string>
#include <vector>

#include "remora-node/forward.hpp"

namespace remora::daemon {

// texts: NAME=TARGET, with a target of remote_open(). Throws Failure: it can't be, or isn't there.
Links open_links(const std::vector<std::string>& texts, const ForwardEnd& ended);

} // namespace remora::daemon
