// SPDX-License-Identifier: GPL-2.0
// A lock across machines (kmod/core/marlin/locks.h), whose home runs the real code.
//
// Machines ask the home for one lock, write into the memory that it guards, and give it back. Each
// store into another machine's memory waits until it becomes visible: in any order, but for those
// to one place and those before a barrier or flush. A link may break: its machine died, or it hears
// of it later and stops then. It may come back, under a new session.
#include "explore.hpp"

#include <cstdlib>
#include <cstring>

extern "C" {
#include "core/marlin/locks.h"
}

namespace {

enum Mutation {
    NONE,
    NO_FLUSH,      // a bell overtakes the words it is for
    NO_ORDER,      // the number that says "changed" overtakes the words
    WORDS_FIRST,   // the home reads the words before that number
    NO_SEQUENCE,   // a request looks like the last one
    LEAVES_EARLY,  // the lock is given back before the data is there
    FREES_AT_ONCE, // a lost holder's lock is free when its link breaks
    LAST_FIRST,    // the home serves the last request first
};

enum Step : uint8_t {
    ASK,
    ASK_CHANGED,
    ASK_BELL,
    WAIT,
    WRITE,
    LEAVE,
    LEAVE_CHANGED,
    LEAVE_BELL,
    DONE,
    OFF, // heard that its link broke
    DEAD
};
const char* const step_names[] = {"asks",
                                  "says that it changed a word",
                                  "rings for its request",
                                  "looks for a grant",
                                  "writes into the guarded memory",
                                  "gives the lock back",
                                  "says that it changed a word",
                                  "rings for the free lock"};

template <int machines>
struct Locks {
    struct Place { // one word in another machine's memory
        uint8_t shown, hidden;
    };
    struct Machine {
        uint8_t step, left, word;
        Place want, number; // at the home
        Place grant;        // at the machine
        uint8_t rung;
        uint8_t data;      // a store into the guarded memory is under way
        uint8_t linked;    // for the home
        uint8_t overtaken; // others that got the lock since its request became visible
        // The home's.
        uint8_t seen_number, seen_want;
    };
    struct State {
        Machine machine[machines];
        uint8_t rung, look, half, read; // of the home; look: the machine that it looks at
        uint8_t queue[machines], count, holder, lost, broken;
        uint8_t dirty; // a holder was lost, and no other got the lock since
        uint8_t breaks;
    };

    int rounds, breaks;
    Mutation mutation;

    State initial() const {
        State s{};
        for (Machine& m : s.machine) {
            m.left = static_cast<uint8_t>(rounds);
            m.linked = 1;
        }
        s.holder = LOCKS_NONE;
        s.look = machines;
        s.breaks = static_cast<uint8_t>(breaks);
        return s;
    }

    const char* stuck(const State& s) const {
        for (const Machine& m : s.machine)
            if (m.step != DONE && m.step != DEAD)
                return "a machine waits for ever";
        return nullptr;
    }

    // ---- the real code, on what a state holds of it ----

    static locks_lock load(const State& s) {
        locks_lock lock;
        locks_init(&lock);
        for (int i = 0; i < machines; i++)
            lock.want[i] = s.machine[i].seen_want;
        for (int i = 0; i < s.count; i++)
            lock.queue[i] = s.queue[i];
        lock.count = s.count;
        lock.holder = s.holder;
        lock.lost = s.lost;
        lock.broken = s.broken;
        return lock;
    }

    static void store(State& s, const locks_lock& lock) {
        for (int i = 0; i < machines; i++)
            s.machine[i].seen_want = static_cast<uint8_t>(lock.want[i]);
        std::memset(s.queue, 0, sizeof(s.queue));
        for (int i = 0; i < lock.count; i++)
            s.queue[i] = lock.queue[(lock.first + i) % LOCKS_MACHINES];
        s.count = lock.count;
        s.holder = lock.holder;
        s.lost = lock.lost;
        s.broken = lock.broken;
    }

    // ---- the home ----

    const char* serve(State& s) const {
        locks_lock lock = load(s);
        if (mutation == LAST_FIRST)
            std::swap(lock.queue[0], lock.queue[lock.count ? lock.count - 1 : 0]);
        uint32_t grant;
        int to = locks_next(&lock, &grant);
        store(s, lock);
        if (to < 0)
            return nullptr;
        Machine& m = s.machine[to];
        m.grant.hidden = static_cast<uint8_t>(grant);
        if (mutation != NO_FLUSH)
            m.grant.shown = m.grant.hidden;
        m.rung = 1;
        bool told = !s.dirty || (grant & MARLIN_LOCK_BROKEN);
        s.dirty = 0;
        if (!told)
            return "a holder isn't told that the last one was lost";
        for (Machine& other : s.machine)
            if (&other != &m && other.linked && other.step == WAIT && ++other.overtaken == machines)
                return "others get the lock more than once before a machine that waits";
        return nullptr;
    }

    const char* look(State& s) const {
        Machine& m = s.machine[s.look];
        bool first = !s.half;
        bool number = first == (mutation != WORDS_FIRST);
        bool on = m.linked;
        if (on && number) {
            on = m.number.shown != m.seen_number;
            m.seen_number = m.number.shown;
        } else if (on) {
            s.read = m.want.shown;
        }
        if (on && first) {
            s.half = 1;
            return nullptr;
        }
        if (on) {
            locks_lock lock = load(s);
            locks_want(&lock, s.look, s.read);
            store(s, lock);
        }
        s.half = s.read = 0;
        return ++s.look == machines ? serve(s) : nullptr;
    }

    // ---- a machine ----

    void change(State& s, Machine& m, bool bell) const {
        if (!bell) {
            m.number.hidden++;
            return;
        }
        if (mutation != NO_FLUSH) {
            m.want.shown = m.want.hidden;
            m.number.shown = m.number.hidden;
        }
        s.rung = 1;
    }

    void run(State& s, Machine& m) const {
        uint8_t next = static_cast<uint8_t>(m.step + 1);
        switch (m.step) {
        case ASK:
            m.left--;
            m.overtaken = 0;
            m.word = static_cast<uint8_t>(mutation == NO_SEQUENCE ? m.word | MARLIN_LOCK_WANTS
                                                                  : locks_word_ask(m.word));
            m.want.hidden = m.word;
            break;
        case WAIT:
            m.rung = 0;
            if (!locks_is_granted(m.word, m.grant.shown))
                next = WAIT;
            break;
        case WRITE:
            m.data = 1;
            break;
        case LEAVE:
            if (mutation != LEAVES_EARLY)
                m.data = 0;
            m.word = static_cast<uint8_t>(locks_word_leave(m.word, false));
            m.want.hidden = m.word;
            break;
        case LEAVE_BELL:
            next = m.left ? ASK : DONE;
            [[fallthrough]];
        default:
            change(s, m, m.step == ASK_BELL || m.step == LEAVE_BELL);
        }
        m.step = next;
    }

    // ---- broken links ----

    static uint8_t index(const State& s, const Machine& m) {
        return static_cast<uint8_t>(&m - s.machine);
    }

    // The home hears of it first here; the machine lives on until `heard`, if it didn't die.
    void unlink(State& s, Machine& m, bool dies) const {
        locks_lock lock = load(s);
        s.breaks--;
        s.dirty |= lock.holder == index(s, m);
        locks_gone(&lock, index(s, m));
        if (mutation == FREES_AT_ONCE)
            locks_ended(&lock, index(s, m));
        store(s, lock);
        m.linked = 0;
        if (dies)
            m.step = DEAD;
        s.rung = 1;
    }

    // Nothing of the session is under way: the machine said so, or was dead for long.
    static void end(State& s, Machine& m) {
        locks_lock lock = load(s);
        locks_ended(&lock, index(s, m));
        store(s, lock);
        m.want = m.number = m.grant = {};
        m.word = m.seen_number = m.rung = 0;
        if (m.step == OFF) {
            m.linked = 1;
            m.step = m.left ? ASK : DONE;
        }
        s.rung = 1;
    }

    static bool has_ended(const State& s, const Machine& m) {
        return !m.linked && !m.data &&
               (m.step == OFF || (m.step == DEAD && s.lost && s.holder == index(s, m)));
    }

    static const char* both(const State& s) {
        int inside = 0;
        for (const Machine& m : s.machine)
            inside += m.step == WRITE || m.step == LEAVE || m.data;
        return inside > 1 ? "two machines have the lock" : nullptr;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        auto step = [&](auto&& change, const std::string& what) {
            State next = s;
            const char* violation = change(next);
            emit(next, violation ? violation : both(next), [&] { return what; });
        };
        if (s.look < machines)
            step([&](State& n) { return look(n); }, "home looks at " + std::to_string(s.look));
        else if (s.rung)
            step([](State& n) { return n.rung = n.look = 0, nullptr; }, "home hears the bell");
        for (int i = 0; i < machines; i++) {
            const Machine& m = s.machine[i];
            auto own = [&](auto&& change, const std::string& what) {
                step([&](State& n) { return change(n, n.machine[i]), nullptr; },
                     "machine " + std::to_string(i) + " " + what);
            };
            auto appears = [&](auto&& place, const char* what) {
                if (place(s.machine[i]).shown != place(s.machine[i]).hidden)
                    own([&](State&, Machine& n) { place(n).shown = place(n).hidden; }, what);
            };
            appears(
                [](auto& n) -> auto& { return n.want; }, "has its word visible");
            if (m.want.shown == m.want.hidden || mutation == NO_ORDER)
                appears(
                    [](auto& n) -> auto& { return n.number; }, "has its number visible");
            appears(
                [](auto& n) -> auto& { return n.grant; }, "has its grant visible");
            if (m.data)
                own([](State&, Machine& n) { n.data = 0; }, "has its data there");
            if (m.step < DONE && (m.step != WAIT || m.rung))
                own([&](State& n, Machine& o) { run(n, o); }, step_names[m.step]);
            if (s.breaks && m.linked && m.step < DONE && s.look == machines) {
                own([&](State& n, Machine& o) { unlink(n, o, true); }, "dies");
                own([&](State& n, Machine& o) { unlink(n, o, false); }, "loses its link");
            }
            if (!m.linked && m.step <= DONE)
                own([](State&, Machine& n) { n.step = OFF; }, "hears that its link broke");
            if (has_ended(s, m))
                own([](State& n, Machine& o) { end(n, o); }, "has ended its session");
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 3;
    model::Report report;
    auto run = [&](const char* name, int links, Mutation mutation) {
        auto out = model::Explorer<Locks<2>>({rounds, links, mutation}, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("two machines and a home", 0, NONE);
    run("machines that die, or lose their link and come back", 2, NONE);
    auto three = model::Explorer<Locks<3>>({rounds - 2, 1, NONE}, 20'000'000).run();
    report.check("three machines, one of which dies or loses its link", three, false);
    run("wrong: a bell overtakes the words", 0, NO_FLUSH);
    run("wrong: the number overtakes the words", 0, NO_ORDER);
    run("wrong: the home reads the words first", 0, WORDS_FIRST);
    run("wrong: a request looks like the last", 0, NO_SEQUENCE);
    run("wrong: the lock is left before the data is there", 0, LEAVES_EARLY);
    run("wrong: a lost holder's lock is free at once", 1, FREES_AT_ONCE);
    run("wrong: the last request is served first", 0, LAST_FIRST);
    return report.finish();
}
