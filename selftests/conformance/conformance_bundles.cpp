// SPDX-License-Identifier: GPL-2.0
// Several messages in a datagram: each has its own answer, and answers share datagrams as far as
// the client said.
#include <algorithm>
#include <cstddef>

#include <gtest/gtest.h>

#include "client.hpp"

namespace remora::test {

namespace {

using Datagrams = std::vector<std::vector<Answer>>;
using Counts = std::vector<std::size_t>;
using Statuses = std::vector<int>;

// A jumbo frame's.
constexpr std::uint16_t wide = 8972;

Counts counts(const Datagrams& datagrams) {
    Counts counts;
    for (const std::vector<Answer>& answers : datagrams)
        counts.push_back(answers.size());
    return counts;
}

Statuses statuses(const Datagrams& datagrams) {
    Statuses statuses;
    for (const std::vector<Answer>& answers : datagrams) {
        for (const Answer& answer : answers)
            statuses.push_back(answer.head.status);
    }
    return statuses;
}

Statuses all(std::size_t count, int status) {
    return Statuses(count, status);
}

class Bundle : public testing::TestWithParam<rmem_integrity> {
protected:
    Bundle() : client(GetParam(), 0, wide), region(client.allocate(2 * pair().page_bytes())) {
        // Neither is a page missing later, nor the region's ALLOC to be acknowledged.
        EXPECT_EQ(client.write(region, 0, {0}), RMEM_OK);
        EXPECT_EQ(client.write(region, pair().page_bytes(), {0}), RMEM_OK);
        client.floor = client.next_id;
    }

    Message write(std::uint64_t offset, std::size_t bytes) {
        return client.write_request(region, offset, random_bytes(bytes));
    }
    Bytes content() { return client.read(region, 0, 4096); }

    Client client;
    unsigned int region;
};

std::string level_name(const testing::TestParamInfo<rmem_integrity>& info) {
    static constexpr const char* names[] = {"Link", "Digest", "Full"};
    return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(Conformance, Bundle, testing::Values(RMEM_LINK, RMEM_DIGEST, RMEM_FULL),
                         level_name);

// ---- answers ----

TEST_P(Bundle, WritesAndReadsAreAnsweredTogether) {
    std::vector<Message> writes, reads;
    Bytes written;
    for (std::uint64_t i = 0; i < 8; i++) {
        Bytes data = random_bytes(100 + i);
        writes.push_back(client.write_request(region, written.size(), data));
        reads.push_back(client.read_request(region, written.size(), static_cast<u32>(data.size())));
        written.insert(written.end(), data.begin(), data.end());
    }
    Datagrams answers = pair().ask_together(writes);
    EXPECT_EQ(counts(answers), Counts{8});
    EXPECT_EQ(statuses(answers), all(8, RMEM_OK));
    answers = pair().ask_together(reads);
    ASSERT_EQ(counts(answers), Counts{8});
    Bytes read;
    for (std::size_t i = 0; i < 8; i++) {
        EXPECT_EQ(answers[0][i].head.id, reads[i].head.id);
        read.insert(read.end(), answers[0][i].payload.begin(), answers[0][i].payload.end());
    }
    EXPECT_EQ(read, written);
}

// A READ before a change in the same datagram may get old or new content.
TEST_P(Bundle, TypesThatMayShare) {
    ASSERT_EQ(client.write(region, 0, Bytes(300, 7)), RMEM_OK);
    Message write = client.write_request(region, 250, {1, 2});
    Datagrams answers = pair().ask_together(
        {client.read_request(region, 0, 100), client.clear_request(RMEM_ZERO, region, 100, 100),
         write, client.read_request(region, 100, 200),
         client.clear_request(RMEM_DISCARD, region, 1000, 10),
         client.atomic_request(RMEM_ADD, region, 400, 4, 1), client.read_request(region, 400, 4),
         client.copy_request(region, 600, region, 200, 100),
         client.read_request(region, 600, 100)});
    ASSERT_EQ(counts(answers), Counts{9});
    EXPECT_EQ(statuses(answers), all(9, RMEM_OK));
    EXPECT_EQ(answers[0][0].payload, Bytes(100, 7));
    Bytes after(200, 7);
    std::fill_n(after.begin(), 100, std::uint8_t{0});
    after[150] = 1;
    after[151] = 2;
    EXPECT_EQ(answers[0][3].payload, after);
    EXPECT_EQ(answers[0][5].payload, Bytes(sizeof(rmem_found)));
    EXPECT_EQ(answers[0][6].payload, Bytes({1, 0, 0, 0}));
    EXPECT_EQ(answers[0][8].payload, Bytes(after.begin() + 100, after.end()));
}

// Answers may wait for those to the next datagram. It comes here, or it doesn't.
TEST_P(Bundle, MoreThatMayFollow) {
    ASSERT_EQ(client.write(region, 0, {1, 2}), RMEM_OK);
    NetworkSide& network = pair().network();
    Message first = client.read_request(region, 0, 1), second = client.read_request(region, 1, 1);
    first.head.more = true;
    for (const std::vector<Message>& messages : {std::vector<Message>{first}, {first, second}}) {
        std::size_t answers = 0;
        for (const Message& message : messages)
            network.send(pair().render({message}, network.names), 0);
        while (answers < messages.size()) {
            std::optional<Bytes> datagram = network.receive(0, 20'000);
            ASSERT_TRUE(datagram) << "an answer waits for ever";
            std::optional<rmem_head> head = wire::answer_head(*datagram);
            ASSERT_TRUE(head);
            EXPECT_EQ(head->id, messages[answers].head.id);
            answers += (datagram->size() - RMEM_HDR_BYTES) / (RMEM_MSG_BYTES + 1);
        }
    }
}

TEST_P(Bundle, RefusalsAmongOthers) {
    ASSERT_EQ(client.write(region, 0, {0}), RMEM_OK); // the node learns the floor
    Message first = write(0, 10);
    first.head.floor = 0; // as if it had been sent before the floor rose
    Message stale = write(0, 1);
    stale.head.id = client.floor - 1;
    Message beyond = write(0, 1);
    beyond.head.id = client.floor + RMEM_WINDOW;
    Datagrams answers = pair().ask_together({first, stale, client.read_request(no_region, 0, 1),
                                             beyond, client.read_request(region, 0, 10),
                                             client.write_request(no_region, 0, {1}),
                                             client.clear_request(RMEM_ZERO, region, 0, 0)});
    EXPECT_EQ(counts(answers), Counts{7});
    EXPECT_EQ(statuses(answers), (Statuses{RMEM_OK, RMEM_STALE, RMEM_FAULT, RMEM_INVALID, RMEM_OK,
                                           RMEM_FAULT, RMEM_INVALID}));
}

TEST_P(Bundle, AnswersFillDatagramsToTheByte) {
    constexpr std::uint32_t bytes = 400;
    constexpr std::size_t reads = 7;
    auto asked = [&](std::size_t datagram_bytes) {
        Client other(GetParam(), 1, static_cast<std::uint16_t>(datagram_bytes));
        std::vector<Message> messages;
        for (std::size_t i = 0; i < reads; i++)
            messages.push_back(other.read_request(region, i, bytes));
        return counts(pair().ask_together(messages));
    };
    auto cut = [](std::size_t each) {
        Counts counts(reads / each, each);
        if (reads % each)
            counts.push_back(reads % each);
        return counts;
    };
    for (std::size_t each : {2U, 3U, 7U}) {
        std::size_t full = RMEM_HDR_BYTES + each * (RMEM_MSG_BYTES + bytes);
        EXPECT_EQ(asked(full), cut(each)) << each;
        EXPECT_EQ(asked(full - 1), cut(each - 1)) << each;
        EXPECT_EQ(asked(full + RMEM_MSG_BYTES + bytes - 1), cut(each)) << each;
    }
}

TEST_P(Bundle, AnswersTravelAloneUnlessTheClientAskedForMore) {
    constexpr unsigned int two = RMEM_HEADS_BYTES(2);
    for (unsigned int datagram_bytes : {0U, 1U, two - 1, two}) {
        Client other(GetParam(), 1, static_cast<std::uint16_t>(datagram_bytes));
        Datagrams answers = pair().ask_together({other.write_request(region, 0, {1}),
                                                 other.write_request(region, 1, {1}),
                                                 other.write_request(region, 2, {1})});
        EXPECT_EQ(statuses(answers), all(3, RMEM_OK));
        EXPECT_EQ(counts(answers), datagram_bytes < two ? (Counts{1, 1, 1}) : (Counts{2, 1}));
    }
}

TEST_P(Bundle, PartsOfALargeReadShareDatagramsWithOthers) {
    constexpr std::uint32_t piece = RMEM_PIECE_BYTES_MIN;
    auto read = [&](std::uint64_t offset, std::uint32_t bytes) {
        Message message = client.read_request(region, offset, bytes);
        message.head.piece = piece;
        return message;
    };
    ASSERT_EQ(client.write(region, 2 * piece - 3, random_bytes(100)), RMEM_OK);
    // A datagram takes eight parts and some 400 bytes.
    EXPECT_EQ(counts(pair().ask_together({read(0, 100), read(1, 8 * piece), read(2, 400)})),
              (Counts{9, 1}));
    EXPECT_EQ(counts(pair().ask_together({read(5, 20 * piece)})), (Counts{8, 8, 4}));
    EXPECT_EQ(counts(pair().ask_together({read(5, 9 * piece), write(0, 3), read(6, 9 * piece)})),
              (Counts{8, 9, 2}));
}

// ---- requests ----

TEST_P(Bundle, SixteenAndNotOneMore) {
    std::vector<Message> writes;
    for (unsigned int i = 0; i < RMEM_BUNDLE_MAX; i++)
        writes.push_back(write(i, 1));
    Datagrams answers = pair().ask_together(writes);
    EXPECT_EQ(counts(answers), Counts{RMEM_BUNDLE_MAX});
    EXPECT_EQ(statuses(answers), all(RMEM_BUNDLE_MAX, RMEM_OK));
    Bytes before = content();
    writes.clear();
    for (unsigned int i = 0; i <= RMEM_BUNDLE_MAX; i++)
        writes.push_back(write(i * 8, 8));
    EXPECT_TRUE(pair().ask_together(writes).empty());
    EXPECT_EQ(content(), before);
    std::vector<Message> reads(RMEM_BUNDLE_MAX + 1, client.read_request(region, 0, 1));
    EXPECT_TRUE(pair().ask_together(reads).empty());
}

TEST_P(Bundle, PayloadsTogetherAreNoMoreThanOnesLargest) {
    std::uint32_t half = RMEM_PIECE_BYTES_MAX / 2;
    ASSERT_GE(pair().piece_bytes(), half);
    EXPECT_EQ(statuses(pair().ask_together({write(0, half), write(half, half)})), all(2, RMEM_OK));
    Bytes before = content();
    EXPECT_TRUE(pair().ask_together({write(0, half), write(half, half + 1)}).empty());
    EXPECT_EQ(content(), before);
}

// One datagram makes for bounded work at the node.
TEST_P(Bundle, ReadsTogetherAreNoMoreThanOnesLargest) {
    u32 bytes = RMEM_READ_BYTES_MAX / 4;
    if (2 * pair().page_bytes() < bytes)
        GTEST_SKIP() << "the region is smaller than what is to be read";
    std::vector<Message> reads;
    for (int i = 0; i < 4; i++)
        reads.push_back(client.read_request(region, 0, bytes));
    for (int status : statuses(pair().ask_together(reads)))
        EXPECT_EQ(status, RMEM_OK);
    reads.push_back(client.read_request(region, 0, 1));
    EXPECT_TRUE(pair().ask_together(reads).empty());
    u32 range = static_cast<u32>(2 * pair().page_bytes());
    std::vector<Message> mixed = {client.read_request(region, 0, bytes)};
    for (int i = 0; i < 15; i++) {
        Message discard = client.request(RMEM_DISCARD);
        discard.head.len = RMEM_ZERO_BYTES_MAX / 15;
        mixed.push_back(discard);
    }
    EXPECT_TRUE(pair().ask_together(mixed).empty());
    EXPECT_EQ(client.read(region, 0, range).size(), range) << "and the session goes on";
}

TEST_P(Bundle, CopiesInOneAreExecutedOnce) {
    Message first = client.write_request(region, 0, {1, 1, 1});
    Message copy = first;
    copy.head.attempt++;
    copy.payload = [](const Names&) { return Bytes{2, 2, 2}; };
    Message other = client.write_request(region, 1, {3});
    Message zero = client.clear_request(RMEM_ZERO, region, 2, 1);
    Message again = client.write_request(region, 2, {4});
    Datagrams answers = pair().ask_together({first, copy, other, first, zero, again, zero, copy});
    EXPECT_EQ(counts(answers), Counts{8});
    EXPECT_EQ(statuses(answers), all(8, RMEM_OK));
    EXPECT_EQ(client.read(region, 0, 3), (Bytes{1, 3, 4}));
}

TEST_P(Bundle, DamagedPayloadIsItsMessagesAlone) {
    std::vector<Message> writes;
    for (std::uint64_t i = 0; i < 4; i++)
        writes.push_back(write(i * 100, 100));
    writes[0].spoil = [](Bytes& datagram) { datagram[RMEM_HEADS_BYTES(4) + 150] ^= 0x10; };
    Datagrams answers = pair().ask_together(writes);
    switch (GetParam()) {
    case RMEM_LINK: // the UDP checksum's business
        EXPECT_EQ(statuses(answers), all(4, RMEM_OK));
        break;
    case RMEM_DIGEST:
        EXPECT_EQ(statuses(answers), (Statuses{RMEM_OK, RMEM_DAMAGED, RMEM_OK, RMEM_OK}));
        break;
    case RMEM_FULL:
    case RMEM_SEALED: // not among this suite's levels
        EXPECT_TRUE(answers.empty());
        break;
    }
    writes[0].spoil = nullptr;
    for (Message& each : writes)
        each.head.attempt++;
    EXPECT_EQ(statuses(pair().ask_together(writes)), all(4, RMEM_OK)) << "sent again";
}

// ---- datagrams that aren't one ----

struct Spoiling {
    const char* name;
    std::function<void(Bytes&)> spoil;
};

const std::vector<Spoiling> spoilings = {
    {"a byte more", [](Bytes& datagram) { datagram.push_back(0); }},
    {"a head more", [](Bytes& datagram) { datagram.resize(datagram.size() + RMEM_MSG_BYTES); }},
    {"a byte missing", [](Bytes& datagram) { datagram.pop_back(); }},
    {"a payload missing", [](Bytes& datagram) { datagram.resize(datagram.size() - 50); }},
    {"no payloads", [](Bytes& datagram) { datagram.resize(RMEM_HEADS_BYTES(3)); }},
    {"heads missing", [](Bytes& datagram) { datagram.resize(RMEM_HEADS_BYTES(2) + 7); }},
    {"another count", [](Bytes& datagram) { datagram[offsetof(rmem_hdr, messages)]--; }},
    {"no message", [](Bytes& datagram) { datagram[offsetof(rmem_hdr, messages)] = 0; }},
    {"a bit of the last head", [](Bytes& datagram) { datagram[RMEM_HEADS_BYTES(3) - 12] ^= 0x10; }},
};

// The answer to the damaged one joins no others, but they join it.
TEST_P(Bundle, FifteenAnswersFollowThatToADamagedPayload) {
    if (GetParam() != RMEM_DIGEST)
        GTEST_SKIP() << "no message is damaged by itself";
    std::vector<Message> writes;
    for (std::uint64_t i = 0; i < RMEM_BUNDLE_MAX; i++)
        writes.push_back(write(i * 100, 10));
    writes[0].spoil = [](Bytes& datagram) { datagram[RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX)] ^= 0x10; };
    Datagrams answers = pair().ask_together(writes);
    Statuses expected = all(RMEM_BUNDLE_MAX, RMEM_OK);
    expected.front() = RMEM_DAMAGED;
    EXPECT_EQ(answers.size(), 1U);
    EXPECT_EQ(statuses(answers), expected);
}

TEST_P(Bundle, SpoiltDatagramIsIgnoredAsAWhole) {
    for (const Spoiling& each : spoilings) {
        SCOPED_TRACE(each.name);
        Bytes before = content();
        std::vector<Message> messages = {write(0, 100), client.read_request(region, 0, 10),
                                         write(100, 50)};
        messages[0].spoil = each.spoil;
        EXPECT_TRUE(pair().ask_together(messages).empty());
        EXPECT_EQ(content(), before);
        messages[0].spoil = nullptr;
        std::swap(messages[1], messages[2]); // a READ before the change may get either
        EXPECT_EQ(statuses(pair().ask_together(messages)), all(3, RMEM_OK)) << "sent again";
    }
}

TEST_P(Bundle, MalformedMessageAmongOthers) {
    std::vector<std::function<void(rmem_head&)>> changes = {
        [](rmem_head& head) { head.type = RMEM_TYPE_END; },
        [](rmem_head& head) { head.type |= RMEM_RESPONSE; },
        [](rmem_head& head) { head.status = RMEM_BUSY; },
        [](rmem_head& head) { head.op = 1; },
        [](rmem_head& head) { head.id = 0; },
    };
    for (std::size_t i = 0; i < changes.size(); i++) {
        SCOPED_TRACE(i);
        Bytes before = content();
        std::vector<Message> messages = {client.read_request(region, 0, 1), write(0, 4),
                                         write(4, 4), write(8, 4)};
        changes[i](messages[2].head);
        EXPECT_TRUE(pair().ask_together(messages).empty());
        EXPECT_EQ(content(), before);
    }
}

TEST_P(Bundle, TypesThatTravelAlone) {
    Message read = client.read_request(region, 0, 1);
    for (const Message& alone : {client.request(RMEM_CLOSE), client.request(RMEM_FENCE),
                                 client.alloc_request(1, RMEM_PERM_READ),
                                 client.free_request(region, 2 * pair().page_bytes())}) {
        EXPECT_TRUE(pair().ask_together({read, alone}).empty());
        EXPECT_TRUE(pair().ask_together({alone, read}).empty());
    }
    EXPECT_TRUE(pair().ask_together({client.open_request(), read}).empty());
    EXPECT_EQ(client.read(region, 0, 1).size(), 1U) << "the session ended";
}

} // namespace

} // namespace remora::test
