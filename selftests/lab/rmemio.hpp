// SPDX-License-Identifier: GPL-2.0
// How /dev/rmemN is asked by hand (include/uapi/remora_rmem_io.h), and what is said of a wrong
// answer.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include <liburing.h>
#include <sys/ioctl.h>

#include "uapi/remora_rmem_io.h"

namespace rmemio {

inline constexpr unsigned region_bytes = 1 << 20;

inline int failures;

inline void expect(const char* what, long got, long wanted) {
    if (got == wanted)
        return;
    std::printf("%s: %ld (%s), not %ld\n", what, got, std::strerror(got < 0 ? -got : 0), wanted);
    failures++;
}

inline std::uint64_t number_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

inline rmem_io io_of(unsigned type, std::uint64_t addr, unsigned bytes, const void* data) {
    rmem_io io{};
    io.type = static_cast<__u8>(type);
    io.addr = addr;
    io.bytes = bytes;
    io.data = number_of(data);
    return io;
}

// A READV or WRITEV.
inline rmem_io io_of(unsigned type, const std::vector<rmem_io_vec>& ranges) {
    rmem_io io = io_of(type, 0, 0, ranges.data());
    io.ranges = static_cast<__u16>(ranges.size());
    for (const rmem_io_vec& range : ranges)
        io.bytes += range.bytes;
    return io;
}

inline long by_ioctl(int fd, unsigned long request, void* argument) {
    return ioctl(fd, request, argument) ? -errno : 0;
}

class Ring {
public:
    explicit Ring(unsigned flags = IORING_SETUP_SQE128) {
        int error = io_uring_queue_init(64, &ring_, flags);
        expect("io_uring_queue_init", error, 0);
    }
    ~Ring() { io_uring_queue_exit(&ring_); }
    io_uring* get() { return &ring_; }

    io_uring_sqe* prepare(int fd, const rmem_io& io, unsigned cmd_op = RMEM_IO_URING) {
        io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
        bool is_long = ring_.flags & IORING_SETUP_SQE128;
        std::memset(static_cast<void*>(sqe), 0, sizeof(*sqe) * (is_long ? 2 : 1));
        sqe->opcode = IORING_OP_URING_CMD;
        sqe->fd = fd;
        sqe->cmd_op = cmd_op;
        if (is_long)
            std::memcpy(static_cast<void*>(sqe->cmd), &io, sizeof(io));
        return sqe;
    }
    long wait() {
        io_uring_cqe* cqe;
        int error = io_uring_wait_cqe(&ring_, &cqe);
        if (error)
            return error;
        long result = cqe->res;
        io_uring_cqe_seen(&ring_, cqe);
        return result;
    }
    long run(int fd, const rmem_io& io, unsigned cmd_op = RMEM_IO_URING) {
        prepare(fd, io, cmd_op);
        io_uring_submit(&ring_);
        return wait();
    }

private:
    io_uring ring_{};
};

inline std::uint64_t alloc(int fd, std::uint64_t bytes, unsigned perm) {
    rmem_io_alloc io{};
    io.bytes = bytes;
    io.perm = perm;
    expect("ALLOC", by_ioctl(fd, RMEM_IOC_ALLOC, &io), 0);
    return io.addr;
}

inline rmem_io_info info_of(int fd) {
    rmem_io_info info{};
    expect("INFO", by_ioctl(fd, RMEM_IOC_INFO, &info), 0);
    return info;
}

inline void give_back(int fd, std::uint64_t addr, std::uint64_t bytes) {
    rmem_io_range io{addr, bytes};
    expect("FREE", by_ioctl(fd, RMEM_IOC_FREE, &io), 0);
}

// By both ways alike.
inline void refuse(Ring& ring, int fd, const char* what, const rmem_io& io, long wanted) {
    rmem_io copy = io;
    expect((std::string(what) + " by ioctl").c_str(), by_ioctl(fd, RMEM_IOC_IO, &copy), wanted);
    expect((std::string(what) + " by io_uring").c_str(), ring.run(fd, io), wanted);
}

// Everything that must be refused, and that nothing changed.
void refusals(const char* device, int fd);

} // namespace rmemio
