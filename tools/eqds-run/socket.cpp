// SPDX-License-Identifier: GPL-2.0
#include "eqds-run/socket.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

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

// More datagrams than a pair holds, which the program may go on to fill.
constexpr int catch_up_max = 4096;

using Scratch = std::array<std::uint8_t, eqds_udp::payload_max + 1>;

bool is_mapped(const Host& host) {
    static const Host none = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(none.begin(), none.begin() + 12, host.begin());
}

} // namespace

Socket::Socket(Pump& pump, std::uint32_t id, int domain, int pair)
    : pump_(pump), id_(id), domain_(domain), pair_(pair), udp_(*this) {
    try {
        udp_.fd = socket(domain, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (udp_.fd < 0)
            throw_errno("socket");
        // Best effort: with less, a program that receives in bursts loses more.
        setsockopt(pair_, SOL_SOCKET, SO_SNDBUFFORCE, &pair_bytes, sizeof(pair_bytes));
        pump_.loop.add(pair_, this);
        pump_.loop.add(udp_.fd, &udp_);
    } catch (...) {
        if (udp_.fd >= 0)
            close(udp_.fd);
        close(pair_);
        throw;
    }
}

Socket::~Socket() {
    if (port_) {
        if (held_)
            port_->release(held_->buffer);
        port_->leave(this);
        pump_.port_left(port_);
    }
    pump_.loop.remove(pair_);
    pump_.loop.remove(udp_.fd);
    close(udp_.fd);
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

int Socket::fitness(const eqds_address& from) const {
    Host host;
    std::memcpy(host.data(), from.host, host.size());
    if (domain_ == AF_INET)
        return is_mapped(host) ? 2 : 0;
    return v6_only_ && is_mapped(host) ? 0 : 1;
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
    int v6_only = 0;
    socklen_t bytes = sizeof(v6_only);
    if (domain_ == AF_INET6 &&
        !getsockopt(udp_.fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, &bytes)) // fixed by bind()
        v6_only_ = v6_only;
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
    catch_up();
    auto bytes = static_cast<socklen_t>(format(address, &storage));
    if (::connect(udp_.fd, reinterpret_cast<sockaddr*>(&storage), bytes))
        return errno;
    remote_ = address;
    return 0;
}

int Socket::disconnect() {
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    catch_up();
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
    if (!hung_up_) {
        pump_.loop.turn(pair_, this, !on);
    } else if (!on) {
        hung_up_ = false;
        pump_.loop.add(pair_, this);
    }
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

    if (!pump_.peers.has(host) || pump_.local.is_group(host))
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
    } else if (remote_ && !catching_up_) {
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

// A message that is payload from its first byte on, of which take() took the first for a head:
// moves it to where payload is. Returns its bytes.
std::size_t Socket::unheaded(const eqds_udp::Head& head, void* buffer, std::size_t room,
                             std::size_t bytes) {
    std::vector<std::uint8_t> whole(sizeof(head) + room + pump_.scratch.size());
    auto at = whole.begin();
    for (auto [from, n] : {std::pair<const void*, std::size_t>{&head, sizeof(head)},
                           {buffer, room},
                           {pump_.scratch.data(), pump_.scratch.size()}}) {
        auto* first = static_cast<const std::uint8_t*>(from);
        at = std::copy(first, first + n, at);
    }
    std::copy_n(whole.begin(), room, static_cast<std::uint8_t*>(buffer));
    std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(room), pump_.scratch.size(),
                pump_.scratch.begin());
    return bytes;
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
    // The program closed its end with datagrams unread: told once, before what it sent.
    if (got < 0 && errno == ECONNRESET)
        return drop(Step::Again);
    if (got <= 0)
        return drop(Step::Closed);
    auto bytes = static_cast<std::size_t>(got);
    if (bytes < sizeof(head) || head.mark != eqds_udp::head_mark) {
        bytes = unheaded(head, buffer, room, bytes);
        head = {};
    } else {
        bytes -= sizeof(head);
    }
    const eqds_udp::Address to = head.address.port ? head.address : remote_.value_or(head.address);
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

// The remote changes: what the program has sent until now is for the one of before. Datagrams
// that can't leave now are dropped.
void Socket::catch_up() {
    if (!remote_)
        return;
    catching_up_ = true;
    Step step = Step::Again;
    for (int i = 0; i < catch_up_max && step == Step::Again; i++) {
        const bool native = port_ && !port_->is_gone();
        void* buffer = native ? port_->buffer(this) : nullptr;
        if (native && !buffer) {
            port_->flush();
            buffer = port_->buffer(this);
        }
        step = take(buffer, buffer ? port_->packet_bytes() : 0);
    }
    catching_up_ = false;
    if (port_)
        port_->flush();
}

void Socket::ready(std::uint32_t events) {
    if (!paused_) {
        if (from_program() == Step::Closed)
            pump_.remove(id_); // frees this
    } else if (events & (EPOLLHUP | EPOLLERR) && !hung_up_) {
        hung_up_ = true;
        pump_.loop.remove(pair_);
    }
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
    if (sendmsg(pair_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return;
    if (errno == EPIPE || errno == ECONNRESET)
        pump_.counts.dropped_no_socket++; // the program has closed it, or shut it down
    else
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
