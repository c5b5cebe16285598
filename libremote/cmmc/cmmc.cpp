// SPDX-License-Identifier: MIT
#include "remote/cmmc.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/ioctl.h>

#include "remora_cmmc.h"

namespace {

static_assert(sizeof(cmmc_handle_t) == sizeof(cmmc_handle));
static_assert(CMMC_READ == CMMC_GRANT_READ && CMMC_WRITE == CMMC_GRANT_WRITE);

template <class Struct>
int call(int cmmc, unsigned long command, Struct& in) {
    in.size = sizeof(in);
    return ioctl(cmmc, command, &in) < 0 ? -errno : 0;
}

cmmc_handle to_kernel(const cmmc_handle_t* handle) {
    cmmc_handle out;
    std::memcpy(&out, handle, sizeof(out));
    return out;
}

int copy(int cmmc, unsigned long command, const cmmc_handle_t* handle, cmmc_copy in) {
    in.handle = to_kernel(handle);
    for (;;) {
        int error = call(cmmc, command, in);
        if (error != -EINTR || !in.done)
            return error;
        in.address += in.done;
        in.offset += in.done;
        in.bytes -= in.done;
    }
}

cmmc_copy of_memory(uint64_t offset, const void* address, size_t bytes) {
    cmmc_copy in{};
    in.address = reinterpret_cast<uintptr_t>(address);
    in.offset = offset;
    in.bytes = bytes;
    return in;
}

cmmc_copy of_buffer(uint64_t offset, int buffer, uint64_t at, size_t bytes) {
    cmmc_copy in{};
    in.flags = CMMC_COPY_BUFFER;
    in.buffer = static_cast<uint32_t>(buffer);
    in.address = at;
    in.offset = offset;
    in.bytes = bytes;
    return in;
}

constexpr unsigned WRITE_FLAGS = CMMC_SIGNAL | CMMC_POSTED;

__u32 copy_flags(unsigned flags) {
    return (flags & CMMC_SIGNAL ? CMMC_COPY_SIGNAL : 0) |
           (flags & CMMC_POSTED ? CMMC_COPY_POSTED : 0);
}

int write(int cmmc, const cmmc_handle_t* to, cmmc_copy in, unsigned flags) {
    if (flags & ~WRITE_FLAGS)
        return -EINVAL;
    in.flags |= copy_flags(flags);
    int error = copy(cmmc, CMMC_IOC_WRITE, to, in);
    if (error != -EINVAL || !(in.flags & CMMC_COPY_POSTED))
        return error;
    // An older kernel doesn't know that flag, which permits more than it asks for.
    in.flags &= ~CMMC_COPY_POSTED;
    return copy(cmmc, CMMC_IOC_WRITE, to, in);
}

// A copy as a submission entry. fixed: a buffer of the ring, or -1.
void prepare(io_uring_sqe* sqe, int cmmc, unsigned command, const cmmc_handle_t* handle,
             cmmc_copy in, unsigned flags, int fixed = -1) {
    in.size = sizeof(in);
    in.flags |= copy_flags(flags);
    // No flag of the kernel's, which makes the copy fail with EINVAL.
    if (flags & ~WRITE_FLAGS)
        in.flags |= 1U << 31;
    in.handle = to_kernel(handle);
    std::memset(sqe, 0, sizeof(*sqe));
    sqe->opcode = IORING_OP_URING_CMD;
    sqe->fd = cmmc;
    sqe->cmd_op = command;
    if (fixed >= 0) {
        sqe->uring_cmd_flags = 1; // IORING_URING_CMD_FIXED, which headers of 6.1 lack
        sqe->buf_index = static_cast<__u16>(fixed);
    }
    // The command takes the entry's last 16 bytes and the 64 behind it.
    static_assert(sizeof(in) == 80);
    std::memcpy(reinterpret_cast<char*>(sqe) + sizeof(*sqe) - 16, &in, sizeof(in));
}

// eventfd below 0: none.
int translate(int cmmc, struct cmmc_translate& in, int eventfd, cmmc_handle_t* handle) {
    if (eventfd >= 0) {
        in.flags |= CMMC_GRANT_EVENTFD;
        in.eventfd = eventfd;
    }
    int error = call(cmmc, CMMC_IOC_TRANSLATE, in);
    if (!error)
        std::memcpy(handle, &in.handle, sizeof(*handle));
    return error;
}

} // namespace

#pragma GCC visibility push(default)

extern "C" {

int cmmc_open(const char* path) {
    int cmmc = open(path ? path : "/dev/cmmc", O_RDWR | O_CLOEXEC);
    return cmmc < 0 ? -errno : cmmc;
}

int cmmc_translate(int cmmc, unsigned port, void* address, size_t bytes, unsigned rights,
                   int eventfd, cmmc_handle_t* handle) {
    struct cmmc_translate in {};
    if (rights & ~(CMMC_READ | CMMC_WRITE))
        return -EINVAL;
    in.flags = rights;
    in.address = reinterpret_cast<uintptr_t>(address);
    in.bytes = bytes;
    in.port = port;
    return translate(cmmc, in, eventfd, handle);
}

int cmmc_revoke(int cmmc, const cmmc_handle_t* handle) {
    struct cmmc_revoke in {};
    in.handle = to_kernel(handle);
    return call(cmmc, CMMC_IOC_REVOKE, in);
}

int cmmc_register(int cmmc, void* address, size_t bytes) {
    struct cmmc_register in {};
    in.address = reinterpret_cast<uintptr_t>(address);
    in.bytes = bytes;
    int error = call(cmmc, CMMC_IOC_REGISTER, in);
    return error ? error : static_cast<int>(in.buffer);
}

int cmmc_unregister(int cmmc, int buffer) {
    struct cmmc_unregister in {};
    in.buffer = static_cast<uint32_t>(buffer);
    return call(cmmc, CMMC_IOC_UNREGISTER, in);
}

int cmmc_write(int cmmc, const cmmc_handle_t* to, uint64_t offset, const void* from, size_t bytes,
               unsigned flags) {
    return write(cmmc, to, of_memory(offset, from, bytes), flags);
}

int cmmc_read(int cmmc, const cmmc_handle_t* from, uint64_t offset, void* to, size_t bytes) {
    return copy(cmmc, CMMC_IOC_READ, from, of_memory(offset, to, bytes));
}

int cmmc_write_buffer(int cmmc, const cmmc_handle_t* to, uint64_t offset, int buffer, uint64_t at,
                      size_t bytes, unsigned flags) {
    return write(cmmc, to, of_buffer(offset, buffer, at, bytes), flags);
}

int cmmc_read_buffer(int cmmc, const cmmc_handle_t* from, uint64_t offset, int buffer, uint64_t at,
                     size_t bytes) {
    return copy(cmmc, CMMC_IOC_READ, from, of_buffer(offset, buffer, at, bytes));
}

int cmmc_bell(int cmmc, unsigned port, int eventfd, cmmc_handle_t* handle) {
    struct cmmc_translate in {};
    in.flags = CMMC_GRANT_BELL;
    in.port = port;
    return translate(cmmc, in, eventfd, handle);
}

int cmmc_ring(int cmmc, const cmmc_handle_t* to, uint64_t number) {
    struct cmmc_ring in {};
    in.handle = to_kernel(to);
    in.number = number;
    return call(cmmc, CMMC_IOC_RING, in);
}

int cmmc_take(int cmmc, const cmmc_handle_t* bell, uint64_t* number) {
    struct cmmc_take in {};
    in.handle = to_kernel(bell);
    int error = call(cmmc, CMMC_IOC_TAKE, in);
    *number = in.number;
    return error;
}

int cmmc_lock(int cmmc, unsigned port, unsigned number, unsigned timeout_ms) {
    struct cmmc_lock in {};
    in.port = port;
    in.number = number;
    in.timeout_ms = timeout_ms;
    int error = call(cmmc, CMMC_IOC_LOCK, in);
    return error ? error : static_cast<int>(in.state & CMMC_LOCK_BROKEN);
}

int cmmc_unlock(int cmmc, unsigned port, unsigned number) {
    struct cmmc_unlock in {};
    in.port = port;
    in.number = number;
    return call(cmmc, CMMC_IOC_UNLOCK, in);
}

void cmmc_prep_write(struct io_uring_sqe* sqe, int cmmc, const cmmc_handle_t* to, uint64_t offset,
                     const void* from, size_t bytes, unsigned flags) {
    prepare(sqe, cmmc, CMMC_URING_WRITE, to, of_memory(offset, from, bytes), flags);
}

void cmmc_prep_read(struct io_uring_sqe* sqe, int cmmc, const cmmc_handle_t* from, uint64_t offset,
                    void* to, size_t bytes) {
    prepare(sqe, cmmc, CMMC_URING_READ, from, of_memory(offset, to, bytes), 0);
}

void cmmc_prep_write_buffer(struct io_uring_sqe* sqe, int cmmc, const cmmc_handle_t* to,
                            uint64_t offset, int buffer, uint64_t at, size_t bytes,
                            unsigned flags) {
    prepare(sqe, cmmc, CMMC_URING_WRITE, to, of_buffer(offset, buffer, at, bytes), flags);
}

void cmmc_prep_read_buffer(struct io_uring_sqe* sqe, int cmmc, const cmmc_handle_t* from,
                           uint64_t offset, int buffer, uint64_t at, size_t bytes) {
    prepare(sqe, cmmc, CMMC_URING_READ, from, of_buffer(offset, buffer, at, bytes), 0);
}

void cmmc_prep_write_fixed(struct io_uring_sqe* sqe, int cmmc, const cmmc_handle_t* to,
                           uint64_t offset, const void* from, size_t bytes, int fixed,
                           unsigned flags) {
    prepare(sqe, cmmc, CMMC_URING_WRITE, to, of_memory(offset, from, bytes), flags, fixed);
}

void cmmc_prep_read_fixed(struct io_uring_sqe* sqe, int cmmc, const cmmc_handle_t* from,
                          uint64_t offset, void* to, size_t bytes, int fixed) {
    prepare(sqe, cmmc, CMMC_URING_READ, from, of_memory(offset, to, bytes), 0, fixed);
}

} // extern "C"

#pragma GCC visibility pop
