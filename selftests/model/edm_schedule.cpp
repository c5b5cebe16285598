// SPDX-License-Identifier: GPL-2.0
// Grants of EDM's scheduler beside lost, late and copied datagrams, restarts and a standby
// (include/remora/edm.h; kmod/core/edm/sched.h, link.h). The model takes the steps of
// sched_reconcile(), host_item() and edm_link_accept(), and the leases.
//
// Grants: a host has a message of two chunks, one scheduler books them. All datagrams ever sent may
// arrive now, later, often or never. The scheduler may forget everything and begin another life.
//   - no byte is booked twice: at any time, at most one grant of it was accepted or still can be;
//   - no grant makes the host send more than was booked with it;
//   - from every state, fault-free steps lead to all bytes sent: no demand is lost.
//
// Take-over: a host and two schedulers, in quarters of a lease. A datagram takes up to a quarter,
// or is lost; either scheduler may restart. A chunk takes two quarters.
//   - no two chunks to the host are under way at a time, whichever schedulers booked them.
#include "explore.hpp"

#include <cstdlib>

namespace {

// ---- grants ----

constexpr int size = 2, grants_max = 7, reports_max = 5;

enum GrantMutation {
    NONE,
    RETRACT_AT_ONCE,  // bytes are booked again although their grant may still arrive
    OLD_GRANTS,       // the host accepts grants out of order
    GAPS,             // the host accepts a grant that begins beyond what it has accepted
    OLD_LIVES,        // the host accepts grants of an earlier life of the scheduler
    NO_RETRACT,       // a lost grant is never booked again
    FORGETS_ACCEPTED, // a scheduler that restarted books from the first byte on
};

struct Grants {
    struct Grant {
        uint8_t life, seq, start, end; // end 0: an acknowledgement
    };
    struct Report {
        uint8_t life, seq, seen, accepted;
    };
    struct State {
        uint8_t life, known, granted, grant_seq, seq_out, heard; // scheduler
        uint8_t host_life, accepted, seq_in, told;               // host
        uint8_t grants, reports, restarts;
        uint8_t taken[size]; // per byte: grant that it was accepted under, plus 1
        Grant grant[grants_max];
        Report report[reports_max];
    };

    int restarts;
    GrantMutation mutation;

    State initial() const {
        State s{};
        s.life = s.host_life = 1;
        return s;
    }
    const char* stuck(const State&) const { return nullptr; }

    // A datagram to the host; false: the model's bound is reached.
    static bool emit_grant(State& s, uint8_t start, uint8_t end) {
        if (s.grants == grants_max)
            return false;
        s.grant[s.grants++] = {s.life, ++s.seq_out, start, end};
        return true;
    }

    static bool book(State& s) {
        if (!s.known || s.granted == size || !emit_grant(s, s.granted, s.granted + 1))
            return false;
        s.granted++;
        s.grant_seq = s.seq_out;
        return true;
    }

    static bool tell(State& s) {
        if (s.reports == reports_max)
            return false;
        s.report[s.reports++] = {s.host_life, ++s.told, s.seq_in, s.accepted};
        return true;
    }

    void hear(State& s, const Report& r) const {
        if (r.life != s.life || r.seq <= s.heard)
            return;
        s.heard = r.seq;
        if (!s.known) {
            s.known = 1;
            s.granted = mutation == FORGETS_ACCEPTED ? 0 : r.accepted;
        } else if (r.accepted > s.granted) {
            s.granted = r.accepted;
        } else if (r.accepted < s.granted && mutation != NO_RETRACT &&
                   (r.seen >= s.grant_seq || mutation == RETRACT_AT_ONCE)) {
            s.granted = r.accepted;
        }
        emit_grant(s, 0, 0);
    }

    // Returns what is wrong.
    const char* accept(State& s, int number) const {
        const Grant g = s.grant[number];
        if (g.life != s.host_life && mutation != OLD_LIVES)
            return nullptr;
        if (g.seq <= s.seq_in && mutation != OLD_GRANTS && g.life == s.host_life)
            return nullptr;
        s.seq_in = std::max(s.seq_in, g.seq);
        if (g.end <= s.accepted || (g.start > s.accepted && mutation != GAPS))
            return nullptr;
        if (g.end - s.accepted > g.end - g.start)
            return "the host sends more than was booked";
        for (uint8_t byte = s.accepted; byte < g.end; byte++)
            s.taken[byte] = static_cast<uint8_t>(number + 1);
        s.accepted = g.end;
        return nullptr;
    }

    const char* booked_twice(const State& s) const {
        for (int byte = 0; byte < size; byte++) {
            int live = s.taken[byte] != 0;
            for (int n = 0; n < s.grants; n++) {
                const Grant& g = s.grant[n];
                // Grants of another life, and those overtaken, are not accepted any more.
                const bool can =
                    g.life == s.host_life && (g.seq > s.seq_in || mutation == OLD_GRANTS);
                live += g.start <= byte && byte < g.end && n + 1 != s.taken[byte] && can;
            }
            if (live > 1)
                return "a byte is booked twice";
        }
        return nullptr;
    }

    // Do fault-free steps send the rest? Datagrams under way are lost.
    bool heals(State s) const {
        for (int round = 0; round < 4 * size + 4 && s.accepted < size; round++) {
            s.grants = s.reports = 0;
            if (s.host_life != s.life)
                join(s);
            tell(s);
            hear(s, s.report[0]);
            book(s);
            for (int n = 0; n < s.grants; n++)
                accept(s, n);
        }
        return s.accepted == size;
    }

    static void join(State& s) {
        s.host_life = s.life;
        s.seq_in = s.told = 0;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        auto step = [&](State& next, const char* violation, auto&& label) {
            if (!violation)
                violation = booked_twice(next);
            if (!violation && !heals(next))
                violation = "the rest of the message is never sent";
            emit(next, violation, label);
        };
        State next = s;
        if (book(next))
            step(next, nullptr, [] { return std::string("scheduler books a chunk"); });
        next = s;
        if (tell(next))
            step(next, nullptr, [] { return std::string("host reports"); });
        for (int n = 0; n < s.reports; n++) {
            next = s;
            hear(next, s.report[n]);
            step(next, nullptr, [n] { return "report " + std::to_string(n) + " arrives"; });
        }
        for (int n = 0; n < s.grants; n++) {
            next = s;
            const char* violation = accept(next, n);
            step(next, violation, [n] { return "grant " + std::to_string(n) + " arrives"; });
        }
        if (s.restarts < restarts) {
            next = s;
            next.restarts++;
            next.life++;
            next.known = next.granted = next.grant_seq = next.seq_out = next.heard = 0;
            step(next, nullptr, [] { return std::string("scheduler restarts"); });
        }
        if (s.host_life != s.life) {
            next = s;
            join(next);
            step(next, nullptr, [] { return std::string("host joins"); });
        }
    }
};

// ---- take-over ----

constexpr int schedulers = 2, lease = 4, mute = 2 * lease, silent = 3 * lease, chunk = 2;

enum LeaseMutation {
    SOUND,
    NO_MUTE, // the host keeps its lease alive until it turns away
    EARLY,   // the host turns away after two leases, when its lease may still run
    NO_HOLD, // a port that begins to follow is granted at once
};

struct Leases {
    struct Scheduler {
        uint8_t lease, follows, hold; // quarters left; hold: before the first chunk
        uint8_t chunk;                // quarters left of a chunk that it has booked
        uint8_t under_way;            // a datagram of the host: 0 none, 1 joined, 2 follows
        uint8_t age;                  // quarters since the host heard of it
    };
    struct State {
        Scheduler scheduler[schedulers];
        uint8_t follow;     // schedulers: none
        uint8_t chunk_left; // of a chunk booked before a restart
        uint8_t restarts;
    };

    int restarts;
    LeaseMutation mutation;

    State initial() const {
        State s{};
        s.scheduler[0] = {lease, 1, 0, 0, 0, 0};
        s.scheduler[1] = {lease, 0, 0, 0, 0, 0};
        return s;
    }
    const char* stuck(const State&) const { return "time stands still"; }

    static const char* overlap(const State& s) {
        return (s.scheduler[0].chunk != 0) + (s.scheduler[1].chunk != 0) + (s.chunk_left != 0) > 1
                   ? "two chunks are under way to one host"
                   : nullptr;
    }

    // A datagram of the host arrives.
    void arrive(Scheduler& s) const {
        const bool follows = s.under_way == 2;
        if (follows && !s.follows)
            s.hold = mutation == NO_HOLD ? 0 : chunk;
        s.follows = follows;
        s.lease = lease;
        s.under_way = 0;
    }

    // The host at the start of a quarter: whom it follows, and whom it tells.
    void act(State& s) const {
        const int patience = mutation == EARLY ? mute : silent;
        if (s.follow < schedulers && s.scheduler[s.follow].age >= patience)
            s.follow = schedulers;
        for (uint8_t n = 0; n < schedulers && s.follow == schedulers; n++)
            if (s.scheduler[n].age < mute)
                s.follow = n;
        for (uint8_t n = 0; n < schedulers; n++) {
            Scheduler& each = s.scheduler[n];
            if (each.age < mute || (mutation == NO_MUTE && n == s.follow))
                each.under_way = s.follow == n ? 2 : 1;
        }
    }

    static uint8_t less(uint8_t x) { return x ? x - 1 : 0; }

    // A quarter of a lease passes. Bit n of lost: the host hears nothing of scheduler n.
    void pass(State& s, int lost) const {
        s.chunk_left = less(s.chunk_left);
        for (int n = 0; n < schedulers; n++) {
            Scheduler& each = s.scheduler[n];
            each.under_way = 0; // later than a quarter: lost
            each.chunk = less(each.chunk);
            each.hold = less(each.hold);
            each.lease = less(each.lease);
            if (!each.lease)
                each.follows = 0;
            each.age =
                static_cast<uint8_t>(lost >> n & 1 ? std::min<int>(each.age + 1, silent) : 0);
        }
        act(s);
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        for (int n = 0; n < schedulers; n++) {
            const Scheduler& each = s.scheduler[n];
            const std::string name = "scheduler " + std::to_string(n);
            State next = s;
            if (each.under_way) {
                arrive(next.scheduler[n]);
                emit(next, nullptr, [&] { return name + " hears the host"; });
            }
            if (each.follows && each.lease && !each.hold && !each.chunk) {
                next = s;
                next.scheduler[n].chunk = chunk;
                emit(next, overlap(next), [&] { return name + " books a chunk"; });
            }
            if (s.restarts < restarts) {
                next = s;
                next.restarts++;
                next.chunk_left = std::max(next.chunk_left, each.chunk);
                next.scheduler[n] = {0, 0, 0, 0, 0, each.age};
                emit(next, nullptr, [&] { return name + " restarts"; });
            }
        }
        for (int lost = 0; lost < 1 << schedulers; lost++) {
            State next = s;
            pass(next, lost);
            emit(next, nullptr,
                 [lost] { return "a quarter passes; unheard: " + std::to_string(lost); });
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    const bool large = argc > 1 && !std::strcmp(argv[1], "--large");
    model::Report report;
    auto grants = [&](const char* name, GrantMutation mutation) {
        Grants model{large ? 2 : 1, mutation};
        report.check(name, model::Explorer<Grants>(model, 40'000'000).run(), mutation != NONE);
    };
    auto leases = [&](const char* name, LeaseMutation mutation) {
        auto out = model::Explorer<Leases>(Leases{large ? 3 : 2, mutation}, 40'000'000).run();
        report.check(name, out, mutation != SOUND);
    };
    grants("grants beside loss, copies and a restart", NONE);
    grants("wrong: bytes are booked again at once", RETRACT_AT_ONCE);
    grants("wrong: the host accepts grants out of order", OLD_GRANTS);
    grants("wrong: the host accepts a grant behind a lost one", GAPS);
    grants("wrong: the host accepts grants of an earlier life", OLD_LIVES);
    grants("wrong: a lost grant is never booked again", NO_RETRACT);
    grants("wrong: a restarted scheduler books from the first byte on", FORGETS_ACCEPTED);
    leases("a standby takes over", SOUND);
    leases("wrong: the host is not mute before it turns away", NO_MUTE);
    leases("wrong: the host turns away after two leases", EARLY);
    leases("wrong: a port that begins to follow is granted at once", NO_HOLD);
    return report.finish();
}
