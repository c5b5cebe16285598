// SPDX-License-Identifier: GPL-2.0
#include "remora-node/ring_listener.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/failure.hpp"
#include "support/say.hpp"
#include "support/unix_socket.hpp"

namespace remora::daemon {

namespace {

// Before it tries again when the process has no descriptor left.
constexpr std::chrono::milliseconds pause_for_error{10};

void send_offer(const Descriptor& connection, const ring_offer& offer, std::span<const int> files) {
    // A client that doesn't get it finds the connection ended, or nothing.
    send_files(connection.get(), {reinterpret_cast<const std::uint8_t*>(&offer), sizeof(offer)},
               files);
}

} // namespace

RingListener::RingListener(Rings& rings, const std::string& path, mode_t mode)
    : rings_(rings),
      mode_(mode),
      listener_("--shm", path, mode, SOCK_SEQPACKET),
      stop_(eventfd(0, EFD_CLOEXEC)) {
    if (!stop_)
        throw Failure("no eventfd: {}", std::strerror(errno));
    // The umask took from the mode that the operator gave.
    if (chmod(path.c_str(), mode_))
        throw Failure("can't set the mode of {}: {}", path, std::strerror(errno));
}

void RingListener::stop() {
    eventfd_write(stop_.get(), 1);
}

void RingListener::run() {
    std::vector<pollfd> fds;
    for (;;) {
        fds = {
            {stop_.get(), POLLIN, 0}, {rings_.closed_fd(), POLLIN, 0}, {listener_.fd(), POLLIN, 0}};
        for (const Client& client : clients_)
            fds.push_back({client.connection.get(), POLLIN, 0});
        poll(fds.data(), fds.size(), -1);
        if (fds[0].revents)
            return;
        // A client never sends: any byte by its connection ends it.
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

void RingListener::end_closed() {
    for (std::uint64_t serial : rings_.take_closed())
        clients_.remove_if([&](const Client& client) { return client.serial == serial; });
}

void RingListener::admit() {
    Descriptor connection = listener_.accept();
    if (!connection) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            std::this_thread::sleep_for(pause_for_error);
        return;
    }
    std::uint32_t answer = RING_REFUSED_ERROR;
    try {
        answer = offer_rings(connection);
    } catch (const std::exception& error) {
        warn("remora-node: warning: no rings for a client: {}", error.what());
    }
    if (answer == RING_OFFERED)
        return;
    ring_offer refusal{};
    base_store_le32(&refusal.version, RING_VERSION);
    base_store_le32(&refusal.answer, answer);
    send_offer(connection, refusal, {});
}

bool RingListener::may_use(uid_t user) const {
    return user == 0 || user == geteuid() || (mode_ & 0066);
}

// While other users can come, none gets the last quarter.
unsigned RingListener::share_of(uid_t user) const {
    unsigned all = rings_.rings_max();
    bool alone = !(mode_ & 0066) || user == geteuid();
    return alone ? all : std::max(all - all / 4, 1U);
}

// Gives back RING_OFFERED, and keeps the connection; or why not.
std::uint32_t RingListener::offer_rings(Descriptor& connection) {
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
    std::array files{pair->file(), pair->place().file};
    std::uint64_t serial = pair->serial;
    Descriptor own(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
    if (!own)
        throw Failure("no descriptor: {}", std::strerror(errno));
    pair->set_socket(std::move(own));
    // The worker knows the pair before its client does.
    rings_.came(std::move(pair));
    send_offer(connection, offer, files);
    clients_.push_back({std::move(connection), serial});
    return RING_OFFERED;
}

} // namespace remora::daemon
