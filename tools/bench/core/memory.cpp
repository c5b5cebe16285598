// SPDX-License-Identifier: GPL-2.0
// What a node does for every request before it touches memory: translate, and judge the id.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <vector>

#include <benchmark/benchmark.h>

#include "core.hpp"

namespace {

constexpr uint64_t pages = 1 << 20;       // 64 GiB of 64 KiB pages: the table is 24 MiB
constexpr uint64_t first_vpn = 3 * pages; // aligned, so that a range can fill every bucket

class Table {
public:
    explicit Table(uint64_t entered)
        : memory_(std::aligned_alloc(64, base_round_up(rmem_table_bytes(pages), 64)), std::free) {
        const uint64_t seed[2] = {1, 2};
        rmem_table_init(&table, memory_.get(), pages, seed);
        if (rmem_table_reserve(&table, 0, first_vpn, entered) != entered)
            throw std::logic_error("the table refuses a range that fits");
        for (uint64_t n = 0; n < entered; n++)
            rmem_table_insert(&table, 0, first_vpn + n, RMEM_PTE_READ | RMEM_PTE_WRITE);
    }
    static constexpr uint64_t entries = 2 * pages;
    rmem_table table;

private:
    std::unique_ptr<void, void (*)(void*)> memory_;
};

// One page after the other in random order, so that most buckets come from memory.
void find(benchmark::State& state, uint64_t entered) {
    Table t(entered);
    rmem_entry entry;
    uint64_t random = 1;
    for (auto _ : state) {
        random = random * 6364136223846793005 + 1442695040888963407;
        uint32_t pte = rmem_table_find(&t.table, 0, first_vpn + (random >> 32) % entered, &entry);
        if (!pte)
            return state.SkipWithError("a page that was entered isn't found");
        benchmark::DoNotOptimize(pte);
    }
}

BENCHMARK_CAPTURE(find, half, Table::entries / 2)->Name("table-find-half-full");
BENCHMARK_CAPTURE(find, full, Table::entries)->Name("table-find-full");

// A new id each time, with the floor 32 behind, as at depth 32; then marked as executed.
void session(benchmark::State& state) {
    std::vector<uint64_t> bits(rmem_session_window_bytes(RMEM_WINDOW) / sizeof(uint64_t));
    rmem_session s{};
    rmem_session_init(&s, bits.data(), RMEM_WINDOW);
    uint64_t id = 32;
    for (auto _ : state) {
        id++;
        if (rmem_session_check(&s, id, id - 32) != RMEM_SESSION_FRESH)
            return state.SkipWithError("a new id isn't fresh");
        rmem_session_done(&s, id);
    }
}

BENCHMARK(session)->Name("session-check-done");

} // namespace
