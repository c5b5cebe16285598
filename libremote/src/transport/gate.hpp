// SPDX-License-Identifier: MIT
// Decides when a datagram leaves.
#pragma once

#include <cstdint>
#include <span>

#include <sys/uio.h>

extern "C" {
#include "core/rmem/client/client.h"
}

namespace remora::lib {

class Gate {
public:
    // A complete datagram: its messages, and its bytes, which stay until this returns. True: the
    // gate has a copy, and sends it later, or drops it as a network would. False: it leaves now.
    virtual bool takes(std::span<const rmem_client_tx> messages,
                       std::span<const iovec> datagram) noexcept = 0;

protected:
    ~Gate() = default;
};

} // namespace remora::lib
