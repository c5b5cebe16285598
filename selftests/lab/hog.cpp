// SPDX-License-Identifier: GPL-2.0
//
// A program that needs memory and knows what belongs in it:
//
//     hog MIB ROUNDS SEED [THREADS]
//
// Each round fills the memory with words computed from their address, the round and the seed, then
// reads everything back: pages in an order of chance, so that a page comes from wherever it was put
// rather than from readahead. Every second round also gives half of the pages back
// (MADV_DONTNEED) and wants them to be zero, so that a slot freed and used again can't go unseen.
// Status 0: every word was as written. 1: one was not, and the line says which.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace {

constexpr size_t PAGE_WORDS = 4096 / sizeof(uint64_t);

std::atomic<bool> whole{true};

uint64_t word_at(uint64_t address, uint64_t seed) {
    uint64_t z = address * 0x9e3779b97f4a7c15 + seed * 0xd1342543de82ef95;

    z = (z ^ (z >> 32)) * 0xd6e8feb86659fd93;
    return z ^ (z >> 29);
}

void complain(const char* when, size_t page, size_t word, uint64_t found, uint64_t wanted) {
    if (whole.exchange(false))
        std::printf("%s: page %zu word %zu: %016" PRIx64 ", not %016" PRIx64 "\n", when, page, word,
                    found, wanted);
}

void write_page(volatile uint64_t* memory, size_t page, uint64_t seed) {
    for (size_t at = page * PAGE_WORDS; at < (page + 1) * PAGE_WORDS; at++)
        memory[at] = word_at(at, seed);
}

void check_page(const volatile uint64_t* memory, size_t page, uint64_t seed, bool zero) {
    for (size_t word = 0; word < PAGE_WORDS; word++) {
        size_t at = page * PAGE_WORDS + word;
        uint64_t found = memory[at], wanted = zero ? 0 : word_at(at, seed);

        if (found != wanted) {
            complain(zero ? "given back, not zero" : "read back", page, word, found, wanted);
            return;
        }
    }
}

// One thread's part of the memory, all rounds of it.
void work(size_t pages, unsigned int rounds, uint64_t seed) {
    void* mapped = mmap(nullptr, pages * 4096, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        std::perror("mmap");
        whole = false;
        return;
    }
    auto* memory = static_cast<volatile uint64_t*>(mapped);
    std::vector<uint32_t> order(pages);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 chance(seed);

    for (unsigned int round = 0; round < rounds && whole; round++) {
        uint64_t round_seed = seed + round;
        bool give_back = round % 2 == 1;

        for (size_t page = 0; page < pages; page++)
            write_page(memory, page, round_seed);
        for (size_t page = 0; give_back && page < pages; page += 2)
            madvise(static_cast<char*>(mapped) + page * 4096, 4096, MADV_DONTNEED);
        std::shuffle(order.begin(), order.end(), chance);
        for (uint32_t page : order)
            check_page(memory, page, round_seed, give_back && page % 2 == 0);
    }
    munmap(mapped, pages * 4096);
}

} // namespace

int main(int argc, char** argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: hog MIB ROUNDS SEED [THREADS]\n");
        return 2;
    }
    size_t pages = std::strtoull(argv[1], nullptr, 0) * 256;
    auto rounds = static_cast<unsigned int>(std::strtoul(argv[2], nullptr, 0));
    uint64_t seed = std::strtoull(argv[3], nullptr, 0);
    size_t count = argc > 4 ? std::strtoull(argv[4], nullptr, 0) : 1;

    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < count; thread++)
        threads.emplace_back(work, pages / count, rounds, seed + thread * 1000);
    for (std::thread& thread : threads)
        thread.join();
    if (whole)
        std::printf("every word of %u rounds as written\n", rounds);
    return whole ? 0 : 1;
}
