// SPDX-License-Identifier: GPL-2.0
/*
 * A memory node between datagrams and answers, around node/host.hpp. Knows nothing of sockets.
 *
 *   datagram -> form, lengths -> space known? -> tag
 *      |        if it is sealed: space known? -> header's tag -> session's keys -> open -> form
 *      |        or from a ring, plain messages (remora/rmem.h), which have neither
 *   each message -> digest               no change before all of these hold
 *      |
 *      |-- rmem_node_is_slow()   slow.hpp, once there is a thread for them
 *      |-- QUERY, CALL           calls.hpp
 *      `-- others                slot lock { rmem_node_request() decides; rmem_execute() }
 *
 * At level link, answers to a READ refer to the pages themselves. A thread must send its answers
 * before it calls leave(): after that the scrubber can zero a freed page. If a page is written
 * between making and sending an answer, the client gets old or new content, as from concurrent
 * requests. At the levels with a sum over the data, the data is copied and then summed: else a
 * change by any client would damage the answers to others, who would retransmit.
 */
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "common/node_report.hpp"
#include "node/host.hpp"
#include "remora-node/calls.hpp"
#include "remora-node/counters.hpp"
#include "remora-node/path.hpp"
#include "remora-node/slow.hpp"
#include "seal/cipher.hpp"
#include "support/key.hpp"

namespace remora::daemon {

// Shorter stretches of data are copied at level link, too: that costs less than another iovec.
inline constexpr std::size_t piece_bytes_least = 512;

// One datagram to be sent: header and heads of its messages, then the pieces of data.
struct Reply {
    // A READ's are two at most. A READV's: those not copied, and copies between them.
    static constexpr std::size_t pieces_max =
        RMEM_BUNDLE_MAX * RMEM_EXTENTS_MAX + 2 * (RMEM_PIECE_BYTES_MAX / piece_bytes_least);

    std::array<std::uint8_t, RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX)> head;
    std::size_t head_bytes;
    std::array<rmem_found, RMEM_BUNDLE_MAX> found; // by ATOMICs and PUTs
    unsigned int founds;
    // A sealed datagram is put together here, so there is room for heads before, and a seal behind.
    static constexpr std::size_t heads_room = RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX);
    std::array<std::uint8_t, heads_room + RMEM_PIECE_BYTES_MAX + RMEM_SEAL_BYTES> copied;
    std::size_t copied_bytes;
    std::array<std::span<const std::uint8_t>, pieces_max> data;
    unsigned int pieces;
    rmem_seal_key key; // of a sealed session, until the datagram is sealed

    std::span<const std::uint8_t> copy(std::span<const std::uint8_t> bytes) {
        auto to = std::span(copied).subspan(heads_room + copied_bytes, bytes.size());
        std::copy(bytes.begin(), bytes.end(), to.begin());
        copied_bytes += bytes.size();
        return to;
    }
};

// A thread's means to open and seal datagrams.
struct Sealing {
    Cipher cipher;
    rmem_seal_keys keys{}; // of the datagram opened last; leave() wipes them
    std::array<std::uint8_t, RMEM_DATAGRAM_BYTES_MAX> plain;
    Salt salt{};
    bool salted = false; // salt is of this batch
};

// Takes answers: add() makes room for a datagram, which its caller fills in before the next add().
class Outbox {
public:
    virtual ~Outbox() = default;
    virtual Reply& add(const Path& path) = 0;
    // Sends all that waits.
    virtual void flush() = 0;

    // For rings: the place of a plain answer, head and payload. Null: there is no room. Once both
    // are written plain_done() counts it, with the payload that it has in the end.
    virtual std::uint8_t* plain_room(const rmem_head&, std::uint32_t /* payload_bytes */) {
        return nullptr;
    }
    virtual void plain_done(const rmem_head&, std::uint32_t /* payload_bytes */) {}
    // Can it send where this path leads?
    virtual bool takes(const Path&) const { return true; }

    // The last datagram, while more answers of its session can join it; reply null: none.
    struct Open {
        Reply* reply = nullptr;
        Path path{};
        rmem_head head{}; // of the first answer in it
        rmem_bundle bundle{};
        struct base_siphash hash {}; // for its tag, so far
        // If it is to be sealed:
        Sealing* sealing = nullptr;
        const base_siphash_key* space_key = nullptr;
    };
    Open open;
    // Completes it; no answer can join it any more. Before it is sent.
    void close() {
        if (open.sealing)
            seal();
        else if (open.reply)
            rmem_wire_seal(open.reply->head.data(), open.bundle.messages, false, &open.hash);
        open = {};
    }

private:
    void seal();
};

class Node {
public:
    // Throws Failure if the configuration isn't sound or the memory isn't to be had.
    // file: holds config.persistent_pages; it outlives the node.
    // store: as of node/host.hpp; without a file.
    Node(const rmem_node_config& config, bool lock_memory, unsigned int threads,
         node::MemoryFile* file = nullptr, node::Store* store = nullptr);

    bool took_over() const { return host_.took_over(); }
    const char* store_refused() const { return host_.refused(); }
    // From now on no other process takes the store over.
    void lapse() { host_.lapse(); }
    // False: the space wasn't in the store. Throws Failure.
    bool keep_space(std::uint32_t id, const Key& key, std::uint64_t quota_bytes, std::uint32_t base,
                    bool member, bool sealed_only);

    // Throw Failure. With run_slow(): only from operate().
    // sealed_only: its clients have to seal.
    void add_space(std::uint32_t id, const Key& key, std::uint64_t quota_bytes,
                   bool sealed_only = false);
    // The file's memory becomes the space's, which is there already.
    void add_persistent(std::uint32_t id);
    // A view or a member of the space with the id base, which is there already.
    void add_view(std::uint32_t id, const Key& key, std::uint32_t base, bool sealed_only = false);
    void add_member(std::uint32_t id, const Key& key, std::uint32_t base, bool sealed_only = false);
    // force: also a space that has regions; ends its sessions and frees them. between: operate()'s.
    void del_space(std::uint32_t id, bool force, const node::Host::Between& between);
    // Its key opens nothing any more, and its memory stays. between: operate()'s.
    void revoke_space(std::uint32_t id, const node::Host::Between& between);
    std::vector<SpaceReport> spaces();
    // Some regions of the space: those from the address from on. Throws Failure.
    std::vector<rmem_listed> regions(std::uint32_t id, std::uint64_t from);

    // Has run_slow() execute changes of spaces, since they can take long. The caller bounds the
    // number of errands under way.
    void operate(SlowPath::Errand errand) { slow_->add(std::move(errand)); }

    // Each thread brackets its work, answers sent included; between, it holds no page.
    void enter(unsigned int thread);
    void leave(unsigned int thread);

    void handle(unsigned int thread, std::uint64_t now_ns, std::span<const std::uint8_t> datagram,
                const Path& path, Outbox& outbox);
    // After a batch of datagrams, before outbox's flush(): runs calls that came with it for a
    // while.
    void finish(unsigned int thread, Outbox& outbox);

    // Requests that can take long wait for run_slow() from now on, rather than be executed in
    // handle(). Before the first datagram.
    void defer_slow() { slow_.emplace(host_); }
    // In a thread of its own, until stop_slow(): executes them, sends their answers by their paths'
    // late outboxes, and zeroes pages.
    void run_slow();
    void stop_slow() { slow_->stop(); }

    // To be called once every rmem_node_expire_ms(): has run_slow() end idle sessions that owe
    // memory.
    void expire();

    // Programs are loaded and removed from operate() alone.
    Calls& calls() { return calls_; }
    // The thread of run_slow(): some steps of the QUERY and CALL messages that run.
    void run_calls();

    // The node is about to end: from now on its clients are told that it has restarted, so their
    // operations end at once rather than when they have waited long enough.
    void retire();

    // Zeroes some pages that were given back. Between leave() and enter(). True: call again soon.
    bool scrub(unsigned int thread);

    NodeReport report(std::uint16_t port);
    Counters& counters(unsigned int thread) { return threads_[thread].counters; }
    unsigned int slow_thread() const { return static_cast<unsigned int>(threads_.size()) - 1; }

private:
    struct Request;
    struct Carrier;
    struct LateKeys;
    static const rmem_execute_ops carrier_ops;
    struct alignas(64) Thread {
        std::atomic<std::uint64_t> passes{0}; // the thread writes it; odd: in a batch
        std::uint64_t datagrams = 0;          // begun
        std::size_t calls = 0;                // admitted since finish()
        std::unique_ptr<Sealing> sealing = std::make_unique<Sealing>();
        Counters counters;
    };

    void wait_grace();
    bool unseal(Request& request, std::span<const std::uint8_t>& datagram);
    void notify(Request& request, const rmem_head& head);
    void handle_plain(Request request, std::span<const std::uint8_t> record);
    void handle_message(Request& request, bool damaged_payload);
    std::uint64_t next_number(unsigned int thread);
    void execute(Request& request);
    Reply& datagram_for(Request& request, rmem_head& head);
    void answer(Request& request, rmem_head& head);
    void answer_found(Request& request, rmem_answer& decision);
    void answer_data(Request& request, rmem_execute_data& data);
    template <typename Write>
    void answer_plain(Request& request, rmem_head& head, Write write);
    void add(Request& request, Reply& out, rmem_head& head, std::size_t pieces);
    bool admit(Request& request, rmem_answer& decision);
    void end_call(unsigned int thread, const Calls::Ended& ended, Outbox& outbox);
    void answer_call(Request& request, const Calls::Ended& ended);
    void slow(Request& request);
    void answer_slow(unsigned int thread, const Path& path, const base_siphash_key* key,
                     rmem_node_call& call, Outbox& outbox);
    bool keys_for(Request& request, const rmem_head& head, rmem_seal_keys& keys);
    void answer_alone(Request& request, rmem_head& head, const void* payload);
    std::vector<std::uint64_t> begin_grace() const;
    bool has_passed(const std::vector<std::uint64_t>& grace) const;

    Cipher cipher_; // for OPENs
    node::Host host_;
    std::vector<Thread> threads_; // the last one is run_slow()'s
    std::optional<SlowPath> slow_;
    std::atomic<bool> expiring_ = false;            // run_slow() has it to do
    std::mutex scrub_lock_;                         // from taking pages to giving them back, and
    std::vector<std::uint64_t> grace_;              // of the pages taken
    Calls calls_{host_, [this] { slow_->poke(); }}; // the last: its links' threads poke slow_
};

} // namespace remora::daemon
