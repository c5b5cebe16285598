// SPDX-License-Identifier: GPL-2.0
// Copies by io_uring, and of memory whose page faults take long. Commands of cmmcio:
//   uring-copy write|read HANDLE OFFSET BYTES SKEW SEED memory|buffer|fixed PIECES [ENTRIES]
//                              one copy in pieces that are under way at once; prints the result and
//                              the digest of own memory. ENTRIES: of the ring, which are reused
//   uring-pour HANDLE BYTES    keeps writes of the whole grant under way until one is refused
//   uring-refusals HANDLE BYTES   tries what must be refused
//   fault-uring HANDLE         submits a write whose page fault it does not answer, and one more
//   fault-calls PORT HANDLE    threads whose grant, write and read wait for such page faults
// After "blocked" the last two wait for a line, answer the faults, and print the results.
#include "cmmcio.hpp"

#include <atomic>
#include <fcntl.h>
#include <liburing.h>
#include <linux/userfaultfd.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t page = 4096;

struct Ring {
    explicit Ring(unsigned flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
                  unsigned entries = 64) {
        io_uring_params parameters{};
        parameters.flags = flags | IORING_SETUP_CQSIZE;
        parameters.cq_entries = 128;
        int error = io_uring_queue_init_params(entries, &ring, &parameters);
        if (error) {
            fprintf(stderr, "io_uring: %s\n", strerror(-error));
            exit(1);
        }
    }
    Ring(const Ring&) = delete;
    ~Ring() { io_uring_queue_exit(&ring); }
    io_uring_sqe* entry() {
        io_uring_sqe* sqe = io_uring_get_sqe(&ring);
        if (!sqe && io_uring_submit(&ring) >= 0)
            sqe = io_uring_get_sqe(&ring);
        if (!sqe)
            exit(3);
        return sqe;
    }
    struct Done {
        uint64_t user;
        int result;
        uint64_t bytes;
    };
    Done wait() {
        io_uring_cqe* cqe;
        int error = io_uring_submit_and_wait(&ring, 1);
        if (error < 0 || io_uring_peek_cqe(&ring, &cqe))
            exit(4);
        Done done{cqe->user_data, cqe->res, ring.flags & IORING_SETUP_CQE32 ? cqe->big_cqe[0] : 0};
        io_uring_cqe_seen(&ring, cqe);
        return done;
    }
    io_uring ring;
};

// Memory whose pages are there only once answer() was called.
struct SlowMemory {
    explicit SlowMemory(size_t pages) : bytes(pages * page) {
        data = static_cast<unsigned char*>(
            mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        file = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
        uffdio_api api{UFFD_API, 0, 0};
        uffdio_register range{
            {reinterpret_cast<uintptr_t>(data), bytes}, UFFDIO_REGISTER_MODE_MISSING, 0};
        if (file < 0 || ioctl(file, UFFDIO_API, &api) || ioctl(file, UFFDIO_REGISTER, &range)) {
            perror("userfaultfd");
            exit(1);
        }
    }
    void wait_fault() const {
        uffd_msg message;
        if (read(file, &message, sizeof(message)) != sizeof(message) ||
            message.event != UFFD_EVENT_PAGEFAULT)
            exit(5);
    }
    void answer() const {
        uffdio_zeropage zero{{reinterpret_cast<uintptr_t>(data), bytes}, 0, 0};
        if (ioctl(file, UFFDIO_ZEROPAGE, &zero)) {
            perror("UFFDIO_ZEROPAGE");
            exit(1);
        }
    }
    unsigned char* data;
    size_t bytes;
    int file;
};

void wait_line() {
    char line[16];
    printf("blocked\n");
    fflush(stdout);
    if (!fgets(line, sizeof(line), stdin))
        exit(6);
}

// Three places that a copy's own memory can be in.
struct Place {
    Place(Ring& in, const std::string& of, Memory& memory_) : kind(of), memory(memory_) {
        iovec whole{memory.data, memory.size};
        if (kind == "buffer")
            buffer = cmmc_register(device, memory.data, memory.size);
        else if (kind == "fixed")
            buffer = io_uring_register_buffers(&in.ring, &whole, 1);
        if (buffer < 0) {
            say("register", buffer);
            exit(0);
        }
    }
    void prepare(io_uring_sqe* sqe, bool write, const cmmc_handle_t* handle, uint64_t offset,
                 size_t at, size_t bytes) const {
        unsigned char* from = memory.data + at;
        if (kind == "memory")
            write ? cmmc_prep_write(sqe, device, handle, offset, from, bytes, CMMC_SIGNAL)
                  : cmmc_prep_read(sqe, device, handle, offset, from, bytes);
        else if (kind == "buffer")
            write ? cmmc_prep_write_buffer(sqe, device, handle, offset, buffer, at, bytes, 0)
                  : cmmc_prep_read_buffer(sqe, device, handle, offset, buffer, at, bytes);
        else
            write ? cmmc_prep_write_fixed(sqe, device, handle, offset, from, bytes, 0, 0)
                  : cmmc_prep_read_fixed(sqe, device, handle, offset, from, bytes, 0);
    }
    std::string kind;
    Memory& memory;
    int buffer = 0;
};

} // namespace

int uring_copy(char** argument) {
    bool write = !strcmp(argument[0], "write");
    cmmc_handle_t handle = parse(argument[1]);
    uint64_t offset = number(argument[2]);
    Memory memory(number(argument[3]), number(argument[4]));
    memory.fill(number(argument[5]));
    Ring ring(IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
              argument[8] ? static_cast<unsigned>(number(argument[8])) : 64);
    Place place(ring, argument[6], memory);
    size_t pieces = number(argument[7]), from = 0;
    for (size_t n = 0; n < pieces; n++) {
        size_t to = memory.size * (n + 1) / pieces;
        io_uring_sqe* sqe = ring.entry();
        place.prepare(sqe, write, &handle, offset + from, from, to - from);
        sqe->user_data = to - from;
        from = to;
    }
    int result = 0;
    for (size_t n = 0; n < pieces; n++) {
        Ring::Done done = ring.wait();
        if (done.result)
            result = done.result;
        else if (done.bytes != done.user)
            return 7;
    }
    printf("%s %s %016" PRIx64 "\n", argument[0], name(result), memory.digest(0, memory.size));
    return 0;
}

int uring_pour(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    Memory memory(number(argument[1]), 0);
    memory.fill(1);
    Ring ring;
    constexpr int depth = 4;
    int under_way = 0, last = 0;
    bool poured = false;
    do {
        for (; !last && under_way < depth; under_way++)
            cmmc_prep_write(ring.entry(), device, &handle, 0, memory.data, memory.size, 0);
        int result = ring.wait().result;
        under_way--;
        if (!result && !poured)
            say("pouring", 0);
        poured |= !result;
        last = result ? result : last;
    } while (under_way);
    say("refused", last);
    return 0;
}

int uring_refusals(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    size_t bytes = number(argument[1]);
    Memory memory(bytes, 0);
    Ring ring;
    Place fixed(ring, "fixed", memory);
    auto one = [&](const char* what, auto&& prepare) {
        prepare(ring.entry());
        say(what, ring.wait().result);
    };
    auto in = [](io_uring_sqe* sqe) {
        return reinterpret_cast<cmmc_copy*>(reinterpret_cast<char*>(sqe) + 48);
    };
    auto write = [&](io_uring_sqe* sqe) {
        cmmc_prep_write(sqe, device, &handle, 0, memory.data, bytes, 0);
    };
    auto write_fixed = [&](io_uring_sqe* sqe) {
        cmmc_prep_write_fixed(sqe, device, &handle, 0, memory.data, bytes, 0, 0);
    };
    one("all", write);
    one("all-fixed", write_fixed);
    cmmc_handle_t forged = handle;
    forged.word[2] ^= 1;
    one("forged-key",
        [&](io_uring_sqe* sqe) { cmmc_prep_write(sqe, device, &forged, 0, memory.data, 1, 0); });
    one("size", [&](io_uring_sqe* sqe) { write(sqe), in(sqe)->size--; });
    one("flags", [&](io_uring_sqe* sqe) { write(sqe), in(sqe)->flags |= 1U << 31; });
    for (unsigned flags = 4; flags < 6; flags++)
        one("no-such-flags", [&](io_uring_sqe* sqe) {
            cmmc_prep_write(sqe, device, &handle, 0, memory.data, bytes, flags);
        });
    one("reserved", [&](io_uring_sqe* sqe) { write(sqe), in(sqe)->reserved = 1; });
    one("command", [&](io_uring_sqe* sqe) { write(sqe), sqe->cmd_op = 77; });
    one("one-more", [&](io_uring_sqe* sqe) { write(sqe), in(sqe)->offset = 1; });
    one("offset-wraps", [&](io_uring_sqe* sqe) { write(sqe), in(sqe)->offset = UINT64_MAX; });
    one("bytes-wrap", [&](io_uring_sqe* sqe) { write(sqe), in(sqe)->bytes = UINT64_MAX; });
    one("no-buffer",
        [&](io_uring_sqe* sqe) { cmmc_prep_write_buffer(sqe, device, &handle, 0, 9, 0, 1, 0); });
    one("fixed-and-buffer",
        [&](io_uring_sqe* sqe) { write_fixed(sqe), in(sqe)->flags |= CMMC_COPY_BUFFER; });
    one("before-fixed", [&](io_uring_sqe* sqe) { write_fixed(sqe), in(sqe)->address--; });
    one("behind-fixed", [&](io_uring_sqe* sqe) { write_fixed(sqe), in(sqe)->address++; });
    one("fixed-wraps", [&](io_uring_sqe* sqe) { write_fixed(sqe), in(sqe)->bytes = UINT64_MAX; });
    one("fixed-number", [&](io_uring_sqe* sqe) { write_fixed(sqe), sqe->buf_index = 9; });
    Ring small(0);
    write(small.entry());
    say("small-entries", small.wait().result);
    return 0;
}

int fault_uring(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    SlowMemory slow(1);
    Memory memory(page, 0);
    Ring ring;
    io_uring_sqe* sqe = ring.entry();
    cmmc_prep_write(sqe, device, &handle, 0, slow.data, page, 0);
    sqe->user_data = 1;
    sqe = ring.entry();
    cmmc_prep_write(sqe, device, &handle, 0, memory.data, page, 0);
    sqe->user_data = 2;
    // The first copy stands still, and neither the submitter nor the second copy waits for it.
    Ring::Done done = ring.wait();
    printf("%d %s\n", static_cast<int>(done.user), name(done.result));
    slow.wait_fault();
    wait_line();
    slow.answer();
    done = ring.wait();
    printf("%d %s\n", static_cast<int>(done.user), name(done.result));
    return 0;
}

int fault_calls(char** argument) {
    auto port = static_cast<unsigned>(number(argument[0]));
    cmmc_handle_t handle = parse(argument[1]), made;
    SlowMemory to_grant(1), to_write(1), to_read(1);
    int granted = 1, written = 1, got = 1;
    std::thread granting(
        [&] { granted = cmmc_translate(device, port, to_grant.data, page, CMMC_READ, -1, &made); });
    std::thread writing([&] { written = cmmc_write(device, &handle, 0, to_write.data, page, 0); });
    std::thread reading([&] { got = cmmc_read(device, &handle, 0, to_read.data, page); });
    for (const SlowMemory* memory : {&to_grant, &to_write, &to_read})
        memory->wait_fault();
    wait_line();
    for (const SlowMemory* memory : {&to_grant, &to_write, &to_read})
        memory->answer();
    granting.join();
    writing.join();
    reading.join();
    say("translate", granted);
    say("write", written);
    say("read", got);
    return 0;
}
