// SPDX-License-Identifier: MIT
/*
 * Carries the messages of one session: where the client's core meets a network, or another way to a
 * memory node. The seam is cut at the message, as in the kernel (kmod/rmem_ops.h).
 *
 *   backend/client.cpp    core, lock, timers
 *        |       ^
 *   send |       | next, unsent, take_response  Messages
 *   wait v       |
 *   transport/{udp,shm,edm}.cpp                 Transport
 *
 * A transport has the node's address, its socket or rings, and the means to verify a message. It
 * knows no handle, call or timer.
 */
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "src/clock.hpp"
#include "src/transport/sealing.hpp"
#include "src/watch.hpp"
#include "support/failure.hpp"

extern "C" {
#include "core/rmem/client/client.h"
#include "core/rmem/datagram.h"
}

namespace remora::lib {

// Upwards. The caller holds the lock.
class Messages {
public:
    // The next message to send. Its data stays until Transport::send() returns. False: none. To be
    // called until then: the core has chosen the message after this one already.
    virtual bool next(rmem_client_tx& tx) = 0;
    // Before the first next(): limits it to `messages` messages of operations.
    virtual void set_room(std::uint32_t messages) = 0;
    // The transport couldn't send it.
    virtual void unsent(const rmem_client_tx& tx) = 0;
    // A response to this session, whose tag verified. payload: some peers can still write it, so
    // each of its bytes is read once. damaged: it differs from the node's.
    virtual void take_response(const rmem_head& head, const std::uint8_t* payload,
                               bool damaged) = 0;
    // For a sealed session: the key that seals messages of next(), and the one that opens datagrams
    // of a session of that name; null: it isn't this session's.
    virtual const rmem_seal_key& sealing_key() = 0;
    virtual const rmem_seal_key* opening_key(std::uint64_t session) = 0;

protected:
    ~Messages() = default;
};

// Hands up the messages of a sealed datagram, if the session's key opens it.
inline void take_sealed(const rmem_client_config& session, std::span<const std::uint8_t> bytes,
                        Messages& messages, Sealing& sealing) {
    rmem_head head;
    u32 count = 0;
    if (!rmem_seal_fits(static_cast<u32>(bytes.size())) ||
        rmem_wire_parse_hdr(bytes.data(), &head, &count) != RMEM_WIRE_GOOD ||
        head.space != session.space)
        return;
    const rmem_seal_key* key = messages.opening_key(head.session);
    if (!key)
        return;
    auto plain = sealing.open(bytes, session.key, *key);
    rmem_datagram in;
    if (!plain || rmem_datagram_open_unsealed(&in, plain->data(), static_cast<u32>(plain->size()),
                                              true) != RMEM_WIRE_GOOD)
        return;
    while (rmem_datagram_step(&in, plain->data()))
        messages.take_response(in.head, plain->data() + in.payload_offset, false);
}

// Hands up the messages of a datagram, unless it is to an earlier session or from another node.
// sealing: of a session that is sealed; else null.
inline void take_datagram(const rmem_client_config& session, std::span<const std::uint8_t> bytes,
                          Messages& messages, Sealing* sealing = nullptr) {
    if (sealing && bytes.size() >= RMEM_HDR_BYTES && rmem_wire_is_sealed(bytes.data()))
        return take_sealed(session, bytes, messages, *sealing);
    rmem_datagram in;
    if (rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), true) !=
            RMEM_WIRE_GOOD ||
        in.head.space != session.space || in.head.integrity != session.integrity ||
        !rmem_datagram_verifies(&in, &session.key, bytes.data()))
        return;
    while (rmem_datagram_step(&in, bytes.data()))
        messages.take_response(in.head, bytes.data() + in.payload_offset,
                               rmem_datagram_is_damaged(&in, bytes.data()));
}

class Transport {
public:
    struct Limits {
        std::uint32_t payload_bytes; // of a message
        std::uint32_t batch_bytes;   // of messages that travel as one, with their heads
        std::uint32_t window_bytes;  // of answers under way that there is room for
        bool is_memory = false;      // the link damages no payload and loses nothing: it needs no
                                     // digest and no window of flow control, as send() calls
                                     // set_room()
    };

    virtual ~Transport() = default;

    virtual Limits limits() const = 0;

    // The session is to be sealed: called before the first send(), whose datagrams then are. The
    // result is valid as long as the transport. Throws Failure: nothing is sealed on this way.
    virtual const rmem_cipher& seal() = 0;

    // The caller holds the lock. Sends all that messages.next() yields.
    virtual void send(const rmem_client_config& session, Messages& messages) = 0;
    // Without the lock, in one thread at a time: waits until something has come, or until; looks
    // again and again for spin_ns before it sleeps.
    virtual void wait(Clock::time_point until, std::uint64_t spin_ns) = 0;
    // With the lock, in that thread: hands up the messages that wait() found.
    virtual void deliver(const rmem_client_config& session, Messages& messages) = 0;
    // With the lock, while no thread is between wait() and deliver(): the same without waiting.
    virtual void take_in(const rmem_client_config& session, Messages& messages) = 0;

    // The caller holds the lock. Where to learn that wait() would find something; -1: there is no
    // such descriptor.
    virtual Watch watch() { return {}; }
    // The caller holds the lock. When to call take_in() at the latest, though nothing came.
    virtual Clock::time_point timer() const { return never; }

    // The caller holds the lock. The node has been silent for some time: the way to it might be
    // another one by now. Called again and again.
    virtual void unanswered() {}

    // The caller holds the lock. Datagrams that left without the scheduler's grant.
    virtual std::uint64_t unscheduled() const { return 0; }

    // The node gave no answer: why? name: of the node, for people. patience: the longest time to
    // find out.
    virtual Failure silence(const std::string& name, std::chrono::milliseconds patience) const = 0;

    // In a child of the process that opened it: nothing reaches the node from here.
    virtual void disown() = 0;
};

// A way to a node; it can turn out to lead nowhere. Throws Failure.
using Connect = std::function<std::unique_ptr<Transport>(Clock::time_point limit)>;

} // namespace remora::lib
