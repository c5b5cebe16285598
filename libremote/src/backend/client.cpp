// SPDX-License-Identifier: MIT
#include "src/backend/client.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "src/backend/cut.hpp"
#include "src/backend/target.hpp"
#include "src/transport/protocol.hpp"
#include "support/crc32c.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"

extern "C" {
#include "core/rmem/client/session.h"
}

namespace remora::lib {

namespace {

// An answer that is expected soon is waited for by looking again and again: for as long as it takes
// the node to wake a thread, at least.
constexpr std::uint64_t spin_ns_min = 20 * BASE_NSEC_PER_USEC;
constexpr std::uint64_t spin_ns_max = 100 * BASE_NSEC_PER_USEC;
// How often an ALLOC is tried whose region went with its session.
constexpr unsigned alloc_tries = 8;
// Upper bound on one wait: another thread can have started an operation with an earlier deadline.
constexpr auto slice = std::chrono::milliseconds(10);
constexpr auto close_time = std::chrono::milliseconds(200);
constexpr std::chrono::milliseconds silence_patience{2000};
constexpr std::uint64_t open_ns_max = 5 * BASE_NSEC_PER_SEC;
// An address has so much time even if those before it took more than their share: the process might
// have stood still.
constexpr auto try_least = std::chrono::milliseconds(250);

Clock::time_point at(std::uint64_t ns) {
    return Clock::time_point(Clock::duration(ns));
}

static_assert(sizeof(rmem_range) <= range_room_bytes && sizeof(rmem_range) == range_bytes);

rmem_op_vector vector_of(Op& op) {
    auto* wire = reinterpret_cast<rmem_range*>(op.range_room);
    for (rmem_range* at = wire; const Range& range : op.now) {
        base_store_le64(&at->addr, range.address);
        base_store_le64(&at->bytes, range.bytes);
        at++;
    }
    return {wire, static_cast<u8>(op.now.size())};
}

rmem_op& translated(Op& op) {
    Out& out = op.make_room<Out>();
    rmem_op& core = out.core;
    out.op = &op;
    core.type = type_of(op.kind);
    core.addr = has_trait(op.kind, trait::name) ? 0 : op.address;
    core.len = op.bytes;
    switch (op.kind) {
    case Kind::integer: {
        const Change& change = op.change;
        core.atomic = {{change.value[0], change.value[1]},
                       {change.compare[0], change.compare[1]},
                       {0, 0},
                       change.what};
        break;
    }
    case Kind::put: {
        const remote_signal& signal = op.signal;
        core.put = {signal.address, signal.value, 0, static_cast<u32>(signal.bytes),
                    static_cast<u8>(signal.what)};
        break;
    }
    case Kind::readv:
    case Kind::writev:
        core.vector = vector_of(op);
        break;
    case Kind::copy:
        core.copy = {op.source};
        break;
    case Kind::query:
    case Kind::call:
        core.addr = op.run->offload;
        core.call = {};
        core.call.function = static_cast<u8>(op.run->function);
        core.call.room_bytes = static_cast<u32>(op.run->result_bytes);
        break;
    case Kind::alloc:
        core.addr = 0;
        core.alloc = {op.region.bytes, op.address, op.permission & REMOTE_RW};
        break;
    case Kind::free:
        core.range = {op.region.address, op.region.bytes, false};
        break;
    case Kind::publish:
    case Kind::lookup:
    case Kind::list:
        out.named = named_of(*op.name, op.address);
        core.name = {&out.named, 0, 0, &out.listed};
        break;
    default:
        break;
    }
    return core;
}

void take_result(remote_function& run, const rmem_op_call& call) {
    std::uint8_t found[sizeof(rmem_found)];
    base_store_le64(found, call.found[0]);
    base_store_le64(found + 8, call.found[1]);
    run.result_bytes = std::min(run.result_bytes, sizeof(found));
    std::copy_n(found, run.result_bytes, static_cast<std::uint8_t*>(run.result));
}

// The op has ended with success: takes the values that the node found.
void take_found(Op& op, const Out& out) {
    const rmem_op& core = out.core;
    if (op.kind == Kind::integer)
        std::copy_n(core.atomic.found, 2, op.change.found);
    else if (op.kind == Kind::alloc)
        op.region = {core.range.addr, core.range.bytes};
    else if (op.kind == Kind::lookup)
        op.region = {core.name.addr, core.name.bytes};
    else if (op.kind == Kind::list)
        *op.to = region_of(out.listed);
    else if (op.kind == Kind::query)
        op.run->result_bytes = core.call.result_bytes;
    else if (op.kind == Kind::call)
        take_result(*op.run, core.call);
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

std::string_view take_place(std::string_view& text) {
    std::string_view place = text.substr(0, text.find(','));
    text.remove_prefix(std::min(place.size() + 1, text.size()));
    return place;
}

// Keeps the key: when the node restarts, its file might have changed or be unreadable.
ClientOptions client_options(std::string_view settings, std::string_view target,
                             const remote_options& options, Settings more) {
    std::string key_file;
    ClientOptions client{{}, 1, integrity_of(options), timeout_ns_of(options)};
    // The first level is the options' default, so it is nobody's wish.
    auto set_integrity = [&](std::string_view level) {
        client.integrity = parse_integrity(level);
        if (options.integrity && client.integrity != integrity_of(options))
            throw Misuse("target '{}' has integrity={}, and the options another level: give one",
                         target, level);
    };
    more.insert({{"key", [&](auto value) { key_file = value; }},
                 {"integrity", set_integrity},
                 {"space", [&](auto value) {
                      client.space = static_cast<std::uint32_t>(parse_number(
                          value, 1, std::numeric_limits<std::uint32_t>::max(), "space"));
                  }}});
    parse_settings(settings, more);
    if (options.key && !key_file.empty())
        throw Misuse("target '{}' and the options both have a key: give one", target);
    if (options.key)
        std::copy_n(options.key, client.key.size(), client.key.begin());
    else if (key_file.empty())
        throw Failure(ENOKEY, "target '{}' has no key: add ,key=FILE", target);
    else
        client.key = key_read(key_file).key;
    return client;
}

Client::Client(const std::string& name, const std::vector<Connect>& candidates,
               const ClientOptions& options, Clock::time_point limit)
    : options_(options), client_(new rmem_client) {
    crc32c_setup_once();
    open_any(name, candidates, options, limit);
    page_bytes_ = client_->node.page_bytes;
    put_bytes_ = rmem_client_put_bytes(client_.get());
    vector_bytes_ = rmem_client_vector_bytes(client_.get());
    if (!std::has_single_bit(page_bytes_) || page_bytes_ < 1U << RMEM_PAGE_SHIFT_MIN ||
        page_bytes_ > 1U << RMEM_PAGE_SHIFT_MAX)
        throw Failure(EPROTO, "the node tells an invalid page size: {} bytes", page_bytes_);
}

Clock::time_point open_limit(const ClientOptions& options, Clock::time_point limit) {
    const std::uint64_t ns = options.timeout_ns ? options.timeout_ns : open_ns_max;
    return std::min(limit, Clock::now() + std::chrono::nanoseconds(std::min(ns, open_ns_max)));
}

// Tries all candidates in turn. Each has an equal share of the time that is left. Only if all fail
// are those that gave no answer looked at for the reason: that takes as long again.
void Client::open_any(const std::string& name, const std::vector<Connect>& candidates,
                      const ClientOptions& options, Clock::time_point limit) {
    const Clock::time_point began = Clock::now();
    auto left = static_cast<int>(candidates.size());
    std::vector<std::unique_ptr<Transport>> silent;
    std::vector<Failure> failures;
    for (const Connect& connect : candidates) {
        const Clock::time_point now = Clock::now();
        const Clock::time_point until = std::max(now + (limit - now) / left--, now + try_least);
        try {
            transport_ = connect(until);
            configure(options);
            if (opens(name, until))
                return;
            silent.push_back(std::move(transport_));
        } catch (const Failure& failure) {
            failures.push_back(failure);
        }
    }
    auto patience = std::min<Clock::duration>(silence_patience, limit - began);
    throw reason(name, silent, std::chrono::duration_cast<std::chrono::milliseconds>(patience),
                 std::move(failures));
}

// The first failure whose cause isn't EHOSTUNREACH, or else the first one: the resolver also
// returns addresses without a route.
Failure Client::reason(const std::string& name,
                       const std::vector<std::unique_ptr<Transport>>& silent,
                       std::chrono::milliseconds patience, std::vector<Failure> failures) {
    std::vector<Failure> all;
    for (const auto& transport : silent)
        all.push_back(transport->silence(name, patience / static_cast<int>(silent.size())));
    all.insert(all.end(), failures.begin(), failures.end());
    auto best = std::ranges::find_if(
        all, [](const Failure& failure) { return failure.error() != EHOSTUNREACH; });
    return best == all.end() ? all.front() : *best;
}

void Client::configure(const ClientOptions& options) {
    const Transport::Limits limits = transport_->limits();
    rmem_client_config config{};
    Key name = random_value<Key>();
    std::copy(name.begin(), name.end(), config.client);
    config.seed = random_value<u64>();
    config.space = options.space;
    // A digest would guard against errors that such a link can't make.
    bool spare = limits.is_memory && options.integrity == RMEM_DIGEST;
    config.integrity = static_cast<u8>(spare ? RMEM_LINK : options.integrity);
    base_siphash_key_load(&config.key, options.key.data());
    config.piece_bytes = limits.payload_bytes;
    config.datagram_bytes = limits.batch_bytes;
    config.fail_after_ns = options.timeout_ns;
    config.lossless = limits.is_memory;
    if (options.integrity == RMEM_SEALED) {
        config.cipher = &transport_->seal();
        config.datagram_bytes -= RMEM_SEAL_BYTES;
        config.piece_bytes =
            std::min<u32>(config.piece_bytes, config.datagram_bytes - RMEM_HEADS_BYTES(1));
    }
    rmem_incast_init(&incast_, limits.window_bytes);
    rmem_base_init(&base_);
    rmem_client_init(client_.get(), &config, &base_, &incast_, 0);
}

// The node will say the same again.
bool Client::is_refused() const {
    return client_->open_status == RMEM_PERM ||
           (client_->open_status == RMEM_INVALID && options_.integrity == RMEM_SEALED);
}

// False: no answer. Throws Failure: the node is full, or refuses the level.
bool Client::opens(const std::string& name, Clock::time_point limit) {
    {
        Lock lock(lock_);
        rmem_client_open(client_.get(), now_ns());
        flush();
    }
    wait_for([this] { return client_->state == RMEM_CHANNEL_OPEN || is_refused(); }, limit);
    if (client_->state == RMEM_CHANNEL_OPEN)
        return true;
    if (client_->open_status == RMEM_PERM)
        throw Failure(EACCES, "{} wants this space's clients to seal: add ,integrity=sealed", name);
    if (is_refused())
        throw Failure(EPROTONOSUPPORT,
                      "{} refuses the level of integrity: its kernel can't seal; use "
                      "integrity=full, or remora-node there",
                      name);
    if (client_->open_status == RMEM_BUSY)
        throw Failure(EUSERS, "{} has no session left: end some clients, or start it with more",
                      name);
    return false;
}

Client::~Client() {
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
    // The core has kept them if the node didn't answer.
    rmem_seal_wipe(&client_->keys, sizeof(client_->keys));
    rmem_seal_wipe(&client_->keys_before, sizeof(client_->keys_before));
    rmem_seal_wipe(client_->secret, sizeof(client_->secret));
}

// Threads that the child doesn't have can hold the locks, so the object must not be destroyed.
bool Client::disown() {
    transport_->disown();
    return false;
}

// ---- ops ----

void Client::begin(Op& op) noexcept {
    op.stage = Stage::asked;
    rmem_client_submit(client_.get(), &translated(op), op.entered_ns);
}

// Lock. Ends the ops that the core has finished.
void Client::end_all(rmem_op* chain, rmem_client_result result) {
    while (chain) {
        Out& out = out_of(chain);
        chain = chain->next;
        int error = error_of(out.core, result);
        if (out.op->kind == Kind::alloc) {
            go_on_allocating(*out.op, error);
            continue;
        }
        if (!error)
            take_found(*out.op, out);
        else if (rmem_type_runs(out.core.type) && result == RMEM_CLIENT_REFUSED)
            out.op->run->detail = out.core.call.part;
        // The FREE was executed in a session that ended before its answer; a retry gets the same
        // answer.
        if (out.op->kind == Kind::free && error == -EFAULT && out.core.sent_before)
            error = 0;
        end(*out.op, error);
    }
}

// Cancelled changes can have copies in flight. These must not be executed after operations that
// start later, nor after operations that waited for them in order and begin here. The core gets
// both only after it has begun to renew its session, so it sends them under the new name. When the
// node grants that name it refuses the old one, which the copies carry.
void Client::take_back(Call& call) noexcept {
    std::uint64_t now = now_ns();
    int error = call.given_up;
    for_each_left(call, [&](Op& op) {
        if (op.stage == Stage::got || op.stage == Stage::claimed)
            abandon(op);
        rmem_client_cancel(client_.get(), &op.room<Out>().core, now);
        end(op, error);
    });
}

// ---- allocations ----

/*
 * A region belongs to the client only when a later request shows the node that the client knows it:
 *
 *   ALLOC -> got, until its id is below the floor -> READ of its first byte -> the client's
 *                \-> FREE: it lies elsewhere, or its call was given up
 *
 * With its session, a region goes that isn't the client's yet. An ALLOC that is given up for good
 * has the session end.
 */

// Lock. Sends the next message of the alloc.
void Client::send_for(Op& op, Stage stage) {
    const Region region = op.region;
    op.stage = stage;
    op.entered_ns = now_ns();
    Out& out = op.make_room<Out>();
    out.op = &op;
    out.core.addr = region.address;
    out.core.len = 1;
    out.core.type = RMEM_READ;
    op.data = &out.claimed;
    if (stage == Stage::undone) {
        out.core.addr = 0;
        out.core.len = 0;
        out.core.type = RMEM_FREE;
        out.core.range = {region.address, region.bytes, true};
    }
    rmem_client_submit(client_.get(), &out.core, op.entered_ns);
}

// Lock. An alloc's message has ended.
void Client::go_on_allocating(Op& op, int error) {
    const bool is_lost = client_->state == RMEM_CHANNEL_LOST;
    switch (op.stage) {
    case Stage::asked: {
        const Out& out = op.room<Out>();
        if (error)
            return end(op, error);
        op.region = {out.core.range.addr, out.core.range.bytes};
        op.alloc_id = out.core.id;
        if (is_elsewhere(op.region, op.address, op.permission))
            return undo(op, -EADDRNOTAVAIL);
        return claim(op);
    }
    case Stage::claimed:
        if (error == -EFAULT && op.tries++ < alloc_tries && !op.call->given_up)
            return begin(op); // the region went with its session
        if (error && !is_lost)
            return undo(op, error);
        return op.call->given_up && !error ? undo(op, op.call->given_up) : end(op, error);
    default:
        return end(op, op.refused);
    }
}

// Lock. By a FREE; if that doesn't arrive, by the end of the session.
void Client::undo(Op& op, int error) {
    op.refused = error;
    send_for(op, Stage::undone);
}

// Lock. A READ shows the node that the client has the answer, if its floor is above the ALLOC's id.
// A new session counts from 1, and has none of the regions.
void Client::claim(Op& op) {
    const rmem_seq& seq = client_->seq;
    if (op.call->given_up)
        return undo(op, op.call->given_up);
    if (rmem_seq_floor(&seq) > op.alloc_id || seq.next <= op.alloc_id)
        return send_for(op, Stage::claimed);
    op.stage = Stage::got;
    op.next = std::exchange(got_, &op);
}

// Lock. Goes on with those that wait for the floor.
void Client::claim_regions() {
    Op* rest = std::exchange(got_, nullptr);
    while (rest)
        claim(*std::exchange(rest, rest->next));
}

// Lock. Sets the alloc to its FREE, which the caller cancels: so the session ends.
void Client::abandon(Op& op) {
    if (op.stage == Stage::claimed) {
        rmem_client_cancel(client_.get(), &op.room<Out>().core, now_ns());
    } else {
        Op** at = &got_;
        while (*at != &op)
            at = &(*at)->next;
        *at = op.next;
    }
    send_for(op, Stage::undone);
}

// Lock. After any event to the core: retransmissions, timeouts, and sending.
void Client::flush() noexcept {
    std::uint64_t read_ns = std::exchange(clock_ns_, 0);
    claim_regions();
    if (rmem_client_is_idle(client_.get()))
        return;
    event_ns_ = read_ns ? read_ns : now_ns();
    expire_core(event_ns_);
    claim_regions();
    transport_->send(client_->config, *this);
}

bool Client::next(rmem_client_tx& tx) {
    return rmem_client_next(client_.get(), event_ns_, &tx);
}

void Client::set_room(std::uint32_t messages) {
    rmem_client_set_room(client_.get(), messages);
}

void Client::unsent(const rmem_client_tx& tx) {
    rmem_client_unsent(client_.get(), &tx, event_ns_);
}

// Lock. Handles answers that have arrived before it runs the core's timers: those aren't late.
void Client::expire_core(std::uint64_t now_ns) {
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
        if (due && client_->silent)
            transport_->unanswered();
        end_all(ended, result);
        due = false;
        if (!ended)
            break;
    }
}

int Client::alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
                  Region& region) {
    Op op;
    op.kind = Kind::alloc;
    op.address = wanted;
    op.region = {0, bytes};
    op.permission = permission;
    const int error = one(op);
    region = op.region;
    return error;
}

int Client::dealloc(const Region& region) {
    Op op;
    op.kind = Kind::free;
    op.region = region;
    return one(op);
}

void Client::stats(remote_counters& counters) {
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
    counters.unscheduled += transport_->unscheduled();
}

// The node tells its memory when it opens a session, so the handle's own is renewed.
void Client::info(remote_node& node, Clock::time_point limit) {
    limit = open_limit(options_, limit);
    {
        Lock lock(lock_);
        rmem_client_renew(client_.get(), now_ns());
        flush();
    }
    const bool told = wait_for(
        [this] {
            return client_->state == RMEM_CHANNEL_OPEN || client_->state == RMEM_CHANNEL_LOST;
        },
        limit);
    Lock lock(lock_);
    if (client_->state == RMEM_CHANNEL_LOST) {
        note(-ESTALE);
        throw Failure(ESTALE, "the node restarted: see remote_lost()");
    }
    if (!told)
        throw Failure(ETIMEDOUT, "the node doesn't say in time what memory it has");
    node.page_bytes = page_bytes_;
    node.memory_bytes = client_->node.memory_bytes;
    node.free_bytes = client_->node.free_bytes;
    node.round_trip_ns = client_->rtt.srtt_ns;
}

// ---- waiting ----

Watch Client::watch() {
    Lock lock(lock_);
    return transport_->watch();
}

Clock::time_point Client::next_timer() const {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    return std::min(deadline ? at(deadline) : never, transport_->timer());
}

void Client::receive(Lock& lock, Clock::time_point until) noexcept {
    std::uint64_t deadline = rmem_client_deadline(client_.get());
    std::uint64_t spin_ns = std::clamp(2 * client_->rtt.srtt_ns, spin_ns_min, spin_ns_max);
    // From the last event on: that was a moment ago, and the clock takes as long as looking.
    until = std::min(until, at(event_ns_) + slice);
    if (deadline)
        until = std::min(until, at(deadline));
    lock.unlock();
    transport_->wait(until, spin_ns);
    lock.lock();
    event_ns_ = clock_ns_ = now_ns();
    transport_->deliver(client_->config, *this);
}

void Client::take_in() noexcept {
    event_ns_ = now_ns();
    transport_->take_in(client_->config, *this);
}

namespace {

void take_data(const Op& op, std::uint32_t offset, const std::uint8_t* data, std::uint32_t bytes) {
    if (op.ranges.empty()) {
        auto* to = op.kind == Kind::query ? static_cast<std::uint8_t*>(op.run->result) : op.data;
        std::copy_n(data, bytes, to + offset);
        return;
    }
    for (const Range& range : op.now) {
        if (range.data)
            std::memcpy(range.data, data, range.bytes);
        data += range.bytes;
    }
}

} // namespace

void Client::take_response(const rmem_head& head, const std::uint8_t* payload, bool damaged) {
    rmem_client_rx rx{};
    rmem_client_receive(client_.get(), event_ns_, &head, damaged ? nullptr : payload, damaged, &rx);
    if (rx.op)
        take_data(op_of(rx.op), rx.data_offset, payload, rx.data_bytes);
    end_all(rx.finished, rx.result);
}

} // namespace remora::lib
