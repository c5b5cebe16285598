// SPDX-License-Identifier: GPL-2.0
// What no library would ask of /dev/rmemN.
#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rmemio.hpp"

namespace rmemio {

namespace {

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

void refuse_copies(Ring& ring, int fd, std::uint64_t addr) {
    rmem_io io = io_of(RMEM_IO_COPY, addr, 8, nullptr);
    io.from = addr + 100;
    for (unsigned bytes : {0U, RMEM_IO_COPY_BYTES_MAX + 1U, ~0U}) {
        io.bytes = bytes;
        refuse(ring, fd, "bytes of a COPY", io, -EINVAL);
    }
    io.bytes = 8;
    io.how = RMEM_IO_ADD;
    refuse(ring, fd, "a COPY with how", io, -EINVAL);
    io.how = 0;
    io.integer_bytes = 8;
    refuse(ring, fd, "a COPY with an integer", io, -EINVAL);
    io.integer_bytes = 0;
    for (std::uint64_t from : {addr, addr + 7}) {
        io.from = from;
        refuse(ring, fd, "a COPY that overlaps", io, -EINVAL);
    }
    io.from = addr + region_bytes - 4;
    refuse(ring, fd, "a COPY from over the end", io, -EFAULT);
    io.from = addr;
    io.addr = addr + region_bytes - 4;
    refuse(ring, fd, "a COPY to over the end", io, -EFAULT);
}

void refuse_names(Ring& ring, int fd, std::uint64_t addr) {
    const std::string longer(RMEM_IO_NAME_BYTES_MAX + 1, 'n');
    for (unsigned type : {RMEM_IO_PUBLISH, RMEM_IO_LOOKUP}) {
        const std::uint64_t at = type == RMEM_IO_PUBLISH ? addr : 0;
        for (unsigned bytes : {0U, RMEM_IO_NAME_BYTES_MAX + 1U, ~0U})
            refuse(ring, fd, "bytes of a name", io_of(type, at, bytes, longer.data()), -EINVAL);
        refuse(ring, fd, "a name with a 0", io_of(type, at, 4, "na\0e"), -EINVAL);
        refuse(ring, fd, "a name that ends by 0", io_of(type, at, 5, "name"), -EINVAL);
        refuse(ring, fd, "a name nowhere", io_of(type, at, 4, nullptr), -EFAULT);
        rmem_io io = io_of(type, at, 4, "name");
        io.how = RMEM_IO_ADD;
        refuse(ring, fd, "a name with how", io, -EINVAL);
        io.how = 0;
        io.integer_bytes = 8;
        refuse(ring, fd, "a name with an integer", io, -EINVAL);
    }
    rmem_io publish = io_of(RMEM_IO_PUBLISH, addr, 4, "name");
    publish.found = addr;
    refuse(ring, fd, "a PUBLISH with found", publish, -EINVAL);
    publish.found = 0;
    publish.addr = addr + info_of(fd).page_bytes;
    refuse(ring, fd, "a name within a region", publish, -EFAULT);
    publish.addr = 0;
    refuse(ring, fd, "a withdrawal of no name", publish, -ENOENT);
    rmem_io_range found{};
    rmem_io lookup = io_of(RMEM_IO_LOOKUP, 0, 4, "name");
    lookup.found = number_of(&found);
    refuse(ring, fd, "a LOOKUP of no name", lookup, -ENOENT);
    lookup.addr = addr;
    refuse(ring, fd, "a LOOKUP with addr", lookup, -EINVAL);

    publish.addr = addr;
    lookup.addr = 0;
    expect("PUBLISH", ring.run(fd, publish), 0);
    refuse(ring, fd, "a PUBLISH of the name again", publish, -EEXIST);
    lookup.found = 0;
    refuse(ring, fd, "a LOOKUP to nowhere", lookup, -EFAULT);
    publish.addr = 0;
    expect("a withdrawal", ring.run(fd, publish), 0);
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
    for (unsigned type : {0U, RMEM_IO_LOOKUP + 1U, 255U})
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
    refuse_copies(ring, fd, addr);
    refuse_names(ring, fd, addr);
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
    rmem_io copy = io_of(RMEM_IO_COPY, addr, 8, nullptr);
    copy.from = addr + 8;
    refuse(ring, reader, "COPY by a reader", copy, -EBADF);
    refuse(ring, reader, "PUBLISH by a reader", io_of(RMEM_IO_PUBLISH, addr, 4, "name"), -EBADF);
    refuse(ring, reader, "LOOKUP by a reader", io_of(RMEM_IO_LOOKUP, 0, 4, "name"), -ENOENT);
    rmem_io_alloc wish{4096, 0, 3, 0};
    expect("ALLOC by a reader", by_ioctl(reader, RMEM_IOC_ALLOC, &wish), -EBADF);
    close(reader);

    std::uint64_t fixed = alloc(fd, region_bytes, 1);
    refuse(ring, fd, "WRITE to a constant region", io_of(RMEM_IO_WRITE, fixed, 8, buffer.data()),
           -EACCES);
    ranges[1].addr = fixed;
    refuse(ring, fd, "WRITEV to a constant region, too", io_of(RMEM_IO_WRITEV, ranges), -EACCES);
    expect("READV of a constant region, too", ring.run(fd, io_of(RMEM_IO_READV, ranges)), 0);
    copy.addr = fixed;
    refuse(ring, fd, "COPY to a constant region", copy, -EACCES);
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

} // namespace

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

} // namespace rmemio
