// SPDX-License-Identifier: GPL-2.0
// Many handles to one node. Each has a region of its own, and all take turns: so what an operation
// needs of its session, here and at the node, was used longest ago of all.
#include "measure.hpp"

#include <list>

#include "remote_handle.hpp"

namespace remora::bench {

namespace {

constexpr std::uint32_t bytes = 16;
// Of each handle, before anything is measured: it has to know its round trip.
constexpr unsigned warm_up_rounds = 20;

struct Session {
    Session(const std::string& target, std::uint32_t integrity)
        : handle(target, integrity), region(handle, bytes) {}
    void read() {
        char buffer[bytes];
        must(rread(handle.get(), region.address(), buffer, bytes), "rread");
    }
    RemoteHandle handle;
    RemoteRegion region;
};

} // namespace

Figures sessions(const std::string& target, std::uint32_t count, double seconds,
                 std::uint32_t integrity) {
    std::list<Session> all;
    while (all.size() < count)
        all.emplace_back(target, integrity);
    for (unsigned round = 0; round < warm_up_rounds; round++) {
        for (Session& session : all)
            session.read();
    }
    std::vector<std::uint32_t> times;
    auto end = Clock::now() + std::chrono::duration<double>(seconds);
    auto session = all.begin();
    for (auto from = Clock::now(); from < end;) {
        session->read();
        auto to = Clock::now();
        times.push_back(elapsed_ns(from, to));
        from = to;
        if (++session == all.end())
            session = all.begin();
    }
    return {{"p50", percentile(times, 0.5) / 1000}};
}

} // namespace remora::bench
