// SPDX-License-Identifier: GPL-2.0
#include "edm_rack.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "backend.hpp"
#include "remora/rmem_edm.h"
#include "src/clock.hpp"

namespace remora::test {

namespace {

using lib::now_ns;

constexpr std::uint32_t rate_mbps = 10'000;
constexpr std::uint16_t slots = 32;

base_siphash_key rack_key() {
    base_siphash_key key;
    base_siphash_key_load(&key, key_read(key_file()).key.data());
    return key;
}

std::uint16_t port_of(const Descriptor& fd) {
    sockaddr_in address;
    socklen_t length = sizeof(address);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
}

// The next datagram; empty: there is none.
std::vector<std::uint8_t> next_of(const Descriptor& fd, sockaddr_in* from = nullptr) {
    std::vector<std::uint8_t> bytes(65536);
    sockaddr_in source{};
    socklen_t length = sizeof(source);
    const ssize_t got = recvfrom(fd.get(), bytes.data(), bytes.size(), 0,
                                 reinterpret_cast<sockaddr*>(&source), &length);
    bytes.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    if (from)
        *from = source;
    return bytes;
}

edm_sched_config sched_config(std::uint32_t lease_us) {
    edm_sched_config config{};
    config.match.demand.ports = 8;
    config.match.demand.slots = slots;
    config.match.demand.active_max = EDM_ACTIVE_MAX;
    config.match.demand.policy = EDM_SRPT;
    config.match.demand.turn_ns = 1;
    config.match.demand.lease_ns = lease_us * 1000ULL;
    config.match.chunk_bytes = 65536;
    config.match.unit_bytes = 1024;
    config.match.late_bytes_max = 65536;
    config.match.age_ns = 10'000'000;
    config.match.egress_bytes_max = ~0U;
    config.match.share_bytes = 64U * 65536;
    config.match.share_permille = 500;
    config.life = 7;
    config.lease_us = lease_us;
    config.book_permille = 970;
    config.overhead_bytes = 28 + EDM_FRAME_BYTES;
    config.key = rack_key();
    return config;
}

edm_host_config host_config() {
    edm_host_config config{};
    config.link.key = rack_key();
    config.link.join_ns = 5'000'000;
    config.link.epoch = 1;
    config.link.rate_mbps = rate_mbps;
    config.link.port = EdmRack::node_port;
    config.link.slots = slots;
    config.ports = 8;
    config.links = 1;
    config.patience_ns = 1'000'000'000;
    config.late_ns = 100'000'000;
    return config;
}

} // namespace

EdmRack::EdmRack(std::uint16_t node, std::chrono::microseconds lease)
    : node_(node),
      stop_(eventfd(0, EFD_CLOEXEC)),
      scheduler_(udp_socket(0)),
      host_socket_(udp_socket(port_of(scheduler_))),
      front_(udp_socket(0)) {
    const edm_sched_config sched = sched_config(static_cast<std::uint32_t>(lease.count()));
    const edm_host_config host = host_config();
    if (!edm_sched_config_is_valid(&sched) || !edm_host_config_is_valid(&host))
        std::abort();
    sched_memory_.resize(edm_sched_bytes(&sched) / 8 + 1);
    host_memory_.resize(edm_host_bytes(&host) / 8 + 1);
    edm_sched_init(&sched_, &sched, sched_memory_.data());
    edm_host_init(&host_, now_ns(), &host, host_memory_.data());
    for (const Descriptor* each : {&stop_, &scheduler_, &host_socket_, &front_})
        waited_for_.push_back({each->get(), POLLIN, 0});
    thread_ = std::thread([this] { run(); });
}

EdmRack::~EdmRack() {
    eventfd_write(stop_.get(), 1);
    thread_.join();
}

std::string EdmRack::target(unsigned as) const {
    return fmt::format("edm:127.0.0.1:{}/{}@127.0.0.1:{},as={},rate={},rack={},key={}",
                       port_of(scheduler_), node_port, port_of(front_), as, rate_mbps, key_file(),
                       key_file());
}

// ---- its thread ----

int EdmRack::pause_ms() const {
    const std::uint64_t deadline =
        std::min(edm_sched_deadline_ns(&sched_), edm_host_deadline_ns(&host_));
    const std::uint64_t now = now_ns();
    return deadline <= now ? 0 : static_cast<int>(std::min((deadline - now) / 1'000'000 + 1, 10UL));
}

void EdmRack::run() {
    for (;;) {
        poll(waited_for_.data(), waited_for_.size(), pause_ms());
        if (waited_for_[0].revents)
            return;
        const std::size_t flows = flows_.size();
        take_scheduled();
        take_hosts();
        take_from_client();
        for (std::size_t i = 0; i < flows; i++)
            take_from_node(flows_[i]);
        drain();
        pump_host();
    }
}

EdmRack::Flow& EdmRack::flow_of(const sockaddr_in& client) {
    auto flow = std::ranges::find_if(
        flows_, [&](const Flow& each) { return each.client.sin_port == client.sin_port; });
    if (flow != flows_.end())
        return *flow;
    flows_.push_back({client, udp_socket(node_)});
    waited_for_.push_back({flows_.back().back.get(), POLLIN, 0});
    return flows_.back();
}

void EdmRack::take_from_client() {
    sockaddr_in client{};
    for (Bytes bytes; !(bytes = next_of(front_, &client)).empty();)
        send(flow_of(client).back.get(), bytes.data(), bytes.size(), 0);
}

void EdmRack::take_from_node(Flow& flow) {
    for (Bytes bytes; !(bytes = next_of(flow.back)).empty();)
        sendto(front_.get(), bytes.data(), bytes.size(), 0,
               reinterpret_cast<const sockaddr*>(&flow.client), sizeof(flow.client));
}

// ---- the scheduler ----

void EdmRack::reply(edm_message& message, std::span<const std::uint8_t> payload,
                    const sockaddr_in& to, const base_siphash_key& key) {
    Bytes bytes(edm_wire_header_bytes(&message));
    edm_wire_encode(&message, items_, bytes.data());
    bytes.insert(bytes.end(), payload.begin(), payload.end());
    edm_wire_seal(bytes.data(), bytes.size(), &key);
    sendto(scheduler_.get(), bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to),
           sizeof(to));
}

void EdmRack::handle(const edm_message& message, const Bytes& bytes, const sockaddr_in& from) {
    edm_message answer{};
    if (message.kind == EDM_JOIN) {
        const std::uint64_t cookie = edm_wire_cookie(&secret_, &from, sizeof(from));
        if (edm_sched_join(&sched_, now_ns(), &message, cookie, cookie, &answer) != EDM_SCHED_REPLY)
            return;
        way_[answer.port] = from;
        reply(answer, {}, from, sched_.config.key);
        return;
    }
    const edm_sched_verdict verdict =
        message.kind == EDM_DEMAND
            ? edm_sched_demand(&sched_, now_ns(), &message, bytes.data(), &answer, items_)
            : edm_sched_request(&sched_, now_ns(), &message, &answer, items_);
    if (verdict == EDM_SCHED_IGNORE)
        return;
    forwards_ += answer.kind == EDM_FORWARD;
    reply(answer, std::span(bytes).last(answer.payload_bytes), way_[answer.port],
          *edm_sched_key(&sched_, answer.port));
}

void EdmRack::take_scheduled() {
    sockaddr_in from{};
    edm_message message;
    for (Bytes bytes; !(bytes = next_of(scheduler_, &from)).empty();) {
        if (silent_ || edm_wire_parse(&message, bytes.data(), bytes.size()) != EDM_WIRE_GOOD)
            continue;
        const base_siphash_key* key =
            message.kind == EDM_JOIN ? &sched_.config.key : edm_sched_key(&sched_, message.port);
        if (key && edm_wire_verifies(bytes.data(), bytes.size(), key))
            handle(message, bytes, from);
    }
}

void EdmRack::drain() {
    edm_message message{};
    const std::uint64_t now = now_ns();
    while (edm_sched_expire(&sched_, now)) {
    }
    while (edm_sched_next(&sched_, now, &message, items_)) {
        grants_++;
        if (const base_siphash_key* key = edm_sched_key(&sched_, message.port); key && !silent_)
            reply(message, {}, way_[message.port], *key);
    }
}

// ---- the node's host ----

void EdmRack::take_hosts() {
    edm_message message;
    for (Bytes bytes; !(bytes = next_of(host_socket_)).empty();) {
        if (edm_wire_parse(&message, bytes.data(), bytes.size()) != EDM_WIRE_GOOD)
            continue;
        if (message.kind != EDM_FORWARD) {
            edm_host_receive(&host_, now_ns(), 0, &message, bytes.data());
            continue;
        }
        if (edm_host_request(&host_, now_ns(), 0, &message) != EDM_HOST_NEW)
            continue;
        const std::span request = std::span(bytes).last(message.payload_bytes);
        rmem_edm_prefix prefix;
        std::memcpy(&prefix, request.data(), sizeof(prefix));
        sockaddr_in client = loopback(ntohs(prefix.port));
        std::memcpy(&client.sin_addr, prefix.client + 12, sizeof(client.sin_addr));
        send(flow_of(client).back.get(), request.data() + sizeof(prefix),
             request.size() - sizeof(prefix), 0);
        edm_host_answer(&host_, message.item.peer, message.item.id);
    }
}

void EdmRack::pump_host() {
    static edm_host_action action; // one thread; it is large
    while (edm_host_next(&host_, now_ns(), &action)) {
        if (action.what != EDM_HOST_TELL)
            continue;
        Bytes bytes(edm_wire_header_bytes(&action.message));
        edm_wire_encode(&action.message, action.items, bytes.data());
        edm_wire_seal(bytes.data(), bytes.size(),
                      action.message.kind == EDM_JOIN ? &host_.config.link.key
                                                      : edm_host_key(&host_, 0));
        send(host_socket_.get(), bytes.data(), bytes.size(), 0);
    }
}

} // namespace remora::test
