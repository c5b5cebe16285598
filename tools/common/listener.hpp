// SPDX-License-Identifier: GPL-2.0
// A Unix socket that listens at a path, as long as this exists.
#pragma once

#include <string>

#include <sys/socket.h>
#include <sys/types.h>

#include "support/descriptor.hpp"

namespace remora {

class UnixListener {
public:
    // option: the one that names the path, for errors. type: of the socket. Replaces a stale socket
    // that has no listener, and no other file. Throws Failure.
    UnixListener(const char* option, std::string path, mode_t mode, int type = SOCK_STREAM);
    // One that listens at the path already.
    UnixListener(std::string path, Descriptor&& fd);
    ~UnixListener();
    UnixListener(UnixListener&&) noexcept = default;
    UnixListener& operator=(const UnixListener&) = delete;

    int fd() const { return fd_.get(); }
    // The socket stays at the path when this ends: another process listens there.
    void leave() { inode_ = 0; }
    // Removes the socket from its path, unless another process listens there.
    void remove();
    // The next connection, which never blocks; none: nobody waits.
    Descriptor accept() const;

private:
    std::string path_;
    Descriptor fd_;
    ino_t inode_ = 0; // of the socket at the path
};

} // namespace remora
