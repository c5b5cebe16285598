// SPDX-License-Identifier: MIT
#include "src/backend/build.hpp"

#include <algorithm>
#include <utility>

#include "remote/lock.h"
#include "src/backend/integers.hpp"

namespace remora::lib {

Args args_of(std::uint32_t kind) {
    switch (kind) {
    case REMOTE_OP_READ:
    case REMOTE_OP_WRITE:
        return Args::data;
    case REMOTE_OP_READV:
    case REMOTE_OP_WRITEV:
        return Args::pieces;
    case REMOTE_OP_FETCH:
        return Args::integer;
    case REMOTE_OP_CAS:
        return Args::cas;
    case REMOTE_OP_PUT:
        return Args::put;
    case REMOTE_OP_COPY:
        return Args::copy;
    case REMOTE_OP_PUBLISH:
        return Args::publish;
    case REMOTE_OP_LOOKUP:
        return Args::name;
    case REMOTE_OP_LIST:
        return Args::region;
    case REMOTE_OP_QUERY:
    case REMOTE_OP_CALL:
        return Args::run;
    case REMOTE_OP_RELEASE:
    case REMOTE_OP_FENCE:
        return Args::none;
    case REMOTE_OP_ALLOC:
        return Args::alloc;
    case REMOTE_OP_FREE:
        return Args::free;
    case REMOTE_OP_LOCK:
    case REMOTE_OP_UNLOCK:
        return Args::lock;
    default:
        return Args::invalid;
    }
}

// Room for the ops of a call.
std::span<Op> Built::room(std::size_t count) {
    if (count <= 1)
        return {&first_, 1};
    more_ = std::vector<Op>(count);
    return more_;
}

std::span<Op> Built::make_pieces(const remote_op& op, const Backend& backend, Call& call) {
    const bool reads = op.kind == REMOTE_OP_READ || op.kind == REMOTE_OP_READV;
    const remote_vec one{op.address, op.buffer, op.bytes};
    std::span<const remote_vec> pieces{&one, 1};
    if (op.kind == REMOTE_OP_READV || op.kind == REMOTE_OP_WRITEV)
        pieces = {op.pieces, op.count};
    const Cut cut(reads ? Kind::read : Kind::write, pieces, backend.vector_bytes());
    const std::span<Op> ops = room(cut.ops());
    if (cut.ranges())
        ranges_ = Ranges(cut.ranges());
    cut.make(ops, call, ranges_);
    return ops;
}

// The last bytes, at most put_bytes(), go with the integer in one message; writes before it carry
// the others.
std::span<Op> Built::make_put(const remote_op& op, const Backend& backend, Call& call) {
    const std::size_t before = op.bytes - std::min<std::size_t>(op.bytes, backend.put_bytes());
    auto* data = static_cast<std::uint8_t*>(op.buffer);
    const std::span<Op> ops = room(ops_for(before) + 1);
    cut(ops, call, Kind::write, op.address, data, before);
    Op& put = ops.back();
    put.kind = Kind::put;
    put.address = op.address + before;
    put.bytes = static_cast<std::uint32_t>(op.bytes - before);
    put.signal = *op.signal;
    put.data = data + before;
    put.before = before;
    return ops;
}

void Built::make_named(Kind kind, const char* name, raddr_t address) {
    name_ = std::make_unique<RegionName>(name);
    first_.kind = kind;
    first_.address = address;
    first_.bytes = 0;
    first_.region = {};
    first_.name = name_.get();
    first_.data = nullptr;
}

std::span<Op> Built::make_ops(const remote_op& op, const Backend& backend, Call& call) {
    const std::span<Op> one{&first_, 1};
    switch (op.kind) {
    case REMOTE_OP_PUT:
        return make_put(op, backend, call);
    case REMOTE_OP_PUBLISH:
        make_named(Kind::publish, static_cast<const char*>(op.buffer), op.address);
        return one;
    case REMOTE_OP_LOOKUP:
        make_named(Kind::lookup, static_cast<const char*>(op.buffer), 0);
        found_ = op.found;
        return one;
    case REMOTE_OP_LIST:
        make_named(Kind::list, "", op.address);
        first_.to = static_cast<remote_region*>(op.buffer);
        return one;
    case REMOTE_OP_QUERY:
    case REMOTE_OP_CALL:
        first_.kind = op.kind == REMOTE_OP_CALL ? Kind::call : Kind::query;
        first_.run = static_cast<remote_function*>(op.buffer);
        first_.run->detail = 0;
        first_.address = 0;
        first_.bytes = static_cast<std::uint32_t>(first_.run->args_bytes);
        first_.data = static_cast<std::uint8_t*>(const_cast<void*>(first_.run->args));
        return one;
    case REMOTE_OP_FETCH:
    case REMOTE_OP_CAS:
        first_.kind = Kind::integer;
        first_.address = op.address;
        first_.bytes = static_cast<std::uint32_t>(op.bytes);
        first_.change = op.kind == REMOTE_OP_CAS ? cas_of(op.bytes, op.expected, op.value)
                                                 : fetch_of(op.change, op.value[0]);
        first_.data = nullptr;
        found_ = op.found;
        return one;
    case REMOTE_OP_COPY:
        return cut_copy(room(copies_for(op.bytes)), call, op.address, op.from, op.bytes);
    case REMOTE_OP_ALLOC:
    case REMOTE_OP_FREE:
    case REMOTE_OP_LOCK:
        first_.kind = Kind::none; // until the first step
        found_ = op.found;
        return one;
    case REMOTE_OP_RELEASE:
    case REMOTE_OP_FENCE:
        first_.kind = op.kind == REMOTE_OP_FENCE ? Kind::fence : Kind::release;
        first_.address = 0;
        first_.bytes = 0;
        first_.data = nullptr;
        return one;
    case REMOTE_OP_UNLOCK:
        first_.kind = Kind::release; // until the first step
        first_.address = op.address;
        first_.bytes = REMOTE_LOCK_BYTES;
        first_.data = nullptr;
        return one;
    default:
        return make_pieces(op, backend, call);
    }
}

void Built::make(const remote_op& op, const Backend& backend, StepsMaker& maker, Call& call,
                 Clock::time_point limit) {
    steps_ = maker.steps_of(op);
    const std::span<Op> ops = make_ops(op, backend, call);
    // The parts of one operation keep their order: a PUT's signal comes after its data.
    const bool is_unordered = op.flags & REMOTE_OP_UNORDERED && ops.size() == 1;
    for (Op& each : ops) {
        each.call = &call;
        each.is_unordered = is_unordered;
    }
    first_.steps = steps_.get();
    first_.is_aside = op.kind == REMOTE_OP_LOCK;
    // A lock is taken beside all that is in flight: its holder waits for nobody.
    first_.is_unordered |= first_.is_aside;
    // Later barriers wait for all of its steps, and later operations on a lock's memory for UNLOCK.
    first_.keeps_place = op.kind == REMOTE_OP_UNLOCK || op.kind == REMOTE_OP_ALLOC;
    call.begin(ops.size(), limit);
    call.ops = ops;
}

int Built::hand_over(int result) {
    std::uint64_t* found = std::exchange(found_, nullptr);
    if (result)
        return result;
    if (steps_)
        return steps_->hand_over(found);
    if (first_.kind == Kind::integer) {
        const Change& change = first_.change;
        if (found)
            std::copy_n(change.found, first_.bytes == 16 ? 2 : 1, found);
        return change.what == Change::cas && std::ranges::equal(change.found, change.compare);
    }
    if (first_.kind == Kind::lookup && found) {
        found[0] = first_.region.address;
        found[1] = first_.region.bytes;
    }
    return 0;
}

void Built::clear() {
    more_.clear();
    name_.reset();
    steps_.reset();
    first_.ranges = {};
    first_.before = 0;
    first_.kind = Kind::none;
    first_.steps = nullptr;
    first_.begins_at = {};
    first_.settles = false;
}

} // namespace remora::lib
