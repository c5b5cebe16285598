// SPDX-License-Identifier: MIT
#include "src/mmap/pager.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include <unistd.h>

namespace remora::lib {

namespace {

constexpr std::uint64_t cache_bytes_default = 64 << 20;
constexpr std::uint64_t prefetch_bytes_default = 256 << 10;
// One instruction can touch several pages, which must all be in the cache together.
constexpr std::uint64_t cache_pages_least = 16;
// Largest part of the cache for one read-ahead: a larger one would evict pages it has just read.
constexpr std::uint32_t cache_per_prefetch = 4;
constexpr std::uint64_t run_bytes_max = node_page_bytes_min;
static_assert(run_bytes_max <= op_bytes_max);
// Upper bound of one wait for transfers, during which new faults aren't seen.
constexpr auto patience = std::chrono::milliseconds(1);

std::uint32_t system_page_bytes() {
    return static_cast<std::uint32_t>(sysconf(_SC_PAGESIZE));
}

std::uint32_t cache_pages(std::uint64_t bytes, const PagerLimits& limits) {
    std::uint64_t most = limits.cache_bytes ? limits.cache_bytes : cache_bytes_default;
    std::uint64_t pages = std::max(most / system_page_bytes(), cache_pages_least);
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>({pages, bytes / system_page_bytes(), UINT32_MAX / 2}));
}

std::uint32_t prefetch_pages(std::uint32_t cache_pages, const PagerLimits& limits,
                             std::uint64_t transfers) {
    std::uint64_t most = limits.prefetch_bytes ? limits.prefetch_bytes : prefetch_bytes_default;
    most = std::min(most, transfers / 2 * run_bytes_max) / system_page_bytes();
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(most, 1, std::max(cache_pages / cache_per_prefetch, 1U)));
}

// Does the error concern these pages alone? Any other error would hit other pages, too.
bool is_refusal(int error) {
    return error == -EFAULT || error == -EACCES;
}

} // namespace

Pager::Pager(Backend& backend, std::uint64_t address, std::size_t bytes, bool writable,
             const PagerLimits& limits)
    : backend_(backend),
      address_(address),
      page_bytes_(system_page_bytes()),
      pages_(bytes / page_bytes_),
      cache_(pages_, cache_pages(bytes, limits),
             static_cast<std::uint32_t>(run_bytes_max / page_bytes_),
             static_cast<std::uint32_t>(address % run_bytes_max / page_bytes_)),
      ahead_(prefetch_pages(cache_.capacity(), limits, transfers_max)),
      buffers_(new std::uint8_t[transfers_max * run_bytes_max]), // not touched before it is used
      transfers_(new Transfer[transfers_max]),
      userfault_(bytes, writable) {
    for (std::uint32_t i = 0; i < transfers_max; i++)
        transfers_[i].data = &buffers_[i * run_bytes_max];
}

void Pager::work(Clock::time_point until) {
    std::array<Userfault::Fault, 16> faults;
    unsigned count = userfault_.take(faults);
    for (unsigned i = 0; i < count; i++)
        serve(faults[i]);
    settle(std::min(until, Clock::now() + patience));
}

void Pager::serve(const Userfault::Fault& fault) {
    bool is_coming = false;
    switch (cache_.state(fault.page)) {
    case PageCache::State::present:
        if (fault.is_protected) {
            PageCache::Page& page = cache_.at(fault.page);
            page.dirty = page.used = true;
            is_coming = !userfault_.unprotect({fault.page, 1});
        }
        break;
    case PageCache::State::absent:
    case PageCache::State::reading:
        if (!fault.is_protected) {
            fetch(fault.page, fault.write);
            is_coming = true;
        }
        break;
    case PageCache::State::failed:
        break;
    }
    // The page changed after the fault: the waiting thread retries its access.
    if (!is_coming)
        userfault_.wake({fault.page, 1});
}

// ---- in ----

void Pager::fetch(std::uint64_t page, bool to_write) {
    std::uint64_t end = std::min(page + ahead_.touch(page), pages_);
    if (cache_.state(page) == PageCache::State::absent) {
        Run run = cache_.absent_run(page, end - page);
        run.pages = make_room(run.pages);
        if (!run.pages)
            return refuse({page, 1});
        start(claim(), Kind::read, run);
    }
    cache_.at(page).wanted = true;
    if (to_write)
        cache_.at(page).dirty = true;
    fetch_ahead(page + 1, end);
}

// Limited to the room that is available without waiting for a transfer.
void Pager::fetch_ahead(std::uint64_t page, std::uint64_t end) {
    while (page < end) {
        Run run = cache_.absent_run(page, end - page);
        if (!run.pages) {
            page++;
            continue;
        }
        run.pages = make_room(run.pages);
        Transfer* transfer = unused();
        if (!run.pages || !transfer)
            return;
        start(*transfer, Kind::read, run);
        page = run.end();
    }
}

void Pager::end_read(const Transfer& transfer) {
    if (transfer.call.result)
        refuse(transfer.run);
    else
        place(transfer.run, transfer.data);
}

// Pages whose thread wants to write are writable at once.
void Pager::place(const Run& run, const std::uint8_t* data) {
    for (Run part{run.page, 0}; part.page < run.end(); part = {part.end(), 0}) {
        bool writable = cache_.at(part.page).dirty;
        while (part.end() < run.end() && cache_.at(part.end()).dirty == writable)
            part.pages++;
        const std::uint8_t* from = data + (part.page - run.page) * page_bytes_;
        bool all = !userfault_.place(part, from, writable);
        for (std::uint64_t page = part.page; page < part.end(); page++, from += page_bytes_) {
            int error = all ? 0 : userfault_.place({page, 1}, from, writable);
            // Placed already, before the page that couldn't be.
            if (error && error != EEXIST)
                refuse({page, 1});
            else
                cache_.end_read(page);
        }
    }
}

// Pages for which no thread waits can be requested again.
void Pager::refuse(const Run& run) {
    for (std::uint64_t page = run.page; page < run.end(); page++) {
        bool is_cached = cache_.state(page) != PageCache::State::absent;
        if (is_cached && !cache_.at(page).wanted) {
            cache_.forget(page);
        } else if (!userfault_.fail(page)) {
            cache_.fail(page);
        } else {
            if (is_cached)
                cache_.forget(page);
            retry_later(page);
        }
    }
}

// The page can't be read, and the kernel has no room for a hole that says so. Its readers touch it
// again, and so request it again. Until that succeeds, they wait.
void Pager::retry_later(std::uint64_t page) {
    static constexpr char text[] =
        "libremote: a page can't be read, and the kernel has no room to make it fail: its readers "
        "wait and it is requested again: free memory, or raise vm.max_map_count\n";
    // Not by stdio: a thread that holds its lock might wait for a page.
    if (!std::exchange(warned_, true))
        static_cast<void>(!::write(STDERR_FILENO, text, sizeof(text) - 1));
    std::this_thread::sleep_for(patience); // the request might have failed at once
    userfault_.wake({page, 1});
}

// ---- room ----

// Makes room for at most this many pages. 0: none can be made.
std::uint32_t Pager::make_room(std::uint32_t pages) {
    const Failures before = failures_;
    while (cache_.room() < pages && evict(pages - cache_.room())) {
        if (failures_.others != before.others ||
            failures_.refused_pages - before.refused_pages >= cache_.capacity())
            break;
    }
    return std::min(pages, cache_.room());
}

// Drops some pages, or waits for a transfer that can make pages droppable. False: neither is
// possible.
bool Pager::evict(std::uint32_t pages) {
    bool gone = false;
    for (std::uint32_t going = 0; going < pages;) {
        const PageCache::Page* victim = cache_.victim();
        Transfer* transfer = unused();
        if (!victim || (victim->dirty && !transfer))
            break;
        Run run;
        if (victim->dirty) {
            run = cache_.dirty_run(victim->number);
            write(*transfer, run, true);
        } else {
            run = cache_.idle_run(victim->number, pages - going);
            if (!drop(run))
                break;
            gone = true;
        }
        going += run.pages;
    }
    if (gone || !is_busy())
        return gone;
    settle(Clock::time_point::max());
    return true;
}

bool Pager::drop(const Run& run) {
    if (userfault_.drop(run))
        return false;
    for (std::uint64_t page = run.page; page < run.end(); page++)
        cache_.forget(page);
    return true;
}

// ---- out ----

// Writes present pages.
void Pager::write(Transfer& transfer, const Run& run, bool drops) {
    if (userfault_.protect(run))
        return end_failed_write(run, -EFAULT);
    userfault_.copy_out(run, transfer.data);
    transfer.drops = drops;
    for (std::uint64_t page = run.page; page < run.end(); page++) {
        cache_.at(page).dirty = false;
        cache_.at(page).writing = true;
    }
    start(transfer, Kind::write, run);
}

void Pager::end_write(const Transfer& transfer) {
    const Run& run = transfer.run;
    for (std::uint64_t page = run.page; page < run.end(); page++)
        cache_.at(page).writing = false;
    if (transfer.call.result)
        return end_failed_write(run, transfer.call.result);
    // The program might have written to some pages again.
    for (std::uint64_t page = run.page; transfer.drops && page < run.end();) {
        Run idle = cache_.idle_run(page, run.end() - page);
        if (idle.pages && !drop(idle))
            return;
        page = std::max(idle.end(), page + 1);
    }
}

// Marks the pages dirty and used, so that the search for room tries others first.
void Pager::end_failed_write(const Run& run, int error) {
    for (std::uint64_t page = run.page; page < run.end(); page++)
        cache_.at(page).dirty = cache_.at(page).used = true;
    if (is_refusal(error))
        failures_.refused_pages += run.pages;
    else
        failures_.others++;
    if (asked_ && !asked_->error && run.overlaps(asked_->first, asked_->last))
        asked_->error = error;
}

// Is there a WRITE of these pages that began no later than this number?
bool Pager::is_writing(const WriteBack& asked, std::uint64_t number) {
    for (const Transfer& each : transfers()) {
        if (each.number && each.number <= number && each.op.kind == Kind::write &&
            each.run.overlaps(asked.first, asked.last))
            return true;
    }
    return false;
}

int Pager::write_back(std::uint64_t first, std::uint64_t last) {
    WriteBack asked{first, last, 0};
    const std::uint64_t failures = failures_.others;
    asked_ = &asked;
    auto is_asked_for = [&](const PageCache::Page& page) {
        return page.state == PageCache::State::present && page.dirty && page.number >= first &&
               page.number <= last && failures_.others == failures;
    };
    // Pages can change their slots meanwhile, but only after they were written.
    for (const PageCache::Page& page : cache_.slots()) {
        while (is_asked_for(page) && (page.writing || !unused()))
            work(Clock::time_point::max());
        if (is_asked_for(page))
            write(*unused(), cache_.dirty_run(page.number), false);
    }
    for (const std::uint64_t number = number_; is_writing(asked, number);)
        work(Clock::time_point::max());
    asked_ = nullptr;
    return asked.error;
}

// ---- transfers ----

Pager::Transfer* Pager::unused() {
    auto is_free = [](const Transfer& each) { return !each.number; };
    auto found = std::find_if(transfers().begin(), transfers().end(), is_free);
    return found == transfers().end() ? nullptr : &*found;
}

Pager::Transfer* Pager::oldest() {
    Transfer* oldest = nullptr;
    for (Transfer& each : transfers()) {
        if (each.number && (!oldest || each.number < oldest->number))
            oldest = &each;
    }
    return oldest;
}

Pager::Transfer& Pager::claim() {
    Transfer* transfer;
    while (!(transfer = unused()))
        settle(Clock::time_point::max());
    return *transfer;
}

void Pager::start(Transfer& transfer, Kind kind, const Run& run) {
    transfer.run = run;
    transfer.number = ++number_;
    for (std::uint64_t page = run.page; kind == Kind::read && page < run.end(); page++)
        cache_.begin_read(page);
    std::span<Op> ops =
        cut({&transfer.op, 1}, transfer.call, kind, address_ + run.page * page_bytes_,
            transfer.data, std::uint64_t{run.pages} * page_bytes_);
    transfer.call.begin(ops.size());
    backend_.start(ops);
}

// Handles ended transfers, and waits for the oldest one until then.
void Pager::settle(Clock::time_point until) {
    if (Transfer* first = oldest())
        static_cast<void>(backend_.wait(first->call, until));
    for (Transfer& each : transfers()) {
        if (!each.number || !each.call.ended())
            continue;
        if (each.op.kind == Kind::read)
            end_read(each);
        else
            end_write(each);
        each.number = 0;
    }
}

} // namespace remora::lib
