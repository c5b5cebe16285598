// SPDX-License-Identifier: GPL-2.0
// Figures of any store: how long one request takes, and how many it serves.
#include "measure.hpp"

#include "common/cpu_time.hpp"

namespace remora::bench {

namespace {

// Share of the measured time, which goes before it.
constexpr double warm_up = 0.1;
// Between the objects of a batch: odd, so that they are all different.
constexpr std::uint32_t stride = 37;

Clock::time_point after(double seconds) {
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

} // namespace

double percentile(std::vector<std::uint32_t>& all, double p) {
    if (all.empty())
        throw Failure("nothing ended in that time: give it more --seconds");
    auto at = all.begin() + static_cast<std::ptrdiff_t>(p * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), at, all.end());
    return *at;
}

Figures latency(Store& store, const Load& load) {
    Random random;
    auto one = [&] {
        std::uint32_t object = random.below(objects);
        load.write ? store.write(object) : store.read(object);
    };
    store.fill();
    for (auto end = after(load.seconds * warm_up); Clock::now() < end;)
        one();
    std::vector<std::uint32_t> all;
    all.reserve(static_cast<std::size_t>(load.seconds * 1e6));
    auto end = after(load.seconds);
    for (auto from = Clock::now(); from < end;) {
        one();
        auto to = Clock::now();
        all.push_back(elapsed_ns(from, to));
        from = to;
    }
    return {{"p50", percentile(all, 0.5) / 1000},
            {"p99", percentile(all, 0.99) / 1000},
            {"p99.9", percentile(all, 0.999) / 1000}};
}

Figures pipeline(Store& store, const Load& load) {
    Random random;
    std::vector<std::uint32_t> list(load.depth);
    auto batch = [&] {
        std::uint32_t object = random.below(objects);
        for (std::uint32_t& each : list) {
            each = object;
            object = (object + stride) % objects;
        }
        load.write ? store.write_all(list) : store.read_all(list);
    };
    store.fill();
    for (auto end = after(load.seconds * warm_up); Clock::now() < end;)
        batch();
    double cpu_before_s = load.server ? process_cpu_ns(load.server) / 1e9 : 0;
    auto begin = Clock::now();
    auto end = after(load.seconds);
    std::uint64_t done = 0;
    for (; Clock::now() < end; done += list.size())
        batch();
    double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    auto count = static_cast<double>(done);
    Figures found{{"rate", count / seconds}};
    if (!load.server)
        return found;
    double cpu_s = process_cpu_ns(load.server) / 1e9 - cpu_before_s;
    if (cpu_s <= 0)
        throw Failure("process {} did nothing: it isn't the server", load.server);
    found["ops-per-server-core"] = count / cpu_s;
    return found;
}

} // namespace remora::bench
