// SPDX-License-Identifier: GPL-2.0
// Records the packets of one flow, as text and as a capture file.
#pragma once

#include <cstdio>
#include <string>

#include "sim/sim.hpp"

namespace sim {

class Trace final : public Watcher {
public:
    // Either name may be empty. Throws remora::Failure.
    Trace(Sim& sim, std::uint32_t flow_index, const std::string& text, const std::string& pcap);
    ~Trace() override;
    Trace(const Trace&) = delete;
    Trace& operator=(const Trace&) = delete;

    void packet(const char* what, const Packet& packet, std::uint32_t where) override;
    // Throws remora::Failure if something could not be written.
    void close();

private:
    void capture(const Packet& packet);

    Sim& sim_;
    FILE *text_ = nullptr, *pcap_ = nullptr;
};

const char* kind_name(Kind kind);

} // namespace sim
