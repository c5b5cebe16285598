// SPDX-License-Identifier: GPL-2.0
#include "remora-node/node.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include "remora-node/clock.hpp"
#include "support/failure.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"

extern "C" {
#include "core/rmem/plain.h"
}

namespace remora::daemon {

namespace {

// How long to wait for the other threads' grace when there is nothing else to do.
constexpr std::chrono::milliseconds grace_poll{1};

bool may_join(const Outbox::Open& open, const Path& path, const rmem_head& head) {
    return open.reply && open.head.session == head.session && open.head.space == head.space &&
           open.head.integrity == head.integrity && open.path == path;
}

// Can the answer refer to this data until it is sent? Not if it has a sum over the data, which can
// change before: by a later request of the batch, or in another thread.
bool may_refer(const rmem_head& head, std::span<const std::uint8_t> data) {
    return head.integrity == RMEM_LINK && data.size() >= piece_bytes_least;
}

rmem_node_config sealing(rmem_node_config config, const Cipher& cipher) {
    config.cipher = &cipher.core();
    return config;
}

std::uint8_t required(bool sealed_only) {
    return sealed_only ? RMEM_SEALED : 0;
}

void check_added(rmem_space_error error, std::uint32_t id, std::uint32_t base) {
    switch (error) {
    case RMEM_SPACE_OK:
        return;
    case RMEM_SPACE_EXISTS:
        throw Failure("space {} exists already: choose another id, or delete it first", id);
    case RMEM_SPACE_FULL:
        throw Failure("no room for space {}: raise --spaces", id);
    case RMEM_SPACE_QUOTA:
        throw Failure("space {} has a quota below one page: raise it", id);
    case RMEM_SPACE_NO_BASE:
        throw Failure("space {} shows the memory of {}, which isn't there: give that one first", id,
                      base);
    case RMEM_SPACE_IS_VIEW:
        throw Failure("space {} shows the memory of {}, which has none of its own: name the space "
                      "that has",
                      id, base);
    case RMEM_SPACE_SAME_KEY:
        throw Failure("space {} has the key of another client of {}: make one for this client", id,
                      base);
    case RMEM_SPACE_NO_CIPHER:
        throw Failure("space {} requires clients that seal, and this node has no cipher", id);
    default:
        throw Failure("space {} is refused: give an id from 1 up", id);
    }
}

} // namespace

// A request in execution, and the destination of its answers.
struct Node::Request {
    unsigned int thread;
    Counters& counters;
    std::uint64_t now_ns;
    const Path& path;
    Outbox& outbox;
    const base_siphash_key* key = nullptr;   // null: the request is plain
    const rmem_seal_keys* seal = nullptr;    // of the request's session, if that is sealed
    const rmem_head* head = nullptr;         // of the message that is dealt with
    std::span<const std::uint8_t> payload{}; // of that message
    std::uint32_t limit_bytes = 0;           // of a datagram with an answer to it
};

Node::Node(const rmem_node_config& config, bool lock_memory, unsigned int threads,
           node::MemoryFile* file, node::Store* store)
    : host_(sealing(config, cipher_), lock_memory, "--memory", file, store, now_ns()),
      threads_(threads + 1) {}

bool Node::keep_space(std::uint32_t id, const Key& key, std::uint64_t quota_bytes,
                      std::uint32_t base, bool member, bool sealed_only) {
    return host_.keep_space(id, key.data(), quota_bytes, base, member, required(sealed_only));
}

void Node::add_space(std::uint32_t id, const Key& key, std::uint64_t quota_bytes,
                     bool sealed_only) {
    check_added(host_.add_space(id, key.data(), quota_bytes, required(sealed_only)), id, 0);
}

void Node::add_view(std::uint32_t id, const Key& key, std::uint32_t base, bool sealed_only) {
    check_added(host_.add_view(id, key.data(), base, required(sealed_only)), id, base);
}

void Node::add_member(std::uint32_t id, const Key& key, std::uint32_t base, bool sealed_only) {
    check_added(host_.add_member(id, key.data(), base, required(sealed_only)), id, base);
}

void Node::add_persistent(std::uint32_t id) {
    if (!host_.add_persistent(id, RMEM_PERSISTENT_ADDR))
        throw Failure("space {} of --memory-file isn't there, or is a view, or has too small a "
                      "quota: give it by --space",
                      id);
}

void Node::wait_grace() {
    for (auto grace = begin_grace(); !has_passed(grace);)
        std::this_thread::sleep_for(grace_poll);
}

void Node::del_space(std::uint32_t id, bool force, const node::Host::Between& between) {
    rmem_space_error error = host_.del_space(id, force, between, [this] { wait_grace(); });
    switch (error) {
    case RMEM_SPACE_OK:
        return;
    case RMEM_SPACE_PERSISTENT:
        throw Failure("space {} has a memory file: stop the node, and start it without", id);
    case RMEM_SPACE_VIEWED:
        throw Failure("space {} has read-only views or members: delete them first", id);
    case RMEM_SPACE_BUSY:
        for (const SpaceReport& space : spaces()) {
            if (space.id == id)
                throw Failure("space {} has {} regions ({}): --force frees them", id, space.regions,
                              size_text(space.promised_bytes));
        }
        [[fallthrough]];
    default:
        throw Failure("no space {}: 'remora node space list' has them", id);
    }
}

void Node::revoke_space(std::uint32_t id, const node::Host::Between& between) {
    switch (host_.revoke_space(id, between, [this] { wait_grace(); })) {
    case RMEM_SPACE_OK:
        return;
    case RMEM_SPACE_REVOKED:
        throw Failure("the key of space {} is revoked already", id);
    default:
        throw Failure("no space {}: 'remora node space list' has them", id);
    }
}

std::vector<SpaceReport> Node::spaces() {
    std::vector<SpaceReport> reports;
    for (const node::Host::SpaceUsage& space : host_.spaces())
        reports.push_back({space.id, space.promised_bytes, space.quota_bytes, space.regions,
                           space.member ? 0 : space.base, space.calls_ns, space.traffic.operations,
                           space.traffic.read_bytes, space.traffic.written_bytes,
                           space.required == RMEM_SEALED, space.member ? space.base : 0,
                           space.revoked});
    return reports;
}

std::vector<rmem_listed> Node::regions(std::uint32_t id, std::uint64_t from) {
    return host_.regions(id, from, regions_report_max);
}

void Node::expire() {
    if (!expiring_.exchange(true))
        operate([this](const node::Host::Between& between) {
            expiring_ = false;
            host_.expire(now_ns(), between);
        });
}

void Node::retire() {
    host_.retire(random_value<std::uint64_t>() | 1);
}

// ---- grace ----

void Node::enter(unsigned int thread) {
    std::atomic<std::uint64_t>& passes = threads_[thread].passes;
    threads_[thread].sealing->salted = false;
    // Release: has_passed() can miss the value of leave(), and sees this one.
    passes.store(passes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    // Pairs with begin_grace(): a thread that it doesn't see as entered sees the tables without the
    // pages taken out of them before.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Node::leave(unsigned int thread) {
    // The session can end before this thread has another sealed datagram.
    rmem_seal_wipe(&threads_[thread].sealing->keys, sizeof(rmem_seal_keys));
    std::atomic<std::uint64_t>& passes = threads_[thread].passes;
    // Pairs with has_passed(): the pages were used before.
    passes.store(passes.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// The threads that are in a batch now; has_passed() tells when each of them has left it.
std::vector<std::uint64_t> Node::begin_grace() const {
    // Pairs with enter().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::vector<std::uint64_t> grace;
    grace.reserve(threads_.size());
    // Acquire pairs with leave(): a thread outside of a batch has used its pages before.
    for (const Thread& each : threads_)
        grace.push_back(each.passes.load(std::memory_order_acquire));
    return grace;
}

bool Node::has_passed(const std::vector<std::uint64_t>& grace) const {
    for (std::size_t i = 0; i < threads_.size(); i++) {
        std::uint64_t then = grace[i];
        if (then % 2 && threads_[i].passes.load(std::memory_order_acquire) == then)
            return false;
    }
    return true;
}

// ---- a datagram ----

void Node::handle(unsigned int thread, std::uint64_t now_ns, std::span<const std::uint8_t> datagram,
                  const Path& path, Outbox& outbox) {
    Counters& counters = threads_[thread].counters;
    Request request{thread, counters, now_ns, path, outbox};
    if (path.plain && !datagram.empty() && datagram[0] == RMEM_PLAIN)
        return handle_plain(request, datagram);
    const bool sealed = datagram.size() >= RMEM_HDR_BYTES && rmem_wire_is_sealed(datagram.data());
    if (sealed && !unseal(request, datagram))
        return;
    rmem_datagram in;
    const auto bytes = static_cast<u32>(datagram.size());
    rmem_wire_verdict verdict =
        sealed ? rmem_datagram_open_unsealed(&in, datagram.data(), bytes, false)
               : rmem_datagram_open(&in, datagram.data(), bytes, false);
    if (verdict != RMEM_WIRE_GOOD)
        return counters.add(count_wire + verdict);
    if (!sealed) {
        // Nothing is sealed in rings.
        if (in.head.clear && path.plain)
            return counters.add(count_wire + RMEM_WIRE_MALFORMED);
        request.key = rmem_node_key(host_.core(), in.head.space);
        if (!request.key)
            return counters.add(count_drop_space);
        if (!rmem_datagram_verifies(&in, request.key, datagram.data()))
            return counters.add(count_wire + RMEM_WIRE_TAG);
    }
    request.head = &in.head;
    while (rmem_datagram_step(&in, datagram.data())) {
        request.payload = datagram.subspan(in.payload_offset, in.payload_bytes);
        handle_message(request, rmem_datagram_is_damaged(&in, datagram.data()));
    }
    // Without a thread for them, calls end here.
    while (!slow_ && calls_.any())
        calls_.run([&](const Calls::Ended& ended) { end_call(thread, ended, outbox); });
}

// The datagram's header and plaintext instead of it. False: it is dropped, or answered.
bool Node::unseal(Request& request, std::span<const std::uint8_t>& datagram) {
    Sealing& sealing = *threads_[request.thread].sealing;
    const auto bytes = static_cast<u32>(datagram.size());
    rmem_head head;
    u32 messages;
    auto drop = [&](unsigned int counter) {
        request.counters.add(counter);
        return false;
    };
    if (!rmem_seal_fits(bytes) || request.path.plain ||
        rmem_wire_parse_hdr(datagram.data(), &head, &messages) != RMEM_WIRE_GOOD)
        return drop(count_wire + RMEM_WIRE_MALFORMED);
    request.key = rmem_node_key(host_.core(), head.space);
    if (!request.key)
        return drop(count_drop_space);
    if (!rmem_seal_hdr_verifies(datagram.data(), request.key))
        return drop(count_wire + RMEM_WIRE_TAG);
    if (!rmem_node_keys(host_.core(), &head, &sealing.keys)) {
        notify(request, head);
        return false;
    }
    if (!rmem_seal_open(&sealing.cipher.core(), &sealing.keys.from_client, datagram.data(), bytes,
                        sealing.plain.data()))
        return drop(count_wire + RMEM_WIRE_SEAL);
    request.seal = &sealing.keys;
    datagram = std::span(sealing.plain).first(bytes - RMEM_SEAL_BYTES);
    return true;
}

// Tells a client whose keys are gone that its session is.
void Node::notify(Request& request, const rmem_head& head) {
    rmem_head notice;
    rmem_node_notice(host_.core(), &head, &notice);
    request.counters.add(count_reason + (notice.status == RMEM_REBOOTED ? RMEM_NODE_REBOOTED
                                                                        : RMEM_NODE_NO_SESSION));
    answer_alone(request, notice, nullptr);
}

// Only this client can have written it; that its session is this client's, the core sees to.
void Node::handle_plain(Request request, std::span<const std::uint8_t> record) {
    rmem_plain_record in;
    rmem_plain_begin(&in, static_cast<u32>(record.size()), false);
    request.head = &in.head;
    for (u32 offset; rmem_plain_next(&in, &offset);) {
        rmem_wire_verdict verdict = rmem_plain_has_head(&in)
                                        ? rmem_plain_step(&in, record.data() + offset)
                                        : RMEM_WIRE_SHORT;
        if (verdict != RMEM_WIRE_GOOD)
            return request.counters.add(count_wire + verdict);
        request.payload = record.subspan(in.payload_offset, in.payload_bytes);
        handle_message(request, false);
    }
}

void Node::handle_message(Request& request, bool damaged_payload) {
    request.counters.add(count_wire + (damaged_payload ? RMEM_WIRE_DAMAGED : RMEM_WIRE_GOOD));
    request.counters.add(count_type + request.head->type - RMEM_OPEN);
    if (!damaged_payload && rmem_node_is_slow(host_.core(), request.head))
        return slow(request);
    std::lock_guard slot(host_.slot_lock(request.head->session));
    if (!damaged_payload)
        return execute(request);
    request.limit_bytes = 0;
    rmem_head damaged;
    if (rmem_node_damaged(host_.core(), request.now_ns, request.head, &request.path.peer, &damaged))
        answer(request, damaged);
}

// ---- fast requests ----

struct Node::Carrier {
    Node& node;
    Request& request;
};

constexpr rmem_execute_ops Node::carrier_ops{
    [](void* carrier, const rmem_extent* extent) -> void* {
        return static_cast<Carrier*>(carrier)->node.host_.at(*extent);
    },
    [](void* carrier, u32 offset, void* to, u32 bytes) {
        std::memcpy(to, static_cast<Carrier*>(carrier)->request.payload.data() + offset, bytes);
    },
    [](void* carrier, rmem_answer* answer, rmem_execute_data* data) {
        auto& [node, request] = *static_cast<Carrier*>(carrier);
        if (data)
            node.answer_data(request, *data);
        else if (rmem_wire_payload_bytes(&answer->reply))
            node.answer_found(request, *answer);
        else
            node.answer(request, answer->reply);
        return true;
    },
    [](void* carrier, const rmem_head*, rmem_answer* answer) {
        auto& [node, request] = *static_cast<Carrier*>(carrier);
        return node.admit(request, *answer);
    }};

void Node::execute(Request& request) {
    rmem_answer decision;
    const node::Host::Change change(host_, *request.head, request.payload, request.path.peer);
    rmem_node_request(host_.core(), request.now_ns, request.head, request.payload.data(),
                      &request.path.peer, &decision);
    request.limit_bytes = rmem_node_datagram_bytes(&decision);
    if (decision.action != RMEM_ACT_RUN) // counted at its end
        request.counters.add(count_reason + decision.reason);
    if (decision.reason == RMEM_NODE_OK && rmem_type_brings_data(request.head->type) &&
        !rmem_type_runs(request.head->type))
        request.counters.add(count_write_bytes, request.head->len);
    Carrier carrier{*this, request};
    rmem_execute(host_.core(), &carrier_ops, &carrier, request.head, request.payload.data(),
                 &decision);
}

// A thread's datagrams, counted; with its name before it, no other has the same number.
std::uint64_t Node::next_number(unsigned int thread) {
    return std::uint64_t{thread} << 48 | ++threads_[thread].datagrams;
}

// The datagram for another answer: the last one, if it takes it, or a new one. Slot lock.
Reply& Node::datagram_for(Request& request, rmem_head& head) {
    Outbox::Open& open = request.outbox.open;
    if (may_join(open, request.path, head) &&
        rmem_bundle_joins(&open.bundle, request.limit_bytes, &head))
        return *open.reply;
    request.outbox.close();
    Reply& reply = request.outbox.add(request.path);
    head.number = next_number(request.thread);
    rmem_wire_encode_hdr(reply.head.data(), &head);
    reply.head_bytes = RMEM_HDR_BYTES;
    reply.founds = 0;
    reply.copied_bytes = 0;
    reply.pieces = 0;
    open = {&reply, request.path, head, {}, {}, nullptr, nullptr};
    base_siphash_init(&open.hash, request.key);
    if (request.seal) {
        reply.key = request.seal->from_node;
        open.sealing = threads_[request.thread].sealing.get();
        open.space_key = request.key;
    }
    rmem_bundle_joins(&open.bundle, request.limit_bytes, &head);
    return reply;
}

// write(to) writes the payload; it can make the answer a refusal, which has none.
template <typename Write>
void Node::answer_plain(Request& request, rmem_head& head, Write write) {
    std::uint8_t* to = request.outbox.plain_room(head, rmem_wire_payload_bytes(&head));
    if (!to)
        return; // the outbox counts it
    write(to + RMEM_PLAIN_BYTES);
    rmem_plain_encode(to, &head);
    request.outbox.plain_done(head, rmem_wire_payload_bytes(&head));
}

namespace {

// Returns the byte behind. GCC 12 compiles std::ranges::copy() to a loop over single bytes.
std::uint8_t* copied(std::span<const std::uint8_t> data, std::uint8_t* to) {
    std::memcpy(to, data.data(), data.size());
    return to + data.size();
}

} // namespace

// An answer without a payload.
void Node::answer(Request& request, rmem_head& head) {
    if (head.plain)
        return answer_plain(request, head, [](std::uint8_t*) {});
    add(request, datagram_for(request, head), head, 0);
}

void Node::answer_found(Request& request, rmem_answer& decision) {
    if (decision.reply.plain)
        return answer_plain(request, decision.reply, [&](std::uint8_t* to) {
            std::memcpy(to, &decision.found, sizeof(decision.found));
        });
    Reply& out = datagram_for(request, decision.reply);
    rmem_found& found = out.found[out.founds++] = decision.found;
    out.data[out.pieces] = {reinterpret_cast<const std::uint8_t*>(&found), sizeof(found)};
    if (request.seal)
        out.data[out.pieces] = out.copy(out.data[out.pieces]);
    add(request, out, decision.reply, 1);
}

// If some of the data was freed meanwhile, the answer is a refusal.
void Node::answer_data(Request& request, rmem_execute_data& data) {
    rmem_answer& decision = *data.answer;
    rmem_head& head = decision.reply;
    request.counters.add(count_read_bytes, head.len);
    rmem_execute_begin(&data);
    if (head.plain)
        return answer_plain(request, head, [&](std::uint8_t* to) {
            while (rmem_execute_next(&data)) {
                for (const rmem_extent& extent : std::span(decision.extent, decision.extents))
                    to = copied(host_.data(extent), to);
            }
            if (data.gone)
                head.status = RMEM_FAULT;
        });
    Reply& out = datagram_for(request, head);
    std::span pieces = std::span(out.data).subspan(out.pieces);
    const std::size_t copied_before = out.copied_bytes;
    std::size_t count = 0;
    while (rmem_execute_next(&data)) {
        for (const rmem_extent& extent : std::span(decision.extent, decision.extents)) {
            std::span<const std::uint8_t> piece = host_.data(extent);
            if (!may_refer(head, piece)) {
                piece = out.copy(piece);
                std::span<const std::uint8_t>& last = pieces[count ? count - 1 : 0];
                if (count && last.data() + last.size() == piece.data()) {
                    last = {last.data(), last.size() + piece.size()};
                    continue;
                }
            }
            pieces[count++] = piece;
        }
    }
    if (data.gone) {
        head.status = RMEM_FAULT;
        count = 0;
        out.copied_bytes = copied_before;
    }
    add(request, out, head, count);
}

// The message whose data are the pieces behind those of the others.
void Node::add(Request& request, Reply& out, rmem_head& head, std::size_t pieces) {
    std::span data(out.data.data() + out.pieces, pieces);
    out.pieces += static_cast<unsigned int>(pieces);
    if (rmem_wire_has_digest(&head)) {
        std::uint32_t crc = BASE_CRC32C_SEED;
        for (auto piece : data)
            crc = base_crc32c_update(crc, piece.data(), piece.size());
        head.digest = base_crc32c_final(crc);
    }
    rmem_wire_encode_msg(out.head.data() + out.head_bytes, &head);
    out.head_bytes += RMEM_MSG_BYTES;
    if (!request.seal && rmem_wire_tagged_bytes(&head)) { // all of an answer's, or nothing
        for (auto piece : data)
            base_siphash_update(&request.outbox.open.hash, piece.data(), piece.size());
    }
}

// The heads, and all payloads as they were copied. A datagram that can't be sealed leaves empty, so
// that its client asks again.
void Outbox::seal() {
    Reply& reply = *open.reply;
    Sealing& sealing = *open.sealing;
    std::uint8_t* begin = reply.copied.data() + Reply::heads_room - reply.head_bytes;
    std::memcpy(begin, reply.head.data(), reply.head_bytes);
    const std::size_t bytes = reply.head_bytes + reply.copied_bytes;
    sealing.salted = sealing.salted || draw_salt(sealing.salt);
    const bool sealed =
        sealing.salted &&
        rmem_seal_close(&sealing.cipher.core(), open.space_key, &reply.key, sealing.salt.data(),
                        begin, static_cast<u32>(bytes), open.bundle.messages, false);
    reply.head_bytes = 0;
    reply.data[0] = {begin, bytes + RMEM_SEAL_BYTES};
    reply.pieces = sealed ? 1 : 0;
    rmem_seal_wipe(&reply.key, sizeof(reply.key));
}

// Keys that seal an answer which comes late, forgotten with it.
struct Node::LateKeys {
    rmem_seal_keys keys{};
    ~LateKeys() { rmem_seal_wipe(&keys, sizeof(keys)); }
};

// ---- calls ----

bool Node::admit(Request& request, rmem_answer& decision) {
    if (!calls_.admit(*request.head, request.payload, request.path, request.thread, decision)) {
        request.counters.add(count_reason + decision.reason);
        return false;
    }
    threads_[request.thread].calls++;
    return true;
}

void Node::finish(unsigned int thread, Outbox& outbox) {
    const std::size_t count = std::exchange(threads_[thread].calls, 0);
    if (!count)
        return;
    calls_.run_own(
        thread, count, [&](const Path& path) { return outbox.takes(path); },
        [&](const Calls::Ended& ended) { end_call(thread, ended, outbox); });
    if (calls_.any())
        slow_->poke();
}

void Node::run_calls() {
    const unsigned int thread = slow_thread();
    enter(thread);
    calls_.run([&](const Calls::Ended& ended) {
        ended.answer.reply.plain = false; // for no late outbox has room for these
        end_call(thread, ended, *ended.path.late);
        ended.path.late->flush();
    });
    leave(thread);
}

void Node::end_call(unsigned int thread, const Calls::Ended& ended, Outbox& outbox) {
    const rmem_head& head = ended.call.head;
    Request request{thread, threads_[thread].counters, 0, ended.path, outbox};
    request.key = rmem_node_key(host_.core(), head.space);
    request.limit_bytes = ended.limit_bytes;
    request.counters.add(count_reason + ended.answer.reason);
    if (!request.key || rmem_node_incarnation(host_.core(), head.space) != ended.call.incarnation)
        return request.counters.add(count_drop_space);
    LateKeys keys;
    if (!keys_for(request, head, keys.keys))
        return;
    if (ended.answer.action == RMEM_ACT_REPLY)
        answer_call(request, ended);
}

void Node::answer_call(Request& request, const Calls::Ended& ended) {
    rmem_head& head = ended.answer.reply;
    std::span payload(ended.call.result, rmem_wire_payload_bytes(&head));
    if (payload.empty())
        return answer(request, head);
    if (head.plain)
        return answer_plain(request, head, [&](std::uint8_t* to) { copied(payload, to); });
    Reply& out = datagram_for(request, head);
    out.data[out.pieces] = out.copy(payload);
    add(request, out, head, 1);
}

// ---- slow requests ----

void Node::slow(Request& request) {
    if (slow_) {
        // Its answer leaves from another thread; those to earlier requests leave before.
        request.outbox.flush();
        if (slow_->add(*request.head, request.path, request.payload) != SlowPath::Added::waits)
            request.counters.add(count_drop_queue_full);
        return;
    }
    rmem_node_call call;
    host_.call(call, request.now_ns, *request.head, request.path.peer, request.payload.data());
    answer_slow(request.thread, request.path, request.key, call, request.outbox);
}

void Node::answer_slow(unsigned int thread, const Path& path, const base_siphash_key* key,
                       rmem_node_call& call, Outbox& outbox) {
    rmem_answer& answer = call.answer;
    Request request{thread, threads_[thread].counters, 0, path, outbox};
    request.key = key;
    request.counters.add(count_reason + answer.reason);
    if (answer.action != RMEM_ACT_REPLY)
        return;
    LateKeys keys;
    if (keys_for(request, answer.reply, keys.keys))
        answer_alone(request, answer.reply, &call.out);
    else if (call.head.type == RMEM_CLOSE)
        notify(request, call.head);
}

// The keys that seal an answer which comes late. False: its session has ended or has another name,
// so its client takes no such answer.
bool Node::keys_for(Request& request, const rmem_head& head, rmem_seal_keys& keys) {
    if (head.integrity != RMEM_SEALED || head.clear)
        return true;
    // The last salt might be of long ago.
    threads_[request.thread].sealing->salted = false;
    if (!rmem_node_keys(host_.core(), &head, &keys))
        return false;
    request.seal = &keys;
    return true;
}

// payload: the answer's, if it has one.
void Node::answer_alone(Request& request, rmem_head& head, const void* payload) {
    const std::size_t bytes = rmem_wire_payload_bytes(&head);
    request.outbox.close();
    if (request.seal && !head.clear) {
        Reply& out = datagram_for(request, head);
        if (bytes)
            out.data[out.pieces] = out.copy({static_cast<const std::uint8_t*>(payload), bytes});
        add(request, out, head, bytes ? 1 : 0);
        return request.outbox.close();
    }
    Reply& out = request.outbox.add(request.path);
    head.number = next_number(request.thread);
    rmem_datagram_build_one(out.head.data(), &head, request.key, payload);
    if (bytes)
        std::memcpy(out.head.data() + RMEM_HEADS_BYTES(1), payload, bytes);
    out.head_bytes = RMEM_HEADS_BYTES(1) + bytes;
    out.pieces = 0;
}

void Node::run_slow() {
    const unsigned int thread = slow_thread();
    auto drop = [&](SlowPath::Job&) { threads_[thread].counters.add(count_drop_space); };
    const SlowPath::Events events{
        [&](SlowPath::Job& job) {
            const base_siphash_key* key = rmem_node_key(host_.core(), job.core.head.space);
            if (!key)
                return drop(job);
            answer_slow(thread, job.path, key, job.core.call, *job.path.late);
            job.path.late->flush();
        },
        drop, [this] { run_calls(); }};
    while (!slow_->is_stopped()) {
        const bool scrubs = scrub(thread);
        if (calls_.any())
            slow_->poke();
        slow_->serve(scrubs ? grace_poll : std::chrono::milliseconds::max(), events);
        run_calls();
    }
}

// ---- scrubbing ----

// One thread at a time: a thread that comes meanwhile leaves the work to the other. If that one has
// looked already, the next request makes up for it.
bool Node::scrub(unsigned int thread) {
    std::unique_lock scrubbing(scrub_lock_, std::try_to_lock);
    if (!scrubbing)
        return false;
    if (!host_.has_dirty()) {
        if (!host_.take_dirty())
            return false;
        grace_ = begin_grace();
    }
    if (!has_passed(grace_))
        return true;
    threads_[thread].counters.add(count_scrubbed, host_.clean());
    return true;
}

// ---- status ----

NodeReport Node::report(std::uint16_t port) {
    const rmem_node_config& config = host_.config();
    struct rmem_node_usage usage = host_.usage();
    NodeReport report;
    report.started = true;
    report.boot = config.boot;
    report.port = port;
    report.memory_bytes = config.pages << config.page_shift;
    report.page_bytes = std::uint64_t{1} << config.page_shift;
    report.promised_bytes = usage.pages_promised << config.page_shift;
    report.backed_bytes = usage.pages_backed << config.page_shift;
    report.ready_bytes = usage.pages_ready << config.page_shift;
    report.pool_pages = config.pool_pages;
    report.spaces = usage.spaces;
    report.spaces_max = config.spaces_max;
    report.sessions = usage.sessions;
    report.sessions_max = config.sessions_max;
    report.regions = usage.regions;
    report.regions_max = config.regions_max;
    report.session_idle_ms = config.session_idle_ms;
    for (unsigned int which = 0; which < counts; which++) {
        std::uint64_t sum = 0;
        for (const Thread& thread : threads_)
            sum += thread.counters.get(which);
        report.counters.emplace_back(count_name(which), sum);
    }
    report.counters.emplace_back("alloc-retries", usage.alloc_retries);
    report.counters.emplace_back("alloc-retries-worst", usage.alloc_retries_worst);
    report.counters.emplace_back("allocs-undone", usage.allocs_undone);
    return report;
}

} // namespace remora::daemon
