// SPDX-License-Identifier: GPL-2.0
// Revocation of a grant beside copies of its peer (kmod/core/marlin/grants.h).
//
// The owner grants, revokes, and uses the page for itself once no copy is under way; then it grants
// again. Two copy words of one initiator go through copies of the first grant again and again. Each
// end's stores wait until they become visible to the other: in any order, but for those to one
// place and those before a barrier.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int copies = 2;

enum Mutation {
    NONE,
    NO_OWNER_BARRIER, // between the revoked word and the look at the copy words
    NO_COPY_BARRIER,  // between the copy word and the look at the grant's word
    ENDS_EARLY,       // the copy word is cleared before the data is there
    NO_SECOND_LOOK,   // no doorbell for an owner that waits
};

enum OwnerStep : uint8_t { REVOKE, NOTE, LOOK, SLEEP, USE, OWNER_DONE };
enum CopyStep : uint8_t { BEGIN, CHECK, STORE, END, AGAIN, COPY_DONE };

const char* const owner_steps[] = {"revokes", "notes the copies", "looks at the copies",
                                   "sleeps",  "uses the page",    "is done"};
const char* const copy_steps[] = {"begins", "looks at the grant", "stores into the page",
                                  "ends",   "looks again",        "is done"};

struct Grants {
    struct Copy {
        uint8_t step, sequence, left;
        uint8_t shown, hidden; // copy word: as the owner sees it, and as written
        uint8_t data, bell;    // a store into the page, or a bell, is under way
        uint8_t noted;         // by the owner: the sequence it waits for, 0: none
    };
    struct State {
        uint8_t owner, word_hidden, word_shown, rung; // words: 0 live, 1 revoked
        Copy copy[copies];
    };

    int rounds;
    Mutation mutation;

    State initial() const {
        State s{};
        for (Copy& copy : s.copy)
            copy.left = static_cast<uint8_t>(rounds);
        return s;
    }

    const char* stuck(const State& s) const {
        return s.owner == OWNER_DONE ? nullptr : "the owner waits for ever";
    }

    uint8_t word_of(const Copy& copy) const { return copy.sequence; }

    bool quiet(State& s) const {
        bool all = true;
        for (Copy& copy : s.copy) {
            if (copy.noted && copy.shown != copy.noted)
                copy.noted = 0;
            all = all && !copy.noted;
        }
        return all;
    }

    const char* owner(State& s) const {
        switch (s.owner) {
        case REVOKE:
            s.word_hidden = 1;
            if (mutation != NO_OWNER_BARRIER)
                s.word_shown = 1;
            s.owner = NOTE;
            break;
        case NOTE:
            for (Copy& copy : s.copy)
                copy.noted = copy.shown;
            s.owner = LOOK;
            break;
        case LOOK:
            s.rung = 0;
            s.owner = quiet(s) ? USE : SLEEP;
            break;
        case SLEEP:
            s.owner = LOOK;
            break;
        case USE:
            for (const Copy& copy : s.copy)
                if (copy.data || copy.step == STORE)
                    return "a copy stores into a page that is the owner's alone";
            s.owner = OWNER_DONE;
            break;
        default:
            break;
        }
        return nullptr;
    }

    void copier(State& s, Copy& copy) const {
        switch (copy.step) {
        case BEGIN:
            copy.sequence++;
            copy.left--;
            copy.hidden = word_of(copy);
            if (mutation != NO_COPY_BARRIER)
                copy.shown = copy.hidden;
            copy.step = CHECK;
            break;
        case CHECK:
            copy.step = s.word_shown ? END : STORE;
            break;
        case STORE:
            copy.data = 1;
            copy.step = END;
            break;
        case END:
            if (mutation != ENDS_EARLY)
                copy.data = 0;
            copy.hidden = copy.shown = 0;
            copy.step = AGAIN;
            break;
        case AGAIN:
            if (s.word_shown && mutation != NO_SECOND_LOOK)
                s.rung = 1;
            copy.step = copy.left ? BEGIN : COPY_DONE;
            break;
        default:
            break;
        }
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (s.word_shown != s.word_hidden) {
            State next = s;
            next.word_shown = next.word_hidden;
            emit(next, nullptr, [] { return std::string("the revoked word becomes visible"); });
        }
        if (s.owner != OWNER_DONE && (s.owner != SLEEP || s.rung)) {
            State next = s;
            const char* violation = owner(next);
            emit(next, violation, [&] { return std::string("owner ") + owner_steps[s.owner]; });
        }
        for (int i = 0; i < copies; i++) {
            auto label = [&](const std::string& what) {
                return "copy " + std::to_string(i) + " " + what;
            };
            if (s.copy[i].hidden != s.copy[i].shown) {
                State next = s;
                next.copy[i].shown = next.copy[i].hidden;
                emit(next, nullptr, [&] { return label("becomes visible"); });
            }
            if (s.copy[i].data) {
                State next = s;
                next.copy[i].data = 0;
                emit(next, nullptr, [&] { return label("has its data in the page"); });
            }
            if (s.copy[i].step != COPY_DONE) {
                State next = s;
                copier(next, next.copy[i]);
                emit(next, nullptr, [&] { return label(copy_steps[s.copy[i].step]); });
            }
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int rounds = argc > 1 ? std::atoi(argv[1]) : 4;
    model::Report report;
    auto run = [&](const char* name, Mutation mutation) {
        auto out = model::Explorer<Grants>(Grants{rounds, mutation}, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("a revocation beside copies", NONE);
    run("wrong: the owner has no barrier", NO_OWNER_BARRIER);
    run("wrong: a copy has no barrier", NO_COPY_BARRIER);
    run("wrong: a copy ends before its data is there", ENDS_EARLY);
    run("wrong: a copy's end does not look again", NO_SECOND_LOOK);
    return report.finish();
}
