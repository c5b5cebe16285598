// SPDX-License-Identifier: GPL-2.0
#include "remora-node/notify.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/un.h>

#include "support/descriptor.hpp"

namespace remora::daemon {

void notify(std::string_view state) noexcept {
    const char* path = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t bytes = path ? std::strlen(path) : 0;
    if (!bytes || bytes >= sizeof(address.sun_path))
        return;
    std::memcpy(address.sun_path, path, bytes);
    if (*path == '@') // an abstract name
        address.sun_path[0] = 0;
    const Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd)
        sendto(fd.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
               reinterpret_cast<const sockaddr*>(&address),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes));
}

} // namespace remora::daemon
