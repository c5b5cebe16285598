// SPDX-License-Identifier: MIT
#include "src/udp.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>

#include "support/crc32c.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"
#include "support/train.hpp"

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

constexpr unsigned receive_batch = 8;
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

// Datagrams that are put together, and go as trains.
class Udp::Outgoing {
public:
    Outgoing(int fd, rmem_client& client) : fd_(fd), client_(client) {}

    // tx's data must stay until flush().
    void add(const rmem_client_tx& tx) {
        bool joined = bundle_.messages && rmem_type_may_share(tx_[messages_ - 1].head.type) &&
                      rmem_type_may_share(tx.head.type) && joins(tx.head);
        if (!joined) {
            close();
            if (!has_room())
                flush();
            begin();
            joins(tx.head);
        }
        rmem_client_tx& mine = tx_[messages_] = tx;
        std::size_t first = iovecs_;
        if (mine.payload_bytes)
            add_piece(const_cast<void*>(rmem_client_tx_payload(&mine)), mine.payload_bytes);
        if (mine.data_bytes)
            add_piece(data_of(mine), mine.data_bytes);
        seal(heads_.data() + messages_ * RMEM_HDR_BYTES, mine.head,
             std::span(vector_).subspan(first, iovecs_ - first),
             mine.payload_bytes + mine.data_bytes);
        messages_++;
    }

    void flush() {
        close();
        send();
        messages_ = iovecs_ = gathered_bytes_ = datagrams_ = sent_ = 0;
    }

    void set_now(std::uint64_t now_ns) { now_ns_ = now_ns; }

private:
    struct Datagram {
        std::size_t message, iovec; // its first
        std::size_t messages_end, iovecs_end;
        std::size_t bytes;
    };
    // Of a train. What one more datagram may have lies behind.
    static constexpr std::size_t messages_max = 128;
    static constexpr std::size_t gathered_bytes_max = train_bytes_max;

    bool has_room() const {
        return messages_ <= messages_max && gathered_bytes_ <= gathered_bytes_max &&
               datagrams_ < train_datagrams_max;
    }
    void begin() {
        datagram_[datagrams_] = {messages_, iovecs_, 0, 0, 0};
        iovecs_++; // for its heads
    }
    // The datagram is whole. If those before it make no train with it, they go.
    void close() {
        if (bundle_.messages == 0)
            return;
        Datagram& whole = datagram_[datagrams_];
        whole.messages_end = messages_;
        whole.iovecs_end = iovecs_;
        whole.bytes += bundle_.messages * RMEM_HDR_BYTES;
        vector_[whole.iovec] = {heads_.data() + whole.message * RMEM_HDR_BYTES,
                                bundle_.messages * RMEM_HDR_BYTES};
        bundle_ = {};
        unsigned before = datagrams_ - sent_;
        if (before &&
            (!trains_may_go_ || !is_coupled(before, train_bytes_, datagram_[datagrams_ - 1].bytes,
                                            datagram_[sent_].bytes, whole.bytes)))
            send();
        datagrams_++;
        train_bytes_ += whole.bytes;
    }
    void add_piece(void* data, std::size_t bytes) {
        vector_[iovecs_++] = {data, bytes};
        datagram_[datagrams_].bytes += bytes;
    }

    // Those that are whole, and haven't gone.
    void send() {
        std::span train = std::span(datagram_).subspan(sent_, datagrams_ - sent_);
        sent_ = datagrams_;
        train_bytes_ = 0;
        if (train.empty() || went(train))
            return;
        bool many = train.size() > 1;
        // The device leaves checksums to us, which a train can't have.
        if (many && errno == EIO)
            trains_may_go_ = false;
        for (const Datagram& each : train) {
            if (many && went({&each, 1}))
                continue;
            for (std::size_t i = each.message; i < each.messages_end; i++)
                rmem_client_unsent(&client_, &tx_[i], now_ns_);
        }
    }
    bool went(std::span<const Datagram> train) {
        alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(std::uint16_t))> control;
        msghdr message{};
        message.msg_iov = &vector_[train.front().iovec];
        message.msg_iovlen = train.back().iovecs_end - train.front().iovec;
        if (train.size() > 1) {
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            set_control(CMSG_FIRSTHDR(&message), SOL_UDP, UDP_SEGMENT,
                        static_cast<std::uint16_t>(train.front().bytes));
        }
        ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT);
        // An earlier datagram found nobody; that is told once.
        if (sent < 0 && errno == ECONNREFUSED)
            sent = sendmsg(fd_, &message, MSG_DONTWAIT);
        return sent >= 0;
    }

    std::uint8_t* data_of(const rmem_client_tx& tx) {
        const Op& op = op_of(tx.op);
        if (op.ranges.empty())
            return op.data + tx.data_offset;
        std::uint8_t* begin = gathered_.data() + gathered_bytes_;
        std::uint8_t* to = begin;
        for (const Range& range : op.now)
            to = std::copy_n(range.data, range.bytes, to);
        gathered_bytes_ += tx.data_bytes;
        return begin;
    }
    // rmem_wire_build() of a payload in pieces.
    void seal(std::uint8_t* header, rmem_head& head, std::span<const iovec> payload,
              std::uint32_t bytes) {
        if (rmem_wire_has_digest(&head)) {
            std::uint32_t crc = BASE_CRC32C_SEED;
            for (const iovec& piece : payload)
                crc = base_crc32c_update(crc, piece.iov_base, piece.iov_len);
            head.digest = base_crc32c_final(crc);
        }
        rmem_wire_encode(header, &head);
        struct base_siphash hash;
        rmem_wire_hash_begin(&hash, &client_.config.key, header);
        std::size_t tagged = rmem_wire_tagged_bytes(&head, bytes);
        for (const iovec& piece : payload) {
            base_siphash_update(&hash, piece.iov_base, std::min(piece.iov_len, tagged));
            tagged -= std::min(piece.iov_len, tagged);
        }
        rmem_wire_seal(header, base_siphash_final(&hash));
    }
    bool joins(const rmem_head& head) {
        return rmem_bundle_joins(&bundle_, client_.config.datagram_bytes, &head);
    }

    int fd_;
    rmem_client& client_;
    std::uint64_t now_ns_ = 0;
    bool trains_may_go_ = true;
    rmem_bundle bundle_{}; // of the datagram that isn't whole
    unsigned datagrams_ = 0, sent_ = 0;
    std::size_t train_bytes_ = 0; // of those that are whole and haven't gone
    std::size_t messages_ = 0;
    std::size_t iovecs_ = 0;
    std::size_t gathered_bytes_ = 0; // of WRITEVs
    std::array<Datagram, train_datagrams_max> datagram_;
    std::array<rmem_client_tx, messages_max + RMEM_BUNDLE_MAX> tx_;
    std::array<iovec, train_datagrams_max + 2 * (messages_max + RMEM_BUNDLE_MAX)> vector_;
    std::array<std::uint8_t, (messages_max + RMEM_BUNDLE_MAX) * RMEM_HDR_BYTES> heads_;
    std::array<std::uint8_t, gathered_bytes_max + RMEM_PIECE_BYTES_MAX> gathered_;
};

// ---- in ----

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

// Packets of one recvmmsg(), each of them a train.
class Udp::Incoming {
public:
    Incoming() {
        for (unsigned i = 0; i < receive_batch; i++) {
            vector_[i] = {packet_[i].data(), packet_[i].size()};
            msghdr& header = message_[i].msg_hdr;
            header = {};
            header.msg_iov = &vector_[i];
            header.msg_iovlen = 1;
            header.msg_control = control_[i].data();
            header.msg_controllen = sizeof(Control);
        }
    }
    unsigned receive(int fd) {
        // Of those that were received into; where there are many handles each line costs.
        for (; used_; used_--)
            message_[used_ - 1].msg_hdr.msg_controllen = sizeof(Control);
        int got = recvmmsg(fd, message_.data(), receive_batch, MSG_DONTWAIT, nullptr);
        used_ = got < 0 ? 0 : static_cast<unsigned>(got);
        return used_;
    }
    template <typename Fn>
    void for_each_datagram(unsigned packet, Fn fn) {
        mmsghdr& message = message_[packet];
        remora::for_each_datagram(message.msg_hdr,
                                  std::span(packet_[packet]).first(message.msg_len), fn);
    }

private:
    struct alignas(64) Packet : std::array<std::uint8_t, packet_bytes_max> {};
    struct alignas(cmsghdr) Control : std::array<char, CMSG_SPACE(sizeof(int))> {};

    unsigned used_ = 0;
    std::array<mmsghdr, receive_batch> message_;
    std::array<iovec, receive_batch> vector_;
    std::array<Control, receive_batch> control_;
    std::array<Packet, receive_batch> packet_;
};

// ---- opening and closing ----

Udp::Udp(const Target& target, const Key& key, const UdpOptions& options)
    : incoming_(new Incoming), client_(new rmem_client) {
    crc32c_setup_once();
    connect(target);
    configure(target, key, options);
    outgoing_ = std::make_unique<Outgoing>(socket_.get(), *client_);
    open(endpoint_text(target.host, target.port));
    page_bytes_ = client_->node.page_bytes;
    put_bytes_ = rmem_client_put_bytes(client_.get());
    vector_bytes_ = rmem_client_vector_bytes(client_.get());
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
        flush();
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
            end_all(chain, RMEM_CLIENT_CANCELLED);
        if (client_->state != RMEM_CHANNEL_OPEN)
            return;
        rmem_client_close(client_.get(), now_ns());
        flush();
    }
    wait_for([this] { return client_->state != RMEM_CHANNEL_OPEN; }, Clock::now() + close_time);
}

// Locks may be held by threads that the child doesn't have; what is left is its memory.
bool Udp::disown() {
    socket_ = Descriptor();
    return false;
}

// ---- ops ----

void Udp::begin(Op& op) {
    rmem_client_submit(client_.get(), &op.core, op.entered_ns);
}

// Lock. What the core is done with.
void Udp::end_all(rmem_op* chain, rmem_client_result result) {
    while (chain) {
        Op& op = op_of(chain);
        chain = chain->next;
        end(op, error_of(op.core, result));
    }
}

// Changes may have copies on their way, which must not be executed after what begins from now on,
// nor after what waited for them in order and is let go here. Both is given to the core only after
// that has given its session up, so it is sent in the next one; and when the node opens that, it
// has ended the old one, in which alone those copies count.
void Udp::take_back(Call& call) {
    std::uint64_t now = now_ns();
    int error = call.given_up;
    for_each_left(call, [&](Op& op) {
        rmem_op* unknown = rmem_client_cancel(client_.get(), &op.core, now);
        end(op, error);
        end_all(unknown, RMEM_CLIENT_UNKNOWN);
    });
}

// Whatever was told to the core, what follows from it: what it has to send again, or gives up, and
// what it sends.
void Udp::flush() {
    std::uint64_t now = now_ns();
    expire_core(now);
    outgoing_->set_now(now);
    rmem_client_tx tx;
    while (rmem_client_next(client_.get(), now, &tx))
        outgoing_->add(tx);
    outgoing_->flush();
}

// Lock. What is here already isn't late: it is taken in before anything counts as timed out.
void Udp::expire_core(std::uint64_t now_ns) {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    bool due = deadline && deadline <= now_ns;
    if (due && somebody_receives())
        return; // who sees to it
    if (due)
        take_in();
    // When all is lost, so are those that come to the core as others end.
    while (due || client_->state == RMEM_CHANNEL_LOST) {
        rmem_client_result result = RMEM_CLIENT_OK;
        rmem_op* ended = rmem_client_expire(client_.get(), now_ns, &result);
        end_all(ended, result);
        due = false;
        if (!ended)
            break;
    }
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
        if (error == -EFAULT && tries < alloc_tries)
            continue;
        // By a FREE; or, where none arrives, by the end of the session that made it.
        if (error)
            dealloc(range);
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

void Udp::receive(Lock& lock, Clock::time_point until) {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    std::uint64_t spin_ns = std::min(2 * client_->rtt.srtt_ns, spin_ns_max);
    until = std::min(until, Clock::now() + slice);
    if (deadline)
        until = std::min(until, at(deadline));
    lock.unlock();
    unsigned got = listen(until, spin_ns);
    lock.lock();
    take_datagrams(got);
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

void Udp::take_in() {
    for (unsigned batch = 0, got = receive_batch; got == receive_batch && batch < batches_max;
         batch++) {
        got = incoming_->receive(socket_.get());
        take_datagrams(got);
    }
}

// Lock. So many are in incoming_.
void Udp::take_datagrams(unsigned count) {
    std::uint64_t now = now_ns();
    for (unsigned i = 0; i < count; i++)
        incoming_->for_each_datagram(
            i, [&](std::span<const std::uint8_t> bytes) { take_datagram(now, bytes); });
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
            take_data(op_of(rx.op), rx.data_offset, payload, rx.data_bytes);
        end_all(rx.finished, rx.result);
    }
}

} // namespace remora::lib
