// SPDX-License-Identifier: GPL-2.0
// The matcher: order of service, phase lock, aging, bounds, shares.
#include <random>

#include "matcher.hpp"

namespace edm {

namespace {

TEST(EdmMatch, LoneMessageIsGrantedInChunksBackToBack) {
    Matcher rack(4);
    const uint64_t start = rack.now;
    const uint32_t id = rack.add(0, 1, 3 * chunk + 100);
    rack.run(10 * chunk);
    ASSERT_EQ(rack.booked.size(), 4u);
    for (uint32_t n = 0; n < 4; n++) {
        EXPECT_EQ(rack.booked[n].at_ns, start + n * chunk);
        EXPECT_EQ(rack.booked[n].bytes, n < 3 ? chunk : 100);
        EXPECT_EQ(rack.booked[n].end, n < 3 ? (n + 1) * chunk : 3 * chunk + 100);
    }
    EXPECT_EQ(rack.took(0, 1, id), 3 * chunk + 100);
}

TEST(EdmMatch, FractionsOfNanosecondsAddUpOverManyChunks) {
    edm_match_config config = match_config(2);
    config.chunk_bytes = config.unit_bytes = 64;
    Matcher rack(config);
    // 100 Gb/s: 64 bytes take 5.12 ns.
    edm_match_follow(&rack.m, rack.now, 0, edm_match_byte_q24(100'000'000'000, 1000));
    edm_match_follow(&rack.m, rack.now, 1, edm_match_byte_q24(100'000'000'000, 1000));
    const uint32_t id = rack.add(0, 1, 64'000);
    rack.run(6000);
    EXPECT_NEAR(static_cast<double>(rack.took(0, 1, id)), 5120, 2);
}

TEST(EdmMatch, LateTimersDoNotLowerThePortsRate) {
    edm_match_config config = match_config(2);
    config.late_bytes_max = chunk / 2;
    Matcher rack(config);
    const uint64_t start = rack.now;
    rack.add(0, 1, 100 * chunk);
    for (uint64_t n = 1; n < 100; n++) {
        rack.now = std::max(rack.now, start + n * chunk + n * 97 % (chunk / 2));
        rack.drain();
    }
    ASSERT_EQ(rack.booked.size(), 100u);
    EXPECT_EQ(rack.booked.back().ends_ns, start + 100 * chunk);
}

TEST(EdmMatch, PortThatWasIdleMakesUpForNothing) {
    edm_match_config config = match_config(2);
    config.late_bytes_max = chunk / 2;
    Matcher rack(config);
    rack.add(0, 1, chunk);
    rack.run(chunk + chunk / 2 + 1);
    const uint64_t start = rack.now;
    rack.add(0, 1, 2 * chunk);
    rack.run(4 * chunk);
    EXPECT_EQ(rack.booked.back().ends_ns, start + 2 * chunk);
}

TEST(EdmMatch, ShorterMessageGoesFirstUnderSrpt) {
    Matcher rack(4);
    rack.add(0, 3, 10 * chunk);
    rack.add(1, 3, 20 * chunk);
    const uint32_t id = rack.add(2, 3, 64);
    rack.run(chunk);
    EXPECT_EQ(rack.booked.back().source, 2) << "behind the chunk under way";
    EXPECT_EQ(rack.took(2, 3, id), chunk + 64);
    rack.run(100 * chunk);
    uint64_t last_of_0 = 0, last_of_1 = 0;
    for (const Booked& b : rack.booked)
        (b.source == 0 ? last_of_0 : last_of_1) = b.at_ns;
    EXPECT_LT(last_of_0, last_of_1);
}

TEST(EdmMatch, ShorterMessageOfTheSamePairPassesALongerOne) {
    Matcher rack(2);
    rack.add(0, 1, 50 * chunk);
    const uint32_t id = rack.add(0, 1, 64);
    rack.run(60 * chunk);
    EXPECT_LE(rack.took(0, 1, id), chunk + 64);
}

TEST(EdmMatch, InOrderPairKeepsTheOrderOfArrival) {
    edm_match_config config = match_config(2);
    config.demand.in_order = true;
    Matcher rack(config);
    rack.add(0, 1, 10 * chunk);
    rack.run(10);
    const uint32_t id = rack.add(0, 1, 64);
    rack.run(60 * chunk);
    EXPECT_GE(rack.took(0, 1, id), 9 * chunk);
    EXPECT_EQ(rack.booked.back().id, id);
}

TEST(EdmMatch, FcfsServesByArrivalWhateverTheSizes) {
    edm_match_config config = match_config(8);
    config.demand.policy = EDM_FCFS;
    Matcher rack(config);
    std::vector<uint16_t> order;
    rack.add(0, 7, 3 * chunk);
    for (uint16_t source : {5, 2, 6, 1, 4}) {
        rack.run(config.demand.turn_ns);
        rack.add(source, 7, source == 5 ? 4 * chunk : 64);
    }
    rack.run(100 * chunk);
    for (const Booked& b : rack.booked)
        if (order.empty() || order.back() != b.source)
            order.push_back(b.source);
    EXPECT_EQ(order, (std::vector<uint16_t>{0, 5, 2, 6, 1, 4}));
}

TEST(EdmMatch, FcfsOrderSurvivesMoreTurnsThanLevels) {
    edm_match_config config = match_config(64);
    config.demand.policy = EDM_FCFS;
    config.demand.turn_ns = 16;
    Matcher rack(config);
    for (uint16_t source = 1; source < 64; source++) {
        rack.add(source, 0, chunk);
        rack.run(16);
    }
    rack.run(100 * chunk);
    ASSERT_EQ(rack.booked.size(), 63u);
    // The first 28 waited in turns of their own; the rest share the last turn.
    for (uint16_t n = 0; n < 28; n++)
        EXPECT_EQ(rack.booked[n].source, n + 1);
}

TEST(EdmMatch, SourcesOfOneLevelTakeTurns) {
    Matcher rack(4);
    for (uint16_t source = 0; source < 3; source++)
        rack.add(source, 3, 4000 * chunk); // all in the level of the longest
    rack.run(60 * chunk);
    for (uint16_t source = 0; source < 3; source++)
        EXPECT_NEAR(static_cast<double>(rack.bytes_from(source)), 20.0 * chunk, 2.0 * chunk);
}

TEST(EdmMatch, DisjointPairsAreGrantedAtOnce) {
    Matcher rack(8);
    const uint64_t start = rack.now;
    for (uint16_t port = 0; port < 4; port++)
        rack.add(port, port + 4, chunk);
    ASSERT_EQ(rack.booked.size(), 4u);
    for (const Booked& b : rack.booked)
        EXPECT_EQ(b.at_ns, start);
}

TEST(EdmMatch, BetterPairReachedThroughTheOtherPortIsBookedFirst) {
    Matcher rack(4);
    rack.add(0, 1, chunk);     // keeps source 0
    rack.add(2, 3, chunk);     // keeps destination 3
    rack.add(0, 3, 8 * chunk); // both ports become idle at once
    const uint32_t id = rack.add(2, 3, 64);
    rack.run(2 * chunk);
    EXPECT_LE(rack.took(2, 3, id), chunk + 64) << "port 0 was looked at first";
}

// Two long flows whose chunks end at different times, and a short message between their ports.
uint64_t short_message_between_long_flows(edm_match_config config, uint64_t phase_ns = chunk / 2) {
    Matcher rack(config);
    rack.add(0, 1, 400 * chunk);
    rack.run(phase_ns);
    rack.add(2, 3, 400 * chunk);
    rack.run(5 * chunk);
    const uint32_t id = rack.add(0, 3, 64);
    rack.run(1000 * chunk);
    return rack.took(0, 3, id);
}

TEST(EdmMatch, ShortMessageBetweenPortsOutOfPhaseWaitsTwoChunksAtMost) {
    EXPECT_LE(short_message_between_long_flows(match_config(4)), 64u + 2 * chunk);
    // A unit of a whole chunk leaves nothing to shorten: the phase lock that the paper has.
    edm_match_config rigid = match_config(4);
    rigid.unit_bytes = rigid.chunk_bytes;
    EXPECT_GE(short_message_between_long_flows(rigid), 100u * chunk);
}

TEST(EdmMatch, PortsThatMissEachOtherByLessThanAUnitMeetAtTheNextEnd) {
    for (uint64_t phase_ns : {1, 17, 63, 65, 549, 1023})
        EXPECT_LE(short_message_between_long_flows(match_config(4), phase_ns), 64u + 2 * chunk)
            << phase_ns;
}

TEST(EdmMatch, LongMessageOlderThanTheAgeLimitGoesFirst) {
    edm_match_config config = match_config(4);
    config.age_ns = 20 * chunk;
    Matcher rack(config);
    rack.add(0, 3, chunk);
    const uint32_t old = rack.add(1, 3, 4 * chunk);
    // Short messages without end, which SRPT prefers.
    for (uint32_t n = 0; n < 400; n++) {
        rack.try_add(n % 2 ? 0 : 2, 3, 512);
        rack.run(512);
    }
    EXPECT_GT(rack.took(1, 3, old), 20u * chunk);
    EXPECT_LE(rack.took(1, 3, old), 20u * chunk + 4 * chunk + 3 * chunk);
}

TEST(EdmMatch, WithoutAgingSrptStarvesALongMessage) {
    Matcher rack(4);
    rack.add(0, 3, chunk);
    const uint32_t old = rack.add(1, 3, 4 * chunk);
    for (uint32_t n = 0; n < 400; n++) {
        rack.try_add(n % 2 ? 0 : 2, 3, 512);
        rack.run(512);
    }
    EXPECT_EQ(rack.took(1, 3, old), 0u);
}

TEST(EdmMatch, DestinationWithALongEgressQueueGetsNothingUntilItFalls) {
    Matcher rack(4);
    edm_match_egress(&rack.m, 1, 9 * chunk);
    rack.add(0, 1, chunk);
    rack.add(2, 1, chunk);
    rack.run(5 * chunk);
    EXPECT_TRUE(rack.booked.empty());
    rack.add(0, 3, chunk);
    EXPECT_EQ(rack.booked.size(), 1u) << "the source serves others";
    rack.run(2 * chunk);
    edm_match_egress(&rack.m, 1, 8 * chunk);
    rack.drain();
    EXPECT_EQ(rack.booked.size(), 2u);
    EXPECT_EQ(rack.booked.back().destination, 1);
}

TEST(EdmMatch, ControlBytesLengthenTheNextBookingOfTheirPort) {
    Matcher rack(4);
    edm_match_charge(&rack.m, EDM_DESTINATION, 1, 100);
    rack.add(0, 1, 2 * chunk);
    EXPECT_EQ(rack.booked[0].ends_ns, rack.now + chunk + 100);
    rack.run(10 * chunk);
    EXPECT_EQ(rack.booked[1].at_ns, rack.booked[0].at_ns + chunk + 100);
    EXPECT_EQ(rack.booked[1].ends_ns, rack.booked[1].at_ns + chunk);
}

TEST(EdmMatch, SplittingAMessageGainsNoMoreThanTheShare) {
    edm_match_config config = match_config(4);
    config.share_bytes = 4 * chunk;
    config.share_permille = 100;
    Matcher rack(config);
    rack.add(0, 3, 200 * chunk); // honest and long
    for (uint32_t n = 0; n < 200; n++) {
        rack.try_add(1, 3, 512); // one long message in pieces
        rack.run(512);
    }
    const uint64_t liar = rack.bytes_from(1), honest = rack.bytes_from(0);
    EXPECT_GT(liar, 2u * chunk) << "two share the port";
    EXPECT_LT(liar, honest / 4) << "of 100 chunks' time";
}

// Two of them, each within half of its port's rate, would have the whole port of their peer.
TEST(EdmMatch, LongMessageBesideTwoHostsThatSplitKeepsHalfOfThePort) {
    edm_match_config config = match_config(5);
    config.share_bytes = 4 * chunk;
    config.share_permille = 500;
    Matcher rack(config);
    rack.add(0, 4, 400 * chunk);
    for (uint32_t n = 0; n < 800; n++) {
        rack.try_add(1, 4, 64);
        rack.try_add(2, 4, 64);
        rack.run(64);
        rack.try_add(1, 4, 64);
        rack.try_add(2, 4, 64);
        rack.run(64);
    }
    const uint64_t liars = rack.bytes_from(1) + rack.bytes_from(2), honest = rack.bytes_from(0);
    EXPECT_GT(honest, 40u * chunk) << "of 100 chunks' time; the others had " << liars / chunk;
}

// As one that writes doesn't use the half of a port that its peer answers from.
TEST(EdmMatch, SplitWritesDoNotDelayReadsFromTheirPeer) {
    Matcher rack(4);
    for (uint32_t n = 0; n < 50; n++) {
        rack.try_add(1, 3, 64);
        const uint32_t id = rack.add(3, 2, chunk, EDM_READ);
        rack.run(chunk + 1);
        EXPECT_EQ(rack.took(3, 2, id), chunk);
    }
}

TEST(EdmMatch, PortThatBeginsToFollowIsBusyForOneChunk) {
    Matcher rack(4);
    edm_match_leave(&rack.m, 1);
    rack.add(0, 1, chunk);
    rack.run(chunk);
    EXPECT_TRUE(rack.booked.empty()) << "the port does not follow";
    edm_match_follow(&rack.m, rack.now, 1, nanosecond_a_byte);
    const uint64_t start = rack.now;
    rack.run(3 * chunk);
    ASSERT_EQ(rack.booked.size(), 1u);
    EXPECT_GE(rack.booked[0].at_ns, start + chunk);
}

TEST(EdmMatch, PortThatLeavesAndReturnsWithinAChunkStaysBusy) {
    Matcher rack(4);
    rack.add(0, 1, 4 * chunk);
    rack.run(chunk / 2);
    edm_match_leave(&rack.m, 1);
    edm_match_follow(&rack.m, rack.now, 1, nanosecond_a_byte);
    const uint64_t start = rack.now;
    rack.run(10 * chunk);
    EXPECT_GE(rack.booked[1].at_ns, start + chunk);
}

class EdmMatchRandom : public testing::TestWithParam<std::tuple<uint32_t, bool, uint16_t>> {};

// Any load: invariants after each event, every message is served once and in full.
TEST_P(EdmMatchRandom, EveryByteIsBookedOnce) {
    const auto [seed, fcfs, ports] = GetParam();
    edm_match_config config = match_config(ports);
    config.demand.policy = fcfs ? EDM_FCFS : EDM_SRPT;
    config.demand.slots = 16;
    config.demand.active_max = EDM_ACTIVE_MAX;
    config.age_ns = 64 * chunk;
    Matcher rack(config);
    std::mt19937 random(seed);
    std::vector<uint32_t> added(ports);
    uint64_t offered = 0;
    for (uint32_t n = 0; n < 300; n++) {
        const auto announcer = static_cast<uint16_t>(random() % ports);
        const auto peer = static_cast<uint16_t>((announcer + 1 + random() % (ports - 1)) % ports);
        const bool read = random() % 2;
        const uint32_t size = 1 + random() % (random() % 4 ? 100 : 5 * chunk);
        if (added[announcer]++ < 8) { // a slot each, X at most
            offered += size;
            if (read)
                rack.add(peer, announcer, size, EDM_READ);
            else
                rack.add(announcer, peer, size);
        }
        rack.run(random() % (2 * chunk));
    }
    rack.run(10'000 * chunk);
    uint64_t booked = 0;
    for (const Booked& b : rack.booked)
        booked += b.bytes;
    EXPECT_EQ(booked, offered);
    EXPECT_EQ(rack.m.demands.queued, 0u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, EdmMatchRandom,
                         testing::Combine(testing::Range(1u, 9u), testing::Bool(),
                                          testing::Values(uint16_t{5}, uint16_t{70})));

} // namespace

} // namespace edm
