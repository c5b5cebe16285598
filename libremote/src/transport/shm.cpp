// SPDX-License-Identifier: MIT
#include "src/transport/shm.hpp"

#include <algorithm>
#include <cstring>

#include <poll.h>

#include "src/protocol.hpp"
#include "support/futex.hpp"
#include "support/tsan.hpp"

extern "C" {
#include "core/base/crc32c.h"
}

namespace remora::lib {

namespace {

// Looks between two looks at the clock, whose reading takes as long as several of them.
constexpr unsigned looks = 16;
// After so many rounds of looks without a pause the processor may rest longer between two.
constexpr unsigned eager_rounds = 64;
// Answers under way have room in the response ring, with a quarter of it left for small ones.
constexpr std::uint32_t window_share = 4;

timespec left_until(Clock::time_point until) {
    auto ns = std::max<std::int64_t>((until - Clock::now()).count(), 0);
    return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

} // namespace

Shm::Shm(const std::string& path) : link_(path), may_spin_(!has_one_processor()) {}

Transport::Limits Shm::limits() const {
    std::uint32_t entries = link_.in.mask + 1;
    return {RMEM_PIECE_BYTES_MAX, RMEM_DATAGRAM_BYTES_MAX,
            std::max(entries / window_share * (window_share - 1), 1U) * RMEM_PIECE_BYTES_MAX, true};
}

// ---- out ----

// Else messages wait for the node: wait() looks for credit, and they are sent after that.
bool Shm::has_room(std::uint32_t entries) {
    if (ring_out_room(&link_.out) >= entries)
        return true;
    if (ring_out_learn(&link_.out))
        link_.drop();
    else if (ring_out_room(&link_.out) >= entries)
        return true;
    full_at_ = link_.out.freed;
    full_ = true;
    return false;
}

void Shm::send(const rmem_client_config& session, Messages& messages) {
    rmem_client_tx tx;
    if (!link_.is_open()) {
        while (messages.next(tx)) {
        } // lost
        return;
    }
    full_ = false;
    std::uint32_t posted = link_.out.posted;
    bundle_.sum = {};
    // One more entry for a message that doesn't join the others.
    while (has_room(bundle_.sum.messages ? 2 : 1) && messages.next(tx)) {
        bool may_share = !bundle_.sum.messages ||
                         (rmem_type_may_share(bundle_.tx[bundle_.sum.messages - 1].head.type) &&
                          rmem_type_may_share(tx.head.type));
        if (!may_share || !rmem_bundle_joins(&bundle_.sum, session.datagram_bytes, &tx.head)) {
            post(session);
            rmem_bundle_joins(&bundle_.sum, session.datagram_bytes, &tx.head);
        }
        bundle_.tx[bundle_.sum.messages - 1] = tx;
    }
    if (bundle_.sum.messages)
        post(session);
    if (link_.out.posted != posted)
        signal();
}

namespace {

// Writes a payload behind what was written before, for digest and tag from where it came: the node
// may change what is in the ring.
class PayloadWriter {
public:
    PayloadWriter(std::uint8_t* to, struct base_siphash& hash) : to_(to), hash_(hash) {}
    void begin(const rmem_head& head) {
        tagged_ = rmem_wire_tagged_bytes(&head);
        has_digest_ = rmem_wire_has_digest(&head);
        crc_ = BASE_CRC32C_SEED;
    }
    void add(const void* from, std::size_t bytes) {
        std::memcpy(to_, from, bytes);
        to_ += bytes;
        if (has_digest_)
            crc_ = base_crc32c_update(crc_, from, bytes);
        std::size_t tagged = std::min(bytes, tagged_);
        base_siphash_update(&hash_, from, tagged);
        tagged_ -= tagged;
    }
    std::uint32_t digest() const { return has_digest_ ? base_crc32c_final(crc_) : 0; }
    const std::uint8_t* end() const { return to_; }

private:
    std::uint8_t* to_;
    struct base_siphash& hash_;
    std::size_t tagged_ = 0;
    bool has_digest_ = false;
    std::uint32_t crc_ = 0;
};

void add_payload(PayloadWriter& writer, const rmem_client_tx& tx) {
    if (tx.payload_bytes)
        writer.add(rmem_client_tx_payload(&tx), tx.payload_bytes);
    if (!tx.data_bytes)
        return;
    const Op& op = op_of(tx.op);
    if (op.ranges.empty())
        return writer.add(op.data + tx.data_offset, tx.data_bytes);
    for (const Range& range : op.now)
        writer.add(range.data, range.bytes);
}

} // namespace

// The bundle as one entry of the request ring. It has room.
void Shm::post(const rmem_client_config& session) {
    std::uint32_t messages = bundle_.sum.messages;
    std::array<std::uint8_t, RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX)> heads;
    struct base_siphash hash;
    base_siphash_init(&hash, &session.key);
    rmem_wire_encode_hdr(heads.data(), &bundle_.tx[0].head);
    std::uint8_t* record = ring_out_record(&link_.out);
    PayloadWriter writer(record + RMEM_HEADS_BYTES(messages), hash);
    for (std::uint32_t i = 0; i < messages; i++) {
        rmem_client_tx& tx = bundle_.tx[i];
        writer.begin(tx.head);
        add_payload(writer, tx);
        tx.head.digest = writer.digest();
        rmem_wire_encode_msg(heads.data() + RMEM_HEADS_BYTES(i), &tx.head);
    }
    rmem_wire_seal(heads.data(), messages, bundle_.tx[messages - 1].head.more, &hash);
    std::memcpy(record, heads.data(), RMEM_HEADS_BYTES(messages));
    ring_sends();
    ring_out_post(&link_.out, static_cast<std::uint32_t>(writer.end() - record));
    bundle_.sum = {};
}

Failure Shm::silence(const std::string& name, std::chrono::milliseconds) const {
    if (link_.is_open())
        return Failure(EKEYREJECTED,
                       "the node at {} ignores us: does it have this space with this key?", name);
    return Failure(EHOSTUNREACH, "the node at {} has ended", name);
}

void Shm::signal() {
    ring_out_signal(&link_.out, link_.pointer);
    if (ring_must_wake(link_.node_sleeps))
        futex_wake(link_.node_sleeps);
}

// ---- in ----

bool Shm::has_news() const {
    return ring_in_has_record(&link_.in) ||
           (full_ && __atomic_load_n(link_.out.credit, __ATOMIC_RELAXED) != full_at_);
}

void Shm::wait(Clock::time_point until, std::uint64_t spin_ns) {
    idle_ = false;
    if (!link_.is_open()) {
        // An offer, or after a while another try.
        pollfd ready{link_.fd(), POLLIN, 0};
        timespec left = left_until(until);
        ppoll(&ready, 1, &left, nullptr);
        idle_ = true;
        return;
    }
    if (spins(until, spin_ns))
        return;
    sleep(until);
    idle_ = !has_news();
}

// True: there is news.
bool Shm::spins(Clock::time_point until, std::uint64_t spin_ns) {
    if (has_news())
        return true;
    if (!may_spin_ || !spin_ns)
        return false;
    Clock::time_point end = std::min(Clock::now() + std::chrono::nanoseconds(spin_ns), until);
    unsigned round = 0;
    do {
        for (unsigned i = 0; i < looks; i++) {
            if (has_news())
                return true;
            if (round < eager_rounds)
                relax();
            else
                pause_longer(ring_in_word(&link_.in), [this] { return !has_news(); });
        }
        round++;
    } while (Clock::now() < end);
    return false;
}

void Shm::sleep(Clock::time_point until) {
    ring_doze(link_.sleeps);
    if (!has_news()) {
        timespec left = left_until(until);
        if (left.tv_sec || left.tv_nsec)
            futex_wait(link_.sleeps, base_swap_le32(1), &left);
    }
    ring_rise(link_.sleeps);
}

void Shm::deliver(const rmem_client_config& session, Messages& messages) {
    if (idle_ || !link_.is_open())
        link_.look_after();
    take_in(session, messages);
}

// As many records as the ring has at most: the node may post without end.
void Shm::take_in(const rmem_client_config& session, Messages& messages) {
    if (!link_.is_open())
        return;
    bool told = false;
    for (std::uint32_t n = 0; n <= link_.in.mask; n++) {
        std::uint32_t bytes;
        ring_fault fault;
        const std::uint8_t* record = ring_in_record(&link_.in, &bytes, &fault);
        if (!record && fault)
            link_.drop();
        if (!record)
            break;
        ring_received();
        if (!take_record(session, messages, {record, bytes})) {
            link_.drop();
            break;
        }
        ring_in_take(&link_.in);
        told |= ring_in_tell(&link_.in);
    }
    if (told && ring_must_wake(link_.node_sleeps))
        futex_wake(link_.node_sleeps);
}

// False: it is no datagram at all.
bool Shm::take_record(const rmem_client_config& session, Messages& messages,
                      std::span<const std::uint8_t> record) {
    if (record.size() < RMEM_HDR_BYTES || record.size() > copied_.size())
        return false;
    // The node may still write the record: what is looked at twice is copied first.
    auto copy = [&](std::size_t bytes, std::size_t from = 0) {
        std::memcpy(copied_.data() + from, record.data() + from, bytes - from);
    };
    copy(RMEM_HDR_BYTES);
    std::size_t heads =
        std::min<std::size_t>(rmem_datagram_heads_bytes(copied_.data()), record.size());
    copy(heads, RMEM_HDR_BYTES);
    rmem_datagram in;
    if (rmem_datagram_open(&in, copied_.data(), static_cast<u32>(record.size()), true) !=
            RMEM_WIRE_GOOD ||
        in.head.space != session.space || in.head.integrity != session.integrity)
        return true; // to an earlier session, or from another node
    bool whole = in.tagged_bytes || session.integrity != RMEM_LINK;
    if (whole)
        copy(record.size(), heads);
    if (!rmem_datagram_verifies(&in, &session.key, copied_.data()))
        return true;
    const std::uint8_t* bytes = whole ? copied_.data() : record.data();
    while (rmem_datagram_step(&in, copied_.data()))
        messages.take_response(in.head, bytes + in.payload_offset,
                               whole && rmem_datagram_is_damaged(&in, copied_.data()));
    return true;
}

} // namespace remora::lib
