// SPDX-License-Identifier: MIT
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "remora/rmem_edm.h"

namespace remora::lib {

// Datagrams of this socket precede others where the network looks at DSCP. Without effect if the
// system doesn't allow it.
inline void edm_mark(int fd, sa_family_t family) {
    const int tos = EDM_TOS, priority = EDM_PRIORITY;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &tos, sizeof(tos));
    else
        setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
    setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority,
               sizeof(priority)); // after IP_TOS, which sets it
}

} // namespace remora::lib
