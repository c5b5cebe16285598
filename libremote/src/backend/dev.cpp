// SPDX-License-Identifier: MIT
#include "src/backend/dev.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>

#include "src/backend/cut.hpp"
#include "src/backend/target.hpp"
#include "support/failure.hpp"
#include "uapi/remora_rmem_io.h"

extern "C" {
#include "core/base/bytes.h"
}

namespace remora::lib {

namespace {

constexpr unsigned ring_entries = 256;
constexpr auto slice = std::chrono::milliseconds(10);
constexpr std::uint64_t spin_ns_max = 100 * BASE_NSEC_PER_USEC;

static_assert(int{RMEM_IO_CAS} == Change::cas && int{RMEM_IO_SMAX} == REMOTE_SMAX);
static_assert(RMEM_IO_BYTES_MAX == op_bytes_max && RMEM_IO_RANGES_MAX == ranges_max &&
              RMEM_IO_COPY_BYTES_MAX == copy_op_bytes_max &&
              RMEM_IO_NAME_BYTES_MAX == REMOTE_NAME_BYTES_MAX);
static_assert(sizeof(rmem_io_vec) <= range_room_bytes);

std::uint64_t number_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

std::uint8_t io_type(Kind kind) {
#define REMORA_KIND_DEVICE(kind, traits, counted, wire, device) device,
    static constexpr std::uint8_t types[] = {REMORA_KINDS(REMORA_KIND_DEVICE)};
#undef REMORA_KIND_DEVICE
    return types[static_cast<std::size_t>(kind)];
}

void set_name(rmem_io& io, Op& op) {
    // The kernel stores the region that a lookup, or a list, has found.
    static_assert(offsetof(remote_region, bytes) == offsetof(rmem_io_region, bytes) &&
                  offsetof(remote_region, permission) == offsetof(rmem_io_region, perm) &&
                  offsetof(remote_region, name) == offsetof(rmem_io_region, name));
    static_assert(offsetof(Region, address) == offsetof(rmem_io_range, addr) &&
                  offsetof(Region, bytes) == offsetof(rmem_io_range, bytes));
    io.data = number_of(op.name->text);
    io.bytes = static_cast<__u32>(std::strlen(op.name->text));
    if (op.kind == Kind::lookup)
        io.found = number_of(&op.region);
    if (op.kind == Kind::list) {
        *op.to = {}; // the kernel's structure is shorter
        io.found = number_of(op.to);
    }
}

void set_ranges(rmem_io& io, Op& op) {
    auto* vec = reinterpret_cast<rmem_io_vec*>(op.range_room);
    io.data = number_of(vec);
    io.ranges = static_cast<__u16>(op.now.size());
    for (const Range& range : op.now)
        *vec++ = {range.address, number_of(range.data), range.bytes, 0};
}

rmem_io io_of(Op& op) {
    rmem_io io{};
    io.type = io_type(op.kind);
    io.addr = op.address;
    io.bytes = op.bytes;
    io.data = number_of(op.data);
    io.cookie = number_of(op.call);
    if (op.kind == Kind::integer) {
        Change& change = op.change;
        io.how = change.what;
        io.data = number_of(change.found);
        std::copy(std::begin(change.value), std::end(change.value), io.value);
        std::copy(std::begin(change.compare), std::end(change.compare), io.compare);
    }
    if (op.kind == Kind::put) {
        const remote_signal& signal = op.signal;
        io.how = static_cast<__u8>(signal.what);
        io.integer_bytes = static_cast<__u16>(signal.bytes);
        io.integer = signal.address;
        io.value[0] = signal.value;
    }
    if (op.kind == Kind::copy)
        io.from = op.source;
    if (has_trait(op.kind, trait::name))
        set_name(io, op);
    if (!op.ranges.empty())
        set_ranges(io, op);
    return io;
}

// For the kernel; 0 is none.
std::uint64_t timeout_us_of(Clock::time_point limit) {
    if (limit == never)
        return 0;
    auto left = std::chrono::ceil<std::chrono::microseconds>(limit - Clock::now()).count();
    return left > 0 ? static_cast<std::uint64_t>(left) : 1;
}

// Cancels operations with this cookie, 0: with any. Without one in flight it has no effect.
void cancel_cookie(int device, std::uint64_t cookie) {
    ioctl(device, RMEM_IOC_CANCEL, &cookie);
}

// The kernel has stored the integer in wire order.
void take_found(Op& op) {
    if (op.kind != Kind::integer)
        return;
    for (std::uint64_t& found : op.change.found)
        found = base_load_le64(&found);
}

// The failure of remote_open() for an error of open(). A device that lost its node connects to it
// there.
Failure refused(int error, const std::string& path) {
    auto failure = [&](int meaning) {
        return Failure(meaning, "can't open {}: {}", path, std::strerror(error));
    };
    switch (error) {
    case EACCES:
    case EPERM:
        return Failure(EACCES,
                       "this user may not read and write {}: be root, or change the device's owner "
                       "or mode",
                       path);
    case ENOENT:
        return Failure(ENODEV,
                       "there is no {}: load the module rmem and let 'remora attach NODE "
                       "--programs' make it",
                       path);
    case EHOSTDOWN:
        return failure(EHOSTUNREACH);
    case EBUSY:
        return failure(EUSERS);
    case ENOMEM:
        return failure(ENOMEM);
    default:
        return failure(ENODEV);
    }
}

} // namespace

constinit const Scheme dev_scheme{
    "dev", "dev:/dev/rmemN", false,
    [](std::string_view path, const remote_options& options) -> Open {
        if (path.empty())
            throw Misuse("target 'dev:' names no device: write dev:/dev/rmemN");
        if (options.integrity == REMOTE_SEALED)
            throw Failure(EPROTONOSUPPORT,
                          "dev: seals if {} was attached with --integrity sealed: leave the "
                          "integrity out, or use udp:",
                          path);
        return
            [path = std::string(path)](Clock::time_point) { return std::make_unique<Dev>(path); };
    }};

Dev::Dev(const std::string& path) : device_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (!device_)
        throw refused(errno, path);
    rmem_io_info info{};
    if (ioctl(device_.get(), RMEM_IOC_INFO, &info))
        throw Failure(ENODEV, "{} isn't a device of 'remora attach --programs'", path);
    page_bytes_ = info.page_bytes;
    memory_bytes_ = info.memory_bytes;
    put_bytes_ = info.put_bytes;
    vector_bytes_ = info.vector_bytes;
    has_ring_ = !io_uring_queue_init(ring_entries, &ring_, IORING_SETUP_SQE128);
}

// Ops in flight use the program's buffers, so the destructor waits for their end. Ops that waited
// for them in order end when their turn comes.
Dev::~Dev() {
    bool left;
    do {
        Clock::time_point again;
        {
            Lock lock(lock_);
            closing_ = true;
            end_later(nullptr);
            cancel_cookie(device_.get(), 0);
            again = Clock::now() + slice;
        }
        left = release(again) != 0;
    } while (left);
    if (has_ring_)
        io_uring_queue_exit(&ring_);
}

bool Dev::disown() {
    device_ = Descriptor();
    // Once: the child can open other files under that number.
    if (has_ring_ && ring_.ring_fd >= 0)
        close(std::exchange(ring_.ring_fd, -1));
    return false;
}

// ---- operations ----

void Dev::begin(Op& op) noexcept {
    // The thread that executes the op itself waits for this.
    if (!has_ring_ || op.kind == Kind::alloc || op.kind == Kind::free)
        return;
    if (under_way_ < ring_entries && !closing_)
        return submit(op);
    begin_later(op);
}

void Dev::begin_later(Op& op) {
    op.next = nullptr;
    (later_ ? last_->next : later_) = &op;
    last_ = &op;
}

void Dev::submit(Op& op) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (!sqe)
        std::terminate(); // impossible: under_way_ is below the ring's size
    rmem_io io = io_of(op);
    std::memset(sqe, 0, sizeof(*sqe) * 2);
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = device_.get();
    sqe->cmd_op = RMEM_IO_URING;
    sqe->user_data = number_of(&op);
    std::memcpy(sqe->cmd, &io, sizeof(io)); // goes on into the SQE's second half
    if (const std::uint16_t* buffer = buffer_of(op)) {
        sqe->uring_cmd_flags = IORING_URING_CMD_FIXED;
        sqe->buf_index = *buffer;
    }
    under_way_++;
}

// The registered buffer that holds all data of the op, or NULL.
const std::uint16_t* Dev::buffer_of(const Op& op) const {
    if (buffers_.empty() || !op.data || !op.ranges.empty())
        return nullptr;
    auto found = buffers_.lower_bound(op.data + op.bytes);
    return found != buffers_.end() && found->second.first <= op.data ? &found->second.second
                                                                     : nullptr;
}

// Lock. Cancels submitted ops in the kernel; the others end here.
void Dev::take_back(Call& call) noexcept {
    // The kernel can cancel submitted ops only.
    flush();
    cancel_cookie(device_.get(), number_of(&call));
    end_later(&call);
}

// Lock. Ends the ops in later_ of the call, null: of any.
void Dev::end_later(const Call* call) {
    do {
        Op* rest = std::exchange(later_, nullptr);
        while (rest) {
            Op& op = *rest;
            rest = op.next;
            if (!call || op.call == call)
                end(op, op.call->error_of_end(-ECANCELED));
            else
                begin_later(op);
        }
    } while (!call && later_);
}

// SQEs that the kernel refuses now are submitted when some ops have ended: receive() calls this,
// too.
void Dev::flush() noexcept {
    if (has_ring_)
        io_uring_submit(&ring_);
}

// Enters ops that this thread executes itself, under one lock, so that no other op comes between.
void Dev::enter_all(std::span<Op> ops) {
    Lock lock(lock_);
    for (Op& op : ops) {
        if (enter(op, now_ns()))
            begin(op);
    }
}

// Executes the op in this thread when its order permits, without the lock during request(), unless
// another thread gives its call up before. If the op fails, so does the PUT that waits for it.
template <typename Request>
int Dev::carry_out(Op& op, Clock::time_point limit, Op* put, Request request) {
    int error = 0;
    const auto may_begin = [&] {
        error = op.call->given_up;
        return error || !op.blockers;
    };
    if (!wait_for(may_begin, limit))
        error = -ETIMEDOUT;
    if (!error)
        error = request();
    Lock lock(lock_);
    if (error && put)
        end(*put, error);
    end(op, error);
    flush();
    return error;
}

// Waits, without a ring, unless the op's call is given up. Returns an error then.
int Dev::pause(const Op& op, Clock::time_point until, Clock::time_point limit) {
    wait_for([&] { return op.call->given_up != 0; }, std::min(until, limit));
    const int given_up = op.call->given_up;
    return given_up || Clock::now() < limit ? given_up : -ETIMEDOUT;
}

// The op keeps its place in the order meanwhile, which is of its own kind.
int Dev::steps_by_ioctl(Op& op, Clock::time_point limit) {
    const Kind kind = op.kind;
    const int error = run_steps(
        op,
        [&](Op& step) {
            const Kind sent = step.kind;
            const int result = by_ioctl(step, limit);
            if (sent != Kind::release) { // an UNLOCK begins as one, and sends nothing
                Lock lock(lock_);
                tally_.count(sent, step.bytes, result);
            }
            return result;
        },
        [&](Clock::time_point until) { return pause(op, until, limit); });
    op.kind = kind;
    op.steps = nullptr; // end() is to ask for none
    return error;
}

// Executes ops one by one without a ring.
int Dev::by_ioctl(Op& op, Clock::time_point limit) {
    if (op.kind == Kind::release)
        return 0;
    int error;
    do {
        rmem_io io = io_of(op);
        const bool is_longer = op.settles && limit != never;
        io.timeout_us =
            timeout_us_of(is_longer ? std::max(limit, Clock::now() + settle_time) : limit);
        error = ioctl(device_.get(), RMEM_IOC_IO, &io) ? -errno : 0;
        take_found(op);
    } while (!op.ranges.empty() && retry_next_range(op, error));
    return error;
}

void Dev::start(std::span<Op> ops) {
    if (has_ring_)
        return Queued::start(ops);
    // Don't touch a call that has ended.
    Call& call = *ops.front().call;
    Clock::time_point limit = call.limit;
    Call* const then = std::exchange(call.then, nullptr); // start_all()'s
    if (call.given_up) {
        Lock lock(lock_);
        if (then)
            then->given_up = -ECANCELED;
        return end_unbegun(call, now_ns());
    }
    Op* put = ops.back().before ? &ops.back() : nullptr;
    enter_all(ops);
    while (!ops.empty()) {
        Op& op = ops.front();
        ops = ops.subspan(1);
        if (ops.empty())
            put = nullptr; // op is the PUT, or there is none
        auto request = [&] {
            int error = op.steps ? steps_by_ioctl(op, limit) : by_ioctl(op, limit);
            if (then && !has_succeeded(op, error))
                then->given_up = -ECANCELED;
            return error;
        };
        const int error = carry_out(op, limit, put, request);
        if (error && then)
            then->given_up = -ECANCELED;
        if (error && put) {
            put = nullptr;
            ops = ops.first(ops.size() - 1);
        }
    }
}

void Dev::start_all(std::span<Call* const> calls) {
    has_ring_ ? Queued::start_all(calls) : Backend::start_all(calls);
}

int Dev::alloc(std::uint64_t bytes, std::uint32_t permission, std::uint64_t wanted,
               Region& region) {
    Call call;
    call.begin(1);
    Op op;
    op.kind = Kind::alloc;
    op.call = &call;
    enter_all({&op, 1});
    return carry_out(op, never, nullptr, [&] {
        rmem_io_alloc io{};
        io.bytes = bytes;
        io.addr = wanted;
        io.perm = permission & REMOTE_RW;
        int error = ioctl(device_.get(), RMEM_IOC_ALLOC, &io) ? -errno : 0;
        region = {io.addr, io.bytes};
        if (error || !is_elsewhere(region, wanted, permission))
            return error;
        rmem_io_range elsewhere{region.address, region.bytes};
        ioctl(device_.get(), RMEM_IOC_FREE, &elsewhere);
        return -EADDRNOTAVAIL;
    });
}

int Dev::dealloc(const Region& region) {
    Call call;
    call.begin(1);
    Op op;
    op.kind = Kind::free;
    op.region = region;
    op.call = &call;
    enter_all({&op, 1});
    return carry_out(op, never, nullptr, [&] {
        rmem_io_range io{region.address, region.bytes};
        return ioctl(device_.get(), RMEM_IOC_FREE, &io) ? -errno : 0;
    });
}

// ---- registered buffers ----

int Dev::keep_buffer(unsigned number, std::span<std::uint8_t> memory) {
    Lock lock(lock_);
    if (!has_ring_)
        return 0;
    if (!has_buffers_) {
        if (int error = io_uring_register_buffers_sparse(&ring_, REMOTE_BUFFERS_MAX))
            return error;
        has_buffers_ = true;
    }
    // Before it is registered, for it takes memory.
    decltype(buffers_) made{
        {memory.data() + memory.size(), {memory.data(), static_cast<std::uint16_t>(number)}}};
    iovec vector{memory.data(), memory.size()};
    __u64 tag = 0;
    int updated = io_uring_register_buffers_update_tag(&ring_, number, &vector, &tag, 1);
    if (updated < 0)
        return updated;
    buffers_.merge(made);
    return 0;
}

void Dev::drop_buffer(unsigned number) {
    Lock lock(lock_);
    std::erase_if(buffers_, [&](const auto& buffer) { return buffer.second.second == number; });
    iovec none{};
    __u64 tag = 0;
    flush(); // SQEs that name the buffer must be submitted before
    if (has_buffers_)
        io_uring_register_buffers_update_tag(&ring_, number, &none, &tag, 1);
}

void Dev::info(remote_node& node, Clock::time_point) {
    node.page_bytes = page_bytes_;
    node.memory_bytes = memory_bytes_;
    node.free_bytes = std::numeric_limits<std::uint64_t>::max();
}

void Dev::stats(remote_counters& counters) {
    Lock lock(lock_);
    tally_.add_to(counters);
}

// ---- waiting ----

void Dev::receive(Lock& lock, Clock::time_point until) noexcept {
    flush();
    lock.unlock();
    Clock::time_point began = Clock::now();
    // Ops outside the ring can end, too, and can need flush() again: so wait for a slice only.
    until = std::min(until, began + slice);
    bool some = listen(until);
    auto waited = static_cast<std::uint64_t>((Clock::now() - began).count());
    lock.lock();
    if (some)
        spin_ns_ = std::min((7 * spin_ns_ + 2 * waited) / 8, spin_ns_max);
    take_in();
}

// False: until has come.
bool Dev::listen(Clock::time_point until) {
    io_uring_cqe* cqe;
    Clock::time_point spin_end = std::min(until, Clock::now() + std::chrono::nanoseconds(spin_ns_));
    do {
        if (!io_uring_peek_cqe(&ring_, &cqe))
            return true;
    } while (Clock::now() < spin_end);
    if (until == never)
        return !io_uring_wait_cqe(&ring_, &cqe);
    auto ns = (until - Clock::now()).count();
    if (ns <= 0)
        return false;
    __kernel_timespec left{ns / 1'000'000'000, ns % 1'000'000'000};
    return !io_uring_wait_cqe_timeout(&ring_, &cqe, &left);
}

// Lock.
void Dev::take_in() noexcept {
    if (!has_ring_)
        return;
    io_uring_cqe* cqe;
    while (!io_uring_peek_cqe(&ring_, &cqe)) {
        Op& op = *reinterpret_cast<Op*>(cqe->user_data);
        int error = cqe->res;
        io_uring_cqe_seen(&ring_, cqe);
        under_way_--;
        take_found(op);
        end(op, error == -ECANCELED ? op.call->error_of_end(error) : error);
        if (Op* next = later_; next && under_way_ < ring_entries && !closing_) {
            later_ = next->next;
            submit(*next);
        }
    }
    if (closing_)
        end_later(nullptr);
}

} // namespace remora::lib
