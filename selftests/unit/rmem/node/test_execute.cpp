// SPDX-License-Identifier: GPL-2.0
// The executor of the node's decisions, with a carrier that records what it is asked for.
#include <gtest/gtest.h>

#include "node_test.hpp"

namespace {

using namespace rig;

class Execute : public NodeTest {
protected:
    struct Answered {
        uint8_t status;
        uint32_t offset;
        bool has_data; // in pages
        Bytes payload;
    };

    rmem_answer decide(const rmem_head& h, const Bytes& bytes) {
        payload = bytes;
        rmem_answer answer{};
        rmem_node_request(&node.core, 1, &h, payload.data(), &client.peer, &answer);
        return answer;
    }
    void execute(const rmem_head& h, rmem_answer& answer) {
        answers.clear();
        copied.clear();
        rmem_execute(&node.core, &ops, this, &h, payload.data(), &answer);
    }
    rmem_answer run(const rmem_head& h, const Bytes& bytes = {}) {
        rmem_answer answer = decide(h, bytes);
        execute(h, answer);
        return answer;
    }

    rmem_head ranges_head(uint8_t type, uint8_t ranges, uint32_t len) {
        rmem_head h = client.head(type, 0, len);
        h.op = ranges;
        return h;
    }
    static void* at(void* carrier, const rmem_extent* extent) {
        EXPECT_NE(extent->page, RMEM_PAGE_NONE);
        return static_cast<Execute*>(carrier)->node.at(*extent);
    }
    static void copy(void* carrier, uint32_t offset, void* to, uint32_t bytes) {
        auto& self = *static_cast<Execute*>(carrier);
        self.copied.emplace_back(offset, bytes);
        ASSERT_LE(offset + bytes, self.payload.size());
        std::memcpy(to, self.payload.data() + offset, bytes);
    }
    static bool answer(void* carrier, rmem_answer* answer, rmem_execute_data* data) {
        auto& self = *static_cast<Execute*>(carrier);
        auto* found = reinterpret_cast<const uint8_t*>(&answer->found);
        Bytes bytes(found, found + (data ? 0 : rmem_wire_payload_bytes(&answer->reply)));
        for (int again = 0; data && again < 2; again++) {
            bytes.clear(); // a carrier can walk the data again
            rmem_execute_begin(data);
            while (rmem_execute_next(data)) {
                for (const rmem_extent& e : std::span(answer->extent, answer->extents)) {
                    bytes.resize(bytes.size() + e.bytes);
                    if (e.page != RMEM_PAGE_NONE)
                        std::memcpy(bytes.data() + bytes.size() - e.bytes, self.node.at(e),
                                    e.bytes);
                }
            }
        }
        if ((data && data->gone) || self.answers.size() == self.room)
            return false;
        self.answers.push_back({answer->reply.status, answer->reply.offset, !!data, bytes});
        return true;
    }
    static constexpr rmem_execute_ops ops{at, copy, answer};

    Bytes payload;
    std::vector<Answered> answers;
    std::vector<std::pair<uint32_t, uint32_t>> copied; // offset and bytes
    size_t room = SIZE_MAX;                            // for answers
};

TEST_F(Execute, DroppedRequestIsNotAnswered) {
    const rmem_head h = client.head(RMEM_READ, addr, 8);
    rmem_answer answer = decide(h, {});
    answer.action = RMEM_ACT_DROP;
    execute(h, answer);
    EXPECT_TRUE(answers.empty());
}

TEST_F(Execute, RefusalIsAnsweredWithoutPayload) {
    run(client.head(RMEM_READ, addr + 8 * page, 8));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].status, RMEM_FAULT);
    EXPECT_FALSE(answers[0].has_data);
    EXPECT_TRUE(answers[0].payload.empty());
}

TEST_F(Execute, WriteIsCopiedPageByPageAndExecutedOnce) {
    const rmem_head h = client.head(RMEM_WRITE, addr + page - 8, 24);
    run(h, counted(24));
    EXPECT_EQ(copied, (std::vector<std::pair<uint32_t, uint32_t>>{{0, 8}, {8, 16}}));
    EXPECT_EQ(node.read(client, addr + page - 8, 24), counted(24));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(run(h, counted(24)).reason, RMEM_NODE_REPEATED);
    EXPECT_TRUE(copied.empty());
    EXPECT_EQ(answers.size(), 1u);
}

TEST_F(Execute, PutCopiesTheDataBehindItsFrame) {
    const rmem_put put = wire::put_of(addr + 64, 5, 8);
    Bytes bytes = wire::followed_by(wire::bytes_of(put), counted(16));
    run(client.head(RMEM_PUT, addr, 16), bytes);
    EXPECT_EQ(copied, (std::vector<std::pair<uint32_t, uint32_t>>{{sizeof(rmem_put), 16}}));
    EXPECT_EQ(node.read(client, addr, 16), counted(16));
    EXPECT_EQ(node.read(client, addr + 64, 1), Bytes{5});
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].payload, Bytes(sizeof(rmem_found)));
}

TEST_F(Execute, ScatterSkipsARangeThatWasFreedMeanwhile) {
    const uint64_t other = node.alloc(client, page);
    const rmem_head h = ranges_head(RMEM_WRITEV, 2, 8);
    Bytes ranges = wire::ranges_of({{other, 4}, {addr, 4}});
    rmem_answer answer = decide(h, wire::followed_by(ranges, counted(8)));
    ASSERT_EQ(node.free(client, other, page).reply.status, RMEM_OK);
    execute(h, answer);
    EXPECT_EQ(copied,
              (std::vector<std::pair<uint32_t, uint32_t>>{{2 * sizeof(rmem_range) + 4, 4}}));
    EXPECT_EQ(node.read(client, addr, 4), counted(4, 5));
    EXPECT_EQ(answers.at(0).status, RMEM_OK);
}

TEST_F(Execute, FillAndCopyReachAllStretches) {
    node.write(client, addr + page - 8, counted(16));
    const rmem_head copy = client.head(RMEM_COPY, addr + 3 * page - 4, 16);
    run(copy, wire::bytes_of(wire::copy_of(addr + page - 8)));
    EXPECT_EQ(node.read(client, addr + 3 * page - 4, 16), counted(16));
    run(client.head(RMEM_ZERO, addr + page - 4, 8));
    Bytes zeroed = counted(16);
    std::fill(zeroed.begin() + 4, zeroed.begin() + 12, 0);
    EXPECT_EQ(node.read(client, addr + page - 8, 16), zeroed);
    // From memory that was never written.
    run(client.head(RMEM_COPY, addr + page - 8, 16),
        wire::bytes_of(wire::copy_of(addr + 6 * page)));
    EXPECT_EQ(node.read(client, addr + page - 8, 16), Bytes(16));
}

TEST_F(Execute, ReadIsAnsweredInPartsUntilThereIsNoRoom) {
    node.write(client, addr, counted(4096));
    rmem_head h = client.head(RMEM_READ, addr, 2 * 4096 + 8);
    for (size_t parts : {3u, 2u, 0u}) {
        room = parts;
        run(h);
        ASSERT_EQ(answers.size(), parts);
        for (size_t n = 0; n < parts; n++) {
            EXPECT_TRUE(answers[n].has_data);
            EXPECT_EQ(answers[n].offset, n * 4096);
            EXPECT_EQ(answers[n].payload, n ? Bytes(n == 1 ? 4096 : 8) : counted(4096));
        }
    }
}

TEST_F(Execute, ReadOfMemoryFreedMeanwhileEndsInARefusal) {
    const rmem_head h = client.head(RMEM_READ, addr, 3 * 4096);
    rmem_answer answer = decide(h, {});
    ASSERT_EQ(node.free(client, addr, 8 * page).reply.status, RMEM_OK);
    execute(h, answer);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].status, RMEM_FAULT);
    EXPECT_FALSE(answers[0].has_data);
}

TEST_F(Execute, GatherGivesTheRangesInOrder) {
    node.write(client, addr, counted(64));
    const rmem_head h = ranges_head(RMEM_READV, 2, 12);
    run(h, wire::ranges_of({{addr + 32, 4}, {addr, 8}}));
    const Bytes expected = wire::followed_by(counted(4, 33), counted(8));
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].payload, expected);
}

TEST_F(Execute, GatherOfARangeFreedMeanwhileIsRefused) {
    const uint64_t other = node.alloc(client, page);
    const rmem_head h = ranges_head(RMEM_READV, 2, 8);
    const Bytes ranges = wire::ranges_of({{addr, 4}, {other, 4}});
    rmem_answer answer = decide(h, ranges);
    ASSERT_EQ(node.free(client, other, page).reply.status, RMEM_OK);
    execute(h, answer);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].status, RMEM_FAULT);
    EXPECT_FALSE(answers[0].has_data);

    // For want of room it is not: the client asks again.
    room = 0;
    run(ranges_head(RMEM_READV, 1, 4), wire::ranges_of({{addr, 4}}));
    EXPECT_TRUE(answers.empty());
}

} // namespace
