// SPDX-License-Identifier: MIT
// Texts of command lines to values and back. Every parse_*() throws Misuse, which names the text's
// fault and the remedy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace remora {

// Bytes: 4096, 64KiB, 512M, 1G. Suffixes K M G T are powers of 1024, with or without "iB".
std::uint64_t parse_size(std::string_view text);

// The largest unit that leaves no fraction, else two digits after the point: 512M, 1.50G.
std::string size_text(std::uint64_t bytes);

// Seconds with up to three digits after the point: 5, 0.25. In milliseconds.
std::uint32_t parse_seconds_ms(std::string_view text);
// The same from min_ms to max_ms; the error calls it `what`: "--timeout".
std::uint32_t parse_seconds_ms(std::string_view text, std::uint32_t min_ms, std::uint32_t max_ms,
                               std::string_view what);

// A number from min to max; the error calls it `what`: "port".
std::uint64_t parse_number(std::string_view text, std::uint64_t min, std::uint64_t max,
                           std::string_view what);

// HOST, HOST:PORT, 192.0.2.1:7670, [2001:db8::1]:7670, 2001:db8::1, [fe80::1%eth0].
struct Endpoint {
    std::string host; // without brackets, with scope
    std::uint16_t port;
};
Endpoint parse_endpoint(std::string_view text, std::uint16_t default_port);
// The inverse: brackets where they are needed.
std::string endpoint_text(std::string_view host, std::uint16_t port);

std::uint32_t parse_space_id(std::string_view text);

// ID=KEYFILE[,quota=SIZE|,read-only-of=ID|,member-of=ID][,require=sealed]
struct SpaceOption {
    std::uint32_t id;
    std::string key_file;
    std::uint64_t quota_bytes;  // 0: none
    std::uint32_t read_only_of; // 0: not a view
    std::uint32_t member_of;    // 0: not a member
    bool sealed_only;           // its clients have to seal
};
SpaceOption parse_space(std::string_view text);

// rmb3, /dev/rmem3, 3
struct DeviceName {
    std::string_view stem; // "rmb", "rmem"; "" if not given
    std::uint32_t index;
};
DeviceName parse_device(std::string_view text);

} // namespace remora
