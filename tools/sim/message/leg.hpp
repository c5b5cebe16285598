// SPDX-License-Identifier: GPL-2.0
// A transport that carries bytes one way: a write is one leg, a read a request and an answer.
#pragma once

#include "sim/message/message.hpp"

namespace sim {

// A message and its direction, as one word.
struct Leg {
    std::uint32_t message;
    bool answer; // from the memory to the requester

    std::uint64_t word() const { return std::uint64_t{message} << 1 | answer; }
    static Leg of(std::uint64_t word) {
        return {static_cast<std::uint32_t>(word >> 1), (word & 1) != 0};
    }
};

class LegCarrier : public Carrier {
public:
    LegCarrier(Sim& sim, Messages& messages) : sim_(sim), messages_(messages) {}

    void submit(std::uint32_t message) final { send({message, false}); }
    Wire wire(bool read, std::uint32_t bytes) const final;

protected:
    virtual void send(Leg leg) = 0;
    // Bytes on the link: in the direction of the data, and the other way.
    virtual std::pair<double, double> leg_wire(std::uint32_t bytes) const = 0;

    // The last byte of a leg is there.
    void arrived(Leg leg);
    // The leg's.
    std::uint32_t bytes(Leg leg) const;
    std::uint16_t source(Leg leg) const;
    std::uint16_t destination(Leg leg) const;

    Sim& sim_;
    Messages& messages_;
};

} // namespace sim
