// SPDX-License-Identifier: GPL-2.0
// Declarations that the sources of cmmcio share.
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "remora_cmmc.h"
#include "remote/cmmc.h"

// The open /dev/cmmc.
extern int device;

struct Memory {
    Memory(size_t bytes, size_t skew) : size(bytes) {
        void* at = mmap(nullptr, bytes + skew + 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) {
            perror("mmap");
            exit(1);
        }
        data = static_cast<unsigned char*>(at) + skew;
    }
    void fill(uint64_t seed) {
        for (size_t i = 0; i < size; i++)
            data[i] = static_cast<unsigned char>((seed += 0x9e3779b97f4a7c15) >> 56 ^ i);
    }
    // FNV-1a: tells content apart in a test.
    uint64_t digest(size_t from, size_t bytes) const {
        uint64_t h = 0xcbf29ce484222325;
        for (size_t i = from; i < from + bytes; i++)
            h = (h ^ data[i]) * 0x100000001b3;
        return h;
    }
    unsigned char* data;
    size_t size;
};

inline cmmc_handle_t parse(const char* text) {
    cmmc_handle_t handle{};
    if (sscanf(text, "%" SCNx64 ".%" SCNx64 ".%" SCNx64 ".%" SCNx64, &handle.word[0],
               &handle.word[1], &handle.word[2], &handle.word[3]) != 4) {
        fprintf(stderr, "%s is no handle\n", text);
        exit(1);
    }
    return handle;
}

inline const char* name(int result) {
    return result < 0 ? strerrorname_np(-result) : "ok";
}

inline void say(const char* what, int result) {
    printf("%s %s\n", what, name(result));
    fflush(stdout);
}

inline uint64_t number(const char* text) {
    return strtoull(text, nullptr, 0);
}

// cmmcio_uring.cpp
int uring_copy(char** argument);
int uring_pour(char** argument);
int uring_refusals(char** argument);
int fault_uring(char** argument);
int fault_calls(char** argument);

// cmmcio_lock.cpp
int locks();
int count(char** argument);
int lock_threads(char** argument);
int lock_greedy(char** argument);
int lock_refusals(char** argument);

// cmmcio_bell.cpp
int bell(char** argument);
int ring(char** argument);
int ring_refusals(char** argument);
int futex(char** argument);
int tell(char** argument);

// cmmcio_check.cpp
int check(char** argument);

// cmmcio_time.cpp
int time_own(char** argument);
int time_writes(char** argument);
int pingpong(char** argument);
