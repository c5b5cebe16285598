// SPDX-License-Identifier: GPL-2.0
#include "remora-node/status.hpp"

#include <nlohmann/json.hpp>
#include <sys/socket.h>

namespace remora::daemon {

void StatusSocket::answer(const NodeReport& report) const {
    Descriptor client = listener_.accept();
    if (!client)
        return;
    std::string text = node_report_json(report).dump() + "\n";
    // Its reader notices a text cut short, since that is no JSON.
    [[maybe_unused]] ssize_t sent = send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

} // namespace remora::daemon
