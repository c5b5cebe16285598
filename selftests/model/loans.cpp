// SPDX-License-Identifier: GPL-2.0
// A client's loans beside copies of its node (kmod/core/marlin/loans.h).
//
// The client lends a page, takes it back, and uses it for itself once no copy is under way; then it
// lends another page by the same loan. The node has a request for each, and late copies of the
// first one. It executes them in two threads, an engine's and its own, in any order. Each end's
// stores wait until they become visible to the other: in any order, but for those to one place and
// those before a barrier.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int threads = 2, epochs = 2;

enum Mutation {
    NONE,
    NO_CLIENT_BARRIER, // between lent[] and the look at copies[]
    NO_COPY_BARRIER,   // between copies[] and the look at lent[]
    ENDS_EARLY,        // copies[] is cleared before the data is there
    TWO_AT_ONCE,       // copies of one loan
    SAME_EPOCH,        // for the next use of a loan
    NO_BELL,           // nor an answer, at the end of a copy
};

enum ClientStep : uint8_t { TAKE_BACK, LOOK, SLEEP, USE, LEND, CLIENT_DONE };
enum CopyStep : uint8_t { IDLE, CHECK, STORE, END };

const char* const client_steps[] = {"takes the page back", "looks at the copy", "sleeps",
                                    "uses the page",       "lends the next",    "is done"};
const char* const copy_steps[] = {"begins", "looks at the loan", "stores into the page", "ends"};

struct Loans {
    struct Copy {
        uint8_t step, page, data; // data: a store into the page is under way
    };
    struct State {
        uint8_t client, page, rung, used; // used: pages that are the client's alone, a bit each
        uint8_t lent_hidden, lent_shown, copy_hidden, copy_shown;
        uint8_t left[epochs]; // requests for each page
        uint8_t busy;         // copies of the loan
        Copy copy[threads];
    };

    int late;
    Mutation mutation;

    uint8_t epoch(int page) const {
        return static_cast<uint8_t>(mutation == SAME_EPOCH ? 1 : page + 1);
    }

    State initial() const {
        State s{};
        s.lent_hidden = s.lent_shown = epoch(0);
        s.left[0] = static_cast<uint8_t>(1 + late);
        s.left[1] = 1;
        return s;
    }

    const char* stuck(const State& s) const {
        return s.client == CLIENT_DONE ? nullptr : "the client waits for ever";
    }

    const char* client(State& s) const {
        switch (s.client) {
        case TAKE_BACK:
            s.lent_hidden = 0;
            if (mutation != NO_CLIENT_BARRIER)
                s.lent_shown = 0;
            s.client = LOOK;
            break;
        case LOOK:
            s.rung = 0;
            s.client = s.copy_shown == epoch(s.page) ? SLEEP : USE;
            break;
        case SLEEP:
            s.client = LOOK;
            break;
        case USE:
            s.used |= static_cast<uint8_t>(1 << s.page);
            for (const Copy& copy : s.copy)
                if (copy.page == s.page && copy.data)
                    return "a copy's data comes into a page that is the client's alone";
            s.client = s.page + 1 < epochs ? LEND : CLIENT_DONE;
            break;
        case LEND:
            s.page++;
            s.lent_hidden = epoch(s.page);
            s.client = TAKE_BACK;
            break;
        default:
            break;
        }
        return nullptr;
    }

    const char* copier(State& s, Copy& copy) const {
        switch (copy.step) {
        case CHECK:
            copy.step = s.lent_shown == epoch(copy.page) ? STORE : END;
            break;
        case STORE:
            copy.data = 1;
            copy.step = END;
            if (s.used >> copy.page & 1)
                return "a copy stores into a page that is the client's alone";
            break;
        default:
            if (mutation != ENDS_EARLY)
                copy.data = 0;
            s.copy_hidden = s.copy_shown = 0;
            s.busy--;
            s.rung = mutation != NO_BELL;
            copy.step = IDLE;
            break;
        }
        return nullptr;
    }

    void begin(State& s, Copy& copy, int page) const {
        s.left[page]--;
        s.busy++;
        s.copy_hidden = epoch(page);
        if (mutation != NO_COPY_BARRIER)
            s.copy_shown = s.copy_hidden;
        copy.page = static_cast<uint8_t>(page);
        copy.step = CHECK;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (s.lent_shown != s.lent_hidden) {
            State next = s;
            next.lent_shown = next.lent_hidden;
            emit(next, nullptr, [] { return std::string("lent[] becomes visible"); });
        }
        if (s.copy_shown != s.copy_hidden) {
            State next = s;
            next.copy_shown = next.copy_hidden;
            emit(next, nullptr, [] { return std::string("copies[] becomes visible"); });
        }
        if (s.client != CLIENT_DONE && (s.client != SLEEP || s.rung)) {
            State next = s;
            const char* violation = client(next);
            emit(next, violation, [&] { return std::string("client ") + client_steps[s.client]; });
        }
        for (int i = 0; i < threads; i++) {
            auto label = [&](const std::string& what) {
                return "thread " + std::to_string(i) + " " + what;
            };
            // A late store of one copy may be followed by the thread's next.
            if (s.copy[i].data) {
                State next = s;
                next.copy[i].data = 0;
                emit(next, nullptr, [&] { return label("has its data in the page"); });
            }
            if (s.copy[i].step != IDLE) {
                State next = s;
                const char* violation = copier(next, next.copy[i]);
                emit(next, violation, [&] { return label(copy_steps[s.copy[i].step]); });
                continue;
            }
            if (s.copy[i].data || (s.busy && mutation != TWO_AT_ONCE))
                continue;
            for (int page = 0; page <= s.page; page++) {
                if (!s.left[page])
                    continue;
                State next = s;
                begin(next, next.copy[i], page);
                emit(next, nullptr, [&] { return label("begins page " + std::to_string(page)); });
            }
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int late = argc > 1 ? std::atoi(argv[1]) : 3;
    model::Report report;
    auto run = [&](const char* name, Mutation mutation) {
        auto out = model::Explorer<Loans>(Loans{late, mutation}, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("loans taken back beside copies", NONE);
    run("wrong: the client has no barrier", NO_CLIENT_BARRIER);
    run("wrong: a copy has no barrier", NO_COPY_BARRIER);
    run("wrong: a copy ends before its data is there", ENDS_EARLY);
    run("wrong: two copies of a loan at once", TWO_AT_ONCE);
    run("wrong: a loan is used again with its epoch", SAME_EPOCH);
    run("wrong: a copy's end tells nothing", NO_BELL);
    return report.finish();
}
