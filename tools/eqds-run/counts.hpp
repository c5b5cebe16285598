// SPDX-License-Identifier: GPL-2.0
// Where datagrams went, and why not through a tunnel.
#pragma once

#include <cstdint>

namespace eqds_run {

struct Counts {
    std::uint64_t sent_eqds, received_eqds, received_kernel;
    // Sent by the kernel's UDP: a destination that is no peer; one of this machine; more bytes than
    // a packet of the tunnel has; no eqds device any more.
    std::uint64_t sent_not_peer, sent_local, sent_large, sent_no_device;
    // The host had as many packets under way as it may have, and the socket isn't connected; the
    // tunnel gave them up; the program received too slowly; no socket of the program is for them;
    // the kernel's UDP refused them.
    std::uint64_t dropped_peer_full, dropped_tunnel, dropped_receiver_full, dropped_no_socket,
        dropped_kernel;
};

} // namespace eqds_run
