// SPDX-License-Identifier: GPL-2.0
// Copies whose time is measured, for tools/bench/marlin.
//   time-own PORT BYTES          grants memory in huge pages, prints the handle, and stays until
//   its
//                                input ends
//   time HANDLE BYTES COUNT memory|buffer
//                                COUNT writes of BYTES from such memory; prints the median of their
//                                nanoseconds
//   pingpong PORT COUNT ping|pong
//                                prints a handle, reads the other's from its input, and then the
//                                two write 4 bytes into each other's memory in turn. ping prints
//                                the median of its round trips in nanoseconds
#include "cmmcio.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

namespace {

constexpr size_t HUGE_BYTES = 2 << 20;

// Memory in huge pages, each of which is contiguous; the machine must have some (nr_hugepages).
unsigned char* huge(size_t bytes) {
    size_t room = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    void* at = mmap(nullptr, room, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap of huge pages");
        exit(1);
    }
    memset(at, 1, room);
    return static_cast<unsigned char*>(at);
}

void print(const cmmc_handle_t& handle) {
    printf("handle %" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 "\n", handle.word[0],
           handle.word[1], handle.word[2], handle.word[3]);
    fflush(stdout);
}

void must(const char* what, int result) {
    if (result < 0) {
        say(what, result);
        exit(1);
    }
}

uint64_t now_ns() {
    auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

void print_median(std::vector<uint64_t>& times) {
    std::sort(times.begin(), times.end());
    printf("median %" PRIu64 "\n", times[times.size() / 2]);
    fflush(stdout);
}

} // namespace

int time_own(char** argument) {
    size_t bytes = number(argument[1]);
    unsigned char* data = huge(bytes);
    cmmc_handle_t handle;
    must("translate", cmmc_translate(device, static_cast<unsigned>(number(argument[0])), data,
                                     bytes, CMMC_READ | CMMC_WRITE, -1, &handle));
    print(handle);
    while (getchar() != EOF)
        ;
    return 0;
}

int time_writes(char** argument) {
    cmmc_handle_t handle = parse(argument[0]);
    size_t bytes = number(argument[1]);
    unsigned char* data = huge(bytes);
    bool registered = !strcmp(argument[3], "buffer");
    int buffer = registered ? cmmc_register(device, data, bytes) : 0;
    must("register", buffer);
    std::vector<uint64_t> times(number(argument[2]));
    for (uint64_t& each : times) {
        uint64_t begun = now_ns();
        must("write", registered ? cmmc_write_buffer(device, &handle, 0, buffer, 0, bytes, 0)
                                 : cmmc_write(device, &handle, 0, data, bytes, 0));
        each = now_ns() - begun;
    }
    print_median(times);
    return 0;
}

int pingpong(char** argument) {
    alignas(4096) static unsigned char page[4096];
    auto* own = reinterpret_cast<volatile uint32_t*>(page);
    cmmc_handle_t handle;
    must("translate", cmmc_translate(device, static_cast<unsigned>(number(argument[0])), page,
                                     sizeof(page), CMMC_READ | CMMC_WRITE, -1, &handle));
    print(handle);
    char line[128];
    if (!fgets(line, sizeof(line), stdin))
        return 1;
    cmmc_handle_t peer = parse(line);
    static uint32_t word;
    int buffer = cmmc_register(device, &word, sizeof(word));
    must("register", buffer);
    auto send = [&](uint32_t n) {
        word = n;
        must("write", cmmc_write_buffer(device, &peer, 0, buffer, 0, sizeof(word), 0));
    };
    bool first = !strcmp(argument[2], "ping");
    std::vector<uint64_t> times;
    for (uint32_t n = 1, count = static_cast<uint32_t>(number(argument[1])); n <= count; n++) {
        uint64_t begun = now_ns();
        if (first)
            send(n);
        while (*own != n)
            ;
        if (!first)
            send(n);
        times.push_back(now_ns() - begun);
    }
    if (first)
        print_median(times);
    // Its grant must last until the other's last write.
    while (getchar() != EOF)
        ;
    return 0;
}
