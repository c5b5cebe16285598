// SPDX-License-Identifier: GPL-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

Bytes encode(const eqds_profile& profile, const eqds_head& head) {
    Bytes bytes(eqds_wire_bytes(&profile, &head), 0xee);
    eqds_wire_encode(&profile, &head, bytes.data());
    return bytes;
}

eqds_wire_verdict parse(const eqds_profile& profile, const Bytes& bytes, eqds_head* head) {
    Bytes exact(bytes); // so that a read beyond the end is found
    exact.shrink_to_fit();
    return eqds_wire_parse(&profile, exact.data(), exact.size(), head);
}

// A distinct value in every field.
eqds_head data(uint8_t flags) {
    eqds_head head{};
    head.flags = flags;
    head.has_epoch = true;
    head.attempt = 0x11;
    head.epoch = 0x21222324;
    head.pull = 0x31323334;
    head.sender = 0x4142;
    head.seq = 0x51525354;
    head.path = 0x6162;
    head.bytes = 0x7172;
    head.next_proto = EQDS_PROTO_IPV6;
    head.unacked = 0x8182;
    head.stamp = 0x91929394;
    head.backlog_bytes = 0xa1a2a3a4;
    head.cookie = 0xb1b2b3b4b5b6b7b8;
    return head;
}

eqds_head control(uint8_t flags) {
    eqds_head head{};
    head.control = true;
    head.flags = flags;
    head.has_epoch = true;
    head.attempt = 0x11;
    head.epoch = 0x21222324;
    head.pull = 0x31323334;
    head.sender = 0x4142;
    head.marks = EQDS_MARK_CE;
    head.busy_us = 0x5152;
    head.ack = 0x61626364;
    head.echo = 0x71727374;
    head.sack = 0x8182838485868788;
    head.cookie = 0x9192939495969798;
    return head;
}

void expect_equal(const eqds_head& a, const eqds_head& b) {
    EXPECT_EQ(a.control, b.control);
    EXPECT_EQ(a.flags, b.flags);
    EXPECT_EQ(a.has_epoch, b.has_epoch);
    EXPECT_EQ(a.attempt, b.attempt);
    EXPECT_EQ(a.epoch, b.epoch);
    EXPECT_EQ(a.pull, b.pull);
    EXPECT_EQ(a.sender, b.sender);
    EXPECT_EQ(a.seq, b.seq);
    EXPECT_EQ(a.path, b.path);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.next_proto, b.next_proto);
    EXPECT_EQ(a.ce, b.ce);
    EXPECT_EQ(a.unacked, b.unacked);
    EXPECT_EQ(a.stamp, b.stamp);
    EXPECT_EQ(a.backlog_bytes, b.backlog_bytes);
    EXPECT_EQ(a.marks, b.marks);
    EXPECT_EQ(a.busy_us, b.busy_us);
    EXPECT_EQ(a.ack, b.ack);
    EXPECT_EQ(a.echo, b.echo);
    EXPECT_EQ(a.sack, b.sack);
    EXPECT_EQ(a.cookie, b.cookie);
}

// The packets that the two ends send, by their flags.
const uint8_t data_kinds[] = {0,
                              EQDS_SYN,
                              EQDS_EMPTY,
                              EQDS_SYN | EQDS_EMPTY,
                              EQDS_FIN | EQDS_EMPTY,
                              EQDS_SYN | EQDS_FIN | EQDS_EMPTY,
                              EQDS_TRIM,
                              EQDS_SYN | EQDS_TRIM};
const uint8_t control_kinds[] = {EQDS_ACK,
                                 EQDS_ACK | EQDS_SYN,
                                 EQDS_ACK | EQDS_SACK,
                                 EQDS_ACK | EQDS_SACK | EQDS_SYN,
                                 EQDS_ACK | EQDS_NACK,
                                 EQDS_ACK | EQDS_NACK | EQDS_SYN,
                                 EQDS_SACK,
                                 EQDS_NACK,
                                 EQDS_RST,
                                 EQDS_PAUSE | EQDS_SYN | EQDS_NACK};

TEST(EqdsWire, EveryPacketIsReadAsItWasWritten) {
    eqds_head head;
    for (uint8_t flags : data_kinds) {
        Bytes bytes = encode(eqds_profile_extended, data(flags));
        EXPECT_EQ(bytes.size(), EQDS_DATA_BYTES);
        ASSERT_EQ(parse(eqds_profile_extended, bytes, &head), EQDS_WIRE_GOOD) << int(flags);
        expect_equal(head, data(flags));
    }
    for (uint8_t flags : control_kinds) {
        Bytes bytes = encode(eqds_profile_extended, control(flags));
        EXPECT_EQ(bytes.size(), EQDS_CONTROL_BYTES);
        ASSERT_EQ(parse(eqds_profile_extended, bytes, &head), EQDS_WIRE_GOOD) << int(flags);
        expect_equal(head, control(flags));
    }
}

TEST(EqdsWire, FieldsLieWhereTheHeaderSaysInNetworkOrder) {
    const Bytes data_bytes = {0x11, EQDS_SYN, 41,   0x11, 0x21, 0x22, 0x23, 0x24, 0x51, 0x52,
                              0x53, 0x54,     0x31, 0x32, 0x33, 0x34, 0x61, 0x62, 0x41, 0x42,
                              0x71, 0x72,     0x81, 0x82, 0x91, 0x92, 0x93, 0x94, 0xa1, 0xa2,
                              0xa3, 0xa4,     0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8};
    EXPECT_EQ(encode(eqds_profile_extended, data(EQDS_SYN)), data_bytes);
    const Bytes control_bytes = {0x12, EQDS_ACK, 0x01, 0x11, 0x21, 0x22, 0x23, 0x24, 0x61, 0x62,
                                 0x63, 0x64,     0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x51, 0x52,
                                 0x71, 0x72,     0x73, 0x74, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86,
                                 0x87, 0x88,     0x91, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98};
    EXPECT_EQ(encode(eqds_profile_extended, control(EQDS_ACK)), control_bytes);
}

TEST(EqdsWire, RtsIsNoLongerThanItsHeader) {
    for (uint64_t cookie : {0, 1}) {
        eqds_head rts = data(EQDS_SYN | EQDS_EMPTY);
        rts.cookie = cookie;
        EXPECT_EQ(encode(eqds_profile_extended, rts).size(), EQDS_DATA_BYTES);
        EXPECT_EQ(encode(eqds_profile_paper, rts).size(), EQDS_PAPER_BYTES);
    }
}

TEST(EqdsWire, EveryTruncatedLengthIsShort) {
    eqds_head head;
    for (const eqds_head& whole : {data(0), data(EQDS_SYN | EQDS_EMPTY), control(EQDS_ACK)})
        for (const eqds_profile* profile : {&eqds_profile_extended, &eqds_profile_paper}) {
            Bytes bytes = encode(*profile, whole);
            uint32_t needed = eqds_wire_header_bytes(profile, whole.control);
            for (size_t length = 0; length < needed; length++)
                EXPECT_EQ(parse(*profile, Bytes(bytes.begin(), bytes.begin() + length), &head),
                          EQDS_WIRE_SHORT)
                    << length;
            bytes.resize(needed);
            EXPECT_EQ(parse(*profile, bytes, &head), EQDS_WIRE_GOOD);
            bytes.resize(needed + 1500);
            EXPECT_EQ(parse(*profile, bytes, &head), EQDS_WIRE_GOOD);
        }
}

TEST(EqdsWire, OtherVersionsAndKindsAreRefused) {
    eqds_head head;
    Bytes bytes = encode(eqds_profile_extended, data(0));
    for (uint32_t kind = 0; kind < 256; kind++) {
        bytes[0] = kind;
        eqds_wire_verdict verdict = parse(eqds_profile_extended, bytes, &head);
        if ((kind & ~EQDS_KIND_COUNTED) == EQDS_KIND_DATA || kind == EQDS_KIND_UNNUMBERED)
            EXPECT_EQ(verdict, EQDS_WIRE_GOOD);
        else if ((kind & ~EQDS_KIND_TAGGED) == EQDS_KIND_DATA ||
                 kind == (EQDS_KIND_CONTROL | EQDS_KIND_TAGGED))
            EXPECT_EQ(verdict, EQDS_WIRE_SHORT); // no room for the tag
        else // a control packet needs flags that data may not have
            EXPECT_EQ(verdict, kind == EQDS_KIND_CONTROL ? EQDS_WIRE_FLAGS : EQDS_WIRE_VERSION);
    }
}

// The rules of remora/eqds.h, one for one.
bool allowed(bool is_control, uint8_t flags) {
    auto has = [&](uint8_t f) { return (flags & f) != 0; };
    if (!is_control) {
        if (has(EQDS_NACK) || has(EQDS_SACK) || has(EQDS_ACK) || has(EQDS_PAUSE))
            return false;
        if (has(EQDS_FIN) && !has(EQDS_EMPTY)) // FIN: the end of the tunnel, no packet
            return false;
        return !(has(EQDS_TRIM) && has(EQDS_EMPTY)); // there was no payload to cut off
    }
    if (has(EQDS_EMPTY) || has(EQDS_TRIM))
        return false;
    if (!has(EQDS_NACK) && !has(EQDS_SACK) && !has(EQDS_ACK))
        return false;
    if (has(EQDS_NACK) && has(EQDS_SACK)) // one echo
        return false;
    if (has(EQDS_FIN))
        return flags == EQDS_RST;
    return !has(EQDS_PAUSE) || flags == (EQDS_PAUSE | EQDS_SYN | EQDS_NACK);
}

TEST(EqdsWire, FlagsThatExcludeEachOtherAreRefused) {
    eqds_head head;
    for (bool is_control : {false, true})
        for (uint32_t flags = 0; flags < 256; flags++) {
            Bytes bytes = encode(eqds_profile_extended, is_control ? control(EQDS_ACK) : data(0));
            bytes[1] = flags;
            EXPECT_EQ(parse(eqds_profile_extended, bytes, &head),
                      allowed(is_control, flags) ? EQDS_WIRE_GOOD : EQDS_WIRE_FLAGS)
                << is_control << " " << flags;
        }
    for (uint32_t flags = 0; flags < 256; flags++) {
        Bytes bytes(EQDS_PAPER_BYTES);
        bytes[0] = flags;
        bool is_control = flags & EQDS_CONTROL_FLAGS;
        EXPECT_EQ(parse(eqds_profile_paper, bytes, &head),
                  allowed(is_control, flags) ? EQDS_WIRE_GOOD : EQDS_WIRE_FLAGS)
            << flags;
        EXPECT_EQ(head.control, is_control);
    }
}

TEST(EqdsWirePaper, DataFieldsLieAsFigure4Says) {
    eqds_head head = data(0);
    const Bytes bytes = {0, 41, 0x53, 0x54, 0x33, 0x34, 0x62, 0x42};
    EXPECT_EQ(encode(eqds_profile_paper, head), bytes);
    eqds_head read;
    ASSERT_EQ(parse(eqds_profile_paper, bytes, &read), EQDS_WIRE_GOOD);
    eqds_head want{};
    want.next_proto = 41;
    want.seq = 0x5354;
    want.pull = 0x3334;
    want.path = 0x62;
    want.sender = 0x42;
    expect_equal(read, want);
}

TEST(EqdsWirePaper, SynTellsTheEpochByTheUpperBitsOfItsNumber) {
    eqds_head head{}, read;
    head.flags = EQDS_SYN;
    head.has_epoch = true;
    head.epoch = 37;
    head.seq = eqds_epoch_start(&eqds_profile_paper, 37) + 5;
    ASSERT_EQ(parse(eqds_profile_paper, encode(eqds_profile_paper, head), &read), EQDS_WIRE_GOOD);
    EXPECT_TRUE(read.has_epoch);
    EXPECT_EQ(read.epoch, 37u);
    EXPECT_EQ(read.seq, 37u * 1024 + 5);
    head.flags = 0;
    ASSERT_EQ(parse(eqds_profile_paper, encode(eqds_profile_paper, head), &read), EQDS_WIRE_GOOD);
    EXPECT_FALSE(read.has_epoch);
}

TEST(EqdsWirePaper, ControlPacketHasOneNumberThatItsFlagsName) {
    struct {
        uint8_t flags;
        uint32_t ack, echo;
        uint8_t sent_flags;
        uint32_t read_ack, read_echo;
    } const cases[] = {
        {EQDS_ACK, 2000, 0, EQDS_ACK, 2000, 0},
        {EQDS_ACK | EQDS_NACK, 2000, 2003, EQDS_NACK, 0, 2003},
        {EQDS_ACK | EQDS_SACK, 2000, 2003, EQDS_SACK, 0, 2003},
        {EQDS_ACK | EQDS_SACK, 2000, 2000, EQDS_SACK, 0, 2000},
        {EQDS_ACK | EQDS_SACK, 2000, 1999, EQDS_ACK, 2000, 0}, // ack says more
        {EQDS_RST, 0, 2003, EQDS_RST, 0, 2003},
    };
    for (auto c : cases) {
        eqds_head head = control(c.flags), read;
        head.ack = c.ack;
        head.echo = c.echo;
        head.epoch = 1;
        ASSERT_EQ(parse(eqds_profile_paper, encode(eqds_profile_paper, head), &read),
                  EQDS_WIRE_GOOD);
        EXPECT_EQ(read.flags, c.sent_flags);
        EXPECT_EQ(read.ack, c.read_ack);
        EXPECT_EQ(read.echo, c.read_echo);
        EXPECT_EQ(read.pull, 0x3334u);
        EXPECT_EQ(read.busy_us, 0x5152u);
        EXPECT_EQ(read.sender, 0x42u);
        EXPECT_FALSE(read.has_epoch);
    }
}

TEST(EqdsWirePaper, SynAckKeepsItsEpochHoweverFarTheTunnelHasCome) {
    for (uint32_t sent : {0u, 1u, 1023u, 1024u, 5000u, 65000u}) {
        eqds_head head{}, read;
        head.control = true;
        head.flags = EQDS_ACK | EQDS_SYN;
        head.has_epoch = true;
        head.epoch = 63;
        head.ack = eqds_add(63 * 1024, sent, 16);
        ASSERT_EQ(parse(eqds_profile_paper, encode(eqds_profile_paper, head), &read),
                  EQDS_WIRE_GOOD);
        EXPECT_EQ(read.epoch, 63u) << sent;
        EXPECT_EQ(read.ack, 63u * 1024 + std::min(sent, 1023u));
    }
}

TEST(EqdsNumbers, WrapInEveryWidth) {
    for (uint8_t bits : {2, 3, 16, 32}) {
        const uint32_t last = eqds_mask(bits), half = 1u << (bits - 1);
        EXPECT_EQ(eqds_add(last, 1, bits), 0u);
        EXPECT_EQ(eqds_add(0, ~0u, bits), last);
        EXPECT_EQ(eqds_ahead(0, last, bits), 1);
        EXPECT_EQ(eqds_ahead(last, 0, bits), -1);
        EXPECT_EQ(eqds_ahead(half - 1, 0, bits), int32_t(half - 1));
        EXPECT_LT(eqds_ahead(half, 0, bits), 0); // half the space ahead counts as behind
        EXPECT_EQ(eqds_ahead(5 & last, 5 & last, bits), 0);
    }
}

TEST(EqdsConfig, RefusesParametersThatTheNumbersCannotCarry) {
    auto valid = [](const eqds_profile& profile, auto change) {
        eqds_config config;
        eqds_config_init(&config, &profile, 1500, 30000);
        change(config);
        return eqds_config_is_valid(&config);
    };
    const eqds_profile &extended = eqds_profile_extended, &paper = eqds_profile_paper;
    EXPECT_TRUE(valid(extended, [](eqds_config&) {}));
    EXPECT_TRUE(valid(paper, [](eqds_config&) {}));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.mtu_bytes = 0; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.mtu_bytes = c.window_bytes = 65536; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.window_bytes = 1499; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.window_bytes = (1 << 30) + 1; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.window_packets = 0; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.window_packets = 48; }));
    EXPECT_TRUE(valid(extended, [](eqds_config& c) { c.window_packets = 1024; }));
    EXPECT_FALSE(valid(paper, [](eqds_config& c) { c.window_packets = 1024; }));
    EXPECT_FALSE(valid(paper, [](eqds_config& c) { c.window_bytes = 1500 * 32768; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.timeouts_max = 0; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.rto_min_ns = 0; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.rto_max_ns = c.rto_min_ns - 1; }));
    EXPECT_FALSE(valid(extended, [](eqds_config& c) { c.idle_ns = 0; }));
}

} // namespace
