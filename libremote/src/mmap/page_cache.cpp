// SPDX-License-Identifier: MIT
#include "src/mmap/page_cache.hpp"

#include <algorithm>
#include <new>

namespace remora::lib {

PageCache::PageCache(std::uint64_t pages, std::uint32_t capacity, std::uint32_t block_pages,
                     std::uint32_t phase)
    : pages_(pages),
      block_pages_(block_pages),
      phase_(phase),
      place_(static_cast<std::uint32_t*>(std::calloc(pages, sizeof(std::uint32_t)))),
      slots_(capacity),
      free_(capacity),
      room_(capacity) {
    if (!place_)
        throw std::bad_alloc();
    for (std::uint32_t i = 0; i < capacity; i++)
        free_[i] = capacity - 1 - i; // the first is taken first, so that the hand meets the oldest
}

PageCache::State PageCache::state(std::uint64_t page) const {
    if (place_[page] == failed)
        return State::failed;
    const Page* found = find(page);
    return found ? found->state : State::absent;
}

const PageCache::Page* PageCache::find(std::uint64_t page) const {
    std::uint32_t place = place_[page];
    return place == none || place == failed ? nullptr : &slots_[place - 1];
}

void PageCache::begin_read(std::uint64_t page) {
    std::uint32_t slot = free_[--room_];
    slots_[slot] = {page, State::reading};
    place_[page] = slot + 1;
}

void PageCache::end_read(std::uint64_t page) {
    Page& ended = at(page);
    ended.state = State::present;
    ended.wanted = false;
}

void PageCache::forget(std::uint64_t page) {
    std::uint32_t slot = place_[page] - 1;
    slots_[slot] = {};
    place_[page] = none;
    free_[room_++] = slot;
}

void PageCache::fail(std::uint64_t page) {
    if (find(page))
        forget(page);
    place_[page] = failed;
}

// ---- runs ----

std::uint64_t PageCache::block_begin(std::uint64_t page) const {
    std::uint64_t before = (page + phase_) % block_pages_;
    return page - std::min(before, page);
}

std::uint64_t PageCache::block_end(std::uint64_t page) const {
    return std::min(pages_, page + block_pages_ - (page + phase_) % block_pages_);
}

// is(): predicate on a page's number.
template <typename Is>
Run PageCache::run_from(std::uint64_t page, std::uint64_t most, Is is) const {
    std::uint64_t end = std::min(block_end(page), page + std::min(most, pages_));
    Run run{page, 0};
    while (run.end() < end && is(run.end()))
        run.pages++;
    return run;
}

Run PageCache::absent_run(std::uint64_t page, std::uint64_t most) const {
    return run_from(page, most, [this](std::uint64_t each) { return place_[each] == none; });
}

Run PageCache::idle_run(std::uint64_t page, std::uint64_t most) const {
    return run_from(page, most, [this](std::uint64_t each) {
        const Page* it = find(each);
        return it && it->state == State::present && !it->dirty && !it->writing && !it->used;
    });
}

bool PageCache::is_unsaved(std::uint64_t page) const {
    const Page* it = find(page);
    return it && it->state == State::present && it->dirty && !it->writing;
}

Run PageCache::dirty_run(std::uint64_t page) const {
    std::uint64_t first = page;
    while (first > block_begin(page) && is_unsaved(first - 1))
        first--;
    return run_from(first, block_pages_, [this](std::uint64_t each) { return is_unsaved(each); });
}

// ---- victims ----

const PageCache::Page* PageCache::victim() {
    // The first round clears all marks; the second finds a victim, if there is one.
    for (std::uint64_t steps = 2 * slots_.size(); steps; steps--) {
        Page& page = slots_[hand_];
        hand_ = hand_ + 1 == slots_.size() ? 0 : hand_ + 1;
        if (page.state != State::present || page.writing)
            continue;
        if (!page.used)
            return &page;
        page.used = false;
    }
    return nullptr;
}

} // namespace remora::lib
