// SPDX-License-Identifier: GPL-2.0
#include "common/control_server.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/control.hpp"
#include "support/failure.hpp"
#include "support/unix_socket.hpp"

namespace remora {

namespace {

// Numbers of descriptors that aren't connections.
constexpr std::uint64_t listener = 0, timer = 1, answered = 2, first_connection = 3;

void clear(int fd) {
    std::uint64_t count;
    [[maybe_unused]] ssize_t got = ::read(fd, &count, sizeof(count));
}

bool is_operator(int fd) {
    ucred peer{};
    socklen_t bytes = sizeof(peer);
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) &&
           (peer.uid == 0 || peer.uid == geteuid());
}

} // namespace

struct Control::Connection {
    enum class State { reading, waiting, writing };

    explicit Connection(Descriptor&& from) : fd(std::move(from)), since(Clock::now()) {}
    ~Connection() { explicit_bzero(in.data(), used); } // a request can have held a key
    void enter(State next) {
        state = next;
        since = Clock::now();
    }
    std::string_view lines() const { return {in.data(), used}; }
    bool has_line() const { return lines().find('\n') != lines().npos; }
    Clock::time_point limit(std::chrono::milliseconds time) const {
        return state == State::waiting ? Clock::time_point::max() : since + time;
    }
    // The last line of this connection.
    void refuse(std::string_view why) {
        out = control_error(why) + "\n";
        closes = true;
        enter(State::writing);
    }

    Descriptor fd;
    State state = State::reading;
    Clock::time_point since; // its state
    std::array<char, control_request_bytes_max> in;
    std::size_t used = 0; // of in
    std::string out;
    std::vector<Descriptor> files; // to go with out's first byte
    std::size_t sent = 0;          // of out
    bool closes = false;           // when out is sent
};

Control::Control(std::string path, std::chrono::milliseconds time)
    : Control(UnixListener("--socket", std::move(path), 0600), time) {}

Control::Control(UnixListener&& listening, std::chrono::milliseconds time)
    : listener_(std::move(listening)),
      time_(time),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      answered_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!events_ || !timer_ || !answered_ || !watch(listener_.fd(), listener, EPOLLIN) ||
        !watch(timer_.get(), timer, EPOLLIN) || !watch(answered_.get(), answered, EPOLLIN))
        throw Failure("no control socket: {}", std::strerror(errno));
}

// A client that waits for the end sees its connection close, and then expects no socket there.
Control::~Control() {
    listener_.remove();
}

// Waits for these events of fd from now on, rather than for others. False: the system can't.
bool Control::watch(int fd, std::uint64_t number, std::uint32_t events) {
    epoll_event event{events, {.u64 = number}};
    return !epoll_ctl(events_.get(), EPOLL_CTL_MOD, fd, &event) ||
           !epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Control::ready(const Handler& handler) {
    std::array<epoll_event, connections_max> events;
    int count = epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (const epoll_event& event : std::span(events).first(std::max(count, 0))) {
        std::uint64_t number = event.data.u64;
        if (number == listener)
            accept();
        else if (number == timer)
            clear(timer_.get());
        else if (number == answered)
            clear(answered_.get());
        else if (auto at = connections_.find(number); at != connections_.end()) {
            bool gone =
                at->second.state == Connection::State::waiting; // the only event then is a hang-up
            if (gone || !advance(number, at->second, handler))
                connections_.erase(at);
        }
    }
    while (take_answers(handler)) {
    }
    close_late();
    if (listens_again_ != Clock::time_point{} && listens_again_ <= Clock::now()) {
        listens_again_ = {};
        watch(listener_.fd(), listener, EPOLLIN);
    }
    set_timer();
}

void Control::accept() {
    Descriptor fd = listener_.accept();
    if (!fd && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
        listens_again_ = Clock::now() + accept_pause;
        watch(listener_.fd(), listener, 0);
    }
    if (!fd || !make_room())
        return;
    auto [at, added] = connections_.try_emplace(first_connection + last_++, std::move(fd));
    Connection& connection = at->second;
    if (!is_operator(connection.fd.get()))
        connection.refuse("only root and the user that runs the daemon may control it");
    if (!watch(connection.fd.get(), at->first, connection.closes ? EPOLLOUT : EPOLLIN))
        connections_.erase(at);
}

bool Control::make_room() {
    if (connections_.size() < connections_max)
        return true;
    auto longest = connections_.end();
    for (auto at = connections_.begin(); at != connections_.end(); at++)
        if (at->second.state != Connection::State::waiting &&
            (longest == connections_.end() || at->second.since < longest->second.since))
            longest = at;
    if (longest == connections_.end())
        return false;
    connections_.erase(longest);
    return true;
}

// Goes on with a connection that is readable or writable. False: it is over.
bool Control::advance(std::uint64_t number, Connection& connection, const Handler& handler) {
    using enum Connection::State;
    if (connection.state == writing && !write(connection))
        return false;
    if (connection.state == reading && !connection.has_line() && !read(connection))
        return false;
    if (connection.state == reading)
        take_line(number, connection, handler);
    return watch(connection.fd.get(), number,
                 connection.state == reading   ? EPOLLIN
                 : connection.state == writing ? EPOLLOUT
                                               : 0U); // a hang-up is told all the same
}

// False: the peer sends no more.
bool Control::read(Connection& connection) {
    ssize_t got = recv(connection.fd.get(), connection.in.data() + connection.used,
                       connection.in.size() - connection.used, 0);
    if (got > 0)
        connection.used += static_cast<std::size_t>(got);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void Control::take_line(std::uint64_t number, Connection& connection, const Handler& handler) {
    if (!connection.has_line()) {
        if (connection.used == connection.in.size())
            connection.refuse("the request is longer than 4096 bytes");
        return;
    }
    std::string_view line = connection.lines().substr(0, connection.lines().find('\n'));
    connection.enter(Connection::State::waiting);
    handler(line, [this, number](Reply answer) { reply(number, std::move(answer)); });
    std::size_t rest = connection.used - line.size() - 1;
    std::memmove(connection.in.data(), connection.in.data() + line.size() + 1, rest);
    explicit_bzero(connection.in.data() + rest, connection.used - rest);
    connection.used = rest;
}

// The first byte of an answer. False: errno says why.
bool Control::send_with_files(Connection& connection, char first) {
    std::vector<int> numbers;
    for (const Descriptor& file : connection.files)
        numbers.push_back(file.get());
    auto byte = static_cast<std::uint8_t>(first);
    if (!send_files(connection.fd.get(), {&byte, 1}, numbers))
        return false;
    connection.files.clear();
    connection.sent++;
    return true;
}

// False: the connection is over.
bool Control::write(Connection& connection) {
    std::string_view left = std::string_view(connection.out).substr(connection.sent);
    if (!connection.files.empty()) {
        if (!send_with_files(connection, left.front()))
            return errno == EAGAIN || errno == EINTR;
        left.remove_prefix(1);
    }
    ssize_t sent = send(connection.fd.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (sent < 0)
        return errno == EAGAIN || errno == EINTR;
    connection.sent += static_cast<std::size_t>(sent);
    if (connection.sent < connection.out.size())
        return true;
    connection.enter(Connection::State::reading);
    return !connection.closes;
}

void Control::reply(std::uint64_t number, Reply answer) {
    std::lock_guard lock(lock_);
    answers_.emplace_back(number, std::move(answer));
    eventfd_write(answered_.get(), 1);
}

// False: there was none.
bool Control::take_answers(const Handler& handler) {
    std::vector<std::pair<std::uint64_t, Reply>> answers;
    {
        std::lock_guard lock(lock_);
        answers.swap(answers_);
    }
    for (auto& [number, answer] : answers) {
        auto at = connections_.find(number);
        if (at == connections_.end())
            continue;
        at->second.out = std::move(answer.line) + "\n";
        at->second.files = std::move(answer.files);
        at->second.sent = 0;
        at->second.enter(Connection::State::writing);
        if (!advance(number, at->second, handler))
            connections_.erase(at);
    }
    return !answers.empty();
}

void Control::close_late() {
    Clock::time_point now = Clock::now();
    std::erase_if(connections_, [&](const auto& each) { return each.second.limit(time_) <= now; });
}

void Control::set_timer() {
    Clock::time_point first =
        listens_again_ == Clock::time_point{} ? Clock::time_point::max() : listens_again_;
    for (const auto& [number, connection] : connections_)
        first = std::min(first, connection.limit(time_));
    itimerspec timing{};
    if (first != Clock::time_point::max()) {
        auto ns = std::chrono::nanoseconds(first.time_since_epoch()).count();
        timing.it_value = {static_cast<time_t>(ns / 1'000'000'000),
                           static_cast<long>(ns % 1'000'000'000)};
    }
    timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &timing, nullptr);
}

} // namespace remora
