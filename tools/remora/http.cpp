// SPDX-License-Identifier: GPL-2.0
#include "remora/http.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/resolve.hpp"
#include "support/say.hpp"

namespace remora {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t head_bytes_max = 8192;
constexpr std::size_t connections_max = 16;
constexpr std::chrono::seconds connection_time{10};
constexpr int backlog = 16;

struct Connection {
    Descriptor fd;
    Clock::time_point until;
    std::string head;   // of the request, as far as it has come
    std::string answer; // empty: the request isn't whole
    std::size_t sent = 0;
};

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
    return out;
}

// The value of a header; empty: there is none.
std::string header(std::string_view head, std::string_view name) {
    const std::string all = lower(head);
    const std::size_t at = all.find(fmt::format("\r\n{}:", name));
    if (at == all.npos)
        return {};
    const std::size_t begin = at + name.size() + 3;
    return all.substr(begin, all.find("\r\n", begin) - begin);
}

std::string answer_text(std::string_view status, const HttpPage& page, bool with_text) {
    return fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
                       "Connection: close\r\n\r\n{}",
                       status, page.media_type, page.text.size(), with_text ? page.text : "");
}

std::string refusal(std::string_view status) {
    return answer_text(status, {"text/plain", fmt::format("{}\n", status)}, true);
}

std::string answer_to(std::string_view head, std::string_view path, const HttpPageOf& page) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    const std::size_t first = line.find(' '), second = line.rfind(' ');
    if (first == second || !line.substr(second + 1).starts_with("HTTP/1."))
        return refusal("400 Bad Request");
    const std::string_view method = line.substr(0, first);
    std::string_view target = line.substr(first + 1, second - first - 1);
    target = target.substr(0, target.find('?'));
    if (target != path)
        return refusal("404 Not Found");
    if (method != "GET" && method != "HEAD")
        return refusal("405 Method Not Allowed");
    try {
        return answer_text("200 OK", page(header(head, "accept")), method == "GET");
    } catch (const std::exception& failure) { // also of JSON that a daemon got wrong
        warn("remora: {}", failure.what());
        return refusal("503 Service Unavailable");
    }
}

// False: the connection is over.
bool receive(Connection& connection, std::string_view path, const HttpPageOf& page) {
    char some[4096];
    const ssize_t got = recv(connection.fd.get(), some, sizeof(some), MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    connection.head.append(some, static_cast<std::size_t>(got));
    if (connection.head.find("\r\n\r\n") != std::string::npos)
        connection.answer = answer_to(connection.head, path, page);
    else if (connection.head.size() > head_bytes_max)
        connection.answer = refusal("431 Request Header Fields Too Large");
    return true;
}

bool transmit(Connection& connection) {
    const ssize_t put =
        send(connection.fd.get(), connection.answer.data() + connection.sent,
             connection.answer.size() - connection.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0)
        return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<std::size_t>(put);
    if (connection.sent < connection.answer.size())
        return true;
    shutdown(connection.fd.get(), SHUT_WR);
    return false;
}

void accept_one(const Descriptor& listener, std::list<Connection>& connections) {
    Descriptor fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
        if (errno == EBADF || errno == EINVAL || errno == ENOTSOCK)
            throw Failure("can't serve: {}", std::strerror(errno));
        return;
    }
    if (connections.size() == connections_max)
        connections.pop_front();
    connections.push_back({std::move(fd), Clock::now() + connection_time, {}, {}});
}

Descriptor listen_at(const Resolved& address) {
    Descriptor fd(socket(address.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) ||
        bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.bytes) ||
        listen(fd.get(), backlog))
        return {};
    return fd;
}

} // namespace

Descriptor http_listen(const std::string& address) {
    if (address.starts_with("fd:")) {
        Descriptor fd(static_cast<int>(parse_number(address.substr(3), 3, 1023, "--listen fd")));
        if (fcntl(fd.get(), F_SETFL, O_NONBLOCK) || listen(fd.get(), backlog))
            throw Failure("--listen {}: not a socket that listens: {}", address,
                          std::strerror(errno));
        return fd;
    }
    const std::size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    const bool brackets = host.starts_with("[") && host.ends_with("]");
    if (colon == address.npos || host.empty() || (!brackets && host.find(':') != host.npos))
        throw Misuse("--listen '{}' is not ADDRESS:PORT: write 127.0.0.1:9101, or [::1]:9101",
                     address);
    if (brackets)
        host = host.substr(1, host.size() - 2);
    const auto port =
        static_cast<std::uint16_t>(parse_number(address.substr(colon + 1), 0, 65535, "--listen"));
    for (const Resolved& each : resolve(host, port, Clock::now() + connection_time))
        if (Descriptor fd = listen_at(each))
            return fd;
    throw Failure("can't listen at {}: {}: choose another --listen", address, std::strerror(errno));
}

std::string http_address(const Descriptor& listener) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof(address);
    if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes))
        throw Failure("can't tell the address of a socket: {}", std::strerror(errno));
    char text[INET6_ADDRSTRLEN] = {};
    if (address.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(address);
        inet_ntop(AF_INET, &in.sin_addr, text, sizeof(text));
        return "http://" + endpoint_text(text, ntohs(in.sin_port));
    }
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(address);
    inet_ntop(AF_INET6, &in6.sin6_addr, text, sizeof(text));
    return "http://" + endpoint_text(text, ntohs(in6.sin6_port));
}

void http_serve(const Descriptor& listener, std::string_view path, const HttpPageOf& page) {
    std::list<Connection> connections; // the oldest first
    for (;;) {
        std::vector<pollfd> fds{{listener.get(), POLLIN, 0}};
        for (const Connection& each : connections)
            fds.push_back(
                {each.fd.get(), static_cast<short>(each.answer.empty() ? POLLIN : POLLOUT), 0});
        int wait_ms = -1;
        if (!connections.empty())
            wait_ms = static_cast<int>(
                std::max<std::int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(
                                              connections.front().until - Clock::now())
                                                  .count() +
                                              1));
        if (poll(fds.data(), fds.size(), wait_ms) < 0 && errno != EINTR)
            throw Failure("can't wait for requests: {}", std::strerror(errno));
        auto each = connections.begin();
        for (std::size_t i = 1; i < fds.size(); i++) {
            bool goes_on = each->until > Clock::now();
            if (goes_on && fds[i].revents)
                goes_on = each->answer.empty() ? receive(*each, path, page) : transmit(*each);
            each = goes_on ? std::next(each) : connections.erase(each);
        }
        if (fds[0].revents)
            accept_one(listener, connections);
    }
}

} // namespace remora
