// SPDX-License-Identifier: GPL-2.0
#include "remora-node/transport.hpp"

#include <numeric>

#include "remora-node/shm_transport.hpp"
#include "remora-node/udp_transport.hpp"

namespace remora::daemon {

std::vector<std::unique_ptr<TransportKind>> transport_kinds() {
    std::vector<std::unique_ptr<TransportKind>> kinds;
    kinds.push_back(udp_transport_kind());
    kinds.push_back(shm_transport_kind());
    return kinds;
}

unsigned threads_of(const Transports& transports) {
    return std::accumulate(
        transports.begin(), transports.end(), 0U,
        [](unsigned sum, const auto& transport) { return sum + transport->threads(); });
}

std::vector<std::unique_ptr<Serving>> serve_by(const Transports& transports, Node& node) {
    std::vector<std::unique_ptr<Serving>> served;
    unsigned thread = 0;
    for (const auto& transport : transports) {
        served.push_back(transport->serve(node, thread));
        thread += transport->threads();
    }
    return served;
}

} // namespace remora::daemon
