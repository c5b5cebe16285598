// SPDX-License-Identifier: GPL-2.0
// The node inside the process, beside what a program would do without it: a lock, a copy, the lock
// given back.
//
// Both walk over the same amount of memory in the same steps. A second thread exists, and sleeps:
// in a process of one thread the C library's mutex does without atomic instructions, but who locks
// has threads.
#include "measure.hpp"

#include <future>
#include <mutex>
#include <thread>

#include "common/remote_handle.hpp"

namespace remora::bench {

namespace {

constexpr std::uint32_t bytes = 16;
constexpr std::uint32_t walked_bytes = 1 << 20;
constexpr std::uint32_t step_bytes = 4160; // never the same set of the cache twice in a row
constexpr std::uint32_t reads = 10'000;    // timed at once
constexpr std::uint32_t touched_pages = 256;
constexpr std::uint32_t warm_pages = 64;
constexpr std::uint32_t page_bytes = 64 << 10;

class Sleeper {
public:
    Sleeper() : thread_([this] { end_.get_future().wait(); }) {}
    ~Sleeper() {
        end_.set_value();
        thread_.join();
    }

private:
    std::promise<void> end_;
    std::thread thread_;
};

std::uint32_t next(std::uint32_t offset) {
    return (offset + step_bytes) % walked_bytes;
}

// ns of each.
template <typename Do>
double time_of(std::uint32_t count, Do one) {
    auto from = Clock::now();
    for (std::uint32_t i = 0; i < count; i++)
        one(i);
    return static_cast<double>((Clock::now() - from).count()) / count;
}

// Not inlined: rread() isn't either.
[[gnu::noinline]] void locked_copy(std::mutex& mutex, char* to, const char* from) {
    std::lock_guard lock(mutex);
    std::memcpy(to, from, bytes);
}

// The first write to each page of a region, then one to each page at a place as cold as the first.
// The node is new, so that it has zeroed pages: to zero more is not the touch's work. Some pages go
// before, since new are the node's own structures, too.
void touch(std::vector<double>& first, std::vector<double>& later) {
    RemoteHandle handle("embedded:size=64M,page=64K");
    RemoteRegion region(handle, std::uint64_t{warm_pages + touched_pages} * page_bytes);
    char buffer[bytes] = {};
    auto write_at = [&](std::uint64_t page, std::uint64_t offset) {
        std::uint64_t line = page % 256 * 64; // not the same set of the cache in all pages
        must(rwrite(handle.get(), region.address() + page * page_bytes + offset + line, buffer,
                    bytes),
             "rwrite");
    };
    for (std::uint32_t page = touched_pages; page < touched_pages + warm_pages; page++)
        write_at(page, 0);
    first.push_back(time_of(touched_pages, [&](std::uint32_t page) { write_at(page, 0); }));
    later.push_back(
        time_of(touched_pages, [&](std::uint32_t page) { write_at(page, page_bytes / 2); }));
}

double median(std::vector<double>& all) {
    auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
}

} // namespace

Figures embedded(double seconds) {
    Sleeper sleeper;
    RemoteHandle handle("embedded:size=64M,page=64K");
    RemoteRegion region(handle, walked_bytes);
    std::vector<char> memory(walked_bytes, 1);
    must(rwrite(handle.get(), region.address(), memory.data(), memory.size()), "rwrite");
    std::mutex mutex;
    char buffer[bytes];
    std::uint32_t offset = 0;
    std::vector<double> remote, copied, first, later;
    for (auto end = Clock::now() + std::chrono::duration<double>(seconds); Clock::now() < end;) {
        remote.push_back(time_of(reads, [&](std::uint32_t) {
            must(rread(handle.get(), region.address() + offset, buffer, bytes), "rread");
            offset = next(offset);
        }));
        copied.push_back(time_of(reads, [&](std::uint32_t) {
            locked_copy(mutex, buffer, &memory[offset]);
            offset = next(offset);
        }));
        touch(first, later);
    }
    return {{"read", median(remote)},
            {"mutex-copy", median(copied)},
            {"first-touch", median(first)},
            {"later-touch", median(later)}};
}

} // namespace remora::bench
