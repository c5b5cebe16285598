// SPDX-License-Identifier: GPL-2.0
#include "pair.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include "support/failure.hpp"

namespace remora::test {

namespace {

using Clock = std::chrono::steady_clock;

// For a fence's answer, and for a node that is busy: emulated machines are slow.
constexpr int patience_ms = 20'000;
constexpr std::uint64_t fence_session = 0xffff'ffff'ffff'ffffULL;
constexpr std::size_t datagram_bytes_max = 65536;
// Of the reference; the node under test may have more.
constexpr std::uint64_t reference_bytes = std::uint64_t{64} << 20;

// An option of IPv4 or its counterpart of IPv6.
void set_option(int fd, sa_family_t family, int ipv4, int ipv6, int value) {
    const bool is_ipv6 = family == AF_INET6;
    if (setsockopt(fd, is_ipv6 ? IPPROTO_IPV6 : IPPROTO_IP, is_ipv6 ? ipv6 : ipv4, &value,
                   sizeof(value)))
        throw Failure("a socket refuses a traffic class: {}", std::strerror(errno));
}

base_siphash_key loaded(const Key& key) {
    base_siphash_key loaded;
    base_siphash_key_load(&loaded, key.data());
    return loaded;
}

// Answers of the core in process, whole.
class Recorder final : public daemon::Outbox {
public:
    daemon::Reply& add(const daemon::Path&) override {
        store();
        waiting_ = true;
        return reply_;
    }
    void flush() override {
        close();
        store();
    }
    std::vector<Bytes> take() {
        flush();
        return std::move(datagrams_);
    }

private:
    void store() {
        if (!waiting_)
            return;
        Bytes& datagram = datagrams_.emplace_back(
            reply_.head.begin(),
            reply_.head.begin() + static_cast<std::ptrdiff_t>(reply_.head_bytes));
        for (unsigned int i = 0; i < reply_.pieces; i++)
            datagram.insert(datagram.end(), reply_.data[i].begin(), reply_.data[i].end());
        waiting_ = false;
    }

    daemon::Reply reply_;
    bool waiting_ = false;
    std::vector<Bytes> datagrams_;
};

class ReferenceSide final : public Side {
public:
    ReferenceSide(const Target& target, const rmem_node_config& config) : node_(config, false, 1) {
        node_.add_space(target.space, target.key, 0);
        node_.add_view(target.view, target.view_key, target.space);
    }

    std::vector<Bytes> exchange(const Bytes& datagram, unsigned int from) override {
        daemon::Path path{};
        path.peer.port = static_cast<std::uint16_t>(from + 1);
        path.place_as<unsigned>() = from;
        Recorder recorder;
        node_.enter(0);
        node_.handle(0, 1, datagram, path, recorder);
        std::vector<Bytes> answers = recorder.take();
        node_.leave(0);
        while (node_.scrub(0)) {
        }
        return answers;
    }

private:
    daemon::Node node_;
};

bool is_busy(const std::vector<std::vector<Answer>>& datagrams) {
    return std::any_of(datagrams.begin(), datagrams.end(), [](const std::vector<Answer>& answers) {
        return std::any_of(answers.begin(), answers.end(),
                           [](const Answer& answer) { return answer.head.status == RMEM_BUSY; });
    });
}

std::string described(const Answer& answer) {
    const rmem_head& head = answer.head;
    return fmt::format(
        "type {:#x} status {} level {} attempt {} session #{} boot {} id {} floor {} "
        "addr {:#x} len {} offset {} piece {} digest {:#x}, {} bytes",
        head.type, head.status, head.integrity, head.attempt, head.session,
        head.boot == this_boot ? "this" : "another", head.id, head.floor, head.addr, head.len,
        head.offset, head.piece, head.digest, answer.payload.size());
}

std::string described(const std::vector<std::vector<Answer>>& datagrams) {
    std::string text;
    for (const std::vector<Answer>& answers : datagrams) {
        for (const Answer& answer : answers)
            text += (&answer == answers.data() ? "\n  - " : "\n    ") + described(answer);
    }
    return text.empty() ? " none" : text;
}

} // namespace

std::uint64_t Names::session_symbol(std::uint64_t name) {
    auto found = std::find(session.begin(), session.end(), name);
    if (found == session.end())
        found = session.insert(session.end(), name);
    return static_cast<std::uint64_t>(found - session.begin());
}

// ---- the node under test ----

NetworkSide::NetworkSide(const Target& target)
    : target_(target), key_(loaded(target.key)), view_key_(loaded(target.view_key)) {
    for (Descriptor& each : socket_) {
        each = Descriptor(socket(target.address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
        int bytes = 4 << 20;
        setsockopt(each.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
        // Connected: only the node's answers, from the address that was asked, come in.
        if (!each ||
            connect(each.get(), reinterpret_cast<const sockaddr*>(&target.address), target.length))
            throw Failure("no way to the node: {}", std::strerror(errno));
        set_option(each.get(), target.address.ss_family, IP_RECVTOS, IPV6_RECVTCLASS, 1);
    }
}

void NetworkSide::set_traffic_class(unsigned int from, int value) {
    set_option(socket_[from].get(), target_.address.ss_family, IP_TOS, IPV6_TCLASS, value);
}

void NetworkSide::send(const Bytes& datagram, unsigned int from) {
    ssize_t sent;
    // A refusal is of an earlier datagram, when nobody listened.
    do
        sent = ::send(socket_[from].get(), datagram.data(), datagram.size(), 0);
    while (sent < 0 && (errno == ECONNREFUSED || errno == EINTR));
    if (sent != static_cast<ssize_t>(datagram.size()))
        throw Failure("can't send to the node: {}", std::strerror(errno));
}

std::optional<Bytes> NetworkSide::receive(unsigned int from, int timeout_ms) {
    pollfd ready{socket_[from].get(), POLLIN, 0};
    if (poll(&ready, 1, timeout_ms) != 1)
        return std::nullopt;
    Bytes datagram(datagram_bytes_max);
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec buffer{datagram.data(), datagram.size()};
    msghdr message{};
    message.msg_iov = &buffer;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    ssize_t got = recvmsg(socket_[from].get(), &message, 0);
    if (got < 0)
        throw Failure("nothing to be received from the node: {}", std::strerror(errno));
    const cmsghdr* first = CMSG_FIRSTHDR(&message);
    if (!first)
        throw Failure("a datagram was received without its traffic class");
    // IPv4's is a byte, IPv6's an int.
    if (first->cmsg_level == IPPROTO_IP)
        traffic_class_ = *CMSG_DATA(first);
    else
        std::memcpy(&traffic_class_, CMSG_DATA(first), sizeof(traffic_class_));
    datagram.resize(static_cast<std::size_t>(got));
    return datagram;
}

Bytes NetworkSide::fence() {
    rmem_head head{};
    head.type = RMEM_FREE;
    head.space = target_.space;
    head.session = fence_session;
    head.boot = names.boot ? names.boot : 1;
    head.id = ++fence_id_;
    head.len = sizeof(rmem_range);
    return wire::sealed(head, key_, wire::bytes_of(wire::range_of(0, 0)));
}

std::vector<Bytes> NetworkSide::exchange(const Bytes& datagram, unsigned int from) {
    std::vector<Bytes> answers = exchange_once(datagram, from);
    std::optional<rmem_head> head;
    if (answers.size() == 1)
        head = wire::answer_head(answers[0]);
    if (!head || head->status != RMEM_CHALLENGE)
        return answers;
    auto key_of = [&](std::uint32_t space) { return space == target_.view ? &view_key_ : &key_; };
    wire::Received open = wire::received(datagram, false, key_of).front();
    if (open.head.addr)
        return answers;
    open.head.addr = head->addr;
    return exchange_once(wire::sealed(open.head, *key_of(open.head.space), open.payload), from);
}

std::vector<Bytes> NetworkSide::exchange_once(const Bytes& datagram, unsigned int from) {
    send(datagram, from);
    send(fence(), from);
    std::vector<Bytes> answers;
    for (;;) {
        std::optional<Bytes> answer = receive(from, patience_ms);
        if (!answer)
            throw Failure("the node didn't answer a fence in {} ms", patience_ms);
        std::optional<rmem_head> head = wire::answer_head(*answer);
        if (head && head->session == fence_session && head->id == fence_id_)
            return answers;
        answers.push_back(std::move(*answer));
    }
}

// ---- both ----

Pair::Pair(const Target& target)
    : target_(target),
      key_(loaded(target.key)),
      view_key_(loaded(target.view_key)),
      network_(std::make_unique<NetworkSide>(target)) {
    base_crc32c_setup();
    probe();
    rmem_node_config config{};
    config.boot = 0x5eed'5eed'5eed'5eedULL;
    config.page_shift = static_cast<u32>(std::countr_zero(page_bytes_));
    config.pages = reference_bytes / page_bytes_;
    config.pool_pages = 16;
    config.piece_bytes = piece_bytes_;
    config.spaces_max = 2;
    config.sessions_max = 64;
    config.regions_max = 64;
    reference_ = std::make_unique<ReferenceSide>(target, config);
    reference_->names.boot = config.boot;
}

// Learns the node's properties by an OPEN of its own.
void Pair::probe() {
    rmem_head head{};
    head.type = RMEM_OPEN;
    head.space = target_.space;
    Key nonce = key_random();
    std::memcpy(&head.id, nonce.data(), sizeof(head.id));
    head.id |= 1;
    head.len = sizeof(rmem_open);
    rmem_open open{};
    std::memcpy(open.client, nonce.data(), sizeof(open.client));
    auto answers = network_->exchange(wire::sealed(head, key_, wire::bytes_of(open)), 0);
    std::optional<rmem_head> answer;
    if (answers.size() == 1)
        answer = wire::answer_head(answers[0]);
    if (!answer || answer->status != RMEM_OK ||
        answers[0].size() != RMEM_HEADS_BYTES(1) + sizeof(rmem_opened))
        throw Failure("the node grants no session: is the key right?");
    rmem_opened opened;
    std::memcpy(&opened, answers[0].data() + RMEM_HEADS_BYTES(1), sizeof(opened));
    page_bytes_ = base_load_le32(&opened.page_bytes);
    piece_bytes_ = base_load_le32(&opened.piece_bytes);
    if (page_bytes_ > RMEM_READ_BYTES_MAX / 4)
        throw Failure("the tests want small pages: start the node with --page 64K");
    network_->names.boot = answer->boot;
    head.type = RMEM_CLOSE;
    head.session = answer->session;
    head.boot = answer->boot;
    head.id = 1;
    head.len = 0;
    network_->exchange(wire::sealed(head, key_), 0);
}

Bytes Pair::render(const std::vector<Message>& messages, const Names& names) const {
    wire::Datagram together;
    for (const Message& message : messages) {
        rmem_head head = message.head;
        if (head.boot == this_boot)
            head.boot = names.boot;
        if (head.session < names.session.size())
            head.session = names.session[head.session];
        head.addr += names.base[message.region];
        together.add(head, message.key ? loaded(*message.key) : key_,
                     message.payload ? message.payload(names) : Bytes());
    }
    Bytes datagram = together.take();
    if (messages.front().spoil)
        messages.front().spoil(datagram);
    return datagram;
}

// A datagram's answers, with symbols for names.
std::vector<Answer> Pair::decode(Side& side, const Messages& messages, const Bytes& datagram) {
    auto key_of = [&](std::uint32_t space) { return space == target_.view ? &view_key_ : &key_; };
    std::vector<wire::Received> messages_in = wire::received(datagram, true, key_of);
    if (messages_in.empty())
        throw Failure("a datagram of answers is malformed");
    EXPECT_TRUE(side.numbers.insert(messages_in.front().head.number).second)
        << "two datagrams have the same number";
    std::vector<Answer> answers;
    for (const wire::Received& each : messages_in)
        answers.push_back(decode_one(side, messages, each));
    return answers;
}

// An answer with its tag and digest checked.
Answer Pair::decode_one(Side& side, const Messages& messages, const wire::Received& in) {
    Answer answer{in.head, in.payload};
    if (in.verdict != RMEM_WIRE_GOOD)
        throw Failure("an answer doesn't verify: {}", described(answer));
    auto message = std::find_if(messages.begin(), messages.end(), [&](const Message& each) {
        return each.head.id == answer.head.id;
    });
    const Message& asked = message == messages.end() ? messages.front() : *message;
    answer.head.boot = answer.head.boot == side.names.boot ? this_boot : answer.head.boot;
    answer.head.session = side.names.session_symbol(answer.head.session);
    answer.head.addr -= side.names.base[asked.region];
    if (answer.head.type == (RMEM_OPEN | RMEM_RESPONSE) && !answer.payload.empty())
        std::fill_n(answer.payload.begin(), offsetof(rmem_opened, page_bytes), std::uint8_t{0});
    const bool region = answer.head.type == (RMEM_ALLOC | RMEM_RESPONSE) ||
                        answer.head.type == (RMEM_LOOKUP | RMEM_RESPONSE) ||
                        answer.head.type == (RMEM_LIST | RMEM_RESPONSE);
    if (region && !answer.payload.empty()) {
        std::uint64_t base = base_load_le64(answer.payload.data());
        auto known = std::find(side.names.base.begin() + 1, side.names.base.end(), base);
        if (known == side.names.base.end())
            known = side.names.base.insert(known, base);
        base_store_le64(answer.payload.data(),
                        static_cast<std::uint64_t>(known - side.names.base.begin()));
    }
    answer.head.number = 0;
    return answer;
}

Pair::Datagrams Pair::ask_side(Side& side, const Messages& messages) {
    Datagrams datagrams;
    for (const Bytes& datagram : side.exchange(render(messages, side.names), messages.front().from))
        datagrams.push_back(decode(side, messages, datagram));
    return datagrams;
}

Pair::Datagrams Pair::ask_both(const Messages& messages, bool sorted) {
    auto ask = [&](Side& side) {
        Datagrams datagrams = ask_side(side, messages);
        if (sorted)
            std::sort(datagrams.begin(), datagrams.end(), [](const auto& a, const auto& b) {
                return a.front().head.offset < b.front().head.offset;
            });
        return datagrams;
    };
    Datagrams expected = ask(*reference_);
    Datagrams answers = ask(*network_);
    // Out of zeroed pages for now, which the protocol allows: asked again.
    auto deadline = Clock::now() + std::chrono::milliseconds(patience_ms);
    while (is_busy(answers) && !is_busy(expected) && Clock::now() < deadline)
        answers = ask(*network_);
    auto bytes = [&](const Answer& answer) {
        return wire::sealed(answer.head, key_, answer.payload);
    };
    auto equal = [&](const std::vector<Answer>& a, const std::vector<Answer>& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                          [&](const Answer& c, const Answer& d) { return bytes(c) == bytes(d); });
    };
    EXPECT_TRUE(std::equal(answers.begin(), answers.end(), expected.begin(), expected.end(), equal))
        << "the node answers, datagram by datagram:" << described(answers)
        << "\n  the reference:" << described(expected);
    return answers;
}

std::vector<Answer> Pair::ask(const Message& message) {
    std::vector<Answer> answers;
    for (const std::vector<Answer>& datagram : ask_both({message}, true))
        answers.insert(answers.end(), datagram.begin(), datagram.end());
    return answers;
}

std::vector<std::vector<Answer>> Pair::ask_together(const std::vector<Message>& messages) {
    return ask_both(messages, false);
}

Answer Pair::ask_one(const Message& message) {
    std::vector<Answer> answers = ask(message);
    EXPECT_EQ(answers.size(), 1U);
    return answers.empty() ? Answer{} : answers.front();
}

} // namespace remora::test
