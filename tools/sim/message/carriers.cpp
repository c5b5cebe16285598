// SPDX-License-Identifier: GPL-2.0
// The transports that carry messages, by name.
#include "sim/message/budget.hpp"
#include "sim/message/cxl.hpp"
#include "sim/message/dcqcn.hpp"
#include "sim/message/edm.hpp"
#include "sim/message/edm_udp.hpp"
#include "sim/message/fastpass.hpp"
#include "sim/message/homa.hpp"
#include "sim/message/ird.hpp"
#include "sim/message/message.hpp"
#include "sim/message/pfabric.hpp"
#include "sim/message/stream.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Misuse;

const Budget& budget_of(const std::string& name) {
    static const std::pair<const char*, const Budget&> budgets[] = {{"edm", budget_edm},
                                                                    {"raw", budget_raw},
                                                                    {"roce", budget_roce},
                                                                    {"tcp", budget_tcp},
                                                                    {"cxl", budget_cxl}};
    for (const auto& [known, budget] : budgets) {
        if (name == known)
            return budget;
    }
    throw Misuse("stack '{}' is none of edm, raw, roce, tcp, cxl", name);
}

namespace {

bool is_stream(const std::string& name) {
    return name == "newreno" || name == "cubic" || name == "dctcp" || name == "eqds" ||
           name == "ndp";
}

} // namespace

Params message_params(const Params& params) {
    Params result = is_stream(params.transport) ? stream_params(params) : params;
    result.check = false; // Messages checks its carrier, which knows its packets
    return result;
}

std::unique_ptr<Carrier> make_carrier(Sim& sim, Messages& messages) {
    const std::string& name = sim.params.transport;
    if (name == "edm")
        return std::make_unique<EdmRack>(sim, messages);
    if (name == "edm-udp")
        return std::make_unique<EdmUdp>(sim, messages);
    if (is_stream(name))
        return std::make_unique<Stream>(sim, messages);
    if (name == "pfabric" || name == "floor")
        return std::make_unique<Pfabric>(sim, messages, name == "floor");
    if (name == "ird")
        return std::make_unique<Ird>(sim, messages);
    if (name == "homa")
        return std::make_unique<Homa>(sim, messages);
    if (name == "dcqcn")
        return std::make_unique<Dcqcn>(sim, messages);
    if (name == "fastpass")
        return std::make_unique<Fastpass>(sim, messages);
    if (name == "cxl" || name == "cxl-voq")
        return std::make_unique<Cxl>(sim, messages, name == "cxl-voq");
    throw Misuse(
        "transport '{}' carries no messages: use edm, edm-udp, dctcp, newreno, cubic, eqds, ndp, "
        "pfabric, ird, homa, dcqcn, fastpass, cxl, cxl-voq or floor",
        name);
}

} // namespace sim
