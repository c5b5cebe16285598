// SPDX-License-Identifier: GPL-2.0
/*
 * A node under test and a reference, asked the same and compared byte for byte.
 *
 *   Message --rendered for each side--> datagram --> node over UDP   ------> answers --+
 *                                   `-> datagram --> core in process ------> answers --+-- equal?
 *
 * Several messages may share a datagram; then their answers are compared as they come, datagram by
 * datagram.
 *
 * Nodes differ in three names: the boot, sessions, and where a region lies. Messages
 * carry symbols for them; answers are compared with symbols put in their place again, and
 * their tags, which cover the names, are checked on each side before that.
 *
 * After each message goes a fence, a request whose answer is known (a FREE by a session that
 * can't be): what isn't there when the fence is answered won't come. So "no answer" is no guess.
 * It is a FREE because no request of the space is executed behind a later FREE: OPEN, CLOSE and
 * FENCE may overtake others.
 */
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <netinet/in.h>

#include "../common/messages.hpp"
#include "remora-node/node.hpp"
#include "support/descriptor.hpp"
#include "support/key.hpp"

namespace remora::test {

using wire::Bytes;

// Symbols.
inline constexpr std::uint64_t this_boot = 1;
inline constexpr unsigned int no_region = 0; // addresses are as they stand

// The names of one side.
struct Names {
    std::uint64_t boot = 0;
    std::vector<std::uint64_t> session{0}; // by symbol
    std::vector<std::uint64_t> base{0};    // of regions, by symbol

    std::uint64_t session_symbol(std::uint64_t name); // a new one if it is unknown
};

struct Message {
    rmem_head head{}; // boot, session: symbols; addr: offset in the region
    unsigned int region = no_region;
    std::function<Bytes(const Names&)> payload; // none if empty
    // Damage by a forger or the network to the datagram that begins with the message.
    std::function<void(Bytes&)> spoil;
    std::optional<Key> key; // another than the space's
    unsigned int from = 0;  // which of the client's sockets
};

// An answer as both sides gave it, with symbols.
struct Answer {
    rmem_head head;
    Bytes payload;
};

// Datagrams to a node, and its answers.
class Side {
public:
    virtual ~Side() = default;
    virtual std::vector<Bytes> exchange(const Bytes& datagram, unsigned int from) = 0;
    Names names;
    std::set<std::uint64_t> numbers; // of datagrams that it sent
};

struct Target {
    sockaddr_storage address;
    socklen_t length;
    std::uint32_t space;
    Key key;
    std::uint32_t view; // a read-only one of space
    Key view_key;
};

inline constexpr unsigned int client_sockets = 3;

// Over UDP. Also for use by itself, when the reference isn't asked.
class NetworkSide final : public Side {
public:
    explicit NetworkSide(const Target& target);
    // An OPEN without a challenge is sent again with the one that the node answers.
    std::vector<Bytes> exchange(const Bytes& datagram, unsigned int from) override;
    void send(const Bytes& datagram, unsigned int from);
    // The next datagram, or nothing after so long.
    std::optional<Bytes> receive(unsigned int from, int timeout_ms);
    // The class (DSCP and ECN, as in IP's header) of datagrams from now on; of the last received.
    void set_traffic_class(unsigned int from, int value);
    int traffic_class() const { return traffic_class_; }

private:
    Bytes fence();
    std::vector<Bytes> exchange_once(const Bytes& datagram, unsigned int from);

    Target target_;
    base_siphash_key key_, view_key_;
    std::uint64_t fence_id_ = 0;
    std::array<Descriptor, client_sockets> socket_;
    int traffic_class_ = 0;
};

class Pair {
public:
    explicit Pair(const Target& target);

    // Asks both. Differences fail the running test. Answers are sorted by offset.
    std::vector<Answer> ask(const Message& message);
    // The same, for messages with one answer.
    Answer ask_one(const Message& message);
    // Messages in one datagram; by datagram what is answered. None are sorted. The first says what
    // they share: space, session, boot, floor, integrity.
    std::vector<std::vector<Answer>> ask_together(const std::vector<Message>& messages);

    std::uint32_t space() const { return target_.space; }
    const Key& key() const { return target_.key; }
    std::uint32_t view() const { return target_.view; }
    const Key& view_key() const { return target_.view_key; }
    std::uint32_t page_bytes() const { return page_bytes_; }
    std::uint32_t piece_bytes() const { return piece_bytes_; }
    NetworkSide& network() { return *network_; }
    Bytes render(const std::vector<Message>& messages, const Names& names) const;

private:
    using Messages = std::vector<Message>;
    using Datagrams = std::vector<std::vector<Answer>>;

    Datagrams ask_side(Side& side, const Messages& messages);
    Datagrams ask_both(const Messages& messages, bool sorted);
    std::vector<Answer> decode(Side& side, const Messages& messages, const Bytes& datagram);
    Answer decode_one(Side& side, const Messages& messages, const wire::Received& in);
    void probe();

    Target target_;
    base_siphash_key key_, view_key_;
    std::unique_ptr<NetworkSide> network_;
    std::unique_ptr<Side> reference_;
    std::uint32_t page_bytes_ = 0;
    std::uint32_t piece_bytes_ = 0;
};

} // namespace remora::test
