// SPDX-License-Identifier: GPL-2.0
#include "remora-node/ring_worker.hpp"

#include <algorithm>
#include <cstring>

#include "remora-node/clock.hpp"
#include "support/futex.hpp"
#include "support/say.hpp"
#include "support/tsan.hpp"

namespace remora::daemon {

namespace {

// Bounds of a ring's turn. A request can have a lot of answers, so both are bounded.
constexpr unsigned turn_requests = 8, turn_answers = 32;
// Room for the answers to one request of an honest client: RMEM_READ_BYTES_MAX in pieces as long as
// an entry takes, and a shorter one for each message.
constexpr std::uint32_t answers_max =
    (RMEM_READ_BYTES_MAX + RMEM_PIECE_BYTES_MAX - 1) / RMEM_PIECE_BYTES_MAX + RMEM_BUNDLE_MAX;
static_assert(answers_max < RingPair::responses / 2);
// A client that breaks rules again and again fills no log; counter rings-closed has all.
constexpr std::uint64_t told_ns_min = BASE_NSEC_PER_SEC;
// Rounds with requests between two that also zero some pages.
constexpr unsigned scrub_every = 16;
// Looks for a ring's next entry before its pointer word is watched again: some microseconds.
constexpr unsigned warm_looks = 256;
// Rounds for the warm rings alone, between two for all.
constexpr unsigned warm_rounds = 31;
// Looks between two looks at the clock, and such rounds before the processor rests longer.
constexpr unsigned looks = 16, eager_rounds = 64;

struct RingPlace {
    std::uint64_t serial;
};

} // namespace

// ---- answers ----

RingOutbox::RingOutbox(Counters& counters) : counters_(counters), replies_(batch) {}
RingOutbox::~RingOutbox() = default;

Reply& RingOutbox::add(const Path&) {
    if (waiting_ == batch)
        flush();
    return replies_[waiting_++];
}

void RingOutbox::flush() {
    close();
    unsigned posted = posted_;
    post_plain();
    for (const Reply& reply : std::span(replies_).first(waiting_)) {
        bool went = post(*pair_, std::span(reply.head).first(reply.head_bytes), &reply);
        counters_.add(went ? count_answers : count_drop_xmit);
        posted_ += went;
    }
    waiting_ = 0;
    if (posted_ != posted)
        pair_->wake_client();
}

namespace {

// The caller made sure of room for an honest client's answers. More answers than those are dropped.
// The client's next turn finds a fault in its credit.
bool has_room(RingPair& pair) {
    return ring_out_room(&pair.out) || (!ring_out_learn(&pair.out) && ring_out_room(&pair.out));
}

} // namespace

bool RingOutbox::post(RingPair& pair, std::span<const std::uint8_t> head, const Reply* rest) {
    if (!has_room(pair))
        return false;
    std::uint8_t* record = ring_out_record(&pair.out);
    std::uint8_t* to = std::copy(head.begin(), head.end(), record);
    if (rest)
        for (auto piece : std::span(rest->data).first(rest->pieces)) {
            std::memcpy(to, piece.data(), piece.size());
            to += piece.size();
        }
    ring_sends();
    ring_out_post(&pair.out, static_cast<std::uint32_t>(to - record));
    return true;
}

bool RingOutbox::takes(const Path& path) const {
    return path == pair_->path;
}

std::uint8_t* RingOutbox::plain_room(const rmem_head& head, std::uint32_t payload_bytes) {
    rmem_plain_sum with = plain_;
    if (!rmem_plain_joins(&with, &head, payload_bytes))
        post_plain();
    if (!plain_.messages && !has_room(*pair_)) {
        counters_.add(count_drop_xmit);
        return nullptr;
    }
    std::uint8_t* record = ring_out_record(&pair_->out);
    if (staged_ && plain_.bytes + rmem_plain_bytes(payload_bytes) > stage_.size()) {
        std::memcpy(record, stage_.data(), plain_.bytes);
        staged_ = false;
    }
    return (staged_ ? stage_.data() : record) + plain_.bytes;
}

void RingOutbox::plain_done(const rmem_head& head, std::uint32_t payload_bytes) {
    rmem_plain_joins(&plain_, &head, payload_bytes);
}

void RingOutbox::post_plain() {
    if (!plain_.messages)
        return;
    if (staged_)
        std::memcpy(ring_out_record(&pair_->out), stage_.data(), plain_.bytes);
    staged_ = true;
    ring_sends();
    ring_out_post(&pair_->out, plain_.bytes);
    counters_.add(count_answers);
    posted_++;
    plain_ = {};
}

Reply& LateOutbox::add(const Path& path) {
    serial_ = path.place_as<RingPlace>().serial;
    return *reply_;
}

void LateOutbox::flush() {
    close();
    if (!serial_)
        return;
    auto head = std::span(reply_->head).first(reply_->head_bytes);
    std::vector<std::uint8_t> datagram(head.begin(), head.end());
    for (auto piece : std::span(reply_->data).first(reply_->pieces))
        datagram.insert(datagram.end(), piece.begin(), piece.end());
    rings_.answer(serial_, std::move(datagram));
    serial_ = 0;
}

Path path_of(std::uint64_t serial, Outbox* late) {
    // No datagram comes from the discard-only prefix (RFC 6666).
    static constexpr std::uint8_t discard_only[8] = {0x01};
    Path path;
    path.plain = true;
    path.late = late;
    path.place_as<RingPlace>().serial = serial;
    std::memcpy(path.peer.addr, discard_only, sizeof(discard_only));
    std::memcpy(path.peer.addr + sizeof(discard_only), &serial, sizeof(serial));
    return path;
}

// ---- worker ----

RingWorker::RingWorker(Node& node, Rings& rings, unsigned thread, std::uint32_t spin_us)
    : node_(node),
      rings_(rings),
      thread_(thread),
      spin_ns_(has_one_processor() ? 0 : spin_us * BASE_NSEC_PER_USEC),
      outbox_(node.counters(thread)),
      late_(rings) {}

void RingWorker::run() {
    while (!stopped_.load(std::memory_order_relaxed)) {
        if (look() && ++busy_rounds_ % scrub_every)
            continue;
        // Pages were used or given back: writes take zeroed ones, and maybe no other thread has
        // something to do.
        if (node_.scrub(thread_) || spin())
            continue;
        rings_.sleep([this] { return has_work() || stopped_.load(); });
        chosen_.clear(); // any of them might have woken the worker
    }
}

void RingWorker::stop() {
    stopped_.store(true);
    rings_.wake();
}

void RingWorker::take_changes() {
    Rings::Changes changes = rings_.take_changes();
    chosen_.clear(); // places of pairs_, which changes
    for (auto& pair : changes.came) {
        pair->path = path_of(pair->serial, &late_);
        pairs_.emplace_back(std::move(pair));
    }
    for (std::uint64_t serial : changes.went)
        std::erase_if(pairs_, [&](const auto& each) { return each.pair->serial == serial; });
    for (const Rings::Changes::Answer& each : changes.answers)
        answer(each);
}

void RingWorker::answer(const Rings::Changes::Answer& answer) {
    auto at = std::find_if(pairs_.begin(), pairs_.end(),
                           [&](const auto& each) { return each.pair->serial == answer.serial; });
    if (at == pairs_.end())
        return; // gone meanwhile
    RingPair& pair = *at->pair;
    bool went = outbox_.post(pair, answer.datagram, nullptr);
    node_.counters(thread_).add(went ? count_answers : count_drop_xmit);
    if (went)
        pair.wake_client();
}

RingWorker::Watched::Watched(std::shared_ptr<RingPair> of)
    : pointer(of->pointer),
      entry(ring_in_word(&of->in)),
      taken(of->in.taken),
      pair(std::move(of)) {}

bool RingWorker::is_ready(const Watched& watched) {
    if (watched.blocked) {
        const ring_out& out = watched.pair->out;
        return __atomic_load_n(out.credit, __ATOMIC_RELAXED) != base_swap_le32(out.freed);
    }
    if (watched.warm)
        return __atomic_load_n(watched.entry, __ATOMIC_RELAXED) != 0;
    return ring_tells_more(base_swap_le32(__atomic_load_n(watched.pointer, __ATOMIC_RELAXED)),
                           watched.taken);
}

bool RingWorker::has_work() const {
    return std::any_of(pairs_.begin(), pairs_.end(), is_ready);
}

bool RingWorker::look() {
    if (rings_.has_changes())
        take_changes();
    return round();
}

// Decides which rings the next round looks at: chosen_.
void RingWorker::choose() {
    if (rounds_left_ && requests_left_ && !chosen_.empty()) {
        rounds_left_--;
        std::erase_if(chosen_, [this](std::size_t i) { return !pairs_[i].is_warm(); });
        return;
    }
    chosen_.clear();
    if (first_ >= pairs_.size())
        first_ = 0; // pairs went
    for (std::size_t n = 0, i = first_; n < pairs_.size(); n++, i++)
        chosen_.push_back(i < pairs_.size() ? i : i - pairs_.size());
    first_ = first_ + 1 < pairs_.size() ? first_ + 1 : 0;
    rounds_left_ = warm_rounds;
    requests_left_ = turn_requests;
}

// One turn for each ready ring that is looked at. False: none was.
bool RingWorker::round() {
    bool any = false;
    std::uint64_t now = 0;
    choose();
    for (std::size_t i : chosen_) {
        Watched& each = pairs_[i];
        if (!is_ready(each)) {
            each.warm -= each.warm != 0;
            continue;
        }
        if (!any) {
            any = true;
            now = now_ns();
            node_.enter(thread_);
        }
        if (!serve(each, now)) {
            pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(i));
            chosen_.clear();
            break; // the others' turn is in the next round
        }
    }
    if (any)
        node_.leave(thread_);
    return any;
}

// False: the client broke a rule.
bool RingWorker::serve(Watched& watched, std::uint64_t now) {
    RingPair& pair = *watched.pair;
    outbox_.begin(pair);
    ring_fault fault = watched.warm ? RING_OK : ring_in_track(&pair.in, pair.pointer);
    if (!fault)
        fault = take_turn(watched, now);
    node_.finish(thread_, outbox_);
    outbox_.flush();
    if (ring_in_tell(&pair.in)) {
        pair.wake_client();
        // Now and then of a warm ring, too: the tracker wants it.
        if (!fault)
            fault = ring_in_track(&pair.in, pair.pointer);
    }
    if (fault)
        close(pair, fault);
    watched.entry = ring_in_word(&pair.in);
    watched.taken = pair.in.taken;
    watched.warm = warm_looks;
    return !fault;
}

ring_fault RingWorker::take_turn(Watched& watched, std::uint64_t now) {
    RingPair& pair = *watched.pair;
    watched.blocked = false;
    for (unsigned n = 0; n < turn_requests && outbox_.posted() < turn_answers; n++) {
        if (!ring_in_waiting(&pair.in) && !ring_in_has_record(&pair.in))
            break;
        ring_fault fault = RING_OK;
        watched.blocked = !has_answer_room(pair, fault);
        if (watched.blocked || fault)
            return fault;
        std::uint32_t bytes;
        const std::uint8_t* record = ring_in_record(&pair.in, &bytes, &fault);
        // This memory is coherent: a signalled record is there.
        if (!record)
            return fault ? fault : RING_FAULT_ABSENT;
        ring_received();
        if (bytes > request_.size())
            return RING_FAULT_BYTES;
        // Once, before it is looked at: the client can write it still.
        std::memcpy(request_.data(), record, bytes);
        ring_in_take(&pair.in);
        requests_left_ -= requests_left_ != 0;
        node_.handle(thread_, now, std::span(request_).first(bytes), pair.path, outbox_);
    }
    return RING_OK;
}

bool RingWorker::has_answer_room(RingPair& pair, ring_fault& fault) const {
    std::uint32_t wanted = answers_max + outbox_.waiting();
    if (ring_out_room(&pair.out) >= wanted)
        return true;
    fault = ring_out_learn(&pair.out);
    return !fault && ring_out_room(&pair.out) >= wanted;
}

void RingWorker::close(RingPair& pair, ring_fault fault) {
    node_.counters(thread_).add(count_ring_closed);
    std::uint64_t now = now_ns();
    if (!told_ns_ || now - told_ns_ >= told_ns_min) {
        warn("remora-node: warning: closed the rings of process {}: {}", pair.client,
             ring_fault_name(fault));
        told_ns_ = now;
    }
    rings_.close(pair.serial);
}

// True: something came, and was served.
bool RingWorker::spin() {
    if (!spin_ns_)
        return false;
    std::uint64_t end = fine_now_ns() + spin_ns_;
    unsigned rounds = 0;
    do {
        for (unsigned i = 0; i < looks; i++) {
            if (round() || rings_.has_changes() || stopped_.load(std::memory_order_relaxed))
                return true;
            if (rounds < eager_rounds)
                relax();
            else // one line can be watched; for several there is a short rest
                pause_longer(pairs_.size() == 1 ? pairs_[0].pointer : nullptr,
                             [this] { return !has_work() && !rings_.has_changes(); });
        }
        rounds++;
    } while (fine_now_ns() < end);
    return false;
}

} // namespace remora::daemon
