// SPDX-License-Identifier: GPL-2.0
// Whole packets: segments that the sender takes as one, and numbers that the IP ID counts.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <vector>

#include "lone_receiver.hpp"

using namespace eqds;

namespace {

constexpr uint32_t EACH = 1500, LAST = 400, WINDOW_MTUS = 64;

// A sender, and what its peer says.
struct EqdsWhole : testing::Test {
    eqds_config config;
    std::vector<eqds_packet*> slots;
    eqds_sender s;
    eqds_out out{};
    eqds_head head{};
    uint64_t now = 1000;
    uint32_t freed = 0; // numbers
    std::deque<std::vector<eqds_packet>> packets;

    EqdsWhole() {
        eqds_config_init(&config, &eqds_profile_extended, EACH, WINDOW_MTUS * EACH);
        config.trimming = true; // credit to start with
        start();
    }
    ~EqdsWhole() override { eqds_sender_close(&s, &out); }

    void start() {
        slots.assign(config.window_packets, nullptr);
        eqds_sender_init(&s, &config, slots.data(), nullptr, 1, 1, 0);
        s.proof.proven = true;
    }
    eqds_packet* enqueue(uint16_t segments) {
        packets.emplace_back(segments);
        eqds_packet* packet = packets.back().data();
        packet->bytes = (segments - 1) * EACH + LAST;
        packet->next_proto = EQDS_PROTO_IPV4;
        eqds_sender_enqueue_whole(&s, now, packet, segments - 1, EACH, &out);
        did();
        return packet;
    }
    eqds_packet* next() {
        eqds_packet* packet = eqds_sender_next(&s, now, &head);
        check();
        return packet;
    }
    void check() {
        const char* broken = eqds_sender_check(&s);
        ASSERT_FALSE(broken) << broken;
    }
    void did() {
        check();
        for (const eqds_packet* p = out.free; p; p = p->next)
            freed += p->more + 1;
    }
    void answer(uint32_t ack, uint64_t sack, uint8_t flags = 0, uint32_t echo = 0) {
        eqds_head said{};
        said.control = true;
        said.flags = EQDS_ACK | EQDS_SYN | flags;
        said.has_epoch = true;
        said.epoch = s.epoch;
        said.ack = ack;
        said.sack = sack;
        said.echo = echo;
        said.pull = s.pull;
        said.sender = 1;
        eqds_sender_receive(&s, now += 1000, &said, &out);
        did();
    }
    // Numbers that each part has which leaves now.
    std::vector<uint32_t> leave() {
        std::vector<uint32_t> parts;
        while (next())
            parts.push_back(head.counted + 1);
        return parts;
    }
    void pull(uint32_t pulls) {
        s.pull += pulls;
        s.credit_bytes += static_cast<int64_t>(pulls) * EACH;
    }
    void expire() {
        now = eqds_sender_deadline_ns(&s);
        eqds_sender_expire(&s, now, &out);
        did();
    }
};

TEST_F(EqdsWhole, WithCreditForAllLeavesUnderOneHeader) {
    eqds_packet* packet = enqueue(20);
    ASSERT_EQ(next(), packet);
    EXPECT_EQ(head.seq, 0u);
    EXPECT_EQ(head.counted, 19);
    EXPECT_EQ(head.bytes, EACH);
    EXPECT_EQ(s.next, 20u);
    EXPECT_EQ(s.credit_bytes, static_cast<int64_t>((WINDOW_MTUS - 19) * EACH - LAST));
    EXPECT_EQ(next(), nullptr);
    answer(20, 0);
    EXPECT_EQ(freed, 20u);
    EXPECT_TRUE(s.resting);
}

TEST_F(EqdsWhole, WithCreditForAPartLeavesInParts) {
    eqds_packet* packet = enqueue(100);
    ASSERT_EQ(next(), packet);
    EXPECT_EQ(head.counted, 63);
    EXPECT_EQ(next(), nullptr);
    EXPECT_EQ(s.queue.count, 36u);
    eqds_head pull{};
    pull.control = true;
    pull.flags = EQDS_ACK | EQDS_SYN;
    pull.has_epoch = true;
    pull.epoch = s.epoch;
    pull.ack = 10;
    pull.pull = 1;
    eqds_sender_receive(&s, now, &pull, &out);
    did();
    EXPECT_EQ(freed, 10u);
    ASSERT_EQ(next(), packet + 64);
    EXPECT_EQ(head.seq, 64u);
    EXPECT_EQ(head.counted, 0);
    EXPECT_EQ((packet + 64)->nth, 64);
    EXPECT_EQ(s.queue.head->nth, 65);
}

TEST_F(EqdsWhole, PartsThatArriveAreFreedOnce) {
    enqueue(20);
    next();
    answer(3, 0b1110, EQDS_SACK, 9); // all before 3; 5, 6, 7; 9
    EXPECT_EQ(freed, 7u);
    answer(3, 0b1110, EQDS_SACK, 9);
    EXPECT_EQ(freed, 7u);
    answer(4, ~0ull);
    EXPECT_EQ(freed, 19u);
    answer(20, 0);
    EXPECT_EQ(freed, 20u);
}

TEST_F(EqdsWhole, LostSegmentsAreRetransmittedOneByOne) {
    eqds_packet* packet = enqueue(20);
    next();
    answer(2, 0, EQDS_NACK, 5);
    ASSERT_EQ(next(), packet + 5);
    EXPECT_EQ(head.seq, 5u);
    EXPECT_EQ(head.attempt, 1);
    EXPECT_EQ(head.counted, 0);
    answer(18, 0);
    EXPECT_EQ(freed, 18u);
    expire();
    for (uint32_t seq : {18u, 19u}) {
        ASSERT_EQ(next(), packet + seq);
        EXPECT_EQ(head.seq, seq);
        EXPECT_EQ(head.attempt, 1);
        EXPECT_EQ(head.counted, 0);
        EXPECT_EQ(head.bytes, seq == 19 ? LAST : EACH);
        EXPECT_EQ(packet[seq].counted, true);
    }
}

TEST_F(EqdsWhole, NewEpochSendsUnacknowledgedPartsWholeAgain) {
    eqds_packet* packet = enqueue(20);
    next();
    answer(0, 0b10, EQDS_NACK, 7); // 2 is here
    eqds_head rst{};
    rst.control = true;
    rst.flags = EQDS_RST;
    rst.has_epoch = true;
    rst.epoch = s.epoch;
    rst.ack = s.epoch + 7;
    eqds_sender_receive(&s, now, &rst, &out);
    did();
    EXPECT_EQ(s.queue.count, 19u);
    EXPECT_EQ(s.queue.head, packet);
    s.credit_bytes = 20 * EACH;
    std::vector<uint16_t> sent;
    while (eqds_packet* part = eqds_sender_next(&s, now, &head)) {
        EXPECT_EQ(head.attempt, 0);
        for (uint16_t n = 0; n <= part->more; n++)
            sent.push_back(part->nth + n);
    }
    std::vector<uint16_t> left;
    for (uint16_t n = 0; n < 20; n++)
        if (n != 2)
            left.push_back(n);
    EXPECT_EQ(sent, left);
}

TEST_F(EqdsWhole, AnEpochThatIsFullTakesAPart) {
    config.epoch_packets = 12;
    start();
    enqueue(20);
    next();
    EXPECT_EQ(head.counted, 11);
    EXPECT_EQ(next(), nullptr);
    answer(12, 0);
    EXPECT_EQ(freed, 12u);
    EXPECT_EQ(s.epoch, 2u);
    next();
    EXPECT_EQ(head.seq, 0u);
    EXPECT_EQ(head.counted, 7);
}

TEST_F(EqdsWhole, FirstPartIsAProbeAndMoreFollowItsProof) {
    s.proof.proven = false;
    for (int n = 0; n < 3; n++)
        enqueue(4);
    EXPECT_EQ(leave(), (std::vector<uint32_t>{4, 1, 1, 1, 1, 1, 1, 1, 1}));
    // Of the first number the header tells, as of those that left alone.
    answer(1, 0b1111 << 3);
    enqueue(4);
    EXPECT_EQ(leave(), (std::vector<uint32_t>{1, 1, 1, 1}));
    // One number may have been told by chance.
    answer(1, 0b1);
    enqueue(4);
    EXPECT_EQ(leave(), (std::vector<uint32_t>{1, 1, 1, 1}));
    answer(1, 0b11);
    enqueue(4);
    enqueue(4);
    EXPECT_EQ(leave(), (std::vector<uint32_t>{4, 4}));
}

// As where all segments have one IP ID.
TEST_F(EqdsWhole, OneNumberOfEachProbeIsNoProof) {
    s.proof.proven = false;
    for (int n = 0; n < 4; n++) {
        enqueue(4);
        EXPECT_EQ(leave(), std::vector<uint32_t>{4}) << n;
        answer(s.next - 3, 0b1);
        expire();
        leave();
        answer(s.next, 0);
        EXPECT_FALSE(s.proof.proven) << n;
        now += 12'800'000'000;
    }
}

TEST_F(EqdsWhole, TrimmedNumbersAreProof) {
    s.proof.proven = false;
    enqueue(4);
    EXPECT_EQ(leave(), std::vector<uint32_t>{4});
    answer(1, 0, EQDS_NACK, 1);
    EXPECT_FALSE(s.proof.proven);
    answer(1, 0, EQDS_NACK, 2);
    EXPECT_TRUE(s.proof.proven);
    leave();
    for (int n = 0; n < 64; n++) {
        answer(s.next, 0);
        enqueue(2);
        leave();
        answer(s.next - 1, 0, EQDS_NACK, s.next - 1);
        leave();
    }
    EXPECT_TRUE(s.proof.proven) << "trimmed numbers count as missed";
}

TEST_F(EqdsWhole, SegmentsThatLeaveAloneSpendNoProbe) {
    s.proof.proven = false;
    s.state = EQDS_SENDER_ESTABLISHED;
    config.trimming = false; // no credit to start with
    enqueue(60);
    for (uint32_t n = 0; n < 50; n++) {
        pull(1);
        EXPECT_EQ(leave(), std::vector<uint32_t>{1});
        now += 10'000'000;
        answer(s.next, 0);
    }
    pull(3);
    EXPECT_EQ(leave(), std::vector<uint32_t>{3});
}

TEST_F(EqdsWhole, TimeBetweenUnansweredProbesDoublesUpTo12Point8Seconds) {
    s.proof.proven = false;
    uint64_t wait = 100'000'000;
    for (int n = 0; n < 10; n++, wait = std::min<uint64_t>(wait * 2, 12'800'000'000)) {
        enqueue(2);
        EXPECT_EQ(leave(), std::vector<uint32_t>{2});
        const uint64_t left_ns = now;
        // The second number is lost, and acknowledged when it comes by itself.
        answer(s.next - 1, 0);
        expire();
        EXPECT_EQ(leave(), std::vector<uint32_t>{1});
        answer(s.next, 0);
        ASSERT_LT(now, left_ns + wait - 1);
        now = left_ns + wait - 1;
        enqueue(2);
        EXPECT_EQ(leave(), (std::vector<uint32_t>{1, 1}));
        answer(s.next, 0); // takes a microsecond, so it is time for the next probe
    }
}

TEST_F(EqdsWhole, QueuedPacketsLeaveBySegmentAfterLostProof) {
    for (int n = 0; n < 32; n++) {
        enqueue(3);
        EXPECT_EQ(leave(), std::vector<uint32_t>{3});
        answer(s.next - 2, 0);
        expire();
        EXPECT_EQ(leave(), (std::vector<uint32_t>{1, 1}));
        EXPECT_TRUE(s.proof.proven);
        if (n == 31)
            for (int more = 0; more < 2; more++) {
                s.credit_bytes = 0;
                enqueue(3);
            }
        answer(s.next, 0);
    }
    EXPECT_FALSE(s.proof.proven);
    s.credit_bytes = 6 * EACH;
    EXPECT_EQ(leave(), (std::vector<uint32_t>{3, 1, 1, 1}));
}

// Losses, trims and reordering of single segments: every number is delivered in order, and freed
// once.
TEST_F(EqdsWhole, RandomNetworkDeliversEverySegmentOnceInOrder) {
    struct Held : eqds_packet {
        uint32_t id;
    };
    for (uint32_t seed = 1; seed <= 200; seed++) {
        std::mt19937 random(seed);
        LoneReceiver end{0};
        eqds_receiver& r = end.r;
        end.config.mtu_bytes = EACH;
        end.config.window_bytes = WINDOW_MTUS * EACH;
        packets.clear();
        freed = 0;
        start();
        std::map<uint32_t, uint32_t> id_of; // of sequence numbers
        std::map<const eqds_packet*, uint32_t> first_id;
        uint32_t offered = 0, delivered = 0;
        std::multimap<uint32_t, eqds_head> wire; // by a random key: reordered
        std::deque<std::unique_ptr<Held>> held;
        auto pass = [&] {
            while (eqds_packet* part = eqds_sender_next(&s, now, &head)) {
                check();
                uint32_t id = first_id[part - part->nth] + part->nth;
                for (uint16_t nth = 0; nth <= part->more; nth++) {
                    id_of[head.seq + nth] = id + nth;
                    std::vector<uint8_t> bytes(eqds_wire_bytes(&eqds_profile_extended, &head));
                    eqds_wire_encode(&eqds_profile_extended, &head, bytes.data());
                    eqds_head got{};
                    ASSERT_EQ(
                        eqds_wire_parse(&eqds_profile_extended, bytes.data(), bytes.size(), &got),
                        EQDS_WIRE_GOOD);
                    if (got.counted) {
                        ASSERT_TRUE(
                            eqds_wire_count(&got, static_cast<uint16_t>(head.seq + nth), 0));
                    }
                    ASSERT_EQ(got.seq, head.seq + nth);
                    if (random() % 16 == 0)
                        continue;
                    if (random() % 16 == 0)
                        got.flags |= EQDS_TRIM;
                    wire.emplace(random() % 8 ? wire.size() : random(), got);
                }
            }
        };
        for (uint32_t round = 0; round < 100'000 && (offered < 500 || freed < offered); round++) {
            if (offered < 500 && random() % 3 == 0) {
                uint16_t segments = 1 + random() % 60;
                uint32_t id = offered;
                offered += segments;
                packets.emplace_back(segments);
                first_id[packets.back().data()] = id;
                packets.back()[0].bytes = (segments - 1) * EACH + LAST;
                eqds_sender_enqueue_whole(&s, now, packets.back().data(), segments - 1, EACH, &out);
                did();
            }
            pass();
            now += 1000;
            std::vector<eqds_head> said;
            if (out.send)
                wire.emplace(random(), out.head);
            if (!wire.empty()) {
                eqds_head got = wire.begin()->second;
                wire.erase(wire.begin());
                held.push_back(std::make_unique<Held>());
                held.back()->id = id_of[got.seq];
                bool full = !(got.flags & (EQDS_TRIM | EQDS_EMPTY));
                eqds_out answered;
                eqds_receiver_receive(&r, now, &got, EACH, full ? held.back().get() : nullptr,
                                      &answered);
                ASSERT_EQ(eqds_receiver_check(&r), nullptr);
                for (eqds_packet* p = answered.deliver; p; p = p->next)
                    ASSERT_EQ(static_cast<Held*>(p)->id, delivered++) << "seed " << seed;
                if (answered.send)
                    said.push_back(answered.head);
            } else {
                now = std::max(
                    now, std::min(eqds_sender_deadline_ns(&s), eqds_asl_deadline_ns(&end.asl)));
            }
            eqds_head pull;
            while (eqds_receiver_next(&end.asl, now, &pull))
                said.push_back(pull);
            for (const eqds_head& each : said) {
                eqds_sender_receive(&s, now, &each, &out);
                did();
                pass();
                if (out.send)
                    wire.emplace(random(), out.head);
            }
            if (eqds_sender_deadline_ns(&s) <= now) {
                eqds_sender_expire(&s, now, &out);
                did();
            } else {
                out.send = false;
            }
        }
        ASSERT_EQ(freed, offered) << "seed " << seed;
        ASSERT_EQ(delivered, offered) << "seed " << seed;
        eqds_out ended;
        eqds_receiver_close(&r, &ended);
        eqds_sender_close(&s, &out);
    }
}

TEST(EqdsCounted, IdTellsTheNumber) {
    for (uint32_t first : {0u, 0xfffeu, 0x12345678u}) {
        eqds_head head{};
        head.seq = first;
        head.unacked = 3;
        head.counted = 9;
        ASSERT_TRUE(eqds_wire_count(&head, static_cast<uint16_t>(first + 4), 5));
        EXPECT_EQ(head.seq, first + 4);
        EXPECT_EQ(head.unacked, 7);
        EXPECT_EQ(head.more, 5);
    }
}

TEST(EqdsCounted, NumbersThatTheHeaderIsNotForAreRefused) {
    for (auto [id, more] :
         {std::pair{104, 6}, {110, 0}, {99, 0}, {100, 10}, {100, 65536}, {65535, 1}}) {
        eqds_head head{};
        head.seq = 100;
        head.counted = 9;
        EXPECT_FALSE(eqds_wire_count(&head, id, more)) << id << " " << more;
        EXPECT_EQ(head.seq, 100u);
    }
}

TEST(EqdsCounted, HeaderIsDataWithoutTagOfAnotherPacketAtLeast) {
    eqds_head head{}, got;
    head.has_epoch = true;
    head.counted = 9;
    head.next_proto = EQDS_PROTO_IPV4;
    uint8_t bytes[EQDS_DATA_BYTES + EQDS_TAG_BYTES] = {};
    eqds_wire_encode(&eqds_profile_extended, &head, bytes);
    EXPECT_EQ(bytes[0], EQDS_KIND_DATA | EQDS_KIND_COUNTED);
    ASSERT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &got), EQDS_WIRE_GOOD);
    EXPECT_EQ(got.counted, 9);
    EXPECT_EQ(got.attempt, 0);
    bytes[3] = 0;
    EXPECT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &got), EQDS_WIRE_FLAGS);
    bytes[3] = 9;
    bytes[1] = EQDS_EMPTY;
    EXPECT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &got), EQDS_WIRE_FLAGS);
    bytes[1] = 0;
    bytes[0] |= EQDS_KIND_TAGGED;
    EXPECT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &got),
              EQDS_WIRE_VERSION);
    bytes[0] = EQDS_KIND_CONTROL | EQDS_KIND_COUNTED;
    EXPECT_EQ(eqds_wire_parse(&eqds_profile_extended, bytes, sizeof(bytes), &got),
              EQDS_WIRE_VERSION);
}

} // namespace
