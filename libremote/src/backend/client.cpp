// SPDX-License-Identifier: MIT
#include "src/backend/client.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>

#include "src/transport/scratch.hpp"
#include "support/crc32c.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

constexpr int buffer_bytes = 4 << 20;
// An answer that is expected soon is waited for by looking again and again.
constexpr std::uint64_t spin_ns_max = 100 * BASE_NSEC_PER_USEC;
// How often an ALLOC is tried whose region went with its session.
constexpr unsigned alloc_tries = 8;
constexpr std::uint32_t incast_bytes_least = RMEM_IWND_ROOM_BYTES;
constexpr std::uint32_t incast_bytes_most = RMEM_IWND_BYTES;
// Upper bound on one wait: another thread may have started an operation with an earlier deadline.
constexpr auto slice = std::chrono::milliseconds(10);
// Batches handled before timers are checked.
constexpr unsigned batches_max = 64;
constexpr auto close_time = std::chrono::milliseconds(200);
// Limit for opening: a missing node should be noticed sooner than a node that falls silent later.
constexpr std::uint64_t open_ns_max = 5 * BASE_NSEC_PER_SEC;

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(Clock::now().time_since_epoch().count());
}

Clock::time_point at(std::uint64_t ns) {
    return Clock::time_point(Clock::duration(ns));
}

int error_of(const rmem_op& op, rmem_client_result result) {
    switch (result) {
    case RMEM_CLIENT_OK:
        return 0;
    case RMEM_CLIENT_LOST:
        return -ESTALE;
    case RMEM_CLIENT_REFUSED:
        return status_error(op.status);
    case RMEM_CLIENT_TIMEOUT:
        return -ETIMEDOUT;
    case RMEM_CLIENT_UNKNOWN:
        return -ECONNRESET;
    case RMEM_CLIENT_CANCELLED:
        break;
    }
    return -ECANCELED;
}

} // namespace

// ---- opening and closing ----

Udp::Udp(const Target& target, const Key& key, const UdpOptions& options)
    : client_(new rmem_client) {
    crc32c_setup_once();
    open_any(target, key, options);
    page_bytes_ = client_->node.page_bytes;
    put_bytes_ = rmem_client_put_bytes(client_.get());
    vector_bytes_ = rmem_client_vector_bytes(client_.get());
    if (!std::has_single_bit(page_bytes_) || page_bytes_ < 1U << RMEM_PAGE_SHIFT_MIN ||
        page_bytes_ > 1U << RMEM_PAGE_SHIFT_MAX)
        throw Failure("the node has pages of {} bytes, which can't be", page_bytes_);
}

// Tries all addresses of the host in turn. Each has an equal share of the time that is left.
void Udp::open_any(const Target& target, const Key& key, const UdpOptions& options) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    std::string port = fmt::format("{}", target.port);
    if (int error = getaddrinfo(target.host.c_str(), port.c_str(), &hints, &list))
        throw Failure("no host {}: {}", target.host, gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
    int left = 0;
    for (const addrinfo* each = list; each; each = each->ai_next)
        left++;
    Clock::time_point limit =
        Clock::now() + std::chrono::nanoseconds(std::min(
                           options.timeout_ns ? options.timeout_ns : open_ns_max, open_ns_max));
    for (const addrinfo* each = list; each; each = each->ai_next, left--) {
        Clock::time_point now = Clock::now();
        try {
            connect(target, *each);
            configure(target, key, options);
            endpoint_.reset(new Endpoint{socket_.get(), *client_});
            return open(endpoint_text(target.host, target.port), now + (limit - now) / left);
        } catch (const Failure&) {
            if (!each->ai_next)
                throw;
        }
    }
}

void Udp::connect(const Target& target, const addrinfo& address) {
    socket_ = Descriptor(socket(address.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket_ || ::connect(socket_.get(), address.ai_addr, address.ai_addrlen))
        throw Failure("no way to {}: {}", endpoint_text(target.host, target.port),
                      std::strerror(errno));
    bool v6 = address.ai_family == AF_INET6;
    int level = v6 ? +IPPROTO_IPV6 : +IPPROTO_IP;
    // Let a path narrower than the local link get fragments instead of nothing.
    int dont = IP_PMTUDISC_DONT; // IPv6's has the same value
    setsockopt(socket_.get(), level, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &dont, sizeof(dont));
    receive_trains(socket_.get());
    for (int name : {SO_RCVBUF, SO_SNDBUF})
        setsockopt(socket_.get(), SOL_SOCKET, name, &buffer_bytes, sizeof(buffer_bytes));
    int mtu = 0;
    socklen_t length = sizeof(mtu);
    if (getsockopt(socket_.get(), level, v6 ? IPV6_MTU : IP_MTU, &mtu, &length))
        throw Failure("the MTU to {} isn't known: {}", target.host, std::strerror(errno));
    std::uint32_t below = (v6 ? 40 : 20) + sizeof(udphdr);
    datagram_bytes_ =
        std::min<std::uint32_t>(static_cast<std::uint32_t>(mtu) - below, RMEM_DATAGRAM_BYTES_MAX);
    if (datagram_bytes_ < RMEM_HEADS_BYTES(1) + RMEM_PIECE_BYTES_MIN)
        throw Failure("the link to {} has an MTU of {}, which is too small", target.host, mtu);
    // Request no more than the socket has room for; the kernel grants twice the size, for its
    // overhead.
    int room = 0;
    length = sizeof(room);
    getsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &room, &length);
    rmem_incast_init(&incast_, std::clamp(static_cast<std::uint32_t>(room) / 2, incast_bytes_least,
                                          incast_bytes_most));
    rmem_base_init(&base_);
}

void Udp::configure(const Target& target, const Key& key, const UdpOptions& options) {
    rmem_client_config config{};
    Key name = random_value<Key>();
    std::copy(name.begin(), name.end(), config.client);
    config.seed = random_value<u64>();
    config.space = target.space;
    config.integrity = static_cast<u8>(options.integrity);
    base_siphash_key_load(&config.key, key.data());
    config.piece_bytes =
        std::min<std::uint32_t>(datagram_bytes_ - RMEM_HEADS_BYTES(1), RMEM_PIECE_BYTES_MAX);
    config.datagram_bytes = datagram_bytes_;
    config.fail_after_ns = options.timeout_ns;
    rmem_client_init(client_.get(), &config, &base_, &incast_, 0);
}

void Udp::open(const std::string& name, Clock::time_point limit) {
    {
        Lock lock(lock_);
        rmem_client_open(client_.get(), now_ns());
        flush();
    }
    bool open = wait_for([this] { return client_->state == RMEM_CHANNEL_OPEN; }, limit);
    if (open)
        return;
    if (client_->open_status == RMEM_BUSY)
        throw Failure("{} has no session left: end some clients, or start it with more", name);
    throw Failure("{} doesn't answer: does a node run there, with this space and this key?", name);
}

Udp::~Udp() {
    {
        Lock lock(lock_);
        // Ops that waited for others in order reach the core as these end.
        while (rmem_op* chain = rmem_client_cancel_all(client_.get()))
            end_all(chain, RMEM_CLIENT_CANCELLED);
        if (client_->state == RMEM_CHANNEL_LOST)
            return;
        rmem_client_close(client_.get(), now_ns());
        flush();
    }
    wait_for(
        [this] {
            return client_->state == RMEM_CHANNEL_CLOSED || client_->state == RMEM_CHANNEL_LOST;
        },
        Clock::now() + close_time);
}

// Threads that the child doesn't have may hold the locks, so the object must not be destroyed.
bool Udp::disown() {
    socket_ = Descriptor();
    return false;
}

// ---- ops ----

void Udp::begin(Op& op) {
    rmem_client_submit(client_.get(), &op.core, op.entered_ns);
}

// Lock. Ends the ops that the core has finished.
void Udp::end_all(rmem_op* chain, rmem_client_result result) {
    while (chain) {
        Op& op = op_of(chain);
        chain = chain->next;
        end(op, error_of(op.core, result));
    }
}

// Cancelled changes may have copies in flight. These must not be executed after operations that
// start later, nor after operations that waited for them in order and begin here. The core gets
// both only after it has begun to renew its session, so it sends them under the new name. When the
// node grants that name it refuses the old one, which the copies carry.
void Udp::take_back(Call& call) {
    std::uint64_t now = now_ns();
    int error = call.given_up;
    for_each_left(call, [&](Op& op) {
        rmem_client_cancel(client_.get(), &op.core, now);
        end(op, error);
    });
}

// Lock. After any event to the core: retransmissions, timeouts, and sending.
void Udp::flush() {
    std::uint64_t now = now_ns();
    expire_core(now);
    ScratchTurn mine;
    Outgoing& outgoing = mine->outgoing;
    outgoing.begin(*endpoint_, now);
    rmem_client_tx tx;
    while (rmem_client_next(client_.get(), now, &tx))
        outgoing.add(tx);
    outgoing.flush();
}

// Lock. Handles answers that have arrived before it runs the core's timers: those aren't late.
void Udp::expire_core(std::uint64_t now_ns) {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    bool due = deadline && deadline <= now_ns;
    if (due && somebody_receives())
        return; // the receiving thread does this
    if (due)
        take_in();
    // After a loss, ops that reach the core as others end are lost, too.
    while (due || client_->state == RMEM_CHANNEL_LOST) {
        rmem_client_result result = RMEM_CLIENT_OK;
        rmem_op* ended = rmem_client_expire(client_.get(), now_ns, &result);
        end_all(ended, result);
        due = false;
        if (!ended)
            break;
    }
}

// A region belongs to the client only when a later request shows the node that the client knows it.
int Udp::alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
               rmem_op_range& range) {
    for (unsigned tries = 0;; tries++) {
        Op op;
        op.core.type = RMEM_ALLOC;
        op.core.alloc = {bytes, wanted, permission};
        int error = one(op);
        if (error)
            return error;
        range = op.core.range;
        release(never); // the READ's floor has to be above the ALLOC's id
        std::uint8_t byte;
        error = transfer(RMEM_READ, range.addr, &byte, 1, never);
        if (error == -EFAULT && tries < alloc_tries)
            continue;
        // Undo the ALLOC by a FREE; if that doesn't arrive, by the end of the session.
        if (error)
            dealloc({range.addr, range.bytes, true});
        return error;
    }
}

int Udp::dealloc(const rmem_op_range& range) {
    Op op;
    op.core.type = RMEM_FREE;
    op.core.range = range;
    int error = one(op);
    // The FREE was executed in a session that ended before its answer; a retry gets the same
    // answer.
    return error == -EFAULT && op.core.sent_before ? 0 : error;
}

void Udp::stats(remote_counters& counters) {
    Lock lock(lock_);
    tally_.add_to(counters);
    const rmem_client_counters& count = client_->count;
    counters.sent += count.sent;
    counters.received += count.received;
    counters.retries += count.retries;
    counters.timeouts += count.timeouts;
    counters.damaged += count.damaged;
    counters.busy += count.busy;
    counters.reopened += count.reopened;
}

// ---- waiting ----

void Udp::receive(Lock& lock, Clock::time_point until) {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    std::uint64_t spin_ns = std::min(2 * client_->rtt.srtt_ns, spin_ns_max);
    until = std::min(until, Clock::now() + slice);
    if (deadline)
        until = std::min(until, at(deadline));
    lock.unlock();
    Scratch* mine = own_scratch();
    unsigned got = 0;
    if (mine)
        got = listen(mine->incoming, until, spin_ns);
    else
        sleep(until);
    lock.lock();
    if (mine)
        take_packets(mine->incoming, got);
    else
        take_in();
}

// Returns the number of packets received; 0: until has come.
unsigned Udp::listen(Incoming& incoming, Clock::time_point until, std::uint64_t spin_ns) {
    Clock::time_point spin_end = Clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
        if (unsigned got = incoming.receive(socket_.get()))
            return got;
    } while (Clock::now() < std::min(spin_end, until));
    return sleep(until) ? incoming.receive(socket_.get()) : 0;
}

// False: until has come.
bool Udp::sleep(Clock::time_point until) {
    pollfd ready{socket_.get(), POLLIN, 0};
    auto ns = (until - Clock::now()).count();
    if (ns <= 0)
        return false;
    timespec left{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    ppoll(&ready, 1, &left, nullptr);
    return true;
}

void Udp::take_in() {
    ScratchTurn mine;
    for (unsigned batch = 0, got = Incoming::packets_max;
         got == Incoming::packets_max && batch < batches_max; batch++) {
        got = mine->incoming.receive(socket_.get());
        take_packets(mine->incoming, got);
    }
}

// Lock.
void Udp::take_packets(Incoming& incoming, unsigned count) {
    std::uint64_t now = now_ns();
    for (unsigned i = 0; i < count; i++)
        incoming.for_each_datagram(
            i, [&](std::span<const std::uint8_t> bytes) { take_datagram(now, bytes); });
}

namespace {

void take_data(const Op& op, std::uint32_t offset, const std::uint8_t* data, std::uint32_t bytes) {
    if (op.ranges.empty()) {
        std::memcpy(op.data + offset, data, bytes);
        return;
    }
    for (const Range& range : op.now) {
        std::memcpy(range.data, data, range.bytes);
        data += range.bytes;
    }
}

} // namespace

// Lock.
void Udp::take_datagram(std::uint64_t now_ns, std::span<const std::uint8_t> bytes) {
    const rmem_client_config& config = client_->config;
    rmem_datagram in;
    if (rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), true) !=
            RMEM_WIRE_GOOD ||
        in.head.space != config.space || in.head.integrity != config.integrity ||
        !rmem_datagram_verifies(&in, &config.key, bytes.data()))
        return;
    while (rmem_datagram_step(&in, bytes.data())) {
        bool damaged = rmem_datagram_is_damaged(&in, bytes.data());
        const std::uint8_t* payload = bytes.data() + in.payload_offset;
        rmem_client_rx rx{};
        rmem_client_receive(client_.get(), now_ns, &in.head, damaged ? nullptr : payload, damaged,
                            &rx);
        if (rx.op)
            take_data(op_of(rx.op), rx.data_offset, payload, rx.data_bytes);
        end_all(rx.finished, rx.result);
    }
}

} // namespace remora::lib
