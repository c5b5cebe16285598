// SPDX-License-Identifier: GPL-2.0
// A ring by one-sided writes (kmod/core/ring/ring.h), and the sleep of both of its ends.
//
// Each end takes the steps of ring.h, one access a step. Its stores wait until they become visible
// to the other end: in any order, but for those to one place, and a release store only after all
// before it. A full barrier waits until all are visible. An end finds its own stores at once. A
// record is two words, so that a torn one is noticed.
//
// A state in which nobody can move and an end sleeps is a lost wake-up.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int entries = 2;
constexpr int stores_max = 8;

// Memory that both ends have. A flag: the end sleeps.
enum Place : uint8_t {
    WORD,                    // of each entry
    RECORD = WORD + entries, // its first half,
    REST = RECORD + entries, // and the second one
    POINTER = REST + entries,
    CREDIT,
    READER_FLAG,
    WRITER_FLAG,
    PLACES,
};

enum Step : uint8_t {
    ROOM, // writer: may it post?
    WRITE_RECORD,
    WRITE_REST,
    POST,
    SIGNAL,
    TRACK, // reader: how many came?
    FIND,
    READ_RECORD,
    READ_REST,
    TAKE,
    TELL,
    LOOK_FLAG, // both: must the other one be woken?
    RESET_FLAG,
    WAKE,
    DOZE,
    LOOK_AGAIN,
    SLEEP, // if the flag is still set
    ASLEEP,
    RISE,
    DONE,
};

const char* const step_names[] = {
    "looks for room", "writes the record", "writes its rest",  "posts",           "signals",
    "tracks",         "reads the word",    "reads the record", "reads its rest",  "clears the word",
    "tells",          "reads the flag",    "resets the flag",  "wakes the other", "sets its flag",
    "looks again",    "goes to sleep",     "wakes up",         "resets its flag", "is done"};

enum Mutation {
    NONE,
    POSTS_EARLY,      // the word without release
    FINDS_LATE,       // the reader reads the record before the word
    SIGNAL_FIRST,     // the reader takes what was signalled for what is there
    TELLS_EARLY,      // credit without release
    NEVER_CLEARS,     // and the reader believes any word that isn't 0
    NO_SECOND_LOOK,   // sleeps without looking again
    NO_BARRIER,       // between the writes and the flag
    KEEPS_FLAG,       // a waker leaves the flag as it is
    TELLS_IN_SILENCE, // credit wakes nobody
    COUNTS_ONE,       // a signal is taken for one entry
    TRUSTS_LAG,       // a pointer that lags behind is taken for news
};

// How the reader learns of an entry.
enum Notice {
    SIGNAL_BEHIND, // by the pointer, visible after the entries
    SIGNAL_BEFORE, // by the pointer, perhaps before the entries
    WORD_ITSELF,
    EITHER, // by the word or by the pointer, which lags behind then
};

struct Ring {
    struct Store {
        uint8_t place, value, release;
    };
    struct End {
        uint8_t step;
        uint8_t after; // of waking
        uint8_t count; // posted, taken
        uint8_t other; // freed, signalled
        uint8_t told;  // by signal, by credit
        uint8_t found, rest;
        uint8_t woken;
        uint8_t stores;
        Store store[stores_max];
    };
    struct State {
        uint8_t memory[PLACES];
        End writer, reader;
    };

    int records;
    Notice notice;
    Mutation mutation;

    State initial() const {
        State s{};
        s.writer.step = ROOM;
        s.reader.step = TRACK;
        return s;
    }

    const char* stuck(const State& s) const {
        if (s.writer.step != DONE)
            return s.writer.step == ASLEEP ? "lost wake-up: the writer sleeps for ever"
                                           : "the writer stands still";
        if (s.reader.count == records)
            return nullptr;
        return s.reader.step == ASLEEP ? "lost wake-up: the reader sleeps for ever"
                                       : "a lost entry: the reader stands still";
    }

    static uint8_t load(const State& s, const End& end, uint8_t place) {
        for (int i = end.stores - 1; i >= 0; i--)
            if (end.store[i].place == place)
                return end.store[i].value;
        return s.memory[place];
    }

    static void put(End& end, int place, int value, bool release) {
        end.store[end.stores++] = {uint8_t(place), uint8_t(value), release};
    }

    static bool may_become_visible(const End& end, int which) {
        if (end.store[which].release && which)
            return false;
        for (int i = 0; i < which; i++)
            if (end.store[i].place == end.store[which].place)
                return false;
        return true;
    }

    static void make_visible(State& s, End& end, int which) {
        s.memory[end.store[which].place] = end.store[which].value;
        for (int i = which; i + 1 < end.stores; i++)
            end.store[i] = end.store[i + 1];
        end.store[--end.stores] = {};
    }

    // ---- both ends ----

    static void go(End& end, Step step) { end.step = step; }

    void then_wake(End& end, Step after) const {
        end.step = LOOK_FLAG;
        end.after = after;
    }

    bool waits_for_visibility(const End& end) const {
        bool barrier = end.step == LOOK_FLAG || end.step == LOOK_AGAIN;
        if (end.stores == stores_max)
            return true;
        return end.stores && ((barrier && mutation != NO_BARRIER) || end.step == WAKE);
    }

    void sleep_step(State& s, End& end, End& other, int own_flag, int others_flag, bool has_news,
                    Step again) const {
        switch (end.step) {
        case LOOK_FLAG:
            go(end, load(s, end, others_flag) ? RESET_FLAG : Step(end.after));
            break;
        case RESET_FLAG:
            go(end, WAKE);
            if (mutation != KEEPS_FLAG)
                put(end, others_flag, 0, false);
            break;
        case WAKE: // no effect on an end that isn't asleep
            if (other.step == ASLEEP)
                other.woken = 1;
            go(end, Step(end.after));
            break;
        case DOZE:
            go(end, mutation == NO_SECOND_LOOK ? SLEEP : LOOK_AGAIN);
            put(end, own_flag, 1, false);
            break;
        case LOOK_AGAIN:
            go(end, has_news ? RISE : SLEEP);
            break;
        case SLEEP:
            go(end, load(s, end, own_flag) ? ASLEEP : RISE);
            break;
        case ASLEEP:
            end.woken = 0;
            go(end, RISE);
            break;
        case RISE:
            go(end, again);
            put(end, own_flag, 0, false);
            break;
        default:
            break;
        }
    }

    // ---- writer ----

    // may_batch: it posts more before it signals.
    void write(State& s, bool may_batch) const {
        End& w = s.writer;
        int at = w.count % entries;
        switch (w.step) {
        case ROOM:
            if (w.count - w.other == entries)
                w.other = load(s, w, CREDIT);
            if (w.count == records)
                go(w, DONE);
            else
                go(w, w.count - w.other < entries ? WRITE_RECORD : DOZE);
            break;
        case WRITE_RECORD:
            go(w, WRITE_REST);
            put(w, RECORD + at, w.count + 1, false);
            break;
        case WRITE_REST:
            go(w, POST);
            put(w, REST + at, w.count + 1, false);
            break;
        case POST:
            put(w, WORD + at, w.count + 1, mutation != POSTS_EARLY);
            w.count++;
            if (may_batch && w.count < records && w.count - w.other < entries)
                go(w, WRITE_RECORD);
            else if (notice == WORD_ITSELF)
                then_wake(w, ROOM);
            else
                go(w, SIGNAL);
            break;
        case SIGNAL:
            then_wake(w, ROOM);
            put(w, POINTER, w.count, notice != SIGNAL_BEFORE);
            break;
        default:
            sleep_step(s, w, s.reader, WRITER_FLAG, READER_FLAG, load(s, w, CREDIT) != w.other,
                       ROOM);
        }
    }

    // ---- reader ----

    // Of a reader that watches no pointer, but the word itself.
    Step track_word(const State& s) const {
        const End& r = s.reader;
        if (!load(s, r, WORD + r.count % entries))
            return DOZE;
        return mutation == FINDS_LATE ? READ_RECORD : FIND;
    }

    // Does a pointer tell of entries that weren't taken?
    bool tells_more(uint8_t signalled, const End& r) const {
        return notice == EITHER && mutation != TRUSTS_LAG ? int8_t(signalled - r.count) > 0
                                                          : signalled != r.count;
    }

    // by_word: it looks at the next entry rather than at the pointer, where it has the choice.
    const char* read(State& s, bool by_word) const {
        End& r = s.reader;
        int at = r.count % entries;
        uint8_t due = r.count + 1;
        switch (r.step) {
        case TRACK: {
            if (by_word) {
                go(r, track_word(s));
                break;
            }
            uint8_t signalled = load(s, r, POINTER);
            if (notice == EITHER ? int8_t(signalled - r.count) > entries
                                 : uint8_t(signalled - r.count) > entries)
                return "a signal beyond the ring";
            if (mutation == COUNTS_ONE && signalled != r.told) {
                r.told = signalled;
                r.other++;
            } else if (mutation != COUNTS_ONE) {
                r.other = signalled;
            }
            Step first = mutation == FINDS_LATE ? READ_RECORD : FIND;
            go(r, tells_more(r.other, r) ? first : DOZE);
            break;
        }
        case FIND: {
            uint8_t word = load(s, r, WORD + at);
            if (mutation == SIGNAL_FIRST)
                word = due;
            if (!word)
                return "what was signalled is not there";
            if (mutation == NEVER_CLEARS)
                word = due;
            if (word != due)
                return "an entry is not the one that is due";
            go(r, mutation == FINDS_LATE ? TAKE : READ_RECORD);
            break;
        }
        case READ_RECORD:
            r.found = load(s, r, RECORD + at);
            go(r, READ_REST);
            break;
        case READ_REST:
            r.rest = load(s, r, REST + at);
            go(r, mutation == FINDS_LATE ? FIND : TAKE);
            break;
        case TAKE:
            if (r.found != due || r.rest != due)
                return "a record is torn, or another's";
            r.count++;
            go(r, TELL);
            if (mutation != NEVER_CLEARS)
                put(r, WORD + at, 0, false);
            break;
        case TELL: {
            r.found = r.rest = 0;
            bool more = notice != WORD_ITSELF && tells_more(r.other, r);
            Step after = !more ? TRACK : mutation == FINDS_LATE ? READ_RECORD : FIND;
            if (mutation == TELLS_IN_SILENCE)
                go(r, after);
            else
                then_wake(r, after);
            put(r, CREDIT, r.count, mutation != TELLS_EARLY);
            break;
        }
        default: {
            uint8_t seen = mutation == COUNTS_ONE ? r.told : r.other;
            uint8_t signalled = load(s, r, POINTER);
            bool changed = notice == EITHER ? tells_more(signalled, r) : signalled != seen;
            bool news = by_word ? load(s, r, WORD + at) : changed;
            sleep_step(s, r, s.writer, READER_FLAG, WRITER_FLAG, news, TRACK);
        }
        }
        return nullptr;
    }

    static bool may_step(const End& end) {
        return end.step != DONE && (end.step != ASLEEP || end.woken);
    }
    // Overtaken by its signal, an entry isn't there yet: the reader looks again, which changes
    // nothing.
    bool looks_in_vain(const State& s) const {
        return notice == SIGNAL_BEFORE && s.reader.step == FIND && mutation != SIGNAL_FIRST &&
               !load(s, s.reader, WORD + s.reader.count % entries);
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        auto visible = [&](bool writers) {
            const End& end = writers ? s.writer : s.reader;
            for (int i = 0; i < end.stores; i++) {
                if (!may_become_visible(end, i))
                    continue;
                State next = s;
                make_visible(next, writers ? next.writer : next.reader, i);
                emit(next, nullptr, [&] {
                    return std::string(writers ? "writer" : "reader") + "'s store to place " +
                           std::to_string(end.store[i].place) + " becomes visible";
                });
            }
        };
        visible(true);
        visible(false);
        if (may_step(s.writer) && !waits_for_visibility(s.writer)) {
            for (bool batch : {false, true}) {
                if (batch && s.writer.step != POST)
                    break;
                State next = s;
                write(next, batch);
                emit(next, nullptr, [&] {
                    return std::string("writer ") + step_names[s.writer.step] + ", " +
                           std::to_string(s.writer.count) + " posted";
                });
            }
        }
        if (may_step(s.reader) && !waits_for_visibility(s.reader) && !looks_in_vain(s)) {
            bool looks = s.reader.step == TRACK || s.reader.step == LOOK_AGAIN;
            for (bool by_word : {false, true}) {
                if (looks ? notice != EITHER && by_word != (notice == WORD_ITSELF) : by_word)
                    continue;
                State next = s;
                const char* violation = read(next, by_word);
                emit(next, violation, [&] {
                    return std::string("reader ") + step_names[s.reader.step] + ", " +
                           std::to_string(s.reader.count) + " taken";
                });
            }
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int records = argc > 1 ? std::atoi(argv[1]) : 4;
    model::Report report;
    auto run = [&](const char* name, Notice notice, Mutation mutation) {
        Ring ring{records, notice, mutation};
        auto out = model::Explorer<Ring>(ring, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("signals behind their entries", SIGNAL_BEHIND, NONE);
    run("signals that overtake their entries", SIGNAL_BEFORE, NONE);
    run("a reader that watches the next word", WORD_ITSELF, NONE);
    run("a reader that watches the next word or the pointer", EITHER, NONE);
    run("wrong: posts the word before the record", WORD_ITSELF, POSTS_EARLY);
    run("wrong: posts the word before the record, and signals", SIGNAL_BEFORE, POSTS_EARLY);
    run("wrong: reads the record before the word", SIGNAL_BEFORE, FINDS_LATE);
    run("wrong: takes what was signalled for what is there", SIGNAL_BEFORE, SIGNAL_FIRST);
    run("wrong: tells before the word is cleared", SIGNAL_BEHIND, TELLS_EARLY);
    run("wrong: never clears a word", WORD_ITSELF, NEVER_CLEARS);
    run("wrong: sleeps without looking again", SIGNAL_BEHIND, NO_SECOND_LOOK);
    run("wrong: no barrier before the flag is read", SIGNAL_BEHIND, NO_BARRIER);
    run("wrong: no barrier, and watches the next word", WORD_ITSELF, NO_BARRIER);
    run("wrong: wakes without resetting the flag", SIGNAL_BEHIND, KEEPS_FLAG);
    run("wrong: credit wakes nobody", SIGNAL_BEHIND, TELLS_IN_SILENCE);
    run("wrong: a signal counts as one entry", SIGNAL_BEHIND, COUNTS_ONE);
    run("wrong: a pointer that lags behind counts as news", EITHER, TRUSTS_LAG);
    run("wrong: no second look at the word or the pointer", EITHER, NO_SECOND_LOOK);
    run("wrong: no barrier, and watches either", EITHER, NO_BARRIER);
    return report.finish();
}
