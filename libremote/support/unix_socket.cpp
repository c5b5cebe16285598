// SPDX-License-Identifier: MIT
#include "support/unix_socket.hpp"

#include <array>
#include <cstring>

#include <sys/socket.h>

namespace remora {

namespace {

struct alignas(cmsghdr) Control : std::array<char, CMSG_SPACE(files_max * sizeof(int))> {};

} // namespace

bool send_files(int fd, std::span<const std::uint8_t> message, std::span<const int> files) {
    iovec vector{const_cast<std::uint8_t*>(message.data()), message.size()};
    Control control{};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    if (!files.empty()) {
        header.msg_control = control.data();
        header.msg_controllen = CMSG_SPACE(files.size_bytes());
        cmsghdr* item = CMSG_FIRSTHDR(&header);
        item->cmsg_level = SOL_SOCKET;
        item->cmsg_type = SCM_RIGHTS;
        item->cmsg_len = CMSG_LEN(files.size_bytes());
        std::memcpy(CMSG_DATA(item), files.data(), files.size_bytes());
    }
    return sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           static_cast<ssize_t>(message.size());
}

ssize_t receive_files(int fd, std::span<std::uint8_t> message, std::vector<Descriptor>& files) {
    iovec vector{message.data(), message.size()};
    Control control{};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    ssize_t got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return got;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item; item = CMSG_NXTHDR(&header, item)) {
        if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS)
            continue;
        std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; i++) {
            int each;
            std::memcpy(&each, CMSG_DATA(item) + i * sizeof(int), sizeof(each));
            files.emplace_back(each);
        }
    }
    return got;
}

} // namespace remora
