// SPDX-License-Identifier: GPL-2.0
// A program of test_cmmc.py. Its first argument says what it is:
//   own PORT BYTES SKEW RIGHTS   grants BYTES, SKEW bytes into a page, and prints the handle; then
//                                obeys lines: digest, wait, revoke, zero, and also PORT: grants it
//                                to that peer, too
//   write|read HANDLE OFFSET BYTES SKEW SEED [buffer]
//                                one copy, own memory SKEW bytes into a page; prints the result and
//                                the digest of own memory
//   signal HANDLE                only a signal
//   pour HANDLE BYTES            writes all of the grant, again and again, until it is refused
//   writes HANDLE BYTES COUNT [FLAGS]  so many, one after the other
//   crowd HANDLE BYTES THREADS   does that by many threads
//   refusals HANDLE              tries what must be refused
//   lock PORT BYTES              grants or registers more than it may lock
//   greedy PORT                  takes all the grants that it gets
//   uring-..., fault-...         see cmmcio_uring.cpp
//   bell, ring..., futex, tell   see cmmcio_bell.cpp
//   time..., pingpong            see cmmcio_time.cpp
//   locks, count, lock-...       see cmmcio_lock.cpp
//   check                        see cmmcio_check.cpp
#include "cmmcio.hpp"

#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

int device = -1;

namespace {

void print(const cmmc_handle_t& handle) {
    printf("handle %" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 "\n", handle.word[0],
           handle.word[1], handle.word[2], handle.word[3]);
    fflush(stdout);
}

int own(char** argument) {
    size_t bytes = number(argument[1]);
    Memory memory(bytes, number(argument[2]));
    memory.fill(7);
    int signals = eventfd(0, 0);
    cmmc_handle_t handle;
    int error = cmmc_translate(device, static_cast<unsigned>(number(argument[0])), memory.data,
                               bytes, static_cast<unsigned>(number(argument[3])), signals, &handle);
    if (error) {
        say("translate", error);
        return 0;
    }
    print(handle);
    char line[128];
    while (fgets(line, sizeof(line), stdin)) {
        size_t from = 0, count = 0;
        unsigned port = 0;
        if (sscanf(line, "digest %zu %zu", &from, &count) == 2) {
            printf("digest %016" PRIx64 "\n", memory.digest(from, count));
        } else if (!strcmp(line, "wait\n")) {
            uint64_t seen;
            if (read(signals, &seen, sizeof(seen)) != sizeof(seen))
                return 1;
            printf("signalled %016" PRIx64 "\n", memory.digest(0, bytes));
        } else if (!strcmp(line, "zero\n")) {
            memset(memory.data, 0, bytes);
            say("zeroed", 0);
        } else if (sscanf(line, "also %u", &port) == 1) {
            cmmc_handle_t other;
            error = cmmc_translate(device, port, memory.data, bytes,
                                   static_cast<unsigned>(number(argument[3])), -1, &other);
            if (error)
                say("translate", error);
            else
                print(other);
        } else if (!strcmp(line, "revoke\n")) {
            int result = cmmc_revoke(device, &handle);
            // The memory is this program's alone: a copy that comes late shows in it.
            memset(memory.data, 0xee, bytes);
            uint64_t before = memory.digest(0, bytes);
            bool same = memory.data[0] == 0xee && !memcmp(memory.data, memory.data + 1, bytes - 1);
            for (int i = 0; i < 20; i++)
                same = same && memory.digest(0, bytes) == before;
            printf("revoked %s %s\n", name(result), same ? "quiet" : "changed");
        }
        fflush(stdout);
    }
    return 0;
}

int copy(const std::string& what, char** argument, bool registered) {
    cmmc_handle_t handle = parse(argument[0]);
    uint64_t offset = number(argument[1]);
    Memory memory(number(argument[2]), number(argument[3]));
    memory.fill(number(argument[4]));
    int result;
    if (registered) {
        // A buffer that is longer than the copy on both sides.
        int buffer = cmmc_register(device, memory.data, memory.size);
        if (buffer < 0) {
            say("register", buffer);
            return 0;
        }
        result = what == "write"
                     ? cmmc_write_buffer(device, &handle, offset, buffer, 0, memory.size, 0)
                     : cmmc_read_buffer(device, &handle, offset, buffer, 0, memory.size);
    } else {
        result = what == "write"
                     ? cmmc_write(device, &handle, offset, memory.data, memory.size, CMMC_SIGNAL)
                     : cmmc_read(device, &handle, offset, memory.data, memory.size);
    }
    printf("%s %s %016" PRIx64 "\n", what.c_str(), name(result), memory.digest(0, memory.size));
    return 0;
}

int pour(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    Memory memory(number(argument[1]), 0);
    for (uint64_t round = 0;; round++) {
        memory.data[0] = memory.data[memory.size - 1] = static_cast<unsigned char>(round);
        int result = cmmc_write(device, &handle, 0, memory.data, memory.size, 0);
        if (result < 0) {
            say("refused", result);
            return 0;
        }
        if (!round)
            say("pouring", 0);
    }
}

int writes(char** argument, unsigned flags) {
    cmmc_handle_t handle = parse(argument[0]);
    Memory memory(number(argument[1]), 0);
    int result = 0;
    for (size_t n = number(argument[2]); n && !result; n--)
        result = cmmc_write(device, &handle, 0, memory.data, memory.size, flags);
    say("writes", result);
    return 0;
}

int crowd(char** argument) {
    size_t count = number(argument[2]);
    std::vector<std::thread> threads;
    for (size_t n = 0; n < count; n++)
        threads.emplace_back(pour, argument);
    for (std::thread& each : threads)
        each.join();
    return 0;
}

int refusals(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    size_t bytes = number(argument[1]);
    Memory memory(bytes + 1, 0);
    auto write = [&](const cmmc_handle_t& to, uint64_t offset, size_t count) {
        return cmmc_write(device, &to, offset, memory.data, count, 0);
    };
    cmmc_handle_t other = handle;
    other.word[2] ^= 1; // its key
    say("forged-key", write(other, 0, 1));
    other = handle;
    other.word[3] ^= 1ULL << 63;
    say("forged-key-high", write(other, 0, 1));
    other = handle;
    other.word[1] ^= 1; // its epoch
    say("other-epoch", write(other, 0, 1));
    other = handle;
    other.word[0] ^= 1; // its magic
    say("no-handle", write(other, 0, 1));
    other = handle;
    other.word[0] |= 0xffffULL << 32; // index
    say("index", write(other, 0, 1));
    other = handle;
    other.word[0] ^= 1ULL << 57; // the peer that may use it
    say("other-machine", write(other, 0, 1));
    say("all", write(handle, 0, bytes));
    say("one-more", write(handle, 0, bytes + 1));
    say("behind", write(handle, bytes, 1));
    say("offset-wraps", write(handle, UINT64_MAX, 2));
    say("bytes-wrap", cmmc_write(device, &handle, 1, memory.data, SIZE_MAX, 0));
    say("none-at-end", write(handle, bytes, 0));
    say("unmapped", cmmc_write(device, &handle, 0, reinterpret_cast<void*>(4096), 1, 0));
    say("kernel-memory",
        cmmc_write(device, &handle, 0, reinterpret_cast<void*>(0xffff888000000000), 8, 0));
    say("not-readable", cmmc_read(device, &handle, 0, memory.data, 1));
    say("not-mine", cmmc_revoke(device, &handle));
    say("no-buffer", cmmc_write_buffer(device, &handle, 0, 5, 0, 1, 0));
    say("buffer-number", cmmc_write_buffer(device, &handle, 0, -1, 0, 1, 0));
    int buffer = cmmc_register(device, memory.data, 100);
    say("beyond-buffer", cmmc_write_buffer(device, &handle, 0, buffer, 99, 2, 0));
    say("buffer-wraps", cmmc_write_buffer(device, &handle, 0, buffer, UINT64_MAX, 2, 0));
    say("unregister", cmmc_unregister(device, buffer));
    say("unregister-twice", cmmc_unregister(device, buffer));
    int file = open("/dev/cmmc", O_RDWR);
    say("other-file-buffer", cmmc_write_buffer(file, &handle, 0, buffer, 0, 1, 0));
    cmmc_handle_t made;
    say("no-rights", cmmc_translate(device, 0, memory.data, 1, 0, -1, &made));
    say("no-port", cmmc_translate(device, 77, memory.data, 1, CMMC_READ, -1, &made));
    say("no-bytes", cmmc_translate(device, 0, memory.data, 0, CMMC_READ, -1, &made));
    say("too-many-bytes",
        cmmc_translate(device, 0, memory.data, (1ULL << 30) + 1, CMMC_READ, -1, &made));
    say("address-wraps", cmmc_translate(device, 0, reinterpret_cast<void*>(UINTPTR_MAX), 4096,
                                        CMMC_READ, -1, &made));
    say("grant-unmapped",
        cmmc_translate(device, 0, reinterpret_cast<void*>(4096), 4096, CMMC_READ, -1, &made));
    say("no-eventfd", cmmc_translate(device, 0, memory.data, 1, CMMC_READ, device, &made));
    struct cmmc_copy in {};
    in.size = sizeof(in) - 1;
    say("size", ioctl(device, CMMC_IOC_WRITE, &in) < 0 ? -errno : 0);
    in.size = sizeof(in);
    in.flags = 1U << 31;
    say("flags", ioctl(device, CMMC_IOC_WRITE, &in) < 0 ? -errno : 0);
    say("command", ioctl(device, _IO(CMMC_IO_MAGIC, 1), &in) < 0 ? -errno : 0);
    for (int i = 0; i <= CMMC_GRANTS_MAX; i++)
        if (int error = cmmc_translate(device, 0, memory.data, 1, CMMC_READ, -1, &made)) {
            printf("grants-%d ", i);
            say("more", error);
        }
    return 0;
}

int lock(char** argument) {
    size_t bytes = number(argument[1]);
    Memory memory(bytes, 0);
    cmmc_handle_t handle;
    unsigned port = static_cast<unsigned>(number(argument[0]));
    say("grant", cmmc_translate(device, port, memory.data, bytes, CMMC_READ, -1, &handle));
    say("register", cmmc_register(device, memory.data, bytes));
    size_t half = bytes / 2;
    say("half", cmmc_translate(device, port, memory.data, half, CMMC_READ, -1, &handle));
    say("other-half",
        cmmc_translate(device, port, memory.data + half, half, CMMC_READ, -1, &handle));
    say("revoke", cmmc_revoke(device, &handle));
    return 0;
}

// All the grants that the user gets, by as many files as it takes, until the input ends.
int greedy(char** argument) {
    Memory memory(1, 0);
    auto port = static_cast<unsigned>(number(argument[0]));
    cmmc_handle_t handle;
    int count = 0, error = 0;
    while (!error) {
        int file = cmmc_open(nullptr);
        for (int i = 0; !error && i < CMMC_GRANTS_MAX; i++, count += !error)
            error = cmmc_translate(file, port, memory.data, 1, CMMC_READ, -1, &handle);
    }
    printf("holds %d %s\n", count, name(error));
    fflush(stdout);
    while (getchar() != EOF)
        ;
    return 0;
}

} // namespace

int main(int argc, char** argv) {
    std::string what = argc > 1 ? argv[1] : "";
    device = cmmc_open(nullptr);
    if (device < 0) {
        say("open", device);
        return 1;
    }
    if (what == "own" && argc == 6)
        return own(argv + 2);
    if ((what == "write" || what == "read") && argc >= 7)
        return copy(what, argv + 2, argc > 7);
    if (what == "signal" && argc == 3) {
        cmmc_handle_t handle = parse(argv[2]);
        say("signal", cmmc_write(device, &handle, 0, nullptr, 0, CMMC_SIGNAL));
        return 0;
    }
    if (what == "pour" && argc == 4)
        return pour(argv + 2);
    if (what == "writes" && (argc == 5 || argc == 6))
        return writes(argv + 2, argc == 6 ? static_cast<unsigned>(number(argv[5])) : 0);
    if (what == "crowd" && argc == 5)
        return crowd(argv + 2);
    if (what == "refusals" && argc == 4)
        return refusals(argv + 2);
    if (what == "lock" && argc == 4)
        return lock(argv + 2);
    if (what == "greedy" && argc == 3)
        return greedy(argv + 2);
    if (what == "uring-copy" && argc >= 10)
        return uring_copy(argv + 2);
    if (what == "uring-pour" && argc == 4)
        return uring_pour(argv + 2);
    if (what == "uring-refusals" && argc == 4)
        return uring_refusals(argv + 2);
    if (what == "fault-uring" && argc == 3)
        return fault_uring(argv + 2);
    if (what == "fault-calls" && argc == 4)
        return fault_calls(argv + 2);
    if (what == "locks" && argc == 2)
        return locks();
    if (what == "count" && argc == 7)
        return count(argv + 2);
    if (what == "lock-threads" && argc == 5)
        return lock_threads(argv + 2);
    if (what == "lock-greedy" && argc == 3)
        return lock_greedy(argv + 2);
    if (what == "lock-refusals" && argc == 3)
        return lock_refusals(argv + 2);
    if (what == "check" && argc == 6)
        return check(argv + 2);
    if (what == "bell" && argc == 3)
        return bell(argv + 2);
    if (what == "ring" && argc == 5)
        return ring(argv + 2);
    if (what == "ring-refusals" && argc == 3)
        return ring_refusals(argv + 2);
    if (what == "futex" && argc == 4)
        return futex(argv + 2);
    if (what == "tell" && argc == 4)
        return tell(argv + 2);
    if (what == "time-own" && argc == 4)
        return time_own(argv + 2);
    if (what == "time" && argc == 6)
        return time_writes(argv + 2);
    if (what == "pingpong" && argc == 5)
        return pingpong(argv + 2);
    fprintf(stderr, "cmmcio: see the head of its source\n");
    return 2;
}
