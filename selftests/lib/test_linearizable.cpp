// SPDX-License-Identifier: GPL-2.0
// What threads see of a register that all of them change: history.hpp says if it could be.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "async.hpp"
#include "backend.hpp"
#include "history.hpp"

namespace remora::test {

namespace {

// ---- the checker itself ----

TEST(History, LinearizableHistoriesPass) {
    EXPECT_TRUE(is_linearizable(std::vector<Event>{}, 0));
    // A read that overlaps a write finds either.
    for (std::uint64_t found : {0, 1}) {
        EXPECT_TRUE(
            is_linearizable({{Event::write, 1, 0, 0, 0, 10}, {Event::read, 0, 0, found, 5, 6}}, 0));
    }
    // Two additions at once, seen by each other in one order or the other.
    EXPECT_TRUE(is_linearizable({{Event::add, 1, 0, 2, 0, 10}, {Event::add, 2, 0, 0, 0, 10}}, 0));
    // One that was given up may have happened late, or never.
    Event given_up{Event::write, 7, 0, 0, 0, 0, false};
    EXPECT_TRUE(is_linearizable(
        {given_up, {Event::read, 0, 0, 0, 100, 101}, {Event::read, 0, 0, 7, 200, 201}}, 0));
    EXPECT_TRUE(is_linearizable({given_up, {Event::read, 0, 0, 0, 100, 101}}, 0));
}

TEST(History, OtherHistoriesFail) {
    // After a write ended, a read finds what was before.
    EXPECT_FALSE(is_linearizable({{Event::write, 1, 0, 0, 0, 1}, {Event::read, 0, 0, 0, 2, 3}}, 0));
    // New, then old.
    EXPECT_FALSE(is_linearizable({{Event::write, 1, 0, 0, 0, 10},
                                  {Event::read, 0, 0, 1, 2, 3},
                                  {Event::read, 0, 0, 0, 4, 5}},
                                 0));
    // Two additions that find the same; one that was done twice.
    EXPECT_FALSE(is_linearizable({{Event::add, 1, 0, 0, 0, 10}, {Event::add, 1, 0, 0, 0, 10}}, 0));
    EXPECT_FALSE(is_linearizable({{Event::add, 1, 0, 0, 0, 1}, {Event::read, 0, 0, 2, 2, 3}}, 0));
    // Before it began.
    EXPECT_FALSE(
        is_linearizable({{Event::write, 7, 0, 0, 50, 0, false}, {Event::read, 0, 0, 7, 0, 10}}, 0));
    // Both exchanged the same.
    EXPECT_FALSE(is_linearizable({{Event::cas, 1, 0, 0, 0, 10}, {Event::cas, 2, 0, 0, 0, 10}}, 0));
}

// Each case holds only because the handle started something later.
TEST(History, CancelledChangeMayNotFollowALaterOne) {
    Event given_up{Event::write, 7, 0, 0, 0, 10, false, 1};
    Event later{Event::read, 0, 0, 0, 20, 30, true, 1};
    Event old{Event::read, 0, 0, 0, 31, 32}, late{Event::read, 0, 0, 7, 40, 41};
    // The cancelled write takes effect after a later success.
    EXPECT_FALSE(is_linearizable({given_up, later, old, late}, 0));
    given_up.handle = -1;
    EXPECT_TRUE(is_linearizable({given_up, later, old, late}, 0));
    given_up.handle = 1;
    EXPECT_TRUE(is_linearizable({given_up, later, old}, 0));
    // The cancelled write takes effect after a later write of its handle, which is still in flight.
    Event written{Event::write, 8, 0, 0, 20, 30, true, 1};
    Event first{Event::read, 0, 0, 8, 22, 23}, then{Event::read, 0, 0, 7, 24, 25};
    EXPECT_FALSE(is_linearizable({given_up, written, first, then}, 0));
    std::swap(first.found, then.found);
    EXPECT_TRUE(is_linearizable({given_up, written, first, then}, 0));
    // The cancelled write takes effect twice.
    Event other{Event::write, 9, 0, 0, 12, 13};
    Event before{Event::read, 0, 0, 7, 11, 11}, again{Event::read, 0, 0, 7, 14, 15};
    EXPECT_FALSE(is_linearizable({given_up, before, other, again}, 0));
    EXPECT_TRUE(is_linearizable({given_up, before, other}, 0));
    // So does a sum.
    Event sum{Event::add, 5, 0, 0, 0, 10, false, 1};
    for (std::uint64_t found : {0, 5, 10})
        EXPECT_EQ(is_linearizable({sum, {Event::read, 0, 0, found, 11, 12}}, 0), found < 10);
}

TEST(History, WordsAreReadAndWrittenAsOne) {
    WordsEvent write{true, 0, 2, {1, 1}, 0, 10}, other{true, 1, 2, {0, 2, 2}, 0, 10};
    auto found = [](const Words& words, std::int64_t begin) {
        return WordsEvent{false, 0, 3, words, begin, begin + 1};
    };
    EXPECT_TRUE(is_linearizable({write, other, found({1, 2, 2}, 20)}, {}));
    EXPECT_TRUE(is_linearizable({write, other, found({1, 1, 2}, 20)}, {}));
    EXPECT_TRUE(is_linearizable({write, other, found({0, 2, 2}, 4), found({1, 1, 2}, 6)}, {}));
    EXPECT_FALSE(is_linearizable({write, found({1, 0, 0}, 5)}, {})) << "torn";
    EXPECT_FALSE(is_linearizable({write, other, found({1, 1, 0}, 4), found({1, 1, 2}, 6)}, {}));
    write.known = false;
    EXPECT_TRUE(is_linearizable({write, other, found({0, 2, 2}, 20)}, {}));
    EXPECT_FALSE(is_linearizable({write, other, found({1, 0, 2}, 20)}, {}));
}

// Moments are made up, and around them when each began and ended. Then one read finds what had been
// written over when it began.
TEST(History, OneStaleReadAmongManyIsFound) {
    for (unsigned seed = 0; seed < 20; seed++) {
        std::mt19937 random(seed);
        std::vector<Event> events;
        std::vector<std::int64_t> free_from(6, 0); // of each thread
        std::uint64_t value = 0;
        for (std::int64_t moment = 100; events.size() < 50; moment += 10) {
            std::size_t thread = random() % free_from.size();
            if (free_from[thread] >= moment)
                continue;
            Event event{random() % 3 ? Event::read : Event::write};
            event.handle = static_cast<int>(thread);
            event.begin = std::max<std::int64_t>(free_from[thread] + 1, moment - random() % 50);
            event.end = moment + random() % 50;
            free_from[thread] = event.end;
            event.value = static_cast<std::uint64_t>(moment);
            event.found = value;
            event.known = event.kind == Event::read || random() % 4;
            if (event.kind == Event::write && (event.known || random() % 2))
                value = event.value;
            events.push_back(event);
        }
        ASSERT_TRUE(is_linearizable(events, 0)) << "seed " << seed;
        // One that was written, what was written over it, and a read, one after the other.
        auto is_before = [](const Event& a, const Event& b) { return a.known && a.end < b.begin; };
        std::size_t stale = 0;
        for (const Event& old : events) {
            for (const Event& next : events) {
                std::size_t at = random() % events.size();
                if (stale == 10 || old.kind != Event::write || next.kind != Event::write ||
                    events[at].kind != Event::read || !is_before(old, next) ||
                    !is_before(next, events[at]))
                    continue;
                std::vector<Event> wrong = events;
                wrong[at].found = old.value;
                stale++;
                ASSERT_FALSE(is_linearizable(wrong, 0)) << "seed " << seed << ", read " << at;
            }
        }
        EXPECT_GT(stale, 0U);
    }
}

// ---- integers, and words ----

bool is_change(const Event& event) {
    return event.kind != Event::read;
}

bool is_change(const WordsEvent& event) {
    return event.is_write;
}

// By the thread, of the integer: what it expects there.
thread_local std::uint64_t last_seen = 0;

class Linearizable : public Backends {
protected:
    static constexpr unsigned threads = 8, each = 12;
    // Each change that was given up doubles what the search may have to try. On a busy machine it
    // would be nearly all of them.
    static constexpr int unknown_max = 12;

    ~Linearizable() override { close_all(); }
    // As many as there may be; or they share r.
    void open_for_each() {
        close_all();
        for (unsigned t = 0; t < threads; t++)
            handles_.push_back(is_shared() ? open() : r);
    }
    // Two threads have one, and there are four of them.
    void open_for_pairs() {
        for (int pair = 0; pair < 2; pair++)
            handles_.insert(handles_.end(), 2, is_shared() ? open() : r);
    }
    // Of the rounds a third with one handle, a third with one for two threads, and then one each.
    void open_by_round(int round) {
        if (round == rounds() / 3)
            open_for_pairs();
        if (round == 2 * rounds() / 3)
            open_for_each();
    }
    int rounds() const { return is_slow() ? 8 : 30; }
    // Each thread does so many, made by make(), and run() does one of them. hasty_us: it has no
    // more time for some of them than that, at most, but for the last one.
    template <typename E, typename Make, typename Do>
    std::vector<E> race(int round, std::uint64_t hasty_us, Make make, Do run);
    std::vector<Event> race_for_integer(int round, std::uint64_t hasty_us, raddr_t at);
    std::vector<WordsEvent> race_for_words(int round, std::uint64_t hasty_us, raddr_t at);
    void expect_each_word(int round, std::uint64_t hasty_us, raddr_t at);
    // So that some are given up, and some not.
    std::uint64_t hasty_us() const {
        if (!is_shared())
            return 0;
        return is_slow() ? 3000 : 300;
    }
    // Each thread's handle had something of it, and so had each way. Either way alone it would be
    // too few datagrams of a handle's for that to be certain.
    void expect_trouble() {
        auto expect = [](const Relay::Trouble& one, const Relay::Trouble& other) {
            EXPECT_GT(one.lost + other.lost, 0U);
            EXPECT_GT(one.doubled + other.doubled, 0U);
            EXPECT_GT(one.delayed + other.delayed, 0U);
        };
        std::vector<Relay::Troubles> flows = relay->troubles();
        ASSERT_EQ(flows.size(), 1 + handles_.size()); // r came first
        Relay::Trouble to_node, to_client;
        for (std::size_t i = 1; i < flows.size(); i++) {
            SCOPED_TRACE("handle " + std::to_string(i));
            expect(flows[i].to_node, flows[i].to_client);
            to_node += flows[i].to_node;
            to_client += flows[i].to_client;
        }
        expect(to_node, {});
        expect(to_client, {});
    }

    std::atomic<int> given_up{0};

private:
    void close_all() {
        for (std::size_t i = 0; i < handles_.size(); i++) {
            if (handles_[i] != r && (!i || handles_[i] != handles_[i - 1]))
                remote_close(handles_[i]);
        }
        handles_.clear();
    }
    // Of a thread, by number.
    int handle_of(std::size_t thread) const {
        if (handles_.empty())
            return 0;
        auto first = std::find(handles_.begin(), handles_.end(), handles_[thread]);
        return static_cast<int>(first - handles_.begin());
    }

    std::vector<remote_t*> handles_; // by thread; none: they share r
};

INSTANTIATE_TEST_SUITE_P(Lib, Linearizable, testing::ValuesIn(kinds()), kind_name);

template <typename E, typename Make, typename Do>
std::vector<E> Linearizable::race(int round, std::uint64_t hasty_us, Make make, Do run) {
    std::size_t count = handles_.empty() ? threads : handles_.size();
    std::vector<std::vector<E>> seen(count);
    std::atomic<int> unknown{0}; // changes of this round that were given up
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < count; t++) {
        running.emplace_back([&, t] {
            std::uint64_t turn = static_cast<unsigned>(round) * count + t;
            std::mt19937_64 random(turn);
            remote_t* mine = handles_.empty() ? r : handles_[t];
            for (unsigned i = 0; i < each; i++) {
                // No two write the same, so that what was found says whose it was.
                std::uint64_t number = turn * each + i + 1;
                bool is_last = i + 1 == each;
                E event = make(random, number, is_last);
                event.handle = handle_of(t);
                bool is_hasty = hasty_us && !is_last && random() % 2 && unknown < unknown_max;
                Within within(is_hasty ? 1 + random() % hasty_us : 0);
                event.begin = history_now();
                int error = run(mine, event);
                event.end = history_now();
                ASSERT_TRUE(!error || (hasty_us && error == -ETIMEDOUT)) << error;
                event.known = !error;
                given_up += error && is_change(event);
                unknown += error && is_change(event);
                if (event.known || is_change(event))
                    seen[t].push_back(event);
            }
        });
    }
    for (std::thread& thread : running)
        thread.join();
    std::vector<E> history;
    for (const auto& part : seen)
        history.insert(history.end(), part.begin(), part.end());
    return history;
}

std::vector<Event> Linearizable::race_for_integer(int round, std::uint64_t hasty_us, raddr_t at) {
    return race<Event>(
        round, hasty_us,
        [](auto& random, std::uint64_t number, bool is_last) {
            Event event{is_last ? Event::read : static_cast<Event::Kind>(random() % 4)};
            event.value = number << 20;
            event.compare = last_seen;
            return event;
        },
        [at](remote_t* mine, Event& event) {
            int error = 0;
            switch (event.kind) {
            case Event::read:
                error = read_in_time(mine, at, &event.found, 8);
                break;
            case Event::write:
                error = write_in_time(mine, at, &event.value, 8);
                break;
            case Event::add:
                error = add_in_time(mine, at, event.value, &event.found);
                break;
            case Event::cas:
                event.found = event.compare;
                error = cas_in_time(mine, at, &event.found, event.value);
                break;
            case Event::nothing:
                break;
            }
            if (!error)
                last_seen = event.kind == Event::write ? event.value : event.found;
            return error;
        });
}

// 16 or 64 of 64 bytes.
std::vector<WordsEvent> Linearizable::race_for_words(int round, std::uint64_t hasty_us,
                                                     raddr_t at) {
    return race<WordsEvent>(
        round, hasty_us,
        [](auto& random, std::uint64_t number, bool is_last) {
            WordsEvent event{!is_last && random() % 2};
            event.count = random() % 2 ? 2 : words_max;
            event.first = random() % (words_max - event.count + 1);
            if (event.is_write)
                event.value.fill(number);
            return event;
        },
        [at](remote_t* mine, WordsEvent& event) {
            raddr_t from = at + 8 * event.first;
            std::uint64_t* data = &event.value[event.first];
            return event.is_write ? write_in_time(mine, from, data, 8 * event.count)
                                  : read_in_time(mine, from, data, 8 * event.count);
        });
}

// Projects the events of several words onto one of them.
std::vector<Event> of_word(const std::vector<WordsEvent>& events, std::size_t word) {
    std::vector<Event> about;
    for (const WordsEvent& event : events) {
        // All count for what their handle had given up before.
        bool is_about = word - event.first < event.count;
        if (!is_about && !event.known)
            continue;
        std::uint64_t value = event.value[word];
        about.push_back({event.is_write ? Event::write : Event::read, value, 0, value, event.begin,
                         event.end, event.known, event.handle});
        if (!is_about)
            about.back().kind = Event::nothing;
    }
    return about;
}

void Linearizable::expect_each_word(int round, std::uint64_t hasty_us, raddr_t at) {
    std::vector<WordsEvent> history = race_for_words(round, hasty_us, at);
    for (std::size_t word = 0; word < words_max; word++)
        ASSERT_TRUE(is_linearizable(of_word(history, word), 0))
            << "round " << round << ", word " << word;
}

TEST_P(Linearizable, Integers) {
    open_for_each();
    raddr_t a = alloc(8 * 64);
    for (int round = 0; round < rounds(); round++) {
        raddr_t at = a + 8 * static_cast<raddr_t>(round);
        ASSERT_TRUE(is_linearizable(race_for_integer(round, 0, at), 0)) << "round " << round;
    }
    if (relay)
        expect_trouble();
}

// A timed out operation is executed in time or never; others of its session are executed once.
TEST_P(Linearizable, TimedOutAtomicIsExecutedAtMostOnce) {
    raddr_t a = alloc(8 * 64);
    for (int round = 0; round < rounds(); round++) {
        open_by_round(round);
        raddr_t at = a + 8 * static_cast<raddr_t>(round);
        ASSERT_TRUE(is_linearizable(race_for_integer(round, hasty_us(), at), 0))
            << "round " << round;
    }
    if (node) {
        EXPECT_GT(given_up, 0);
    }
}

// Of operations by different handles each 8 bytes are one, and no more.
TEST_P(Linearizable, EachWordOfARegister) {
    open_for_each();
    raddr_t a = alloc(64 * 64);
    for (int round = 0; round < rounds(); round++)
        expect_each_word(round, 0, a + 64 * static_cast<raddr_t>(round));
    if (relay)
        expect_trouble();
}

// As the integers; but of one handle's some are under way at once.
TEST_P(Linearizable, TimedOutWriteIsExecutedInTimeOrNever) {
    raddr_t a = alloc(64 * 64);
    for (int round = 0; round < rounds(); round++) {
        open_by_round(round);
        expect_each_word(round, hasty_us(), a + 64 * static_cast<raddr_t>(round));
    }
    if (node) {
        EXPECT_GT(given_up, 0);
    }
}

// Operations of one handle keep their order, so each counts as one event.
TEST_P(Linearizable, ARegisterByOneHandle) {
    raddr_t a = alloc(64 * 64);
    for (int round = 0; round < rounds(); round++) {
        raddr_t at = a + 64 * static_cast<raddr_t>(round);
        ASSERT_TRUE(is_linearizable(race_for_words(round, 0, at), {})) << "round " << round;
    }
}

} // namespace

} // namespace remora::test
