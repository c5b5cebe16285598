// SPDX-License-Identifier: GPL-2.0
#include "eqds-run/socket.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <netinet/in.h>
#include <sys/socket.h>

#include "eqds-run/counts.hpp"
#include "eqds-run/pump.hpp"

namespace eqds_run {

namespace {

// Datagrams of a socket in a row: then it is the others' turn.
constexpr int turn = 64;
// Bytes of datagrams that wait in the pair for the program; more are dropped, as by a UDP socket.
constexpr int pair_bytes = 1 << 20;
constexpr std::uint16_t first_port = 49152;
constexpr unsigned ports = 16384;

using Scratch = std::array<std::uint8_t, eqds_udp::payload_max + 1>;

bool is_loopback(const Host& host) {
    static const Host v6 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    return host == v6 || (!host[0] && host[10] == 0xff && host[11] == 0xff && host[12] == 127);
}

} // namespace

Socket::Socket(Pump& pump, std::uint32_t id, int domain, int pair)
    : pump_(pump), id_(id), domain_(domain), pair_(pair), udp_(*this) {
    udp_.fd = socket(domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (udp_.fd < 0)
        throw_errno("socket");
    // Best effort: with less, a program that receives in bursts loses more.
    setsockopt(pair_, SOL_SOCKET, SO_SNDBUFFORCE, &pair_bytes, sizeof(pair_bytes));
    pump_.loop.add(pair_, this);
    pump_.loop.add(udp_.fd, &udp_);
}

Socket::~Socket() {
    if (port_) {
        if (held_)
            port_->release(held_->buffer);
        port_->leave(this);
        pump_.port_left(port_);
    }
    if (udp_.fd >= 0) {
        pump_.loop.remove(pair_);
        pump_.loop.remove(udp_.fd);
        close(udp_.fd);
    }
    close(pair_);
}

// ---- addresses ----

// The kernel's form; its length.
int Socket::format(const eqds_udp::Address& from, void* to) const {
    if (domain_ == AF_INET6) {
        sockaddr_in6 in6{};
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(from.port);
        in6.sin6_scope_id = from.scope;
        std::memcpy(&in6.sin6_addr, from.host, sizeof(from.host));
        std::memcpy(to, &in6, sizeof(in6));
        return sizeof(in6);
    }
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(from.port);
    std::memcpy(&in.sin_addr, from.host + 12, sizeof(in.sin_addr));
    std::memcpy(to, &in, sizeof(in));
    return sizeof(in);
}

eqds_udp::Address Socket::parse(const void* from) const {
    eqds_udp::Address to{};
    if (domain_ == AF_INET6) {
        sockaddr_in6 in6;
        std::memcpy(&in6, from, sizeof(in6));
        std::memcpy(to.host, &in6.sin6_addr, sizeof(to.host));
        to.port = ntohs(in6.sin6_port);
        to.scope = in6.sin6_scope_id;
        return to;
    }
    sockaddr_in in;
    std::memcpy(&in, from, sizeof(in));
    to.host[10] = to.host[11] = 0xff;
    std::memcpy(to.host + 12, &in.sin_addr, sizeof(in.sin_addr));
    to.port = ntohs(in.sin_port);
    return to;
}

bool Socket::is_connected_to(const eqds_address& from) const {
    return remote_ && remote_->port == from.port &&
           !std::memcmp(remote_->host, from.host, sizeof(from.host));
}

int Socket::name(bool remote, eqds_udp::Address* address) const {
    sockaddr_storage storage{};
    socklen_t bytes = sizeof(storage);
    auto* to = reinterpret_cast<sockaddr*>(&storage);
    if (remote ? getpeername(udp_.fd, to, &bytes) : getsockname(udp_.fd, to, &bytes))
        return errno;
    *address = parse(&storage);
    return 0;
}

// ---- life ----

int Socket::attach(std::uint16_t number) {
    try {
        port_ = pump_.port(number);
    } catch (const std::system_error& error) {
        return error.code().value();
    }
    port_->join(this);
    return 0;
}

int Socket::bind(const eqds_udp::Address& address) {
    sockaddr_storage storage{};
    eqds_udp::Address bound{};
    if (port_)
        return EINVAL;
    if (!address.port) {
        // The number has to be free in the device, too.
        eqds_udp::Address at = address;
        for (unsigned i = 0; i < ports; i++) {
            at.port = static_cast<std::uint16_t>(first_port + (pump_.random() + i) % ports);
            if (int error = bind(at); error != EADDRINUSE)
                return error;
        }
        return EADDRINUSE;
    }
    auto bytes = static_cast<socklen_t>(format(address, &storage));
    // A socket that is for this machine alone has no business in the device.
    if (is_loopback(host_of(address)))
        return ::bind(udp_.fd, reinterpret_cast<sockaddr*>(&storage), bytes) ? errno : 0;
    if (int error = attach(address.port))
        return error;
    if (!::bind(udp_.fd, reinterpret_cast<sockaddr*>(&storage), bytes))
        return name(false, &bound);
    int error = errno;
    port_->leave(this);
    pump_.port_left(port_);
    port_ = nullptr;
    return error;
}

int Socket::autobind() {
    eqds_udp::Address any{}, bound{};
    if (port_ || (!name(false, &bound) && bound.port))
        return 0;
    if (domain_ == AF_INET)
        any.host[10] = any.host[11] = 0xff;
    return bind(any);
}

int Socket::connect(const eqds_udp::Address& address) {
    sockaddr_storage storage{};
    if (int error = autobind())
        return error;
    auto bytes = static_cast<socklen_t>(format(address, &storage));
    if (::connect(udp_.fd, reinterpret_cast<sockaddr*>(&storage), bytes))
        return errno;
    remote_ = address;
    return 0;
}

int Socket::disconnect() {
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    remote_.reset();
    return ::connect(udp_.fd, &none, sizeof(none)) ? errno : 0;
}

int Socket::set_option(const eqds_udp::Request& request) {
    return setsockopt(udp_.fd, request.level, request.option, request.data, request.data_bytes)
               ? errno
               : 0;
}

int Socket::get_option(const eqds_udp::Request& request, eqds_udp::Answer* answer) const {
    socklen_t bytes = static_cast<socklen_t>(
        std::clamp<std::int32_t>(request.value, 0, eqds_udp::option_bytes_max));
    if (getsockopt(udp_.fd, request.level, request.option, answer->data, &bytes))
        return errno;
    answer->data_bytes = bytes;
    return 0;
}

// ---- to the network ----

void Socket::pause(bool on) {
    if (on == paused_)
        return;
    paused_ = on;
    pump_.loop.turn(pair_, this, !on);
}

void Socket::resume() {
    if (held_) {
        if (!port_->is_gone() && !port_->send(held_->buffer, held_->bytes, held_->to)) {
            port_->wait(this);
            return;
        }
        if (port_->is_gone()) {
            to_kernel(held_->buffer, held_->bytes, nullptr, 0, held_->to);
            pump_.counts.sent_no_device++;
            port_->release(held_->buffer);
        }
        held_.reset();
    }
    pause(false);
}

void Socket::to_kernel(const void* first, std::size_t first_bytes, const void* rest,
                       std::size_t rest_bytes, const eqds_udp::Address& to) {
    sockaddr_storage storage{};
    iovec parts[2] = {{const_cast<void*>(first), first_bytes},
                      {const_cast<void*>(rest), rest_bytes}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = rest_bytes ? 2 : 1;
    // A connected socket of the kernel takes no address of another family than its own.
    if (!remote_ || !(to == *remote_)) {
        message.msg_name = &storage;
        message.msg_namelen = static_cast<socklen_t>(format(to, &storage));
    }
    if (sendmsg(udp_.fd, &message, MSG_NOSIGNAL) >= 0)
        return;
    pump_.counts.dropped_kernel++;
    if (errno != EAGAIN && errno != ENOBUFS)
        deliver(to, nullptr, 0, errno);
}

// Through a tunnel, or by the kernel's UDP, by the rule of README.md.
Socket::Step Socket::forward(void* buffer, std::size_t room, std::size_t bytes,
                             const eqds_udp::Address& to) {
    const std::size_t now = std::min(room, bytes);
    const Host host = host_of(to);
    std::uint64_t* why = nullptr;

    if (!pump_.peers.has(host))
        why = &pump_.counts.sent_not_peer;
    else if (pump_.local.has(host))
        why = &pump_.counts.sent_local;
    else if (!port_ || port_->is_gone())
        why = &pump_.counts.sent_no_device;
    else if (bytes > room || !bytes)
        why = &pump_.counts.sent_large;
    if (why) {
        ++*why;
        to_kernel(buffer, now, pump_.scratch.data(), bytes - now, to);
    } else if (port_->send(buffer, bytes, to)) {
        return Step::Again; // the buffer is the port's
    } else if (remote_) {
        held_ = Held{buffer, bytes, to};
        port_->wait(this);
        return Step::Stop;
    } else {
        pump_.counts.dropped_peer_full++;
    }
    if (port_ && room)
        port_->release(buffer);
    return Step::Again;
}

// A datagram of the program; buffer: where its beginning is to go, room bytes of it.
Socket::Step Socket::take(void* buffer, std::size_t room) {
    eqds_udp::Head head{};
    iovec parts[3] = {
        {&head, sizeof(head)}, {buffer, room}, {pump_.scratch.data(), pump_.scratch.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 3;
    ssize_t got = recvmsg(pair_, &message, MSG_DONTWAIT);
    auto drop = [&](Step step) {
        if (room)
            port_->release(buffer);
        return step;
    };
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return drop(Step::Stop);
    if (got < static_cast<ssize_t>(sizeof(head)))
        return drop(Step::End);
    const eqds_udp::Address to = head.address.port ? head.address : remote_.value_or(head.address);
    const std::size_t bytes = static_cast<std::size_t>(got) - sizeof(head);
    if (!to.port || bytes > eqds_udp::payload_max) {
        pump_.counts.dropped_kernel++;
        return drop(Step::Again);
    }
    return forward(buffer, room, bytes, to);
}

Socket::Step Socket::from_program() {
    Step step = Step::Again;
    // A socket that sends before it is bound has a port from then on.
    autobind();
    for (int i = 0; i < turn && step == Step::Again; i++) {
        const bool native = port_ && !port_->is_gone();
        void* buffer = native ? port_->buffer(this) : nullptr;
        if (native && !buffer) {
            pause(true);
            break;
        }
        step = take(buffer, native ? port_->packet_bytes() : 0);
    }
    if (held_)
        pause(true);
    if (port_)
        port_->flush();
    return step;
}

void Socket::ready(std::uint32_t events) {
    Step step = Step::Stop;
    if (!paused_)
        step = from_program();
    if (step == Step::End || (paused_ && events & (EPOLLHUP | EPOLLERR)))
        pump_.remove(id_); // frees this
}

// ---- from the network ----

void Socket::deliver(const eqds_udp::Address& from, const void* data, std::size_t bytes,
                     int error) {
    eqds_udp::Head head{};
    head.address = from;
    head.error = error;
    iovec parts[2] = {{&head, sizeof(head)}, {const_cast<void*>(data), bytes}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = bytes ? 2 : 1;
    if (sendmsg(pair_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        pump_.counts.dropped_receiver_full++;
}

void Socket::from_kernel() {
    for (int i = 0; i < turn; i++) {
        sockaddr_storage storage{};
        socklen_t bytes = sizeof(storage);
        ssize_t got = recvfrom(udp_.fd, pump_.scratch.data(), pump_.scratch.size(), MSG_DONTWAIT,
                               reinterpret_cast<sockaddr*>(&storage), &bytes);
        if (got < 0) {
            // ICMP's error about a connected socket's peer.
            if (errno != EAGAIN && errno != EINTR && remote_)
                deliver(*remote_, nullptr, 0, errno);
            return;
        }
        pump_.counts.received_kernel++;
        deliver(parse(&storage), pump_.scratch.data(), static_cast<std::size_t>(got));
    }
}

} // namespace eqds_run
