// SPDX-License-Identifier: MIT
#include "src/transport/shm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <poll.h>

#include "src/transport/protocol.hpp"
#include "support/futex.hpp"
#include "support/tsan.hpp"

extern "C" {
#include "core/base/crc32c.h"
}

namespace remora::lib {

namespace {

// Looks between two looks at the clock, whose reading takes as long as several of them.
constexpr unsigned looks = 16;
// Rounds of looks before the first reading of the clock: a quick answer costs none.
constexpr unsigned blind_rounds = 4;
// Rounds before the processor rests longer between two looks.
constexpr unsigned eager_rounds = 64;

timespec left_until(Clock::time_point until) {
    auto ns = std::max<std::int64_t>((until - Clock::now()).count(), 0);
    return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

} // namespace

Shm::Shm(const std::string& path, Clock::time_point limit)
    : link_(path, limit), may_spin_(!has_one_processor()) {}

Transport::Limits Shm::limits() const {
    return {RMEM_PIECE_BYTES_MAX, RMEM_DATAGRAM_BYTES_MAX, RMEM_IWND_BYTES, true};
}

const rmem_cipher& Shm::seal() {
    throw Failure(EPROTONOSUPPORT,
                  "shm: seals nothing, as only the node can read the rings: use integrity=full, or "
                  "udp: to this machine");
}

// ---- out ----

// Entries free for messages that don't join those of plain_. 0: messages wait for the node, wait()
// looks for credit, and they are sent after that.
std::uint32_t Shm::room() {
    std::uint32_t taken = plain_.messages ? 1 : 0;
    if (ring_out_room(&link_.out) <= taken && ring_out_learn(&link_.out)) {
        link_.drop();
        return 0;
    }
    std::uint32_t room = ring_out_room(&link_.out) - taken;
    full_at_ = link_.out.freed;
    full_ = !room;
    return room;
}

// As many messages as have room at any length: one that the core has chosen can't wait in it, for
// its operation might be cancelled meanwhile. Returns how many.
std::uint32_t Shm::send_row(const rmem_client_config& session, Messages& messages,
                            std::uint32_t room) {
    rmem_client_tx tx;
    std::uint32_t sent = 0;
    for (messages.set_room(room); messages.next(tx); sent++) {
        if (rmem_plain_fits(&tx.head)) {
            add_plain(tx);
        } else if (room) {
            post_plain();
            post_datagram(session, tx);
        } else {
            messages.unsent(tx); // OPEN or CLOSE, which wait for no room
        }
    }
    return sent;
}

void Shm::send(const rmem_client_config& session, Messages& messages) {
    if (!link_.is_open()) {
        rmem_client_tx lost;
        for (messages.set_room(~0U); messages.next(lost);) {
        }
        return;
    }
    std::uint32_t posted = link_.out.posted, row;
    do {
        row = room();
    } while (send_row(session, messages, row) >= row && row);
    post_plain();
    if (link_.out.posted != posted)
        signal();
}

namespace {

// Calls piece(from, bytes) for each piece of the message's payload.
template <typename Piece>
void for_each_piece(const rmem_client_tx& tx, Piece piece) {
    if (tx.payload_bytes)
        piece(static_cast<const std::uint8_t*>(rmem_client_tx_payload(&tx)), tx.payload_bytes);
    if (!tx.data_bytes)
        return;
    const Op& op = op_of(tx.op);
    if (op.ranges.empty())
        return piece(op.data + tx.data_offset, tx.data_bytes);
    for (const Range& range : op.now)
        piece(range.data, range.bytes);
}

} // namespace

void Shm::add_plain(const rmem_client_tx& tx) {
    std::uint32_t bytes = tx.payload_bytes + tx.data_bytes;
    if (!rmem_plain_joins(&plain_, &tx.head, bytes)) {
        post_plain();
        rmem_plain_joins(&plain_, &tx.head, bytes);
    }
    std::uint8_t* to = ring_out_record(&link_.out) + plain_.bytes - rmem_plain_bytes(bytes);
    rmem_plain_encode(to, &tx.head);
    to += RMEM_PLAIN_BYTES;
    for_each_piece(tx, [&](const std::uint8_t* from, std::size_t piece_bytes) {
        std::memcpy(to, from, piece_bytes);
        to += piece_bytes;
    });
}

void Shm::post_plain() {
    if (!plain_.messages)
        return;
    ring_sends();
    ring_out_post(&link_.out, plain_.bytes);
    plain_ = {};
}

// The message as a datagram, in an entry of its own. It has room.
void Shm::post_datagram(const rmem_client_config& session, rmem_client_tx& tx) {
    std::array<std::uint8_t, RMEM_HEADS_BYTES(1)> heads;
    struct base_siphash hash;
    base_siphash_init(&hash, &session.key);
    rmem_wire_encode_hdr(heads.data(), &tx.head);
    rmem_wire_encode_msg(heads.data() + RMEM_HDR_BYTES, &tx.head);
    std::uint8_t* record = ring_out_record(&link_.out);
    std::uint8_t* to = record + RMEM_HEADS_BYTES(1);
    std::size_t tagged = rmem_wire_tagged_bytes(&tx.head);
    for_each_piece(tx, [&](const std::uint8_t* from, std::size_t bytes) {
        std::memcpy(to, from, bytes);
        to += bytes;
        // From where it came: the node can change the ring's content.
        std::size_t covered = std::min(bytes, tagged);
        base_siphash_update(&hash, from, covered);
        tagged -= covered;
    });
    rmem_wire_seal(heads.data(), 1, tx.head.more, &hash);
    std::memcpy(record, heads.data(), heads.size());
    ring_sends();
    ring_out_post(&link_.out, static_cast<std::uint32_t>(to - record));
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

Watch Shm::watch() {
    if (!link_.is_open())
        return {};
    link_.take_bytes();
    ring_doze(link_.watches);
    return {.fd = link_.fd(), .serial = link_.serial(), .is_ready = has_news()};
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
    // Another client might have reset the node's flag, and been stopped before it woke the node.
    if (idle_)
        futex_wake(link_.node_sleeps);
}

// True: there is news.
bool Shm::spins(Clock::time_point until, std::uint64_t spin_ns) {
    if (has_news())
        return true;
    if (!may_spin_ || !spin_ns)
        return false;
    Clock::time_point end = never;
    for (unsigned round = 0; round <= blind_rounds || Clock::now() < end; round++) {
        if (round == blind_rounds)
            end = std::min(Clock::now() + std::chrono::nanoseconds(spin_ns), until);
        for (unsigned i = 0; i < looks; i++) {
            if (has_news())
                return true;
            if (round < eager_rounds)
                relax();
            else
                pause_longer(ring_in_word(&link_.in), [this] { return !has_news(); });
        }
    }
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

// As many records as the ring has at most: the node can post without end.
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

// False: it is neither plain messages nor a datagram.
bool Shm::take_record(const rmem_client_config& session, Messages& messages,
                      std::span<const std::uint8_t> record) {
    if (!record.empty() && record[0] == RMEM_PLAIN) {
        take_plain(session, messages, record);
        return true;
    }
    if (record.size() < RMEM_HDR_BYTES || record.size() > copied_.size())
        return false;
    // The node can still write the record: bytes that are looked at twice are copied first.
    std::memcpy(copied_.data(), record.data(), record.size());
    take_datagram(session, std::span(copied_).first(record.size()), messages);
    return true;
}

void Shm::take_plain(const rmem_client_config& session, Messages& messages,
                     std::span<const std::uint8_t> record) {
    rmem_plain_record in;
    rmem_plain_begin(&in, static_cast<u32>(record.size()), true);
    for (u32 offset; rmem_plain_next(&in, &offset) && rmem_plain_has_head(&in);) {
        // Copied first, as above.
        struct rmem_plain plain;
        std::memcpy(&plain, record.data() + offset, sizeof(plain));
        if (rmem_plain_step(&in, &plain) != RMEM_WIRE_GOOD)
            return;
        in.head.space = session.space;
        messages.take_response(in.head, record.data() + in.payload_offset, false);
    }
}

} // namespace remora::lib
