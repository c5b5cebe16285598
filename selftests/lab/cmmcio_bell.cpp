// SPDX-License-Identifier: GPL-2.0
// Doorbells, and signals that wake a futex, for test_cmmc.py.
//   bell PORT                    makes a doorbell and prints its handle; then obeys lines: wait
//                                (for the eventfd), take (all numbers there are), misplace (takes
//                                one where it can't be written), revoke
//   ring HANDLE FIRST COUNT      sends COUNT numbers from FIRST on, until one is refused; prints
//                                how many were not
//   ring-refusals HANDLE         tries what must be refused
//   futex PORT BYTES             grants memory, prints the handle, and waits for its first word by
//                                FUTEX_WAIT each time it is written; prints it
//   tell HANDLE NUMBER           writes that word, and signals
#include "cmmcio.hpp"

#include <atomic>
#include <cerrno>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace {

void print(const cmmc_handle_t& handle) {
    printf("handle %" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 "\n", handle.word[0],
           handle.word[1], handle.word[2], handle.word[3]);
    fflush(stdout);
}

int take_to_read_only_page(const cmmc_handle_t& handle) {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    auto* in = static_cast<struct cmmc_take*>(page);
    in->size = sizeof(*in);
    memcpy(&in->handle, &handle, sizeof(in->handle));
    mprotect(page, 4096, PROT_READ);
    int error = ioctl(device, CMMC_IOC_TAKE, in) < 0 ? -errno : 0;
    munmap(page, 4096);
    return error;
}

} // namespace

int bell(char** argument) {
    int signals = eventfd(0, 0);
    cmmc_handle_t handle;
    int error = cmmc_bell(device, static_cast<unsigned>(number(argument[0])), signals, &handle);
    if (error) {
        say("bell", error);
        return 0;
    }
    print(handle);
    char line[32];
    while (fgets(line, sizeof(line), stdin)) {
        uint64_t seen;
        if (!strcmp(line, "wait\n")) {
            say("waited", read(signals, &seen, sizeof(seen)) == sizeof(seen) ? 0 : -EIO);
        } else if (!strcmp(line, "take\n")) {
            printf("taken");
            while (!(error = cmmc_take(device, &handle, &seen)))
                printf(" %" PRIu64, seen);
            printf(" %s\n", name(error));
        } else if (!strcmp(line, "misplace\n")) {
            say("misplaced", take_to_read_only_page(handle));
        } else if (!strcmp(line, "revoke\n")) {
            say("revoked", cmmc_revoke(device, &handle));
        }
        fflush(stdout);
    }
    return 0;
}

int ring(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    uint64_t first = number(argument[1]), count = number(argument[2]), n = 0;
    int error = 0;
    for (; n < count && !error; n += !error)
        error = cmmc_ring(device, &handle, first + n);
    printf("rang %" PRIu64 " %s\n", n, name(error));
    return 0;
}

int ring_refusals(char** argument) {
    cmmc_handle_t handle = parse(argument[0]), other = handle, made;
    uint64_t word = 0;
    other.word[2] ^= 1; // its key
    say("forged-key", cmmc_ring(device, &other, 1));
    say("write", cmmc_write(device, &handle, 0, &word, 0, CMMC_SIGNAL));
    say("read", cmmc_read(device, &handle, 0, &word, 1));
    say("not-mine", cmmc_take(device, &handle, &word));
    say("memory", cmmc_translate(device, 0, &word, 8, CMMC_READ, -1, &made));
    say("take-memory", cmmc_take(device, &made, &word));
    struct cmmc_ring in {};
    in.size = sizeof(in);
    in.flags = 1;
    say("flags", ioctl(device, CMMC_IOC_RING, &in) < 0 ? -errno : 0);
    struct cmmc_translate translate {};
    translate.size = sizeof(translate);
    translate.flags = CMMC_GRANT_BELL | CMMC_GRANT_READ;
    say("bell-and-read", ioctl(device, CMMC_IOC_TRANSLATE, &translate) < 0 ? -errno : 0);
    translate.flags = CMMC_GRANT_BELL;
    translate.bytes = 1;
    say("bell-with-bytes", ioctl(device, CMMC_IOC_TRANSLATE, &translate) < 0 ? -errno : 0);
    return 0;
}

int futex(char** argument) {
    Memory memory(number(argument[1]), 0);
    int signals = eventfd(0, 0);
    auto& word = *reinterpret_cast<std::atomic<uint32_t>*>(memory.data);
    cmmc_wake_t* wake;
    cmmc_handle_t handle;
    int error = cmmc_translate(device, static_cast<unsigned>(number(argument[0])), memory.data,
                               memory.size, CMMC_WRITE, signals, &handle);
    if (!error)
        error = cmmc_wake_start(&wake, signals, reinterpret_cast<uint32_t*>(memory.data));
    if (error) {
        say("futex", error);
        return 0;
    }
    print(handle);
    for (uint32_t old = 0; old != 99; old = word.load()) {
        // libstdc++ waits by FUTEX_WAIT_PRIVATE.
        word.wait(old);
        printf("word %u\n", word.load());
        fflush(stdout);
    }
    cmmc_wake_stop(wake);
    return 0;
}

int tell(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    auto word = static_cast<uint32_t>(number(argument[1]));
    say("tell", cmmc_write(device, &handle, 0, &word, sizeof(word), CMMC_SIGNAL));
    return 0;
}
