// SPDX-License-Identifier: MIT
#include "src/api/checked.hpp"

#include <cstring>
#include <span>
#include <string>
#include <system_error>

#include "src/backend/build.hpp"
#include "src/backend/integers.hpp"

namespace remora::lib {

namespace {

thread_local std::string why;

const char* error_text(int error) {
    switch (error) {
    case 0:
        return "no error";
    case EINVAL:
        return "invalid argument, or memory that an operation can't use";
    case EFAULT:
        return "no such remote memory: never allocated, freed, or beyond a region's end";
    case EACCES:
        return "the region, the space or the device doesn't permit it";
    case ENOSPC:
        return "the node, the space's quota or a table is full";
    case ETIMEDOUT:
        return "the node was silent for too long, or the time limit expired";
    case ESTALE:
        return "the node restarted and its memory is lost: see remote_lost()";
    case EADDRNOTAVAIL:
        return "the wanted address can't be had: ask for REMOTE_ANYWHERE, or for another one";
    case EBADF:
        return "the handle was closed";
    case ECHILD:
        return "the handle belongs to the parent process: open one in this process";
    case ENOMEM:
        return "no memory left on this machine, or more than RLIMIT_MEMLOCK permits (ulimit -l)";
    case ECONNRESET:
        return "the session ended before the answer: executed once or never";
    case ECANCELED:
        return "the operation was cancelled";
    case EAGAIN:
        return "not yet: the queue is full, or the time is up";
    case ENOENT:
        return "no such operation, or no such name";
    case EHOSTUNREACH:
        return "nothing comes back: the machine is down, or a firewall is in the way";
    case ECONNREFUSED:
        return "the port is refused: no node is there, or a firewall refuses it";
    case EKEYREJECTED:
        return "no answer, though the machine is there: another key or space, a firewall, or no "
               "node";
    case EPROTO:
        return "the program there is no memory node of this version";
    case EUSERS:
        return "the node has no session left: end some clients, or start it with more --sessions";
    case ENOKEY:
        return "no key, or one that can't be read: 'remora key new' makes one";
    case ENODEV:
        return "no such device: 'remora attach NODE --programs' makes one";
    case EPERM:
        return "the calling thread doesn't hold the lock, or no longer";
    case EDEADLK:
        return "the calling thread holds the lock already";
    case EEXIST:
        return "it exists already";
    case EOPNOTSUPP:
        return "this target or system can't do that: see the call's man page";
    case ENOSYS:
        return "the node has no such offload for this client: 'remora node offload list' there "
               "has them";
    case EREMOTEIO:
        return "the function at the node failed: remote_function.detail is its errno";
    case ETIME:
        return "the function used up its budget of the node's time: remote_function.detail is its "
               "time in microseconds";
    case EIO:
        return "the node refused for another reason";
    default:
        return "an error of the system";
    }
}

} // namespace

int fail(int error, const char* text) noexcept {
    try {
        why = text;
    } catch (const std::bad_alloc&) {
        why.clear();
    }
    return error;
}

namespace {

int told(bool tells, int error, const char* text) noexcept {
    return tells ? fail(error, text) : error;
}

} // namespace

int caught(bool tells) noexcept {
    try {
        throw;
    } catch (const Misuse& misuse) {
        return told(tells, -EINVAL, misuse.what());
    } catch (const Failure& failure) {
        return told(tells, failure.error() ? -failure.error() : -EIO, failure.what());
    } catch (const std::bad_alloc&) {
        return told(tells, -ENOMEM, "no memory left here");
    } catch (const std::system_error& error) {
        return told(tells, -error.code().value(), error.what());
    } catch (const std::exception& other) {
        return told(tells, -EIO, other.what());
    } catch (...) {
        return told(tells, -EIO, "an unknown failure");
    }
}

int check(const remote_t* r) {
    if (!r)
        return -EINVAL;
    const Handle* handle = handle_of(r);
    if (!handle)
        return -EBADF;
    return handle->is_foreign() ? -ECHILD : 0;
}

int check_range(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes) {
    if (int error = check(r))
        return error;
    if (!bytes || !buffer || address + bytes < address || is_mapped(buffer, bytes))
        return -EINVAL;
    return 0;
}

int check_integer(const remote_t* r, raddr_t address, std::size_t bytes) {
    if (int error = check(r))
        return error;
    return (bytes == 4 || bytes == 8) && address % bytes == 0 ? 0 : -EINVAL;
}

int check_cas(const remote_t* r, raddr_t address, std::size_t bytes) {
    if (bytes != 16)
        return check_integer(r, address, bytes);
    int error = check(r);
    return error || address % 16 == 0 ? error : -EINVAL;
}

int check_copy(const remote_t* r, raddr_t to, raddr_t from, std::size_t bytes) {
    if (int error = check(r))
        return error;
    const raddr_t distance = to > from ? to - from : from - to;
    return bytes && to + bytes >= to && from + bytes >= from && distance >= bytes ? 0 : -EINVAL;
}

int check_lock(const remote_t* r, raddr_t lock) {
    const int error = check(r);
    return error || (lock && lock % 8 == 0) ? error : -EINVAL;
}

int check_alloc(const remote_t* r, raddr_t wanted, std::uint64_t bytes, unsigned permission) {
    if (int error = check(r))
        return error;
    const unsigned access = permission & REMOTE_RW;
    const unsigned flags = wanted ? REMOTE_OWN_PAGES | REMOTE_ANYWHERE : int{REMOTE_OWN_PAGES};
    const bool is_access = access == REMOTE_READ || access == REMOTE_RW;
    return bytes && is_access && !(permission & ~(access | flags)) ? 0 : -EINVAL;
}

namespace {

// Allocation and freeing as operations.
int check_memory(const remote_t* r) {
    const int error = check(r);
    return error || handle_of(r)->epoch()->backend->can_allocate() ? error : -EOPNOTSUPP;
}

int check_name(const remote_t* r, const char* name) {
    if (int error = check(r))
        return error;
    return name && *name && strnlen(name, REMOTE_NAME_BYTES_MAX + 1) <= REMOTE_NAME_BYTES_MAX
               ? 0
               : -EINVAL;
}

int check_publish(const remote_t* r, const char* name, raddr_t address) {
    if (int error = check_name(r, name))
        return error;
    const EpochRef epoch = handle_of(r)->epoch();
    if (address && epoch->heap.is_small(address))
        return -EINVAL;
    return address % epoch->backend->page_bytes() ? -EFAULT : 0;
}

constexpr std::size_t bytes_max = std::size_t{1} << 30; // of an operation

int check_put(const remote_t* r, raddr_t address, const void* buffer, std::size_t bytes,
              const remote_signal* signal) {
    if (!signal || !is_change(signal->what))
        return -EINVAL;
    if (int error = check_range(r, address, buffer, bytes))
        return error;
    return check_integer(r, signal->address, signal->bytes);
}

int check_pieces(const remote_t* r, const remote_vec* pieces, std::size_t count) {
    if (!pieces || !count || count > REMOTE_PIECES_MAX)
        return -EINVAL;
    std::size_t bytes = 0;
    for (const remote_vec& piece : std::span(pieces, count)) {
        if (int error = check_range(r, piece.address, piece.buffer, piece.bytes))
            return error;
        bytes += std::min(piece.bytes, bytes_max + 1);
    }
    return bytes <= bytes_max ? 0 : -EINVAL;
}

int check_region(const remote_t* r, const void* to) {
    const int error = check(r);
    return error || (to && !is_mapped(to, sizeof(remote_region))) ? error : -EINVAL;
}

int check_run(const remote_t* r, const remote_function* what, bool is_query) {
    if (int error = check(r))
        return error;
    const EpochRef epoch = handle_of(r)->epoch();
    if (!epoch->backend->can_run())
        return -EOPNOTSUPP;
    if (!what || is_mapped(what, sizeof(*what)) || what->function >= 32 ||
        what->args_bytes > REMOTE_ARGS_BYTES_MAX ||
        (is_query && what->result_bytes > epoch->backend->vector_bytes()))
        return -EINVAL;
    auto is_sound = [](const void* buffer, std::size_t bytes) {
        return !bytes || (buffer && !is_mapped(buffer, bytes));
    };
    return is_sound(what->args, what->args_bytes) && is_sound(what->result, what->result_bytes)
               ? 0
               : -EINVAL;
}

} // namespace

int check_op(const remote_t* r, const remote_op& op) {
    if (op.flags & ~(REMOTE_OP_LINK | REMOTE_OP_UNORDERED))
        return -EINVAL;
    const bool is_long = op.bytes > bytes_max;
    const auto* name = static_cast<const char*>(op.buffer);
    switch (args_of(op.kind)) {
    case Args::none:
        return check(r);
    case Args::data:
        return is_long ? -EINVAL : check_range(r, op.address, op.buffer, op.bytes);
    case Args::copy:
        return is_long ? -EINVAL : check_copy(r, op.address, op.from, op.bytes);
    case Args::put:
        return is_long ? -EINVAL : check_put(r, op.address, op.buffer, op.bytes, op.signal);
    case Args::pieces:
        return check_pieces(r, op.pieces, op.count);
    case Args::integer:
        return is_change(op.change) ? check_integer(r, op.address, op.bytes) : -EINVAL;
    case Args::cas:
        return check_cas(r, op.address, op.bytes);
    case Args::publish:
        return check_publish(r, name, op.address);
    case Args::name:
        return check_name(r, name);
    case Args::region:
        return check_region(r, op.buffer);
    case Args::run:
        return check_run(r, static_cast<const remote_function*>(op.buffer),
                         op.kind == REMOTE_OP_QUERY);
    case Args::alloc:
        if (int error = check_memory(r))
            return error;
        return op.found ? check_alloc(r, op.address, op.bytes, op.change) : -EINVAL;
    case Args::free:
        return check_memory(r);
    case Args::lock:
        return check_lock(r, op.address);
    case Args::invalid:
        break;
    }
    return -EINVAL;
}

void check_size(const void* given, std::string_view name, std::size_t bytes, std::size_t known,
                std::size_t least) {
    if (bytes < least || bytes > structure_bytes_max)
        throw Misuse("the structure's size is {}: set it to sizeof(struct {})", bytes, name);
    if (bytes <= known)
        return;
    std::span tail(static_cast<const std::uint8_t*>(given) + known, bytes - known);
    if (std::ranges::any_of(tail, [](std::uint8_t byte) { return byte != 0; }))
        throw Misuse("struct {} sets a field that this version of libremote doesn't know", name);
}

} // namespace remora::lib

REMOTE_API const char* remote_why(void) {
    return remora::lib::why.c_str();
}

REMOTE_API const char* remote_strerror(int error) {
    return remora::lib::error_text(error < 0 ? -error : error);
}

REMOTE_API unsigned remote_version(void) {
    return REMOTE_VERSION;
}
