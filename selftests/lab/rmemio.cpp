// SPDX-License-Identifier: GPL-2.0
//
// /dev/rmemN asked by hand (include/uapi/remora_rmem_io.h), as no library would:
//
//     rmemio refusals DEVICE     everything that must be refused, and that nothing changed
//     rmemio fixed DEVICE        registered buffers
//     rmemio vectors DEVICE      READVs and WRITEVs, two of each between "ready" and "done"
//     rmemio cancel DEVICE       operations that are taken back while the node is silent, between
//                                "ready" and "cancelled"
//     rmemio crowd DEVICE        operations that threads ask for again whenever they are taken
//     back,
//                                while the node is silent, between "ready" and "cancelled"
//     rmemio alloc DEVICE        asks for a region, after "ready"
//     rmemio bogus DEVICE        gives back a region that isn't there, after "ready"
//     rmemio linger DEVICE       operations under way; prints "under way", then how they ended
//     rmemio threads DEVICE      operations of threads that exit
//     rmemio each DEVICE         one of each, by ioctl and by io_uring; exit code 3 if some of them
//                                found no memory here
//
// Says what was wrong, a line each; exit code 1 if anything was.
#include <array>
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
    for (unsigned type : {RMEM_IO_PUBLISH, RMEM_IO_LOOKUP})
        expect("a name in a registered buffer", run(type, 0, 4, memory.data()), -EINVAL);
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
    // Ranges that overlap are written in their order.
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

void expect_cancelled(Ring& ring, unsigned count) {
    unsigned cancelled = 0;
    for (unsigned i = 0; i < count; i++)
        cancelled += ring.wait() == -ECANCELED;
    expect("taken back", cancelled, count);
}

void cancel(int fd) {
    constexpr unsigned count = 16;
    Ring ring;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    static char data[count][8192];
    if (!told("ready"))
        return;
    std::uint64_t found[2] = {};
    rmem_io change = io_of(RMEM_IO_ATOMIC, addr + region_bytes - 8, 8, found);
    change.how = RMEM_IO_ADD;
    change.value[0] = 1;
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
    expect_cancelled(ring, count / 2);
    rmem_io late = io_of(RMEM_IO_WRITE, addr, 8, data[0]);
    late.timeout_us = 20'000;
    expect("what takes longer than it may", by_ioctl(fd, RMEM_IOC_IO, &late), -ETIMEDOUT);
    int other = open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
    expect("CANCEL of another file's", take_back(other, 0), 0);
    close(other);
    expect("CANCEL of all", take_back(fd, 0), count / 2);
    expect_cancelled(ring, count / 2);
    expect("CANCEL again", take_back(fd, 0), 0);
    if (!told("cancelled"))
        return;
    expect("ATOMIC, which has no cookie", ring.wait(), 0);
    expect("ATOMIC found", static_cast<long>(found[0]), 0);
    expect("ATOMIC again", ring.run(fd, change), 0);
    expect("ATOMIC has been once", static_cast<long>(found[0]), 1);
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

// CANCEL is about what is under way when it begins: threads that ask again at once don't keep it.
void crowd(int fd) {
    constexpr unsigned count = 8, rounds = 50;
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    if (!told("ready"))
        return;
    std::atomic<unsigned> running = count;
    std::atomic<bool> stop = false;
    std::vector<std::jthread> threads(count);
    for (std::jthread& each : threads)
        each = std::jthread([&] {
            std::uint64_t data;
            rmem_io io = io_of(RMEM_IO_READ, addr, sizeof(data), &data);
            for (io.cookie = 1; !stop;)
                expect("READ", by_ioctl(fd, RMEM_IOC_IO, &io), -ECANCELED);
            running--;
        });
    for (unsigned cancelled = 0; cancelled < rounds;) {
        long now = take_back(fd, 1);
        expect("more than there were", now > count, 0);
        cancelled += now > 0;
    }
    for (stop = true; running;)
        take_back(fd, 1);
    threads.clear();
    if (told("cancelled"))
        give_back(fd, addr, region_bytes);
}

// A FREE that has to be sent again is refused as any other.
void bogus(int fd) {
    rmem_io_range range{0x1234'0000'0000, region_bytes};
    if (told("ready"))
        expect("FREE of what isn't there", by_ioctl(fd, RMEM_IOC_FREE, &range), -EFAULT);
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

// Files opened before the restart stay apart from files opened after it.
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

// ---- threads that ask, and exit ----

// Their operations end as all others, while they exit or after. Others keep the processors busy, so
// that some are held up on their way out.
void threads(int fd) {
    std::uint64_t addr = alloc(fd, region_bytes, 3);
    std::array<std::uint64_t, 16> data;
    auto spin = [](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
        }
    };
    std::vector<std::jthread> busy(3);
    for (std::jthread& each : busy)
        each = std::jthread(spin);
    Ring ring;
    for (int round = 0; round < 200; round++) {
        std::thread([&] {
            for (std::uint64_t& word : data)
                ring.prepare(fd, io_of(RMEM_IO_READ, addr, sizeof(word), &word));
            io_uring_submit(ring.get());
        }).join();
        for (std::size_t i = 0; i < data.size(); i++)
            expect("operation of a thread that exits", ring.wait(), 0);
    }
    give_back(fd, addr, region_bytes);
}

// ---- one of each ----

// True: it found memory.
bool found_memory(const char* what, long got) {
    if (got != -ENOMEM)
        expect(what, got, 0);
    return got != -ENOMEM;
}

// Short ones, whose data is copied, and long ones, whose pages are pinned. True: all found memory.
bool each_operation(int fd, std::uint64_t addr) {
    std::vector<char> data(20'000);
    std::uint64_t found[2];
    const std::vector<rmem_io_vec> ranges{{addr, number_of(&data[0]), 8, 0},
                                          {addr + 5000, number_of(&data[5000]), 1000, 0}};
    rmem_io atomic = io_of(RMEM_IO_ATOMIC, addr, 8, found);
    atomic.how = RMEM_IO_ADD;
    rmem_io put = io_of(RMEM_IO_PUT, addr, 100, data.data());
    put.how = RMEM_IO_ADD;
    put.integer = addr + 104;
    put.integer_bytes = 8;
    rmem_io copy = io_of(RMEM_IO_COPY, addr, 8000, nullptr);
    copy.from = addr + 10'000;
    Ring ring;
    bool all = true;
    for (const rmem_io& io :
         {io_of(RMEM_IO_WRITE, addr, 100, data.data()),
          io_of(RMEM_IO_WRITE, addr, 20'000, data.data()),
          io_of(RMEM_IO_READ, addr, 100, data.data()),
          io_of(RMEM_IO_READ, addr, 20'000, data.data()),
          io_of(RMEM_IO_ZERO, addr, 100'000, nullptr), io_of(RMEM_IO_FENCE, 0, 0, nullptr), atomic,
          put, io_of(RMEM_IO_READV, ranges), io_of(RMEM_IO_WRITEV, ranges), copy}) {
        rmem_io asked = io;
        std::string what = "operation " + std::to_string(io.type);
        all &= found_memory((what + " by ioctl").c_str(), by_ioctl(fd, RMEM_IOC_IO, &asked));
        all &= found_memory((what + " by io_uring").c_str(), ring.run(fd, io));
    }
    return all;
}

// The same of the operations on names.
bool each_with_a_name(int fd, std::uint64_t addr) {
    Ring ring;
    bool all = true;
    for (bool by_uring : {false, true}) {
        auto ask = [&](rmem_io io) {
            return by_uring ? ring.run(fd, io) : by_ioctl(fd, RMEM_IOC_IO, &io);
        };
        if (!found_memory("PUBLISH", ask(io_of(RMEM_IO_PUBLISH, addr, 4, "name")))) {
            all = false;
            continue;
        }
        rmem_io_range found{};
        rmem_io lookup = io_of(RMEM_IO_LOOKUP, 0, 4, "name");
        lookup.found = number_of(&found);
        if (found_memory("LOOKUP", ask(lookup)))
            expect("the region found", found.addr == addr && found.bytes == region_bytes, 1);
        else
            all = false;
        while (!found_memory("a withdrawal", ask(io_of(RMEM_IO_PUBLISH, 0, 4, "name"))))
            all = false;
    }
    return all;
}

int each(int fd) {
    rmem_io_alloc region{};
    region.bytes = region_bytes;
    region.perm = 3;
    bool all = found_memory("ALLOC", by_ioctl(fd, RMEM_IOC_ALLOC, &region));
    if (all) {
        rmem_io_range range{region.addr, region.bytes};
        all = each_operation(fd, region.addr);
        all &= each_with_a_name(fd, region.addr);
        while (!found_memory("FREE", by_ioctl(fd, RMEM_IOC_FREE, &range)))
            all = false;
    }
    if (failures)
        return 1;
    return all ? 0 : 3;
}

} // namespace

} // namespace rmemio

int main(int argc, char** argv) {
    using namespace rmemio;
    if (argc != 3) {
        std::fprintf(stderr,
                     "usage: rmemio "
                     "refusals|fixed|vectors|cancel|crowd|restart|alloc|bogus|linger|threads|each "
                     "DEVICE\n");
        return 2;
    }
    std::string what = argv[1];
    int fd = open(argv[2], O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        std::perror(argv[2]);
        return 1;
    }
    if (what == "each")
        return each(fd);
    if (what == "refusals")
        refusals(argv[2], fd);
    else if (what == "fixed")
        fixed(fd);
    else if (what == "vectors")
        vectors(fd);
    else if (what == "cancel")
        cancel(fd);
    else if (what == "crowd")
        crowd(fd);
    else if (what == "bogus")
        bogus(fd);
    else if (what == "threads")
        threads(fd);
    else if (what == "restart")
        restart(argv[2], fd);
    else if (what == "alloc")
        told("ready") && alloc(fd, region_bytes, 3);
    else
        keep_under_way(fd);
    return failures ? 1 : 0;
}
