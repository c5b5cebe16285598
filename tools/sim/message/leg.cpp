// SPDX-License-Identifier: GPL-2.0
#include "sim/message/leg.hpp"

namespace sim {

Wire LegCarrier::wire(bool read, std::uint32_t bytes) const {
    auto [there, back] = leg_wire(read ? sim_.params.message.request_bytes : bytes);
    Wire wire{there, back, back, there};
    if (read) {
        auto [data, control] = leg_wire(bytes);
        wire.memory_tx += data;
        wire.requester_rx += data;
        wire.requester_tx += control;
        wire.memory_rx += control;
    }
    return wire;
}

void LegCarrier::arrived(Leg leg) {
    if (messages_[leg.message].read && !leg.answer)
        send({leg.message, true});
    else
        messages_.finished(leg.message);
}

std::uint32_t LegCarrier::bytes(Leg leg) const {
    const Message& message = messages_[leg.message];
    return message.read && !leg.answer ? sim_.params.message.request_bytes : message.bytes;
}

std::uint16_t LegCarrier::source(Leg leg) const {
    const Message& message = messages_[leg.message];
    return leg.answer ? message.memory : message.requester;
}

std::uint16_t LegCarrier::destination(Leg leg) const {
    const Message& message = messages_[leg.message];
    return leg.answer ? message.requester : message.memory;
}

} // namespace sim
