// SPDX-License-Identifier: MIT
#include "src/transport/shm_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "support/failure.hpp"
#include "support/unix_address.hpp"
#include "support/unix_socket.hpp"

extern "C" {
#include "core/rmem/types.h"
#include "remora/rmem.h"
}

namespace remora::lib {

namespace {

// A node offers a pair at once; one that is stopped does not.
constexpr std::chrono::milliseconds offer_time{2000};
// Between two tries to reach a node that has too many others waiting.
constexpr std::chrono::milliseconds again_after{1};
// The node sends a byte when it has answered; more are dropped in turns of so many.
constexpr int bytes_max = 64;

// The socket can't be had.
Failure refused(int error, const std::string& path) {
    switch (error) {
    case EACCES:
        return Failure(EACCES,
                       "this user may not use {}: be root, or the node's user, or start the node "
                       "with --shm-mode 666",
                       path);
    case ENOENT:
    case ECONNREFUSED:
    case ENOTSOCK:
        return Failure(ECONNREFUSED, "no node at {}: {}", path, std::strerror(error));
    case EAGAIN:
        return Failure(EHOSTUNREACH, "the node at {} admits no client in time: is it stopped?",
                       path);
    default:
        return Failure(error, "can't reach a node at {}: {}", path, std::strerror(error));
    }
}

// Signals don't end the waiting.
bool is_readable(int fd, Clock::time_point limit) {
    pollfd ready{fd, POLLIN, 0};
    int got;
    do {
        auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
        got = poll(&ready, 1, std::max(static_cast<int>(left.count()), 0));
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

Failure refusal(std::uint32_t answer, const std::string& path) {
    switch (answer) {
    case RING_REFUSED_USER:
        return Failure(
            EACCES, "the node at {} refuses this user: its --shm-mode says who may use it", path);
    case RING_REFUSED_FULL:
        return Failure(
            EUSERS,
            "the node at {} has no ring left: end some clients, or start it with more --shm-rings; "
            "another user has three quarters of them at most, and 16 users have rings",
            path);
    case RING_REFUSED_ERROR:
        return Failure(ENOMEM, "the node at {} has no memory or no descriptors for a pair of rings",
                       path);
    default:
        return Failure(EPROTO,
                       "the node at {} refuses with answer {}, which this release doesn't know: "
                       "use the same release",
                       path, answer);
    }
}

// Does a ring of this shape lie between the pair's words and the offset end?
bool is_part(std::uint64_t offset, const ring_shape& shape, std::uint64_t end) {
    std::uint32_t entries = base_load_le32(&shape.entries);
    std::uint32_t entry_bytes = base_load_le32(&shape.entry_bytes);
    // Both are bounded, so nothing overflows.
    return ring_shape_is_valid(entries, entry_bytes) && offset % RING_PAGE_BYTES == 0 &&
           offset >= sizeof(ring_pair) && offset <= end &&
           std::uint64_t{entries} * entry_bytes <= end - offset;
}

// A file that permits no shared mapping is the node's fault. A lack of memory isn't.
Mapping mapped(const Descriptor& file, std::uint64_t bytes, const std::string& path) {
    try {
        return Mapping(file, bytes, PROT_READ | PROT_WRITE);
    } catch (const Failure& failure) {
        if (failure.error() == ENOMEM)
            throw;
        throw Failure(EPROTO, "the node at {} offers invalid rings: {}", path, failure.what());
    }
}

} // namespace

ShmLink::ShmLink(std::string path, Clock::time_point limit) : path_(std::move(path)) {
    while (!call()) {
        // The node admits one client after the other, and others wait before this one.
        if (errno != EAGAIN || Clock::now() >= limit)
            throw refused(errno, path_);
        std::this_thread::sleep_for(again_after);
    }
    if (!is_readable(socket_.get(), std::min(limit, Clock::now() + offer_time)))
        throw Failure(EHOSTUNREACH, "the node at {} offers no rings in time: is it stopped?",
                      path_);
    if (!take_offer())
        throw Failure(EPROTO, "the node at {} offers no rings: is it remora-node with --shm?",
                      path_);
}

// Leaves errno.
bool ShmLink::call() {
    sockaddr_un address = unix_address(path_);
    serial_++;
    socket_ = Descriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket_ && !connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)))
        return true;
    int error = errno;
    socket_ = Descriptor();
    errno = error;
    return false;
}

// False: no offer yet, or the socket has ended. Throws Failure.
bool ShmLink::take_offer() {
    std::array<std::uint8_t, sizeof(ring_offer) + 1> message{}; // a longer one is no offer
    std::vector<Descriptor> files;
    ssize_t got = receive_files(socket_.get(), message, files);
    if (got < 0 && errno == EAGAIN)
        return false;
    if (got <= 0) {
        socket_ = Descriptor();
        return false;
    }
    ring_offer offer;
    std::memcpy(&offer, message.data(), sizeof(offer));
    if (got != sizeof(offer) || base_load_le32(&offer.version) != RING_VERSION)
        throw Failure(
            EPROTO, "the node at {} speaks another version of rings: use the same release", path_);
    if (std::uint32_t answer = base_load_le32(&offer.answer))
        throw refusal(answer, path_);
    map(offer, files);
    return true;
}

void ShmLink::map(const ring_offer& offer, const std::vector<Descriptor>& files) {
    std::uint64_t bytes = base_load_le64(&offer.pair_bytes);
    std::uint64_t request = base_load_le64(&offer.request_offset);
    std::uint64_t response = base_load_le64(&offer.response_offset);
    std::uint32_t index = base_load_le32(&offer.pointer);
    auto entry_bytes = [](const ring_shape& shape) { return base_load_le32(&shape.entry_bytes); };
    if (files.size() != 2 || !is_part(request, offer.request, response) ||
        !is_part(response, offer.response, bytes) || index >= RING_POINTERS_MAX ||
        entry_bytes(offer.request) < RING_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX ||
        entry_bytes(offer.response) < RING_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX ||
        !keeps_its_size(files[0], bytes) || !keeps_its_size(files[1], RING_PAGE_BYTES))
        throw Failure(EPROTO, "the node at {} offers invalid rings", path_);
    Mapping pair = mapped(files[0], bytes, path_);
    page_ = mapped(files[1], RING_PAGE_BYTES, path_);
    pair_ = std::move(pair);
    auto& words = *reinterpret_cast<ring_pair*>(pair_.data());
    ring_out_init(&out, pair_.data() + request, base_load_le32(&offer.request.entries),
                  entry_bytes(offer.request), &words.request_credit);
    ring_in_init(&in, pair_.data() + response, base_load_le32(&offer.response.entries),
                 entry_bytes(offer.response), &words.response_credit);
    auto& page = *reinterpret_cast<ring_page*>(page_.data());
    pointer = &page.pointer[index];
    node_sleeps = &page.node_sleeps;
    sleeps = &words.client_sleeps;
    watches = &words.client_watches;
    offered_ = true;
    open_ = true;
}

bool ShmLink::take_bytes() const {
    std::uint8_t byte;
    ssize_t got = 1;
    // The node can send without end.
    for (int n = 0; n < bytes_max && (got > 0 || (got < 0 && errno == EINTR)); n++)
        got = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void ShmLink::look_after() {
    if (offered_ && open_ && take_bytes())
        return;
    if (offered_) {
        drop();
        offered_ = false;
        socket_ = Descriptor();
    }
    if (!socket_ && !call())
        return;
    try {
        take_offer();
    } catch (const std::exception&) {
        socket_ = Descriptor(); // this node can restart, too, and memory can come back
    }
}

} // namespace remora::lib
