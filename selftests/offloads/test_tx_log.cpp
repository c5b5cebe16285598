// SPDX-License-Identifier: GPL-2.0
// tools/offloads/tx/log.c over a model of persistent memory: every acknowledged
// transaction is recovered whole and once, with any part of the writes that weren't made durable.
//
// The record's sum doesn't count in most of these tests (it is always 0). So they show that the
// order of the writes suffices alone.
//
// REMORA_TX_CRASHES=N: the number of random crash points; default 20000. REMORA_TX_SEED=N: the
// first seed.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "core/base/bytes.h"
#include "core/base/crc32c.h"
}

#include "persistent.hpp"

namespace {

using persistent::Crash;
using persistent::no_point;
using persistent::Persistent;

constexpr u64 log_bytes = 512; // some records: the ring wraps
constexpr u64 log_at = 10240;
constexpr u64 memory_bytes = log_at + log_bytes + 1024;

// Garbage before the format, except for the magic number and the data.
std::vector<std::uint8_t> formless() {
    std::vector<std::uint8_t> bytes(memory_bytes);
    std::fill(bytes.begin() + 8, bytes.begin() + log_at + log_bytes, 0x48);
    return bytes;
}

u32 no_sum(u32, const void*, std::size_t) {
    return ~u32{0};
}

constexpr tx_log_ops ops_with(u32 (*sum)(u32, const void*, std::size_t)) {
    return {
        [](void* memory, u64 at, void* to, u32 bytes) {
            static_cast<Persistent*>(memory)->read(at, to, bytes);
            return 0;
        },
        [](void* memory, u64 at, const void* from, u32 bytes) {
            static_cast<Persistent*>(memory)->write(at, from, bytes);
            return 0;
        },
        [](void* memory, tx_log_point point, u64 at, u64 bytes) {
            static_cast<Persistent*>(memory)->persist(point, at, bytes);
        },
        [](void* memory, tx_log_point point) { static_cast<Persistent*>(memory)->drain(point); },
        sum};
}

constexpr tx_log_ops order_alone = ops_with(no_sum);
constexpr tx_log_ops with_sums = ops_with(base_crc32c_update);

struct Tuple {
    u64 offset;
    std::string data;
};

// A record in a buffer.
struct Record {
    alignas(8) std::array<std::uint8_t, TX_RECORD_BYTES_MAX> bytes{};
    tx_record* head() { return reinterpret_cast<tx_record*>(bytes.data()); }

    Record() = default;
    Record(u64 client, u64 sequence, const std::vector<Tuple>& tuples) {
        std::size_t at = sizeof(tx_record);
        for (const Tuple& tuple : tuples) {
            auto* to = reinterpret_cast<tx_record_tuple*>(&bytes[at]);
            base_store_le64(&to->offset, tuple.offset);
            base_store_le32(&to->bytes, static_cast<u32>(tuple.data.size()));
            at += sizeof(*to);
            std::memcpy(&bytes[at], tuple.data.data(), tuple.data.size());
            at += (tuple.data.size() + 7) & ~std::size_t{7};
        }
        base_store_le64(&head()->bytes, at);
        base_store_le64(&head()->client, client);
        base_store_le64(&head()->sequence, sequence);
        base_store_le32(&head()->tuples, static_cast<u32>(tuples.size()));
    }
};

// ---- a replica with clients ----

// A transaction adds 1 to each of its counters. A counter lies in data with a filler of that value
// behind it, so a torn one shows. So a transaction that is executed twice shows, too.
struct Transaction {
    u64 client, sequence;
    std::vector<u32> counters;
};

struct Scenario {
    std::vector<Transaction> transactions; // one by one
    unsigned counters;
    u32 counter_bytes; // a multiple of 8
    unsigned truncate_every;
};

std::string counter_data(u64 value, u32 bytes) {
    std::string data;
    while (data.size() < bytes)
        data.append(reinterpret_cast<const char*>(&value), sizeof(value));
    data.resize(bytes);
    return data;
}

// The clients' knowledge.
struct World {
    std::size_t acknowledged = 0; // transactions
    bool formatted = false, chained = false;
};

class Replica {
public:
    Replica(Persistent& memory, const Scenario& scenario, const tx_log_ops& ops = order_alone)
        : memory_(memory), scenario_(scenario) {
        log_.ops = &ops;
        log_.memory = &memory;
        log_.memory_bytes = memory_bytes;
    }

    // Recovers, and executes up to `most` of the transactions that aren't acknowledged yet. Empty:
    // all is well.
    std::string run(World& world, std::size_t most = ~std::size_t{0}) {
        if (std::string fault = open(world); !fault.empty())
            return fault;
        while (most-- && world.acknowledged < scenario_.transactions.size())
            if (int error = execute(world))
                return "error " + std::to_string(error);
        return {};
    }

    // Recovers and compares. At most the transaction under way can be there without being
    // acknowledged.
    std::string open(World& world) {
        int error = tx_log_open(&log_);
        if (error == -ENODATA && !world.formatted)
            error = tx_log_format(&log_, log_bytes);
        if (error)
            return "can't open: error " + std::to_string(error);
        world.formatted = true;
        if (world.chained && (log_.epoch != 1 || log_.role != TX_CHAIN_HEAD))
            return "the chain is lost";
        if (log_.epoch != 1) {
            if (int lost = tx_log_set_chain(&log_, 1, TX_CHAIN_HEAD))
                return "no chain: error " + std::to_string(lost);
        }
        world.chained = true;
        while (log_.applied < log_.end) {
            if (int failed = tx_log_apply(&log_, log_.end))
                return "can't apply: error " + std::to_string(failed);
        }
        return compare(world);
    }

    tx_log& log() { return log_; }

private:
    std::string compare(const World& world) const {
        for (std::size_t ahead : {0, 1}) {
            if (world.acknowledged + ahead > scenario_.transactions.size())
                break;
            if (is_state_after(world.acknowledged + ahead))
                return {};
        }
        return "not the state after " + std::to_string(world.acknowledged) +
               " transactions, nor after the next one";
    }

    bool is_state_after(std::size_t count) const {
        std::vector<u64> values(scenario_.counters);
        std::map<u64, u64> sequences;
        for (const Transaction& each : std::span(scenario_.transactions).first(count)) {
            for (u32 counter : each.counters)
                values[counter]++;
            sequences[each.client] = each.sequence;
        }
        for (u32 n = 0; n < scenario_.counters; n++) {
            if (data(n) != counter_data(values[n], scenario_.counter_bytes))
                return false;
        }
        for (const tx_log_client& client : log_.client) {
            auto found = sequences.find(client.id);
            if (client.id && (found == sequences.end() || found->second != client.sequence))
                return false;
            if (client.id)
                sequences.erase(found);
        }
        return sequences.empty();
    }

    std::string data(u32 counter) const {
        std::string bytes(scenario_.counter_bytes, 0);
        tx_log_read_data(&log_, u64{counter} * scenario_.counter_bytes, bytes.data(),
                         scenario_.counter_bytes);
        return bytes;
    }

    // The next transaction, as a client that asks again until it is acknowledged.
    int execute(World& world) {
        const Transaction& next = scenario_.transactions[world.acknowledged];
        const tx_log_client* client = tx_log_find(&log_, next.client);
        if (!client || client->sequence < next.sequence) {
            std::vector<Tuple> tuples;
            for (u32 counter : next.counters) {
                u64 value = base_load_le64(data(counter).data());
                tuples.push_back({u64{counter} * scenario_.counter_bytes,
                                  counter_data(value + 1, scenario_.counter_bytes)});
            }
            Record record(next.client, next.sequence, tuples);
            tx_log_seal(&log_, record.head());
            int error = tx_log_append(&log_, record.head());
            while (error == -ENOSPC) {
                // The oldest record alone: the log still needs the others.
                Record oldest;
                error = tx_log_read(&log_, log_.begin, oldest.head());
                if (!error)
                    error =
                        tx_log_truncate(&log_, log_.begin + base_load_le64(&oldest.head()->bytes));
                if (!error)
                    error = tx_log_append(&log_, record.head());
            }
            if (error)
                return error;
        }
        world.acknowledged++;
        if (int error = tx_log_apply(&log_, log_.end))
            return error;
        if (scenario_.truncate_every && world.acknowledged % scenario_.truncate_every == 0)
            return tx_log_truncate(&log_, log_.applied);
        return 0;
    }

    Persistent& memory_;
    const Scenario& scenario_;
    tx_log log_{};
};

// Two clients, records of several lines, and the ring wraps. One truncates every two transactions,
// the other one when the log is full.
const std::vector<Transaction> few{{1, 1, {0}},    {2, 1, {0, 1}}, {1, 2, {1}},
                                   {2, 2, {0}},    {1, 3, {0, 1}}, {1, 4, {0}},
                                   {2, 3, {0, 1}}, {1, 5, {0}},    {1, 6, {1}}};
const Scenario small{few, 2, 8, 2}, filling{few, 2, 8, 0}, scenario_none{{}, 0, 8, 0};

Scenario random_scenario(std::mt19937_64& random) {
    Scenario made;
    made.counters = 1 + random() % 3;
    made.counter_bytes = 8 * (1 + static_cast<u32>(random() % 14));
    made.truncate_every = random() % 4 ? static_cast<unsigned>(random() % 6) : 0;
    std::map<u64, u64> sequences;
    const std::size_t count = 3 + random() % 20;
    for (std::size_t n = 0; n < count; n++) {
        Transaction each;
        each.client = 1 + random() % 4;
        each.sequence = ++sequences[each.client];
        for (u32 counter = 0; counter < made.counters; counter++)
            if (random() % 2)
                each.counters.push_back(counter);
        made.transactions.push_back(each);
    }
    return made;
}

struct Life {
    Persistent memory{formless()};
    World world;
    bool crashed;
    std::string fault;
};

// In formatted memory, so that a crash has few enough outcomes to try all of them.
Life run_until(const Scenario& scenario, std::uint64_t crash_at, int left_out = no_point) {
    static const Persistent formatted = [] {
        Persistent memory{formless()};
        World world;
        EXPECT_EQ(Replica(memory, scenario_none).open(world), "");
        return memory.after_crash([](std::size_t count) { return count - 1; });
    }();
    Life run{formatted, {0, true, true}, false, {}};
    run.memory.crash_at = crash_at;
    run.memory.left_out = left_out;
    try {
        run.fault = Replica(run.memory, scenario).run(run.world);
    } catch (const Crash&) {
        run.crashed = true;
    }
    return run;
}

// Every outcome of a power cut. The first fault; empty: none.
std::string cut_power(const Persistent& memory, const World& before, const Scenario& scenario,
                      std::uint64_t& crashes) {
    const std::uint64_t ways = memory.outcomes(~std::uint64_t{0} >> 20);
    for (std::uint64_t way = 0; way < ways; way++) {
        std::uint64_t left = way;
        Persistent after = memory.after_crash([&](std::size_t count) {
            const std::size_t which = left % count;
            left /= count;
            return which;
        });
        crashes++;
        World world = before;
        Replica replica(after, scenario);
        // Some go on to the end.
        if (std::string fault = crashes % 32 ? replica.open(world) : replica.run(world);
            !fault.empty())
            return "way " + std::to_string(way) + ": " + fault;
    }
    return {};
}

// The process dies, the next one recovers and executes up to two transactions, then the power is
// cut. The first fault; empty: none.
std::string die(const Persistent& memory, const World& before, const Scenario& scenario,
                std::uint64_t& crashes) {
    for (std::size_t most : {0, 1, 2}) {
        Persistent after = memory.after_death();
        World world = before;
        std::string fault = Replica(after, scenario).run(world, most);
        if (fault.empty())
            fault = cut_power(after, world, scenario, crashes);
        if (!fault.empty())
            return "a process died, then " + std::to_string(most) + " transactions: " + fault;
    }
    return {};
}

// Every crash point, with each of its outcomes. The first fault; empty: none.
std::string explore(const Scenario& scenario, int left_out, std::uint64_t& crashes) {
    for (std::uint64_t at = 1;; at++) {
        const Life run = run_until(scenario, at, left_out);
        if (!run.fault.empty())
            return run.fault;
        std::string fault = cut_power(run.memory, run.world, scenario, crashes);
        if (fault.empty())
            fault = die(run.memory, run.world, scenario, crashes);
        if (!fault.empty())
            return "event " + std::to_string(at) + ", " + fault;
        if (!run.crashed)
            return {};
    }
}

// Every crash point of the format, with nothing kept, with all, and with the first line alone.
std::string explore_format(int left_out, std::uint64_t& crashes) {
    for (std::uint64_t at = 1;; at++) {
        Life life{};
        life.memory.crash_at = at;
        life.memory.left_out = left_out;
        try {
            life.fault = Replica(life.memory, scenario_none).run(life.world);
        } catch (const Crash&) {
            life.crashed = true;
        }
        std::string fault = life.fault;
        for (std::size_t lines : {0, 1, 1000}) {
            std::size_t line = 0;
            Persistent after = life.memory.after_crash(
                [&](std::size_t count) { return line++ < lines ? count - 1 : 0; });
            crashes++;
            World world = life.world;
            if (fault.empty())
                fault = Replica(after, scenario_none).open(world);
            if (!fault.empty())
                return "event " + std::to_string(at) + " of the format: " + fault;
        }
        Persistent alive = life.memory.after_death();
        World world = life.world;
        if (fault = Replica(alive, scenario_none).open(world); fault.empty())
            fault = cut_power(alive, world, scenario_none, crashes);
        if (!fault.empty())
            return "death at event " + std::to_string(at) + " of the format: " + fault;
        if (!life.crashed)
            return {};
    }
}

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

// Crashes at random points, again and again in one life. The first fault; empty: none.
std::string live(std::uint64_t seed, int left_out, std::uint64_t& crashes) {
    std::mt19937_64 random(seed);
    const Scenario scenario = random_scenario(random);
    const bool sums = random() % 4 == 0;
    Persistent memory{formless()};
    memory.left_out = left_out;
    World world;
    for (;;) {
        // Now in recovery, and now later.
        static constexpr std::uint64_t events_max[] = {20, 200, 2500};
        memory.events = 0;
        memory.crash_at = 1 + random() % events_max[random() % std::size(events_max)];
        try {
            std::string fault =
                Replica(memory, scenario, sums ? with_sums : order_alone).run(world);
            if (!fault.empty())
                return fault;
            memory.crash_at = 0; // all is acknowledged: a last crash
        } catch (const Crash&) {
        }
        const bool last = !memory.crash_at;
        const unsigned keeps = random() % 6;
        memory = keeps > 3 ? memory.after_death()
                           : memory.after_crash([&](std::size_t count) -> std::size_t {
                                 switch (keeps) {
                                 case 0:
                                     return count - 1;
                                 case 1:
                                     return 0;
                                 default:
                                     return random() % count;
                                 }
                             });
        crashes++;
        if (last)
            return Replica(memory, scenario, sums ? with_sums : order_alone).open(world);
    }
}

// ---- tests ----

TEST(TxLog, EveryCrashPointOfASmallRunLosesAndTearsNothing) {
    std::uint64_t crashes = 0;
    EXPECT_EQ(explore_format(no_point, crashes), "");
    EXPECT_EQ(explore(small, no_point, crashes), "");
    EXPECT_EQ(explore(filling, no_point, crashes), "");
    RecordProperty("crashes", std::to_string(crashes));
    EXPECT_GT(crashes, 30000u);
}

TEST(TxLog, RandomCrashesLoseAndTearNothing) {
    const std::uint64_t wanted = number_from("REMORA_TX_CRASHES", 20000);
    std::uint64_t crashes = 0;
    for (std::uint64_t seed = number_from("REMORA_TX_SEED", 1); crashes < wanted; seed++) {
        ASSERT_EQ(live(seed, no_point, crashes), "")
            << "again: REMORA_TX_SEED=" << seed << " REMORA_TX_CRASHES=1 "
            << "out/bin/offload/test_tx_log";
    }
    RecordProperty("crashes", std::to_string(crashes));
}

// Each persist and each drain is there for a reason: the tests above find its absence.
TEST(TxLog, WithoutAnyOnePersistOrDrainACrashIsFound) {
    for (int point = 0; point < TX_POINTS; point++) {
        std::uint64_t crashes = 0;
        std::string fault;
        for (std::uint64_t seed = 1; fault.empty() && crashes < 3000; seed++)
            fault = live(seed, point, crashes);
        if (fault.empty())
            fault = explore_format(point, crashes);
        if (fault.empty())
            fault = explore(filling, point, crashes);
        EXPECT_FALSE(fault.empty()) << "point " << point << " of enum tx_log_point isn't needed";
    }
}

class TxLogOpen : public testing::Test {
protected:
    TxLogOpen() {
        World world;
        EXPECT_EQ(Replica(memory, small, with_sums).run(world), "");
    }
    int open() {
        Replica replica(memory, small, with_sums);
        int error = tx_log_open(&replica.log());
        end = replica.log().end;
        return error;
    }
    Persistent memory{formless()};
    u64 end = 0;
};

TEST_F(TxLogOpen, AnotherVersionOrSizeIsRefused) {
    EXPECT_EQ(open(), 0);
    memory.damage(8);
    EXPECT_EQ(open(), -EPROTONOSUPPORT);
    memory.damage(8);
    memory.damage(0);
    EXPECT_EQ(open(), -EPROTONOSUPPORT);
    memory.damage(0);
    memory.damage(18);
    EXPECT_EQ(open(), -EUCLEAN);
    memory.damage(18);
    memory.damage(31);
    EXPECT_EQ(open(), -EUCLEAN);
    memory.damage(31);
    EXPECT_EQ(open(), 0);
}

TEST_F(TxLogOpen, DamagedRecordIsRefused) {
    ASSERT_EQ(open(), 0);
    u64 begin = 0;
    memory.read(64, &begin, 8);
    ASSERT_LT(begin, end); // the last transaction wasn't truncated
    const u64 whole = end;
    for (u64 at = begin; at < whole; at++) {
        memory.damage(log_at + at % log_bytes);
        EXPECT_EQ(open(), -EUCLEAN) << "byte " << at;
        memory.damage(log_at + at % log_bytes);
    }
}

TEST(TxLog, UnsoundRecordIsRefused) {
    Persistent memory{formless()};
    World world;
    Replica replica(memory, small, with_sums);
    ASSERT_EQ(replica.run(world), "");
    tx_log& log = replica.log();
    auto sound = [&](Record record) {
        const u32 bytes = static_cast<u32>(base_load_le64(&record.head()->bytes));
        tx_log_seal(&log, record.head());
        return tx_log_is_sound(&log, record.head(), bytes);
    };
    EXPECT_TRUE(sound(Record(9, 1, {{0, "12345678"}})));
    EXPECT_TRUE(sound(Record(9, 1, {{log.data_bytes - 1, "1"}})));
    EXPECT_FALSE(sound(Record(9, 1, {{log.data_bytes - 1, "12"}})));
    EXPECT_FALSE(sound(Record(9, 1, {{~u64{0}, "12"}})));
    EXPECT_FALSE(sound(Record(0, 1, {{0, "1"}})));
    EXPECT_FALSE(sound(Record(9, 0, {{0, "1"}})));
    EXPECT_FALSE(sound(Record(9, 1, {{0, ""}})));
    Record record(9, 1, {{0, "12345678"}});
    const u32 bytes = static_cast<u32>(base_load_le64(&record.head()->bytes));
    tx_log_seal(&log, record.head());
    for (u32 n = 0; n < bytes; n++) {
        record.bytes[n] ^= 4;
        EXPECT_FALSE(tx_log_is_sound(&log, record.head(), bytes)) << "byte " << n;
        record.bytes[n] ^= 4;
    }
    EXPECT_FALSE(tx_log_is_sound(&log, record.head(), bytes - 8));
    EXPECT_EQ(tx_log_append(&log, record.head()), 0);
    EXPECT_EQ(tx_log_append(&log, record.head()), -EINVAL); // the log has it already
}

TEST(TxLog, FullLogIsRefusedUntilItIsTruncated) {
    Persistent memory{formless()};
    World world;
    Replica replica(memory, small, with_sums);
    ASSERT_EQ(replica.run(world), "");
    tx_log& log = replica.log();
    int error = 0;
    u64 count = 0;
    while (!error) {
        Record record(3, ++count, {{0, std::string(40, 'x')}});
        tx_log_seal(&log, record.head());
        error = tx_log_append(&log, record.head());
    }
    EXPECT_EQ(error, -ENOSPC);
    EXPECT_LE(log.end - log.begin, log.log_bytes - 8);
    EXPECT_GT(log.end - log.begin, log.log_bytes - 120);
    while (log.applied < log.end)
        ASSERT_EQ(tx_log_apply(&log, log.end), 0);
    ASSERT_EQ(tx_log_truncate(&log, log.applied), 0);
    Record record(3, count, {{0, "y"}});
    tx_log_seal(&log, record.head());
    EXPECT_EQ(tx_log_append(&log, record.head()), 0);
    Record copy;
    EXPECT_EQ(tx_log_read(&log, log.begin, copy.head()), 0);
    EXPECT_EQ(copy.bytes, record.bytes);
}

TEST(TxLog, EpochOnlyRises) {
    Persistent memory{formless()};
    World world;
    Replica replica(memory, small);
    ASSERT_EQ(replica.run(world), "");
    EXPECT_EQ(tx_log_set_chain(&replica.log(), 1, 0), -ESTALE);
    EXPECT_EQ(tx_log_set_chain(&replica.log(), 0, 0), -ESTALE);
    EXPECT_EQ(tx_log_set_chain(&replica.log(), 7, TX_CHAIN_NEXT), 0);
    ASSERT_EQ(tx_log_open(&replica.log()), 0);
    EXPECT_EQ(replica.log().epoch, 7u);
    EXPECT_EQ(replica.log().role, TX_CHAIN_NEXT);
}

TEST(TxLog, MoreClientsThanSlotsForgetTheOneSilentForLongest) {
    Persistent memory{formless()};
    World world;
    Replica replica(memory, small);
    ASSERT_EQ(replica.run(world), "");
    tx_log& log = replica.log();
    for (u64 client = 100; client < 100 + TX_CLIENTS; client++) {
        // A restart doesn't change which one is forgotten: the last one's slot isn't the oldest.
        if (client % 5 == 0) {
            ASSERT_EQ(tx_log_open(&log), 0);
        }
        Record record(client, 1, {});
        tx_log_seal(&log, record.head());
        ASSERT_EQ(tx_log_append(&log, record.head()), 0);
        ASSERT_EQ(tx_log_apply(&log, log.end), 0);
        ASSERT_EQ(tx_log_truncate(&log, log.applied), 0);
    }
    EXPECT_FALSE(tx_log_find(&log, 1));
    EXPECT_FALSE(tx_log_find(&log, 2));
    for (u64 client = 100; client < 100 + TX_CLIENTS; client++)
        EXPECT_TRUE(tx_log_find(&log, client)) << client;
}

class Environment : public testing::Environment {
    void SetUp() override { base_crc32c_setup(); }
};
const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new Environment);

} // namespace
