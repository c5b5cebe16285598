// SPDX-License-Identifier: MIT
#include "udp/client.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <netinet/in.h>
#include <unistd.h>

namespace eqds_udp {

namespace {

constexpr std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

template <typename Function>
void find(Function*& to, const char* name) {
    to = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

Real look_up() {
    Real r{};
    find(r.socket, "socket");
    find(r.shutdown, "shutdown");
    find(r.accept4, "accept4");
    find(r.bind, "bind");
    find(r.connect, "connect");
    find(r.getsockname, "getsockname");
    find(r.getpeername, "getpeername");
    find(r.getsockopt, "getsockopt");
    find(r.setsockopt, "setsockopt");
    find(r.send, "send");
    find(r.sendmsg, "sendmsg");
    find(r.recvmsg, "recvmsg");
    find(r.close, "close");
    find(r.close_range, "close_range");
    find(r.dup, "dup");
    find(r.dup2, "dup2");
    find(r.dup3, "dup3");
    find(r.fcntl, "fcntl64");
    find(r.ioctl, "ioctl");
    find(r.read, "read");
    find(r.readv, "readv");
    find(r.write, "write");
    find(r.writev, "writev");
    find(r.sendmmsg, "sendmmsg");
    find(r.recvmmsg, "recvmmsg");
    return r;
}

int find_requests() {
    const char* text = std::getenv(environment);
    if (!text)
        return -1;
    char* end = nullptr;
    long fd = std::strtol(text, &end, 10);
    return *text && !*end && fd >= 0 && fd <= 0x7fffffff ? static_cast<int>(fd) : -1;
}

// The request, with the descriptors it takes along.
bool send_request(const Request& request, const int* fds, std::size_t count) {
    alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
    iovec part{const_cast<Request*>(&request), sizeof(request)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(head), fds, count * sizeof(int));
    ssize_t sent;
    do
        sent = real().sendmsg(requests(), &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == static_cast<ssize_t>(sizeof(request));
}

bool receive_answer(int fd, Answer* answer) {
    iovec part{answer, sizeof(*answer)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ssize_t got;
    do
        got = real().recvmsg(fd, &message, 0);
    while (got < 0 && errno == EINTR);
    return got == static_cast<ssize_t>(sizeof(*answer));
}

} // namespace

const Real& real() {
    static const Real functions = look_up();
    return functions;
}

int requests() {
    static const int fd = find_requests();
    return fd;
}

int ask(const Request& request, Answer* answer, int passed) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
        return -errno;
    const int fds[2] = {pair[1], passed};
    bool good = send_request(request, fds, passed < 0 ? 1 : 2);
    real().close(pair[1]);
    good = good && receive_answer(pair[0], answer);
    real().close(pair[0]);
    // eqds-run has ended.
    return good ? -answer->error : -ENETDOWN;
}

int parse(const sockaddr* from, socklen_t bytes, bool v6, Address* to) {
    sa_family_t family = AF_UNSPEC;
    *to = {};
    if (bytes < sizeof(family))
        return EINVAL;
    std::memcpy(&family, from, sizeof(family));
    // Like the kernel: a socket of IPv6 takes addresses of IPv4, too.
    if (v6 && family != AF_INET) {
        sockaddr_in6 in6;
        if (bytes < sizeof(in6))
            return EINVAL;
        std::memcpy(&in6, from, sizeof(in6));
        if (in6.sin6_family != AF_INET6)
            return EAFNOSUPPORT;
        std::memcpy(to->host, &in6.sin6_addr, sizeof(to->host));
        to->port = ntohs(in6.sin6_port);
        to->scope = in6.sin6_scope_id;
        return 0;
    }
    sockaddr_in in;
    if (bytes < sizeof(in))
        return EINVAL;
    std::memcpy(&in, from, sizeof(in));
    // Old programs leave the family out.
    if (family != AF_INET && family != AF_UNSPEC)
        return EAFNOSUPPORT;
    std::memcpy(to->host, mapped, sizeof(mapped));
    std::memcpy(to->host + sizeof(mapped), &in.sin_addr, sizeof(in.sin_addr));
    to->port = ntohs(in.sin_port);
    return 0;
}

void format(const Address& from, bool v6, sockaddr* to, socklen_t* bytes) {
    sockaddr_in6 in6{};
    sockaddr_in in{};
    const void* whole = &in;
    socklen_t length = sizeof(in);

    if (!to || !bytes)
        return;
    if (v6) {
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(from.port);
        in6.sin6_scope_id = from.scope;
        std::memcpy(&in6.sin6_addr, from.host, sizeof(from.host));
        whole = &in6;
        length = sizeof(in6);
    } else {
        in.sin_family = AF_INET;
        in.sin_port = htons(from.port);
        std::memcpy(&in.sin_addr, from.host + sizeof(mapped), sizeof(in.sin_addr));
    }
    std::memcpy(to, whole, std::min(*bytes, length));
    *bytes = length;
}

} // namespace eqds_udp
