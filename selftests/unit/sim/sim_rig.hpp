// SPDX-License-Identifier: GPL-2.0
// Small simulations for tests, with their invariants checked.
#pragma once

#include <functional>
#include <string>

#include "sim/network.hpp"
#include "sim/sim.hpp"
#include "sim/workload.hpp"

namespace sim {

inline Params small(const std::string& transport) {
    Params params;
    params.topology = "fat-tree";
    params.k = 4;
    params.transport = transport;
    params.workload = "permutation";
    params.flow_bytes = 200'000;
    params.check = true;
    if (transport == "ndp" || transport == "eqds")
        params.queue = "trim";
    if (transport == "dctcp")
        params.mark_packets = 20;
    return params;
}

// A simulation that has run.
struct Finished {
    explicit Finished(const Params& params) : sim(params), workload(sim) {
        sim.run({});
        sim.check();
    }
    Sim sim;
    Workload workload;
};

// Everything that a run reports of its flows, as one text.
inline std::string digest(const Sim& sim) {
    std::string text = std::to_string(sim.events.executed());
    for (const auto& flow : sim.flows)
        for (std::uint64_t value : {flow->end, flow->packets, flow->retransmissions, flow->drops,
                                    flow->trims, flow->delivered_bytes})
            text += " " + std::to_string(value);
    return text;
}

} // namespace sim
