// SPDX-License-Identifier: GPL-2.0
// The codec of 66-bit blocks, against vectors that a bit-serial program computed from Clause 49's
// polynomial and from the specification's strings of bits.
#include <array>
#include <deque>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "core.hpp"

namespace edm {

namespace {

const edm_line types = {EDM_PROFILE_TYPES, false}, sets = {EDM_PROFILE_SETS, false};
const edm_line types_checked = {EDM_PROFILE_TYPES, true}, sets_checked = {EDM_PROFILE_SETS, true};
const edm_line all_lines[] = {types, sets, types_checked, sets_checked};

struct EdmBlock : testing::Test {
    EdmBlock() { base_crc32c_setup(); }
};

std::vector<edm_block> blocks_of(const edm_line& line, const edm_block_head& head,
                                 const std::vector<uint8_t>& data = {}) {
    edm_block_writer writer;
    std::vector<edm_block> blocks;
    edm_block block;
    edm_block_begin(&line, &writer, &head, data.data());
    while (edm_block_write(&line, &writer, &block))
        blocks.push_back(block);
    return blocks;
}

edm_block_verdict read(const edm_line& line, edm_block_reader& reader,
                       const std::vector<edm_block>& blocks) {
    edm_block_verdict verdict = EDM_BLOCK_MORE;
    for (const edm_block& block : blocks) {
        uint64_t field = block.payload;
        const edm_block_kind kind = edm_block_kind_of(&line, &block, &field);
        verdict = edm_block_read(&line, &reader, kind, field);
        if (verdict == EDM_BLOCK_BROKEN)
            break;
    }
    return verdict;
}

TEST_F(EdmBlock, NoteHasTheReferenceBits) {
    const edm_block_note note = {.destination = 0x155, .id = 0xa5, .size = 0x1234, .answer = true};
    const edm_block n = edm_block_note_write(&types, EDM_BLOCK_N, &note);
    const edm_block g = edm_block_note_write(&sets, EDM_BLOCK_G, &note);
    EXPECT_EQ(n.payload, 0x58c624694b552du);
    EXPECT_EQ(g.payload, 0x58c6242694b554bu);
    EXPECT_EQ(n.sync, EDM_SYNC_CONTROL);
    uint64_t field = 0;
    ASSERT_EQ(edm_block_kind_of(&sets, &g, &field), EDM_BLOCK_G);
    edm_block_note again;
    ASSERT_TRUE(edm_block_note_read(field, &again));
    EXPECT_EQ(again.destination, note.destination);
    EXPECT_EQ(again.id, note.id);
    EXPECT_EQ(again.size, note.size);
    EXPECT_TRUE(again.answer);
}

TEST_F(EdmBlock, NoteWithUpToThreeFlippedBitsIsRefused) {
    const edm_block_note note = {.destination = 3, .id = 1, .size = 64};
    const edm_block block = edm_block_note_write(&sets, EDM_BLOCK_N, &note);
    uint64_t field = 0;
    edm_block_kind_of(&sets, &block, &field);
    edm_block_note again;
    for (int a = 0; a < EDM_SETS_FIELD_BITS; a++)
        for (int b = 0; b < a; b++)
            for (int c = 0; c < b; c++) {
                EXPECT_FALSE(edm_block_note_read(field ^ 1ULL << a, &again));
                EXPECT_FALSE(edm_block_note_read(field ^ 1ULL << a ^ 1ULL << b, &again));
                EXPECT_FALSE(
                    edm_block_note_read(field ^ 1ULL << a ^ 1ULL << b ^ 1ULL << c, &again));
            }
}

TEST_F(EdmBlock, MessagesHaveTheReferenceBits) {
    edm_block_head read_request{};
    read_request.kind = EDM_RREQ;
    read_request.destination = 5;
    read_request.id = 7;
    read_request.size = 4096;
    read_request.address = 0x0123456789abcdef;
    auto blocks = blocks_of(types, read_request);
    ASSERT_EQ(blocks.size(), 2u);
    EXPECT_EQ(blocks[0].payload, 0xbcdef08000381455u);
    EXPECT_EQ(blocks[1].payload, 0x123456789a66u);
    blocks = blocks_of(sets, read_request);
    ASSERT_EQ(blocks.size(), 2u);
    EXPECT_EQ(blocks[0].payload, 0xcdef08030038144bu);
    EXPECT_EQ(blocks[1].payload, 0x1234546789ab4bu);

    edm_block_head answer{};
    answer.kind = EDM_RRES;
    answer.destination = 1;
    answer.id = 2;
    answer.size = 3;
    blocks = blocks_of(types_checked, answer, {'E', 'D', 'M'});
    ASSERT_EQ(blocks.size(), 2u);
    EXPECT_EQ(blocks[0].payload, 0xd444500018100755u);
    EXPECT_EQ(blocks[1].payload, 0xb3491df2466u);

    answer.size = 1; // whether a compare-and-swap succeeded
    blocks = blocks_of(types, answer, {1});
    ASSERT_EQ(blocks.size(), 1u);
    EXPECT_EQ(blocks[0].payload, 0x100008100700u);
    blocks = blocks_of(sets, answer, {1});
    ASSERT_EQ(blocks.size(), 1u);
    EXPECT_EQ(blocks[0].payload, 0x100050810074bu);
}

TEST_F(EdmBlock, MessageOf64BytesHasTheDesignsNumberOfBlocks) {
    for (const edm_line& line : all_lines) {
        edm_block_head head{};
        head.size = 64;
        head.kind = EDM_RREQ;
        EXPECT_EQ(edm_block_count(&line, &head), 2u + line.checked);
        head.kind = EDM_RRES;
        EXPECT_EQ(edm_block_count(&line, &head), 9u + line.checked);
        head.kind = EDM_WREQ;
        EXPECT_EQ(edm_block_count(&line, &head), 10u + line.checked);
    }
    EXPECT_EQ(edm_block_frame(64), 10u);
}

TEST_F(EdmBlock, EveryMessageReadsAsItWasWritten) {
    std::mt19937_64 random(1);
    for (const edm_line& line : all_lines) {
        for (uint32_t n = 0; n < 2000; n++) {
            edm_block_head head{};
            head.kind = n % 4;
            head.id = random();
            head.destination = random() % 512;
            head.size = 1 + (n < 1000 ? n / 4 % 100 : random() % 600);
            head.address = head.kind == EDM_RRES ? 0 : random();
            head.opcode = head.kind == EDM_RMWREQ ? random() : 0;
            std::vector<uint8_t> data(edm_block_data_bytes(&head)), copy(600, 0xee);
            for (uint8_t& byte : data)
                byte = random();
            const auto blocks = blocks_of(line, head, data);
            ASSERT_EQ(blocks.size(), edm_block_count(&line, &head));
            edm_block_reader reader;
            edm_block_reader_init(&reader, copy.data(), copy.size());
            ASSERT_EQ(read(line, reader, blocks), EDM_BLOCK_MESSAGE);
            EXPECT_EQ(reader.head.kind, head.kind);
            EXPECT_EQ(reader.head.id, head.id);
            EXPECT_EQ(reader.head.destination, head.destination);
            EXPECT_EQ(reader.head.size, head.size);
            EXPECT_EQ(reader.head.address, head.address);
            EXPECT_EQ(reader.head.opcode, head.opcode);
            copy.resize(data.size());
            EXPECT_EQ(copy, data);
        }
    }
}

TEST_F(EdmBlock, FlippedBitOfACheckedMessageIsDetected) {
    edm_block_head head{};
    head.kind = EDM_WREQ;
    head.size = 20;
    head.address = 0x1122334455667788;
    const std::vector<uint8_t> data(20, 0x5a);
    const auto blocks = blocks_of(types_checked, head, data);
    for (size_t n = 0; n < blocks.size(); n++) {
        for (int bit = blocks[n].sync == EDM_SYNC_DATA ? 0 : 8; bit < 64; bit++) {
            auto damaged = blocks;
            std::vector<uint8_t> copy(600);
            damaged[n].payload ^= 1ULL << bit;
            edm_block_reader reader;
            edm_block_reader_init(&reader, copy.data(), copy.size());
            EXPECT_NE(read(types_checked, reader, damaged), EDM_BLOCK_MESSAGE) << n << " " << bit;
        }
    }
}

TEST_F(EdmBlock, MessageOfAnotherLengthOrOrderIsBroken) {
    edm_block_head head{};
    head.kind = EDM_RRES;
    head.size = 64;
    const auto whole = blocks_of(types, head, std::vector<uint8_t>(64));
    std::vector<uint8_t> copy(64);
    edm_block_reader reader;
    edm_block_reader_init(&reader, copy.data(), copy.size());
    auto blocks = whole;
    blocks.erase(blocks.begin() + 3);
    EXPECT_EQ(read(types, reader, blocks), EDM_BLOCK_BROKEN);
    blocks = whole;
    blocks.insert(blocks.begin() + 3, blocks[2]);
    EXPECT_EQ(read(types, reader, blocks), EDM_BLOCK_BROKEN);
    EXPECT_EQ(read(types, reader, {whole[1]}), EDM_BLOCK_BROKEN) << "no message has begun";
    EXPECT_EQ(read(types, reader, {whole[0], whole[0]}), EDM_BLOCK_BROKEN);
    edm_block_reader_init(&reader, copy.data(), 63);
    EXPECT_EQ(read(types, reader, whole), EDM_BLOCK_BROKEN) << "longer than its room";
    EXPECT_EQ(read(types, reader, whole), EDM_BLOCK_BROKEN);
}

TEST_F(EdmBlock, BlocksOfFramesAreNotTakenForMemory) {
    uint64_t field = 0;
    for (uint8_t type : {0x78, 0x87, 0x99, 0xaa, 0xb4, 0xcc, 0xd2, 0xe1, 0xff}) {
        const edm_block block = {0x1122334455667700u | type, EDM_SYNC_CONTROL};
        for (const edm_line& line : all_lines)
            EXPECT_EQ(edm_block_kind_of(&line, &block, &field), EDM_BLOCK_FRAME);
        EXPECT_EQ(edm_block_is_end(&block), type != 0x78);
    }
    // Link faults (O code 0) and signals (15) stay the standard's.
    for (uint64_t code : {0, 15, 6}) {
        const edm_block block = {0x4b | code << 32, EDM_SYNC_CONTROL};
        EXPECT_EQ(edm_block_kind_of(&sets, &block, &field), EDM_BLOCK_FRAME);
    }
    const edm_block idle = edm_block_idle(), bad = {0, 0}, worse = {0, 3};
    EXPECT_EQ(edm_block_kind_of(&types, &idle, &field), EDM_BLOCK_IDLE);
    EXPECT_EQ(edm_block_kind_of(&types, &bad, &field), EDM_BLOCK_INVALID);
    EXPECT_EQ(edm_block_kind_of(&types, &worse, &field), EDM_BLOCK_INVALID);
}

// Clause 49's figure: a shift register, a bit at a time.
class Register {
public:
    Register() : bits(58, 1) {}
    uint64_t scramble(uint64_t payload) {
        uint64_t out = 0;
        for (int n = 0; n < 64; n++) {
            const bool bit = (payload >> n & 1) ^ bits[38] ^ bits[57];
            bits.push_front(bit);
            bits.pop_back();
            out |= static_cast<uint64_t>(bit) << n;
        }
        return out;
    }

private:
    std::deque<bool> bits; // the last one sent first
};

TEST_F(EdmBlock, ScramblerHasTheReferenceBits) {
    edm_scrambler scrambler = {~0ULL};
    for (uint64_t wanted : {0x7bfff0800000001eULL, 0x85cff0fffff8401eULL, 0x85d84f0118079ee1ULL,
                            0x85d815fee8479ee9ULL})
        EXPECT_EQ(edm_block_scramble(&scrambler, EDM_TYPE_IDLE), wanted);
}

TEST_F(EdmBlock, ScramblerEqualsTheShiftRegister) {
    std::mt19937_64 random(2);
    edm_scrambler scrambler = {~0ULL}, descrambler = {~0ULL};
    Register reference;
    for (int n = 0; n < 1000; n++) {
        const uint64_t payload = random(), sent = edm_block_scramble(&scrambler, payload);
        EXPECT_EQ(sent, reference.scramble(payload));
        EXPECT_EQ(edm_block_descramble(&descrambler, sent), payload);
    }
}

TEST_F(EdmBlock, DescramblerIsRightAfter58BitsWhateverItsStart) {
    std::mt19937_64 random(3);
    bool needs_all = false;
    for (int n = 0; n < 1000; n++) {
        edm_scrambler scrambler = {random()}, descrambler = {random()};
        const uint64_t payload = random();
        const uint64_t first =
            edm_block_descramble(&descrambler, edm_block_scramble(&scrambler, payload));
        EXPECT_EQ(first >> 58, payload >> 58);
        needs_all |= (first ^ payload) >> 57 & 1;
        for (int more = 0; more < 3; more++) {
            const uint64_t next = random();
            EXPECT_EQ(edm_block_descramble(&descrambler, edm_block_scramble(&scrambler, next)),
                      next);
        }
    }
    EXPECT_TRUE(needs_all) << "bit 57 is the last one that can be wrong";
}

TEST_F(EdmBlock, BitErrorOnTheLinkBecomesThree) {
    edm_scrambler scrambler = {1}, descrambler = {1};
    uint64_t wrong = 0;
    for (int n = 0; n < 3; n++) {
        const uint64_t sent = edm_block_scramble(&scrambler, 0) ^ (n == 0 ? 1 : 0);
        wrong += __builtin_popcountll(edm_block_descramble(&descrambler, sent));
    }
    EXPECT_EQ(wrong, 3u);
}

} // namespace

} // namespace edm
