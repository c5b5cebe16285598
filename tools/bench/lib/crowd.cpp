// SPDX-License-Identifier: GPL-2.0
// One busy handle, alone and beside many others: half of them are idle, and now and then each of
// the rest reads once. The two cases take turns, some 50 ms each, so the machine's other work slows
// both.
#include "measure.hpp"

#include <list>

#include "common/remote_handle.hpp"

namespace remora::bench {

namespace {

constexpr std::uint32_t bytes = 16;
constexpr auto turn = std::chrono::milliseconds(50);
// Of the busy handle, between two of the slow ones.
constexpr unsigned slow_every = 500;

struct Member {
    Member(const std::string& target, std::uint32_t integrity)
        : handle(target, integrity), region(handle, bytes) {}
    void read() {
        char buffer[bytes];
        must(rread(handle.get(), region.address(), buffer, bytes), "rread");
    }
    RemoteHandle handle;
    RemoteRegion region;
};

} // namespace

Figures crowd(const std::string& target, std::uint32_t count, double seconds,
              std::uint32_t integrity) {
    Member busy(target, integrity);
    std::vector<double> alone, beside;
    auto end = Clock::now() + std::chrono::duration<double>(seconds);
    do {
        for (bool crowded : {false, true}) {
            std::list<Member> others;
            std::vector<Member*> slow;
            for (std::uint32_t i = 0; crowded && i < count; i++) {
                Member& each = others.emplace_back(target, integrity);
                if (i % 2)
                    slow.push_back(&each);
            }
            busy.read();
            double spent = 0;
            unsigned reads = 0;
            auto from = Clock::now();
            for (auto to = from; to < from + turn; to = Clock::now()) {
                busy.read();
                if (reads++ % slow_every || slow.empty())
                    continue;
                auto slow_from = Clock::now();
                slow[reads / slow_every % slow.size()]->read();
                spent += std::chrono::duration<double>(Clock::now() - slow_from).count();
            }
            double took = std::chrono::duration<double>(Clock::now() - from).count() - spent;
            (crowded ? beside : alone).push_back(reads / took);
        }
    } while (Clock::now() < end);
    auto median = [](std::vector<double>& all) {
        auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
        std::nth_element(all.begin(), middle, all.end());
        return *middle;
    };
    return {{"alone", median(alone)}, {"beside", median(beside)}};
}

} // namespace remora::bench
