// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "wire_rig.hpp"

extern "C" {
#include "core/rmem/plain.h"
}

namespace {

using namespace wire;

struct Plain : testing::Test {
    base_siphash_key key = test_key();

    Message message(uint8_t type, size_t bytes = 16) {
        return wire::message(type, RMEM_LINK, key, bytes);
    }

    static void add(Bytes& record, const Message& m) {
        size_t at = record.size();
        record.resize(at + rmem_plain_bytes(static_cast<u32>(m.payload.size())));
        rmem_plain_encode(&record[at], &m.head);
        std::copy(m.payload.begin(), m.payload.end(), record.begin() + at + RMEM_PLAIN_BYTES);
    }
    static Bytes record_of(const std::vector<Message>& messages) {
        Bytes record;
        for (const Message& m : messages)
            add(record, m);
        return record;
    }

    // The messages, and what ended them: GOOD if the record did.
    struct Read {
        std::vector<rmem_head> heads;
        std::vector<Bytes> payloads;
        rmem_wire_verdict verdict = RMEM_WIRE_GOOD;
    };
    static Read read(const Bytes& record, bool response = false) {
        Read all;
        rmem_plain_record in;
        rmem_plain_begin(&in, static_cast<u32>(record.size()), response);
        for (u32 offset; rmem_plain_next(&in, &offset);) {
            all.verdict =
                rmem_plain_has_head(&in) ? rmem_plain_step(&in, &record[offset]) : RMEM_WIRE_SHORT;
            if (all.verdict != RMEM_WIRE_GOOD)
                break;
            auto from = record.begin() + in.payload_offset;
            all.heads.push_back(in.head);
            all.payloads.emplace_back(from, from + in.payload_bytes);
        }
        return all;
    }
    static rmem_wire_verdict changed(const Message& m,
                                     const std::function<void(rmem_plain&)>& change) {
        Bytes record = record_of({m});
        rmem_plain plain;
        std::memcpy(&plain, record.data(), sizeof(plain));
        change(plain);
        std::memcpy(record.data(), &plain, sizeof(plain));
        return read(record, m.head.type & RMEM_RESPONSE).verdict;
    }
};

TEST_F(Plain, LayoutIsTheHeadersOne) {
    Message m = message(RMEM_READ, 0x61626364);
    const uint8_t expect[] = {
        0x81, 5,    0,    200,
        0,    0,    0x38, 0, // version type status attempt op reserved above
        0x18, 0x17, 0x16, 0x15,
        0x14, 0x13, 0x12, 0x11, // session
        0x38, 0x37, 0x36, 0x35,
        0x34, 0x33, 0x32, 0x31, // id
        0x58, 0x57, 0x56, 0x55,
        0x54, 0x53, 0x52, 0x51, // addr
        0x64, 0x63, 0x62, 0x61,
        0x00, 0x10, 0,    0, // len part
    };
    static_assert(sizeof(expect) == RMEM_PLAIN_BYTES);
    Bytes record = record_of({m});
    ASSERT_EQ(record.size(), sizeof(expect));
    EXPECT_EQ(std::memcmp(record.data(), expect, sizeof(expect)), 0);
}

TEST_F(Plain, ABareAnswerTellsOfDataThatTheRecordLacks) {
    Bytes record = record_of({message(RMEM_READ | RMEM_RESPONSE, 65536)});
    record.resize(RMEM_PLAIN_BYTES);
    EXPECT_EQ(read(record, true).verdict, RMEM_WIRE_MALFORMED);
    rmem_plain_record in;
    rmem_plain_begin(&in, RMEM_PLAIN_BYTES, true);
    in.bare = true;
    ASSERT_EQ(rmem_plain_step(&in, record.data()), RMEM_WIRE_GOOD);
    EXPECT_EQ(in.head.len, 65536U);
    EXPECT_EQ(in.payload_bytes, 0U);
    u32 offset;
    EXPECT_FALSE(rmem_plain_next(&in, &offset));
}

TEST_F(Plain, ASmallAnswerFitsOneLineWithTheRingsHead) {
    EXPECT_EQ(8 + record_of({message(RMEM_READ | RMEM_RESPONSE, 16)}).size(), 64U);
}

TEST_F(Plain, EveryTypeThatFitsComesBackAndNoOther) {
    for (uint8_t request : requests) {
        for (uint8_t direction : {0, RMEM_RESPONSE}) {
            Message m = message(request | direction);
            bool fits = rmem_type_may_share(request) && !rmem_type_clears(request);
            EXPECT_EQ(rmem_plain_fits(&m.head), fits) << int(request);
            Read in = read(record_of({m}), direction != 0);
            EXPECT_EQ(in.verdict, fits ? RMEM_WIRE_GOOD : RMEM_WIRE_TYPE) << int(request);
            if (!fits)
                continue;
            const rmem_head& head = in.heads.at(0);
            EXPECT_TRUE(head.plain);
            EXPECT_EQ(head.type, m.head.type);
            EXPECT_EQ(head.integrity, RMEM_LINK);
            EXPECT_EQ(head.status, 0);
            EXPECT_EQ(head.attempt, m.head.attempt);
            EXPECT_EQ(head.op, m.head.op);
            EXPECT_EQ(head.session, m.head.session);
            EXPECT_EQ(head.id, m.head.id);
            EXPECT_EQ(head.floor, m.head.floor);
            EXPECT_EQ(head.addr, m.head.addr);
            EXPECT_EQ(head.len, m.head.len);
            EXPECT_EQ(head.offset, m.head.offset);
            EXPECT_EQ(head.piece, m.head.piece);
            EXPECT_EQ(in.payloads.at(0), m.payload);
            EXPECT_EQ(read(record_of({m}), direction == 0).verdict, RMEM_WIRE_TYPE);
        }
    }
}

TEST_F(Plain, OnlyAtLevelLink) {
    for (uint8_t level : {RMEM_DIGEST, RMEM_FULL}) {
        Message m = wire::message(RMEM_READ, level, key);
        EXPECT_FALSE(rmem_plain_fits(&m.head));
    }
}

TEST_F(Plain, FieldsThatCantBeAreRefused) {
    Message request = message(RMEM_READ), answer = message(RMEM_READ | RMEM_RESPONSE);
    const std::vector<std::pair<const Message&, std::function<void(rmem_plain&)>>> changes = {
        {request, [](auto& m) { m.status = 1; }},
        {request, [](auto& m) { m.reserved = 1; }},
        {request, [](auto& m) { m.session = 0; }},
        {request, [](auto& m) { m.id = 0; }},
        {request, [](auto& m) { m.op = 1; }},
        {request, [](auto& m) { m.part = 0x10000; }},
        {request, [](auto& m) { m.id = 1; }}, // the floor would be below 0
        {answer, [](auto& m) { m.above = 1; }},
        {answer, [](auto& m) { m.status = RMEM_STATUS_COUNT; }},
        {answer, [](auto& m) { m.len++; }}, // more than is there
        {answer, [](auto& m) { m.len = 0xffffffff; }},
        {answer, [](auto& m) { m.status = RMEM_REBOOTED, m.addr = 0; }},
    };
    for (const auto& [m, change] : changes)
        EXPECT_EQ(changed(m, change), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(changed(request, [](auto& m) { m.version = RMEM_VERSION; }), RMEM_WIRE_VERSION);
    EXPECT_EQ(changed(request, [](auto& m) { m.type = 0; }), RMEM_WIRE_TYPE);
    EXPECT_EQ(changed(request, [](auto& m) { m.type = RMEM_TYPE_END; }), RMEM_WIRE_TYPE);
}

TEST_F(Plain, AnAnswerOfARestartedNodeTellsItsBoot) {
    Message m = message(RMEM_READ | RMEM_RESPONSE, 0);
    m.head.status = RMEM_REBOOTED;
    m.payload.clear();
    Read in = read(record_of({m}), true);
    ASSERT_EQ(in.verdict, RMEM_WIRE_GOOD);
    EXPECT_EQ(in.heads[0].boot, m.head.boot);
}

TEST_F(Plain, MessagesOfARecordAreReadInTheirOrder) {
    std::vector<Message> messages = {message(RMEM_WRITE, 1), message(RMEM_READ, 5000),
                                     message(RMEM_ATOMIC, 8), message(RMEM_WRITE, 71)};
    Bytes record = record_of(messages);
    Read in = read(record);
    EXPECT_EQ(in.verdict, RMEM_WIRE_GOOD);
    ASSERT_EQ(in.heads.size(), messages.size());
    for (size_t i = 0; i < messages.size(); i++)
        EXPECT_EQ(in.payloads[i], messages[i].payload);
    for (size_t bytes = 1; bytes < record.size(); bytes++) {
        Read cut = read(Bytes(record.begin(), record.begin() + static_cast<long>(bytes)));
        EXPECT_LT(cut.heads.size(), messages.size()) << bytes;
    }
}

TEST_F(Plain, ARecordIsBoundedInMessagesBytesAndWork) {
    struct {
        Message m;
        size_t fit;
    } cases[] = {{message(RMEM_WRITE, 1), RMEM_BUNDLE_MAX},
                 {message(RMEM_WRITE, 3000), RMEM_DATAGRAM_BYTES_MAX / 3040},
                 {message(RMEM_READ, RMEM_READ_BYTES_MAX / 2), 2},
                 {message(RMEM_READ, RMEM_READ_BYTES_MAX), 1}};
    for (const auto& [m, fit] : cases) {
        rmem_plain_sum sum{};
        size_t joined = 0;
        while (rmem_plain_joins(&sum, &m.head, static_cast<u32>(m.payload.size())))
            joined++;
        EXPECT_EQ(joined, fit);
        EXPECT_EQ(read(record_of(std::vector<Message>(fit, m))).verdict, RMEM_WIRE_GOOD);
        Read more = read(record_of(std::vector<Message>(fit + 1, m)));
        EXPECT_EQ(more.verdict, RMEM_WIRE_MALFORMED);
        EXPECT_EQ(more.heads.size(), fit);
    }
}

} // namespace
