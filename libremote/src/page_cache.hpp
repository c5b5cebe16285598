// SPDX-License-Identifier: MIT
/*
 * Which pages of a mapping are here, and which of them go when there is no room. Bookkeeping alone:
 * no system call, no lock, and nothing is allocated once it is made.
 *
 *             begin_read()          end_read()
 *   absent ---------------> reading ----------> present
 *      ^                       |                   |
 *      +------- forget() ------+-------------------+
 *                              '---- fail() ---> failed, for good
 *
 * A present page is dirty if it was written to and the node hasn't been told, and writing while
 * the node is being told. It may be both, for it may be written to meanwhile.
 *
 * Who goes: CLOCK. A hand goes round, and gives another round to those that were written to since
 * it last passed; that a page is read once it is here can't be seen, so that for reads it is FIFO.
 *
 * A run is of neighbours in one block of the node's memory. A block is as large as the smallest
 * page a node may have, so a run is never in two regions: it is permitted or refused as a whole.
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
        bool wanted = false; // reading: somebody waits for it
        bool dirty = false;  // reading: it will be, for who waits wants to write
        bool writing = false;
        bool used = false; // since the hand passed
    };

    // capacity: pages that may be here; phase: of the first page in its block. Throws bad_alloc.
    PageCache(std::uint64_t pages, std::uint32_t capacity, std::uint32_t block_pages,
              std::uint32_t phase);

    std::uint32_t capacity() const { return static_cast<std::uint32_t>(slots_.size()); }
    std::uint32_t room() const { return room_; }

    State state(std::uint64_t page) const;
    // Of one that is reading or present.
    Page& at(std::uint64_t page) { return slots_[place_[page] - 1]; }
    // All of them, in no order, and some that are absent.
    std::span<const Page> slots() const { return slots_; }

    // Of an absent page; there is room.
    void begin_read(std::uint64_t page);
    void end_read(std::uint64_t page);
    void forget(std::uint64_t page);
    void fail(std::uint64_t page);

    // From a page on, most at most: absent ones; those that may go without being written.
    Run absent_run(std::uint64_t page, std::uint64_t most) const;
    Run idle_run(std::uint64_t page, std::uint64_t most) const;
    // Around a page: those whose writing may begin.
    Run dirty_run(std::uint64_t page) const;

    // Who goes next, dirty or not; NULL: nobody may.
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
    // Of each page: none, failed, or its slot + 1. What was never touched takes no memory.
    std::unique_ptr<std::uint32_t[], Free> place_;
    std::vector<Page> slots_;
    std::vector<std::uint32_t> free_; // slots, the first room_ of them
    std::uint32_t room_;
    std::uint32_t hand_ = 0;
};

} // namespace remora::lib
