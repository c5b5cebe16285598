// SPDX-License-Identifier: MIT
// libeqds-udp.so: UDP sockets of an unmodified program, as eqds-run has them. See README.md.
//
// A program's descriptor is one end of a SOCK_SEQPACKET pair, so poll(), select(), epoll, dup(),
// fork(), and blocking are the kernel's. This file puts an address in front of each datagram, and
// asks eqds-run for facts that a pair doesn't know.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "udp/client.hpp"
#include "udp/table.hpp"

using namespace eqds_udp;

namespace {

// POSIX' IOV_MAX bounds a caller's list; the layer's list has the head in front.
constexpr std::size_t parts_max = 1024;

Table table;

// The process whose memory this is, on a page that fork() hands to its child as zeros; nullptr: no
// page. A child of vfork() shares it: that child closes or copies only its own descriptors before
// exec(), and the parent's table stays.
std::atomic<pid_t>* owner;

bool is_own_memory() {
    if (!owner)
        return true;
    pid_t expected = 0, mine = getpid();
    owner->compare_exchange_strong(expected, mine);
    return !expected || expected == mine;
}

void forget(int fd) {
    if (table.get(fd).id && is_own_memory())
        table.clear(fd);
}

int failed(int error) {
    errno = error;
    return -1;
}

int told(int result) {
    return result < 0 ? failed(-result) : result;
}

// Which bytes of the pair's message are whose.
struct Parts {
    std::array<iovec, parts_max + 1> list;
    std::size_t count = 1, bytes = 0;

    // False: too many.
    bool add(const iovec* more, std::size_t n) {
        if (n > parts_max)
            return false;
        for (std::size_t i = 0; i < n; i++) {
            list[count++] = more[i];
            bytes += more[i].iov_len;
        }
        return true;
    }
};

Request about(Slot slot, Verb verb) {
    Request request{};
    request.verb = verb;
    request.id = slot.id;
    return request;
}

// connect() might have come by a duplicate of the descriptor, or from another process.
bool is_connected_elsewhere(int fd, Slot slot) {
    Answer answer{};
    if (ask(about(slot, Verb::Describe), &answer) || !answer.connected)
        return false;
    table.set(fd, {slot.id, slot.v6, true});
    return true;
}

// ---- data ----

ssize_t put(int fd, Slot slot, const iovec* parts, std::size_t count, const sockaddr* to,
            socklen_t to_bytes, int flags) {
    Head head{.address = {}, .error = 0, .mark = head_mark};
    Parts all;
    if (flags & (MSG_OOB | MSG_MORE))
        return failed(EOPNOTSUPP);
    if (!all.add(parts, count))
        return failed(EMSGSIZE);
    if (to) {
        int error = parse(to, to_bytes, slot.v6, &head.address);
        if (error)
            return failed(error);
        if (!head.address.port)
            return failed(EINVAL);
    } else if (!slot.connected && !is_connected_elsewhere(fd, slot)) {
        return failed(EDESTADDRREQ);
    }
    if (all.bytes > payload_max)
        return failed(EMSGSIZE);
    all.list[0] = {&head, sizeof(head)};
    msghdr message{};
    message.msg_iov = all.list.data();
    message.msg_iovlen = all.count;
    ssize_t sent = real().sendmsg(fd, &message, (flags & MSG_DONTWAIT) | MSG_NOSIGNAL);
    if (sent >= 0)
        return static_cast<ssize_t>(all.bytes);
    return failed(errno == EPIPE || errno == ECONNRESET ? ENETDOWN : errno);
}

// The program has called shutdown(): eqds-run's end of the pair is there.
bool has_shut_down(int fd) {
    pollfd end{fd, POLLIN, 0};
    return poll(&end, 1, 0) > 0 && !(end.revents & POLLHUP);
}

ssize_t take(int fd, Slot slot, msghdr* into, int flags) {
    Head head{};
    Parts all;
    if (flags & (MSG_OOB | MSG_ERRQUEUE))
        return failed(EAGAIN);
    if (!all.add(into->msg_iov, into->msg_iovlen))
        return failed(EMSGSIZE);
    all.list[0] = {&head, sizeof(head)};
    msghdr message{};
    message.msg_iov = all.list.data();
    message.msg_iovlen = all.count;
    ssize_t got = real().recvmsg(fd, &message, flags & (MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC));
    if (got < 0)
        return got;
    if (!got && has_shut_down(fd))
        return 0;
    if (got < static_cast<ssize_t>(sizeof(head)))
        return failed(ENETDOWN); // eqds-run has ended
    if (head.error)
        return failed(head.error);
    format(head.address, slot.v6, static_cast<sockaddr*>(into->msg_name), &into->msg_namelen);
    into->msg_controllen = 0;
    into->msg_flags = message.msg_flags & MSG_TRUNC;
    return got - static_cast<ssize_t>(sizeof(head));
}

ssize_t take_from(int fd, Slot slot, const iovec* parts, std::size_t count, sockaddr* from,
                  socklen_t* from_bytes, int flags) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = count;
    message.msg_name = from;
    message.msg_namelen = from && from_bytes ? *from_bytes : 0;
    ssize_t got = take(fd, slot, &message, flags);
    if (got >= 0 && from && from_bytes)
        *from_bytes = message.msg_namelen;
    return got;
}

// The next datagram's payload, as FIONREAD tells it.
int next_bytes(int fd, int* bytes) {
    Head head{};
    iovec part{&head, sizeof(head)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    ssize_t got = real().recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
    *bytes = got > static_cast<ssize_t>(sizeof(head))
                 ? static_cast<int>(got - ssize_t{sizeof(head)})
                 : 0;
    return 0;
}

// Requests about interfaces and addresses (SIOCGIFADDR, say), which no Unix socket answers.
bool is_of_network(unsigned long request) {
    return request >= SIOCADDRT && request < SIOCPROTOPRIVATE;
}

int ask_kernel(Slot slot, unsigned long request, void* argument) {
    int fd = real().socket(slot.v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int result = real().ioctl(fd, request, argument), error = errno;
    real().close(fd);
    errno = error;
    return result;
}

std::int64_t in_ns(const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

std::int64_t now_ns() {
    timespec time{};
    clock_gettime(CLOCK_MONOTONIC, &time);
    return in_ns(time);
}

// A descriptor that was closed where the layer doesn't see it, by fclose() say, and whose number is
// another file's by now.
bool is_stale(int fd, ssize_t result) {
    if (result >= 0 || errno != ENOTSOCK)
        return false;
    forget(fd);
    return true;
}

int is_new(int fd) {
    forget(fd);
    return fd;
}

// ---- life ----

void name(int fd, std::uint32_t id) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    int length = std::snprintf(at.sun_path + 1, sizeof(at.sun_path) - 1, "%s%d:%u", name_prefix,
                               requests(), id);
    // Without the name the socket works until exec().
    real().bind(fd, reinterpret_cast<sockaddr*>(&at),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                       static_cast<std::size_t>(length)));
}

int make(int domain, int type) {
    int pair[2];
    Request request{};
    Answer answer{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0, pair))
        return -1;
    request.verb = Verb::Socket;
    request.value = domain;
    int error = ask(request, &answer, pair[1]);
    real().close(pair[1]);
    if (!error && !table.set(pair[0], {answer.id, domain == AF_INET6, false}))
        error = -EMFILE;
    if (error) {
        real().close(pair[0]);
        return failed(-error);
    }
    name(pair[0], answer.id);
    return pair[0];
}

// Descriptors that came through exec() are known by their names.
void recognise(int fd) {
    sockaddr_un at{};
    socklen_t bytes = sizeof(at);
    unsigned id = 0;
    int fd_of_requests = -1;
    constexpr std::size_t prefix_bytes = sizeof(name_prefix) - 1;
    if (real().getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes) ||
        at.sun_family != AF_UNIX || bytes <= offsetof(sockaddr_un, sun_path) + 1 || at.sun_path[0])
        return;
    at.sun_path[sizeof(at.sun_path) - 1] = 0;
    if (std::strncmp(at.sun_path + 1, name_prefix, prefix_bytes) ||
        std::sscanf(at.sun_path + 1 + prefix_bytes, "%d:%u", &fd_of_requests, &id) != 2 ||
        fd_of_requests != requests() || !id)
        return;
    Answer answer{};
    if (!ask(about({id, false, false}, Verb::Describe), &answer))
        table.set(fd, {id, answer.domain == AF_INET6, answer.connected != 0});
}

__attribute__((constructor)) void recognise_all() {
    if (requests() < 0)
        return;
    void* page =
        mmap(nullptr, sizeof(*owner), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED && !madvise(page, sizeof(*owner), MADV_WIPEONFORK))
        owner = new (page) std::atomic<pid_t>(getpid());
    DIR* open = opendir("/proc/self/fd");
    if (!open)
        return;
    while (dirent* each = readdir(open)) {
        int fd = std::atoi(each->d_name);
        if (each->d_name[0] != '.' && fd != dirfd(open) && fd != requests())
            recognise(fd);
    }
    closedir(open);
}

bool is_ours(int domain, int type, int protocol) {
    return requests() >= 0 && (domain == AF_INET || domain == AF_INET6) &&
           (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) == SOCK_DGRAM &&
           (!protocol || protocol == IPPROTO_UDP);
}

// ---- options ----

// Options that ask for data that a datagram of the pair doesn't carry.
bool is_ancillary(int level, int option) {
    if (level == SOL_SOCKET)
        return option == SO_TIMESTAMP || option == SO_TIMESTAMPNS || option == SO_TIMESTAMPING ||
               option == SO_RXQ_OVFL;
    if (level == IPPROTO_IP)
        return option == IP_PKTINFO || option == IP_RECVTOS || option == IP_RECVTTL ||
               option == IP_RECVERR || option == IP_RECVOPTS || option == IP_RECVORIGDSTADDR ||
               option == IP_HDRINCL;
    if (level == IPPROTO_IPV6)
        return option == IPV6_RECVPKTINFO || option == IPV6_RECVTCLASS ||
               option == IPV6_RECVHOPLIMIT || option == IPV6_RECVERR ||
               option == IPV6_RECVORIGDSTADDR;
    return level == IPPROTO_UDP;
}

// Options of the pair itself: the program waits at its end.
bool is_of_pair(int level, int option) {
    return level == SOL_SOCKET &&
           (option == SO_RCVTIMEO || option == SO_SNDTIMEO || option == SO_SNDBUF ||
            option == SO_SNDBUFFORCE || option == SO_PEEK_OFF || option == SO_ACCEPTCONN);
}

int set_option(Slot slot, int level, int option, const void* value, socklen_t bytes) {
    Request request = about(slot, Verb::SetOption);
    Answer answer{};
    if (is_ancillary(level, option))
        return failed(ENOPROTOOPT);
    if (bytes > option_bytes_max)
        return failed(EINVAL);
    request.level = level;
    request.option = option;
    request.data_bytes = bytes;
    std::memcpy(request.data, value, bytes);
    return told(ask(request, &answer));
}

int get_option(Slot slot, int level, int option, void* value, socklen_t* bytes) {
    Request request = about(slot, Verb::GetOption);
    Answer answer{};
    request.level = level;
    request.option = option;
    request.value = static_cast<std::int32_t>(std::min<std::size_t>(*bytes, option_bytes_max));
    int error = ask(request, &answer);
    if (error)
        return failed(-error);
    *bytes = std::min(*bytes, answer.data_bytes);
    std::memcpy(value, answer.data, *bytes);
    return 0;
}

int tell_name(Slot slot, Verb verb, sockaddr* to, socklen_t* bytes) {
    Answer answer{};
    int error = ask(about(slot, verb), &answer);
    if (error)
        return failed(-error);
    format(answer.address, slot.v6, to, bytes);
    return 0;
}

void copied(int from, int to) {
    if (to >= 0 && from != to && (table.get(from).id || table.get(to).id) && is_own_memory())
        table.copy(from, to);
}

} // namespace

extern "C" {

#pragma GCC visibility push(default)

int socket(int domain, int type, int protocol) {
    return is_ours(domain, type, protocol) ? make(domain, type)
                                           : is_new(real().socket(domain, type, protocol));
}

int accept4(int fd, sockaddr* address, socklen_t* bytes, int flags) {
    return is_new(real().accept4(fd, address, bytes, flags));
}

int accept(int fd, sockaddr* address, socklen_t* bytes) {
    return accept4(fd, address, bytes, 0);
}

// Receivers wake up and get nothing more, as of the kernel's UDP, which does that of a socket that
// isn't connected, too. Sends go on: eqds-run would take an end of theirs for the socket's.
int shutdown(int fd, int how) noexcept {
    Slot slot = table.get(fd);
    if (!slot.id)
        return real().shutdown(fd, how);
    if (how < SHUT_RD || how > SHUT_RDWR)
        return failed(EINVAL);
    if (how != SHUT_WR)
        real().shutdown(fd, SHUT_RD);
    return slot.connected || is_connected_elsewhere(fd, slot) ? 0 : failed(ENOTCONN);
}

int bind(int fd, const sockaddr* address, socklen_t bytes) {
    Slot slot = table.get(fd);
    if (!slot.id)
        return real().bind(fd, address, bytes);
    Request request = about(slot, Verb::Bind);
    Answer answer{};
    int error = parse(address, bytes, slot.v6, &request.address);
    return error ? failed(error) : told(ask(request, &answer));
}

int connect(int fd, const sockaddr* address, socklen_t bytes) {
    Slot slot = table.get(fd);
    if (!slot.id)
        return real().connect(fd, address, bytes);
    bool leave = bytes >= sizeof(sa_family_t) && address->sa_family == AF_UNSPEC;
    Request request = about(slot, leave ? Verb::Disconnect : Verb::Connect);
    Answer answer{};
    int error = leave ? 0 : parse(address, bytes, slot.v6, &request.address);
    if (error)
        return failed(error);
    error = ask(request, &answer);
    if (error)
        return failed(-error);
    slot.connected = !leave;
    table.set(fd, slot);
    return 0;
}

int getsockname(int fd, sockaddr* address, socklen_t* bytes) {
    Slot slot = table.get(fd);
    return slot.id ? tell_name(slot, Verb::LocalName, address, bytes)
                   : real().getsockname(fd, address, bytes);
}

int getpeername(int fd, sockaddr* address, socklen_t* bytes) {
    Slot slot = table.get(fd);
    return slot.id ? tell_name(slot, Verb::RemoteName, address, bytes)
                   : real().getpeername(fd, address, bytes);
}

int setsockopt(int fd, int level, int option, const void* value, socklen_t bytes) {
    Slot slot = table.get(fd);
    if (!slot.id || is_of_pair(level, option))
        return real().setsockopt(fd, level, option, value, bytes);
    return set_option(slot, level, option, value, bytes);
}

int getsockopt(int fd, int level, int option, void* value, socklen_t* bytes) {
    Slot slot = table.get(fd);
    if (!slot.id || is_of_pair(level, option))
        return real().getsockopt(fd, level, option, value, bytes);
    return get_option(slot, level, option, value, bytes);
}

ssize_t sendto(int fd, const void* data, size_t bytes, int flags, const sockaddr* to,
               socklen_t to_bytes) {
    Slot slot = table.get(fd);
    iovec part{const_cast<void*>(data), bytes};
    if (slot.id)
        return put(fd, slot, &part, 1, to, to_bytes, flags);
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = const_cast<sockaddr*>(to);
    message.msg_namelen = to ? to_bytes : 0;
    return real().sendmsg(fd, &message, flags);
}

ssize_t send(int fd, const void* data, size_t bytes, int flags) {
    Slot slot = table.get(fd);
    iovec part{const_cast<void*>(data), bytes};
    return slot.id ? put(fd, slot, &part, 1, nullptr, 0, flags)
                   : real().send(fd, data, bytes, flags);
}

ssize_t write(int fd, const void* data, size_t bytes) {
    Slot slot = table.get(fd);
    iovec part{const_cast<void*>(data), bytes};
    ssize_t sent = slot.id ? put(fd, slot, &part, 1, nullptr, 0, 0) : 0;
    return slot.id && !is_stale(fd, sent) ? sent : real().write(fd, data, bytes);
}

ssize_t writev(int fd, const iovec* parts, int count) {
    Slot slot = table.get(fd);
    ssize_t sent =
        slot.id ? put(fd, slot, parts, static_cast<std::size_t>(count), nullptr, 0, 0) : 0;
    return slot.id && !is_stale(fd, sent) ? sent : real().writev(fd, parts, count);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    Slot slot = table.get(fd);
    if (!slot.id)
        return real().sendmsg(fd, message, flags);
    if (message->msg_controllen)
        return failed(EOPNOTSUPP);
    return put(fd, slot, message->msg_iov, message->msg_iovlen,
               static_cast<const sockaddr*>(message->msg_name), message->msg_namelen, flags);
}

int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
    if (!table.get(fd).id)
        return real().sendmmsg(fd, messages, count, flags);
    unsigned done = 0;
    for (; done < count; done++) {
        ssize_t sent = sendmsg(fd, &messages[done].msg_hdr, flags);
        if (sent < 0)
            break;
        messages[done].msg_len = static_cast<unsigned>(sent);
    }
    return done || !count ? static_cast<int>(done) : -1;
}

ssize_t recvfrom(int fd, void* data, size_t bytes, int flags, sockaddr* from,
                 socklen_t* from_bytes) {
    Slot slot = table.get(fd);
    iovec part{data, bytes};
    if (slot.id)
        return take_from(fd, slot, &part, 1, from, from_bytes, flags);
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_name = from;
    message.msg_namelen = from && from_bytes ? *from_bytes : 0;
    ssize_t got = real().recvmsg(fd, &message, flags);
    if (got >= 0 && from && from_bytes)
        *from_bytes = message.msg_namelen;
    return got;
}

ssize_t __recvfrom_chk(int fd, void* data, size_t bytes, size_t, int flags, sockaddr* from,
                       socklen_t* from_bytes) {
    return recvfrom(fd, data, bytes, flags, from, from_bytes);
}

ssize_t recv(int fd, void* data, size_t bytes, int flags) {
    return recvfrom(fd, data, bytes, flags, nullptr, nullptr);
}

ssize_t __recv_chk(int fd, void* data, size_t bytes, size_t, int flags) {
    return recv(fd, data, bytes, flags);
}

ssize_t read(int fd, void* data, size_t bytes) {
    // Like the kernel, which leaves the datagram.
    Slot slot = bytes ? table.get(fd) : Slot{};
    iovec part{data, bytes};
    ssize_t got = slot.id ? take_from(fd, slot, &part, 1, nullptr, nullptr, 0) : 0;
    return slot.id && !is_stale(fd, got) ? got : real().read(fd, data, bytes);
}

ssize_t __read_chk(int fd, void* data, size_t bytes, size_t) {
    return read(fd, data, bytes);
}

ssize_t readv(int fd, const iovec* parts, int count) {
    Slot slot = table.get(fd);
    ssize_t got =
        slot.id ? take_from(fd, slot, parts, static_cast<std::size_t>(count), nullptr, nullptr, 0)
                : 0;
    return slot.id && !is_stale(fd, got) ? got : real().readv(fd, parts, count);
}

ssize_t recvmsg(int fd, msghdr* message, int flags) {
    Slot slot = table.get(fd);
    return slot.id ? take(fd, slot, message, flags) : real().recvmsg(fd, message, flags);
}

int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
    Slot slot = table.get(fd);
    if (!slot.id)
        return real().recvmmsg(fd, messages, count, flags, timeout);
    const std::int64_t end_ns = timeout ? now_ns() + in_ns(*timeout) : INT64_MAX;
    unsigned done = 0;
    while (done < count) {
        const bool waits = !done || !(flags & MSG_WAITFORONE);
        ssize_t got = take(fd, slot, &messages[done].msg_hdr, waits ? flags : flags | MSG_DONTWAIT);
        if (got < 0)
            break;
        messages[done++].msg_len = static_cast<unsigned>(got);
        // Like the kernel, which looks at the time only after a datagram.
        if (timeout && now_ns() >= end_ns)
            break;
    }
    return done || !count ? static_cast<int>(done) : -1;
}

int close(int fd) {
    // Programs that close all descriptors they don't know mean no harm.
    if (fd >= 0 && fd == requests())
        return 0;
    forget(fd);
    return real().close(fd);
}

int close_range(unsigned first, unsigned last, int flags) noexcept {
    const auto kept = static_cast<unsigned>(requests());
    if (!(flags & CLOSE_RANGE_CLOEXEC))
        for (unsigned fd = first; fd <= last && fd < Table::size; fd++)
            forget(static_cast<int>(fd));
    if (requests() < 0 || kept < first || kept > last)
        return real().close_range(first, last, flags);
    int result = first < kept ? real().close_range(first, kept - 1, flags) : 0;
    return result || kept == last ? result : real().close_range(kept + 1, last, flags);
}

void closefrom(int first) noexcept {
    close_range(static_cast<unsigned>(std::max(first, 0)), ~0U, 0);
}

int dup(int fd) noexcept {
    int copy = real().dup(fd);
    copied(fd, copy);
    return copy;
}

int dup2(int fd, int to) noexcept {
    int copy = real().dup2(fd, to);
    copied(fd, copy);
    return copy;
}

int dup3(int fd, int to, int flags) noexcept {
    int copy = real().dup3(fd, to, flags);
    copied(fd, copy);
    return copy;
}

int fcntl64(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    void* argument = va_arg(list, void*);
    va_end(list);
    int result = real().fcntl(fd, command, argument);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        copied(fd, result);
    return result;
}

int fcntl(int fd, int command, ...) {
    va_list list;
    va_start(list, command);
    void* argument = va_arg(list, void*);
    va_end(list);
    return fcntl64(fd, command, argument);
}

int ioctl(int fd, unsigned long request, ...) noexcept {
    va_list list;
    va_start(list, request);
    void* argument = va_arg(list, void*);
    va_end(list);
    Slot slot = table.get(fd);
    if (request == FIONREAD && slot.id)
        return next_bytes(fd, static_cast<int*>(argument));
    if (slot.id && is_of_network(request))
        return ask_kernel(slot, request, argument);
    return real().ioctl(fd, request, argument);
}

#pragma GCC visibility pop

} // extern "C"
