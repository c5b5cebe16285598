// SPDX-License-Identifier: GPL-2.0
#include "remora-node/notify.hpp"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "support/descriptor.hpp"

namespace remora::daemon {

bool notify(std::string_view state, int descriptor) noexcept {
    const char* path = std::getenv("NOTIFY_SOCKET");
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::size_t bytes = path ? std::strlen(path) : 0;
    if (!bytes || bytes >= sizeof(address.sun_path))
        return false;
    std::memcpy(address.sun_path, path, bytes);
    if (*path == '@') // an abstract name
        address.sun_path[0] = 0;
    const Descriptor fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    iovec text{const_cast<char*>(state.data()), state.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(descriptor))]{};
    msghdr message{};
    message.msg_name = &address;
    message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + bytes);
    message.msg_iov = &text;
    message.msg_iovlen = 1;
    if (descriptor >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        cmsghdr* rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(descriptor));
        std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(descriptor));
    }
    return fd && sendmsg(fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
}

} // namespace remora::daemon
