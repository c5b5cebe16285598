// SPDX-License-Identifier: GPL-2.0
// Packets without a number: when one may leave, and what its arrival changes.
#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "lone_receiver.hpp"

using namespace eqds;

namespace {

constexpr uint32_t ack_bytes = 152;

// A sender and its receiver; headers pass as bytes.
struct Ends {
    LoneReceiver far{0};
    eqds_receiver& r = far.r;
    eqds_sender s;
    std::vector<eqds_packet*> slots;
    std::vector<std::unique_ptr<eqds_packet>> packets;
    uint64_t now = 1'000'000'000;
    eqds_out out;
    eqds_head head;

    Ends() {
        far.config.trimming = true; // the sender starts with a window of credit
        slots.resize(far.config.window_packets);
        eqds_sender_init(&s, &far.config, slots.data(), nullptr, 0, 7, 0);
    }
    ~Ends() { eqds_sender_close(&s, &out); }

    static eqds_head carried(const eqds_head& head) {
        std::array<uint8_t, EQDS_WIRE_BYTES_MAX> wire;
        eqds_head parsed;
        eqds_wire_encode(&eqds_profile_extended, &head, wire.data());
        EXPECT_EQ(eqds_wire_parse(&eqds_profile_extended, wire.data(), wire.size(), &parsed),
                  EQDS_WIRE_GOOD);
        return parsed;
    }
    eqds_packet* node(uint32_t bytes = 0) {
        packets.push_back(std::make_unique<eqds_packet>());
        *packets.back() = {};
        packets.back()->bytes = bytes;
        return packets.back().get();
    }
    void offer() { eqds_sender_enqueue(&s, now, node(1500), &out); }
    // The next packet leaves; its header.
    eqds_head send() {
        eqds_head sent{};
        EXPECT_NE(eqds_sender_next(&s, now, &sent), nullptr);
        return sent;
    }
    void arrive(const eqds_head& sent) {
        const eqds_head parsed = carried(sent);
        eqds_receiver_receive(&r, now, &parsed, 1460, node(), &out);
        EXPECT_EQ(eqds_receiver_check(&r), nullptr);
    }
    void answer(eqds_head reply) {
        reply = carried(reply);
        eqds_sender_receive(&s, now, &reply, &out);
        EXPECT_EQ(eqds_sender_check(&s), nullptr);
    }
    void establish() {
        offer();
        arrive(send());
        answer(out.head);
        ASSERT_EQ(s.state, EQDS_SENDER_ESTABLISHED);
    }
    bool pass() {
        const bool may = eqds_sender_unnumbered(&s, now, ack_bytes, EQDS_PROTO_IPV4, &head);
        EXPECT_EQ(eqds_sender_check(&s), nullptr);
        return may;
    }
};

TEST(EqdsUnnumbered, LeavesOnlyOnceTheReceiverHasSaidThatItTakesThem) {
    Ends e;
    EXPECT_FALSE(e.pass());
    e.offer();
    EXPECT_FALSE(e.pass()) << "the tunnel isn't open";
    e.arrive(e.send());
    eqds_head old = e.out.head;
    old.marks &= ~EQDS_MARK_UNNUMBERED;
    e.answer(old);
    ASSERT_EQ(e.s.state, EQDS_SENDER_ESTABLISHED);
    EXPECT_FALSE(e.pass()) << "a receiver of before";
    e.offer();
    e.arrive(e.send());
    e.answer(e.out.head);
    EXPECT_TRUE(e.pass());
}

TEST(EqdsUnnumbered, CostsCreditAndIsRefusedWhileAnotherPacketWaits) {
    Ends e;
    e.establish();
    int left = 0;
    while (left < 100 && e.pass())
        left++;
    EXPECT_EQ(left, 1499 / int(ack_bytes)) << "a sender that rests keeps less than an MTU";
    e.offer(); // starts again, with a window of credit
    EXPECT_FALSE(e.pass()) << "another packet waits";
    e.send();
    EXPECT_TRUE(e.pass()) << "in flight is not in the queue";
}

TEST(EqdsUnnumbered, IsDeliveredAtOnceAndChangesNoNumber) {
    Ends e;
    e.establish();
    e.offer();
    e.offer();
    const eqds_head missing = e.send(), later = e.send();
    e.arrive(later);
    EXPECT_EQ(e.out.deliver, nullptr) << "it waits for the missing one";
    const uint32_t expected = e.r.expected, end = e.r.end, held = e.r.held;
    ASSERT_TRUE(e.pass());
    for (int copy = 0; copy < 2; copy++) {
        e.arrive(e.head);
        EXPECT_EQ(e.out.deliver, e.packets.back().get());
        EXPECT_EQ(e.out.deliver->next, nullptr);
        EXPECT_FALSE(e.out.send);
        EXPECT_EQ(e.r.expected, expected);
        EXPECT_EQ(e.r.end, end);
        EXPECT_EQ(e.r.held, held);
    }
    e.arrive(missing);
    EXPECT_NE(e.out.deliver, nullptr);
    e.answer(e.out.head);
    EXPECT_TRUE(e.s.resting);
}

TEST(EqdsUnnumbered, HasANumberWhileTheWindowIsFull) {
    Ends e;
    e.establish();
    for (uint32_t n = 0; n < e.far.config.window_packets; n++)
        eqds_sender_enqueue(&e.s, e.now, e.node(8), &e.out);
    for (uint32_t n = 0; n < e.far.config.window_packets; n++)
        e.send();
    EXPECT_GE(e.s.credit_bytes, ack_bytes);
    EXPECT_FALSE(e.pass()) << "its number would be beyond the receiver's window";
}

TEST(EqdsUnnumbered, PaysForCreditThatWouldCountAsUnused) {
    Ends e;
    e.establish();
    e.r.unused_bytes = 3000;
    ASSERT_TRUE(e.pass());
    e.arrive(e.head);
    EXPECT_EQ(e.r.unused_bytes, 3000 - 2 * ack_bytes);
}

TEST(EqdsUnnumbered, OfAnotherEpochIsRefusedAndFarFromTheWindowIsDropped) {
    Ends e;
    e.establish();
    ASSERT_TRUE(e.pass());
    eqds_head other = e.head;
    other.epoch++;
    e.arrive(other);
    EXPECT_EQ(e.out.verdict, EQDS_WRONG_EPOCH);
    EXPECT_TRUE(e.out.send && e.out.head.flags == EQDS_RST);
    EXPECT_EQ(e.out.deliver, nullptr);
    eqds_head far = e.head;
    far.seq += e.far.config.window_packets;
    e.arrive(far);
    EXPECT_EQ(e.out.verdict, EQDS_BEYOND);
    EXPECT_FALSE(e.out.send);
    EXPECT_EQ(e.out.deliver, nullptr);
    EXPECT_EQ(e.out.free, e.packets.back().get());
}

TEST(EqdsUnnumbered, HeaderHasNeitherFlagsNorTag) {
    eqds_head head{}, parsed;
    std::array<uint8_t, EQDS_WIRE_BYTES_MAX> wire;
    head.unnumbered = true;
    head.has_epoch = true;
    head.epoch = 9;
    head.seq = 5;
    head.bytes = ack_bytes;
    eqds_wire_encode(&eqds_profile_extended, &head, wire.data());
    auto parse = [&] {
        return eqds_wire_parse(&eqds_profile_extended, wire.data(), wire.size(), &parsed);
    };
    ASSERT_EQ(parse(), EQDS_WIRE_GOOD);
    EXPECT_TRUE(parsed.unnumbered && !parsed.tagged && !parsed.counted);
    EXPECT_EQ(parsed.seq, 5u);
    EXPECT_EQ(parsed.bytes, ack_bytes);
    for (uint8_t flag : {EQDS_SYN, EQDS_EMPTY, EQDS_FIN, EQDS_TRIM}) {
        wire[1] = flag;
        EXPECT_EQ(parse(), EQDS_WIRE_FLAGS);
    }
    wire[1] = 0;
    for (uint8_t kind : {EQDS_KIND_TAGGED, EQDS_KIND_COUNTED}) {
        wire[0] = EQDS_KIND_UNNUMBERED | kind;
        EXPECT_EQ(parse(), EQDS_WIRE_VERSION);
    }
}

} // namespace
