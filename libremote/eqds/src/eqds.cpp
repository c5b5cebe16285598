// SPDX-License-Identifier: MIT
#include "eqds/eqds.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "buffers.hpp"
#include "ring.hpp"
#include "support/fork.hpp"
#include "support/names.hpp"

using namespace libeqds;

namespace {

constexpr std::uint32_t packets_default = 256;

struct Descriptor {
    int fd = -1;
    ~Descriptor() {
        if (fd >= 0)
            close(fd);
    }
};

struct Mapping {
    std::byte* at = nullptr;
    std::size_t bytes = 0;

    int map(std::size_t size, int flags, int fd) {
        void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, fd, 0);
        if (mapped == MAP_FAILED)
            return -errno;
        at = static_cast<std::byte*>(mapped);
        bytes = size;
        return 0;
    }
    ~Mapping() {
        if (at)
            munmap(at, bytes);
    }
};

// The device's MTU, which bounds a packet. Below 0: errno.
int device_mtu(const char* device) {
    Descriptor socket_{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ifreq request{};
    if (socket_.fd < 0)
        return -errno;
    std::strncpy(request.ifr_name, device, sizeof(request.ifr_name) - 1);
    return ioctl(socket_.fd, SIOCGIFMTU, &request) ? -errno : request.ifr_mtu;
}

// How long a wait lasts before the kernel is asked again to send packets it had no memory for.
constexpr int memory_retry_ms = 10;

// The file is closed first: while it is open, the kernel uses the others.
struct Handle {
    Mapping area, shared;
    Descriptor file;
    eqds_native_rings* rings = nullptr;
    std::unique_ptr<Buffers> buffers;
    Producer<eqds_native_fill> fill;
    Producer<eqds_native_packet> tx;
    Consumer<eqds_native_packet> rx;
    Consumer<eqds_native_completion> completion;
    std::vector<std::uint64_t> cookies; // of the caller, by buffer
    std::size_t packet_bytes = 0;
    std::uint32_t entries = 0;
    std::uint16_t port = 0;

    int open(const char* device, const eqds_options& options);
    void refill();
    std::ptrdiff_t index_of(const void* data) const;
    bool is_good(const eqds_packet& packet) const;
    bool claim(const eqds_packet* packets, std::size_t count);
};

int Handle::open(const char* device, const eqds_options& options) {
    eqds_native_setup setup{};
    int mtu = device_mtu(device), err;
    if (mtu < 0)
        return mtu;
    entries = options.packets ? options.packets : packets_default;
    if (!std::has_single_bit(entries) || entries < EQDS_NATIVE_ENTRIES_MIN ||
        entries > EQDS_NATIVE_ENTRIES_MAX)
        return -EINVAL;
    // A packet crosses no more pages than it must, and buffers are found by their offset.
    std::size_t each = std::bit_ceil(static_cast<std::size_t>(mtu));
    // Half for each way: a ring of either holds them all.
    std::size_t count = 2ul * entries, page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::size_t bytes = (count * each + page - 1) / page * page;
    if (bytes > EQDS_NATIVE_AREA_MAX)
        return -EINVAL;
    file.fd = ::open(EQDS_NATIVE_DEVICE, O_RDWR | O_CLOEXEC);
    if (file.fd < 0)
        return -errno;
    err = area.map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if (err)
        return err;
    // A child of fork() would share pages that the kernel writes to.
    if (madvise(area.at, bytes, MADV_DONTFORK))
        return -errno;
    setup.bytes = sizeof(setup);
    setup.ifindex = if_nametoindex(device);
    setup.area = reinterpret_cast<std::uintptr_t>(area.at);
    setup.area_bytes = bytes;
    setup.ring_entries = entries;
    setup.port = options.port;
    if (ioctl(file.fd, EQDS_NATIVE_SETUP, &setup))
        return -errno;
    err = shared.map(setup.map_bytes, MAP_SHARED, file.fd);
    if (err)
        return err;
    rings = reinterpret_cast<eqds_native_rings*>(shared.at);
    auto entries_at = [&]<typename Entry>(Entry*, std::uint32_t offset) {
        return reinterpret_cast<Entry*>(shared.at + offset);
    };
    fill.attach(&rings->fill, entries_at(static_cast<eqds_native_fill*>(nullptr), setup.fill),
                entries);
    tx.attach(&rings->tx, entries_at(static_cast<eqds_native_packet*>(nullptr), setup.tx), entries);
    rx.attach(&rings->rx, entries_at(static_cast<eqds_native_packet*>(nullptr), setup.rx), entries);
    completion.attach(&rings->completion,
                      entries_at(static_cast<eqds_native_completion*>(nullptr), setup.completion),
                      entries);
    buffers = std::make_unique<Buffers>(count, each);
    cookies.resize(count);
    packet_bytes = std::min<std::size_t>(setup.packet_bytes, each);
    port = setup.port;
    refill();
    return 0;
}

// As many buffers as half of all wait for packets or are with the caller.
void Handle::refill() {
    bool pushed = false;
    for (std::uint32_t room = fill.room(); room && buffers->free() > entries; room--) {
        std::size_t index = buffers->take(Owner::Filling);
        fill.push({.at = index * buffers->bytes(),
                   .bytes = static_cast<std::uint32_t>(buffers->bytes()),
                   .reserved = 0});
        pushed = true;
    }
    if (pushed)
        fill.publish();
}

std::ptrdiff_t Handle::index_of(const void* data) const {
    auto* at = static_cast<const std::byte*>(data);
    if (at < area.at || at >= area.at + area.bytes)
        return -1;
    return buffers->at(static_cast<std::uint64_t>(at - area.at));
}

bool Handle::is_good(const eqds_packet& packet) const {
    std::ptrdiff_t index = index_of(packet.data);
    return index >= 0 && buffers->owner(static_cast<std::size_t>(index)) == Owner::Caller &&
           packet.bytes && packet.bytes <= packet_bytes;
}

// All buffers become the kernel's, or none if one is not good. A buffer is not good a second time.
bool Handle::claim(const eqds_packet* packets, std::size_t count) {
    for (std::size_t i = 0; i < count; i++) {
        if (is_good(packets[i])) {
            buffers->give(static_cast<std::size_t>(index_of(packets[i].data)), Owner::Sending);
            continue;
        }
        while (i--)
            buffers->give(static_cast<std::size_t>(index_of(packets[i].data)), Owner::Caller);
        return false;
    }
    return true;
}

constinit remora::Names<Handle, eqds_t> names;

// Throws std::bad_alloc.
eqds_t* name_handle(std::unique_ptr<Handle> handle) {
    static const remora::AtFork watched([] { names.lock(); }, [] { names.unlock(); },
                                        [] { names.unlock(); });
    return names.add(std::move(handle));
}

} // namespace

extern "C" {

#pragma GCC visibility push(default)

int eqds_open(eqds_t** e, const char* device, const eqds_options* options) {
    eqds_options chosen{};
    if (!e || !device || std::strlen(device) >= IFNAMSIZ)
        return -EINVAL;
    if (options) {
        if (options->bytes < sizeof(options->bytes) || options->bytes > sizeof(chosen))
            return -EINVAL;
        std::memcpy(&chosen, options, options->bytes);
    }
    if (std::any_of(std::begin(chosen.reserved), std::end(chosen.reserved),
                    [](std::uint16_t word) { return word != 0; }))
        return -EINVAL;
    try {
        auto fresh = std::make_unique<Handle>();
        int err = fresh->open(device, chosen);
        if (!err)
            *e = name_handle(std::move(fresh));
        return err;
    } catch (const std::bad_alloc&) {
        return -ENOMEM;
    }
}

void eqds_close(eqds_t* e) {
    names.take(e);
}

uint16_t eqds_port(const eqds_t* e) {
    const Handle* its = names.find(e);
    return its ? its->port : 0;
}

size_t eqds_packet_bytes(const eqds_t* e) {
    const Handle* its = names.find(e);
    return its ? its->packet_bytes : 0;
}

int eqds_fd(const eqds_t* e) {
    const Handle* its = names.find(e);
    return its ? its->file.fd : -EBADF;
}

uint64_t eqds_dropped(const eqds_t* e) {
    const Handle* its = names.find(e);
    return its ? std::atomic_ref<__u64>(its->rings->rx_dropped).load(std::memory_order_relaxed) : 0;
}

int eqds_buffer(eqds_t* e, void** data) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    if (!its->buffers->free())
        return -EAGAIN;
    *data = its->area.at + its->buffers->take(Owner::Caller) * its->buffers->bytes();
    return 0;
}

int eqds_release(eqds_t* e, void* data) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    std::ptrdiff_t index = its->index_of(data);
    if (index < 0 || its->buffers->owner(static_cast<std::size_t>(index)) != Owner::Caller)
        return -EINVAL;
    its->buffers->give(static_cast<std::size_t>(index), Owner::Library);
    its->refill();
    return 0;
}

int eqds_send(eqds_t* e, const eqds_packet* packets, size_t count) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    const size_t asked = count;
    if (!its->claim(packets, asked))
        return -EINVAL;
    count = std::min<std::size_t>(count, its->tx.room());
    for (size_t i = count; i < asked; i++)
        its->buffers->give(static_cast<std::size_t>(its->index_of(packets[i].data)), Owner::Caller);
    for (size_t i = 0; i < count; i++) {
        auto index = static_cast<std::size_t>(its->index_of(packets[i].data));
        eqds_native_packet entry{};
        entry.at = index * its->buffers->bytes();
        entry.cookie = index;
        entry.bytes = static_cast<__u32>(packets[i].bytes);
        entry.port = packets[i].address.port;
        std::memcpy(entry.peer, packets[i].address.host, sizeof(entry.peer));
        its->cookies[index] = packets[i].cookie;
        its->tx.push(entry);
    }
    its->tx.publish();
    if (ioctl(its->file.fd, EQDS_NATIVE_KICK) && errno == ENODEV)
        return -ENODEV;
    return static_cast<int>(count);
}

int eqds_receive(eqds_t* e, eqds_packet* packets, size_t count) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    eqds_native_packet entry;
    size_t n = 0;
    while (n < count && its->rx.pop(&entry)) {
        std::ptrdiff_t index = its->buffers->at(entry.at);
        eqds_packet& packet = packets[n++];
        packet = {};
        packet.data = its->area.at + entry.at;
        packet.bytes = entry.bytes;
        packet.address.port = entry.port;
        std::memcpy(packet.address.host, entry.peer, sizeof(entry.peer));
        its->buffers->give(static_cast<std::size_t>(index), Owner::Caller);
    }
    if (n)
        its->rx.publish();
    its->refill();
    return static_cast<int>(n);
}

int eqds_complete(eqds_t* e, eqds_completion* completions, size_t count) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    eqds_native_completion entry;
    size_t n = 0;
    while (n < count && its->completion.pop(&entry)) {
        auto index = static_cast<std::size_t>(entry.cookie);
        completions[n++] = {.cookie = its->cookies[index],
                            .status = static_cast<eqds_status>(entry.status),
                            .rtt_ns = entry.rtt_ns,
                            .path = entry.path,
                            .attempts = entry.attempts,
                            .queued = entry.queued,
                            .pulls = entry.pulls,
                            .busy_us = entry.busy_us};
        its->buffers->give(index, Owner::Library);
    }
    if (n)
        its->completion.publish();
    its->refill();
    // Some might have waited in tx for places of completions.
    if (n && ioctl(its->file.fd, EQDS_NATIVE_KICK) && errno == ENODEV)
        return static_cast<int>(n);
    return static_cast<int>(n);
}

int eqds_wait(eqds_t* e, int timeout_ms) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(std::max(timeout_ms, 0));
    pollfd waiting{its->file.fd, POLLIN, 0};
    while (true) {
        // Packets that the kernel had no memory for stay in tx, and nothing would end a wait for
        // their completions.
        const bool again = ioctl(its->file.fd, EQDS_NATIVE_KICK) && errno == ENOMEM;
        int left = timeout_ms;
        if (timeout_ms >= 0)
            left = std::max(
                static_cast<int>(
                    std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count()),
                0);
        const bool last = !again || (left >= 0 && left <= memory_retry_ms);
        int n = poll(&waiting, 1, last ? left : memory_retry_ms);
        if (n < 0)
            return -errno;
        if (waiting.revents & POLLIN)
            return 1;
        if (waiting.revents)
            return -ENODEV;
        if (last)
            return 0;
    }
}

int eqds_peer(eqds_t* e, const eqds_address* to, eqds_peer_info* info) {
    Handle* its = names.find(e);
    if (!its)
        return -EBADF;
    eqds_native_peer peer{};
    eqds_peer_info told{};
    if (info->bytes < sizeof(info->bytes) || info->bytes > sizeof(told))
        return -EINVAL;
    peer.bytes = sizeof(peer);
    std::memcpy(peer.peer, to->host, sizeof(peer.peer));
    if (ioctl(its->file.fd, EQDS_NATIVE_PEER, &peer))
        return -errno;
    told.bytes = info->bytes;
    told.rtt_ns = peer.rtt_ns;
    told.credit_bytes = peer.credit_bytes;
    told.queued = peer.queued;
    told.in_flight = peer.in_flight;
    told.pulls = peer.pulls;
    told.busy_us = peer.busy_us;
    static_assert(EQDS_PATH_COUNT == EQDS_NATIVE_PATHS);
    for (int i = 0; i < EQDS_PATH_COUNT; i++)
        told.path[i] = {peer.path[i].rtt_ns, peer.path[i].sent, peer.path[i].trimmed,
                        peer.path[i].lost};
    std::memcpy(info, &told, info->bytes);
    return 0;
}

int eqds_address_parse(const char* host, uint16_t port, eqds_address* address) {
    std::string text(host);
    if (text.find(':') == text.npos)
        text = "::ffff:" + text;
    if (inet_pton(AF_INET6, text.c_str(), address->host) != 1)
        return -EINVAL;
    address->port = port;
    return 0;
}

#pragma GCC visibility pop

} // extern "C"
