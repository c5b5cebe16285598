// SPDX-License-Identifier: GPL-2.0
// tools/offloads/versions: its functions, calls whose steps take turns, and damaged tables.
#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#define OFFLOAD offload_versions
#define OFFLOAD_TEST_MEMORY
#include "memory.hpp"
#include "offloads/versions/versions.h"

namespace {

using namespace offload_test;

constexpr uint64_t mib = 1 << 20;
constexpr unsigned steps_max = 5, slices_max = 10; // of a call that finds its pages

template <typename T>
std::vector<uint8_t> bytes_of(const T& value, std::string_view data = {}) {
    std::vector<uint8_t> bytes(sizeof(value));
    std::memcpy(bytes.data(), &value, sizeof(value));
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

struct Made {
    int error;
    uint64_t number = 0, addr = 0;
};

Made made(const Call& call) {
    Made result{call.outcome()};
    if (!result.error) {
        require(call.result().size() == sizeof(versions_result));
        std::memcpy(&result.number, call.result().data(), 8);
        std::memcpy(&result.addr, call.result().data() + 8, 8);
    }
    return result;
}

struct Read {
    int error;
    versions_found found{};
    std::optional<std::string> data; // none: there was no room for it
};

Read read_of(const Call& call) {
    Read read{call.outcome()};
    if (read.error)
        return read;
    const auto result = call.result();
    require(result.size() >= sizeof(read.found));
    std::memcpy(&read.found, result.data(), sizeof(read.found));
    if (result.size() == sizeof(read.found) + read.found.bytes)
        read.data.emplace(result.begin() + sizeof(read.found), result.end());
    return read;
}

struct Table {
    Table(uint32_t objects, uint32_t versions, uint32_t version_bytes, uint64_t at_ = base)
        : memory((VERSIONS_TABLE_BYTES(objects, versions, version_bytes) + at_ - base + page_bytes -
                  1) /
                 page_bytes * page_bytes),
          at(at_),
          rooms(versions),
          room_bytes(version_bytes) {
        require(!format({at, VERSIONS_TABLE_BYTES(objects, versions, version_bytes), objects,
                         versions, version_bytes, 0})
                     .error);
    }

    Made run(Call call) {
        const uint64_t slices = memory.slices;
        const int error = call.run(100);
        require(error != -ETIME);
        require(memory.scarce ||
                (call.steps() <= steps_max && memory.slices - slices <= slices_max));
        return made(call);
    }
    Made format(const versions_format_args& args) {
        return run(Call(memory, VERSIONS_FORMAT, bytes_of(args)));
    }
    Call begin(uint32_t function, uint64_t object, uint32_t number = 0, uint32_t bytes = 0,
               uint32_t room = 8192) {
        return Call(memory, function, bytes_of(versions_args{at, object, number, bytes}), room);
    }
    Call begin_append(uint64_t object, std::string_view data) {
        return Call(memory, VERSIONS_APPEND, bytes_of(versions_object_args{at, object}, data));
    }
    Made create() { return run(begin(VERSIONS_CREATE, 0)); }
    Made remove(uint64_t object, uint32_t flags = 0) {
        return run(begin(VERSIONS_DELETE, object, flags));
    }
    Made append(uint64_t object, std::string_view data) { return run(begin_append(object, data)); }
    Made stage(uint64_t object) { return run(begin(VERSIONS_STAGE, object)); }
    Made publish(uint64_t object, uint64_t room, uint32_t bytes) {
        return run(begin(VERSIONS_PUBLISH, object, static_cast<uint32_t>(room), bytes));
    }
    Read read(uint64_t object, uint32_t version = 0, uint32_t room = 8192) {
        Call call = begin(VERSIONS_READ, object, version, 0, room);
        const uint64_t slices = memory.slices;
        require(call.run(steps_max) != -ETIME && memory.slices - slices <= slices_max);
        return read_of(call);
    }
    void write(uint64_t addr, std::string_view data) {
        require(memory.has(addr, data.size()));
        std::memcpy(memory.at(addr), data.data(), data.size());
    }
    std::string bytes_at(uint64_t addr, size_t bytes) {
        require(memory.has(addr, bytes));
        return {reinterpret_cast<const char*>(memory.at(addr)), bytes};
    }
    template <typename T>
    T load(uint64_t addr) {
        T value;
        require(memory.has(addr, sizeof(value)));
        std::memcpy(&value, memory.at(addr), sizeof(value));
        return value;
    }
    uint64_t object_at(uint64_t object) const {
        return at + sizeof(versions_table) +
               (object & 0xffffffff) * VERSIONS_OBJECT_BYTES(rooms, room_bytes);
    }
    // As a client reads the latest version by READs alone; none: there is none.
    std::optional<std::pair<uint64_t, std::string>> by_reads(uint64_t object) {
        const auto head = load<versions_object>(object_at(object));
        if (head.generation != object >> 32 || !head.count)
            return {};
        const uint64_t entries = object_at(object) + sizeof(versions_object);
        const auto entry = load<uint64_t>(entries + 8 * (head.count - 1));
        const uint64_t room =
            entries + 8ull * rooms + (entry & 0xffffffff) * VERSIONS_ROOM_BYTES(room_bytes);
        require(load<uint64_t>(room) == head.count);
        return std::pair(head.count, bytes_at(room + sizeof(versions_room), entry >> 32));
    }

    Memory memory;
    uint64_t at;
    uint32_t rooms, room_bytes;
};

// ---- functions ----

TEST(Versions, EachVersionIsReadByNumberAndTheLatestWithoutOne) {
    Table table(4, 10, 300);
    const Made object = table.create();
    ASSERT_EQ(object.error, 0);
    EXPECT_EQ(table.read(object.number).error, -ENODATA);
    const std::vector<std::string> all{"one", "", std::string(300, 'x'), "four"};
    for (size_t n = 0; n < all.size(); n++) {
        EXPECT_EQ(table.append(object.number, all[n]).number, n + 1);
        const Read latest = table.read(object.number);
        EXPECT_EQ(latest.found.number, n + 1);
        EXPECT_EQ(latest.data, all[n]);
    }
    for (uint32_t n = 0; n < all.size(); n++)
        EXPECT_EQ(table.read(object.number, n + 1).data, all[n]);
    EXPECT_EQ(table.read(object.number, 5).error, -ENODATA);
    EXPECT_EQ(table.read(object.number, ~0u).error, -ENODATA);
    EXPECT_EQ(table.append(object.number, std::string(301, 'x')).error, -EMSGSIZE);
    EXPECT_EQ(table.by_reads(object.number)->second, "four");
}

TEST(Versions, VersionWithoutRoomInTheResultIsReadFromItsPlace) {
    Table table(1, 4, 20'000);
    const uint64_t object = table.create().number;
    table.append(object, "small");
    const Made staged = table.stage(object);
    const std::string large(20'000, 'L');
    table.write(staged.addr, large);
    EXPECT_EQ(table.publish(object, staged.number, 20'000).number, 2u);
    const Read read = table.read(object);
    ASSERT_EQ(read.error, 0);
    EXPECT_FALSE(read.data);
    EXPECT_EQ(table.bytes_at(read.found.addr, read.found.bytes), large);
    EXPECT_EQ(table.read(object, 1, sizeof(versions_found) + 5).data, "small");
    EXPECT_FALSE(table.read(object, 1, sizeof(versions_found) + 4).data);
    EXPECT_EQ(table.read(object, 1, sizeof(versions_found) - 1).error, -EMSGSIZE);
}

TEST(Versions, StagedVersionIsNumberedWhenItIsPublished) {
    Table table(2, 4, 64);
    const uint64_t object = table.create().number;
    const Made first = table.stage(object), second = table.stage(object);
    table.write(first.addr, "first");
    EXPECT_EQ(table.read(object).error, -ENODATA);
    EXPECT_EQ(table.append(object, "appended").number, 1u);
    table.write(second.addr, "second");
    EXPECT_EQ(table.publish(object, second.number, 6).number, 2u);
    EXPECT_EQ(table.publish(object, second.number, 6).error, -EALREADY);
    EXPECT_EQ(table.read(object).data, "second");
    EXPECT_EQ(table.publish(object, 3, 6).error, -EINVAL) << "no such room is taken";
    EXPECT_EQ(table.publish(object, first.number, 65).error, -EMSGSIZE);
    EXPECT_EQ(table.remove(object).error, -EBUSY) << "its client might still write";
    EXPECT_EQ(table.publish(object, first.number, 5).number, 3u);
    EXPECT_EQ(table.publish(object, first.number, 5).error, -EALREADY);
    EXPECT_EQ(table.read(object, 1).data, "appended");
    EXPECT_EQ(table.read(object, 3).data, "first");
    EXPECT_EQ(table.remove(object).error, 0);
    const uint64_t next = table.create().number;
    table.stage(next);
    EXPECT_EQ(table.remove(next, VERSIONS_FORCE).error, 0);
}

TEST(Versions, DeletedObjectsMemoryHasAnotherName) {
    Table table(3, 4, 16);
    std::vector<uint64_t> objects;
    for (unsigned n = 0; n < 3; n++)
        objects.push_back(table.create().number);
    EXPECT_EQ(table.create().error, -ENOSPC);
    table.append(objects[1], "old");
    EXPECT_EQ(table.remove(objects[1]).error, 0);
    for (const Made& each : {table.append(objects[1], "x"), table.stage(objects[1]),
                             table.publish(objects[1], 0, 1), table.remove(objects[1])})
        EXPECT_EQ(each.error, -ENOENT);
    EXPECT_EQ(table.read(objects[1]).error, -ENOENT);
    table.remove(objects[0]);
    const uint64_t again = table.create().number, more = table.create().number;
    EXPECT_EQ(table.create().error, -ENOSPC);
    EXPECT_EQ(again & 0xffffffff, objects[0] & 0xffffffff);
    EXPECT_EQ(more & 0xffffffff, objects[1] & 0xffffffff);
    EXPECT_NE(more, objects[1]);
    EXPECT_EQ(table.read(more).error, -ENODATA);
    EXPECT_EQ(table.read(objects[1]).error, -ENOENT);
    EXPECT_EQ(table.append(more, "new").number, 1u);
    EXPECT_EQ(table.read(objects[2] + (2ull << 32)).error, -ENOENT);
    EXPECT_EQ(table.read(3 | 1ull << 32).error, -ENOENT) << "the table has three objects";
}

// ---- a table in place of another ----

struct SecondTable {
    SecondTable() {
        for (unsigned n = 0; n < 3; n++) {
            old.push_back(table.create().number);
            table.append(old.back(), "old");
        }
    }
    // As versions.h has it.
    void format(uint32_t objects, uint32_t versions, uint32_t version_bytes) {
        const uint64_t none = 0;
        std::memcpy(table.memory.at(base + offsetof(versions_table, magic)), &none, 8);
        ASSERT_EQ(table.create().error, -ENXIO);
        ASSERT_EQ(
            table.format({base, table.memory.bytes, objects, versions, version_bytes, 0}).error, 0);
        table.rooms = versions;
        table.room_bytes = version_bytes;
    }
    void expect_old_names_find_nothing() {
        for (uint64_t each : old) {
            for (const Made& made :
                 {table.append(each, "x"), table.stage(each), table.publish(each, 0, 1),
                  table.remove(each), table.remove(each, VERSIONS_FORCE)})
                EXPECT_EQ(made.error, -ENOENT);
            EXPECT_EQ(table.read(each).error, -ENOENT);
        }
    }

    Table table{3, 4, 16};
    std::vector<uint64_t> old;
};

TEST(Versions, NamesOfAnEarlierTableFindNothing) {
    SecondTable second;
    second.format(3, 4, 16);
    second.expect_old_names_find_nothing();
    for (unsigned n = 0; n < 3; n++) {
        const uint64_t object = second.table.create().number;
        EXPECT_EQ(object & 0xffffffff, n);
        EXPECT_EQ(second.table.read(object).error, -ENODATA);
        second.expect_old_names_find_nothing();
    }
}

TEST(Versions, DeletionByAnEarlierTablesNameGivesNoObjectTwice) {
    SecondTable second;
    second.format(3, 4, 16);
    EXPECT_EQ(second.table.remove(second.old[0]).error, -ENOENT);
    const uint64_t one = second.table.create().number, other = second.table.create().number;
    EXPECT_NE(one & 0xffffffff, other & 0xffffffff);
    EXPECT_EQ(second.table.append(one, "one").number, 1u);
    EXPECT_EQ(second.table.append(other, "other").number, 1u);
    EXPECT_EQ(second.table.read(one).data, "one");
}

TEST(Versions, NamesOfAnEarlierTableOfOtherSizesFindNothing) {
    for (auto [objects, versions, version_bytes] :
         {std::tuple{20u, 1u, 8u}, std::tuple{1u, 4u, 1000u}, std::tuple{4u, 5u, 24u}}) {
        SecondTable second;
        second.format(objects, versions, version_bytes);
        second.expect_old_names_find_nothing();
        uint64_t object = 0;
        for (unsigned n = 0; n < objects; n++) {
            object = second.table.create().number;
            EXPECT_EQ(second.table.append(object, std::to_string(n)).number, 1u);
            EXPECT_EQ(second.table.read(object).data, std::to_string(n));
            second.expect_old_names_find_nothing();
        }
        EXPECT_EQ(second.table.create().error, -ENOSPC);
        EXPECT_EQ(second.table.remove(object).error, 0);
        EXPECT_NE(second.table.create().number, object);
    }
}

TEST(Versions, CallBesideANewTableFindsNothing) {
    for (unsigned steps = 0; steps < steps_max; steps++) {
        SecondTable second;
        Call call = second.table.begin_append(second.old[0], "late");
        bool ended = false;
        for (unsigned n = 0; n < steps && !ended; n++)
            ended = !call.step();
        second.format(3, 4, 16);
        const uint64_t object = second.table.create().number;
        call.run();
        EXPECT_EQ(call.outcome(), ended ? 0 : -ENOENT);
        EXPECT_EQ(second.table.read(object).error, -ENODATA);
    }
}

TEST(Versions, CallWithoutATableChangesNoPage) {
    Table table(2, 4, 60'000);
    ASSERT_FALSE(table.memory.backed[1]);
    table.at += page_bytes;
    EXPECT_EQ(table.create().error, -ENXIO);
    EXPECT_EQ(table.remove(1ull << 32).error, -ENXIO);
    EXPECT_EQ(table.append(1ull << 32, "x").error, -ENXIO);
    EXPECT_FALSE(table.memory.backed[1]);
}

TEST(Versions, FullObjectRefuses) {
    Table table(1, VERSIONS_MAX, 8);
    const uint64_t object = table.create().number;
    for (uint64_t n = 1; n <= VERSIONS_MAX; n++)
        ASSERT_EQ(table.append(object, std::to_string(n)).number, n);
    EXPECT_EQ(table.append(object, "x").error, -ENOSPC);
    EXPECT_EQ(table.stage(object).error, -ENOSPC);
    for (uint32_t n = 1; n <= VERSIONS_MAX; n++)
        ASSERT_EQ(table.read(object, n).data, std::to_string(n));
}

TEST(Versions, VersionsLieAcrossPages) {
    Table table(3, 300, 1001, base + 64);
    table.memory.scarce = true; // the first change of each page is to be made again
    const uint64_t object = (table.create(), table.create().number);
    for (unsigned n = 0; n < 300; n++) {
        const std::string data(1000 - n % 7, static_cast<char>('a' + n % 26));
        ASSERT_EQ(table.append(object, data).number, n + 1);
        ASSERT_EQ(table.read(object).data, data);
    }
}

// ---- refusals ----

TEST(Versions, ArgumentsOfOtherLengthsAreRefused) {
    Table table(2, 4, 2000);
    const uint64_t object = table.create().number;
    for (uint32_t function = 0; function < 32; function++)
        for (size_t bytes = 0; bytes <= 1024; bytes++) {
            const size_t right =
                function == VERSIONS_FORMAT ? sizeof(versions_format_args) : sizeof(versions_args);
            if (function <= VERSIONS_READ && function != VERSIONS_APPEND && bytes == right)
                continue;
            std::vector<uint8_t> args = bytes_of(versions_args{table.at, object, 0, 0});
            args.resize(bytes);
            Call call(table.memory, function, args);
            const int error = call.run(10);
            if (function == VERSIONS_APPEND && bytes >= sizeof(versions_object_args)) {
                EXPECT_TRUE(!error || error == -ENOSPC) << bytes;
            } else {
                EXPECT_EQ(error, function > VERSIONS_READ ? -ENOSYS : -EINVAL)
                    << function << ", " << bytes;
            }
        }
}

TEST(Versions, ArgumentsThatCantBeAreRefused) {
    Table table(2, 4, 16);
    const uint64_t object = table.create().number;
    for (uint32_t function = VERSIONS_CREATE; function <= VERSIONS_READ; function++) {
        // The last 8 bytes are VERSIONS_APPEND's data.
        auto at = [&](uint64_t where) {
            Call call(
                table.memory, function,
                bytes_of(versions_args{where, function == VERSIONS_CREATE ? 0 : object, 0, 0}));
            return call.run(10);
        };
        EXPECT_EQ(at(base + 8), -EINVAL);
        EXPECT_EQ(at(base + 64), -ENXIO);
        EXPECT_EQ(at(base - 64), -EFAULT);
        EXPECT_EQ(at(base + table.memory.bytes), -EFAULT);
        EXPECT_EQ(at(~uint64_t{63}), -EFAULT);
        EXPECT_EQ(at(0), -EFAULT);
    }
    EXPECT_EQ(table.run(table.begin(VERSIONS_CREATE, 1)).error, -EINVAL);
    EXPECT_EQ(table.run(table.begin(VERSIONS_CREATE, 0, 1)).error, -EINVAL);
    EXPECT_EQ(table.run(table.begin(VERSIONS_DELETE, object, 2)).error, -EINVAL);
    EXPECT_EQ(table.run(table.begin(VERSIONS_STAGE, object, 0, 1)).error, -EINVAL);
    EXPECT_EQ(table.read(object).error, -ENODATA);
}

TEST(Versions, TablesThatCantBeAreRefused) {
    Table table(2, 4, 16);
    const uint64_t bytes = table.memory.bytes - 64;
    const versions_format_args good{base + 64, bytes, 2, 4, 16, 0};
    auto refused = [&](auto change, int error) {
        versions_format_args args = good;
        change(args);
        EXPECT_EQ(table.format(args).error, error);
    };
    refused([](auto& args) { args.objects = 0; }, -EINVAL);
    refused([](auto& args) { args.objects = VERSIONS_OBJECTS_MAX + 1; }, -EINVAL);
    refused([](auto& args) { args.versions = 0; }, -EINVAL);
    refused([](auto& args) { args.versions = VERSIONS_MAX + 1; }, -EINVAL);
    refused([](auto& args) { args.version_bytes = 0; }, -EINVAL);
    refused([](auto& args) { args.version_bytes = VERSIONS_BYTES_MAX + 1; }, -EINVAL);
    refused([](auto& args) { args.reserved = 1; }, -EINVAL);
    refused([](auto& args) { args.table += 8; }, -EINVAL);
    refused([](auto& args) { args.table = ~uint64_t{63}; }, -EINVAL);
    refused([](auto& args) { args.bytes = VERSIONS_TABLE_BYTES(2, 4, 16) - 1; }, -EINVAL);
    refused([](auto& args) { args.bytes++; }, -EFAULT);
    refused([](auto& args) { args.table = base; }, -EEXIST);
    EXPECT_EQ(table.format(good).error, 0);
    EXPECT_EQ(VERSIONS_OBJECT_BYTES(VERSIONS_MAX, VERSIONS_BYTES_MAX), 1073758272u);
}

// ---- calls that take turns ----

std::string data_of(uint64_t author, size_t bytes) {
    std::string data = std::to_string(author) + ";";
    while (data.size() < bytes)
        data += static_cast<char>('a' + (author + data.size()) % 26);
    return data;
}

class Random : public testing::TestWithParam<unsigned> {};

// Appends, staged versions, deletions and reads, a step each by chance. Each publication has its
// own number; whoever reads sees a whole version, of the time of its call or later.
TEST_P(Random, EachAppendHasItsOwnVersionAndReadersSeeWholeOnes) {
    std::mt19937_64 random(GetParam());
    constexpr unsigned objects = 3;
    Table table(objects, 200, 700, base + 64);
    table.memory.scarce = true;
    struct Object {
        uint64_t name = 0;
        std::map<uint64_t, std::string> published;
        unsigned users = 0;
    };
    struct Job {
        std::optional<Call> call;
        enum { append, stage, publish, read } kind = append;
        unsigned object = 0;
        std::string data;
        uint64_t since = 0, room = 0;
        uint32_t number = 0;
    };
    std::vector<Object> all(objects);
    std::vector<Job> jobs(12);
    uint64_t authors = 0, reads = 0, deletions = 0;
    for (unsigned turn = 0; turn < 60'000; turn++) {
        Object& chosen = all[random() % objects];
        if (chosen.name && !chosen.users && random() % 4 == 0 && chosen.published.size() > 150) {
            ASSERT_EQ(table.remove(chosen.name).error, 0);
            chosen = {};
            deletions++;
        }
        if (!chosen.name)
            chosen.name = table.create().number;
        // Each publication that ended is seen, and none that didn't.
        const auto latest = table.by_reads(chosen.name);
        ASSERT_EQ(latest ? latest->first : 0, chosen.published.size());
        if (latest) {
            ASSERT_EQ(latest->second, chosen.published[latest->first]);
        }
        Job& job = jobs[random() % jobs.size()];
        if (!job.call) {
            job.object = static_cast<unsigned>(&chosen - all.data());
            job.since = chosen.published.empty() ? 0 : chosen.published.rbegin()->first;
            job.data = data_of(++authors, random() % 600);
            chosen.users++;
            switch (random() % 4) {
            case 0:
                job.kind = Job::append;
                job.call.emplace(table.begin_append(chosen.name, job.data));
                break;
            case 1:
                job.kind = Job::stage;
                job.call.emplace(table.begin(VERSIONS_STAGE, chosen.name));
                break;
            default:
                job.kind = Job::read;
                job.number = job.since ? static_cast<uint32_t>(random() % (job.since + 1)) : 0;
                job.call.emplace(table.begin(VERSIONS_READ, chosen.name, job.number));
            }
            continue;
        }
        if (job.call->step())
            continue;
        Object& object = all[job.object];
        const int error = job.call->outcome();
        if (job.kind == Job::read) {
            const Read read = read_of(*job.call);
            if (error) {
                ASSERT_EQ(error, -ENODATA);
                ASSERT_EQ(job.since, 0u);
            } else {
                ASSERT_GE(read.found.number, job.number ? job.number : job.since);
                ASSERT_EQ(read.data, object.published.at(read.found.number));
                reads++;
            }
        } else if (error) {
            ASSERT_EQ(error, -ENOSPC);
        } else if (job.kind == Job::stage) {
            const Made room = made(*job.call);
            table.write(room.addr, job.data);
            job.kind = Job::publish;
            job.call.emplace(table.begin(VERSIONS_PUBLISH, object.name,
                                         static_cast<uint32_t>(room.number),
                                         static_cast<uint32_t>(job.data.size())));
            continue;
        } else {
            const uint64_t number = made(*job.call).number;
            ASSERT_TRUE(object.published.emplace(number, job.data).second) << number;
            ASSERT_EQ(number, object.published.size());
        }
        object.users--;
        job.call.reset();
    }
    EXPECT_GT(reads, 3000u);
    EXPECT_GT(deletions, 2u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Random, testing::Range(1u, 9u));

TEST(Versions, ReaderThatSleepsSeesTheDeletion) {
    Table table(1, 4, 16);
    for (unsigned steps = 0; steps < steps_max; steps++) {
        const uint64_t object = table.create().number;
        table.append(object, "old");
        Call call = table.begin(VERSIONS_READ, object);
        bool ended = false;
        for (unsigned n = 0; n < steps && !ended; n++)
            ended = !call.step();
        table.remove(object);
        const uint64_t next = table.create().number;
        table.append(next, "new");
        call.run();
        if (ended) {
            EXPECT_EQ(read_of(call).data, "old");
        } else {
            EXPECT_EQ(call.outcome(), -ENOENT);
        }
        table.remove(next);
    }
}

// ---- damage ----

TEST(Versions, FreeListThatLeadsAstrayIsGivenUp) {
    for (uint32_t link : {4u, 1u << 31, ~0u}) {
        Table table(3, 4, 16);
        table.remove(table.create().number);
        std::memcpy(table.memory.at(base + offsetof(versions_table, free)), &link, 4);
        EXPECT_EQ(table.create().error, -EUCLEAN);
        EXPECT_EQ(table.create().error, 0) << "one that was never used";
    }
    Table table(3, 4, 16);
    const uint64_t object = table.create().number;
    table.append(object, "x");
    const uint32_t used = 1;
    std::memcpy(table.memory.at(base + offsetof(versions_table, free)), &used, 4);
    EXPECT_EQ(table.create().error, -EUCLEAN) << "the list leads to an object that is there";
    EXPECT_EQ(table.read(object).data, "x");
}

TEST(Versions, DamagedNumbersAreNotFollowed) {
    auto damaged = [](auto change) {
        Table table(2, 4, 16);
        const uint64_t object = table.create().number;
        table.append(object, "x");
        change(table, object, table.object_at(object));
    };
    auto put = [](Table& table, uint64_t at, auto value) {
        std::memcpy(table.memory.at(at), &value, sizeof(value));
    };
    for (uint32_t taken : {0u, 5u, ~0u})
        damaged([&](Table& table, uint64_t object, uint64_t at) {
            put(table, at + offsetof(versions_object, taken), taken);
            EXPECT_EQ(table.append(object, "y").error, -EUCLEAN);
            EXPECT_EQ(table.stage(object).error, -EUCLEAN);
            EXPECT_EQ(table.read(object).error, -EUCLEAN);
        });
    damaged([&](Table& table, uint64_t object, uint64_t at) {
        put(table, at, (1ull << 32) + 1);
        EXPECT_EQ(table.read(object).error, -EUCLEAN);
    });
    for (uint64_t entry : {4ull, 1ull << 31, 17ull << 32, ~0ull})
        damaged([&](Table& table, uint64_t object, uint64_t at) {
            put(table, at + sizeof(versions_object), entry);
            EXPECT_EQ(table.read(object).error, -EUCLEAN);
        });
    for (auto [offset, value] :
         {std::pair{offsetof(versions_table, versions), 0u},
          std::pair{offsetof(versions_table, versions), VERSIONS_MAX + 1},
          std::pair{offsetof(versions_table, version_bytes), VERSIONS_BYTES_MAX + 1},
          std::pair{offsetof(versions_table, objects), VERSIONS_OBJECTS_MAX + 1}})
        damaged([&, at_ = offset, number = value](Table& table, uint64_t object, uint64_t) {
            put(table, base + at_, number);
            EXPECT_EQ(table.read(object).error, -EUCLEAN);
            EXPECT_EQ(table.create().error, -EUCLEAN);
        });
}

// Random words in all of the table, also between the steps of a call. The memory is poisoned
// outside of each step's slices.
TEST(Versions, CallsOnHostileMemoryEnd) {
    Table table(3, 5, 100, base + 64);
    std::map<int, unsigned> outcomes;
    for (unsigned seed = 0; seed < 30'000; seed++) {
        std::mt19937_64 random(seed);
        auto scribble = [&](unsigned count) {
            for (unsigned n = 0; n < count; n++) {
                const uint64_t at = table.at + 8 + random() % 2300 / 4 * 4;
                const uint32_t words[] = {
                    static_cast<uint32_t>(random()), static_cast<uint32_t>(random() % 8),
                    static_cast<uint32_t>(random() % 200), 1u << random() % 32, ~0u};
                std::memcpy(table.memory.at(at), &words[random() % std::size(words)], 4);
            }
            // Often a table's head that can be, so that calls come farther.
            if (random() % 4) {
                const uint32_t head[] = {3, 5, 100, static_cast<uint32_t>(random() % 5),
                                         static_cast<uint32_t>(random() % 5)};
                std::memcpy(table.memory.at(table.at + 8), head, sizeof(head));
            }
            if (random() % 4)
                for (uint64_t index = 0; index < 3; index++) {
                    versions_object head{};
                    head.count = random() % 4;
                    head.generation = 1;
                    head.taken = static_cast<uint32_t>(random() % 6);
                    std::memcpy(table.memory.at(table.object_at(index)), &head, sizeof(head));
                }
        };
        scribble(100);
        const auto function = static_cast<uint32_t>(1 + random() % 6);
        const uint64_t object = random() % 8 ? random() % 3 | 1ull << 32 : random();
        Call call = function == VERSIONS_APPEND
                        ? table.begin_append(object, std::string(random() % 120, 'x'))
                        : table.begin(function, function == VERSIONS_CREATE ? 0 : object,
                                      function > VERSIONS_STAGE ? random() % 5 : 0,
                                      function == VERSIONS_PUBLISH ? random() % 120 : 0);
        while (call.step())
            scribble(random() % 2 ? 10 : 0);
        ASSERT_LE(call.steps(), steps_max) << seed;
        outcomes[call.outcome()]++;
    }
    for (auto [outcome, count] : outcomes) {
        const std::vector<int> known{0,        -EUCLEAN, -ENOENT, -EFAULT,   -ENOSPC,
                                     -ENODATA, -EBUSY,   -EINVAL, -EMSGSIZE, -EALREADY};
        EXPECT_TRUE(std::ranges::find(known, outcome) != known.end()) << outcome;
        std::printf("%d: %u\n", outcome, count);
    }
    EXPECT_GT(outcomes[0], 1000u);
    EXPECT_GT(outcomes[-EUCLEAN], 1000u);
}

} // namespace
