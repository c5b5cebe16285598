// SPDX-License-Identifier: GPL-2.0
// What a node refuses, and what it doesn't even answer: copies, late and foreign messages,
// forgeries.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "client.hpp"

namespace remora::test {

namespace {

void expect_silence(const Message& message, const std::string& what) {
    EXPECT_TRUE(pair().ask(message).empty()) << what;
}

// ---- executed at most once ----

TEST(Once, CopyIsAnsweredButNotExecuted) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    client.floor = client.next_id;
    Message first = client.write_request(region, 0, {1, 1, 1, 1});
    EXPECT_EQ(client.ask(first), RMEM_OK);
    EXPECT_EQ(client.write(region, 1, {2, 2}), RMEM_OK);
    first.head.attempt++;
    EXPECT_EQ(client.ask(first), RMEM_OK);
    EXPECT_EQ(client.read(region, 0, 4), (Bytes{1, 2, 2, 1}));
    Message zero = client.clear_request(RMEM_ZERO, region, 0, 2);
    EXPECT_EQ(client.ask(zero), RMEM_OK);
    EXPECT_EQ(client.write(region, 0, {3}), RMEM_OK);
    EXPECT_EQ(client.ask(zero), RMEM_OK);
    EXPECT_EQ(client.read(region, 0, 4), (Bytes{3, 0, 2, 1}));
}

TEST(Once, LateCopyOfAFinishedWriteIsStale) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    Message late = client.write_request(region, 0, {1});
    EXPECT_EQ(client.ask(late), RMEM_OK);
    EXPECT_EQ(client.write(region, 0, {2}), RMEM_OK);
    EXPECT_EQ(client.ask(late), RMEM_STALE);
    late.head.floor = 0; // a floor doesn't fall
    EXPECT_EQ(client.ask(late), RMEM_STALE);
    EXPECT_EQ(client.read(region, 0, 1), Bytes{2});
}

// No floor has passed its id when the place is allocated.
TEST(Once, RefusedWriteIsRefusedAgain) {
    Client client(RMEM_DIGEST);
    Client other(RMEM_DIGEST, 1);
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(page);
    client.floor = client.next_id;
    Message late = client.write_request(region, 2 * page, {1}); // behind the guard
    EXPECT_EQ(client.ask(late), RMEM_FAULT);
    unsigned int next = other.allocate(page);
    const std::vector<std::uint64_t>& base = pair().network().names.base;
    ASSERT_EQ(base[next], base[region] + 2 * page) << "not where the test wants it";
    EXPECT_EQ(client.ask(late), RMEM_FAULT);
    EXPECT_EQ(other.read(next, 0, 1), Bytes{0});
    EXPECT_EQ(client.write(next, 0, {2}), RMEM_OK);
    EXPECT_EQ(client.ask(late), RMEM_FAULT);
    EXPECT_EQ(other.read(next, 0, 1), Bytes{2});
    client.floor = 0;
}

TEST(Once, IdsAreRememberedAsFarAsTheWindow) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    client.floor = client.next_id;
    Message last = client.write_request(region, 0, {1});
    last.head.id = client.floor + RMEM_WINDOW - 1;
    EXPECT_EQ(client.ask(last), RMEM_OK);
    Message beyond = client.write_request(region, 0, {2});
    beyond.head.id = client.floor + RMEM_WINDOW;
    EXPECT_EQ(client.ask(beyond), RMEM_INVALID);
    Message read = client.read_request(region, 0, 1);
    read.head.id = client.floor + 2 * RMEM_WINDOW;
    EXPECT_EQ(pair().ask_one(read).payload, Bytes{1});
    beyond.head.floor = beyond.head.id;
    EXPECT_EQ(client.ask(beyond), RMEM_OK);
    EXPECT_EQ(client.ask(last), RMEM_STALE);
    client.next_id = client.floor + 3 * RMEM_WINDOW;
    client.floor = 0;
}

TEST(Once, OverlappingWritesOfOneFloorAllCount) {
    Client client(RMEM_FULL);
    unsigned int region = client.allocate(4096);
    client.floor = client.next_id;
    std::vector<Message> writes;
    Bytes shadow(64);
    for (std::uint8_t i = 0; i < 50; i++) {
        Bytes data(14, i);
        writes.push_back(client.write_request(region, i, data));
    }
    for (std::uint8_t i : {7, 3, 40, 41, 39, 0, 3, 7, 20, 49, 40})
        EXPECT_EQ(client.ask(writes[i]), RMEM_OK);
    for (std::uint8_t i : {7, 3, 40, 41, 39, 0, 20, 49})
        std::fill_n(shadow.begin() + i, 14, i);
    EXPECT_EQ(client.read(region, 0, 64), shadow);
    client.floor = 0;
}

// ---- not this session's ----

TEST(Foreign, AnotherBootIsTold) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    for (rmem_type type : {RMEM_CLOSE, RMEM_READ, RMEM_DISCARD, RMEM_ZERO}) {
        Message message = client.clear_request(type, region, 0, 1);
        message.head.boot = 0x1234'5678'9abc'def0ULL;
        Answer answer = pair().ask_one(message);
        EXPECT_EQ(answer.head.status, RMEM_REBOOTED);
        EXPECT_EQ(answer.head.boot, this_boot) << "the answer has the current boot";
    }
}

TEST(Foreign, AnotherLevelIsRefused) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    for (rmem_integrity level : {RMEM_LINK, RMEM_FULL}) {
        Message write = client.write_request(region, 0, {1});
        write.head.integrity = level;
        EXPECT_EQ(client.ask(write), RMEM_INVALID);
        Message close = client.request(RMEM_CLOSE);
        close.head.integrity = level;
        EXPECT_EQ(client.ask(close), RMEM_INVALID);
    }
    EXPECT_EQ(client.read(region, 0, 1), Bytes{0});
}

TEST(Foreign, AnotherPeerIsRefused) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    Message write = client.write_request(region, 0, {1});
    write.from = 1;
    EXPECT_EQ(client.ask(write), RMEM_NO_SESSION);
    write.from = 0;
    EXPECT_EQ(client.ask(write), RMEM_OK);
}

TEST(Foreign, UnknownSessionIsRefused) {
    Client client(RMEM_DIGEST);
    for (std::uint64_t session : {std::uint64_t{1} << 40, ~std::uint64_t{0} - 7}) {
        for (rmem_type type : {RMEM_CLOSE, RMEM_READ, RMEM_ZERO}) {
            Message message = client.clear_request(type, no_region, 0, 1);
            message.head.session = session;
            EXPECT_EQ(client.ask(message), RMEM_NO_SESSION);
        }
    }
}

TEST(Foreign, OpenThatContradictsItselfIsRefused) {
    Client client(RMEM_DIGEST);
    Message level = client.open_request();
    level.head.integrity = RMEM_FULL;
    EXPECT_EQ(client.ask(level), RMEM_INVALID);
    Message length = client.open_request();
    length.head.len = 3;
    EXPECT_EQ(client.ask(length), RMEM_INVALID);
    Message reserved = client.open_request();
    reserved.payload = [payload = reserved.payload](const Names& names) {
        Bytes bytes = payload(names);
        bytes.back() = 1;
        return bytes;
    };
    EXPECT_EQ(client.ask(reserved), RMEM_INVALID);
}

TEST(Foreign, OpenWithAnUnknownChallengeGetsAnother) {
    Client client(RMEM_DIGEST);
    Message open = client.open_request();
    open.head.addr = 4096;
    NetworkSide& network = pair().network();
    std::vector<Bytes> answers = network.exchange(pair().render({open}, network.names), 0);
    ASSERT_EQ(answers.size(), 1U);
    std::optional<rmem_head> head = wire::answer_head(answers[0]);
    ASSERT_TRUE(head);
    EXPECT_EQ(head->status, RMEM_CHALLENGE);
    EXPECT_NE(head->addr, 0U);
    EXPECT_NE(head->addr, open.head.addr);
    EXPECT_EQ(head->session, 0U);
}

// ---- not answered at all ----

TEST(Silence, WrongKeyAndUnknownSpace) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    Message write = client.write_request(region, 0, {1});
    write.key = key_random();
    expect_silence(write, "wrong key");
    Message open = client.open_request();
    open.key = key_random();
    expect_silence(open, "OPEN with a wrong key");
    Message space = client.write_request(region, 0, {1});
    space.head.space = ~pair().space();
    expect_silence(space, "unknown space");
    EXPECT_EQ(client.read(region, 0, 1), Bytes{0});
}

TEST(Silence, TruncatedHeader) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    for (std::size_t bytes = 0; bytes < RMEM_HEADS_BYTES(1); bytes++) {
        Message write = client.write_request(region, 0, {1});
        write.spoil = [=](Bytes& datagram) { datagram.resize(bytes); };
        expect_silence(write, fmt::format("{} bytes", bytes));
    }
    EXPECT_EQ(client.read(region, 0, 1), Bytes{0});
}

TEST(Silence, EveryBitOfTheHeadsIsCovered) {
    Client client(RMEM_DIGEST);
    unsigned int region = client.allocate(4096);
    for (unsigned int bit = 0; bit < RMEM_HEADS_BYTES(1) * 8; bit++) {
        Message write = client.write_request(region, 0, {1});
        write.spoil = [=](Bytes& datagram) {
            datagram[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
        };
        expect_silence(write, fmt::format("bit {}", bit));
    }
    EXPECT_EQ(client.read(region, 0, 1), Bytes{0});
}

// Verified messages that no client may send.
TEST(Silence, MalformedHeader) {
    Client client(RMEM_DIGEST);
    auto spoilt = [&](auto change) {
        Message message = client.clear_request(RMEM_ZERO, no_region, 0, 1);
        change(message.head);
        return message;
    };
    std::vector<Message> messages = {
        spoilt([](rmem_head& head) { head.type = 0; }),
        spoilt([](rmem_head& head) { head.type = RMEM_TYPE_END; }),
        spoilt([](rmem_head& head) { head.type |= RMEM_RESPONSE; }),
        spoilt([](rmem_head& head) { head.integrity = 3; }),
        spoilt([](rmem_head& head) { head.integrity = 8; }),
        spoilt([](rmem_head& head) { head.status = RMEM_BUSY; }),
        spoilt([](rmem_head& head) { head.space = 0; }),
        spoilt([](rmem_head& head) { head.session = 0; }),
        spoilt([](rmem_head& head) { head.boot = 0; }),
        spoilt([](rmem_head& head) { head.id = head.floor = 0; }),
        spoilt([](rmem_head& head) { head.floor = head.id + 1; }),
        spoilt([](rmem_head& head) { head.piece = 1024; }),
    };
    for (std::size_t i = 0; i < messages.size(); i++)
        expect_silence(messages[i], fmt::format("message {}", i));
}

// ---- traffic classes ----

// The daemon's answers have none, the kernel's that of EDM's requests. Class selector 7 is the
// network's own.
TEST(Class, ClientChoosesNoneOfTheNodesAnswers) {
    constexpr int network_control = 0xe0, assured = 0x88;
    Client client(RMEM_DIGEST, 2);
    unsigned int region = client.allocate(4096);
    for (int chosen : {network_control, assured}) {
        pair().network().set_traffic_class(2, chosen);
        EXPECT_EQ(client.write(region, 0, {1, 2, 3}), RMEM_OK);
        EXPECT_EQ(pair().network().traffic_class(), 0) << "asked with " << chosen;
    }
    pair().network().set_traffic_class(2, 0);
}

// ---- damage ----

struct Damage {
    const char* name;
    std::function<void(Bytes&)> spoil;
};

const std::vector<Damage> lengths = {
    {"a byte missing", [](Bytes& datagram) { datagram.pop_back(); }},
    {"a byte more", [](Bytes& datagram) { datagram.push_back(0); }},
    {"no payload", [](Bytes& datagram) { datagram.resize(RMEM_HEADS_BYTES(1)); }},
};

void flip_last(Bytes& datagram) {
    datagram.back() ^= 0x10;
}

TEST(Damage, IsToldWhereTheLevelTellsItApart) {
    for (rmem_integrity level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        Client client(level);
        unsigned int region = client.allocate(4096);
        Message write = client.write_request(region, 0, random_bytes(100));
        write.spoil = flip_last;
        if (level == RMEM_FULL)
            expect_silence(write, "a bit flipped");
        else
            EXPECT_EQ(client.ask(write), level == RMEM_LINK ? RMEM_OK : RMEM_DAMAGED);
        write.spoil = nullptr;
        write.head.attempt++;
        EXPECT_EQ(client.ask(write), RMEM_OK) << "sent again";
        EXPECT_EQ(client.read(region, 0, 100).size(), 100U);
    }
}

TEST(Silence, AnotherLengthThanTheHeadSays) {
    for (rmem_integrity level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        Client client(level);
        unsigned int region = client.allocate(4096);
        for (const Damage& damage : lengths) {
            for (Message message :
                 {client.write_request(region, 0, random_bytes(100)), client.open_request()}) {
                message.spoil = damage.spoil;
                expect_silence(message, damage.name);
            }
        }
        EXPECT_EQ(client.read(region, 0, 100), Bytes(100));
    }
}

TEST(Damage, PayloadsOfControlAreUnderTheTag) {
    Client client(RMEM_LINK);
    for (Message message : {client.open_request(), client.alloc_request(1, RMEM_PERM_READ)}) {
        message.spoil = flip_last;
        expect_silence(message, "a bit flipped");
    }
}

} // namespace

} // namespace remora::test
