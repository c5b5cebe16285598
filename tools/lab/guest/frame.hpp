// SPDX-License-Identifier: GPL-2.0
//
// The lab's command channel, as it crosses one virtio-serial port, or a serial line, in both
// directions.
//
//     | length (u32) | id (u32) | type (u8) | zero (3) | payload, `length` bytes | little-endian
//
// An id names one process of the guest, chosen by the host and used once. The same frames are
// spoken by tools/lab/remoralab/channel.py, which is the other end.
#pragma once

#include <cstdint>

namespace lab {

enum class Type : uint8_t {
    // host to guest
    run = 1,    // Start, see below
    input = 2,  // bytes for standard input; none: end of input
    signal = 3, // u32 signal number, for the process group
    resize = 4, // u16 rows, u16 columns of the terminal
    // guest to host
    hello = 64,    // id 0: the guest is ready; text: its uname -r
    output = 65,   // bytes from standard output (or the terminal)
    error = 66,    // bytes from standard error
    exited = 67,   // i32: exit status, or 128 + signal
    consumed = 68, // u32: bytes of input passed on; the host has at most input_window unconsumed
    taken =
        69 // id 0; u32: bytes read from a serial line; the host has at most serial_window untaken
};

struct Header {
    uint32_t length;
    uint32_t id;
    Type type;
    uint8_t zero[3];
};
static_assert(sizeof(Header) == 12);

// Payload of Type::run; then the words of argv, each ended by a NUL.
struct Start {
    uint16_t rows; // of its terminal; 0: no terminal, pipes instead
    uint16_t columns;
};
static_assert(sizeof(Start) == 4);

constexpr uint32_t payload_max = 64 * 1024;
constexpr uint32_t input_window = 256 * 1024;
// Fewer than the 4096 bytes a terminal holds: User Mode Linux has an input that was full once stay
// silent for ever.
constexpr uint32_t serial_window = 3 * 1024;
constexpr unsigned processes_max = 64;
constexpr char port_name[] = "org.remora.lab";

} // namespace lab
