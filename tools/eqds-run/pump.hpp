// SPDX-License-Identifier: GPL-2.0
// All sockets of the program and its children, and the requests about them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>

#include "eqds-run/counts.hpp"
#include "eqds-run/loop.hpp"
#include "eqds-run/peers.hpp"
#include "eqds-run/port.hpp"
#include "eqds-run/socket.hpp"

namespace eqds_run {

class Pump : public Source {
public:
    // requests: this end of the pair that the program's processes share; the pump owns it.
    Pump(std::string device, Peers rule, int requests);
    ~Pump() override;

    // No process of the program is left.
    bool is_deserted() const { return requests_ < 0; }
    // Nor is a datagram that one has sent.
    bool is_over() const { return is_deserted() && sockets_.empty(); }

    // The program's port of that number, made if there is none. Throws std::system_error.
    Port* port(std::uint16_t number);
    // A socket has left it.
    void port_left(Port* port);
    void remove(std::uint32_t id);
    unsigned random() { return random_(); }

    void ready(std::uint32_t events) override;

    Loop loop;
    Counts counts{};
    const Peers peers;
    const LocalHosts local;
    std::array<std::uint8_t, eqds_udp::payload_max + 1> scratch{};

private:
    void serve(const eqds_udp::Request& request, int pair, eqds_udp::Answer* answer);
    int make(const eqds_udp::Request& request, int pair, eqds_udp::Answer* answer);
    void end_requests();

    const std::string device_;
    int requests_; // -1: its other end is closed
    std::uint32_t last_id_ = 0;
    std::minstd_rand random_{std::random_device{}()};
    std::map<std::uint16_t, std::unique_ptr<Port>> ports_;
    std::map<std::uint32_t, std::unique_ptr<Socket>> sockets_;
};

} // namespace eqds_run
