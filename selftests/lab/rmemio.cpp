// SPDX-License-Identifier: GPL-2.0
//
// /dev/rmemN asked by hand (include/uapi/remora_rmem_io.h), as no library would:
//
//     rmemio refusals DEVICE     everything that must be refused, and that nothing changed
//     rmemio fixed DEVICE        registered buffers
//     rmemio vectors DEVICE      READVs and WRITEVs, two of each between "ready" and "done"
//     rmemio cancel DEVICE       operations that are taken back while the node is silent, between
//                                "ready" and "cancelled"
//     rmemio alloc DEVICE        asks for a region, after "ready"
//     rmemio linger DEVICE       operations under way; prints "under way", then how they ended
//
// Says what was wrong, a line each; exit code 1 if anything was.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <liburing.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../include/uapi/remora_rmem_io.h"

namespace {

int failures;

void expect(const char* what, long got, long wanted) {
    if (got == wanted)
        return;
    std::printf("%s: %ld (%s), not %ld\n", what, got, std::strerror(got < 0 ? -got : 0), wanted);
    failures++;
}

std::uint64_t number_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

rmem_io io_of(unsigned type, std::uint64_t addr, unsigned bytes, const void* data) {
    rmem_io io{};
    io.type = static_cast<__u8>(type);
    io.addr = addr;
    io.bytes = bytes;
    io.data = number_of(data);
    return io;
}

// A READV or WRITEV.
rmem_io io_of(unsigned type, const std::vector<rmem_io_vec>& ranges) {
    rmem_io io = io_of(type, 0, 0, ranges.data());
    io.ranges = static_cast<__u16>(ranges.size());
    for (const rmem_io_vec& range : ranges)
        io.bytes += range.bytes;
    return io;
}

long by_ioctl(int fd, unsigned long request, void* argument) {
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

std::uint64_t alloc(int fd, std::uint64_t bytes, unsigned perm) {
    rmem_io_alloc io{};
    io.bytes = bytes;
    io.perm = perm;
    expect("ALLOC", by_ioctl(fd, RMEM_IOC_ALLOC, &io), 0);
    return io.addr;
}

rmem_io_info info_of(int fd) {
    rmem_io_info info{};
    expect("INFO", by_ioctl(fd, RMEM_IOC_INFO, &info), 0);
    return info;
}

void give_back(int fd, std::uint64_t addr, std::uint64_t bytes) {
    rmem_io_range io{addr, bytes};
    expect("FREE", by_ioctl(fd, RMEM_IOC_FREE, &io), 0);
}

// ---- refusals ----

constexpr unsigned region_bytes = 1 << 20;

// By both ways alike.
void refuse(Ring& ring, int fd, const char* what, const rmem_io& io, long wanted) {
    rmem_io copy = io;
    expect((std::string(what) + " by ioctl").c_str(), by_ioctl(fd, RMEM_IOC_IO, &copy), wanted);
    expect((std::string(what) + " by io_uring").c_str(), ring.run(fd, io), wanted);
}

void refuse_puts(Ring& ring, int fd, std::uint64_t addr, char* data) {
    rmem_io io = io_of(RMEM_IO_PUT, addr, 8, data);
    io.integer = addr + 8;
    io.integer_bytes = 8;
    refuse(ring, fd, "a PUT without how", io, -EINVAL);
    io.how = RMEM_IO_CAS;
    refuse(ring, fd, "a PUT that compares", io, -EINVAL);
    io.how = RMEM_IO_ADD;
    io.bytes = info_of(fd).put_bytes + 1;
    refuse(ring, fd, "too long a PUT", io, -EINVAL);
    io.bytes = 8;
    for (unsigned bytes : {0U, 2U, 16U}) {
        io.integer_bytes = static_cast<__u16>(bytes);
        refuse(ring, fd, "size of a PUT's integer", io, -EINVAL);
    }
    io.integer_bytes = 8;
    io.integer = addr + 12;
    refuse(ring, fd, "a PUT's integer across", io, -EINVAL);
    io.integer = addr + region_bytes;
    refuse(ring, fd, "a PUT's integer over the end", io, -EFAULT);
    io.integer = addr + 8;
    io.addr = addr + region_bytes - 4;
    refuse(ring, fd, "a PUT over the end", io, -EFAULT);
    io = io_of(RMEM_IO_READ, addr, 8, data);
    io.timeout_us = 1;
    expect("a timeout by io_uring", ring.run(fd, io), -EINVAL);
}

// Two ranges of 8 bytes, as they should be, and then not.
void refuse_vector_shapes(Ring& ring, int fd, unsigned type, std::uint64_t addr, char* data) {
    auto near = [&](unsigned count, unsigned bytes) {
        return std::vector<rmem_io_vec>(count, {addr, number_of(data), bytes, 0});
    };
    std::vector<rmem_io_vec> two = near(2, 8);
    for (std::size_t count : {0, RMEM_IO_RANGES_MAX + 1, 0xffff}) {
        std::vector<rmem_io_vec> ranges = near(static_cast<unsigned>(count), 1);
        rmem_io io = io_of(type, ranges);
        io.bytes += !io.bytes;
        refuse(ring, fd, "so many ranges", io, -EINVAL);
    }
    for (unsigned bytes : {0U, 15U, 17U, ~0U}) {
        rmem_io io = io_of(type, two);
        io.bytes = bytes;
        refuse(ring, fd, "bytes that aren't the sum", io, -EINVAL);
    }
    unsigned most = info_of(fd).vector_bytes;
    refuse(ring, fd, "too many bytes", io_of(type, near(1, most + 1)), -EINVAL);
    if (type == RMEM_IO_WRITEV)
        refuse(ring, fd, "no room for the range", io_of(type, near(1, most - 15)), -EINVAL);
    rmem_io io = io_of(type, two);
    io.addr = addr;
    refuse(ring, fd, "an address", io, -EINVAL);
    io.addr = 0;
    io.how = RMEM_IO_ADD;
    refuse(ring, fd, "how", io, -EINVAL);
    io.how = 0;
    io.integer = addr;
    refuse(ring, fd, "an integer", io, -EINVAL);
    std::vector<rmem_io_vec> wrong = two;
    wrong[1].reserved = 1;
    refuse(ring, fd, "what is reserved", io_of(type, wrong), -EINVAL);
    wrong = {{addr, number_of(data), 16, 0}, {addr, number_of(data), 0, 0}};
    refuse(ring, fd, "a range of nothing", io_of(type, wrong), -EINVAL);
    wrong = {{addr, number_of(data), ~0U, 0}, {addr, number_of(data), 17, 0}};
    refuse(ring, fd, "a sum that overflows", io_of(type, wrong), -EINVAL);
}

// Of the second range; the first is as it should be.
void refuse_vector_memory(Ring& ring, int fd, unsigned type, std::uint64_t addr, char* data) {
    constexpr unsigned page = 4096;
    std::vector<rmem_io_vec> ranges(2, {addr, number_of(data), 8, 0});
    auto* kernel = reinterpret_cast<void*>(~0xfffffffUL);
    auto* two = static_cast<char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(two + page, page);
    for (void* nowhere :
         {static_cast<void*>(nullptr), kernel, static_cast<void*>(two + page - 4)}) {
        ranges[1].data = number_of(nowhere);
        refuse(ring, fd, "a range in no memory", io_of(type, ranges), -EFAULT);
        rmem_io io = io_of(type, ranges);
        io.data = number_of(nowhere);
        refuse(ring, fd, "an array in no memory", io, -EFAULT);
    }
    ranges[1].data = number_of(data);
    for (std::uint64_t at : {std::uint64_t{0}, addr + region_bytes - 7}) {
        ranges[1].addr = at;
        refuse(ring, fd, "a range of nobody's", io_of(type, ranges), -EFAULT);
    }
    ranges[1].addr = ~std::uint64_t{0};
    refuse(ring, fd, "a range at the end of all", io_of(type, ranges), -EINVAL);
    if (type == RMEM_IO_READV) {
        mprotect(two, page, PROT_READ);
        ranges[1] = {addr, number_of(two), 8, 0};
        refuse(ring, fd, "READV into a constant", io_of(type, ranges), -EFAULT);
    }
    munmap(two, page);
}

// The kernel sees one of the two sums, or neither.
void change_meanwhile(int fd, unsigned type, std::uint64_t addr, std::vector<char>& buffer) {
    unsigned count = std::min(info_of(fd).vector_bytes / 24, unsigned{RMEM_IO_RANGES_MAX});
    std::vector<rmem_io_vec> ranges(count, {addr, number_of(buffer.data()), 8, 0});
    const rmem_io io = io_of(type, ranges);
    std::atomic<bool> stop{false};
    std::thread changing([&] {
        while (!stop) {
            for (rmem_io_vec& range : ranges) {
                std::atomic_ref(range.bytes) = RMEM_IO_BYTES_MAX;
                std::atomic_ref(range.bytes) = 8;
            }
        }
    });
    for (unsigned i = 0; i < 200; i++) {
        rmem_io copy = io;
        long result = by_ioctl(fd, RMEM_IOC_IO, &copy);
        if (result != -EINVAL)
            expect("ranges that change meanwhile", result, 0);
    }
    stop = true;
    changing.join();
}

void refuse_vectors(Ring& ring, int fd, std::uint64_t addr, std::vector<char>& buffer) {
    for (unsigned type : {RMEM_IO_READV, RMEM_IO_WRITEV}) {
        refuse_vector_shapes(ring, fd, type, addr, buffer.data());
        refuse_vector_memory(ring, fd, type, addr, buffer.data());
    }
    change_meanwhile(fd, RMEM_IO_READV, addr, buffer);
    std::vector<char> mark(RMEM_IO_BYTES_MAX, 'x');
    change_meanwhile(fd, RMEM_IO_WRITEV, addr, mark);
}

void refuse_shapes(Ring& ring, int fd, std::uint64_t addr, std::vector<char>& buffer) {
    char* data = buffer.data();
    for (unsigned type : {0U, RMEM_IO_WRITEV + 1U, 255U})
        refuse(ring, fd, "unknown type", io_of(type, addr, 8, data), -EINVAL);
    for (unsigned type : {RMEM_IO_READ, RMEM_IO_WRITE}) {
        refuse(ring, fd, "0 bytes", io_of(type, addr, 0, data), -EINVAL);
        refuse(ring, fd, "too many bytes", io_of(type, addr, RMEM_IO_BYTES_MAX + 1, data), -EINVAL);
        refuse(ring, fd, "all bytes", io_of(type, addr, ~0U, data), -EINVAL);
        refuse(ring, fd, "over the end", io_of(type, addr + region_bytes - 1, 2, data), -EFAULT);
        refuse(ring, fd, "address 0", io_of(type, 0, 8, data), -EFAULT);
        refuse(ring, fd, "end of all", io_of(type, ~std::uint64_t{0}, 8, data), -EINVAL);
        rmem_io io = io_of(type, addr, 8, data);
        io.integer_bytes = 8;
        refuse(ring, fd, "bytes of an integer", io, -EINVAL);
        io.integer_bytes = 0;
        io.integer = addr;
        refuse(ring, fd, "an integer", io, -EINVAL);
        io.integer = 0;
        io.how = RMEM_IO_ADD;
        refuse(ring, fd, "how", io, -EINVAL);
    }
    for (unsigned bytes : {0U, 1U, 5U, 32U, ~0U}) {
        rmem_io io = io_of(RMEM_IO_ATOMIC, addr, bytes, nullptr);
        io.how = RMEM_IO_ADD;
        refuse(ring, fd, "size of an integer", io, -EINVAL);
    }
    rmem_io io = io_of(RMEM_IO_ATOMIC, addr, 8, nullptr);
    refuse(ring, fd, "no how", io, -EINVAL);
    io.how = RMEM_IO_SMAX + 1;
    refuse(ring, fd, "unknown how", io, -EINVAL);
    io.how = RMEM_IO_ADD;
    io.addr = addr + 4;
    refuse(ring, fd, "an integer across", io, -EINVAL);
    refuse_puts(ring, fd, addr, data);
    refuse(ring, fd, "FENCE with bytes", io_of(RMEM_IO_FENCE, 0, 8, nullptr), -EINVAL);
    refuse(ring, fd, "ZERO of nothing", io_of(RMEM_IO_ZERO, addr, 0, nullptr), -EINVAL);
}

void refuse_memory(Ring& ring, int fd, std::uint64_t addr) {
    constexpr unsigned page = 4096;
    auto* two = static_cast<char*>(
        mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(two + page, page);
    for (unsigned bytes : {8U, 2 * page}) {
        for (unsigned type : {RMEM_IO_READ, RMEM_IO_WRITE}) {
            refuse(ring, fd, "no memory", io_of(type, addr, bytes, nullptr), -EFAULT);
            refuse(ring, fd, "kernel's memory",
                   io_of(type, addr, bytes, reinterpret_cast<void*>(~0xfffffffUL)), -EFAULT);
            refuse(ring, fd, "memory that ends", io_of(type, addr, bytes, two + page - 4), -EFAULT);
        }
    }
    mprotect(two, page, PROT_READ);
    refuse(ring, fd, "READ into a constant", io_of(RMEM_IO_READ, addr, 8, two), -EFAULT);
    refuse(ring, fd, "long READ into a constant", io_of(RMEM_IO_READ, addr, page, two), -EFAULT);
    munmap(two, page);
}

void refuse_rights(Ring& ring, int fd, const char* device, std::uint64_t addr,
                   std::vector<char>& buffer) {
    int reader = open(device, O_RDONLY | O_CLOEXEC);
    refuse(ring, reader, "WRITE by a reader", io_of(RMEM_IO_WRITE, addr, 8, buffer.data()), -EBADF);
    expect("READ by a reader", ring.run(reader, io_of(RMEM_IO_READ, addr, 8, buffer.data())), 0);
    std::vector<rmem_io_vec> ranges(2, {addr, number_of(buffer.data()), 8, 0});
    refuse(ring, reader, "WRITEV by a reader", io_of(RMEM_IO_WRITEV, ranges), -EBADF);
    expect("READV by a reader", ring.run(reader, io_of(RMEM_IO_READV, ranges)), 0);
    rmem_io_alloc wish{4096, 0, 3, 0};
    expect("ALLOC by a reader", by_ioctl(reader, RMEM_IOC_ALLOC, &wish), -EBADF);
    close(reader);

    std::uint64_t fixed = alloc(fd, region_bytes, 1);
    refuse(ring, fd, "WRITE to a constant region", io_of(RMEM_IO_WRITE, fixed, 8, buffer.data()),
           -EACCES);
    ranges[1].addr = fixed;
    refuse(ring, fd, "WRITEV to a constant region, too", io_of(RMEM_IO_WRITEV, ranges), -EACCES);
    expect("READV of a constant region, too", ring.run(fd, io_of(RMEM_IO_READV, ranges)), 0);
    give_back(fd, fixed, region_bytes);
    refuse(ring, fd, "what was given back", io_of(RMEM_IO_READ, fixed, 8, buffer.data()), -EFAULT);
    rmem_io_range none{addr, info_of(fd).page_bytes};
    expect("the region has several pages", none.bytes < region_bytes, 1);
    expect("FREE of a part", by_ioctl(fd, RMEM_IOC_FREE, &none), -EFAULT);
    for (rmem_io_alloc io : {rmem_io_alloc{0, 0, 3, 0},
                             {4096, 0, 0, 0},
                             {4096, 0, 2, 0},
                             {4096, 0, 8, 0},
                             {4096, 0, 3, 1},
                             {4096, 1, 3, 0}})
        expect("ALLOC of what can't be", by_ioctl(fd, RMEM_IOC_ALLOC, &io), -EINVAL);
    rmem_io_alloc huge{std::uint64_t{1} << 50, 0, 3, 0};
    expect("ALLOC of too much", by_ioctl(fd, RMEM_IOC_ALLOC, &huge), -ENOSPC);
    expect("ALLOC without an argument", by_ioctl(fd, RMEM_IOC_ALLOC, nullptr), -EFAULT);
    expect("unknown ioctl", by_ioctl(fd, _IO(RMEM_IO_MAGIC, 99), nullptr), -ENOTTY);
}

void refusals(const char* device, int fd) {
    Ring ring;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    std::vector<char> mark(RMEM_IO_BYTES_MAX, 'x'), buffer(RMEM_IO_BYTES_MAX + 1),
        back(mark.size());
    expect("WRITE", ring.run(fd, io_of(RMEM_IO_WRITE, addr, RMEM_IO_BYTES_MAX, mark.data())), 0);

    refuse_shapes(ring, fd, addr, buffer);
    refuse_memory(ring, fd, addr);
    refuse_vectors(ring, fd, addr, buffer);
    refuse_rights(ring, fd, device, addr, buffer);
    expect("unknown cmd_op", ring.run(fd, io_of(RMEM_IO_READ, addr, 8, buffer.data()), 0), -ENOTTY);
    Ring narrow(0);
    expect("a ring of short SQEs", narrow.run(fd, io_of(RMEM_IO_READ, addr, 8, buffer.data())),
           -EINVAL);

    expect("READ", ring.run(fd, io_of(RMEM_IO_READ, addr, RMEM_IO_BYTES_MAX, back.data())), 0);
    expect("what was refused changed nothing", back == mark, 1);
    give_back(fd, addr, region_bytes);
}

// ---- registered buffers ----

void fixed(int fd) {
    Ring ring;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    std::vector<char> memory(3 * RMEM_IO_BYTES_MAX), plain(RMEM_IO_BYTES_MAX);
    iovec vector{memory.data(), memory.size()};
    expect("register", io_uring_register_buffers(ring.get(), &vector, 1), 0);
    auto run = [&](unsigned type, std::uint64_t at, unsigned bytes, const void* data) {
        ring.prepare(fd, io_of(type, at, bytes, data))->uring_cmd_flags = IORING_URING_CMD_FIXED;
        io_uring_submit(ring.get());
        return ring.wait();
    };
    for (unsigned i = 0; i < memory.size(); i++)
        memory[i] = static_cast<char>(i * 7 + i / 4096);
    // Whatever the place in the pages.
    for (unsigned at : {0U, 1U, 511U, 4095U, 5000U}) {
        for (unsigned bytes : {1U, 100U, 4096U, 9000U, 100'001U}) {
            expect("WRITE", run(RMEM_IO_WRITE, addr + at, bytes, &memory[at]), 0);
            std::memset(&memory[RMEM_IO_BYTES_MAX], 0, bytes);
            expect("READ", run(RMEM_IO_READ, addr + at, bytes, &memory[RMEM_IO_BYTES_MAX]), 0);
            expect("its data", std::memcmp(&memory[at], &memory[RMEM_IO_BYTES_MAX], bytes), 0);
            expect("READ", ring.run(fd, io_of(RMEM_IO_READ, addr + at, bytes, plain.data())), 0);
            expect("its data", std::memcmp(&memory[at], plain.data(), bytes), 0);
        }
    }
    std::vector<rmem_io_vec> ranges(2, {addr, number_of(memory.data()), 8, 0});
    for (unsigned type : {RMEM_IO_READV, RMEM_IO_WRITEV}) {
        ring.prepare(fd, io_of(type, ranges))->uring_cmd_flags = IORING_URING_CMD_FIXED;
        io_uring_submit(ring.get());
        expect("a vector in registered buffers", ring.wait(), -EINVAL);
    }
    expect("outside the buffer", run(RMEM_IO_READ, addr, 8, plain.data()), -EFAULT);
    expect("over its end", run(RMEM_IO_READ, addr, 16, memory.data() + memory.size() - 8), -EFAULT);
    give_back(fd, addr, region_bytes);
}

// ---- vectors ----

// Until the next line of input.
bool told(const char* state) {
    char line[8];
    std::printf("%s\n", state);
    std::fflush(stdout);
    return std::fgets(line, sizeof(line), stdin);
}

// As large as may be: ranges of all sizes, far from each other there and here.
void vectors(int fd) {
    Ring ring;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    std::vector<char> out(region_bytes), in(region_bytes);
    for (unsigned i = 0; i < region_bytes; i++)
        out[i] = static_cast<char>(i * 7 + i / 4096 + 1);
    std::vector<rmem_io_vec> writes, reads;
    unsigned most = info_of(fd).vector_bytes,
             count = std::min(most / 64, unsigned{RMEM_IO_RANGES_MAX});
    unsigned left = most - count * 16, each = left / count;
    for (unsigned i = 0, at = 5; i < count; i++, at += 8191) {
        unsigned bytes = i + 1 < count ? 1 + i % (2 * each - 1) : left;
        writes.push_back({addr + at, number_of(&out[at / 2]), bytes, 0});
        reads.push_back({addr + at, number_of(&in[at / 2]), bytes, 0});
        left -= bytes;
    }
    if (!told("ready"))
        return;
    rmem_io write = io_of(RMEM_IO_WRITEV, writes), read = io_of(RMEM_IO_READV, reads);
    for (bool ioctls : {false, true}) {
        std::fill(in.begin(), in.end(), 0);
        expect("WRITEV", ioctls ? by_ioctl(fd, RMEM_IOC_IO, &write) : ring.run(fd, write), 0);
        expect("READV", ioctls ? by_ioctl(fd, RMEM_IOC_IO, &read) : ring.run(fd, read), 0);
        for (const rmem_io_vec& range : reads) {
            std::size_t at = range.data - number_of(in.data());
            expect("its data", std::memcmp(&in[at], &out[at], range.bytes), 0);
            expect("no more than that", in[at + range.bytes], 0);
        }
        for (char& byte : out)
            byte = static_cast<char>(byte + 1);
    }
    if (!told("done"))
        return;
    // Those that overlap are written in their order.
    char one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, two[4] = {2, 2, 2, 2}, back[8];
    writes = {{addr, number_of(one), 8, 0}, {addr + 2, number_of(two), 4, 0}};
    expect("WRITEV of ranges that overlap", ring.run(fd, io_of(RMEM_IO_WRITEV, writes)), 0);
    expect("READ", ring.run(fd, io_of(RMEM_IO_READ, addr, 8, back)), 0);
    const char wanted[8] = {1, 1, 2, 2, 2, 2, 1, 1};
    expect("the last one's data", std::memcmp(back, wanted, 8), 0);
    give_back(fd, addr, region_bytes);
}

// ---- what is under way ----

void keep_under_way(int fd) {
    constexpr unsigned count = 32;
    Ring ring;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    static char data[count][8192];
    char word[8];
    std::printf("ready\n");
    std::fflush(stdout);
    if (!std::fgets(word, sizeof(word), stdin))
        return;
    for (unsigned i = 0; i < count; i++)
        ring.prepare(fd, io_of(i % 2 ? RMEM_IO_READ : RMEM_IO_WRITE, addr + i * sizeof(data[i]),
                               i % 4 < 2 ? 100 : sizeof(data[i]), data[i]));
    io_uring_submit(ring.get());
    // Another process that has the descriptor ends, which is of no matter to what we have under
    // way.
    if (pid_t child = fork())
        waitpid(child, nullptr, 0);
    else
        _exit(0);
    std::printf("under way\n");
    std::fflush(stdout);
    for (unsigned i = 0; i < count; i++)
        std::printf("ended %ld\n", ring.wait());
}

// ---- what is taken back ----

long take_back(int fd, std::uint64_t cookie) {
    int ops = ioctl(fd, RMEM_IOC_CANCEL, &cookie);
    return ops < 0 ? -errno : ops;
}

// So many end as cancelled, and so many of them went with their session.
void expect_cancelled(Ring& ring, unsigned count, unsigned lost) {
    unsigned cancelled = 0, reset = 0;
    for (unsigned i = 0; i < count; i++) {
        long result = ring.wait();
        cancelled += result == -ECANCELED;
        reset += result == -ECONNRESET;
    }
    expect("taken back", cancelled, count - lost);
    expect("gone with the session", reset, lost);
}

void cancel(int fd) {
    constexpr unsigned count = 16;
    Ring ring;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    static char data[count][8192];
    if (!told("ready"))
        return;
    rmem_io change = io_of(RMEM_IO_ATOMIC, addr + region_bytes - 8, 8, nullptr);
    change.how = RMEM_IO_ADD;
    ring.prepare(fd, change);
    io_uring_submit(ring.get());
    for (unsigned i = 0; i < count; i++) {
        rmem_io io = io_of(i / 2 % 2 ? RMEM_IO_READ : RMEM_IO_WRITE, addr + i * sizeof(data[i]),
                           i % 4 < 2 ? 100 : sizeof(data[i]), data[i]);
        io.cookie = 1 + i % 2;
        ring.prepare(fd, io);
    }
    io_uring_submit(ring.get());
    expect("CANCEL of none", take_back(fd, 3), 0);
    expect("CANCEL", take_back(fd, 1), count / 2);
    expect_cancelled(ring, count / 2 + 1, 1); // the ATOMIC, which has no cookie
    rmem_io late = io_of(RMEM_IO_WRITE, addr, 8, data[0]);
    late.timeout_us = 20'000;
    expect("what takes longer than it may", by_ioctl(fd, RMEM_IOC_IO, &late), -ETIMEDOUT);
    int other = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
    expect("CANCEL of another file's", take_back(other, 0), 0);
    close(other);
    expect("CANCEL of all", take_back(fd, 0), count / 2);
    expect_cancelled(ring, count / 2, 0);
    expect("CANCEL again", take_back(fd, 0), 0);
    if (!told("cancelled"))
        return;
    for (unsigned i = 0; i < count; i++) {
        std::memset(data[i], 'y', sizeof(data[i]));
        expect("WRITE after all",
               ring.run(fd,
                        io_of(RMEM_IO_WRITE, addr + i * sizeof(data[i]), sizeof(data[i]), data[i])),
               0);
    }
    std::vector<char> back(sizeof(data)), wanted(sizeof(data), 'y');
    expect("READ after all", ring.run(fd, io_of(RMEM_IO_READ, addr, sizeof(data), back.data())), 0);
    expect("nothing that was cancelled came later", back == wanted, 1);
    give_back(fd, addr, region_bytes);
}

// ---- a node that restarts ----

void expect_stale(Ring& ring, int fd, std::uint64_t addr, char* data) {
    refuse(ring, fd, "READ of before", io_of(RMEM_IO_READ, addr, 8, data), -ESTALE);
    refuse(ring, fd, "WRITE of before", io_of(RMEM_IO_WRITE, addr, 8, data), -ESTALE);
    refuse(ring, fd, "FENCE of before", io_of(RMEM_IO_FENCE, 0, 0, nullptr), -ESTALE);
    rmem_io_alloc wish{};
    wish.bytes = region_bytes;
    wish.perm = 3;
    expect("ALLOC of before", by_ioctl(fd, RMEM_IOC_ALLOC, &wish), -ESTALE);
    rmem_io_range range{addr, region_bytes};
    expect("FREE of before", by_ioctl(fd, RMEM_IOC_FREE, &range), -ESTALE);
}

// Who opened the device before the restart has no part in what is opened after it.
void restart(const char* path, int fd) {
    Ring ring;
    char data[8] = "before";
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    expect("WRITE", ring.run(fd, io_of(RMEM_IO_WRITE, addr, sizeof(data), data)), 0);
    if (!told("ready"))
        return;
    expect_stale(ring, fd, addr, data);
    if (!told("lost"))
        return;
    int anew = open(path, O_RDWR | O_CLOEXEC);
    expect("open", anew < 0 ? -errno : 0, 0);
    refuse(ring, anew, "what was there", io_of(RMEM_IO_READ, addr, 8, data), -EFAULT);
    // The same address, of another owner.
    rmem_io_alloc wish{};
    wish.addr = addr;
    wish.bytes = region_bytes;
    wish.perm = 3;
    expect("ALLOC", by_ioctl(anew, RMEM_IOC_ALLOC, &wish), 0);
    expect("where it was wanted", wish.addr == addr, 1);
    expect_stale(ring, fd, addr, data);
    expect("READ", ring.run(anew, io_of(RMEM_IO_READ, addr, sizeof(data), data)), 0);
    expect("zeros", data[0], 0);
    give_back(anew, addr, region_bytes);
    close(anew);
}

} // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        std::fprintf(stderr, "usage: rmemio refusals|fixed|vectors|cancel|restart|alloc|linger DEVICE\n");
        return 2;
    }
    std::string what = argv[1];
    int fd = open(argv[2], O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        std::perror(argv[2]);
        return 1;
    }
    if (what == "refusals")
        refusals(argv[2], fd);
    else if (what == "fixed")
        fixed(fd);
    else if (what == "vectors")
        vectors(fd);
    else if (what == "cancel")
        cancel(fd);
    else if (what == "restart")
        restart(argv[2], fd);
    else if (what == "alloc")
        told("ready") && alloc(fd, region_bytes, 3);
    else
        keep_under_way(fd);
    return failures ? 1 : 0;
}
