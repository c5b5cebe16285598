// SPDX-License-Identifier: GPL-2.0
#include "eqds-run/pump.hpp"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <unistd.h>

namespace eqds_run {

namespace {

// The most sockets of a program; bounds eqds-run's own descriptors.
constexpr std::size_t sockets_max = 4096;

// The descriptors that came along. Others than the two that a request may have are closed.
void take_descriptors(msghdr* message, int* fds, std::size_t wanted) {
    std::size_t count = 0;
    for (cmsghdr* head = CMSG_FIRSTHDR(message); head; head = CMSG_NXTHDR(message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= head->cmsg_len; at += sizeof(int)) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(head) + at, sizeof(fd));
            if (count < wanted)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
}

} // namespace

Pump::Pump(std::string device, Peers rule, int requests)
    : peers(std::move(rule)), device_(std::move(device)), requests_(requests) {
    loop.add(requests_, this);
}

Pump::~Pump() {
    sockets_.clear();
    end_requests();
}

// The end of the requests' pair would be told of for ever.
void Pump::end_requests() {
    if (requests_ < 0)
        return;
    loop.remove(requests_);
    close(requests_);
    requests_ = -1;
}

Port* Pump::port(std::uint16_t number) {
    auto& port = ports_[number];
    if (!port) {
        try {
            port = std::make_unique<Port>(loop, counts, device_.c_str(), number);
        } catch (...) {
            ports_.erase(number);
            throw;
        }
    }
    return port.get();
}

void Pump::port_left(Port* port) {
    if (port->is_unused())
        ports_.erase(port->number());
}

void Pump::remove(std::uint32_t id) {
    sockets_.erase(id);
}

int Pump::make(const eqds_udp::Request& request, int pair, eqds_udp::Answer* answer) {
    if (pair < 0 || (request.value != AF_INET && request.value != AF_INET6))
        return EINVAL;
    if (sockets_.size() >= sockets_max)
        return EMFILE;
    do
        last_id_++;
    while (!last_id_ || sockets_.contains(last_id_));
    int own = dup(pair);
    if (own < 0)
        return errno;
    try {
        sockets_[last_id_] = std::make_unique<Socket>(*this, last_id_, request.value, own);
    } catch (const std::system_error& error) {
        sockets_.erase(last_id_);
        return error.code().value();
    }
    answer->id = last_id_;
    return 0;
}

void Pump::serve(const eqds_udp::Request& request, int pair, eqds_udp::Answer* answer) {
    using eqds_udp::Verb;
    if (request.verb == Verb::Socket) {
        answer->error = make(request, pair, answer);
        return;
    }
    auto found = sockets_.find(request.id);
    if (found == sockets_.end() || request.data_bytes > sizeof(request.data)) {
        answer->error = EBADF;
        return;
    }
    Socket& socket = *found->second;
    answer->domain = socket.domain();
    answer->error = 0;
    switch (request.verb) {
    case Verb::Bind:
        answer->error = socket.bind(request.address);
        break;
    case Verb::Connect:
        answer->error = socket.connect(request.address);
        break;
    case Verb::Disconnect:
        answer->error = socket.disconnect();
        break;
    case Verb::LocalName:
        answer->error = socket.name(false, &answer->address);
        break;
    case Verb::RemoteName:
        answer->error = socket.name(true, &answer->address);
        break;
    case Verb::SetOption:
        answer->error = socket.set_option(request);
        break;
    case Verb::GetOption:
        answer->error = socket.get_option(request, answer);
        break;
    case Verb::Describe:
        break;
    default:
        answer->error = EINVAL;
    }
    answer->connected = socket.is_connected();
}

void Pump::ready(std::uint32_t) {
    eqds_udp::Request request{};
    eqds_udp::Answer answer{};
    int fds[2] = {-1, -1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))];
    iovec part{&request, sizeof(request)};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got = recvmsg(requests_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (!got)
        end_requests();
    if (got <= 0)
        return;
    take_descriptors(&message, fds, 2);
    if (got == static_cast<ssize_t>(sizeof(request)) && fds[0] >= 0) {
        serve(request, fds[1], &answer);
        // A process that no longer waits for its answer has none.
        send(fds[0], &answer, sizeof(answer), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    for (int fd : fds)
        if (fd >= 0)
            close(fd);
}

} // namespace eqds_run
