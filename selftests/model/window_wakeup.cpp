// SPDX-License-Identifier: GPL-2.0
// No wake-up is lost between channels that share a window (kmod/core/rmem/window.h).
//
// Each channel takes the steps that window.h's picture names, one atomic access a step, any
// interleaving. It wants the window a number of times, with one or two packets, and gives
// credit back a packet at a time. The window may shrink once, at any time, and grows again with
// an answer. A state in which nobody can move and somebody sleeps is a lost wake-up.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int channels_max = 3;

enum Step : uint8_t {
    TRY,   // acquire
    WAIT,  // (A) bit set in waiters
    TRY2,  // (B) acquire again
    SLEEP, // until kicked
    HOLD,  // credit is out; (C) gives a packet back
    CHECK, // (D) waiters read
    FULL,  // (D) in_flight read
    CLEAR, // (D) waiters exchanged, those in it kicked
    DONE,
};

const char* const step_names[] = {
    "tries",      "registers",         "tries again",    "wakes",
    "gives back", "looks for waiters", "looks for room", "clears waiters and kicks"};

enum Mutation {
    NONE,
    NO_SECOND_TRY,  // sleeps without B
    REGISTERS_LATE, // B before A
    LOOKS_EARLY,    // D before C
    KEEPS_NO_KICK,  // clears waiters though the window is still full
};

struct Wakeup {
    struct Channel {
        uint8_t step;
        uint8_t rounds; // left
        uint8_t held;
        uint8_t kicked;
        uint8_t owes_look; // D done, C still to come (mutation)
    };
    struct State {
        uint8_t in_flight;
        uint8_t cwnd;
        uint8_t waiters;
        uint8_t shrunk; // 0: may shrink, 1: is small, 2: has grown again
        Channel channel[channels_max];
    };

    int channels;
    int rounds;
    Mutation mutation;

    State initial() const {
        State s{};
        s.cwnd = 2;
        for (int i = 0; i < channels_max; i++) {
            s.channel[i].rounds = i < channels ? rounds : 0;
            s.channel[i].step = i < channels ? TRY : DONE;
        }
        return s;
    }

    const char* stuck(const State& s) const {
        for (const Channel& c : s.channel) {
            if (c.step == SLEEP)
                return "lost wake-up: a channel sleeps, and nobody will ever kick it";
        }
        return s.in_flight ? "credit lost" : nullptr;
    }

    static void next_round(Channel& c) {
        c.rounds--;
        c.step = c.rounds ? TRY : DONE;
    }

    // False: the window is full. Odd rounds want two packets, and may overshoot.
    static bool acquire(State& s, Channel& c) {
        if (s.in_flight >= s.cwnd)
            return false;
        c.held = 1 + c.rounds % 2;
        s.in_flight += c.held;
        c.step = HOLD;
        return true;
    }

    void step(State& s, Channel& c) const {
        bool late = mutation == REGISTERS_LATE, early = mutation == LOOKS_EARLY;
        uint8_t bit = 1 << (&c - s.channel);
        switch (c.step) {
        case TRY:
            if (!acquire(s, c))
                c.step = late ? TRY2 : WAIT;
            break;
        case WAIT:
            s.waiters |= bit;
            c.step = late || mutation == NO_SECOND_TRY ? SLEEP : TRY2;
            break;
        case TRY2:
            if (!acquire(s, c))
                c.step = late ? WAIT : SLEEP;
            break;
        case SLEEP:
            c.kicked = 0;
            c.step = TRY;
            break;
        case HOLD:
            if (early && !c.owes_look) {
                c.owes_look = 1;
                c.step = CHECK;
                break;
            }
            c.owes_look = 0;
            if (s.shrunk == 1) {
                s.cwnd = 2;
                s.shrunk = 2;
            }
            s.in_flight--;
            c.held--;
            c.step = early ? uint8_t(HOLD) : uint8_t(CHECK);
            if (early && !c.held)
                next_round(c);
            break;
        case CHECK:
            c.step = s.waiters ? FULL : HOLD;
            break;
        case FULL:
            c.step = s.in_flight >= s.cwnd && mutation != KEEPS_NO_KICK ? HOLD : CLEAR;
            break;
        case CLEAR:
            for (int i = 0; i < channels; i++) {
                if (s.waiters >> i & 1 && !(mutation == KEEPS_NO_KICK && s.in_flight >= s.cwnd))
                    s.channel[i].kicked = 1;
            }
            s.waiters = 0;
            c.step = HOLD;
            break;
        }
        if (c.step == HOLD && !c.held && !early)
            next_round(c);
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        for (int i = 0; i < channels; i++) {
            const Channel& c = s.channel[i];
            if (c.step == DONE || (c.step == SLEEP && !c.kicked))
                continue;
            State next = s;
            step(next, next.channel[i]);
            emit(next, nullptr, [&] {
                return "channel " + std::to_string(i) + " " + step_names[c.step] + " (in flight " +
                       std::to_string(next.in_flight) + " of " + std::to_string(next.cwnd) +
                       ", waiters " + std::to_string(next.waiters) + ")";
            });
        }
        if (!s.shrunk && s.in_flight) {
            State next = s;
            next.cwnd = 1;
            next.shrunk = 1;
            emit(next, nullptr, [] { return std::string("the window shrinks to 1"); });
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 2;
    model::Report report;
    auto run = [&](const char* name, int channels, Mutation mutation) {
        Wakeup wakeup{channels, rounds, mutation};
        auto out = model::Explorer<Wakeup>(wakeup, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("two channels", 2, NONE);
    run("three channels", 3, NONE);
    run("wrong: sleeps without trying again", 2, NO_SECOND_TRY);
    run("wrong: registers after the second try", 2, REGISTERS_LATE);
    run("wrong: looks for waiters before giving back", 2, LOOKS_EARLY);
    run("wrong: forgets waiters of a window still full", 3, KEEPS_NO_KICK);
    return report.finish();
}
