// SPDX-License-Identifier: MIT
/*
 * A range of remote memory as memory of this process: the thread that brings its pages (pager.hpp),
 * and the threads that ask it for something.
 *
 *   program's threads --- touch pages ----> userfaultfd --\
 *                                                           > the mapping's thread: pager
 *                    \--- sync(), finish() --> requests --/
 */
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "src/mmap/mapped_ranges.hpp"
#include "src/mmap/pager.hpp"
#include "src/transport/scratch.hpp"
#include "support/descriptor.hpp"

namespace remora::lib {

class Mapping {
public:
    // As Pager's.
    Mapping(Backend& backend, std::uint64_t address, std::size_t bytes, bool writable,
            const PagerLimits& limits);
    // Writes dirty pages back as far as possible.
    ~Mapping();

    std::uint8_t* memory() { return pager_.userfault().memory(); }
    std::size_t bytes() { return pager_.userfault().bytes(); }

    // Waits until the node has everything written to these bytes before. Returns the first error.
    // -EINVAL: not within the mapping, or finish() has begun.
    int sync(const void* from, std::size_t bytes);
    // The same for the whole mapping. Afterwards its thread has ended and no page is fetched.
    int finish();
    // Starts finish() without waiting.
    void begin_finish();

    // Called in a child of the process that made it; must not be destroyed there.
    void disown();

private:
    // A waiter for the writing of these pages.
    struct Request {
        std::uint64_t first, last;
        bool is_last;
        int result = 0;
        bool done = false;
        Request* next = nullptr;
    };

    std::uint64_t page_of(std::size_t offset) { return pager_.userfault().page_of(offset); }
    void run();
    void wait_for_work();
    // The oldest request, or NULL.
    Request* take_request();
    // Lock.
    void submit(Request& request);

    Pager pager_;
    MappedRange range_; // destroyed before the memory
    Descriptor wakeup_;
    std::unique_ptr<Scratch> scratch_; // the thread's, which MUST NOT wait for an allocator
    std::mutex lock_;                  // all but the thread
    std::condition_variable done_;
    Request* requests_ = nullptr;
    Request finish_{};
    bool finishing_ = false;
    std::thread thread_;
};

} // namespace remora::lib
