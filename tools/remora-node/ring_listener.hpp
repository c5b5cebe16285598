// SPDX-License-Identifier: GPL-2.0
// Where programs of this machine get their rings: a Unix socket, whose connections are the pairs'
// lives.
#pragma once

#include <list>
#include <string>

#include <sys/types.h>

#include "common/listener.hpp"
#include "remora-node/rings.hpp"
#include "support/descriptor.hpp"

namespace remora::daemon {

class RingListener {
public:
    // Replaces a socket that has no listener, and no other file. Throws Failure.
    RingListener(Rings& rings, const std::string& path, mode_t mode);

    // In a thread of its own, until stop() from another.
    void run();
    void stop();

private:
    struct Client {
        Descriptor connection;
        std::uint64_t serial;
    };
    void admit();
    std::uint32_t offer_rings(Descriptor& connection);
    bool may_use(uid_t user) const;
    unsigned share_of(uid_t user) const;
    void end_closed();

    Rings& rings_;
    const mode_t mode_;
    UnixListener listener_;
    Descriptor stop_;
    std::list<Client> clients_;
};

} // namespace remora::daemon
