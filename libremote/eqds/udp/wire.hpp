// SPDX-License-Identifier: MIT
// Messages between the layer inside a program (preload.cpp) and eqds-run.
//
//   data      a SOCK_SEQPACKET pair for each UDP socket: Head and payload, each way
//   requests  one SOCK_SEQPACKET pair for all processes of the program; each request comes with a
//             descriptor that its answer goes to, so processes need not take turns
//
// Both ends are of one build and one machine, so numbers are in host order unless they say else.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sys/socket.h>

namespace eqds_udp {

// Descriptor of the requests' pair in the program, and the sockets' names.
inline constexpr const char* environment = "EQDS_UDP_REQUESTS";
// An abstract name of the program's end of a pair: prefix and the socket's id. It outlives exec().
inline constexpr char name_prefix[] = "eqds-udp:";

struct Address {
    std::uint8_t host[16]; // IPv6, or IPv4 as mapped address
    std::uint16_t port;    // 0: none, the socket is connected
    std::uint16_t reserved;
    std::uint32_t scope;

    bool operator==(const Address&) const = default;
};

struct Head {
    Address address;    // to the network: the destination; from it: the source
    std::int32_t error; // from the network: errno of an earlier datagram; no payload
    std::uint32_t mark; // to the network: head_mark
};

// A message without it is a datagram's payload alone, for a connected socket's peer: stdio and
// sendfile() write without the layer. Four bytes of a payload that are the same by chance: 2^-32.
inline constexpr std::uint32_t head_mark = 0x9e45d5c1;

enum class Verb : std::uint32_t {
    Socket,     // value: AF_INET, AF_INET6; a second descriptor: eqds-run's end of the pair
    Describe,   // of a descriptor that came through exec()
    Bind,       // address
    Connect,    // address
    Disconnect, //
    LocalName,  //
    RemoteName, //
    SetOption,  // level, option, data
    GetOption,  // level, option; value: bytes wanted
};

inline constexpr std::size_t option_bytes_max = 256;

struct Request {
    Verb verb;
    std::uint32_t id; // of the socket
    std::int32_t value, level, option;
    std::uint32_t data_bytes;
    Address address;
    std::uint8_t data[option_bytes_max];
};

struct Answer {
    std::int32_t error; // 0 or errno
    std::uint32_t id;
    std::int32_t domain;
    std::uint32_t connected;
    std::uint32_t data_bytes;
    Address address;
    std::uint8_t data[option_bytes_max];
};

// Most payload of UDP over IPv4.
inline constexpr std::size_t payload_max = 65507;

} // namespace eqds_udp
