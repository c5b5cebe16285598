// SPDX-License-Identifier: GPL-2.0
/*
 * The node's ends of the rings of programs on this machine (remora/ring.h), and who has them:
 *
 *   RingListener  accepts clients at a Unix socket, checks them, gives each a pair of rings
 *      |  Rings: pairs that came and went, answers of the slow path
 *   RingWorker    serves the rings (ring_worker.hpp)
 *
 * Clients of one user share a page of pointer words, and might disturb each other there; another
 * user's clients can't. All pages are one region.
 */
#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include <sys/types.h>

#include "remora-node/path.hpp"
#include "support/descriptor.hpp"
#include "support/random.hpp"
#include "support/shared_memory.hpp"

extern "C" {
#include "core/ring/ring.h"
}

namespace remora::daemon {

// Pointer words of all rings, a page for each user.
class PointerBuffer {
public:
    static constexpr unsigned users_max = 16;

    PointerBuffer();
    ~PointerBuffer();
    PointerBuffer(const PointerBuffer&) = delete;
    PointerBuffer& operator=(const PointerBuffer&) = delete;

    struct Place {
        unsigned page, index;
        std::uint32_t* word;
        int file; // the page's, for the client
    };
    // A zeroed word; a user has at most `share` of them. Nothing: none is left. Throws Failure.
    std::optional<Place> claim(uid_t user, unsigned share);
    void give_back(const Place& place);

    // Flags of the pages in use, and one that is the node's own. The worker sleeps while all are
    // set.
    void doze();
    void sleep();
    void rise();
    // Ends a sleep, also one that begins: from any thread of the node.
    void wake();

private:
    struct Page {
        uid_t user = 0;
        unsigned used = 0; // words; 0: the page is nobody's
        std::bitset<RING_POINTERS_MAX> words;
        Descriptor file;
    };
    ring_page* at(unsigned page) const { return region_ + page; }

    ring_page* region_;
    std::uint32_t own_flag_ = 0;
    std::mutex lock_; // all below
    std::array<Page, users_max> page_;
    // The flags of the current doze; the worker's.
    std::vector<std::uint32_t*> flags_;
};

// One client's. The worker has all but the const members.
class RingPair {
public:
    static constexpr unsigned requests = 64, responses = 128;

    // Throws Failure: no memory.
    RingPair(std::uint64_t serial, pid_t client, PointerBuffer& pointers,
             const PointerBuffer::Place& place);
    ~RingPair() { pointers_.give_back(place_); }
    RingPair(const RingPair&) = delete;
    RingPair& operator=(const RingPair&) = delete;

    ring_offer offer() const;
    // The socket by which the client is told, if it watches; before the worker knows the pair.
    void set_socket(Descriptor socket) { socket_ = std::move(socket); }
    // After a write of anything that the client might wait for.
    void wake_client();
    int file() const { return file_.get(); }
    const PointerBuffer::Place& place() const { return place_; }

    const std::uint64_t serial;
    const pid_t client;
    Path path; // of its requests
    ring_in in;
    ring_out out;
    const std::uint32_t* const pointer;

private:
    void tell_watcher();

    PointerBuffer& pointers_;
    const PointerBuffer::Place place_;
    std::uint32_t *client_sleeps_, *client_watches_;
    Descriptor socket_;
    Descriptor file_;
    Mapping memory_;
};

// Where the transport and the slow path leave things for the worker, which might sleep.
class Rings {
public:
    // rings: the most pairs. Throws Failure.
    explicit Rings(unsigned rings);

    // ---- transport ----
    // A pair for this user; nothing: no ring is left, or the user has its share. Throws Failure.
    std::shared_ptr<RingPair> open(pid_t client, uid_t user, unsigned share);
    void came(std::shared_ptr<RingPair> pair);
    void went(std::uint64_t serial);
    unsigned rings_max() const { return rings_max_; }

    // ---- slow path ----
    void answer(std::uint64_t serial, std::vector<std::uint8_t> datagram);

    // ---- worker ----
    struct Changes {
        std::vector<std::shared_ptr<RingPair>> came;
        std::vector<std::uint64_t> went;
        struct Answer {
            std::uint64_t serial;
            std::vector<std::uint8_t> datagram;
        };
        std::vector<Answer> answers;
    };
    unsigned in_use() const { return rings_; }
    bool has_changes() const { return changed_.load(std::memory_order_acquire); }
    Changes take_changes();
    // Closes a pair whose client broke a rule: the transport ends the connection.
    void close(std::uint64_t serial);
    // Sleeps unless something() is found after the clients can see that it does.
    template <typename Something>
    void sleep(Something something);
    // Ends a sleep of the worker, also one that begins.
    void wake() { pointers_.wake(); }

    // ---- transport: pairs to end, and memory of those that nobody uses any more ----
    std::vector<std::uint64_t> take_closed();
    int closed_fd() const { return closed_fd_.get(); }

private:
    void give_back(RingPair* last);

    const unsigned rings_max_;
    std::atomic<unsigned> rings_ = 0;
    // Number of the last pair. A store's sessions are of peers that another process numbered.
    std::uint64_t serial_ = std::uint64_t{random_value<std::uint32_t>()} << 32;
    PointerBuffer pointers_;
    Descriptor closed_fd_;
    std::atomic<bool> changed_ = false;
    std::mutex lock_; // all below
    std::vector<std::unique_ptr<RingPair>> unused_;
    Changes changes_; // when these go, pairs are given back
    std::vector<std::uint64_t> closed_;
};

template <typename Something>
void Rings::sleep(Something something) {
    pointers_.doze();
    if (!has_changes() && !something())
        pointers_.sleep();
    pointers_.rise();
}

} // namespace remora::daemon
