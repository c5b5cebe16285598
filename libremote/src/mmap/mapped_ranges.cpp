// SPDX-License-Identifier: MIT
#include "src/mmap/mapped_ranges.hpp"

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "support/fork.hpp"

namespace remora::lib {

namespace {

struct Ranges {
    std::atomic<std::size_t> count{0}; // lets programs without mappings skip the lock
    std::shared_mutex lock;
    std::map<std::uintptr_t, std::uintptr_t> ends; // by begin
};

// Never destroyed: other threads can ask until the process has ended.
Ranges& ranges() {
    static Ranges& all = *new Ranges;
    return all;
}

// A child of fork() has none of its parent's mappings. It makes the lock anew: the writer that
// holds the lock is the parent's thread, and only that thread could unlock it.
void watch_fork() {
    static const AtFork watched([] { ranges().lock.lock(); }, [] { ranges().lock.unlock(); },
                                [] {
                                    ranges().ends.clear();
                                    ranges().count = 0;
                                    new (&ranges().lock) std::shared_mutex;
                                });
}

std::uintptr_t number(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

} // namespace

MappedRange::MappedRange(const void* memory, std::size_t bytes) : memory_(memory) {
    watch_fork();
    std::lock_guard lock(ranges().lock);
    ranges().ends[number(memory)] = number(memory) + bytes;
    ranges().count = ranges().ends.size();
}

MappedRange::~MappedRange() {
    std::lock_guard lock(ranges().lock);
    ranges().ends.erase(number(memory_));
    ranges().count = ranges().ends.size();
}

bool is_mapped(const void* memory, std::size_t bytes) {
    if (!ranges().count.load(std::memory_order_relaxed))
        return false;
    std::shared_lock lock(ranges().lock);
    std::uintptr_t end = number(memory) + bytes;
    // The last range that begins below the buffer's end.
    auto next = end < bytes ? ranges().ends.end() : ranges().ends.lower_bound(end);
    return next != ranges().ends.begin() && std::prev(next)->second > number(memory);
}

} // namespace remora::lib
