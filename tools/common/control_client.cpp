// SPDX-License-Identifier: GPL-2.0
#include "common/control_client.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/unix_address.hpp"
#include "support/unix_socket.hpp"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;

// More connections than a daemon admits wait at its socket. Without this, connect() and send() to a
// daemon that stands still would wait for it for ever.
void bound_sending(const Descriptor& fd, std::chrono::milliseconds patience) {
    using std::chrono::milliseconds;
    patience = std::clamp(patience, milliseconds(1), milliseconds(ControlClient::brief));
    const timeval most{patience.count() / 1000, patience.count() % 1000 * 1000};
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}

// More than the list of all spaces that a node can have.
constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;

} // namespace

ControlClient::ControlClient(std::string what, std::string path, Clock::time_point until)
    : what_(std::move(what)),
      path_(std::move(path)),
      until_(until),
      fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = unix_address(path_);
    if (fd_)
        bound_sending(fd_, std::chrono::duration_cast<std::chrono::milliseconds>(
                               std::min(until, Clock::now() + brief) - Clock::now()));
    if (fd_ && !connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)))
        return;
    if (errno == EAGAIN)
        throw no_answer();
    if (errno == EACCES)
        throw Failure(EACCES, "this user may not use {}: be root, or the user of the {}", path_,
                      what_);
    throw Failure(errno, "no {} listens at {}: {}", what_, path_, std::strerror(errno));
}

// A program that was killed has left its socket.
bool control_serves(const std::string& path, std::chrono::milliseconds patience) {
    Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = unix_address(path);
    if (fd)
        bound_sending(fd, patience);
    return fd && (!connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
                  errno == EACCES || errno == EAGAIN);
}

Failure ControlClient::no_answer() const {
    return Failure(ETIMEDOUT, "the {} at {} doesn't answer: is it stopped?", what_, path_);
}

// False: the daemon has closed the connection.
bool ControlClient::read_some(Clock::time_point until) {
    std::array<std::uint8_t, 65536> bytes;
    pollfd readable{fd_.get(), POLLIN, 0};
    ssize_t got = -1;
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    int ready = poll(&readable, 1, std::max(static_cast<int>(left), 0));
    if (!ready)
        throw no_answer();
    if (ready > 0)
        got = receive_files(fd_.get(), bytes, files_);
    if (got < 0 && errno != ECONNRESET && errno != EINTR && errno != EAGAIN)
        throw Failure("the {} at {} doesn't answer: {}", what_, path_, std::strerror(errno));
    if (got < 0)
        return errno != ECONNRESET;
    text_.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(got));
    if (text_.size() > answer_bytes_max)
        throw Failure("the program that listens at {} is no {}: its answer has no end", path_,
                      what_);
    return got > 0;
}

Json ControlClient::call(const Json& request, std::chrono::seconds patience) {
    const Clock::time_point until = std::min(until_, Clock::now() + patience);
    std::string line = request.dump() + "\n";
    // If this fails, so does reading the answer; but a status socket doesn't read, and answers.
    [[maybe_unused]] ssize_t sent = send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    explicit_bzero(line.data(), line.size()); // the line can have a key
    while (text_.find('\n') == text_.npos) {
        if (!read_some(until))
            throw Failure(ECONNRESET, "the {} at {} closed the connection: has it ended?", what_,
                          path_);
    }
    Json answer = Json::parse(text_.substr(0, text_.find('\n')), nullptr, false);
    text_.erase(0, text_.find('\n') + 1);
    if (!answer.is_object())
        throw Failure("the program that listens at {} is no {}: its answer is no JSON", path_,
                      what_);
    if (answer.value("ok", true))
        return answer;
    throw Failure("{}", answer.value("error", "the " + what_ + " gave no reason"));
}

void ControlClient::wait_end() {
    const Clock::time_point until = Clock::now() + lengthy;
    while (read_some(until)) {
    }
}

} // namespace remora
