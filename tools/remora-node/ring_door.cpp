// SPDX-License-Identifier: GPL-2.0
#include "remora-node/ring_door.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failure.hpp"
#include "support/unix_address.hpp"

namespace remora::daemon {

namespace {

constexpr int backlog = 64;
// Before it tries again when the process has no descriptor left.
constexpr std::chrono::milliseconds pause_for_error{10};

struct stat at(const std::string& path) {
    struct stat found {};
    lstat(path.c_str(), &found);
    return found;
}

Descriptor ring_socket() {
    return Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool is_abandoned(const sockaddr_un& address) {
    Descriptor probe = ring_socket();
    return probe &&
           connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) &&
           errno == ECONNREFUSED;
}

void send_offer(const Descriptor& connection, const ring_offer& offer, std::span<const int> files) {
    // A client that doesn't get it finds the connection ended, or nothing.
    send_files(connection.get(), {reinterpret_cast<const std::uint8_t*>(&offer), sizeof(offer)},
               files);
}

} // namespace

RingDoor::RingDoor(Rings& rings, const ShmOptions& options)
    : rings_(rings),
      path_(options.path),
      mode_(options.mode),
      fd_(ring_socket()),
      stop_(eventfd(0, EFD_CLOEXEC)) {
    sockaddr_un address = unix_address(path_);
    struct stat found = at(path_);
    if (found.st_mode && !S_ISSOCK(found.st_mode))
        throw Failure("--shm {} is there and is no socket: choose another path", path_);
    if (found.st_mode && is_abandoned(address))
        unlink(path_.c_str());
    // Nobody can connect before listen(), so the mode is in force from the first client on.
    if (!fd_ || !stop_ || bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)))
        throw Failure("can't listen at --shm {}: {}", path_, std::strerror(errno));
    inode_ = at(path_).st_ino;
    if (chmod(path_.c_str(), mode_) || listen(fd_.get(), backlog)) {
        int error = errno;
        unlink(path_.c_str());
        throw Failure("can't listen at --shm {}: {}", path_, std::strerror(error));
    }
}

RingDoor::~RingDoor() {
    if (at(path_).st_ino == inode_) // else it is another's by now
        unlink(path_.c_str());
}

void RingDoor::stop() {
    eventfd_write(stop_.get(), 1);
}

void RingDoor::run() {
    std::vector<pollfd> fds;
    for (;;) {
        fds = {{stop_.get(), POLLIN, 0}, {rings_.closed_fd(), POLLIN, 0}, {fd_.get(), POLLIN, 0}};
        for (const Client& client : clients_)
            fds.push_back({client.connection.get(), POLLIN, 0});
        poll(fds.data(), fds.size(), -1);
        if (fds[0].revents)
            return;
        // A client never sends: whatever comes by its connection ends it.
        std::size_t i = 3;
        for (auto client = clients_.begin(); client != clients_.end(); i++) {
            auto next = std::next(client);
            if (fds[i].revents) {
                rings_.went(client->serial);
                clients_.erase(client);
            }
            client = next;
        }
        if (fds[1].revents)
            end_closed();
        if (fds[2].revents)
            admit();
    }
}

void RingDoor::end_closed() {
    for (std::uint64_t serial : rings_.take_closed())
        clients_.remove_if([&](const Client& client) { return client.serial == serial; });
}

void RingDoor::admit() {
    Descriptor connection(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            std::this_thread::sleep_for(pause_for_error);
        return;
    }
    std::uint32_t answer = RING_REFUSED_ERROR;
    try {
        answer = offer_rings(connection);
    } catch (const std::exception& error) {
        fmt::print(stderr, "remora-node: warning: no rings for a client: {}\n", error.what());
    }
    if (answer == RING_OFFERED)
        return;
    ring_offer refusal{};
    base_store_le32(&refusal.version, RING_VERSION);
    base_store_le32(&refusal.answer, answer);
    send_offer(connection, refusal, {});
}

bool RingDoor::may_use(uid_t user) const {
    return user == 0 || user == geteuid() || (mode_ & 0066);
}

// While other users may come, none gets the last quarter.
unsigned RingDoor::share_of(uid_t user) const {
    unsigned all = rings_.rings_max();
    bool alone = !(mode_ & 0066) || user == geteuid();
    return alone ? all : std::max(all - all / 4, 1U);
}

// Gives back RING_OFFERED, and keeps the connection; or why not.
std::uint32_t RingDoor::offer_rings(Descriptor& connection) {
    ucred who{};
    socklen_t length = sizeof(who);
    if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &who, &length))
        return RING_REFUSED_ERROR;
    if (!may_use(who.uid))
        return RING_REFUSED_USER;
    std::shared_ptr<RingPair> pair = rings_.open(who.pid, who.uid, share_of(who.uid));
    if (!pair)
        return RING_REFUSED_FULL;
    ring_offer offer = pair->offer();
    std::array files{pair->file(), pair->place().file, rings_.node_file()};
    std::uint64_t serial = pair->serial;
    // The worker knows the pair before its client does.
    rings_.came(std::move(pair));
    send_offer(connection, offer, files);
    clients_.push_back({std::move(connection), serial});
    return RING_OFFERED;
}

} // namespace remora::daemon
