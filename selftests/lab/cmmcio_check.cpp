// SPDX-License-Identifier: GPL-2.0
// Copies of chance that are read back, for soak_marlin.py.
//   check HANDLE BYTES SEED GO_ON
//                                until the file GO_ON is gone, writes pieces of the grant and reads
//                                others, which must be as they were written; prints "begun", "round
//                                N" after some pieces, and at the end the digest of all. Exit
//                                status 1: wrong bytes. 3: a call failed, and the last line says
//                                which.
#include "cmmcio.hpp"

#include <algorithm>
#include <random>
#include <unistd.h>

namespace {

constexpr int pieces_a_round = 50;

int expect_ok(const char* what, int result) {
    if (result >= 0)
        return result;
    say(what, result);
    exit(3);
}

struct Checking {
    cmmc_handle_t handle;
    Memory mirror, own;
    std::mt19937_64 chance;
    int buffer; // own, registered

    size_t below(size_t bound) { return chance() % bound; }
    size_t length() { return std::min(mirror.size, 1 + below(below(4) ? 8192 : mirror.size)); }

    void write_piece() {
        size_t count = length(), to = below(mirror.size - count + 1);
        size_t from = below(own.size - count + 1);
        for (size_t i = 0; i < count; i++)
            own.data[from + i] = static_cast<unsigned char>(chance());
        memcpy(mirror.data + to, own.data + from, count);
        int flags = below(8) ? 0 : CMMC_SIGNAL;
        if (below(2))
            expect_ok("write", cmmc_write(device, &handle, to, own.data + from, count, flags));
        else
            expect_ok("write-buffer",
                      cmmc_write_buffer(device, &handle, to, buffer, from, count, flags));
    }

    void read_piece() {
        size_t count = length(), from = below(mirror.size - count + 1);
        size_t to = below(own.size - count + 1);
        if (below(2))
            expect_ok("read", cmmc_read(device, &handle, from, own.data + to, count));
        else
            expect_ok("read-buffer", cmmc_read_buffer(device, &handle, from, buffer, to, count));
        if (!memcmp(own.data + to, mirror.data + from, count))
            return;
        size_t at = 0;
        while (own.data[to + at] == mirror.data[from + at])
            at++;
        printf("wrong bytes: %zu at %zu, first at %zu: %02x, not %02x\n", count, from, at,
               own.data[to + at], mirror.data[from + at]);
        exit(1);
    }
};

} // namespace

int check(char** argument) {
    size_t bytes = number(argument[1]);
    Checking all{parse(argument[0]), Memory(bytes, 0), Memory(bytes + 4096, 0),
                 std::mt19937_64(number(argument[2])), 0};
    expect_ok("read", cmmc_read(device, &all.handle, 0, all.mirror.data, bytes));
    all.buffer = expect_ok("register", cmmc_register(device, all.own.data, all.own.size));
    say("begun", 0);
    for (int round = 1; !access(argument[3], F_OK); round++) {
        for (int i = 0; i < pieces_a_round; i++) {
            all.write_piece();
            all.read_piece();
        }
        printf("round %d\n", round);
        fflush(stdout);
    }
    printf("digest %016" PRIx64 "\n", all.mirror.digest(0, bytes));
    return 0;
}
