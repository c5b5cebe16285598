// SPDX-License-Identifier: GPL-2.0
// The port of EDM's links: lanes, stretching, cut-through.
#include <gtest/gtest.h>

#include "sim/message/block_port.hpp"

namespace {

using namespace sim;

constexpr Time block = 640, delay = 10'000;

struct Arrival {
    Kind kind;
    Time at;
};

// A port whose peer notes when each packet is there in full.
struct Line final : Handler {
    explicit Line(bool cut_through = false) : sim(params()) {
        delays.of.fill(delay);
        delays.cut_through = cut_through;
        port = std::make_unique<BlockPort>(sim, block, delays, *this);
    }
    static Params params() {
        Params params;
        params.topology = "star";
        params.hosts = 2;
        params.host_gbps = 100;
        return params;
    }
    void fire(std::uint64_t arg) override {
        Packet* packet = reinterpret_cast<Packet*>(arg);
        if (!delays.cut_through && BlockPort::is_late(sim, packet, *this))
            return;
        arrivals.push_back({packet->kind, sim.now()});
        sim.pool.give(packet);
    }
    void send(Kind kind, BlockLane lane, std::uint32_t blocks) {
        Packet* packet = sim.pool.take();
        packet->kind = kind;
        packet->bytes = static_cast<std::uint16_t>(8 * blocks);
        port->send(packet, lane);
    }
    void data(std::uint32_t blocks) { send(Kind::edm_data, BlockLane::data, blocks); }
    void frame(std::uint32_t blocks) { send(Kind::edm_frame, BlockLane::frame, blocks); }
    void note() { send(Kind::edm_note, BlockLane::control, 1); }
    Time at(Kind kind, std::size_t number = 0) const {
        for (const Arrival& one : arrivals) {
            if (one.kind == kind && !number--)
                return one.at;
        }
        return never;
    }

    Sim sim;
    BlockPort::Delays delays;
    std::unique_ptr<BlockPort> port;
    std::vector<Arrival> arrivals;
};

TEST(BlockPort, LoneMessageIsThereWithItsLastBlock) {
    Line line;
    line.data(9);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_data), delay + 8 * block);
}

TEST(BlockPort, CutThroughTellsTheFirstBlock) {
    Line line(true);
    line.data(9);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_data), delay);
}

TEST(BlockPort, MessagesFollowEachOther) {
    Line line;
    line.data(9);
    line.data(9);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_data, 1), delay + 17 * block);
}

TEST(BlockPort, ControlBlockGoesAtOnceAndStretchesTheMessage) {
    Line line;
    line.data(9);
    line.sim.events.run(3 * block);
    line.note();
    line.data(9);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_note), 3 * block + delay);
    EXPECT_EQ(line.at(Kind::edm_data), delay + 9 * block);
    EXPECT_EQ(line.at(Kind::edm_data, 1), delay + 18 * block);
}

TEST(BlockPort, RequestGoesBeforeWaitingDataButCutsNone) {
    Line line;
    line.data(9);
    line.data(9);
    line.send(Kind::edm_request, BlockLane::request, 2);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_data), delay + 8 * block);
    EXPECT_EQ(line.at(Kind::edm_request), delay + 10 * block);
    EXPECT_EQ(line.at(Kind::edm_data, 1), delay + 19 * block);
}

TEST(BlockPort, MemoryWaitsForOneBlockOfAFrameAtMost) {
    Line line;
    line.frame(190);
    line.sim.events.run(5 * block + 100);
    line.data(9);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_data), 6 * block + 8 * block + delay);
    EXPECT_LE(line.port->frame_wait_max(), block);
    // The frame gives way, and loses no block.
    EXPECT_EQ(line.at(Kind::edm_frame), delay + (189 + 9) * block);
}

TEST(BlockPort, FramesWaitForMemory) {
    Line line;
    line.data(9);
    line.frame(10);
    line.frame(10);
    line.sim.events.run(us);
    EXPECT_EQ(line.at(Kind::edm_frame), delay + 18 * block);
    EXPECT_EQ(line.at(Kind::edm_frame, 1), delay + 28 * block);
}

} // namespace
