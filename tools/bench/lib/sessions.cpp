// SPDX-License-Identifier: GPL-2.0
// Many handles to one node, in groups of so many. Each has a region of its own, and those of a
// group take turns: so what an operation needs of its session, here and at the node, was used
// longest ago of all. The groups take turns, too, some 50 ms each: what the machine does meanwhile
// happens to all of them.
#include "measure.hpp"

#include <list>

#include "common/remote_handle.hpp"

namespace remora::bench {

namespace {

constexpr std::uint32_t bytes = 16;
// Of each handle, before anything is measured: it has to know its round trip.
constexpr unsigned warm_up_rounds = 20;
// Of a group, one after the other: so many that of 1,000 handles each has its turn twice.
constexpr unsigned turn_operations = 2000;

struct Session {
    Session(const std::string& target, std::uint32_t integrity)
        : handle(target, integrity), region(handle, bytes) {}
    RemoteHandle handle;
    RemoteRegion region;
};

class Group {
public:
    Group(const std::string& target, std::uint32_t count, std::uint32_t integrity) {
        for (std::uint32_t i = 0; i < count; i++) {
            const Session& session = all_.emplace_back(target, integrity);
            turns_.push_back({session.handle.get(), session.region.address()});
        }
        for (unsigned i = 0; i < warm_up_rounds * count; i++)
            read_next();
    }
    void take_turn() {
        auto from = Clock::now();
        for (unsigned i = 0; i < turn_operations; i++) {
            read_next();
            auto to = Clock::now();
            times_.push_back(elapsed_ns(from, to));
            from = to;
        }
    }
    std::size_t count() const { return all_.size(); }
    double p50_us() { return percentile(times_, 0.5) / 1000; }

private:
    struct Turn {
        remote_t* handle;
        raddr_t address;
    };

    void read_next() {
        char buffer[bytes];
        must(rread(turns_[next_].handle, turns_[next_].address, buffer, bytes), "rread");
        next_ = (next_ + 1) % turns_.size();
    }

    std::list<Session> all_;
    std::vector<Turn> turns_; // side by side, so that finding the next one costs nothing
    std::size_t next_ = 0;
    std::vector<std::uint32_t> times_;
};

} // namespace

Figures sessions(const std::string& target, const std::vector<std::uint32_t>& counts,
                 double seconds, std::uint32_t integrity) {
    std::list<Group> groups;
    for (std::uint32_t count : counts)
        groups.emplace_back(target, count, integrity);
    auto end = Clock::now() + std::chrono::duration<double>(seconds);
    do {
        for (Group& group : groups)
            group.take_turn();
    } while (Clock::now() < end);
    Figures found;
    for (Group& group : groups)
        found[std::to_string(group.count())] = group.p50_us();
    return found;
}

} // namespace remora::bench
