// SPDX-License-Identifier: GPL-2.0
#include "remora-node/status.hpp"

#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "support/failure.hpp"

namespace remora::daemon {

namespace {

constexpr int backlog = 16;

struct stat at(const std::string& path) {
    struct stat found {};
    lstat(path.c_str(), &found);
    return found;
}

bool is_abandoned(const sockaddr_un& address) {
    Descriptor probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return probe &&
           connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) &&
           errno == ECONNREFUSED;
}

} // namespace

StatusSocket::StatusSocket(std::string path)
    : path_(std::move(path)), fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof(address.sun_path))
        throw Misuse("--json-status {} is longer than {} bytes: choose a shorter path", path_,
                     sizeof(address.sun_path) - 1);
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    struct stat found = at(path_);
    if (found.st_mode && !S_ISSOCK(found.st_mode))
        throw Failure("--json-status {} is there and is no socket: choose another path", path_);
    if (found.st_mode && is_abandoned(address))
        unlink(path_.c_str());
    if (!fd_ || bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) ||
        listen(fd_.get(), backlog))
        throw Failure("can't listen at {}: {}", path_, std::strerror(errno));
    inode_ = at(path_).st_ino;
}

StatusSocket::~StatusSocket() {
    if (at(path_).st_ino == inode_) // else it is another's by now
        unlink(path_.c_str());
}

void StatusSocket::answer(const NodeReport& report) const {
    Descriptor client(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client)
        return;
    std::string text = node_report_json(report).dump() + "\n";
    // Its reader notices a text cut short, since that is no JSON.
    [[maybe_unused]] ssize_t sent = send(client.get(), text.data(), text.size(), MSG_NOSIGNAL);
}

} // namespace remora::daemon
