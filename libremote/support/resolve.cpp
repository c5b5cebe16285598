// SPDX-License-Identifier: MIT
#include "support/resolve.hpp"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>

#include <netdb.h>
#include <netinet/in.h>

#include "support/failure.hpp"
#include "support/fork.hpp"
#include "support/thread.hpp"

namespace remora {

namespace {

// Bounds the threads of look-ups that nobody waits for any more.
constexpr int left_behind_max = 16;
std::atomic<int> left_behind{0};

// A child of fork() has none of its parent's threads.
void watch_forks() {
    static const AtFork watched(nullptr, nullptr, [] { left_behind = 0; });
}

struct List {
    List() = default;
    List(const List&) = delete;
    List& operator=(const List&) = delete;
    ~List() {
        if (first)
            freeaddrinfo(first);
    }

    addrinfo* first = nullptr;
};

// A look-up in a thread of its own, which can't be ended: it is left behind when its time is up.
struct LookUp {
    std::string host;
    List list;
    std::mutex lock; // all below; list until ended
    std::condition_variable changed;
    bool ended = false;
    bool is_left_behind = false;
    int error = 0;
};

int ask(const std::string& host, int flags, List& list) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    hints.ai_flags = flags;
    return getaddrinfo(host.c_str(), nullptr, &hints, &list.first);
}

void look_up(LookUp& mine) {
    const int error = ask(mine.host, 0, mine.list);
    std::lock_guard lock(mine.lock);
    mine.error = error;
    mine.ended = true;
    mine.changed.notify_one();
    if (mine.is_left_behind)
        left_behind--;
}

std::vector<Resolved> addresses_of(const List& list, std::uint16_t port) {
    std::vector<Resolved> addresses;
    for (const addrinfo* each = list.first; each; each = each->ai_next) {
        if (each->ai_family != AF_INET && each->ai_family != AF_INET6)
            continue;
        Resolved& made = addresses.emplace_back();
        std::memcpy(&made.address, each->ai_addr, each->ai_addrlen);
        made.bytes = each->ai_addrlen;
        // The port is at the same place in both kinds of address.
        reinterpret_cast<sockaddr_in&>(made.address).sin_port = htons(port);
    }
    return addresses;
}

std::shared_ptr<LookUp> begin(const std::string& host) {
    watch_forks();
    if (left_behind >= left_behind_max)
        throw Failure(EAGAIN, "no address for {}: {} look-ups wait for silent name servers already",
                      host, left_behind_max);
    auto mine = std::make_shared<LookUp>();
    mine->host = host;
    try {
        thread_without_signals([mine] { look_up(*mine); }).detach();
    } catch (const std::system_error&) {
        throw Failure(EAGAIN, "no address for {}: there is no thread left to look it up", host);
    }
    return mine;
}

} // namespace

std::vector<Resolved> resolve(const std::string& host, std::uint16_t port,
                              std::chrono::steady_clock::time_point limit) {
    // An address in digits takes no time, and no thread.
    List digits;
    if (!ask(host, AI_NUMERICHOST, digits))
        return addresses_of(digits, port);
    const std::shared_ptr<LookUp> mine = begin(host);
    std::unique_lock lock(mine->lock);
    if (!mine->changed.wait_until(lock, limit, [&] { return mine->ended; })) {
        mine->is_left_behind = true;
        left_behind++;
        throw Failure(EHOSTUNREACH, "no address for {} in time: do the name servers answer?", host);
    }
    if (mine->error)
        throw Failure(EHOSTUNREACH, "no host {}: {}", host, gai_strerror(mine->error));
    return addresses_of(mine->list, port);
}

} // namespace remora
