// SPDX-License-Identifier: GPL-2.0
#include "remora-node/node.hpp"

#include <algorithm>
#include <cstring>

#include "common/failure.hpp"

namespace remora::daemon {

namespace {

// Pages taken from the core at once to be zeroed, so that requests wait for few.
constexpr std::size_t scrub_pages = 8;

// What a READ of memory never written is answered with.
alignas(64) constexpr std::array<std::uint8_t, RMEM_PIECE_BYTES_MAX> zeros{};

const rmem_node_config& checked(const rmem_node_config& config) {
    if (const char* error = rmem_node_config_error(&config))
        throw Failure("the node can't be: {}", error);
    return config;
}

rmem_peer peer_of(const Path& path) {
    rmem_peer peer;
    std::memcpy(peer.addr, &path.peer.sin6_addr, sizeof(peer.addr));
    peer.port = ntohs(path.peer.sin6_port);
    return peer;
}

bool operator==(const Path& a, const Path& b) {
    return IN6_ARE_ADDR_EQUAL(&a.peer.sin6_addr, &b.peer.sin6_addr) &&
           a.peer.sin6_port == b.peer.sin6_port && a.peer.sin6_scope_id == b.peer.sin6_scope_id &&
           IN6_ARE_ADDR_EQUAL(&a.local.ipi6_addr, &b.local.ipi6_addr) &&
           a.local.ipi6_ifindex == b.local.ipi6_ifindex;
}

bool may_join(const Outbox::Open& open, const Path& path, const rmem_head& head) {
    return open.reply && open.head.session == head.session && open.head.space == head.space &&
           open.head.integrity == head.integrity && open.path == path;
}

} // namespace

// A request on its way through, and where its answers go.
struct Node::Request {
    Counters& counters;
    std::uint64_t now_ns;
    const Path& path;
    rmem_peer peer;
    Outbox& outbox;
    const base_siphash_key* key = nullptr;
    rmem_datagram in{};
    std::span<const std::uint8_t> payload{}; // of the message that is dealt with
};

Node::Node(const rmem_node_config& config, bool lock_memory, unsigned int threads)
    : config_(checked(config)),
      pages_(config.pages << config.page_shift, lock_memory),
      state_(rmem_node_state_bytes(&config), lock_memory),
      core_(new rmem_node),
      slot_lock_(new std::mutex[config.sessions_max]),
      threads_(threads) {
    base_crc32c_setup();
    rmem_node_init(core_.get(), &config_, state_.data());
    scrubbing_.pages.reserve(scrub_pages);
    // Memory fresh from the kernel is zero: the pool fills at once.
    while (scrub(0)) {
    }
}

void Node::add_space(std::uint32_t id, const Key& key, std::uint64_t quota_bytes) {
    std::lock_guard one_call(call_lock_);
    std::lock_guard slow(slow_lock_);
    switch (rmem_node_space_add(core_.get(), id, key.data(), quota_bytes)) {
    case RMEM_SPACE_OK:
        return;
    case RMEM_SPACE_EXISTS:
        throw Failure("space {} is there twice: give each an id of its own", id);
    case RMEM_SPACE_FULL:
        throw Failure("no room for space {}: raise --spaces", id);
    case RMEM_SPACE_QUOTA:
        throw Failure("space {} has a quota below one page: raise it", id);
    default:
        throw Failure("space {} is refused: give an id from 1 up", id);
    }
}

// ---- grace ----

void Node::enter(unsigned int thread) {
    threads_[thread].passes.fetch_add(1, std::memory_order_relaxed);
    // Pairs with take_dirty(): whoever isn't seen as entered sees the table without the pages.
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Node::leave(unsigned int thread) {
    // Pairs with grace_passed(): the pages were used before.
    threads_[thread].passes.fetch_add(1, std::memory_order_release);
}

bool Node::grace_passed() const {
    for (std::size_t i = 0; i < threads_.size(); i++) {
        std::uint64_t then = scrubbing_.passes[i];
        if (then % 2 && threads_[i].passes.load(std::memory_order_acquire) == then)
            return false;
    }
    return true;
}

// ---- a datagram ----

void Node::handle(unsigned int thread, std::uint64_t now_ns, std::span<const std::uint8_t> datagram,
                  const Path& path, Outbox& outbox) {
    Counters& counters = threads_[thread].counters;
    Request request{counters, now_ns, path, peer_of(path), outbox};
    rmem_datagram& in = request.in;
    rmem_wire_verdict verdict =
        rmem_datagram_open(&in, datagram.data(), static_cast<u32>(datagram.size()), false);
    if (verdict != RMEM_WIRE_GOOD)
        return counters.add(count_wire + verdict);
    request.key = rmem_node_key(core_.get(), in.head.space);
    if (!request.key)
        return counters.add(count_drop_space);
    if (in.bytes - in.messages * RMEM_HDR_BYTES > RMEM_PIECE_BYTES_MAX)
        return counters.add(count_drop_oversize);
    while (rmem_datagram_step(&in, datagram.data())) {
        request.payload = datagram.subspan(in.payload_offset, in.payload_bytes);
        handle_message(request, rmem_datagram_verify(&in, request.key, datagram.data()));
    }
}

void Node::handle_message(Request& request, rmem_wire_verdict verdict) {
    request.counters.add(count_wire + verdict);
    if (verdict == RMEM_WIRE_TAG)
        return;
    request.counters.add(count_type + request.in.head.type - RMEM_OPEN);
    if (verdict == RMEM_WIRE_GOOD && rmem_node_is_slow(core_.get(), &request.in.head))
        return slow(request);
    std::lock_guard slot(slot_lock_[rmem_node_slot(core_.get(), request.in.head.session)]);
    if (verdict == RMEM_WIRE_GOOD)
        return execute(request);
    rmem_head damaged;
    rmem_node_damaged(core_.get(), &request.in.head, &damaged);
    answer(request, damaged, {});
}

// ---- READ, WRITE, DISCARD, ZERO ----

void Node::execute(Request& request) {
    rmem_answer decision;
    rmem_node_request(core_.get(), request.now_ns, &request.in.head, &request.peer, &decision);
    request.counters.add(count_reason + decision.reason);
    switch (decision.action) {
    case RMEM_ACT_DROP:
        return;
    case RMEM_ACT_SEND_OUT:
        return send_parts(request, decision);
    case RMEM_ACT_COPY_IN:
        copy_in(request, decision);
        rmem_node_done(core_.get(), &request.in.head);
        break;
    case RMEM_ACT_FILL:
        fill(decision);
        rmem_node_done(core_.get(), &request.in.head);
        break;
    case RMEM_ACT_REPLY:
        break;
    }
    answer(request, decision.reply, {});
}

std::uint8_t* Node::page(std::uint32_t index) const {
    return pages_.data() + (std::uint64_t{index} << config_.page_shift);
}

void Node::copy_in(const Request& request, const rmem_answer& answer) {
    const std::uint8_t* from = request.payload.data();
    for (const rmem_extent& extent : std::span(answer.extent, answer.extents)) {
        std::memcpy(page(extent.page) + extent.offset, from, extent.bytes);
        from += extent.bytes;
    }
    request.counters.add(count_write_bytes, request.payload.size());
}

void Node::fill(const rmem_answer& answer) {
    for (const rmem_extent& extent : std::span(answer.extent, answer.extents))
        std::memset(page(extent.page) + extent.offset, 0, extent.bytes);
}

std::span<const std::uint8_t> Node::extent_data(const rmem_extent& extent) const {
    if (extent.page == RMEM_PAGE_NONE)
        return std::span(zeros).first(extent.bytes);
    return {page(extent.page) + extent.offset, extent.bytes};
}

// The datagram for another answer: the last one, if it takes it, or a new one. Slot lock.
Reply& Node::datagram_for(Request& request, const rmem_head& head) {
    Outbox::Open& open = request.outbox.open;
    u32 limit = rmem_node_datagram_bytes(core_.get(), &request.in.head);
    if (may_join(open, request.path, head) && rmem_bundle_joins(&open.bundle, limit, &head))
        return *open.reply;
    Reply& reply = request.outbox.add(request.path);
    reply.head_bytes = 0;
    reply.pieces = 0;
    open = {&reply, request.path, head, {}};
    rmem_bundle_joins(&open.bundle, limit, &head);
    return reply;
}

void Node::answer(Request& request, rmem_head& head, std::span<const rmem_extent> extents) {
    Reply& out = datagram_for(request, head);
    std::uint8_t* header = out.head.data() + out.head_bytes;
    out.head_bytes += RMEM_HDR_BYTES;
    std::span data(out.data.data() + out.pieces, extents.size());
    out.pieces += static_cast<unsigned int>(extents.size());
    std::transform(extents.begin(), extents.end(), data.begin(),
                   [this](const rmem_extent& extent) { return extent_data(extent); });
    if (rmem_wire_has_digest(&head)) {
        std::uint32_t crc = BASE_CRC32C_SEED;
        for (auto piece : data)
            crc = base_crc32c_update(crc, piece.data(), piece.size());
        head.digest = base_crc32c_final(crc);
    }
    rmem_wire_encode(header, &head);
    struct base_siphash hash;
    rmem_wire_hash_begin(&hash, request.key, header);
    if (rmem_wire_tags_payload(&head)) {
        for (auto piece : data)
            base_siphash_update(&hash, piece.data(), piece.size());
    }
    rmem_wire_seal(header, base_siphash_final(&hash));
}

void Node::send_parts(Request& request, rmem_answer& part) {
    std::uint32_t offset = 0;
    std::uint32_t bytes;
    while ((bytes = rmem_node_read_part(core_.get(), &request.in.head, offset, &part))) {
        answer(request, part.reply, std::span(part.extent, part.extents));
        request.counters.add(count_read_bytes, bytes);
        offset += bytes;
    }
}

// ---- OPEN, CLOSE, ALLOC, FREE, long ZERO ----

// The slow lock is taken for each step anew, so that others get between the steps of a long call.
void Node::slow(Request& request) {
    rmem_node_call call;
    {
        std::lock_guard one_call(call_lock_);
        rmem_node_call_begin(core_.get(), &call, request.now_ns, &request.in.head, &request.peer,
                             request.payload.data());
        while (step(call)) {
        }
    }
    rmem_answer& answer = call.answer;
    request.counters.add(count_reason + answer.reason);
    if (answer.action != RMEM_ACT_REPLY)
        return;
    // It travels alone, and adding it may send what others could have joined.
    request.outbox.open = {};
    Reply& out = request.outbox.add(request.path);
    std::size_t bytes = rmem_wire_payload_bytes(&answer.reply);
    rmem_wire_build(out.head.data(), &answer.reply, request.key, &call.out, bytes);
    if (bytes)
        std::memcpy(out.head.data() + RMEM_HDR_BYTES, &call.out, bytes);
    out.head_bytes = RMEM_HDR_BYTES + bytes;
    out.pieces = 0;
}

bool Node::step(rmem_node_call& call) {
    std::lock_guard slow(slow_lock_);
    std::unique_lock<std::mutex> slot;
    if (call.slot >= 0)
        slot = std::unique_lock(slot_lock_[call.slot]);
    bool more = rmem_node_call_step(core_.get(), &call);
    if (call.fill.bytes)
        std::memset(page(call.fill.page) + call.fill.offset, 0, call.fill.bytes);
    return more;
}

// ---- scrubbing ----

// Takes the next pages; those never used are zero as the kernel gave them. False: none to be had.
bool Node::take_dirty() {
    std::lock_guard slow(slow_lock_);
    bool any = false;
    while (scrubbing_.pages.size() < scrub_pages) {
        bool used;
        std::uint32_t page = rmem_node_scrub_next(core_.get(), &used);
        if (page == RMEM_PAGE_NONE)
            break;
        any = true;
        if (used)
            scrubbing_.pages.push_back(page);
        else
            rmem_node_scrub_done(core_.get(), page);
    }
    // Pairs with enter().
    std::atomic_thread_fence(std::memory_order_seq_cst);
    scrubbing_.passes.clear();
    for (const Thread& thread : threads_)
        scrubbing_.passes.push_back(thread.passes.load(std::memory_order_relaxed));
    return any;
}

// One at a time: whoever comes meanwhile leaves it to the other. Should that one have looked
// already, the next request sees to it.
bool Node::scrub(unsigned int thread) {
    std::unique_lock scrubbing(scrub_lock_, std::try_to_lock);
    if (!scrubbing)
        return false;
    Counters& counters = threads_[thread].counters;
    if (scrubbing_.pages.empty() && !take_dirty())
        return false;
    if (!grace_passed())
        return true;
    std::size_t page_bytes = std::size_t{1} << config_.page_shift;
    for (std::uint32_t index : scrubbing_.pages)
        std::memset(page(index), 0, page_bytes);
    counters.add(count_scrubbed, scrubbing_.pages.size());
    std::lock_guard slow(slow_lock_);
    for (std::uint32_t index : scrubbing_.pages)
        rmem_node_scrub_done(core_.get(), index);
    scrubbing_.pages.clear();
    return true;
}

// ---- status ----

NodeReport Node::report(std::uint16_t port) {
    struct rmem_node_usage usage;
    {
        std::lock_guard slow(slow_lock_);
        rmem_node_usage(core_.get(), &usage);
    }
    NodeReport report;
    report.started = true;
    report.boot = config_.boot;
    report.port = port;
    report.memory_bytes = config_.pages << config_.page_shift;
    report.page_bytes = std::uint64_t{1} << config_.page_shift;
    report.promised_bytes = usage.pages_promised << config_.page_shift;
    report.backed_bytes = usage.pages_backed << config_.page_shift;
    report.ready_bytes = usage.pages_ready << config_.page_shift;
    report.pool_pages = config_.pool_pages;
    report.spaces = usage.spaces;
    report.spaces_max = config_.spaces_max;
    report.sessions = usage.sessions;
    report.sessions_max = config_.sessions_max;
    report.regions = usage.regions;
    report.regions_max = config_.regions_max;
    report.session_idle_ms = config_.session_idle_ms;
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
