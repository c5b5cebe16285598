// SPDX-License-Identifier: MIT
/*
 * Records which pages of a mapping are in the cache, and chooses the victim when there is no room.
 * Bookkeeping alone: no system call, no lock, and no allocation after construction.
 *
 *             begin_read()          end_read()
 *   absent ---------------> reading ----------> present
 *      ^                       |                   |
 *      +------- forget() ------+-------------------+
 *                              '---- fail() ---> failed, for good
 *
 * A present page is dirty if the program wrote to it since it was last copied out, and writing
 * while its copy is on the way to the node. It is both if the program writes to it meanwhile.
 *
 * Replacement: CLOCK. A hand goes round and spares pages written to since it last passed. Reads of
 * a present page can't be seen, so for pages that are only read it is FIFO.
 *
 * A run is of neighbours in one block of the node's memory. A block is as large as the smallest
 * page a node can have, so a run is never in two regions: it is permitted or refused as a whole.
 */
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace remora::lib {

// Pages of a mapping, counted from its begin.
struct Run {
    std::uint64_t page = 0;
    std::uint32_t pages = 0;

    std::uint64_t end() const { return page + pages; }
    bool overlaps(std::uint64_t first, std::uint64_t last) const {
        return page <= last && first < end();
    }
};

class PageCache {
public:
    enum class State : std::uint8_t { absent, reading, present, failed };

    struct Page {
        std::uint64_t number = 0;
        State state = State::absent;
        bool wanted = false; // reading: a thread waits for it
        bool dirty = false;  // reading: the waiter will write to it
        bool writing = false;
        bool used = false; // written to since the hand passed
    };

    // capacity: limit of cached pages; phase: index of the first page in its block. Throws
    // bad_alloc.
    PageCache(std::uint64_t pages, std::uint32_t capacity, std::uint32_t block_pages,
              std::uint32_t phase);

    std::uint32_t capacity() const { return static_cast<std::uint32_t>(slots_.size()); }
    std::uint32_t room() const { return room_; }

    State state(std::uint64_t page) const;
    // A page that is reading or present.
    Page& at(std::uint64_t page) { return slots_[place_[page] - 1]; }
    // All cached pages in no order, and some absent ones.
    std::span<const Page> slots() const { return slots_; }

    // For an absent page; the caller has checked that there is room.
    void begin_read(std::uint64_t page);
    void end_read(std::uint64_t page);
    void forget(std::uint64_t page);
    void fail(std::uint64_t page);

    // Runs of at most `most` pages from page on: absent pages; pages that can be dropped unwritten.
    Run absent_run(std::uint64_t page, std::uint64_t most) const;
    Run idle_run(std::uint64_t page, std::uint64_t most) const;
    // The run around a page whose writing can begin.
    Run dirty_run(std::uint64_t page) const;

    // The next page to drop, dirty or not; NULL: none can be dropped.
    const Page* victim();

private:
    static constexpr std::uint32_t none = 0;
    static constexpr std::uint32_t failed = UINT32_MAX;
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };

    const Page* find(std::uint64_t page) const;
    std::uint64_t block_begin(std::uint64_t page) const;
    std::uint64_t block_end(std::uint64_t page) const;
    template <typename Is>
    Run run_from(std::uint64_t page, std::uint64_t most, Is is) const;
    bool is_unsaved(std::uint64_t page) const;

    std::uint64_t pages_;
    std::uint32_t block_pages_, phase_;
    // For each page: none, failed, or its slot + 1. Pages never touched take no memory.
    std::unique_ptr<std::uint32_t[], Free> place_;
    std::vector<Page> slots_;
    std::vector<std::uint32_t> free_; // slots, the first room_ of them
    std::uint32_t room_;
    std::uint32_t hand_ = 0;
};

} // namespace remora::lib
