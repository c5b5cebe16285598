// SPDX-License-Identifier: GPL-2.0
// How an end sleeps over a bus that delays stores (include/remora/marlin.h, "Sleeping" and "Order";
// kmod/marlin/recv.c, xmit.c, messages.c).
//
// A writer posts records into the sleeper's memory, and looks at the flag in its own. The sleeper
// takes records, and before it sleeps it sets the flag there and loads. Stores to the other end are
// on their way for any time, in order. Only the sleeper loads across the bus.
#include "explore.hpp"

#include <cstdlib>

namespace {

enum Mutation {
    NONE,
    NO_BARRIER, // the writer looks at the flag before its record has left
    NO_LOAD,    // the sleeper looks for records as soon as it has set the flag
    RELAXED,    // the load's completion overtakes the writer's stores
    NO_PUSH,    // the load overtakes the sleeper's own
};

enum WriterStep : uint8_t { POST, LOOK, RING, DONE };
enum SleeperStep : uint8_t { TAKE, DOZE, LOAD, COMPLETE, LOOK_AGAIN, ASLEEP };

const char* const writer_steps[] = {"posts a record", "looks at the flag", "resets it and rings"};
const char* const sleeper_steps[] = {"takes records",      "says that it sleeps", "loads",
                                     "has the completion", "looks once more",     "wakes up"};

struct Sleeps {
    struct State {
        uint8_t writer, posted, flag, saw; // flag: in the writer's memory, and as it was looked at
        uint8_t way, bells; // records on their way, and of bells behind how many of them
        uint8_t sleeper, came, taken, flags, marked, rung; // flags: stores of it on their way
    };

    int records;
    Mutation mutation;

    State initial() const { return {}; }

    const char* stuck(const State& s) const {
        return s.taken == records ? nullptr : "a record waits for ever: nobody wakes its reader";
    }

    void post(State& s) const {
        s.posted++;
        s.way++;
    }

    void writer(State& s) const {
        switch (s.writer) {
        case POST:
            s.saw = s.flag;
            if (mutation != NO_BARRIER)
                post(s);
            s.writer = LOOK;
            break;
        case LOOK:
            if (mutation == NO_BARRIER)
                post(s);
            else
                s.saw = s.flag;
            s.writer = s.saw ? RING : s.posted < records ? POST : DONE;
            s.saw = 0;
            break;
        default:
            s.flag = 0;
            // A bell comes behind the records before it, so those that are on their way count.
            s.bells = static_cast<uint8_t>(s.way + 1);
            s.writer = s.posted < records ? POST : DONE;
            break;
        }
    }

    void sleeper(State& s) const {
        switch (s.sleeper) {
        case TAKE:
            s.taken = s.came;
            s.rung = 0;
            s.sleeper = DOZE;
            break;
        case DOZE:
            s.flags = 1;
            s.sleeper = mutation == NO_LOAD ? LOOK_AGAIN : LOAD;
            break;
        case LOAD:
            if (s.flags && mutation != NO_PUSH) {
                s.flag = 1;
                s.flags = 0;
            }
            s.marked = mutation == RELAXED ? 0 : s.way;
            s.sleeper = COMPLETE;
            break;
        case COMPLETE:
            s.sleeper = LOOK_AGAIN;
            break;
        case LOOK_AGAIN:
            s.sleeper = s.came == s.taken ? ASLEEP : TAKE;
            break;
        default:
            s.sleeper = TAKE;
            break;
        }
    }

    bool sleeper_may_step(const State& s) const {
        if (s.sleeper == COMPLETE)
            return !s.marked;
        return s.sleeper != ASLEEP || s.rung;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (s.way) {
            State next = s;
            next.way--;
            next.came++;
            next.marked -= s.marked != 0;
            next.bells -= s.bells > 1;
            emit(next, nullptr, [] { return std::string("a record comes"); });
        }
        if (s.bells == 1) {
            State next = s;
            next.bells = 0;
            next.rung = 1;
            emit(next, nullptr, [] { return std::string("the bell rings"); });
        }
        if (s.flags) {
            State next = s;
            next.flags = 0;
            next.flag = 1;
            emit(next, nullptr, [] { return std::string("the flag comes"); });
        }
        if (s.writer != DONE && (s.writer != RING || !s.bells)) {
            State next = s;
            writer(next);
            emit(next, nullptr, [&] { return std::string("writer ") + writer_steps[s.writer]; });
        }
        if (sleeper_may_step(s)) {
            State next = s;
            sleeper(next);
            emit(next, nullptr, [&] { return std::string("sleeper ") + sleeper_steps[s.sleeper]; });
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int records = argc > 1 ? std::atoi(argv[1]) : 5;
    model::Report report;
    auto run = [&](const char* name, Mutation mutation) {
        auto out = model::Explorer<Sleeps>(Sleeps{records, mutation}, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("an end that sleeps loads, one that writes does not", NONE);
    run("wrong: the writer has no barrier", NO_BARRIER);
    run("wrong: the sleeper does not load", NO_LOAD);
    run("wrong: a completion overtakes stores", RELAXED);
    run("wrong: a load overtakes stores", NO_PUSH);
    return report.finish();
}
