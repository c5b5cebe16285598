// SPDX-License-Identifier: GPL-2.0
// The queue for the incast window (kmod/core/rmem/client/incast.c): no wake-up is lost, no channel
// is overtaken, and one that vanishes holds up nobody.
//
// Each channel takes the steps of incast.c, one atomic access a step, any interleaving. It wants
// one or two units of three, a number of times, and gives them back; one that is asleep may vanish.
// A state in which nobody can move and somebody sleeps is a lost wake-up.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int channels_max = 3;
constexpr int tickets_max = 12;
constexpr uint8_t limit = 3, room = 2; // units
constexpr uint8_t left_mark = 0xff;

enum Step : uint8_t {
    TRY,       // acquire: units, or a ticket, or neither; (E) when it has a ticket
    PUBLISH,   // (B)
    SLEEP,     // until woken; may vanish
    HOLD,      // (C) units are given back
    PASS,      // vanishes: head's step if it is the head
    MARK,      // else its slot marked
    LOOK,      // (D) word read
    LOOK_LEFT, // has the head left?
    STEP_ON,   // if so, head's step
    WAKE,      // if not, its slot read and its waiter woken
    DONE,
};

const char* const step_names[] = {"tries",    "writes its slot", "wakes up",       "gives back",
                                  "vanishes", "marks its slot",  "reads the word", "reads the slot",
                                  "steps on", "wakes the head"};

enum Mutation {
    NONE,
    NO_SECOND_TRY,     // sleeps without E
    LOOKS_EARLY,       // D before C
    BARGES,            // takes units though others wait
    PASSES_IN_SILENCE, // steps head on without D
    NEVER_SKIPS,       // marks its slot, and that's all
};

struct Queue {
    struct Channel {
        uint8_t step;
        uint8_t rounds; // left
        uint8_t held;
        uint8_t ticket;
        uint8_t waits;
        uint8_t woken;
        uint8_t ends; // after its look
        uint8_t early;
        uint8_t head, used; // of the word read
    };
    struct State {
        uint8_t head, tail, used;
        uint8_t slot[tickets_max]; // 0, waiter + 1 or left_mark
        Channel channel[channels_max];
    };

    int channels;
    int rounds;
    int vanish; // so many may
    Mutation mutation;

    State initial() const {
        State s{};
        for (int i = 0; i < channels_max; i++) {
            s.channel[i].rounds = i < channels ? rounds : 0;
            s.channel[i].step = i < channels ? TRY : DONE;
        }
        return s;
    }

    const char* stuck(const State& s) const {
        for (const Channel& c : s.channel) {
            if (c.step == SLEEP)
                return "lost wake-up: a channel sleeps, and nobody will ever wake it";
        }
        return s.used ? "credit lost" : nullptr;
    }

    static bool is_overtaken(const State& s, const Channel& by) {
        for (const Channel& c : s.channel) {
            if (&c != &by && c.waits && (!by.waits || c.ticket < by.ticket))
                return true;
        }
        return false;
    }

    // The next step after a look has ended.
    static void go_on(Channel& c) {
        if (c.ends)
            c.step = DONE;
        else if (c.held)
            c.step = HOLD;
        else
            c.step = --c.rounds ? TRY : DONE;
    }

    const char* try_it(State& s, Channel& c) const {
        uint8_t wants = 1 + c.rounds % 2;
        bool turn = c.waits ? s.head == c.ticket : s.head == s.tail || mutation == BARGES;
        if (turn && (!s.used || s.used + wants <= limit)) {
            const char* violation = is_overtaken(s, c) ? "a waiter was overtaken" : nullptr;
            s.head += c.waits;
            s.used += wants;
            c.held = wants;
            c.step = c.waits ? LOOK : HOLD;
            c.waits = 0;
            return violation;
        }
        if (c.waits) {
            c.step = SLEEP;
            return nullptr;
        }
        c.ticket = s.tail++;
        c.waits = 1;
        c.step = PUBLISH;
        return c.ticket < tickets_max ? nullptr : "the model has too few tickets";
    }

    const char* step(State& s, Channel& c) const {
        switch (c.step) {
        case TRY:
            return try_it(s, c);
        case PUBLISH:
            s.slot[c.ticket] = uint8_t(1 + (&c - s.channel));
            c.step = mutation == NO_SECOND_TRY ? SLEEP : TRY;
            break;
        case SLEEP:
            c.woken = 0;
            c.step = TRY;
            break;
        case HOLD:
            if (mutation == LOOKS_EARLY && !c.early) {
                c.early = 1;
                c.step = LOOK;
                break;
            }
            s.used -= c.held;
            c.held = 0;
            c.step = LOOK;
            if (mutation == LOOKS_EARLY) {
                c.early = 0;
                go_on(c);
            }
            break;
        case PASS:
            c.ends = 1;
            c.step = MARK;
            if (s.head == c.ticket) {
                s.head++;
                c.step = mutation == PASSES_IN_SILENCE ? uint8_t(DONE) : uint8_t(LOOK);
                c.waits = 0;
            }
            break;
        case MARK:
            s.slot[c.ticket] = left_mark;
            c.waits = 0;
            c.step = mutation == NEVER_SKIPS ? uint8_t(DONE) : uint8_t(LOOK);
            break;
        case LOOK:
            c.head = s.head;
            c.used = s.used;
            c.step = LOOK_LEFT;
            if (s.head == s.tail)
                go_on(c);
            break;
        case LOOK_LEFT:
            c.step = s.slot[c.head] == left_mark && mutation != NEVER_SKIPS ? STEP_ON : WAKE;
            break;
        case STEP_ON:
            s.head += s.head == c.head;
            c.step = LOOK;
            break;
        case WAKE:
            wake(s, c);
            go_on(c);
            break;
        }
        return nullptr;
    }

    void wake(State& s, const Channel& c) const {
        uint8_t waiter = s.slot[c.head];
        if ((c.used && c.used + room > limit) || !waiter || waiter == left_mark)
            return;
        s.channel[waiter - 1].woken = 1;
    }

    int vanished(const State& s) const {
        int count = 0;
        for (const Channel& c : s.channel)
            count += c.ends || c.step == PASS;
        return count;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        for (int i = 0; i < channels; i++) {
            const Channel& c = s.channel[i];
            auto label = [&](const State& next) {
                return "channel " + std::to_string(i) + " " + step_names[c.step] + " (used " +
                       std::to_string(next.used) + ", head " + std::to_string(next.head) +
                       ", tail " + std::to_string(next.tail) + ")";
            };
            if (c.step == SLEEP && vanished(s) < vanish) {
                State next = s;
                next.channel[i].step = PASS;
                emit(next, nullptr, [&] { return "channel " + std::to_string(i) + " ends"; });
            }
            if (c.step == DONE || (c.step == SLEEP && !c.woken))
                continue;
            State next = s;
            const char* violation = step(next, next.channel[i]);
            emit(next, violation, [&] { return label(next); });
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 2;
    model::Report report;
    auto run = [&](const char* name, int channels, int vanish, Mutation mutation) {
        Queue queue{channels, rounds, vanish, mutation};
        auto out = model::Explorer<Queue>(queue, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("two channels", 2, 0, NONE);
    run("three channels", 3, 0, NONE);
    run("three channels, two of which vanish", 3, 2, NONE);
    run("wrong: sleeps without trying again", 2, 0, NO_SECOND_TRY);
    run("wrong: looks for waiters before giving back", 2, 0, LOOKS_EARLY);
    run("wrong: takes bytes though others wait", 3, 0, BARGES);
    run("wrong: looks for nobody when it has passed", 3, 1, PASSES_IN_SILENCE);
    run("wrong: nobody passes one that vanished", 3, 1, NEVER_SKIPS);
    return report.finish();
}
