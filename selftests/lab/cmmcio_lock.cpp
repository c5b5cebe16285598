// SPDX-License-Identifier: GPL-2.0
// Locks across machines, for test_cmmc_locks.py.
//   locks                        obeys lines, and prints a line for each:
//                                lock PORT NUMBER TIMEOUT_MS, unlock PORT NUMBER
//   count HANDLE PORT NUMBER FILES ROUNDS
//                                FILES threads, each with a file of its own, lock and unlock. Each
//                                time one adds 1 to both words at the start of the grant, by two
//                                copies. ROUNDS is of them all; 0: until the input ends.
//   lock-threads PORT NUMBER ROUNDS
//                                locks and unlocks, while another thread unlocks the same file's
//   lock-refusals PORT           tries what must be refused
//   lock-greedy PORT             takes all the locks that it gets, and keeps them until its input
//   ends
#include "cmmcio.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <sys/ioctl.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

const char* lock_name(int result) {
    return result == CMMC_BROKEN ? "broken" : name(result);
}

void must(const char* what, int result) {
    if (result < 0) {
        say(what, result);
        exit(1);
    }
}

struct Counting {
    cmmc_handle_t handle;
    unsigned port, which;
    std::atomic<uint64_t> left;
    std::atomic<uint64_t> counted{0}, torn{0}, broken{0};
    // Others' turns between a request and its grant.
    std::vector<uint64_t> overtaken;

    void count_one(int file, bool watch) {
        uint64_t words[2], before = 0;
        if (watch)
            must("read", cmmc_read(file, &handle, 0, &before, sizeof(before)));
        int got = cmmc_lock(file, port, which, 0);
        must("lock", got);
        must("read", cmmc_read(file, &handle, 0, words, sizeof(words)));
        if (watch)
            overtaken.push_back(words[0] - before);
        torn += words[0] != words[1];
        broken += got == CMMC_BROKEN;
        for (int i = 0; i < 2; i++) {
            words[i]++;
            must("write", cmmc_write(file, &handle, 8 * i, &words[i], 8, 0));
        }
        must("unlock", cmmc_unlock(file, port, which));
        counted++;
    }
};

} // namespace

int locks() {
    char line[128];
    while (fgets(line, sizeof(line), stdin)) {
        unsigned port = 0, which = 0, timeout_ms = 0;
        if (sscanf(line, "lock %u %u %u", &port, &which, &timeout_ms) == 3)
            printf("lock %s\n", lock_name(cmmc_lock(device, port, which, timeout_ms)));
        else if (sscanf(line, "unlock %u %u", &port, &which) == 2)
            printf("unlock %s\n", name(cmmc_unlock(device, port, which)));
        fflush(stdout);
    }
    return 0;
}

int count(char** argument) {
    Counting all;
    all.handle = parse(argument[0]);
    all.port = static_cast<unsigned>(number(argument[1]));
    all.which = static_cast<unsigned>(number(argument[2]));
    uint64_t files = number(argument[3]), rounds = number(argument[4]);
    all.left = rounds ? rounds : UINT64_MAX;
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < files; i++)
        threads.emplace_back([&all, watch = files == 1] {
            int file = cmmc_open(nullptr);
            must("open", file);
            for (uint64_t left = all.left; left; left = all.left) {
                if (!all.left.compare_exchange_strong(left, left - 1))
                    continue;
                all.count_one(file, watch);
                if (all.counted == 1)
                    say("counting", 0);
            }
            close(file);
        });
    if (!rounds) {
        while (getchar() != EOF)
            ;
        all.left = 0;
    }
    for (std::thread& thread : threads)
        thread.join();
    std::sort(all.overtaken.begin(), all.overtaken.end());
    printf("counted %" PRIu64 " torn %" PRIu64 " broken %" PRIu64 " overtaken %" PRIu64 "\n",
           all.counted.load(), all.torn.load(), all.broken.load(),
           all.overtaken.empty() ? 0 : all.overtaken[all.overtaken.size() / 2]);
    return 0;
}

int lock_threads(char** argument) {
    auto port = static_cast<unsigned>(number(argument[0]));
    auto which = static_cast<unsigned>(number(argument[1]));
    uint64_t rounds = number(argument[2]), unlocked = 0;
    std::atomic<bool> over{false};
    std::atomic<uint64_t> by_other{0};
    std::thread other([&] {
        while (!over)
            by_other += !cmmc_unlock(device, port, which);
    });
    for (uint64_t n = 0; n < rounds; n++) {
        must("lock", cmmc_lock(device, port, which, 0));
        unlocked += !cmmc_unlock(device, port, which);
    }
    over = true;
    other.join();
    printf("locked %" PRIu64 " unlocked %" PRIu64 "\n", rounds, unlocked + by_other);
    return 0;
}

int lock_greedy(char** argument) {
    auto port = static_cast<unsigned>(number(argument[0]));
    unsigned held = 0, which = 0;
    int error = 0;
    // The locks of other users are busy: the call waits for each of them for a moment.
    for (which = CMMC_LOCKS; which-- && error != -ENOSPC;) {
        error = cmmc_lock(device, port, which, 20);
        held += error >= 0;
    }
    printf("holds %u ", held);
    say("", error);
    while (getchar() != EOF)
        ;
    return 0;
}

int lock_refusals(char** argument) {
    auto port = static_cast<unsigned>(number(argument[0]));
    say("no-port", cmmc_lock(device, 77, 0, 0));
    say("no-lock", cmmc_lock(device, port, CMMC_LOCKS, 0));
    say("not-held", cmmc_unlock(device, port, 0));
    say("lock", cmmc_lock(device, port, 0, 0));
    say("lock-twice", cmmc_lock(device, port, 0, 0));
    say("other-lock", cmmc_lock(device, port, CMMC_LOCKS - 1, 0));
    int file = cmmc_open(nullptr);
    say("other-file", cmmc_lock(file, port, 0, 50));
    say("not-its-own", cmmc_unlock(file, port, 0));
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    // Until it is noticed: a signal that comes before the call doesn't interrupt it.
    ualarm(20000, 20000);
    say("signal", cmmc_lock(file, port, 0, 0));
    ualarm(0, 0);
    struct cmmc_lock in {};
    in.size = sizeof(in);
    in.port = port;
    in.number = 1;
    in.flags = 1;
    say("flags", ioctl(device, CMMC_IOC_LOCK, &in) < 0 ? -errno : 0);
    in.flags = 0;
    in.reserved = 1;
    say("reserved", ioctl(device, CMMC_IOC_LOCK, &in) < 0 ? -errno : 0);
    in.reserved = 0;
    in.size--;
    say("size", ioctl(device, CMMC_IOC_LOCK, &in) < 0 ? -errno : 0);
    say("unlock", cmmc_unlock(device, port, 0));
    say("unlock-twice", cmmc_unlock(device, port, 0));
    say("now-its", cmmc_lock(file, port, 0, 0));
    close(file);
    int result = cmmc_lock(device, port, 0, 0);
    printf("after-close %s\n", lock_name(result));
    cmmc_unlock(device, port, 0);
    cmmc_unlock(device, port, CMMC_LOCKS - 1);
    return 0;
}
