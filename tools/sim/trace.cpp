// SPDX-License-Identifier: GPL-2.0
#include "sim/trace.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "sim/eqds.hpp"
#include "sim/network.hpp"
#include "support/failure.hpp"

namespace sim {

using remora::Failure;

namespace {

constexpr const char* kind_names[] = {"tcp-data",     "tcp-ack",      "tcp-open",  "udp",
                                      "ping",         "pong",         "ndp-data",  "ndp-ack",
                                      "ndp-nack",     "ndp-pull",     "eqds-data", "eqds-control",
                                      "rmem-request", "rmem-response"};

FILE* open(const std::string& file) {
    if (file.empty())
        return nullptr;
    FILE* opened = std::fopen(file.c_str(), "wb");
    if (!opened)
        throw Failure("{}: {}", file, std::strerror(errno));
    return opened;
}

template <typename T>
void put(std::uint8_t* at, T value) { // big-endian
    for (std::size_t i = sizeof(T); i--; value = static_cast<T>(value >> 8))
        at[i] = static_cast<std::uint8_t>(value);
}

// The numbers of the protocol's header.
std::string numbers(const Packet& packet) {
    if (packet.kind != Kind::eqds_data && packet.kind != Kind::eqds_control)
        return fmt::format("seq {} ack {}", packet.seq, packet.ack);
    static constexpr std::pair<unsigned, const char*> names[] = {
        {EQDS_SYN, " SYN"},     {EQDS_NACK, " NACK"},   {EQDS_SACK, " SACK"}, {EQDS_ACK, " ACK"},
        {EQDS_EMPTY, " EMPTY"}, {EQDS_PAUSE, " PAUSE"}, {EQDS_FIN, " FIN"}};
    eqds_head head;
    if (eqds_wire_parse(&eqds_profile_extended, packet.tunnel_header, packet.tunnel_header_bytes,
                        &head) != EQDS_WIRE_GOOD)
        return "unreadable";
    std::string text = head.control
                           ? fmt::format("ack {} echo {} pull {}", head.ack, head.echo, head.pull)
                           : fmt::format("seq {} target {}", head.seq, head.pull);
    for (const auto& [flag, name] : names)
        text += head.flags & flag ? name : "";
    return text;
}

} // namespace

const char* kind_name(Kind kind) {
    return kind_names[static_cast<int>(kind)];
}

Trace::Trace(Sim& sim, std::uint32_t flow_index, const std::string& text, const std::string& pcap)
    : sim_(sim), text_(open(text)), pcap_(open(pcap)) {
    sim.watched_flow = flow_index;
    sim.watcher = this;
    if (pcap_) {
        // Nanosecond timestamps, raw IP.
        const std::uint32_t header[] = {0xa1b23c4d, 2 | 4 << 16, 0, 0, 65535, 101};
        std::fwrite(header, sizeof(header), 1, pcap_);
    }
}

Trace::~Trace() {
    sim_.watcher = nullptr;
    sim_.watched_flow = ~0u;
    for (FILE* file : {text_, pcap_}) {
        if (file)
            std::fclose(file);
    }
}

void Trace::close() {
    for (FILE** file : {&text_, &pcap_}) {
        FILE* open = std::exchange(*file, nullptr);
        if (open && (std::ferror(open) | std::fclose(open)))
            throw Failure("the trace can't be written");
    }
}

void Trace::packet(const char* what, const Packet& packet, std::uint32_t where) {
    bool at_host = !std::strcmp(what, "send") || !std::strcmp(what, "receive");
    if (text_) {
        std::string place = at_host        ? fmt::format("host{}", where)
                            : where == ~0u ? std::string("no-route")
                                           : sim_.network->port_name(where);
        fmt::print(text_, "{:>14}.{:03} {:8} {:22} {:12} {} path {} {} bytes{}{}{}{}\n",
                   sim_.now() / ns, sim_.now() % ns, what, place, kind_name(packet.kind),
                   numbers(packet), packet.path, packet.bytes,
                   packet.flags & flag_retransmit ? " again" : "",
                   packet.flags & flag_trimmed ? " trimmed" : "",
                   packet.flags & flag_ce ? " CE" : "", packet.flags & flag_ece ? " ECE" : "");
    }
    if (pcap_ && at_host)
        capture(packet);
}

// IPv4 with a TCP header, or with UDP and the tunnel's header; the payload is left out.
void Trace::capture(const Packet& packet) {
    static constexpr std::uint8_t opening_flags[] = {0x02, 0x12, 0x18}; // SYN, SYN+ACK, request
    bool opening = packet.kind == Kind::tcp_open;
    bool tcp = packet.kind == Kind::tcp_data || packet.kind == Kind::tcp_ack || opening;
    std::uint8_t bytes[20 + 20 + 40] = {0x45};
    std::uint16_t port = static_cast<std::uint16_t>(1024 + packet.flow % 60000);
    bool to_source = packet.flags & flag_to_source;
    put<std::uint16_t>(bytes + 2, packet.bytes);
    bytes[1] = packet.flags & flag_ce ? 3 : packet.flags & flag_ect ? 2 : 0;
    bytes[8] = static_cast<std::uint8_t>(64 - packet.hops);
    bytes[9] = tcp ? 6 : 17;
    put<std::uint32_t>(bytes + 12, 0x0a000001 + packet.src);
    put<std::uint32_t>(bytes + 16, 0x0a000001 + packet.dst);
    std::uint8_t* inner = bytes + 20;
    std::size_t kept = 40;
    put<std::uint16_t>(inner, to_source ? std::uint16_t{7671} : port);
    put<std::uint16_t>(inner + 2, to_source ? port : std::uint16_t{7671});
    if (tcp) {
        put<std::uint32_t>(inner + 4, to_source ? 0 : static_cast<std::uint32_t>(packet.seq));
        put<std::uint32_t>(inner + 8, to_source ? static_cast<std::uint32_t>(packet.ack) : 0);
        inner[12] = 5 << 4;
        inner[13] = opening
                        ? opening_flags[packet.ack]
                        : static_cast<std::uint8_t>(0x10 | (packet.flags & flag_ece ? 0x40 : 0));
        put<std::uint16_t>(inner + 14, 65535);
    } else {
        put<std::uint16_t>(inner + 4, static_cast<std::uint16_t>(packet.bytes - 20));
        std::memcpy(inner + 8, packet.tunnel_header, packet.tunnel_header_bytes);
        kept = 28u + packet.tunnel_header_bytes;
    }
    kept = std::min<std::size_t>(kept, packet.bytes);
    const std::uint32_t record[] = {static_cast<std::uint32_t>(sim_.now() / sec),
                                    static_cast<std::uint32_t>(sim_.now() % sec / ns),
                                    static_cast<std::uint32_t>(kept), packet.bytes};
    std::fwrite(record, sizeof(record), 1, pcap_);
    std::fwrite(bytes, kept, 1, pcap_);
}

} // namespace sim
