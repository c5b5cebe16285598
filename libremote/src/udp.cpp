// SPDX-License-Identifier: MIT
#include "src/udp.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>

#include "src/probes.hpp"
#include "support/crc32c.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

constexpr unsigned receive_batch = 8;
// Ops of one synchronous transfer that are under way at once.
constexpr unsigned transfer_ops = 4;
constexpr int buffer_bytes = 4 << 20;
// An answer that is expected soon is waited for by looking again and again.
constexpr std::uint64_t spin_ns_max = 100 * BASE_NSEC_PER_USEC;
// How often an ALLOC is tried whose region went with its session.
constexpr unsigned alloc_tries = 8;
constexpr std::uint32_t incast_bytes_least = RMEM_IWND_ROOM_BYTES;
constexpr std::uint32_t incast_bytes_most = RMEM_IWND_BYTES;
// Who receives looks up that often, for what others began meanwhile may be due sooner.
constexpr auto slice = std::chrono::milliseconds(10);
// Batches taken in before what is due is looked at.
constexpr unsigned batches_max = 64;
constexpr auto close_time = std::chrono::milliseconds(200);
// To learn that nobody answers shouldn't take as long as a node may be silent later.
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

// ---- out ----

// A datagram that is being put together, and the next one when it is full.
class Udp::Outgoing {
public:
    Outgoing(int fd, rmem_client& client, std::uint64_t now_ns)
        : fd_(fd), client_(client), now_ns_(now_ns) {}

    // tx's data must stay until flush().
    void add(const rmem_client_tx& tx) {
        if (messages_ && !(rmem_type_may_share(tx_[0].head.type) &&
                           rmem_type_may_share(tx.head.type) && joins(tx.head)))
            flush();
        if (!messages_)
            joins(tx.head);
        rmem_client_tx& mine = tx_[messages_] = tx;
        std::size_t first = pieces_;
        if (mine.payload_bytes)
            piece_[pieces_++] = {mine.payload, mine.payload_bytes};
        if (mine.data_bytes)
            piece_[pieces_++] = {op_of(mine.op).data + mine.data_offset, mine.data_bytes};
        seal(heads_.data() + messages_ * RMEM_HDR_BYTES, mine.head,
             piece_.subspan(first, pieces_ - first));
        messages_++;
    }

    void flush() {
        if (!messages_)
            return;
        vector_[0] = {heads_.data(), messages_ * RMEM_HDR_BYTES};
        msghdr message{};
        message.msg_iov = vector_.data();
        message.msg_iovlen = 1 + pieces_;
        ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT);
        // An earlier datagram found nobody; that is told once.
        if (sent < 0 && errno == ECONNREFUSED)
            sent = sendmsg(fd_, &message, MSG_DONTWAIT);
        for (std::size_t i = 0; sent < 0 && i < messages_; i++)
            rmem_client_unsent(&client_, &tx_[i], now_ns_);
        messages_ = 0;
        pieces_ = 0;
        bundle_ = {};
    }

private:
    // rmem_wire_build() of a payload in pieces.
    void seal(std::uint8_t* header, rmem_head& head, std::span<const iovec> payload) {
        if (rmem_wire_has_digest(&head)) {
            std::uint32_t crc = BASE_CRC32C_SEED;
            for (const iovec& piece : payload)
                crc = base_crc32c_update(crc, piece.iov_base, piece.iov_len);
            head.digest = base_crc32c_final(crc);
        }
        rmem_wire_encode(header, &head);
        struct base_siphash hash;
        rmem_wire_hash_begin(&hash, &client_.config.key, header);
        if (rmem_wire_tags_payload(&head)) {
            for (const iovec& piece : payload)
                base_siphash_update(&hash, piece.iov_base, piece.iov_len);
        }
        rmem_wire_seal(header, base_siphash_final(&hash));
    }
    bool joins(const rmem_head& head) {
        return rmem_bundle_joins(&bundle_, client_.config.datagram_bytes, &head);
    }

    int fd_;
    rmem_client& client_;
    std::uint64_t now_ns_;
    std::size_t messages_ = 0;
    std::size_t pieces_ = 0; // of their payloads
    rmem_bundle bundle_{};
    std::array<rmem_client_tx, RMEM_BUNDLE_MAX> tx_;
    std::array<std::uint8_t, std::size_t{RMEM_BUNDLE_MAX} * RMEM_HDR_BYTES> heads_;
    std::array<iovec, std::size_t{1} + 2 * RMEM_BUNDLE_MAX> vector_; // all heads, then
    std::span<iovec> piece_ = std::span(vector_).subspan(1);
};

// ---- in ----

// Datagrams of one recvmmsg().
class Udp::Incoming {
public:
    Incoming() {
        for (unsigned i = 0; i < receive_batch; i++) {
            vector_[i] = {datagram_[i].data(), datagram_[i].size()};
            message_[i].msg_hdr = {};
            message_[i].msg_hdr.msg_iov = &vector_[i];
            message_[i].msg_hdr.msg_iovlen = 1;
        }
    }
    unsigned receive(int fd) {
        int got = recvmmsg(fd, message_.data(), receive_batch, MSG_DONTWAIT, nullptr);
        return got < 0 ? 0 : static_cast<unsigned>(got);
    }
    std::span<const std::uint8_t> datagram(unsigned index) const {
        return std::span(datagram_[index]).first(message_[index].msg_len);
    }

private:
    // A byte more than the largest datagram, so that a larger one is noticed.
    struct alignas(64) Bytes : std::array<std::uint8_t, RMEM_DATAGRAM_BYTES_MAX + 1> {};
    std::array<Bytes, receive_batch> datagram_;
    std::array<iovec, receive_batch> vector_;
    std::array<mmsghdr, receive_batch> message_;
};

// ---- opening and closing ----

Udp::Udp(const Target& target, const Key& key, const UdpOptions& options)
    : incoming_(new Incoming), client_(new rmem_client) {
    crc32c_setup_once();
    connect(target);
    configure(target, key, options);
    open(endpoint_text(target.host, target.port));
    page_bytes_ = client_->node.page_bytes;
    put_bytes_ = rmem_client_put_bytes(client_.get());
    if (!std::has_single_bit(page_bytes_) || page_bytes_ < 1U << RMEM_PAGE_SHIFT_MIN ||
        page_bytes_ > 1U << RMEM_PAGE_SHIFT_MAX)
        throw Failure("the node has pages of {} bytes, which can't be", page_bytes_);
}

void Udp::connect(const Target& target) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* list = nullptr;
    std::string port = fmt::format("{}", target.port);
    if (int error = getaddrinfo(target.host.c_str(), port.c_str(), &hints, &list))
        throw Failure("no host {}: {}", target.host, gai_strerror(error));
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
    socket_ = Descriptor(socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!socket_ || ::connect(socket_.get(), list->ai_addr, list->ai_addrlen))
        throw Failure("no way to {}: {}", endpoint_text(target.host, target.port),
                      std::strerror(errno));
    bool v6 = list->ai_family == AF_INET6;
    int level = v6 ? +IPPROTO_IPV6 : +IPPROTO_IP;
    // A path that is narrower than our own link gets fragments, not nothing.
    int dont = IP_PMTUDISC_DONT; // IPv6's has the same value
    setsockopt(socket_.get(), level, v6 ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &dont, sizeof(dont));
    for (int name : {SO_RCVBUF, SO_SNDBUF})
        setsockopt(socket_.get(), SOL_SOCKET, name, &buffer_bytes, sizeof(buffer_bytes));
    int mtu = 0;
    socklen_t length = sizeof(mtu);
    if (getsockopt(socket_.get(), level, v6 ? IPV6_MTU : IP_MTU, &mtu, &length))
        throw Failure("the MTU to {} isn't known: {}", target.host, std::strerror(errno));
    std::uint32_t below = (v6 ? 40 : 20) + sizeof(udphdr);
    datagram_bytes_ =
        std::min<std::uint32_t>(static_cast<std::uint32_t>(mtu) - below, RMEM_DATAGRAM_BYTES_MAX);
    if (datagram_bytes_ < RMEM_HDR_BYTES + RMEM_PIECE_BYTES_MIN)
        throw Failure("the link to {} has an MTU of {}, which is too small", target.host, mtu);
    // Not more is asked for than the socket has room for; the kernel grants twice, for its own
    // needs.
    int room = 0;
    length = sizeof(room);
    getsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &room, &length);
    rmem_incast_init(&incast_, std::clamp<std::uint64_t>(static_cast<std::uint64_t>(room) / 2,
                                                         incast_bytes_least, incast_bytes_most));
    rmem_window_init(&window_);
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
        std::min<std::uint32_t>(datagram_bytes_ - RMEM_HDR_BYTES, RMEM_PIECE_BYTES_MAX);
    config.datagram_bytes = datagram_bytes_;
    config.fail_after_ns = options.timeout_ns;
    rmem_client_init(client_.get(), &config, &window_, &incast_, 0);
}

void Udp::open(const std::string& name) {
    {
        Lock lock(lock_);
        rmem_client_open(client_.get(), now_ns());
        settle(now_ns());
    }
    std::uint64_t timeout_ns = client_->config.fail_after_ns;
    std::uint64_t patience_ns = timeout_ns ? std::min(timeout_ns, open_ns_max) : open_ns_max;
    bool open = wait_for([this] { return client_->state == RMEM_CHANNEL_OPEN; },
                         Clock::now() + std::chrono::nanoseconds(patience_ns));
    if (open)
        return;
    if (client_->open_status == RMEM_BUSY)
        throw Failure("{} has no session left: end some clients, or start it with more", name);
    throw Failure("{} doesn't answer: does a node run there, with this space and this key?", name);
}

Udp::~Udp() {
    {
        Lock lock(lock_);
        // Those that waited for others in order come to the core as these end.
        while (rmem_op* chain = rmem_client_cancel_all(client_.get()))
            end(chain, RMEM_CLIENT_CANCELLED);
        if (client_->state != RMEM_CHANNEL_OPEN)
            return;
        rmem_client_close(client_.get(), now_ns());
        settle(now_ns());
    }
    wait_for([this] { return client_->state != RMEM_CHANNEL_OPEN; }, Clock::now() + close_time);
}

// Locks may be held by threads that the child doesn't have; what is left is its memory.
bool Udp::disown() {
    socket_ = Descriptor();
    return false;
}

// ---- ops ----

// Lock.
void Udp::submit(Op& op) {
    op.signal_from = op.signal_end = 0;
    if (op.core.type == RMEM_FREE) {
        op.from = op.core.range.addr;
        op.end = op.from + op.core.range.bytes;
    } else if (op.core.type != RMEM_ALLOC && op.core.type != RMEM_FENCE) {
        op.from = op.core.addr - op.before;
        op.end = op.core.addr + op.core.len;
    }
    if (op.core.type == RMEM_PUT) {
        op.signal_from = op.core.put.addr;
        op.signal_end = op.signal_from + op.core.put.bytes;
    }
    op.entered_ns = now_ns();
    REMOTE_PROBE_START(this, op.core.type, op.from + op.before, op.end - op.from - op.before);
    if (order_.enter(op))
        rmem_client_submit(client_.get(), &op.core, op.entered_ns);
}

// Lock. Of a call that has ended nothing may be touched any more.
void Udp::end(rmem_op* chain, rmem_client_result result) {
    std::uint64_t now = chain ? now_ns() : 0;
    rmem_op* hopeless = nullptr; // PUTs whose data before isn't all there
    while (chain) {
        Op& op = op_of(chain);
        chain = chain->next;
        rmem_op* free = order_.leave(op);
        int error = error_of(op.core, result);
        std::uint64_t bytes = op.end - op.from - op.before;
        REMOTE_PROBE_END(this, op.core.type, op.from + op.before, bytes, error);
        tally_.count(op.core.type, bytes, error);
        tally_.time(op.core.type, now - op.entered_ns);
        if (op.call->left.load(std::memory_order_relaxed) == 1)
            op.call->timed.remove();
        op.call->end_op(error);
        while (free) {
            rmem_op* next = free->next;
            if (op_of(free).before && op_of(free).call->result)
                free->next = std::exchange(hopeless, free);
            else
                rmem_client_submit(client_.get(), free, op_of(free).entered_ns);
            free = next;
        }
        if (!chain && hopeless) {
            chain = std::exchange(hopeless, nullptr);
            result = RMEM_CLIENT_CANCELLED;
        }
    }
    if (waiting_)
        changed_.notify_all();
}

// Lock. What is left of the call ends so.
//
// Its changes may have copies on their way, which must not be executed after what begins from now
// on, nor after what waited for them in order and is let go here. Both is given to the core only
// after that has given its session up, so it is sent in the next one; and when the node opens
// that, it has ended the old one, in which alone those copies count.
void Udp::give_up(Call& call, rmem_client_result result) {
    std::uint64_t now = now_ns();
    std::span<Op> ops = call.ops;
    // With the last op that is left the call is gone, and so are they.
    // Its PUT, if it has one, is the last, and would end by itself with the last one before.
    for (std::uint32_t left = call.left.load(std::memory_order_relaxed); left;
         ops = ops.first(ops.size() - 1)) {
        Op& op = ops.back();
        if (!Order::has(op))
            continue;
        left--;
        // One that waits for others isn't the core's yet.
        rmem_op* unknown = op.blockers ? nullptr : rmem_client_cancel(client_.get(), &op.core, now);
        op.core.next = nullptr;
        end(&op.core, result);
        end(unknown, RMEM_CLIENT_UNKNOWN);
    }
}

void Udp::cancel(Call& call) {
    Lock lock(lock_);
    give_up(call, RMEM_CLIENT_CANCELLED);
    settle(now_ns());
}

// Lock. Those who use limits use few lengths of time, so its place is near the end.
void Udp::add_timed(Call& call) {
    Link* before = timed_.prev;
    while (before->op && before->op->call->limit > call.limit)
        before = before->prev;
    call.timed.op = &call.ops.front();
    call.timed.add_before(*before->next);
}

// Lock.
Clock::time_point Udp::first_limit() const {
    return timed_.next->op ? timed_.next->op->call->limit : never;
}

// Lock. What is here already isn't late: it is taken in before anything counts as timed out.
void Udp::expire(std::uint64_t now_ns) {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    bool due = deadline && deadline <= now_ns;
    bool limit_due = first_limit() <= at(now_ns);
    if ((due || limit_due) && receiving_)
        return; // who receives sees to it
    for (unsigned batch = 0, got = receive_batch;
         (due || limit_due) && got == receive_batch && batch < batches_max; batch++) {
        got = incoming_->receive(socket_.get());
        take_in(got);
    }
    // When all is lost, so are those that come to the core as others end.
    while (due || client_->state == RMEM_CHANNEL_LOST) {
        rmem_client_result result = RMEM_CLIENT_OK;
        rmem_op* ended = rmem_client_expire(client_.get(), now_ns, &result);
        end(ended, result);
        due = false;
        if (!ended)
            break;
    }
    while (first_limit() <= at(now_ns))
        give_up(*timed_.next->op->call, RMEM_CLIENT_TIMEOUT);
}

// Lock: whatever was told to the core, what follows from it.
void Udp::settle(std::uint64_t now_ns) {
    expire(now_ns);
    Outgoing out(socket_.get(), *client_, now_ns);
    rmem_client_tx tx;
    while (rmem_client_next(client_.get(), now_ns, &tx))
        out.add(tx);
    out.flush();
}

void Udp::start(std::span<Op> ops) {
    Lock lock(lock_);
    Call& call = *ops.front().call;
    call.ops = ops;
    if (call.limit != never)
        add_timed(call);
    for (Op& op : ops)
        submit(op);
    settle(now_ns());
}

int Udp::one(Op& op, Clock::time_point limit) {
    Call call;
    call.begin(1, limit);
    op.call = &call;
    start({&op, 1});
    wait(call, never);
    return call.result;
}

int Udp::transfer(std::uint8_t type, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                  Clock::time_point limit) {
    while (bytes) {
        Call call;
        std::array<Op, transfer_ops> ops;
        std::uint64_t now =
            std::min<std::uint64_t>(bytes, std::uint64_t{transfer_ops} * op_bytes_max);
        std::span<Op> now_ops = cut(ops, call, type, address, data, now);
        call.begin(now_ops.size(), limit);
        start(now_ops);
        wait(call, never);
        if (call.result)
            return call.result;
        address += now;
        data += now;
        bytes -= now;
    }
    return 0;
}

int Udp::atomic(std::uint64_t address, std::uint32_t bytes, rmem_op_atomic& atomic,
                Clock::time_point limit) {
    Op op;
    op.core.type = RMEM_ATOMIC;
    op.core.addr = address;
    op.core.len = bytes;
    op.core.atomic = atomic;
    int error = one(op, limit);
    atomic = op.core.atomic;
    return error;
}

int Udp::zero(std::uint64_t address, std::uint32_t bytes) {
    Op op;
    op.core.type = RMEM_ZERO;
    op.core.addr = address;
    op.core.len = bytes;
    return one(op);
}

int Udp::fence(Clock::time_point limit) {
    if (int error = release(limit))
        return error;
    Op op;
    op.core.type = RMEM_FENCE;
    return one(op, limit);
}

// A region is its asker's only when a later request shows the node that he knows of it.
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
        if (error != -EFAULT || tries == alloc_tries)
            return error;
    }
}

int Udp::dealloc(const rmem_op_range& range) {
    Op op;
    op.core.type = RMEM_FREE;
    op.core.range = range;
    int error = one(op);
    // Executed before, and the answer was lost with the session.
    return error == -EFAULT && op.core.attempt ? 0 : error;
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

bool Udp::wait(const Call& call, Clock::time_point until) {
    if (call.ended() || until == at_once)
        return call.ended();
    return wait_for([&] { return call.ended(); }, until);
}

int Udp::release(Clock::time_point limit) {
    std::uint64_t last;
    {
        Lock lock(lock_);
        last = order_.last();
    }
    bool done = wait_for([&] { return order_.first_left() > last; }, limit);
    return done ? 0 : -ETIMEDOUT;
}

// done() is asked under the lock.
template <typename Done>
bool Udp::wait_for(Done done, Clock::time_point until) {
    Lock lock(lock_);
    bool is_done;
    // Even if there is no time: what is here already is taken in.
    for (bool looked = false; !(is_done = done()) && (!looked || Clock::now() < until);
         looked = true) {
        if (!receiving_) {
            receive(lock, until);
            continue;
        }
        waiting_++;
        if (until == never)
            changed_.wait(lock);
        else
            changed_.wait_until(lock, until);
        waiting_--;
    }
    // Somebody else may have to receive from now on.
    if (waiting_ && !receiving_)
        changed_.notify_one();
    return is_done;
}

// For all who wait. Lock, which is let go meanwhile.
void Udp::receive(Lock& lock, Clock::time_point until) {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    std::uint64_t spin_ns = std::min(2 * client_->rtt.srtt_ns, spin_ns_max);
    until = std::min(until, Clock::now() + slice);
    if (deadline)
        until = std::min(until, at(deadline));
    until = std::min(until, first_limit());
    receiving_ = true;
    lock.unlock();
    unsigned got = listen(until, spin_ns);
    lock.lock();
    receiving_ = false;
    take_in(got);
    settle(now_ns());
}

// So many datagrams are in incoming_; 0: until has come.
unsigned Udp::listen(Clock::time_point until, std::uint64_t spin_ns) {
    Clock::time_point spin_end = Clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
        if (unsigned got = incoming_->receive(socket_.get()))
            return got;
    } while (Clock::now() < std::min(spin_end, until));
    pollfd ready{socket_.get(), POLLIN, 0};
    timespec left{};
    if (until != never) {
        auto ns = (until - Clock::now()).count();
        if (ns <= 0)
            return 0;
        left = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    }
    ppoll(&ready, 1, until == never ? nullptr : &left, nullptr);
    return incoming_->receive(socket_.get());
}

// Lock. So many datagrams are in incoming_.
void Udp::take_in(unsigned datagrams) {
    std::uint64_t now = now_ns();
    for (unsigned i = 0; i < datagrams; i++)
        take_datagram(now, incoming_->datagram(i));
}

// Lock.
void Udp::take_datagram(std::uint64_t now_ns, std::span<const std::uint8_t> bytes) {
    const rmem_client_config& config = client_->config;
    rmem_datagram in;
    if (rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), true) !=
        RMEM_WIRE_GOOD)
        return;
    while (rmem_datagram_step(&in, bytes.data())) {
        rmem_wire_verdict verdict = rmem_datagram_verify(&in, &config.key, bytes.data());
        bool damaged = verdict == RMEM_WIRE_DAMAGED;
        if ((verdict != RMEM_WIRE_GOOD && !damaged) || in.head.space != config.space ||
            in.head.integrity != config.integrity)
            continue;
        const std::uint8_t* payload = bytes.data() + in.payload_offset;
        rmem_client_rx rx{};
        rmem_client_receive(client_.get(), now_ns, &in.head, damaged ? nullptr : payload, damaged,
                            &rx);
        if (rx.op)
            std::memcpy(op_of(rx.op).data + rx.data_offset, payload, rx.data_bytes);
        end(rx.finished, rx.result);
    }
}

} // namespace remora::lib
