// SPDX-License-Identifier: MIT
#include "src/transport/edm.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "src/transport/edm_mark.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"

namespace remora::lib {

namespace {

// An answer that has not come for so long is lost: its READ has been sent again, or given up.
constexpr std::uint64_t read_ns_max = 1'000'000'000;
// A READ sent again within this part of a lease is early: its answer waits for a grant.
constexpr unsigned early_shift = 3;

std::uint32_t header_bytes(sa_family_t family) {
    const std::size_t ip = family == AF_INET6 ? 40 : sizeof(iphdr);
    return static_cast<std::uint32_t>(ip + sizeof(udphdr) + EDM_FRAME_BYTES);
}

// IPv4 is mapped into IPv6. False: a link-local address, which means nothing to another machine.
bool put_address(const sockaddr_storage& from, std::uint8_t (&to)[16]) {
    if (from.ss_family == AF_INET6) {
        const in6_addr& address = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
        std::memcpy(to, &address, sizeof(to));
        return !IN6_IS_ADDR_LINKLOCAL(&address);
    }
    std::fill_n(to, 10, std::uint8_t{0});
    std::fill_n(to + 10, 2, std::uint8_t{0xff});
    std::memcpy(to + 12, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, sizeof(in_addr));
    return true;
}

std::uint32_t answered_bytes(const rmem_head& request) {
    return rmem_type_runs(request.type) ? request.piece : request.len;
}

// On the link, if no answers share a datagram.
std::uint32_t answers_link_bytes(std::span<const rmem_client_tx> messages, std::uint32_t headers) {
    std::uint32_t bytes = 0;
    for (const rmem_client_tx& each : messages) {
        const std::uint32_t data = answered_bytes(each.head), piece = each.head.piece;
        const std::uint32_t answers = piece && data ? (data + piece - 1) / piece : 1;
        bytes += data + answers * (headers + static_cast<std::uint32_t>(RMEM_HEADS_BYTES(1)));
    }
    return bytes;
}

// Hands all up, and tells the transport of each answer.
template <typename Answered>
class Heard final : public Messages {
public:
    Heard(Messages& up, Answered answered) : up_(up), answered_(answered) {}
    bool next(rmem_client_tx& tx) override { return up_.next(tx); }
    void set_room(std::uint32_t messages) override { up_.set_room(messages); }
    void unsent(const rmem_client_tx& tx) override { up_.unsent(tx); }
    void take_response(const rmem_head& head, const std::uint8_t* payload, bool damaged) override {
        answered_(head);
        up_.take_response(head, payload, damaged);
    }
    const rmem_seal_key& sealing_key() override { return up_.sealing_key(); }
    const rmem_seal_key* opening_key(std::uint64_t session) override {
        return up_.opening_key(session);
    }

private:
    Messages& up_;
    Answered answered_;
};

} // namespace

// ---- life ----

std::vector<Connect> edm_candidates(const std::string& host, std::uint16_t port, const EdmWay& way,
                                    bool insist, Clock::time_point limit) {
    const std::string name = endpoint_text(host, port);
    std::vector<Connect> candidates;
    for (const Resolved& each : resolve(host, port, limit))
        candidates.emplace_back([=](Clock::time_point until) {
            auto transport = std::make_unique<Edm>(name, each, way);
            const Clock::time_point now = Clock::now();
            if (!transport->wait_welcome(now + (until - now) / 2) && insist)
                throw Failure(EHOSTUNREACH,
                              "the scheduler does not welcome port {}: is it up, is its UDP port "
                              "open, is 'rack' its key, and is no other host at that port?",
                              way.port.number);
            return transport;
        });
    return candidates;
}

Edm::Edm(const std::string& name, const Resolved& node, const EdmWay& way)
    : udp_(name, node, this),
      header_bytes_(header_bytes(node.address.ss_family)),
      node_port_(way.node_port),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      member_(EdmMember::of(way.port, way.schedulers)) {
    edm_mark(udp_.fd(), node.address.ss_family);
    if (!put_address(node.address, prefix_.node))
        throw Failure(EHOSTUNREACH, "{} is a link-local address, which no scheduler can pass on",
                      name);
    learn_addresses();
    epoll_event in{};
    in.events = EPOLLIN;
    bool watched = epoll_ && !epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, udp_.fd(), &in);
    for (const Descriptor& each : member_->sockets())
        watched = watched && !epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, each.get(), &in);
    if (!watched)
        throw Failure(errno, "no descriptor to watch sockets by: {}", std::strerror(errno));
}

Edm::~Edm() {
    const EdmMember::Turn turn(*member_);
    member_->forget(reads_);
    member_->forget(held_);
}

// The kernel's node has the scheduled requests, and seals nothing.
const rmem_cipher& Edm::seal() {
    throw Failure(EPROTONOSUPPORT, "edm: seals nothing: use integrity=full, or udp: to the node");
}

// The socket's, if it was connected since.
void Edm::learn_addresses() {
    if (std::exchange(connections_, udp_.connections()) == udp_.connections())
        return;
    sockaddr_storage own{};
    socklen_t bytes = sizeof(own);
    getsockname(udp_.fd(), reinterpret_cast<sockaddr*>(&own), &bytes);
    put_address(own, prefix_.client);
    prefix_.port = own.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(own).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(own).sin_port;
}

void Edm::unanswered() {
    const EdmMember::Turn turn(*member_);
    udp_.unanswered();
    learn_addresses();
}

// Without a turn: a thread that only the parent has might have the lock.
void Edm::disown() {
    udp_.disown();
    member_->disown();
    epoll_ = Descriptor();
}

// ---- the gate ----

// During send()'s turn. Without memory for a copy, the datagram goes without a grant.
bool Edm::takes(std::span<const rmem_client_tx> messages,
                std::span<const iovec> datagram) noexcept {
    try {
        return hold(messages, datagram);
    } catch (const std::bad_alloc&) {
        unscheduled_++;
        return false;
    }
}

bool Edm::hold(std::span<const rmem_client_tx> messages, std::span<const iovec> datagram) {
    const bool reads = rmem_type_answers_data(messages.front().head.type);
    std::size_t bytes = 0;
    for (const iovec& piece : datagram)
        bytes += piece.iov_len;
    const std::uint32_t link_bytes = reads ? answers_link_bytes(messages, header_bytes_)
                                           : static_cast<std::uint32_t>(bytes) + header_bytes_;
    if (link_bytes <= EDM_FREE_BYTES)
        return false;
    if (reads && sizeof(prefix_) + bytes > EDM_OPAQUE_BYTES_MAX) {
        unscheduled_++;
        return false;
    }
    if (is_under_way(messages, reads))
        return true;
    EdmList one(1);
    EdmDatagram& held = one.front();
    held.data.reserve(sizeof(prefix_) + bytes);
    if (reads)
        held.data.resize(sizeof(prefix_));
    for (const iovec& piece : datagram) {
        const auto* data = static_cast<const std::uint8_t*>(piece.iov_base);
        held.data.insert(held.data.end(), data, data + piece.iov_len);
    }
    for (const rmem_client_tx& each : messages) {
        held.ids.push_back(each.head.id);
        held.left += reads ? std::max(answered_bytes(each.head), 1U) : 0;
    }
    held.session = messages.front().head.session;
    held.since_ns = now_ns();
    static_cast<edm_op&>(held) = {};
    held.bytes = link_bytes;
    held.peer = node_port_;
    held.type = reads ? EDM_READ : EDM_WRITE;
    held.state = EDM_OP_IDLE;
    held.client = this;
    held.place = one.begin();
    EdmList& list = reads ? reads_ : held_;
    list.splice(list.end(), one);
    member_->submit(held);
    return true;
}

// The first copy of a READ still has a chance: it has not been asked for, or not for long.
bool Edm::is_early(const EdmDatagram& first) const {
    return first.state == EDM_OP_QUEUED ||
           now_ns() - first.since_ns < member_->lease_ns() >> early_shift;
}

// Is all of a datagram that is sent again under way? The core takes a message for lost when one
// that was sent later is answered first, and messages overtake each other here. Earlier copies of
// READs that are lost end.
bool Edm::is_under_way(std::span<const rmem_client_tx> messages, bool reads) {
    bool all = true;
    for (const rmem_client_tx& each : messages) {
        EdmList& list = reads ? reads_ : held_;
        auto first =
            each.head.attempt
                ? std::ranges::find_if(list,
                                       [&](const EdmDatagram& held) {
                                           return held.session == each.head.session &&
                                                  std::ranges::count(held.ids, each.head.id);
                                       })
                : list.end();
        if (first != list.end() && reads && !is_early(*first)) {
            end_read(*first);
            first = list.end();
        }
        all &= first != list.end();
    }
    return all;
}

// A READ is never part of a message of several ops, so it can be cancelled.
void Edm::end_read(EdmDatagram& read) {
    member_->cancel(read);
    reads_.erase(read.place);
}

void Edm::end_old_reads() {
    while (!reads_.empty() && now_ns() - reads_.front().since_ns >= read_ns_max)
        end_read(reads_.front());
}

// An answer that isn't OK ends its message, and so does a QUERY's, which is one.
void Edm::answered(const rmem_head& head) {
    auto read = std::ranges::find_if(reads_, [&](const EdmDatagram& held) {
        return held.session == head.session && std::ranges::count(held.ids, head.id);
    });
    if (read == reads_.end())
        return;
    const bool partly = head.status == RMEM_OK && !rmem_type_runs(head.type & ~RMEM_RESPONSE);
    read->left -= partly ? std::min(read->left, head.len) : read->left;
    if (read->left)
        return;
    member_->done(*read);
    reads_.erase(read);
}

// ---- EdmClient ----

std::span<const std::uint8_t> Edm::request(EdmDatagram& read) {
    std::memcpy(read.data.data(), &prefix_, sizeof(prefix_));
    return read.data;
}

void Edm::ask(EdmDatagram& read) {
    leave(std::span(read.data).subspan(sizeof(prefix_)), true);
}

void Edm::sent(EdmDatagram& write, bool unscheduled) {
    leave(write.data, unscheduled);
    held_.erase(write.place);
}

// One that can't be sent counts as lost.
void Edm::leave(std::span<const std::uint8_t> datagram, bool unscheduled) {
    unscheduled_ += unscheduled;
    // The error reports an earlier datagram that was refused, once; so try again.
    if (::send(udp_.fd(), datagram.data(), datagram.size(), MSG_DONTWAIT) < 0 &&
        errno == ECONNREFUSED)
        ::send(udp_.fd(), datagram.data(), datagram.size(), MSG_DONTWAIT);
}

// ---- Transport ----

std::uint64_t Edm::unscheduled() const {
    const EdmMember::Turn turn(*member_);
    return unscheduled_;
}

void Edm::send(const rmem_client_config& session, Messages& messages) {
    // One turn, so that small writes share an announcement.
    const EdmMember::Turn turn(*member_);
    udp_.send(session, messages);
    learn_addresses();
}

void Edm::wait(Clock::time_point until, std::uint64_t spin_ns) {
    const Clock::time_point spin_end = Clock::now() + std::chrono::nanoseconds(spin_ns);
    pollfd ready{epoll_.get(), POLLIN, 0};
    Clock::time_point now;
    do {
        if (poll(&ready, 1, 0) > 0)
            return;
        now = Clock::now();
        until = std::min(until, member_->timer());
    } while (now < std::min(spin_end, until));
    const auto ns = (until - now).count();
    if (ns <= 0)
        return;
    const timespec left{static_cast<time_t>(ns / 1'000'000'000),
                        static_cast<long>(ns % 1'000'000'000)};
    ppoll(&ready, 1, &left, nullptr);
}

void Edm::deliver(const rmem_client_config& session, Messages& messages) {
    take_in(session, messages);
}

void Edm::take_in(const rmem_client_config& session, Messages& messages) {
    const EdmMember::Turn turn(*member_);
    Heard heard(messages, [this](const rmem_head& head) { answered(head); });
    udp_.take_in(session, heard);
    member_->take_in();
    end_old_reads();
}

} // namespace remora::lib
