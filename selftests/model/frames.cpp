// SPDX-License-Identifier: GPL-2.0
// A ring of frames by one-sided writes (kmod/core/marlin/frames.h). How its ends sleep is the
// model ring.cpp's business.
//
// Each end takes the steps of frames.h, one access a step. Its stores wait until they become
// visible to the other end: in any order, but for those to one place, and a release store only
// after all before it. A record is one or two lines. The second line is a frame's content, chosen
// by an attacker: it reads as the valid word of the record that would begin there in the next
// round.
#include "explore.hpp"

#include <cstdlib>

namespace {

constexpr int lines = 4;
constexpr int stores_max = 8;

enum Place : uint8_t {
    WORD,                // first of each line
    DATA = WORD + lines, // rest of each line
    TAIL = DATA + lines,
    PLACES,
};

enum Step : uint8_t {
    ROOM,
    WRITE_DATA,
    WRITE_REST,
    CLOSE,
    POST,
    FIND,
    READ_DATA,
    READ_REST,
    TELL,
    DONE
};

const char* const step_names[] = {
    "looks for room", "writes the first line", "writes the second line", "closes", "posts",
    "reads the word", "reads the record",      "reads its second line",  "tells",  "is done"};

enum Mutation {
    NONE,
    NEVER_CLOSES, // no 0 after the record
    CLOSES_LATE,  // after the record's word
    POSTS_EARLY,  // the word without release
    TELLS_EARLY,  // before the record is read
    FILLS,        // leaves no line free
};

// The word of a record.
uint8_t word_of(int position, int size) {
    return static_cast<uint8_t>(1 + position * 2 + size - 1);
}

struct Frames {
    struct Store {
        uint8_t place, value, release;
    };
    struct State {
        uint8_t memory[PLACES];
        uint8_t step, count, head, freed, size, stores; // writer
        Store store[stores_max];
        uint8_t reader, taken_records, taken, in_size; // reader, whose one store is visible at once
    };

    int records;
    Mutation mutation;

    State initial() const {
        State s{};
        s.step = ROOM;
        s.reader = FIND;
        return s;
    }

    const char* stuck(const State& s) const {
        if (s.step != DONE)
            return "the writer stands still";
        return s.taken_records == records ? nullptr : "a lost record: the reader stands still";
    }

    static void put(State& s, int place, int value, bool release) {
        s.store[s.stores++] = {uint8_t(place), uint8_t(value), release};
    }

    static bool may_become_visible(const State& s, int which) {
        if (s.store[which].release && which)
            return false;
        for (int i = 0; i < which; i++)
            if (s.store[i].place == s.store[which].place)
                return false;
        return true;
    }

    static void make_visible(State& s, int which) {
        s.memory[s.store[which].place] = s.store[which].value;
        for (int i = which; i + 1 < s.stores; i++)
            s.store[i] = s.store[i + 1];
        s.store[--s.stores] = {};
    }

    bool has_room(const State& s, int size) const {
        int spare = mutation == FILLS ? 0 : 1;
        return size + spare <= lines - (s.head - s.memory[TAIL]);
    }

    bool writer_may_step(const State& s) const {
        if (s.step == DONE || s.stores == stores_max)
            return false;
        return s.step != ROOM || s.count == records || has_room(s, 1);
    }

    void write(State& s, int size) const {
        int next = (s.head + s.size) % lines;
        switch (s.step) {
        case ROOM:
            s.freed = s.memory[TAIL];
            s.size = static_cast<uint8_t>(size);
            s.step = s.count == records ? DONE : WRITE_DATA;
            break;
        case WRITE_DATA:
            put(s, DATA + s.head % lines, s.count + 1, false);
            s.step = s.size == 2 ? WRITE_REST : CLOSE;
            break;
        case WRITE_REST:
            put(s, WORD + (s.head + 1) % lines, word_of(s.head + 1 + lines, 1), false);
            s.step = CLOSE;
            break;
        case CLOSE:
            if (mutation == CLOSES_LATE)
                put(s, WORD + s.head % lines, word_of(s.head, s.size), true);
            else if (mutation != NEVER_CLOSES)
                put(s, WORD + next, 0, false);
            s.step = POST;
            break;
        case POST:
            if (mutation == CLOSES_LATE)
                put(s, WORD + next, 0, false);
            else
                put(s, WORD + s.head % lines, word_of(s.head, s.size), mutation != POSTS_EARLY);
            s.head += s.size;
            s.count++;
            s.size = 0;
            s.step = ROOM;
            break;
        default:
            break;
        }
    }

    const char* read(State& s) const {
        switch (s.reader) {
        case FIND: {
            uint8_t word = s.memory[WORD + s.taken % lines];
            s.in_size = (word - 1) % 2 + 1;
            if ((word - 1) / 2 != s.taken)
                return "a record is not the one that is due";
            bool posting = mutation == CLOSES_LATE && s.step == POST;
            if (s.taken_records >= s.count + posting)
                return "old bytes are taken for a record";
            s.reader = mutation == TELLS_EARLY ? TELL : READ_DATA;
            break;
        }
        case READ_DATA:
            if (s.memory[DATA + s.taken % lines] != s.taken_records + 1)
                return "a record is torn, or another's";
            if (s.in_size == 2) {
                s.reader = READ_REST;
                break;
            }
            taken(s);
            break;
        case READ_REST:
            if (s.memory[WORD + (s.taken + 1) % lines] != word_of(s.taken + 1 + lines, 1))
                return "a record is torn, or another's";
            taken(s);
            break;
        case TELL:
            s.memory[TAIL] = s.taken + (mutation == TELLS_EARLY ? s.in_size : 0);
            s.reader = mutation == TELLS_EARLY ? READ_DATA : FIND;
            break;
        default:
            break;
        }
        return nullptr;
    }

    void taken(State& s) const {
        s.taken += s.in_size;
        s.taken_records++;
        s.in_size = 0;
        s.reader = mutation == TELLS_EARLY ? FIND : TELL;
    }

    template <class Emit>
    void successors(const State& s, Emit&& emit) const {
        for (int i = 0; i < s.stores; i++) {
            if (!may_become_visible(s, i))
                continue;
            State next = s;
            make_visible(next, i);
            emit(next, nullptr, [&] {
                return "writer's store to place " + std::to_string(s.store[i].place) +
                       " becomes visible";
            });
        }
        if (writer_may_step(s)) {
            int sizes = s.step == ROOM && s.count < records && has_room(s, 2) ? 2 : 1;
            for (int size = 1; size <= sizes; size++) {
                State next = s;
                write(next, size);
                emit(next, nullptr, [&] {
                    return std::string("writer ") + step_names[s.step] + ", " +
                           std::to_string(s.count) + " posted";
                });
            }
        }
        if (s.reader != FIND || s.memory[WORD + s.taken % lines]) {
            State next = s;
            const char* violation = read(next);
            emit(next, violation, [&] {
                return std::string("reader ") + step_names[s.reader] + ", " +
                       std::to_string(s.taken_records) + " taken";
            });
        }
    }
};

} // namespace

int main(int argc, char** argv) {
    int records = argc > 1 ? std::atoi(argv[1]) : 6;
    model::Report report;
    auto run = [&](const char* name, Mutation mutation) {
        auto out = model::Explorer<Frames>(Frames{records, mutation}, 20'000'000).run();
        report.check(name, out, mutation != NONE);
    };
    run("records of one line and of two", NONE);
    run("wrong: never closes a record", NEVER_CLOSES);
    run("wrong: closes a record after its word", CLOSES_LATE);
    run("wrong: posts the word before the record", POSTS_EARLY);
    run("wrong: tells before the record is read", TELLS_EARLY);
    run("wrong: leaves no line free", FILLS);
    return report.finish();
}
