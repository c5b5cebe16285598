// SPDX-License-Identifier: GPL-2.0
// A UDP socket of the program.
//
//   program's pair --from_program--> a peer, and fits --> Port --> tunnel
//                                    else             --> UDP socket of the kernel, same port
//   program's pair <--deliver------- Port, and that socket
//
// A datagram that has to wait for credit of a connected socket's peer is held, and the pair isn't
// read meanwhile: the program's sends block, or poll() says that it can't write. A socket that the
// program has closed stays until all it sent has left.
#pragma once

#include <cstdint>
#include <optional>

#include "eqds-run/loop.hpp"
#include "eqds-run/peers.hpp"
#include "eqds-run/port.hpp"
#include "udp/wire.hpp"

namespace eqds_run {

class Pump;

class Socket : public Source {
public:
    // pair: eqds-run's end of the pair, whose owner this becomes. Throws std::system_error.
    Socket(Pump& pump, std::uint32_t id, int domain, int pair);
    ~Socket() override;

    // Each returns 0 or an errno.
    int bind(const eqds_udp::Address& address);
    int connect(const eqds_udp::Address& address);
    int disconnect();
    int name(bool remote, eqds_udp::Address* address) const;
    int set_option(const eqds_udp::Request& request);
    int get_option(const eqds_udp::Request& request, eqds_udp::Answer* answer) const;

    int domain() const { return domain_; }
    bool is_connected() const { return remote_.has_value(); }
    bool is_connected_to(const eqds_address& from) const;
    // How well the socket's family fits a sender: 0, not at all. As the kernel, which prefers a
    // socket of IPv4 to one of IPv6 that takes both.
    int fitness(const eqds_address& from) const;

    void deliver(const eqds_udp::Address& from, const void* data, std::size_t bytes, int error = 0);
    void resume();

    void ready(std::uint32_t events) override;

private:
    // The kernel's UDP socket is a source of its own.
    struct Udp : Source {
        explicit Udp(Socket& owner) : owner(owner) {}
        void ready(std::uint32_t) override { owner.from_kernel(); }
        Socket& owner;
        int fd = -1;
    };
    struct Held {
        void* buffer;
        std::size_t bytes;
        eqds_udp::Address to;
    };
    // Closed: no process has the socket any more, and all that it sent has been read.
    enum class Step { Again, Stop, Closed };

    int autobind();
    int attach(std::uint16_t number);
    int format(const eqds_udp::Address& from, void* to) const;
    eqds_udp::Address parse(const void* from) const;
    Step from_program();
    Step take(void* buffer, std::size_t room);
    std::size_t unheaded(const eqds_udp::Head& head, void* buffer, std::size_t room,
                         std::size_t bytes);
    Step forward(void* buffer, std::size_t room, std::size_t bytes, const eqds_udp::Address& to);
    void catch_up();
    void to_kernel(const void* first, std::size_t first_bytes, const void* rest,
                   std::size_t rest_bytes, const eqds_udp::Address& to);
    void from_kernel();
    void pause(bool on);

    Pump& pump_;
    std::uint32_t id_;
    int domain_, pair_;
    Udp udp_;
    Port* port_ = nullptr;
    std::optional<eqds_udp::Address> remote_;
    std::optional<Held> held_;
    bool v6_only_ = false, paused_ = false;
    bool hung_up_ = false; // the program's end is closed, and the loop isn't told of it again
    bool catching_up_ = false;
};

} // namespace eqds_run
