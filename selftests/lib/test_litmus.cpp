// SPDX-License-Identifier: GPL-2.0
/*
 * Litmus tests of the ordering rules (remote.h): a few steps by each thread, many times, and the
 * values that they may see. The names are those of the literature on memory models.
 *
 *   read(), write()              synchronous: complete when they return, so threads see one order
 *                                of all
 *   begin_read(), begin_write()  asynchronous: in any order, but overlapping ones, of which one is
 *                                a change, keep theirs
 *   release(), fence()           earlier operations have ended
 *
 * A forbidden outcome fails the test. A weak but allowed outcome is counted and printed: its
 * frequency depends on the network and the processor.
 */
#include <algorithm>
#include <array>
#include <barrier>
#include <cstdio>
#include <deque>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"

namespace remora::test {

namespace {

constexpr std::uint64_t forever = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t any = ~0ULL;
constexpr std::size_t words_max = 3;

// Words, zero at first.
constexpr unsigned x = 0, y = 1;

// ---- the language ----

struct Step {
    enum class Kind { read, write, release, fence };

    Kind kind;
    bool is_async = false;
    unsigned word = 0, words = 0;
    std::uint64_t value = 0;   // new value of all words
    std::size_t register_ = 0; // destination of the first word
};

Step read(unsigned word, std::size_t to) {
    return {Step::Kind::read, false, word, 1, 0, to};
}
Step write(unsigned word, std::uint64_t value) {
    return {Step::Kind::write, false, word, 1, value};
}
Step begin_read(unsigned word, std::size_t to, unsigned words = 1) {
    return {Step::Kind::read, true, word, words, 0, to};
}
Step begin_write(unsigned word, std::uint64_t value, unsigned words = 1) {
    return {Step::Kind::write, true, word, words, value};
}
Step release() {
    return {Step::Kind::release};
}
Step fence() {
    return {Step::Kind::fence};
}

// Values read into the registers, then the final values of the words.
using Outcome = std::vector<std::uint64_t>;

struct Case {
    const char* name;
    std::vector<std::vector<Step>> threads;
    // The first values of outcomes; any: whatever it is.
    std::vector<Outcome> forbidden;
    std::vector<Outcome> weak = {};
};

std::size_t registers_of(const Case& test) {
    std::size_t count = 0;
    for (const auto& steps : test.threads)
        count += static_cast<std::size_t>(std::count_if(
            steps.begin(), steps.end(), [](const Step& s) { return s.kind == Step::Kind::read; }));
    return count;
}

// Has it steps of several words, which have to be side by side?
bool is_wide(const Case& test) {
    return std::any_of(test.threads.begin(), test.threads.end(), [](const auto& steps) {
        return std::any_of(steps.begin(), steps.end(), [](const Step& s) { return s.words > 1; });
    });
}

bool matches(const Outcome& outcome, const std::vector<Outcome>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(), [&](const Outcome& pattern) {
        return std::equal(pattern.begin(), pattern.end(), outcome.begin(),
                          [](std::uint64_t wanted, std::uint64_t seen) {
                              return wanted == any || wanted == seen;
                          });
    });
}

std::string text(const Outcome& outcome, std::size_t registers) {
    std::string text;
    for (std::size_t i = 0; i < outcome.size(); i++)
        text += (i == registers ? "; in the end " : i ? " " : "") + std::to_string(outcome[i]);
    return text;
}

// ---- the rules ----

// Of words each is one place, whose changes all see in one order; none is made up.
std::vector<Case> coherence() {
    return {
        {"CoRR", {{write(x, 1)}, {read(x, 0), read(x, 1)}}, {{1, 0}}},
        // Reads may pass each other, since neither is a change.
        {"CoRR, async", {{write(x, 1)}, {begin_read(x, 0), begin_read(x, 1)}}, {}, {{1, 0}}},
        {"CoRR, async, release",
         {{write(x, 1)}, {begin_read(x, 0), release(), begin_read(x, 1)}},
         {{1, 0}}},
        {"CoWW",
         {{write(x, 1), write(x, 2)}, {read(x, 0), read(x, 1)}},
         {{2, 1}, {2, 0}, {1, 0}, {any, any, 0}, {any, any, 1}}},
        {"CoWW, async",
         {{begin_write(x, 1), begin_write(x, 2)}, {read(x, 0), read(x, 1)}},
         {{2, 1}, {2, 0}, {1, 0}, {any, any, 0}, {any, any, 1}}},
        {"CoRW", {{read(x, 0), write(x, 1)}, {write(x, 2)}}, {{1}, {2, 2}}},
        {"CoRW, async", {{begin_read(x, 0), begin_write(x, 1)}, {write(x, 2)}}, {{1}, {2, 2}}},
        {"CoWR", {{write(x, 1), read(x, 0)}, {write(x, 2)}}, {{0}, {2, 1}}},
        {"CoWR, async", {{begin_write(x, 1), begin_read(x, 0)}, {write(x, 2)}}, {{0}, {2, 1}}},
        // Their ranges overlap in part.
        {"RAW, async", {{begin_write(0, 1, 2), begin_read(1, 0, 2)}}, {{0}}},
        {"WAR, async", {{begin_read(1, 0, 2), begin_write(0, 1, 2)}}, {{1}}},
        {"WAW, async", {{begin_write(0, 1, 2), begin_write(1, 2, 2)}}, {{any, 0}, {any, 1}}},
        {"WAW, RAW, WAR, WAW, async",
         {{begin_write(0, 1, 2), begin_write(1, 2, 2), begin_read(1, 0, 2), begin_write(0, 3, 3),
           begin_write(2, 4)}},
         {{0}, {1}, {3}, {any, 1}, {any, any, 2}, {any, any, any, 2}, {any, any, any, 3}}},
    };
}

std::vector<Case> message_passing() {
    return {
        {"MP", {{write(x, 1), write(y, 1)}, {read(y, 0), read(x, 1)}}, {{1, 0}}},
        {"MP, async",
         {{begin_write(x, 1), begin_write(y, 1)}, {begin_read(y, 0), begin_read(x, 1)}},
         {},
         {{1, 0}}},
        {"MP, async writer",
         {{begin_write(x, 1), begin_write(y, 1)}, {read(y, 0), read(x, 1)}},
         {},
         {{1, 0}}},
        {"MP, async reader",
         {{write(x, 1), write(y, 1)}, {begin_read(y, 0), begin_read(x, 1)}},
         {},
         {{1, 0}}},
        {"MP, async writer, release",
         {{begin_write(x, 1), release(), begin_write(y, 1)}, {read(y, 0), read(x, 1)}},
         {{1, 0}}},
        {"MP, async, release",
         {{begin_write(x, 1), release(), begin_write(y, 1)},
          {begin_read(y, 0), release(), begin_read(x, 1)}},
         {{1, 0}}},
        {"MP, async, fence",
         {{begin_write(x, 1), fence(), begin_write(y, 1)},
          {begin_read(y, 0), fence(), begin_read(x, 1)}},
         {{1, 0}}},
        {"WRC", {{write(x, 1)}, {read(x, 0), write(y, 1)}, {read(y, 1), read(x, 2)}}, {{1, 1, 0}}},
        {"WRC, async, release",
         {{begin_write(x, 1)},
          {begin_read(x, 0), release(), begin_write(y, 1)},
          {begin_read(y, 1), release(), begin_read(x, 2)}},
         {{1, 1, 0}}},
    };
}

std::vector<Case> buffering() {
    return {
        {"SB", {{write(x, 1), read(y, 0)}, {write(y, 1), read(x, 1)}}, {{0, 0}}},
        {"SB, async",
         {{begin_write(x, 1), begin_read(y, 0)}, {begin_write(y, 1), begin_read(x, 1)}},
         {},
         {{0, 0}}},
        {"SB, async, release",
         {{begin_write(x, 1), release(), begin_read(y, 0)},
          {begin_write(y, 1), release(), begin_read(x, 1)}},
         {{0, 0}}},
        {"SB, async, fence",
         {{begin_write(x, 1), fence(), begin_read(y, 0)},
          {begin_write(y, 1), fence(), begin_read(x, 1)}},
         {{0, 0}}},
        {"LB", {{read(x, 0), write(y, 1)}, {read(y, 1), write(x, 1)}}, {{1, 1}}},
        {"LB, async",
         {{begin_read(x, 0), begin_write(y, 1)}, {begin_read(y, 1), begin_write(x, 1)}},
         {},
         {{1, 1}}},
        {"LB, async, release",
         {{begin_read(x, 0), release(), begin_write(y, 1)},
          {begin_read(y, 1), release(), begin_write(x, 1)}},
         {{1, 1}}},
        {"2+2W", {{write(x, 1), write(y, 2)}, {write(y, 1), write(x, 2)}}, {{1, 1}}},
        {"2+2W, async",
         {{begin_write(x, 1), begin_write(y, 2)}, {begin_write(y, 1), begin_write(x, 2)}},
         {},
         {{1, 1}}},
        {"2+2W, async, release",
         {{begin_write(x, 1), release(), begin_write(y, 2)},
          {begin_write(y, 1), release(), begin_write(x, 2)}},
         {{1, 1}}},
        {"IRIW",
         {{write(x, 1)}, {write(y, 1)}, {read(x, 0), read(y, 1)}, {read(y, 2), read(x, 3)}},
         {{1, 0, 1, 0}}},
        {"IRIW, async",
         {{begin_write(x, 1)},
          {begin_write(y, 1)},
          {begin_read(x, 0), begin_read(y, 1)},
          {begin_read(y, 2), begin_read(x, 3)}},
         {},
         {{1, 0, 1, 0}}},
        {"IRIW, async, release",
         {{begin_write(x, 1)},
          {begin_write(y, 1)},
          {begin_read(x, 0), release(), begin_read(y, 1)},
          {begin_read(y, 2), release(), begin_read(x, 3)}},
         {{1, 0, 1, 0}}},
    };
}

// ---- running them ----

// Where the words of a round are: side by side, or, every other time, each in a page of its own.
class Place {
public:
    static constexpr std::uint64_t page = 65536, bytes = words_max * page;

    Place(const Case& test, raddr_t region, std::size_t round)
        : at_(region + round * 32), stride_(round % 2 && !is_wide(test) ? page : 8) {}
    raddr_t of(unsigned word) const { return at_ + word * stride_; }

private:
    raddr_t at_;
    std::uint64_t stride_;
};

// One thread's steps. Asynchronous ones are polled when all have begun.
void run(remote_t* r, const std::vector<Step>& steps, const Place& place, Outcome& outcome) {
    struct Begun {
        std::array<std::uint64_t, words_max> data;
        AsyncOp op{0, 0};
    };
    std::vector<Begun> begun(steps.size());
    for (std::size_t i = 0; i < steps.size(); i++) {
        const Step& step = steps[i];
        auto& [data, op] = begun[i];
        data.fill(step.value);
        raddr_t at = place.of(step.word);
        std::size_t bytes = step.words * std::size_t{8};
        int error = 0;
        switch (step.kind) {
        case Step::Kind::read:
            error = step.is_async ? read_async(r, at, data.data(), bytes, &op)
                                  : rread(r, at, data.data(), bytes);
            break;
        case Step::Kind::write:
            error = step.is_async ? write_async(r, at, data.data(), bytes, &op)
                                  : rwrite(r, at, data.data(), bytes);
            break;
        case Step::Kind::release:
            error = rrelease(r);
            break;
        case Step::Kind::fence:
            error = rfence(r);
        }
        ASSERT_EQ(error, 0);
    }
    for (std::size_t i = 0; i < steps.size(); i++) {
        ASSERT_EQ(poll_all(r, &begun[i].op, 1, forever), 0);
        if (steps[i].kind == Step::Kind::read)
            outcome[steps[i].register_] = begun[i].data[0];
    }
}

class Litmus : public Backends {
protected:
    // All cases at once, since most of their time they wait for the network; each by several
    // handles, and by one. Embedded, another handle would be another node.
    void repeat(const std::vector<Case>& table) {
        std::vector<std::thread> cases;
        for (const Case& test : table) {
            cases.emplace_back([&] { repeat(test, 1); });
            if (is_shared() && test.threads.size() > 1)
                cases.emplace_back([&] { repeat(test, test.threads.size()); });
        }
        for (std::thread& each : cases)
            each.join();
    }

private:
    // A handle by way of a network of its own, if it's a bad one.
    struct Way {
        std::unique_ptr<Relay> relay;
        remote_t* handle = nullptr;

        explicit Way(remote_t* opened) : handle(opened) {}
        explicit Way(std::uint16_t port) : relay(std::make_unique<Relay>(port, 10)) {
            EXPECT_EQ(remote_open(&handle, udp_target(relay->port()).c_str(), nullptr), 0);
        }
        Way(const Way&) = delete;
        Way& operator=(const Way&) = delete;
        ~Way() { remote_close(handle); }
    };

    void repeat(const Case& test, std::size_t handles) {
        SCOPED_TRACE(std::string(test.name) + ", handles: " + std::to_string(handles));
        std::deque<Way> ways;
        while (is_shared() && ways.size() < handles) {
            if (GetParam() == Kind::bad_network)
                ways.emplace_back(node->port());
            else
                ways.emplace_back(open());
        }
        raddr_t region = alloc(Place::bytes);
        std::vector<Outcome> outcomes(rounds(), Outcome(registers_of(test) + words_max));
        std::barrier begin(static_cast<std::ptrdiff_t>(test.threads.size()));
        std::vector<std::thread> threads;
        for (std::size_t t = 0; t < test.threads.size(); t++) {
            threads.emplace_back([&, t, mine = is_shared() ? ways[t % handles].handle : r] {
                std::mt19937 random(static_cast<unsigned>(t));
                for (std::size_t round = 0; round < outcomes.size(); round++) {
                    begin.arrive_and_wait();
                    for (std::size_t i = random() % 4; i; i--)
                        std::this_thread::yield();
                    run(mine, test.threads[t], Place(test, region, round), outcomes[round]);
                }
            });
        }
        for (std::thread& thread : threads)
            thread.join();
        look(test, region, outcomes);
        judge(test, handles, outcomes);
        EXPECT_EQ(rfree(r, region), 0);
    }

    std::size_t rounds() const {
        switch (GetParam()) {
        case Kind::embedded:
            return 500;
        case Kind::udp:
        case Kind::shm:
            return 200;
        default:
            return 30;
        }
    }

    // Appends the final values of the words.
    void look(const Case& test, raddr_t region, std::vector<Outcome>& outcomes) {
        std::vector<std::uint64_t> words(Place::bytes / 8);
        ASSERT_EQ(rread(r, region, words.data(), Place::bytes), 0);
        for (std::size_t round = 0; round < outcomes.size(); round++) {
            Place place(test, region, round);
            for (unsigned word = 0; word < words_max; word++)
                outcomes[round][registers_of(test) + word] = words[(place.of(word) - region) / 8];
        }
    }

    static void judge(const Case& test, std::size_t handles, const std::vector<Outcome>& outcomes) {
        std::uint64_t most = 0; // largest value written
        for (const auto& steps : test.threads) {
            for (const Step& step : steps)
                most = std::max(most, step.value);
        }
        std::size_t weak = 0;
        for (const Outcome& outcome : outcomes) {
            EXPECT_FALSE(matches(outcome, test.forbidden))
                << "forbidden: " << text(outcome, registers_of(test));
            EXPECT_LE(*std::max_element(outcome.begin(), outcome.end()), most)
                << "made up: " << text(outcome, registers_of(test));
            weak += matches(outcome, test.weak);
        }
        if (!test.weak.empty())
            std::printf("[ litmus   ] %s, handles: %zu: weak, but allowed: %zu of %zu\n", test.name,
                        handles, weak, outcomes.size());
    }
};

INSTANTIATE_TEST_SUITE_P(Lib, Litmus, testing::ValuesIn(kinds()), kind_name);

TEST_P(Litmus, Coherence) {
    repeat(coherence());
}

TEST_P(Litmus, MessagePassing) {
    repeat(message_passing());
}

TEST_P(Litmus, Buffering) {
    repeat(buffering());
}

// A table whose patterns match nothing would forbid nothing.
TEST(LitmusTable, PatternsMatchTheirOutcomes) {
    EXPECT_TRUE(matches({1, 0, 7, 7}, {{0, 0}, {1, 0}}));
    EXPECT_TRUE(matches({5, 2, 1, 0}, {{any, any, 1}}));
    EXPECT_FALSE(matches({1, 1, 0, 0}, {{0, 0}, {1, 0}}));
    EXPECT_FALSE(matches({1, 1}, {}));
    for (const auto& table : {coherence(), message_passing(), buffering()}) {
        for (const Case& test : table) {
            EXPECT_NE(test.forbidden.empty(), test.weak.empty()) << test.name;
            for (const auto& patterns : {test.forbidden, test.weak}) {
                for (const Outcome& pattern : patterns)
                    EXPECT_LE(pattern.size(), registers_of(test) + words_max) << test.name;
            }
        }
    }
}

} // namespace

} // namespace remora::test
