// SPDX-License-Identifier: MIT
#include "src/backend/embedded.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "src/backend/probes.hpp"
#include "src/backend/target.hpp"
#include "src/transport/protocol.hpp"
#include "support/failure.hpp"
#include "support/key.hpp"
#include "support/parse.hpp"
#include "support/random.hpp"

namespace remora::lib {

namespace {

constexpr std::uint32_t space = 1;
constexpr std::uint32_t regions_max = 1U << 16;

rmem_node_config config_of(std::uint64_t memory_bytes, std::uint64_t page_bytes) {
    rmem_node_config config{};
    config.boot = random_value<u64>() | 1;
    for (u64& seed : config.seed)
        seed = random_value<u64>();
    config.pages = memory_bytes / page_bytes;
    config.page_shift = static_cast<u32>(std::countr_zero(page_bytes));
    // All pages are zero at first, and ready.
    config.pool_pages = static_cast<u32>(std::bit_ceil(std::max<u64>(config.pages, 2)));
    config.piece_bytes = RMEM_PIECE_BYTES_MAX;
    config.spaces_max = 1;
    config.sessions_max = 1;
    config.regions_max = regions_max;
    config.session_idle_ms = 1; // irrelevant: there is one session
    return config;
}

// Between two messages of a call. Returns an error if that is over.
int pause(const Call& call, Clock::time_point until) {
    std::this_thread::sleep_until(std::min(until, call.limit));
    const int given_up = call.given_up;
    return given_up || Clock::now() < call.limit ? given_up : -ETIMEDOUT;
}

// embedded:[size=SIZE][,page=SIZE]
Open parse(std::string_view text, const remote_options& options) {
    static_cast<void>(options); // these are about messages
    std::uint64_t memory_bytes = std::uint64_t{64} << 20;
    std::uint64_t page_bytes = std::uint64_t{64} << 10;
    parse_settings(text, {{"size", [&](auto value) { memory_bytes = parse_size(value); }},
                          {"page", [&](auto value) { page_bytes = parse_size(value); }}});
    if (!std::has_single_bit(page_bytes) || page_bytes >> RMEM_PAGE_SHIFT_MIN == 0 ||
        page_bytes > std::uint64_t{1} << RMEM_PAGE_SHIFT_MAX)
        throw Misuse("page size {} is invalid: use a power of two from 64K to 4M",
                     size_text(page_bytes));
    if (memory_bytes < page_bytes)
        throw Misuse("size {} is less than a page of {}: write more", size_text(memory_bytes),
                     size_text(page_bytes));
    return [=](Clock::time_point) { return std::make_unique<Embedded>(memory_bytes, page_bytes); };
}

} // namespace

constinit const Scheme embedded_scheme{"embedded", "embedded:", true, parse};

Embedded::Embedded(std::uint64_t memory_bytes, std::uint64_t page_bytes)
    : host_(config_of(memory_bytes, page_bytes), false, "size= of the target") {
    Key key = key_random();
    if (host_.add_space(space, key.data(), 0) != RMEM_SPACE_OK)
        throw Failure("the embedded node takes no space");
    open();
}

void Embedded::open() {
    rmem_head head{};
    head.type = RMEM_OPEN;
    head.space = space;
    head.id = 1;
    head.len = sizeof(rmem_open);
    rmem_open open{};
    rmem_node_call call;
    host_.call(call, 0, head, peer_, &open);
    if (call.answer.action != RMEM_ACT_REPLY || call.answer.reply.status != RMEM_OK)
        throw Failure("the embedded node opens no session");
    session_ = call.answer.reply.session;
    const rmem_sessions& sessions = host_.core()->sessions;
    space_index_ = sessions.slot[rmem_node_slot(host_.core(), session_)].place.memory;
}

std::uint64_t Embedded::page_bytes() const {
    return std::uint64_t{1} << host_.config().page_shift;
}

// ---- data ----

unsigned Embedded::lock_of(std::uint64_t page) {
    return static_cast<unsigned>(page * 0x9e37'79b9'7f4a'7c15ULL >> (64 - lock_bits));
}

Embedded::Locks Embedded::locks_of(std::uint64_t address, std::uint64_t bytes) const {
    std::uint64_t page = address >> host_.config().page_shift;
    std::uint64_t last = (address + bytes - 1) >> host_.config().page_shift;
    Locks locks = 0;
    for (; page <= last && locks != ~Locks{0}; page++)
        locks |= Locks{1} << lock_of(page);
    return locks;
}

Embedded::Held::Held(Embedded& node, Locks locks) : node_(node), locks_(locks) {
    for (Locks left = locks; left; left &= left - 1)
        node.lock_[static_cast<unsigned>(std::countr_zero(left))].lock();
}

Embedded::Held::~Held() {
    for (Locks left = locks_; left; left &= left - 1)
        node_.lock_[static_cast<unsigned>(std::countr_zero(left))].unlock();
}

void Embedded::Held::count(Kind kind, std::uint64_t bytes, int error) {
    Tally& tally = node_.lock_[static_cast<unsigned>(std::countr_zero(locks_))].tally;
    tally.count(kind, bytes, error);
}

// The caller holds the page's lock. Zeroes pages if none is ready: no call copies from pages that
// dealloc() has taken from the table.
template <typename Access>
int Embedded::find(Access access) {
    for (;;) {
        switch (access()) {
        case RMEM_NODE_OK:
            return 0;
        case RMEM_NODE_BUSY:
            refill();
            continue;
        case RMEM_NODE_FAULT:
            return -EFAULT;
        case RMEM_NODE_PERM:
            return -EACCES;
        default:
            return -EINVAL;
        }
    }
}

int Embedded::find(Kind kind, std::uint64_t address, std::uint32_t bytes, rmem_answer& answer) {
    return find([&] {
        return rmem_node_access(host_.core(), space_index_, type_of(kind), address, bytes, &answer);
    });
}

// Locks of its pages.
int Embedded::piece(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint32_t bytes) {
    rmem_answer answer;
    if (int error = find(kind, address, bytes, answer))
        return error;
    if (kind == Kind::write) {
        host_.copy_in(answer, data);
        return 0;
    }
    for (const rmem_extent& extent : std::span(answer.extent, answer.extents)) {
        std::memcpy(data, host_.data(extent).data(), extent.bytes);
        data += extent.bytes;
    }
    return 0;
}

// Executes the same part as an operation that travels in packets would. Locks of its pages.
int Embedded::pieces(Held& held, Kind kind, std::uint64_t address, std::uint8_t* data,
                     std::uint64_t bytes) {
    while (bytes) {
        auto now = static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, RMEM_PIECE_BYTES_MAX));
        REMOTE_PROBE_START(this, kind, address, now);
        int error = piece(kind, address, data, now);
        held.count(kind, now, error);
        REMOTE_PROBE_END(this, kind, address, now, error);
        if (error)
            return error;
        address += now;
        data += now;
        bytes -= now;
    }
    return 0;
}

int Embedded::transfer(Kind kind, std::uint64_t address, std::uint8_t* data, std::uint64_t bytes,
                       Clock::time_point) {
    while (bytes) {
        std::uint64_t now = std::min<std::uint64_t>(bytes, call_bytes_max);
        {
            Held held(*this, locks_of(address, now));
            if (int error = pieces(held, kind, address, data, now))
                return error;
        }
        if (kind == Kind::write)
            refill();
        address += now;
        data += now;
        bytes -= now;
    }
    return 0;
}

// Locks of its page.
int Embedded::apply(std::uint64_t address, std::uint32_t bytes, Change& change) {
    rmem_operands operands;
    rmem_found found;
    for (unsigned half : {0, 1}) {
        base_store_le64(&operands.value[half], change.value[half]);
        base_store_le64(&operands.compare[half], change.compare[half]);
    }
    rmem_answer answer;
    if (int error = find(Kind::write, address, bytes, answer))
        return error;
    rmem_atomic_apply(host_.page(answer.extent[0].page) + answer.extent[0].offset, change.what,
                      bytes, &operands, &found);
    for (unsigned half : {0, 1})
        change.found[half] = base_load_le64(&found.value[half]);
    return 0;
}

int Embedded::change(Held& held, std::uint64_t address, std::uint32_t bytes, Change& change) {
    if (!rmem_atomic_is_known(change.what, bytes) || (bytes == 16 && !host_.core()->has_16))
        return -EINVAL;
    REMOTE_PROBE_START(this, Kind::integer, address, bytes);
    int error = apply(address, bytes, change);
    held.count(Kind::integer, bytes, error);
    REMOTE_PROBE_END(this, Kind::integer, address, bytes, error);
    return error;
}

int Embedded::change(std::uint64_t address, std::uint32_t bytes, Change& change,
                     Clock::time_point) {
    int error;
    {
        Held held(*this, locks_of(address, bytes));
        error = this->change(held, address, bytes, change);
    }
    refill();
    return error;
}

// Locks of the pages of both.
int Embedded::put_both(const Op& op) {
    const remote_signal& signal = op.signal;
    rmem_answer data, integer;
    if (int error = find(Kind::write, signal.address, static_cast<u32>(signal.bytes), integer))
        return error;
    if (int error = find(Kind::write, op.address, op.bytes, data))
        return error;
    host_.copy_in(data, op.data);
    rmem_operands operands{};
    rmem_found found;
    base_store_le64(&operands.value[0], signal.value);
    rmem_atomic_apply(host_.page(integer.extent[0].page) + integer.extent[0].offset,
                      static_cast<u8>(signal.what), static_cast<u32>(signal.bytes), &operands,
                      &found);
    return 0;
}

int Embedded::put(Held& held, const Op& op) {
    REMOTE_PROBE_START(this, Kind::put, op.address, op.bytes);
    int error = put_both(op);
    held.count(Kind::put, op.bytes, error);
    REMOTE_PROBE_END(this, Kind::put, op.address, op.bytes, error);
    return error;
}

// Locks of the pages of both ranges.
int Embedded::copy(Held& held, const Op& op) {
    REMOTE_PROBE_START(this, Kind::copy, op.address, op.bytes);
    rmem_answer answer;
    int error = find([&] {
        return rmem_node_access_copy(host_.core(), space_index_, op.address, op.source, op.bytes,
                                     &answer);
    });
    if (!error)
        host_.copy_inside(answer);
    held.count(Kind::copy, op.bytes, error);
    REMOTE_PROBE_END(this, Kind::copy, op.address, op.bytes, error);
    return error;
}

// Locks of its pages.
int Embedded::run(Held& held, Op& op) {
    switch (op.kind) {
    case Kind::integer:
        return change(held, op.address, op.bytes, op.change);
    case Kind::put:
        return op.before && op.call->result ? -ECANCELED : put(held, op);
    case Kind::copy:
        return copy(held, op);
    default:
        return pieces(held, op.kind, op.address, op.data, op.bytes);
    }
}

// A message of an op that takes several.
int Embedded::run_step(Op& op) {
    switch (op.kind) {
    case Kind::none: // the end of a pause
        return 0;
    case Kind::alloc:
        return alloc(op.region.bytes, op.permission, op.address, op.region);
    case Kind::free:
        return dealloc(op.region);
    case Kind::zero:
        return zero(op.address, op.bytes);
    default: {
        Held held(*this, locks_of(op.address, op.bytes));
        return run(held, op);
    }
    }
}

void Embedded::start(std::span<Op> ops) {
    Op& first = ops.front();
    Call* const then = ops.front().call->then;
    // The last op's end can be the call's, and then that is gone.
    auto end = [&](Op& op, int error) {
        if (then && !has_succeeded(op, error))
            then->given_up = -ECANCELED;
        op.call->end_op(error);
    };
    if (int error = first.call->given_up) {
        for (Op& op : ops)
            end(op, error);
        return;
    }
    if (has_trait(first.kind, trait::barrier))
        release(never);
    if (first.steps)
        return end(first, run_steps(
                              first, [this](Op& op) { return run_step(op); },
                              [&](Clock::time_point until) { return pause(*first.call, until); }));
    if (has_trait(first.kind, trait::barrier))
        return end(first, 0);
    if (has_trait(first.kind, trait::name)) {
        // The op is alone in its call and touches no page. A lock makes release() wait for it.
        Held held(*this, Locks{1});
        return end(first, named(first));
    }
    Locks locks = 0;
    for (const Op& op : ops) {
        locks |= locks_of(op.address, op.bytes);
        if (op.kind == Kind::put)
            locks |= locks_of(op.signal.address, op.signal.bytes);
        if (op.kind == Kind::copy)
            locks |= locks_of(op.source, op.bytes);
    }
    {
        Held held(*this, locks);
        for (Op& op : ops)
            end(op, run(held, op));
    }
    refill();
}

int Embedded::release(Clock::time_point) {
    std::lock_guard one(release_lock_);
    for (PageLock& lock : lock_)
        std::lock_guard passed(lock);
    return 0;
}

int Embedded::zero(std::uint64_t address, std::uint32_t bytes) {
    static const std::array<std::uint8_t, RMEM_PIECE_BYTES_MAX> zeros{};
    auto* from = const_cast<std::uint8_t*>(zeros.data());
    Held held(*this, locks_of(address, bytes));
    while (bytes) {
        std::uint32_t now = std::min<std::uint32_t>(bytes, zeros.size());
        if (int error = pieces(held, Kind::write, address, from, now))
            return error;
        address += now;
        bytes -= now;
    }
    return 0;
}

// Zeroes freed pages if too few are ready.
void Embedded::refill() {
    if (!rmem_node_scrub_wanted(host_.core()))
        return;
    std::lock_guard one(refill_lock_);
    while (rmem_node_scrub_wanted(host_.core()) && (host_.has_dirty() || host_.take_dirty()))
        host_.clean();
}

void Embedded::stats(remote_counters& counters) {
    for (PageLock& lock : lock_) {
        std::lock_guard guard(lock);
        lock.tally.add_to(counters);
    }
    std::lock_guard one(call_lock_);
    calls_.add_to(counters);
}

void Embedded::info(remote_node& node, Clock::time_point) {
    const struct rmem_node_usage usage = host_.usage();
    node.page_bytes = page_bytes();
    node.memory_bytes = usage.pages * page_bytes();
    node.free_bytes = (usage.pages - usage.pages_promised) * page_bytes();
}

// ---- regions and names ----

int Embedded::call(Kind kind, const void* payload, std::uint32_t bytes, rmem_node_payload* answer) {
    std::lock_guard one(call_lock_);
    REMOTE_PROBE_START(this, kind, 0, 0);
    rmem_head request{};
    request.type = type_of(kind);
    request.space = space;
    request.session = session_;
    request.boot = host_.config().boot;
    request.id = ++id_;
    request.floor = request.id;
    request.len = bytes;
    rmem_node_call call;
    host_.call(call, 0, request, peer_, payload);
    bool replied = call.answer.action == RMEM_ACT_REPLY;
    int error = replied ? status_error(call.answer.reply.status) : -EIO;
    if (!error && answer)
        *answer = call.out;
    calls_.count(kind, 0, error);
    REMOTE_PROBE_END(this, kind, 0, 0, error);
    return error;
}

int Embedded::alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
                    Region& region) {
    rmem_alloc request{};
    rmem_node_payload found{};
    base_store_le64(&request.bytes, bytes);
    base_store_le64(&request.addr, wanted);
    base_store_le32(&request.perm, permission & REMOTE_RW);
    int error = call(Kind::alloc, &request, sizeof(request), &found);
    region = {base_load_le64(&found.range.addr), base_load_le64(&found.range.bytes)};
    if (!error && is_elsewhere(region, wanted, permission)) {
        dealloc(region);
        return -EADDRNOTAVAIL;
    }
    return error;
}

int Embedded::named(Op& op) {
    const rmem_named named = named_of(*op.name, op.address);
    rmem_node_payload found{};
    int error = call(op.kind, &named, sizeof(named), &found);
    if (!error && op.kind == Kind::lookup)
        op.region = {base_load_le64(&found.range.addr), base_load_le64(&found.range.bytes)};
    if (!error && op.kind == Kind::list)
        *op.to = region_of(found.listed);
    return error;
}

int Embedded::dealloc(const Region& region) {
    rmem_range wire;
    base_store_le64(&wire.addr, region.address);
    base_store_le64(&wire.bytes, region.bytes);
    int error;
    {
        Held held(*this, locks_of(region.address, region.bytes));
        error = call(Kind::free, &wire, sizeof(wire), nullptr);
    }
    refill();
    return error;
}

} // namespace remora::lib
