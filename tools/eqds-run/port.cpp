// SPDX-License-Identifier: GPL-2.0
#include "eqds-run/port.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "eqds-run/counts.hpp"
#include "eqds-run/socket.hpp"
#include "support/say.hpp"

namespace eqds_run {

namespace {

// Of one kind, taken at once: others are served in between.
constexpr std::size_t batch_max = 64;

} // namespace

Port::Port(Loop& loop, Counts& counts, const char* device, std::uint16_t number)
    : loop_(loop), counts_(counts), number_(number) {
    eqds_options options{};
    options.bytes = sizeof(options);
    options.packets = port_packets;
    options.port = number;
    int err = eqds_open(&handle_, device, &options);
    if (err)
        throw_errno(device, -err);
    packet_bytes_ = eqds_packet_bytes(handle_);
    try {
        loop_.add(eqds_fd(handle_), this);
    } catch (...) {
        eqds_close(handle_);
        throw;
    }
}

Port::~Port() {
    if (!gone_)
        loop_.remove(eqds_fd(handle_));
    eqds_close(handle_);
}

void Port::leave(Socket* socket) {
    std::erase(sockets_, socket);
    std::erase(waiting_, socket);
}

void Port::wait(Socket* socket) {
    if (std::find(waiting_.begin(), waiting_.end(), socket) == waiting_.end())
        waiting_.push_back(socket);
}

void* Port::buffer(Socket* socket) {
    void* data = nullptr;
    // Packets that found no room in the ring go first.
    if (batch_.size() < batch_max && !eqds_buffer(handle_, &data))
        return data;
    wait(socket);
    return nullptr;
}

bool Port::send(void* buffer, std::size_t bytes, const eqds_udp::Address& to) {
    const Host host = host_of(to);
    Peer& peer = peers_.try_emplace(host, Peer{host, 0}).first->second;
    if (peer.packets >= peer_packets_max)
        return false;
    peer.packets++;
    eqds_packet packet{};
    packet.data = buffer;
    packet.bytes = bytes;
    packet.cookie = reinterpret_cast<std::uintptr_t>(&peer);
    std::memcpy(packet.address.host, to.host, sizeof(packet.address.host));
    packet.address.port = to.port;
    batch_.push_back(packet);
    return true;
}

void Port::flush() {
    if (batch_.empty() || gone_)
        return;
    int sent = eqds_send(handle_, batch_.data(), batch_.size());
    if (sent == -ENODEV) {
        ready(EPOLLHUP);
        return;
    }
    if (sent < 0)
        throw_errno("eqds_send", -sent);
    counts_.sent_eqds += static_cast<std::uint64_t>(sent);
    batch_.erase(batch_.begin(), batch_.begin() + sent);
}

void Port::settle() {
    std::array<eqds_completion, batch_max> done;
    int n = eqds_complete(handle_, done.data(), done.size());
    for (int i = 0; i < n; i++) {
        const eqds_completion& each = done[static_cast<std::size_t>(i)];
        auto* peer = reinterpret_cast<Peer*>(static_cast<std::uintptr_t>(each.cookie));
        counts_.dropped_tunnel += each.status != EQDS_DELIVERED;
        if (!--peer->packets)
            peers_.erase(Host(peer->host));
    }
}

// Connected sockets have their peer's datagrams; of the others the latest has all of its family.
Socket* Port::owner(const eqds_address& from) const {
    Socket* found = nullptr;
    int best = 1;
    for (Socket* each : sockets_) {
        if (each->is_connected_to(from))
            return each;
        if (!each->is_connected() && each->fitness(from) >= best) {
            best = each->fitness(from);
            found = each;
        }
    }
    return found;
}

void Port::receive() {
    std::array<eqds_packet, batch_max> packets;
    int n = eqds_receive(handle_, packets.data(), packets.size());
    for (int i = 0; i < n; i++) {
        const eqds_packet& each = packets[static_cast<std::size_t>(i)];
        Socket* socket = owner(each.address);
        if (socket) {
            eqds_udp::Address from{};
            std::memcpy(from.host, each.address.host, sizeof(from.host));
            from.port = each.address.port;
            counts_.received_eqds++;
            socket->deliver(from, each.data, each.bytes);
        } else {
            counts_.dropped_no_socket++;
        }
        eqds_release(handle_, each.data);
    }
}

void Port::resume() {
    std::vector<Socket*> now;
    now.swap(waiting_);
    for (Socket* each : now)
        each->resume();
}

void Port::ready(std::uint32_t events) {
    if (gone_)
        return;
    settle();
    receive();
    flush();
    if (events & EPOLLHUP && !gone_) {
        remora::warn("eqds-run: the eqds device is gone: port {} is the kernel's alone", number_);
        gone_ = true;
        loop_.remove(eqds_fd(handle_));
        for (const eqds_packet& each : batch_)
            eqds_release(handle_, each.data);
        counts_.dropped_tunnel += batch_.size();
        batch_.clear();
    }
    resume();
}

} // namespace eqds_run
