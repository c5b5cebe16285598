// SPDX-License-Identifier: GPL-2.0
#include "common/control_client.hpp"

#include <array>
#include <cerrno>
#include <cstring>

#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/failure.hpp"
#include "support/unix_address.hpp"
#include "support/unix_socket.hpp"

namespace remora {

namespace {

using Json = nlohmann::ordered_json;

// A deletion may have to free millions of pages.
constexpr int patience_ms = 60'000;
// More than the list of all spaces that a node can have.
constexpr std::size_t answer_bytes_max = std::size_t{16} << 20;

} // namespace

ControlClient::ControlClient(std::string what, std::string path)
    : what_(std::move(what)),
      path_(std::move(path)),
      fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address = unix_address(path_);
    if (fd_ && !connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)))
        return;
    if (errno == EACCES)
        throw Failure(EACCES, "this user may not use {}: be root, or the user of the {}", path_,
                      what_);
    throw Failure(errno, "no {} listens at {}: {}", what_, path_, std::strerror(errno));
}

// A program that was killed has left its socket.
bool control_serves(const std::string& path) {
    Descriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address = unix_address(path);
    return fd && (!connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
                  errno == EACCES);
}

// False: the daemon has closed the connection.
bool ControlClient::read_some() {
    std::array<std::uint8_t, 65536> bytes;
    pollfd readable{fd_.get(), POLLIN, 0};
    ssize_t got = -1;
    int ready = poll(&readable, 1, patience_ms);
    if (ready > 0)
        got = receive_files(fd_.get(), bytes, files_);
    else if (!ready)
        errno = ETIMEDOUT;
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

Json ControlClient::call(const Json& request) {
    std::string line = request.dump() + "\n";
    // If this fails, so does reading the answer; but a status socket doesn't read, and answers.
    [[maybe_unused]] ssize_t sent = send(fd_.get(), line.data(), line.size(), MSG_NOSIGNAL);
    explicit_bzero(line.data(), line.size()); // the line may have a key
    while (text_.find('\n') == text_.npos) {
        if (!read_some())
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
    while (read_some()) {
    }
}

} // namespace remora
