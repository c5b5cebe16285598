// SPDX-License-Identifier: GPL-2.0
// One UDP socket of a node, for IPv4 and IPv6, and its datagrams in batches, by recvmmsg().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

#include "remora-node/node.hpp"
#include "support/descriptor.hpp"
#include "support/train.hpp"

namespace remora::daemon {

class Socket {
public:
    // With other sockets of this process: the first one takes the port, the others join it.
    enum class Sharing { none, first, joins };

    // host: an address of this machine, or empty for all; port: 0 for any that is free. Throws
    // Failure, also if another process has the port.
    Socket(const std::string& host, std::uint16_t port, Sharing sharing);

    int fd() const { return fd_.get(); }
    std::uint16_t port() const { return port_; }

private:
    Descriptor fd_;
    std::uint16_t port_ = 0;
};

// A path's place. IPv4 is mapped into IPv6.
struct SocketPlace {
    sockaddr_in6 peer; // the datagram's source
    in6_pktinfo local; // the address it came to
};

// Packets of one recvmmsg(), each of them a train of datagrams (support/train.hpp).
class Inbox {
public:
    static constexpr unsigned int packets_max = 32;

    // late: of the paths (path.hpp).
    explicit Inbox(Outbox* late);
    ~Inbox();
    // As many as are there, 0 if none came in time; the ones of the last call are gone.
    unsigned int receive(int fd, int wait_ms);
    static constexpr int forever = -1, at_once = 0;
    // Why the last call got none, if that can last: an errno, or 0.
    int error() const { return error_; }
    const Path& path(unsigned int index);
    template <typename Fn>
    void for_each_datagram(unsigned int index, Fn fn) {
        remora::for_each_datagram(messages_[index].msg_hdr, packet(index), fn);
    }

private:
    struct Slot;
    std::span<const std::uint8_t> packet(unsigned int index) const;
    std::vector<mmsghdr> messages_;
    std::vector<Slot> slots_;
    unsigned int used_ = packets_max; // since their headers were set up
    int error_ = 0;
};

} // namespace remora::daemon
