// SPDX-License-Identifier: MIT
/*
 * Brings the pages of a mapping from the node and back. One thread does all of this.
 *
 *   touched, not in the cache room -> READ, also of the next -> place; the waiter goes on
 *   written the first time    dirty -> unprotect; the waiter goes on
 *   no room                   clean: drop
 *                             dirty: protect -> copy out -> WRITE -> drop
 *   write_back()              dirty: protect -> copy out -> WRITE
 *
 * No write is lost, by construction. Only this thread makes a page writable, or removes it. A write
 * to a protected page is a fault, and faults wait for this thread. So after its protection a page
 * either holds the bytes copied out, or is dirty again and stays.
 *
 * The thread that serves faults must never wait for one. It touches only pages that it protected,
 * which are in the cache; data goes through its own buffers. It allocates nothing, for a thread
 * that holds an allocator's lock might be waiting for a page. libcrypto does, for a sealed
 * session's keys: remote_mmap(3) tells programs.
 *
 * Touching a page that can't be read raises SIGBUS, once the kernel has room for a hole there. A
 * page that can't be written stays dirty, and is tried again on remote_msync() or when room is
 * needed. If only such pages could make room, missing pages can't be read.
 */
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "src/backend/backend.hpp"
#include "src/mmap/page_cache.hpp"
#include "src/mmap/read_ahead.hpp"
#include "src/mmap/userfault.hpp"

namespace remora::lib {

struct PagerLimits {
    std::uint64_t cache_bytes = 0;    // 0: a default
    std::uint64_t prefetch_bytes = 0; // 0: a default
};

class Pager {
public:
    // address and bytes: whole pages of this system. Throws as Userfault does, and bad_alloc.
    Pager(Backend& backend, std::uint64_t address, std::size_t bytes, bool writable,
          const PagerLimits& limits);

    Userfault& userfault() { return userfault_; }

    // Are transfers in flight?
    bool is_busy() { return oldest() != nullptr; }
    // Serves threads that wait for pages, then waits for transfers in flight, if there are any.
    void work(Clock::time_point until);
    // Writes the dirty ones of these pages to the node, and serves faults meanwhile. Returns 0 or
    // the first error.
    int write_back(std::uint64_t first, std::uint64_t last);

private:
    // A READ or WRITE in flight.
    struct Transfer {
        Call call;
        Op op;
        Run run;
        std::uint64_t number = 0; // 0: free
        bool drops = false;       // a WRITE, to make room
        std::uint8_t* data = nullptr;
    };
    struct WriteBack {
        std::uint64_t first, last;
        int error;
    };
    // WRITEs that failed, since the begin.
    struct Failures {
        std::uint64_t refused_pages = 0;
        std::uint64_t others = 0; // which would befall any page
    };

    void serve(const Userfault::Fault& fault);
    void fetch(std::uint64_t page, bool to_write);
    void fetch_ahead(std::uint64_t page, std::uint64_t end);
    void end_read(const Transfer& transfer);
    void place(const Run& run, const std::uint8_t* data);
    void refuse(const Run& run);
    void retry_later(std::uint64_t page);

    std::uint32_t make_room(std::uint32_t pages);
    bool evict(std::uint32_t pages);
    bool drop(const Run& run);

    void write(Transfer& transfer, const Run& run, bool drops);
    void end_write(const Transfer& transfer);
    void end_failed_write(const Run& run, int error);
    bool is_writing(const WriteBack& asked, std::uint64_t number);

    std::span<Transfer> transfers() { return {transfers_.get(), transfers_max}; }
    Transfer* unused();
    Transfer* oldest();
    Transfer& claim();
    void start(Transfer& transfer, Kind kind, const Run& run);
    void settle(Clock::time_point until);

    static constexpr std::uint32_t transfers_max = 32;

    Backend& backend_;
    std::uint64_t address_;
    std::uint32_t page_bytes_;
    std::uint64_t pages_;
    PageCache cache_;
    ReadAhead ahead_;
    std::unique_ptr<std::uint8_t[]> buffers_;
    std::unique_ptr<Transfer[]> transfers_;
    std::uint64_t number_ = 0; // of the last transfer
    WriteBack* asked_ = nullptr;
    Failures failures_;
    bool warned_ = false; // about a page that has no hole
    Userfault userfault_;
};

} // namespace remora::lib
