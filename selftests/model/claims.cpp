// SPDX-License-Identifier: GPL-2.0
// A claim of a copy over a link that goes down and up again (kmod/core/marlin/claim.h).
//
// The initiator claims, copies in two stores, and tells its program whether the copy is whole. The
// owner withdraws its permit, waits until no claim is left, and uses the page for itself. The link
// goes down and up at any time: stores of that time are lost, loads give nothing. An interrupt
// tells of it later, and then the session restarts: the initiator ends its copy, and the owner
// cleans the words.
#include "explore.hpp"

#include <cstdlib>

namespace {

enum Mutation {
    NONE,
    NO_EPOCH,     // a copy's end looks at the level of the link alone
    EVENTS_ONLY,  // a copy's end knows of outages by their interrupts alone
    NO_RESTART,   // after an outage that is over when the interrupt comes
    CLEANS_EARLY, // before the initiator has ended its copy
    NO_CLAIM,     // the initiator does not write its word
};

enum CopyStep : uint8_t { BEGIN, CHECK, STORE, STORE_AGAIN, JUDGE, END, COPY_DONE };
enum OwnerStep : uint8_t { WITHDRAW, LOOK, USE, OWNER_DONE };

const char* const copy_steps[] = {"writes its claim", "looks at the permit", "stores",
                                  "stores again",     "judges the copy",     "ends"};
const char* const owner_steps[] = {"withdraws the permit", "looks at the claim", "uses the page"};

struct Claims {
    struct State {
        uint8_t copy, owner;
        uint8_t up, outages_left;
        uint8_t epoch, seen; // of the link; as the session began with it
        uint8_t told;        // outages that an interrupt told of
        uint8_t word, permit;
        uint8_t stored; // stores that came
        uint8_t whole, used, restarts;
    };

    int outages;
    Mutation mutation;

    State initial() const {
        State s{};
        s.up = s.permit = 1;
        s.outages_left = static_cast<uint8_t>(outages);
        return s;
    }

    const char* stuck(const State& s) const {
        if (s.owner != OWNER_DONE)
            return "the owner waits for ever";
        return s.copy == COPY_DONE ? nullptr : "the copy waits for ever";
    }

    bool lost(const State& s) const {
        if (mutation == NO_EPOCH)
            return !s.up;
        return !s.up || (mutation == EVENTS_ONLY ? s.told : s.epoch) != s.seen;
    }

    const char* copier(State& s) const {
        switch (s.copy) {
        case BEGIN:
            if (s.up && mutation != NO_CLAIM)
                s.word = 1;
            s.copy = CHECK;
            break;
        case CHECK:
            s.copy = lost(s) || !s.permit ? END : STORE;
            break;
        case STORE:
        case STORE_AGAIN:
            s.stored += s.up;
            s.copy++;
            if (s.up && s.used)
                return "a copy stores into a page that is the owner's alone";
            break;
        case JUDGE:
            s.whole = !lost(s);
            s.copy = END;
            if (s.whole && s.stored != 2)
                return "a copy whose stores were lost is told to be whole";
            break;
        default:
            if (s.up)
                s.word = 0;
            s.copy = COPY_DONE;
            break;
        }
        return nullptr;
    }

    const char* owner(State& s) const {
        switch (s.owner) {
        case WITHDRAW:
            s.permit = 0;
            s.owner = LOOK;
            break;
        case LOOK:
            if (!s.word)
                s.owner = USE;
            break;
        default:
            s.used = 1;
            s.owner = OWNER_DONE;
            break;
        }
        return nullptr;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (s.up ? s.outages_left : 1) {
            State next = s;
            next.up = !s.up;
            if (s.up) {
                next.outages_left--;
                next.epoch++;
            }
            emit(next, nullptr, [&] { return std::string(s.up ? "link: down" : "link: up"); });
        }
        if (s.told != s.epoch) {
            State next = s;
            next.told = s.epoch;
            emit(next, nullptr, [] { return std::string("an interrupt tells of outages"); });
        }
        // Both ends learn of it; the initiator has ended its copy before the owner cleans.
        bool ended = s.copy == COPY_DONE || s.copy == BEGIN || mutation == CLEANS_EARLY;
        if (s.told != s.seen && s.up && ended && mutation != NO_RESTART) {
            State next = s;
            next.seen = s.told;
            next.word = 0;
            next.restarts++;
            emit(next, nullptr, [] { return std::string("the session restarts"); });
        }
        if (s.copy != COPY_DONE) {
            State next = s;
            const char* violation = copier(next);
            emit(next, violation, [&] { return std::string("copy ") + copy_steps[s.copy]; });
        }
        if (s.owner != OWNER_DONE && !(s.owner == LOOK && s.word)) {
            State next = s;
            const char* violation = owner(next);
            emit(next, violation, [&] { return std::string("owner ") + owner_steps[s.owner]; });
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int outages = argc > 1 ? std::atoi(argv[1]) : 3;
    model::Report report;
    auto run = [&](const char* name, Mutation mutation) {
        auto out = model::Explorer<Claims>(Claims{outages, mutation}, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("claims over a link that flaps", NONE);
    run("wrong: the link's level alone decides", NO_EPOCH);
    run("wrong: events alone tell of outages", EVENTS_ONLY);
    run("wrong: no restart after an outage", NO_RESTART);
    run("wrong: the owner cleans before the copy has ended", CLEANS_EARLY);
    run("wrong: the copy does not claim", NO_CLAIM);
    return report.finish();
}
