// SPDX-License-Identifier: MIT
#include "src/transport/udp.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>

#include "src/transport/scratch.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/reach.hpp"

namespace remora::lib {

namespace {

constexpr int buffer_bytes = 4 << 20;
constexpr std::uint32_t incast_bytes_least = RMEM_IWND_ROOM_BYTES;
constexpr std::uint32_t incast_bytes_most = RMEM_IWND_BYTES;
// Batches handled before timers are checked.
constexpr unsigned batches_max = 64;

// The address alone. Takes no memory.
std::array<std::uint8_t, sizeof(in6_addr)> source_of(int fd) {
    std::array<std::uint8_t, sizeof(in6_addr)> source{};
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
    if (address.ss_family == AF_INET6)
        std::memcpy(source.data(), &reinterpret_cast<sockaddr_in6&>(address).sin6_addr,
                    sizeof(in6_addr));
    else
        std::memcpy(source.data(), &reinterpret_cast<sockaddr_in&>(address).sin_addr,
                    sizeof(in_addr));
    return source;
}

// May a datagram that the socket refused go by another source address?
bool is_of_the_way(int error) {
    return error == EINVAL || error == EADDRNOTAVAIL || error == ENETUNREACH ||
           error == EHOSTUNREACH || error == ENETDOWN || error == ENODEV || error == EDESTADDRREQ;
}

} // namespace

// ---- opening ----

std::vector<Connect> udp_candidates(const std::string& host, std::uint16_t port,
                                    Clock::time_point limit) {
    std::string name = endpoint_text(host, port);
    std::vector<Connect> candidates;
    for (const Resolved& each : resolve(host, port, limit))
        candidates.emplace_back(
            [name, each](Clock::time_point) { return std::make_unique<Udp>(name, each); });
    return candidates;
}

Udp::Udp(const std::string& name, const Resolved& node, Gate* gate)
    : node_(node),
      gate_(gate),
      socket_(socket(node.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (!socket_ || !connects(socket_.get()))
        throw Failure(EHOSTUNREACH, "no way to {}: {}", name, std::strerror(errno));
    bool v6 = node.address.ss_family == AF_INET6;
    int level = v6 ? +IPPROTO_IPV6 : +IPPROTO_IP;
    // Let a path narrower than the local link get fragments instead of nothing.
    int dont = IP_PMTUDISC_DONT; // IPv6's has the same value
    setsockopt(socket_.get(), level, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &dont, sizeof(dont));
    receive_trains(socket_.get());
    for (int option : {SO_RCVBUF, SO_SNDBUF})
        setsockopt(socket_.get(), SOL_SOCKET, option, &buffer_bytes, sizeof(buffer_bytes));
    int mtu = 0;
    socklen_t length = sizeof(mtu);
    if (getsockopt(socket_.get(), level, v6 ? IPV6_MTU : IP_MTU, &mtu, &length))
        throw Failure(EHOSTUNREACH, "the MTU to {} isn't known: {}", name, std::strerror(errno));
    std::uint32_t below = (v6 ? 40 : 20) + sizeof(udphdr);
    limits_.batch_bytes =
        std::min<std::uint32_t>(static_cast<std::uint32_t>(mtu) - below, RMEM_DATAGRAM_BYTES_MAX);
    if (limits_.batch_bytes < RMEM_HEADS_BYTES(1) + RMEM_PIECE_BYTES_MIN)
        throw Failure(EHOSTUNREACH, "the link to {} has an MTU of {}, which is too small", name,
                      mtu);
    limits_.payload_bytes =
        std::min<std::uint32_t>(limits_.batch_bytes - RMEM_HEADS_BYTES(1), RMEM_PIECE_BYTES_MAX);
    // Request no more than the socket has room for; the kernel grants twice the size, for its
    // overhead.
    int room = 0;
    length = sizeof(room);
    getsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &room, &length);
    limits_.window_bytes =
        std::clamp(static_cast<std::uint32_t>(room) / 2, incast_bytes_least, incast_bytes_most);
}

const rmem_cipher& Udp::seal() {
    sealing_ = std::make_unique<Sealing>();
    return sealing_->cipher.core();
}

bool Udp::connects(int fd) const {
    return !connect(fd, reinterpret_cast<const sockaddr*>(&node_.address), node_.bytes);
}

// A socket keeps the source address that its connect() chose, though the machine might have lost
// it, or might have a better one for this way by now: a lease ended, a privacy address expired,
// another link took over. The node learns of the new one as it does behind a NAT that forgets.
void Udp::unanswered() {
    Descriptor other(socket(node_.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!other || !connects(other.get()) || source_of(other.get()) == source_of(socket_.get()))
        return;
    sockaddr none{};
    none.sa_family = AF_UNSPEC;
    connect(socket_.get(), &none, sizeof(none));
    connections_++;
    // If this fails, the next one to be sent does, too, and comes here.
    connects(socket_.get());
}

Failure Udp::silence(const std::string& name, std::chrono::milliseconds patience) const {
    switch (reach(node_.address, node_.bytes, patience / 2)) {
    case Reach::refused:
        return Failure(ECONNREFUSED,
                       "no node at {}: its machine, or a firewall, refuses the port: start a node "
                       "there, open the port, or name the port that the node has",
                       name);
    case Reach::listened:
        return Failure(EKEYREJECTED,
                       "{} ignores us, though its machine answers: does the node have this space "
                       "with this key, is the UDP port open in the firewall, and is it a memory "
                       "node's?",
                       name);
    case Reach::silent:
        break;
    }
    return Failure(EHOSTUNREACH,
                   "nothing comes back from {}: is the machine up, and the UDP port open in each "
                   "firewall?",
                   name);
}

// ---- out ----

void Udp::send(const rmem_client_config& session, Messages& messages) {
    ScratchTurn mine;
    Outgoing& outgoing = mine->outgoing;
    outgoing.begin(socket_.get(), session, messages, trains_may_go_, sealing_.get(), gate_);
    rmem_client_tx tx;
    while (messages.next(tx))
        outgoing.add(tx);
    outgoing.flush();
    if (is_of_the_way(outgoing.error()))
        unanswered();
}

// ---- in ----

void Udp::wait(Clock::time_point until, std::uint64_t spin_ns) {
    Scratch* mine = own_scratch();
    waited_ = mine ? &mine->incoming : nullptr;
    if (waited_)
        got_ = listen(*waited_, until, spin_ns);
    else
        sleep(until);
}

// Returns the number of packets received; 0: until has come.
unsigned Udp::listen(Incoming& incoming, Clock::time_point until, std::uint64_t spin_ns) {
    Clock::time_point spin_end = Clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
        if (unsigned got = incoming.receive(socket_.get()))
            return got;
    } while (Clock::now() < std::min(spin_end, until));
    return sleep(until) ? incoming.receive(socket_.get()) : 0;
}

// False: until has come.
bool Udp::sleep(Clock::time_point until) {
    pollfd ready{socket_.get(), POLLIN, 0};
    auto ns = (until - Clock::now()).count();
    if (ns <= 0)
        return false;
    timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    ppoll(&ready, 1, &left, nullptr);
    return true;
}

namespace {

void take_packets(const rmem_client_config& session, Incoming& incoming, unsigned count,
                  Messages& messages, Sealing* sealing) {
    for (unsigned i = 0; i < count; i++)
        incoming.for_each_datagram(i, [&](std::span<const std::uint8_t> bytes) {
            take_datagram(session, bytes, messages, sealing);
        });
}

} // namespace

void Udp::deliver(const rmem_client_config& session, Messages& messages) {
    if (waited_)
        take_packets(session, *waited_, got_, messages, sealing_.get());
    else
        take_in(session, messages);
}

void Udp::take_in(const rmem_client_config& session, Messages& messages) {
    ScratchTurn mine;
    for (unsigned batch = 0, got = Incoming::packets_max;
         got == Incoming::packets_max && batch < batches_max; batch++) {
        got = mine->incoming.receive(socket_.get());
        take_packets(session, mine->incoming, got, messages, sealing_.get());
    }
}

} // namespace remora::lib
