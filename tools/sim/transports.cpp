// SPDX-License-Identifier: GPL-2.0
// Which endpoints a flow has.
#include "sim/datagram.hpp"
#include "sim/eqds.hpp"
#include "sim/ndp.hpp"
#include "sim/rmem.hpp"
#include "sim/sim.hpp"
#include "sim/tcp.hpp"

namespace sim {

void create_endpoints(Sim& sim, Flow& flow) {
    if (flow.tunnelled)
        create_tunnels(sim, flow);
    switch (flow.transport) {
    case Transport::udp:
        flow.source = std::make_unique<UdpSource>(sim, flow);
        flow.sink = std::make_unique<UdpSink>(sim, flow);
        return;
    case Transport::ping:
        flow.source = std::make_unique<PingSource>(sim, flow);
        flow.sink = std::make_unique<PingSink>(sim, flow);
        return;
    case Transport::ndp:
        flow.source = std::make_unique<NdpSource>(sim, flow);
        flow.sink = std::make_unique<NdpSink>(sim, flow);
        return;
    case Transport::eqds:
        create_eqds_endpoints(sim, flow);
        return;
    case Transport::rmem:
        create_rmem_endpoints(sim, flow);
        return;
    default:
        flow.source = std::make_unique<TcpSource>(sim, flow);
        flow.sink = std::make_unique<TcpSink>(sim, flow);
        return;
    }
}

} // namespace sim
