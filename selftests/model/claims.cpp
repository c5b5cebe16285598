// SPDX-License-Identifier: GPL-2.0
// Copies of a peer beside the end of its permits, over a bus that delays stores and loses them
// (kmod/core/marlin/claim.h, grants.h, loans.h).
//
// The owner permits copies to a page, withdraws that, and uses the page for itself once no copy is
// under way; then it permits the next page. The initiator's two threads copy to the page that a
// request names, be it late. A grant's permit is in the initiator's memory, and its copies have a
// word each; a loan's is in the owner's, and it has one word and one copy at a time.
//
// Stores to the other end are on their way for any time, in order. A load pushes those of its own
// end, and its completion those of the other end. The link goes down and up at any time: stores on
// their way are lost then, and loads give nothing. Later the session restarts, when the initiator
// has ended its copies.
//
// Where the epoch is exact, both ends know of an outage at once. Where it comes late, each is told
// at some time of its own. Then the model only looks at pages: a copy might be told to be whole.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int threads = 2, pages = 2, queue_max = 6;

enum Geometry { GRANTS, LATE_GRANTS, LOANS };

enum Mutation {
    NONE,
    COPY_LOOKS_FIRST,  // at the permit, before its word has left: no barrier
    OWNER_LOOKS_FIRST, // at the words, before it has withdrawn its permit
    NO_LOAD,           // of the owner, between these two
    RELAXED,           // a completion overtakes stores
    NO_PUSH,           // nor does a load push stores of its own end
    ENDS_EARLY,        // the word is cleared before the data has left
    NO_SECOND_LOOK,    // of a copy's end: no doorbell for an owner that waits
    WORDS_ARE_TRUSTED, // by an owner, though the link was down
    NO_EPOCH,          // a copy's end does not look whether the link was down
    SIGNAL_IS_TRUSTED, // by an owner, though the link was down
    CLEANS_EARLY,      // a session restarts before the copies have ended
    NO_RESTART,        // after an outage
    TWO_AT_ONCE,       // copies of one loan
    SAME_EPOCH,        // for the next use of a loan
    PULL_IS_IGNORED,   // the value of the owner's load, where the epoch comes late
    WORD_IS_TRUSTED,   // a copy does not load its word back there
};

enum CopyStep : uint8_t { IDLE, VERIFY, CHECK, STORE, JUDGE, TELL, END, AWAIT };
enum OwnerStep : uint8_t { WITHDRAW, LOAD, COMPLETE, NOTE, LOOK, SLEEP, USE, PERMIT, OWNER_DONE };
enum Place : uint8_t { NOTHING, WORD, DATA, SIGNAL, BELL, PERMIT_WORD };

const char* const copy_steps[] = {"begins", "loads its word",  "looks at the permit",
                                  "stores", "judges the copy", "signals",
                                  "ends",   "looks again"};
const uint8_t withdrawn = 0x40; // in a permit of a grant
const char* const owner_steps[] = {"withdraws its permit",
                                   "loads",
                                   "has the completion",
                                   "notes the words",
                                   "looks",
                                   "wakes up",
                                   "uses the page",
                                   "permits the next page"};

struct Claims {
    struct Store {
        uint8_t place, thread, value;
    };
    struct Queue {
        Store store[queue_max];
        uint8_t count;
    };
    struct Copy {
        uint8_t step, page, sequence, permitted;
        uint8_t arrived;        // sequence number of the last data that came
        uint8_t loaded, marked; // where the epoch comes late: its word; stores to come before
    };
    struct State {
        uint8_t up, outages_left, epoch, seen; // seen: as the session began with it
        uint8_t told_owner, told_initiator;    // the epoch, as each end knows it
        uint8_t posted_lost;                   // bytes of a copy that ended well
        uint8_t permit;                        // where it is
        uint8_t word[threads];
        Queue to_owner, to_initiator;
        uint8_t owner, page, marked, pulled, blind, rung, used; // used: pages, a bit each
        uint8_t noted[threads];
        uint8_t left[pages]; // requests for each page
        Copy copy[threads];
    };

    Geometry geometry;
    int late, outages;
    Mutation mutation;

    uint8_t epoch_of(int page) const {
        return static_cast<uint8_t>(mutation == SAME_EPOCH ? 1 : page + 1);
    }
    bool grants() const { return geometry != LOANS; }
    int word_of(int thread) const { return grants() ? thread : 0; }
    uint8_t value_of(const Copy& copy) const {
        return grants() ? copy.sequence : epoch_of(copy.page);
    }

    State initial() const {
        State s{};
        s.up = 1;
        s.outages_left = static_cast<uint8_t>(outages);
        s.permit = epoch_of(0);
        s.left[0] = static_cast<uint8_t>(1 + late);
        s.left[1] = 1;
        return s;
    }

    const char* stuck(const State& s) const {
        return s.owner == OWNER_DONE ? nullptr : "the owner waits for ever";
    }

    // ---- the bus ----

    static void post(const State& s, Queue& queue, uint8_t place, int thread, int value) {
        if (s.up)
            queue.store[queue.count++] = {place, uint8_t(thread), uint8_t(value)};
    }

    static Store take(Queue& queue) {
        Store first = queue.store[0];
        for (int i = 1; i < queue.count; i++)
            queue.store[i - 1] = queue.store[i];
        queue.store[--queue.count] = {};
        return first;
    }

    const char* arrive_at_owner(State& s) const {
        Store store = take(s.to_owner);
        Copy& copy = s.copy[store.thread];
        s.marked -= s.marked != 0;
        switch (store.place) {
        case WORD:
            s.word[word_of(store.thread)] = store.value;
            break;
        case DATA:
            copy.arrived = store.value / pages;
            if (s.used >> store.value % pages & 1)
                return "a copy's data comes into a page that is the owner's alone";
            break;
        case SIGNAL:
            if (copy.arrived != store.value && geometry == GRANTS &&
                (s.told_owner == s.seen || mutation == SIGNAL_IS_TRUSTED))
                return "a signal is seen of data that was lost";
            break;
        default:
            s.rung = 1;
            break;
        }
        return nullptr;
    }

    // ---- the initiator ----

    static void arrive_at_initiator(State& s) {
        s.permit = take(s.to_initiator).value;
        for (Copy& copy : s.copy)
            copy.marked -= copy.marked != 0;
    }

    bool is_permitted(const State& s, const Copy& copy) const {
        return s.permit == epoch_of(copy.page) && s.told_initiator == s.seen && (s.up || grants());
    }

    const char* load_at_owner(State& s) const {
        const char* violation = nullptr;
        while (s.up && s.to_owner.count && !violation)
            violation = arrive_at_owner(s);
        return violation;
    }

    // Where the epoch comes late. The completion brings the owner's stores before.
    const char* verify(State& s, int thread) const {
        Copy& copy = s.copy[thread];
        const char* violation = load_at_owner(s);
        copy.loaded = s.up && s.word[word_of(thread)] == value_of(copy);
        copy.marked = s.to_initiator.count;
        copy.step = CHECK;
        return violation;
    }

    // The second thread waits until its bytes have come, and so those that were posted before.
    bool waits_for_bytes(int thread) const { return geometry == LOANS || thread == 1; }

    // Other bytes of grants need not have come yet.
    static bool is_on_its_way(const State& s, int thread) {
        for (const Store& store : s.to_owner.store)
            if (store.place == DATA && store.thread == thread)
                return true;
        return false;
    }

    const char* judge(State& s, int thread) const {
        const char* violation = waits_for_bytes(thread) ? load_at_owner(s) : nullptr;
        const Copy& copy = s.copy[thread];
        bool whole = s.told_initiator == s.seen || mutation == NO_EPOCH;
        if (waits_for_bytes(thread))
            whole = whole && s.up && s.word[word_of(thread)] == value_of(copy);
        s.copy[thread].step = grants() && whole ? TELL : END;
        if (geometry == LATE_GRANTS)
            return violation;
        if (whole && waits_for_bytes(thread) && s.posted_lost)
            return "a copy that is told to be whole hides posted bytes that were lost";
        if (whole && copy.arrived != copy.sequence && !is_on_its_way(s, thread))
            return "a copy whose data was lost is told to be whole";
        return violation;
    }

    const char* copier(State& s, int thread) const {
        Copy& copy = s.copy[thread];
        const char* violation = nullptr;
        switch (copy.step) {
        case VERIFY:
            violation = verify(s, thread);
            break;
        case CHECK:
            if (mutation == COPY_LOOKS_FIRST) {
                post(s, s.to_owner, WORD, thread, value_of(copy));
            } else {
                if (geometry == LOANS)
                    violation = load_at_owner(s);
                copy.permitted = is_permitted(s, copy) && copy.loaded;
            }
            copy.step = copy.permitted ? STORE : END;
            if (copy.permitted && mutation == ENDS_EARLY)
                post(s, s.to_owner, WORD, thread, 0);
            break;
        case STORE:
            post(s, s.to_owner, DATA, thread, copy.sequence * pages + copy.page);
            copy.step = JUDGE;
            break;
        case JUDGE:
            violation = judge(s, thread);
            break;
        case TELL:
            post(s, s.to_owner, SIGNAL, thread, copy.sequence);
            copy.step = END;
            break;
        case END:
            post(s, s.to_owner, WORD, thread, 0);
            copy.step = grants() ? AWAIT : IDLE;
            break;
        default:
            if (s.permit != epoch_of(copy.page) && mutation != NO_SECOND_LOOK)
                post(s, s.to_owner, BELL, thread, 0);
            copy.step = IDLE;
            break;
        }
        if (copy.step == IDLE)
            copy = {IDLE, 0, copy.sequence, 0, copy.arrived, 0, 0};
        return violation;
    }

    void begin(State& s, int thread, int page) const {
        Copy& copy = s.copy[thread];
        s.left[page]--;
        bool verifies = geometry == LATE_GRANTS && mutation != WORD_IS_TRUSTED;
        copy = {uint8_t(verifies ? VERIFY : CHECK),
                uint8_t(page),
                uint8_t(copy.sequence + 1),
                0,
                copy.arrived,
                !verifies,
                0};
        if (mutation == COPY_LOOKS_FIRST)
            copy.permitted = is_permitted(s, copy);
        else
            post(s, s.to_owner, WORD, thread, value_of(copy));
    }

    bool may_begin(const State& s, int thread, int page) const {
        if (s.copy[thread].step != IDLE || page > s.page || !s.left[page])
            return false;
        if (geometry == LOANS && mutation != TWO_AT_ONCE)
            for (const Copy& copy : s.copy)
                if (copy.step != IDLE)
                    return false;
        return true;
    }

    // ---- the owner ----

    bool is_quiet(const State& s, int word) const {
        if (geometry == LOANS)
            return word || s.word[word] != epoch_of(s.page);
        return !s.noted[word] || s.word[word] != s.noted[word];
    }

    void note(State& s) const {
        for (int i = 0; i < threads; i++)
            s.noted[i] = s.word[i];
        bool lost = s.told_owner != s.seen || (!s.pulled && mutation != PULL_IS_IGNORED);
        s.blind = grants() && lost && mutation != WORDS_ARE_TRUSTED;
    }

    void look(State& s) const {
        bool quiet = !s.blind;
        for (int i = 0; i < threads; i++)
            quiet = quiet && is_quiet(s, i);
        s.rung = 0;
        s.owner = quiet ? USE : SLEEP;
    }

    void withdraw(State& s) const {
        if (geometry == LOANS)
            s.permit = 0;
        else
            post(s, s.to_initiator, PERMIT_WORD, 0, epoch_of(s.page) | withdrawn);
    }

    void owner(State& s) const {
        switch (s.owner) {
        case WITHDRAW:
            if (mutation == OWNER_LOOKS_FIRST) {
                note(s);
                look(s);
                if (s.owner == SLEEP)
                    withdraw(s);
                else
                    s.owner = COMPLETE;
                break;
            }
            withdraw(s);
            s.owner = geometry == LOANS || mutation == NO_LOAD ? NOTE : LOAD;
            s.pulled = s.owner == NOTE;
            break;
        case LOAD:
            while (s.to_initiator.count && mutation != NO_PUSH)
                arrive_at_initiator(s);
            s.pulled = mutation == NO_PUSH || (s.up && s.permit == (epoch_of(s.page) | withdrawn));
            s.marked = mutation == RELAXED ? 0 : s.to_owner.count;
            s.owner = COMPLETE;
            break;
        case COMPLETE:
            if (mutation == OWNER_LOOKS_FIRST)
                withdraw(s);
            s.owner = mutation == OWNER_LOOKS_FIRST ? USE : NOTE;
            break;
        case NOTE:
            note(s);
            s.owner = LOOK;
            break;
        case LOOK:
            look(s);
            break;
        case SLEEP:
            s.owner = LOOK;
            break;
        case USE:
            s.used |= static_cast<uint8_t>(1 << s.page);
            s.owner = s.page + 1 < pages ? PERMIT : OWNER_DONE;
            break;
        default:
            s.page++;
            if (geometry == LOANS)
                s.permit = epoch_of(s.page);
            else
                post(s, s.to_initiator, PERMIT_WORD, 0, epoch_of(s.page));
            s.owner = WITHDRAW;
            break;
        }
    }

    // A client looks each tick, an owner of grants when it is told.
    bool owner_may_step(const State& s) const {
        if (s.owner == OWNER_DONE || (s.owner == COMPLETE && s.marked))
            return false;
        if (s.to_initiator.count == queue_max)
            return false;
        if (s.owner != SLEEP)
            return true;
        return grants() ? s.rung : is_quiet(s, 0);
    }

    // ---- sessions ----

    bool may_restart(const State& s) const {
        bool ended = true;
        for (const Copy& copy : s.copy)
            ended = ended && copy.step == IDLE;
        if (!ended && mutation != CLEANS_EARLY)
            return false;
        if (s.told_owner != s.epoch || s.told_initiator != s.epoch)
            return false;
        return s.epoch != s.seen && s.up && !s.to_owner.count && !s.to_initiator.count &&
               mutation != NO_RESTART;
    }

    // Grants end with the session. Loans stay lent, in its next one.
    void restart(State& s) const {
        s.seen = s.epoch;
        s.blind = s.rung = s.marked = s.posted_lost = 0;
        for (int i = 0; i < threads; i++)
            s.word[i] = s.noted[i] = 0;
        if (grants())
            s.permit = 0;
        if (s.owner < USE && (grants() || s.owner != WITHDRAW))
            s.owner = LOOK;
    }

    void go_down(State& s) const {
        s.up = 0;
        s.outages_left--;
        s.epoch++;
        if (geometry != LATE_GRANTS)
            s.told_owner = s.told_initiator = s.epoch;
        for (int i = 0; i < threads; i++)
            s.posted_lost |= is_on_its_way(s, i) && s.copy[i].step != JUDGE;
        s.to_owner = s.to_initiator = {};
        // A completion that stores were before is lost with them.
        s.pulled = s.pulled && !s.marked;
        s.marked = 0;
        for (Copy& copy : s.copy) {
            copy.loaded = copy.loaded && !copy.marked;
            copy.marked = 0;
        }
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        if (s.up ? s.outages_left : 1) {
            State next = s;
            next.up = 1;
            if (s.up)
                go_down(next);
            emit(next, nullptr, [&] { return std::string(s.up ? "link: down" : "link: up"); });
        }
        if (s.to_owner.count) {
            State next = s;
            const char* violation = arrive_at_owner(next);
            emit(next, violation, [] { return std::string("a store comes to the owner"); });
        }
        if (s.to_initiator.count) {
            State next = s;
            arrive_at_initiator(next);
            emit(next, nullptr, [] { return std::string("a store comes to the initiator"); });
        }
        if (s.told_owner != s.epoch) {
            State next = s;
            next.told_owner = s.epoch;
            emit(next, nullptr, [] { return std::string("the owner is told of the outage"); });
        }
        if (s.told_initiator != s.epoch) {
            State next = s;
            next.told_initiator = s.epoch;
            emit(next, nullptr, [] { return std::string("the initiator is told of the outage"); });
        }
        if (may_restart(s)) {
            State next = s;
            restart(next);
            emit(next, nullptr, [] { return std::string("the session restarts"); });
        }
        if (owner_may_step(s)) {
            State next = s;
            owner(next);
            emit(next, nullptr, [&] { return std::string("owner ") + owner_steps[s.owner]; });
        }
        if (s.to_owner.count == queue_max)
            return;
        for (int i = 0; i < threads; i++) {
            auto label = [&](const std::string& what) {
                return "copy " + std::to_string(i) + " " + what;
            };
            if (s.copy[i].marked)
                continue;
            if (s.copy[i].step != IDLE) {
                State next = s;
                const char* violation = copier(next, i);
                emit(next, violation, [&] { return label(copy_steps[s.copy[i].step]); });
                continue;
            }
            for (int page = 0; page < pages; page++) {
                if (!may_begin(s, i, page))
                    continue;
                State next = s;
                begin(next, i, page);
                emit(next, nullptr, [&] { return label("begins page " + std::to_string(page)); });
            }
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int late = argc > 1 ? std::atoi(argv[1]) : 1, outages = argc > 2 ? std::atoi(argv[2]) : 1;
    model::Report report;
    auto run = [&](const char* name, Geometry geometry, Mutation mutation) {
        Claims model{geometry, late, outages, mutation};
        auto out = model::Explorer<Claims>(model, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("grants beside copies, over a link that flaps", GRANTS, NONE);
    run("wrong: a copy looks at the permit before its word has left", GRANTS, COPY_LOOKS_FIRST);
    run("wrong: the owner looks before it withdraws its permit", GRANTS, OWNER_LOOKS_FIRST);
    run("wrong: the owner does not load", GRANTS, NO_LOAD);
    run("wrong: a completion overtakes stores", GRANTS, RELAXED);
    run("wrong: a load overtakes stores", GRANTS, NO_PUSH);
    run("wrong: a copy ends before its data has left", GRANTS, ENDS_EARLY);
    run("wrong: a copy's end does not look again", GRANTS, NO_SECOND_LOOK);
    run("wrong: the owner trusts words that might be lost", GRANTS, WORDS_ARE_TRUSTED);
    run("wrong: a copy's end does not ask for the link", GRANTS, NO_EPOCH);
    run("wrong: the owner trusts a signal after an outage", GRANTS, SIGNAL_IS_TRUSTED);
    run("wrong: the owner cleans before the copies have ended", GRANTS, CLEANS_EARLY);
    run("wrong: no restart after an outage", GRANTS, NO_RESTART);
    run("grants beside copies, where the epoch comes late", LATE_GRANTS, NONE);
    run("wrong: the value of the owner's load is ignored", LATE_GRANTS, PULL_IS_IGNORED);
    run("wrong: a copy does not load its word back", LATE_GRANTS, WORD_IS_TRUSTED);
    run("loans beside copies, over a link that flaps", LOANS, NONE);
    run("wrong: a copy looks at the loan before its word has left", LOANS, COPY_LOOKS_FIRST);
    run("wrong: the client looks before it takes the loan back", LOANS, OWNER_LOOKS_FIRST);
    run("wrong: a copy of a loan ends before its data has left", LOANS, ENDS_EARLY);
    run("wrong: a loan's copy does not ask for the link", LOANS, NO_EPOCH);
    run("wrong: the client cleans before the copies have ended", LOANS, CLEANS_EARLY);
    run("wrong: no restart of loans after an outage", LOANS, NO_RESTART);
    run("wrong: two copies of a loan at once", LOANS, TWO_AT_ONCE);
    run("wrong: a loan is used again with its epoch", LOANS, SAME_EPOCH);
    return report.finish();
}
