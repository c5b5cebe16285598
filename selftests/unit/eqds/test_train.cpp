// SPDX-License-Identifier: GPL-2.0
// Trains: at the sender packets that take one path, at the receiver packets that come as one.
#include "lone_receiver.hpp"
#include "rig.hpp"

using namespace eqds;

namespace {

struct EqdsTrain : testing::Test {
    LoneReceiver end{0};
    std::vector<eqds_packet> packets = std::vector<eqds_packet>(20);
    size_t used = 0;
    eqds_out out{};

    // A packet of the numbers seq .. seq + more. Returns what the receiver says to it.
    eqds_head arrive(uint32_t seq, uint16_t more) {
        eqds_head head{};
        head.flags = EQDS_SYN;
        head.has_epoch = true;
        head.epoch = 1;
        head.seq = seq;
        head.unacked = seq;
        head.more = more;
        head.bytes = 1000 * (more + 1);
        head.pull = 5;
        head.next_proto = EQDS_PROTO_IPV4;
        eqds_receiver_receive(&end.r, 1000, &head, 1000, &packets[used++], &out);
        EXPECT_EQ(eqds_receiver_check(&end.r), nullptr);
        EXPECT_TRUE(out.send);
        return out.head;
    }

    std::vector<uint32_t> delivered() const {
        std::vector<uint32_t> first;
        for (eqds_packet* p = out.deliver; p; p = p->next)
            first.push_back(p->seq);
        return first;
    }
};

TEST_F(EqdsTrain, InOrderIsDeliveredAndAcknowledgedWhole) {
    eqds_head said = arrive(0, 9);
    EXPECT_EQ(delivered(), std::vector<uint32_t>{0});
    EXPECT_EQ(said.ack, 10u);
    EXPECT_EQ(said.flags & (EQDS_SACK | EQDS_NACK), EQDS_SACK);
    EXPECT_EQ(said.echo, 0u);
}

TEST_F(EqdsTrain, AheadOfAHoleWaitsWhole) {
    eqds_head said = arrive(1, 9);
    EXPECT_TRUE(delivered().empty());
    EXPECT_EQ(said.ack, 0u);
    EXPECT_EQ(said.sack, 0x3ffu);
    EXPECT_EQ(end.r.held, 1u);
    EXPECT_EQ(end.r.held_bytes, 10'000u);
    said = arrive(0, 0);
    EXPECT_EQ(delivered(), (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(said.ack, 11u);
    EXPECT_EQ(end.r.held, 0u);
    EXPECT_EQ(end.r.held_bytes, 0u);
}

TEST_F(EqdsTrain, WithANumberThatIsHereIsDroppedAndAcknowledgesNothing) {
    arrive(4, 0);
    for (uint16_t more : {4, 5}) {
        eqds_head said = arrive(0, more);
        EXPECT_EQ(out.verdict, EQDS_DUPLICATE);
        EXPECT_EQ(out.free, &packets[used - 1]);
        EXPECT_TRUE(delivered().empty());
        EXPECT_EQ(said.ack, 0u);
        EXPECT_EQ(said.sack, 1u << 3);
        EXPECT_EQ(said.flags & (EQDS_SACK | EQDS_NACK), 0);
    }
    arrive(0, 3);
    EXPECT_EQ(delivered(), (std::vector<uint32_t>{0, 4}));
    arrive(3, 5);
    EXPECT_EQ(out.verdict, EQDS_DUPLICATE);
    EXPECT_EQ(out.free, &packets[used - 1]);
    EXPECT_EQ(end.r.expected, 5u);
}

TEST_F(EqdsTrain, BeyondTheWindowIsDropped) {
    const uint16_t window = end.config.window_packets;
    arrive(1, window - 1);
    EXPECT_EQ(out.verdict, EQDS_DUPLICATE);
    arrive(1, 65535);
    EXPECT_EQ(out.verdict, EQDS_DUPLICATE);
    EXPECT_EQ(end.r.held, 0u);
    eqds_head said = arrive(1, window - 2);
    EXPECT_EQ(out.verdict, EQDS_OK);
    EXPECT_EQ(said.sack, ~0ull);
    arrive(0, 0);
    EXPECT_EQ(delivered(), (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(end.r.expected, window);
}

TEST_F(EqdsTrain, ComesBackWhenTheTunnelEnds) {
    arrive(3, 9);
    eqds_receiver_close(&end.r, &out);
    EXPECT_EQ(delivered(), std::vector<uint32_t>{3});
    EXPECT_EQ(eqds_receiver_check(&end.r), nullptr);
}

// The paths of 40 packets that the first burst of credit sends at one time, and of 40 later ones.
std::vector<uint16_t> paths_of(uint16_t train_packets, uint64_t later_ns) {
    eqds_config config;
    eqds_config_init(&config, &eqds_profile_extended, 1500, 80 * 1500);
    config.trimming = true;
    config.train_packets = train_packets;
    EXPECT_TRUE(eqds_config_is_valid(&config));
    std::vector<eqds_packet*> slots(config.window_packets);
    std::vector<eqds_path> path(16);
    std::vector<eqds_packet> packets(80);
    std::vector<uint16_t> taken;
    eqds_paths paths;
    eqds_sender s;
    eqds_out out;
    eqds_head head;
    eqds_paths_init(&paths, path.data(), path.size(), 1);
    eqds_sender_init(&s, &config, slots.data(), &paths, 1, 1, 0);
    for (size_t i = 0; i < packets.size(); i++) {
        uint64_t now = i < 40 ? 1000 : 1000 + later_ns;
        packets[i].bytes = 1500;
        eqds_sender_enqueue(&s, now, &packets[i], &out);
        EXPECT_EQ(eqds_sender_next(&s, now, &head), &packets[i]);
        taken.push_back(head.path);
    }
    uint32_t sent = 0;
    for (const eqds_path& each : path)
        sent += each.sent;
    EXPECT_EQ(sent, packets.size());
    eqds_sender_close(&s, &out);
    return taken;
}

// How many packets in a row take one path.
std::vector<size_t> runs(const std::vector<uint16_t>& paths) {
    std::vector<size_t> lengths;
    for (size_t i = 0; i < paths.size(); i++) {
        if (i && paths[i] == paths[i - 1])
            lengths.back()++;
        else
            lengths.push_back(1);
    }
    return lengths;
}

TEST(EqdsTrainPath, PacketsOfOneTimeShareAPathUpToTheBound) {
    EXPECT_EQ(runs(paths_of(16, 1)), (std::vector<size_t>{16, 16, 8, 16, 16, 8}));
    EXPECT_EQ(runs(paths_of(64, 1)), (std::vector<size_t>{40, 40}));
    EXPECT_EQ(runs(paths_of(64, 0)), (std::vector<size_t>{64, 16}));
}

TEST(EqdsTrainPath, WithoutTrainsEachPacketChooses) {
    std::vector<uint16_t> paths = paths_of(1, 0);
    for (size_t round = 0; round < paths.size(); round += 16)
        EXPECT_EQ(std::set<uint16_t>(&paths[round], &paths[round] + 16).size(), 16u);
}

TEST(EqdsTrainPath, TrainOfNoPacketsIsInvalid) {
    eqds_config config;
    eqds_config_init(&config, &eqds_profile_extended, 1500, 15000);
    config.train_packets = 0;
    EXPECT_FALSE(eqds_config_is_valid(&config));
}

} // namespace
