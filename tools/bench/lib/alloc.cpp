// SPDX-License-Identifier: GPL-2.0
// The allocator by itself, after Clio (ASPLOS'22), figure 13: how often it looks for another place
// because a bucket of the page table has no room, by how full the node is. The bench needs no
// pages, so the node may be a large one.
#include "measure.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

#include "node/core.hpp"

extern "C" {
#include "core/rmem/node/alloc.h"
}

namespace remora::bench {

namespace {

constexpr std::uint64_t memory_bytes = std::uint64_t{16} << 30;
constexpr std::uint64_t region_bytes_least = 4 << 10;
constexpr std::uint64_t region_bytes_most = 256 << 20;
constexpr std::uint32_t regions_max = 1 << 18;
constexpr std::uint32_t spaces_max = 16;
constexpr unsigned tenths = 10;
// At each level as many are freed and allocated anew, so that no order of the beginning is left.
constexpr unsigned churn = 400;

struct Level {
    std::uint64_t allocs = 0, retries = 0, refused = 0;
    std::uint32_t worst = 0;
};

class Node {
public:
    Node(std::uint64_t page_bytes, std::uint64_t seed) : page_bytes_(page_bytes), random_(seed) {
        rmem_node_config config{};
        config.boot = 1;
        config.page_shift = static_cast<u32>(std::countr_zero(page_bytes));
        config.pages = memory_bytes / page_bytes;
        config.pool_pages = 2;
        config.piece_bytes = RMEM_PIECE_BYTES_MAX;
        config.spaces_max = spaces_max;
        config.sessions_max = 1;
        config.regions_max = regions_max;
        config.session_idle_ms = 1;
        for (u64& each : config.seed)
            each = random_();
        if (const char* error = rmem_node_config_error(&config))
            throw Misuse("--page {}: {}", page_bytes, error);
        state_.reset(static_cast<char*>(
            std::aligned_alloc(64, base_round_up(rmem_node_state_bytes(&config), 64))));
        if (!state_)
            throw std::bad_alloc();
        rmem_node_init(&core_, &config, state_.get());
        static constexpr u8 key[16] = {};
        for (u32 id = 1; id <= spaces_max; id++)
            rmem_node_space_add(&core_, id, key, 0);
    }

    // Up to that many pages in use, then some churn there.
    void climb(std::uint64_t pages, Level& level) {
        fill(pages, level);
        for (unsigned i = 0; i < churn; i++) {
            drop();
            fill(pages, level);
        }
    }
    std::uint64_t pages() const { return core_.alloc.pages; }

private:
    struct Free {
        void operator()(char* memory) const { std::free(memory); }
    };

    // Bytes of every magnitude are as likely.
    std::uint64_t random_pages() {
        std::uniform_real_distribution<double> magnitude(std::log2(region_bytes_least),
                                                         std::log2(region_bytes_most));
        auto bytes = static_cast<std::uint64_t>(std::exp2(magnitude(random_)));
        return (bytes + page_bytes_ - 1) / page_bytes_;
    }

    void fill(std::uint64_t pages, Level& level) {
        while (core_.alloc.pages_promised < pages) {
            std::uint64_t room = pages - core_.alloc.pages_promised;
            make(std::min(random_pages(), room), level);
        }
    }

    void make(std::uint64_t pages, Level& level) {
        rmem_alloc_request wish{pages, 0, RMEM_PTE_READ | RMEM_PTE_WRITE, 1, ++ids_};
        rmem_alloc_work work{};
        auto space = static_cast<u32>(random_() % spaces_max);
        if (!rmem_alloc_make(&core_.alloc, &core_.spaces, space, &wish, &work))
            throw Failure("the allocator refuses {} pages at once", pages);
        finish(work);
        level.allocs++;
        level.retries += work.retries;
        level.worst = std::max(level.worst, work.retries);
        if (work.region)
            regions_.push_back(work.region);
        else
            level.refused++;
    }

    void drop() {
        std::swap(regions_[random_() % regions_.size()], regions_.back());
        rmem_alloc_work work;
        rmem_alloc_release(regions_.back(), &work);
        finish(work);
        regions_.pop_back();
    }

    void finish(rmem_alloc_work& work) {
        while (rmem_alloc_step(&core_.alloc, &core_.table, &core_.spaces, &core_.pool, &work,
                               UINT64_MAX)) {
        }
    }

    std::uint64_t page_bytes_;
    std::mt19937_64 random_;
    std::unique_ptr<char, Free> state_;
    rmem_node core_;
    std::vector<rmem_region*> regions_;
    std::uint64_t ids_ = 0;
};

} // namespace

Figures alloc(std::uint64_t page_bytes, std::uint32_t seeds) {
    if (!std::has_single_bit(page_bytes))
        throw Misuse("--page {} is no power of two: write 64K, 128K ... 4M", page_bytes);
    std::array<Level, tenths> levels;
    for (std::uint32_t seed = 1; seed <= seeds; seed++) {
        Node node(page_bytes, seed);
        for (unsigned tenth = 0; tenth < tenths; tenth++)
            node.climb(node.pages() * (tenth + 1) / tenths, levels[tenth]);
    }
    Figures figures = Figures::array();
    for (unsigned tenth = 0; tenth < tenths; tenth++) {
        const Level& level = levels[tenth];
        figures.push_back({{"fill", (tenth + 1) * 100 / tenths},
                           {"allocs", level.allocs},
                           {"mean", static_cast<double>(level.retries) / level.allocs},
                           {"worst", level.worst},
                           {"refused", level.refused}});
    }
    return figures;
}

} // namespace remora::bench
