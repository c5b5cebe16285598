// SPDX-License-Identifier: MIT
/*
 * A range of memory whose pages its owner fetches, by userfaultfd(2) and other system calls. Pages
 * are counted from the range's begin.
 *
 * An access to a page that isn't here, and a write to a protected one, make their thread wait and
 * are told by take(). place(), unprotect() and fail() resume the threads that wait for the page.
 *
 * A page that failed is replaced by a hole: memory of a file that has no bytes, whose access is
 * SIGBUS, as that of a file that was cut short.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/mmap/page_cache.hpp"
#include "support/descriptor.hpp"

namespace remora::lib {

class Userfault {
public:
    struct Fault {
        std::uint64_t page;
        bool write;
        bool is_protected; // the page is in the cache, write-protected
    };

    // Throws Failure: the system gives no userfaultfd; std::system_error: no memory, descriptors.
    Userfault(std::size_t bytes, bool writable);
    ~Userfault();
    Userfault(const Userfault&) = delete;
    Userfault& operator=(const Userfault&) = delete;

    std::uint8_t* memory() const { return memory_; }
    std::size_t bytes() const { return bytes_; }
    std::uint64_t page_of(std::size_t offset) const { return offset / page_bytes_; }
    // Readable when there is something to take().
    int fd() const { return fd_.get(); }

    // Takes accesses that wait, and returns their number; doesn't wait for one.
    unsigned take(std::span<Fault> faults);

    // An errno, or 0; some might have been placed all the same. Unless writable, the first write to
    // each page is told.
    int place(const Run& run, const std::uint8_t* data, bool writable);
    // Present pages alone. An errno, or 0.
    int protect(const Run& run) { return set_protection(run, true); }
    int unprotect(const Run& run) { return set_protection(run, false); }
    int drop(const Run& run);
    // Makes the page a hole. An errno: the kernel has no room for one, and waiters still wait.
    int fail(std::uint64_t page);
    void wake(const Run& run);
    // Protected pages alone: nobody else writes to them meanwhile.
    void copy_out(const Run& run, std::uint8_t* to) const;

    // In a child of the process that made it, which hasn't the memory.
    void disown();

private:
    void attach();
    int set_protection(const Run& run, bool is_protected);
    std::uint8_t* at(std::uint64_t page) const { return memory_ + page * page_bytes_; }
    std::size_t bytes_of(const Run& run) const { return run.pages * page_bytes_; }

    std::size_t bytes_, page_bytes_;
    int protection_;
    Descriptor fd_;
    Descriptor hole_;
    std::uint8_t* memory_ = nullptr;
};

} // namespace remora::lib
