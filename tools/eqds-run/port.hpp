// SPDX-License-Identifier: GPL-2.0
// A UDP port of the program in the eqds device: a handle of libeqds, for all sockets that have it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "eqds-run/loop.hpp"
#include "eqds-run/peers.hpp"
#include "eqds/eqds.h"

namespace eqds_run {

class Socket;
struct Counts;

// Packets of a port to one host that are not settled: a window of the tunnel, and as many behind
// it. A host that gives no credit takes no more of the port's buffers.
inline constexpr unsigned peer_packets_max = 128;
inline constexpr std::uint32_t port_packets = 512;

class Port : public Source {
public:
    // Throws std::system_error: EADDRINUSE, another process has the port.
    Port(Loop& loop, Counts& counts, const char* device, std::uint16_t number);
    ~Port() override;

    std::uint16_t number() const { return number_; }
    std::size_t packet_bytes() const { return packet_bytes_; }
    // Once the device is gone nothing more travels by it.
    bool is_gone() const { return gone_; }

    void join(Socket* socket) { sockets_.push_back(socket); }
    void leave(Socket* socket);
    bool is_unused() const { return sockets_.empty(); }

    // A buffer to send from; NULL: none is free, and the socket is resumed when one is.
    void* buffer(Socket* socket);
    void release(void* buffer) { eqds_release(handle_, buffer); }
    // False: the host has as many as it may have, and the buffer stays the caller's.
    bool send(void* buffer, std::size_t bytes, const eqds_udp::Address& to);
    // Resumes the socket when there is room again.
    void wait(Socket* socket);
    // Hands the kernel what was sent.
    void flush();

    void ready(std::uint32_t events) override;

private:
    struct Peer {
        Host host;
        unsigned packets;
    };

    void settle();
    void receive();
    void resume();
    Socket* owner(const eqds_address& from) const;

    Loop& loop_;
    Counts& counts_;
    eqds_t* handle_ = nullptr;
    std::uint16_t number_;
    std::size_t packet_bytes_ = 0;
    bool gone_ = false;
    std::vector<eqds_packet> batch_;
    std::map<Host, Peer> peers_;
    std::vector<Socket*> sockets_, waiting_;
};

} // namespace eqds_run
