// SPDX-License-Identifier: MIT
#include "src/transport/edm_member.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "remora/rmem_edm.h"
#include "src/transport/edm_mark.hpp"
#include "support/failure.hpp"
#include "support/fork.hpp"

namespace remora::lib {

namespace {

constexpr std::uint16_t slots = 32;
// Datagrams that share an announcement, in bytes on the link.
constexpr std::uint32_t mega_bytes = 65536;
constexpr std::uint64_t join_ns = 20'000'000;
// Until messages go without a scheduler that has not welcomed this host yet: at first, and after a
// pause, when it had done so before.
constexpr std::uint64_t patience_ns = 1'000'000'000;
constexpr std::uint64_t patience_again_ns = 100'000'000;
// No datagram is older when it arrives.
constexpr std::uint64_t late_ns = 100'000'000;
// Datagrams of a socket handled before the others.
constexpr unsigned datagrams_max = 64;

Descriptor connected(const Resolved& scheduler) {
    Descriptor fd(
        socket(scheduler.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd ||
        connect(fd.get(), reinterpret_cast<const sockaddr*>(&scheduler.address), scheduler.bytes))
        throw Failure(EHOSTUNREACH, "no way to the scheduler: {}", std::strerror(errno));
    edm_mark(fd.get(), scheduler.address.ss_family);
    return fd;
}

} // namespace

// ---- life ----

namespace {

bool equal(const Resolved& a, const Resolved& b) {
    return a.bytes == b.bytes && !std::memcmp(&a.address, &b.address, a.bytes);
}

// The members of this program. One without handles stays until its lease has ended, for the
// scheduler gives its port to no other address before. A child of fork() finds the lock free.
struct Members {
    std::mutex lock;
    std::vector<std::shared_ptr<EdmMember>> all;
};

Members& members() {
    static Members* all = new Members; // never freed: threads can outlive main()
    static const AtFork at_fork([] { all->lock.lock(); }, [] { all->lock.unlock(); },
                                [] {
                                    for (const auto& each : all->all)
                                        each->disown();
                                    all->lock.unlock();
                                });
    return *all;
}

} // namespace

std::shared_ptr<EdmMember> EdmMember::of(const EdmPort& port,
                                         const std::vector<Resolved>& schedulers) {
    Members& mine = members();
    const std::lock_guard lock(mine.lock);
    std::erase_if(mine.all, [&](const auto& each) {
        const bool is_other =
            each->is_at(schedulers, port.number) && !each->serves(port, schedulers);
        return each.use_count() == 1 && (each->is_over() || is_other);
    });
    for (const auto& each : mine.all) {
        if (!each->is_at(schedulers, port.number))
            continue;
        if (!each->serves(port, schedulers))
            throw Failure(EBUSY,
                          "this program is at port {} already, with another rate, rack's key or "
                          "standby: give all its targets the same",
                          port.number);
        return each;
    }
    mine.all.push_back(std::make_shared<EdmMember>(port, schedulers));
    return mine.all.back();
}

bool EdmMember::is_over() {
    if (process_ != getpid())
        return false;
    const std::lock_guard lock(lock_);
    return !is_leased();
}

// Might a scheduler, or the standby, still keep the port for it?
bool EdmMember::is_leased() const {
    const std::uint64_t now = now_ns();
    return std::ranges::any_of(std::span(host_.link).first(sockets_.size()), [&](const auto& link) {
        return link.up && !edm_link_is_mute(&link, now);
    });
}

bool EdmMember::is_at(const std::vector<Resolved>& schedulers, std::uint16_t port) const {
    return process_ == getpid() && port_.number == port &&
           equal(schedulers_.front(), schedulers.front());
}

bool EdmMember::serves(const EdmPort& port, const std::vector<Resolved>& schedulers) const {
    return port_.key == port.key && port_.rate_mbps == port.rate_mbps &&
           std::ranges::equal(schedulers_, schedulers, equal);
}

EdmMember::EdmMember(const EdmPort& port, const std::vector<Resolved>& schedulers)
    : process_(getpid()), port_(port), schedulers_(schedulers) {
    for (const Resolved& each : schedulers)
        sockets_.push_back(connected(each));
    start(patience_ns);
}

void EdmMember::start(std::uint64_t patience_ns) {
    edm_host_config config{};
    base_siphash_key_load(&config.link.key, port_.key.data());
    config.link.join_ns = join_ns;
    config.link.epoch =
        edm_link_epoch(host_.config.link.epoch, static_cast<std::uint64_t>(std::time(nullptr)));
    config.link.rate_mbps = port_.rate_mbps;
    config.link.port = port_.number;
    config.link.slots = slots;
    config.ports = EDM_PORTS_MAX;
    config.links = static_cast<std::uint8_t>(sockets_.size());
    config.mega_bytes = mega_bytes;
    config.patience_ns = patience_ns;
    config.late_ns = late_ns;
    memory_.assign((edm_host_bytes(&config) + sizeof(memory_[0]) - 1) / sizeof(memory_[0]), 0);
    edm_host_init(&host_, now_ns(), &config, memory_.data());
}

bool EdmMember::wait_welcome(Clock::time_point limit) {
    for (;;) {
        {
            const Turn turn(*this);
            take_in();
            if (host_.follow != EDM_UNSCHEDULED)
                return true;
        }
        const Clock::time_point now = Clock::now();
        if (now >= limit)
            return false;
        const Clock::time_point until = std::min(limit, now + std::chrono::nanoseconds(join_ns));
        std::array<pollfd, EDM_LINKS_MAX> ready{};
        for (std::size_t i = 0; i < sockets_.size(); i++)
            ready[i] = {sockets_[i].get(), POLLIN, 0};
        poll(ready.data(), sockets_.size(),
             static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(until - now).count()));
    }
}

// ---- ops ----

// Have the leases of a member that had joined ended for lack of calls?
bool EdmMember::slept() const {
    return !ops_ && host_.follow != EDM_UNSCHEDULED && !is_leased();
}

void EdmMember::submit(EdmDatagram& op) {
    if (slept())
        start(patience_again_ns);
    ops_++;
    edm_host_submit(&host_, now_ns(), &op);
}

void EdmMember::done(EdmDatagram& op) {
    if (op.state == EDM_OP_QUEUED) {
        cancel(op);
        return;
    }
    ops_--;
    edm_host_done(&host_, now_ns(), &op);
}

bool EdmMember::cancel(EdmDatagram& op) {
    if (!edm_host_cancel(&host_, now_ns(), &op))
        return false;
    ops_--;
    return true;
}

void EdmMember::forget(EdmList& list) {
    std::erase_if(list, [&](EdmDatagram& each) { return cancel(each); });
    for (EdmDatagram& each : list)
        each.client = nullptr;
    forgotten_.splice(forgotten_.end(), list);
}

// ---- out ----

void EdmMember::pump() {
    // Else the core would find itself without a scheduler, and do without.
    if (slept())
        start(patience_again_ns);
    const std::uint64_t now = now_ns();
    while (edm_host_next(&host_, now, &action_))
        act();
    const std::uint64_t deadline = ops_ ? edm_host_deadline_ns(&host_) : EDM_NEVER;
    timer_ = deadline == EDM_NEVER ? never : Clock::time_point(Clock::duration(deadline));
}

void EdmMember::act() {
    auto* op = static_cast<EdmDatagram*>(action_.op);
    switch (action_.what) {
    case EDM_HOST_TELL:
        tell(action_.link, {});
        break;
    case EDM_HOST_ASK:
        if (action_.unscheduled)
            op->client->ask(*op);
        else
            tell(action_.link, op->client->request(*op));
        break;
    case EDM_HOST_SEND:
        unscheduled_ = action_.unscheduled;
        break;
    case EDM_HOST_SENT:
        sent(*op);
        break;
    default: // this host has no answers
        break;
    }
}

void EdmMember::sent(EdmDatagram& write) {
    ops_--;
    if (write.client)
        write.client->sent(write, unscheduled_);
    else
        forgotten_.erase(write.place);
}

// A datagram that can't be sent counts as lost.
void EdmMember::tell(std::uint8_t link, std::span<const std::uint8_t> request) {
    std::array<std::uint8_t, EDM_WIRE_BYTES_MAX + EDM_OPAQUE_BYTES_MAX> bytes;
    edm_message& message = action_.message;
    message.payload_bytes = static_cast<std::uint32_t>(request.size());
    const std::size_t heads = edm_wire_header_bytes(&message);
    edm_wire_encode(&message, action_.items, bytes.data());
    std::copy(request.begin(), request.end(), bytes.begin() + static_cast<std::ptrdiff_t>(heads));
    edm_wire_seal(bytes.data(), heads + request.size(),
                  message.kind == EDM_JOIN ? &host_.config.link.key : edm_host_key(&host_, link));
    send(sockets_[link].get(), bytes.data(), heads + request.size(), 0);
}

// ---- in ----

void EdmMember::take_in() {
    std::array<std::uint8_t, EDM_WIRE_BYTES_MAX + EDM_OPAQUE_BYTES_MAX> bytes;
    for (std::size_t link = 0; link < sockets_.size(); link++)
        for (unsigned n = 0; n < datagrams_max; n++) {
            const ssize_t got = recv(sockets_[link].get(), bytes.data(), bytes.size(), MSG_TRUNC);
            if (got < 0)
                break;
            if (static_cast<std::size_t>(got) <= bytes.size())
                receive(static_cast<std::uint8_t>(link),
                        std::span(bytes).first(static_cast<std::size_t>(got)));
        }
}

// This host has no memory to read, so the scheduler forwards nothing to it.
void EdmMember::receive(std::uint8_t link, std::span<const std::uint8_t> bytes) {
    edm_message message;
    if (edm_wire_parse(&message, bytes.data(), bytes.size()) != EDM_WIRE_GOOD)
        return;
    const base_siphash_key* key = nullptr;
    if (message.kind == EDM_CHALLENGE || message.kind == EDM_WELCOME)
        key = &host_.config.link.key;
    else if (message.kind == EDM_GRANT)
        key = edm_host_key(&host_, link);
    if (key && edm_wire_verifies(bytes.data(), bytes.size(), key))
        edm_host_receive(&host_, now_ns(), link, &message, bytes.data());
}

} // namespace remora::lib
