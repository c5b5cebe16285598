// SPDX-License-Identifier: GPL-2.0
// Messages over the flows of sim.hpp (TCP, DCTCP, EQDS, NDP): a flow for each pair of hosts and
// direction, whose bytes are the pair's messages, one behind the other. A message has arrived when
// the flow's bytes have, in order, up to its end.
#pragma once

#include <deque>
#include <unordered_map>

#include "sim/message/leg.hpp"

namespace sim {

class Stream final : public LegCarrier, public StreamListener {
public:
    Stream(Sim& sim, Messages& messages);

    void progress(Flow& flow, std::uint64_t in_order) override;
    void check(bool idle) const override;
    std::uint64_t egress_peak_bytes() const override;
    std::vector<std::pair<std::string, std::uint64_t>> counts() const override;

protected:
    void send(Leg leg) override;
    std::pair<double, double> leg_wire(std::uint32_t bytes) const override;

private:
    struct Pair {
        Flow* flow = nullptr;
        std::deque<std::pair<std::uint64_t, Leg>> ends; // of legs in the flow's bytes
    };

    void start(Flow& flow);

    Transport transport_;
    std::unordered_map<std::uint32_t, Pair> pairs_; // by source and destination
    std::vector<Pair*> by_flow_;
};

// Parameters of the network for a transport of message workloads: hop delays that give a lone
// message its budget, Ethernet's framing, queues.
Params stream_params(Params params);

} // namespace sim
