// SPDX-License-Identifier: GPL-2.0
// What requests do when all is well: sessions, regions, data, at each level of integrity.
#include <gtest/gtest.h>

extern "C" {
#include "core/rmem/node/atomic.h"
}

#include "client.hpp"

namespace remora::test {

namespace {

class Level : public testing::TestWithParam<rmem_integrity> {};

std::string level_name(const testing::TestParamInfo<rmem_integrity>& info) {
    static constexpr const char* names[] = {"Link", "Digest", "Full"};
    return names[info.param];
}

INSTANTIATE_TEST_SUITE_P(Conformance, Level, testing::Values(RMEM_LINK, RMEM_DIGEST, RMEM_FULL),
                         level_name);

Bytes zeros(std::size_t bytes) {
    return Bytes(bytes);
}

// ---- sessions ----

TEST_P(Level, OpenRepeatedIsTheSameSessionUntilItIsUsed) {
    Client client(GetParam());
    Message open = client.open_request();
    Answer first = pair().ask_one(open);
    Answer again = pair().ask_one(open);
    EXPECT_EQ(first.head.session, again.head.session);
    client.session = first.head.session;
    unsigned int region = client.allocate(1);
    EXPECT_NE(region, no_region);
    EXPECT_TRUE(pair().ask(open).empty()) << "a late copy of an OPEN is answered";
}

TEST_P(Level, OpenSupersedesTheClientsOlderSession) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    EXPECT_EQ(client.read(region, 0, 1), zeros(1)); // so that it stays
    std::uint64_t older = client.session;
    Answer opened = pair().ask_one(client.open_request());
    EXPECT_NE(opened.head.session, older);
    EXPECT_EQ(client.write(region, 0, {1}), RMEM_NO_SESSION);
    client.session = opened.head.session;
    client.next_id = 1;
    EXPECT_EQ(client.write(region, 0, {1}), RMEM_OK);
}

TEST_P(Level, OpenThatNamesItsSessionRenewsIt) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    client.floor = client.next_id; // of nothing that follows the answer is here, as it were
    Message write = client.write_request(region, 0, {1});
    Message add = client.atomic_request(RMEM_ADD, region, 8, 8, 1);
    EXPECT_EQ(pair().ask_one(write).head.status, RMEM_OK);
    EXPECT_EQ(pair().ask_one(add).head.status, RMEM_OK);
    Message late = client.write_request(region, 0, {2});
    Message open = client.open_request();
    open.head.session = client.session;
    Answer renewed = pair().ask_one(open);
    EXPECT_NE(renewed.head.session, client.session);
    EXPECT_EQ(renewed.payload[offsetof(rmem_opened, renewed)], 1);
    EXPECT_EQ(pair().ask_one(open).head.session, renewed.head.session);
    EXPECT_EQ(pair().ask_one(late).head.status, RMEM_NO_SESSION);
    EXPECT_EQ(pair().ask_one(add).head.status, RMEM_NO_SESSION);
    client.session = write.head.session = add.head.session = renewed.head.session;
    EXPECT_EQ(pair().ask_one(write).head.status, RMEM_OK);
    EXPECT_EQ(pair().ask_one(add).head.status, RMEM_OK);
    EXPECT_EQ(client.read(region, 8, 1), Bytes{1}) << "added twice";
    open.head.id += 2000;
    Answer opened = pair().ask_one(open);
    EXPECT_EQ(opened.payload[offsetof(rmem_opened, renewed)], 0) << "its old name";
    client.session = opened.head.session;
}

// An attacker that saw an old OPEN may send it again, from any address.
TEST_P(Level, LateOpenEndsNoSession) {
    Client client(GetParam());
    Message first = client.open_request();
    Message second = client.open_request();
    client.session = pair().ask_one(second).head.session;
    unsigned int region = client.allocate(1);
    EXPECT_EQ(client.write(region, 0, {1}), RMEM_OK);
    for (unsigned int from : {0u, 1u}) {
        first.from = from;
        EXPECT_TRUE(pair().ask(first).empty());
    }
    EXPECT_EQ(client.read(region, 0, 1), Bytes{1});
}

TEST_P(Level, ClosedSessionIsGone) {
    Client client(GetParam());
    EXPECT_EQ(client.ask(client.request(RMEM_CLOSE)), RMEM_OK);
    EXPECT_EQ(client.ask(client.request(RMEM_CLOSE)), RMEM_NO_SESSION);
    EXPECT_EQ(client.ask(client.read_request(no_region, 0, 1)), RMEM_NO_SESSION);
    client.closed = true;
}

// ---- regions ----

TEST_P(Level, RegionNotAcknowledgedGoesWithItsSession) {
    Client client(GetParam());
    unsigned int known = client.allocate(1);
    Message last = client.alloc_request(1, RMEM_PERM_READ | RMEM_PERM_WRITE); // tells of the first
    Answer answer = pair().ask_one(last);
    ASSERT_EQ(answer.head.status, RMEM_OK);
    auto lost = static_cast<unsigned int>(base_load_le64(answer.payload.data()));
    EXPECT_EQ(pair().ask_one(last).payload, answer.payload);
    client.session = pair().ask_one(client.open_request()).head.session;
    client.next_id = 1;
    EXPECT_EQ(client.ask(client.read_request(lost, 0, 1)), RMEM_FAULT);
    EXPECT_EQ(client.read(known, 0, 1), zeros(1));
}

TEST_P(Level, CloseAcknowledgesIdsBelowItsFloor) {
    Client other(GetParam(), 1);
    for (bool acknowledges : {true, false}) {
        Client client(GetParam());
        Answer answer = pair().ask_one(client.alloc_request(1, RMEM_PERM_READ));
        ASSERT_EQ(answer.head.status, RMEM_OK);
        auto region = static_cast<unsigned int>(base_load_le64(answer.payload.data()));
        EXPECT_EQ(other.read(region, 0, 1), zeros(1));
        client.floor = client.next_id - !acknowledges;
        EXPECT_EQ(client.ask(client.request(RMEM_CLOSE)), RMEM_OK);
        client.closed = true;
        EXPECT_EQ(other.ask(other.free_request(region, pair().page_bytes())),
                  acknowledges ? RMEM_OK : RMEM_FAULT);
    }
}

TEST_P(Level, AllocRoundsUpAndAnswersACopyAlike) {
    Client client(GetParam());
    for (std::uint64_t bytes : {1U, pair().page_bytes() - 1, pair().page_bytes(),
                                pair().page_bytes() + 1, 5 * pair().page_bytes()}) {
        Message alloc = client.alloc_request(bytes, RMEM_PERM_READ);
        Answer first = pair().ask_one(alloc);
        ASSERT_EQ(first.head.status, RMEM_OK);
        std::uint64_t got = base_load_le64(first.payload.data() + offsetof(rmem_range, bytes));
        EXPECT_EQ(got % pair().page_bytes(), 0U);
        EXPECT_LT(got - bytes, pair().page_bytes());
        EXPECT_EQ(pair().ask_one(alloc).payload, first.payload);
        auto region = static_cast<unsigned int>(base_load_le64(first.payload.data()));
        Message free = client.free_request(region, got);
        EXPECT_EQ(client.ask(free), RMEM_OK);
        EXPECT_EQ(client.ask(free), RMEM_OK) << "a copy is answered as the first time";
        EXPECT_EQ(client.ask(client.read_request(region, 0, 1)), RMEM_FAULT);
        EXPECT_EQ(client.ask(client.free_request(region, got)), RMEM_FAULT);
    }
}

TEST_P(Level, FreeTakesTheWholeRegionOnly) {
    Client client(GetParam());
    unsigned int region = client.allocate(3 * pair().page_bytes());
    EXPECT_EQ(client.ask(client.free_request(region, pair().page_bytes())), RMEM_FAULT);
    EXPECT_EQ(client.ask(client.free_request(region, pair().page_bytes() + 1)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.free_request(region, 0)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.free_request(no_region, pair().page_bytes())), RMEM_FAULT);
    EXPECT_EQ(client.read(region, 0, 16), zeros(16));
}

TEST_P(Level, AllocRefusesImpossibleRequests) {
    Client client(GetParam());
    EXPECT_EQ(client.ask(client.alloc_request(0, RMEM_PERM_READ)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.alloc_request(1, 0)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.alloc_request(1, RMEM_PERM_WRITE)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.alloc_request(1, 4 | RMEM_PERM_READ)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.alloc_request(1, RMEM_PERM_READ, 4096)), RMEM_INVALID);
    EXPECT_EQ(client.ask(client.alloc_request(std::uint64_t{1} << 60, RMEM_PERM_READ)),
              RMEM_NO_MEMORY);
    EXPECT_EQ(client.ask(client.alloc_request(UINT64_MAX, RMEM_PERM_READ)), RMEM_NO_MEMORY);
}

TEST_P(Level, ReadOnlyRegionIsNotWritten) {
    Client client(GetParam());
    unsigned int region = client.allocate(pair().page_bytes(), RMEM_PERM_READ);
    EXPECT_EQ(client.write(region, 0, {1}), RMEM_PERM);
    EXPECT_EQ(client.ask(client.clear_request(RMEM_ZERO, region, 0, 1)), RMEM_PERM);
    EXPECT_EQ(client.ask(client.clear_request(RMEM_DISCARD, region, 0, 1)), RMEM_PERM);
    EXPECT_EQ(client.read(region, 0, 1), zeros(1));
}

// ---- data ----

TEST_P(Level, MemoryNeverWrittenReadsAsZero) {
    Client client(GetParam());
    unsigned int region = client.allocate(RMEM_READ_BYTES_MAX);
    EXPECT_EQ(client.read(region, 0, RMEM_READ_BYTES_MAX), zeros(RMEM_READ_BYTES_MAX));
}

TEST_P(Level, WritesAreReadBack) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(2 * page);
    Bytes shadow = zeros(2 * page);
    for (std::uint32_t bytes : {1U, 2U, 7U, 8U, 511U, 512U, 1024U, 4096U, pair().piece_bytes()}) {
        for (std::uint32_t offset : {0U, 1U, 4095U, page - bytes, page - bytes / 2, page}) {
            Bytes data = random_bytes(bytes);
            ASSERT_EQ(client.write(region, offset, data), RMEM_OK);
            std::copy(data.begin(), data.end(), shadow.begin() + offset);
        }
    }
    EXPECT_EQ(client.read(region, 0, 2 * page), shadow);
    EXPECT_EQ(client.read(region, page - 3, 7),
              Bytes(shadow.begin() + page - 3, shadow.begin() + page + 4));
}

TEST_P(Level, ReadIsCutAtMultiplesOfThePiece) {
    Client client(GetParam());
    std::uint32_t bytes = 3 * RMEM_PIECE_BYTES_MAX + 5;
    unsigned int region = client.allocate(bytes);
    ASSERT_EQ(client.write(region, RMEM_PIECE_BYTES_MIN - 1, random_bytes(1000)), RMEM_OK);
    for (unsigned int piece : {RMEM_PIECE_BYTES_MIN, RMEM_PIECE_BYTES_MIN + 1, 1400U, 4096U,
                               RMEM_PIECE_BYTES_MAX, RMEM_PIECE_BYTES_MAX + 1, 65535U}) {
        Message read = client.read_request(region, 0, bytes);
        read.head.piece = static_cast<u16>(piece);
        std::uint32_t cut = std::min(piece, pair().piece_bytes());
        EXPECT_EQ(pair().ask(read).size(), (bytes + cut - 1) / cut) << piece;
    }
    for (unsigned int piece : {0U, 1U, RMEM_PIECE_BYTES_MIN - 1}) {
        Message read = client.read_request(region, 0, bytes);
        read.head.piece = static_cast<u16>(piece);
        EXPECT_EQ(client.ask(read), RMEM_INVALID) << piece;
    }
}

TEST_P(Level, ZeroClearsToTheByteAndDiscardFreesWholePages) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    for (rmem_type type : {RMEM_ZERO, RMEM_DISCARD}) {
        unsigned int region = client.allocate(4 * page);
        for (std::uint32_t at = 0; at < 4 * page; at += page / 2)
            ASSERT_EQ(client.write(region, at, random_bytes(64)), RMEM_OK);
        EXPECT_EQ(client.ask(client.clear_request(type, region, page / 2, 2 * page)), RMEM_OK);
        EXPECT_EQ(client.read(region, page, page), zeros(page));
        for (std::uint32_t at = 0; at < 4 * page; at += page)
            EXPECT_EQ(client.read(region, at, page).size(), page);
        EXPECT_EQ(client.ask(client.clear_request(type, region, 0, 4 * page)), RMEM_OK);
        EXPECT_EQ(client.read(region, 0, 4 * page > RMEM_READ_BYTES_MAX ? page : 4 * page),
                  zeros(4 * page > RMEM_READ_BYTES_MAX ? page : 4 * page));
    }
}

TEST_P(Level, ClearedPagesComeBackZeroed) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(page);
    // More often than any pool has pages: all of them pass through other hands.
    for (int i = 0; i < 600; i++) {
        ASSERT_EQ(client.write(region, 0, random_bytes(16)), RMEM_OK);
        ASSERT_EQ(client.ask(client.clear_request(RMEM_ZERO, region, 0, page)), RMEM_OK);
        ASSERT_EQ(client.write(region, page - 1, {1}), RMEM_OK);
        ASSERT_EQ(client.read(region, 0, 16), zeros(16));
        ASSERT_EQ(client.ask(client.clear_request(RMEM_DISCARD, region, 0, page)), RMEM_OK);
    }
}

// ---- addresses and lengths ----

TEST_P(Level, AddressesOutsideAreRefused) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(page);
    std::vector<std::pair<unsigned int, std::uint64_t>> outside = {
        {region, page},
        {region, page - 1},
        {region, ~std::uint64_t{0}},
        {no_region, 0},
        {no_region, std::uint64_t{1} << 40},
        {no_region, std::uint64_t{1} << 63}};
    for (auto [which, offset] : outside) {
        EXPECT_EQ(client.ask(client.read_request(which, offset, 2)), RMEM_FAULT);
        EXPECT_EQ(client.write(which, offset, {1, 2}), RMEM_FAULT);
        EXPECT_EQ(client.ask(client.clear_request(RMEM_ZERO, which, offset, 2)), RMEM_FAULT);
        EXPECT_EQ(client.ask(client.clear_request(RMEM_DISCARD, which, offset, 2)), RMEM_FAULT);
    }
    EXPECT_EQ(client.read(region, 0, page), zeros(page));
}

TEST_P(Level, LengthsOutOfBoundsAreRefused) {
    Client client(GetParam());
    unsigned int region = client.allocate(2 * RMEM_READ_BYTES_MAX);
    for (std::uint32_t bytes : {0U, RMEM_READ_BYTES_MAX + 1, UINT32_MAX})
        EXPECT_EQ(client.ask(client.read_request(region, 0, bytes)), RMEM_INVALID) << bytes;
    EXPECT_EQ(client.write(region, 0, {}), RMEM_INVALID);
    EXPECT_TRUE(pair()
                    .ask(client.write_request(region, 0, random_bytes(RMEM_PIECE_BYTES_MAX + 1)))
                    .empty());
    for (rmem_type type : {RMEM_ZERO, RMEM_DISCARD}) {
        for (std::uint32_t bytes : {0U, RMEM_ZERO_BYTES_MAX + 1, UINT32_MAX})
            EXPECT_EQ(client.ask(client.clear_request(type, region, 0, bytes)), RMEM_INVALID);
    }
    // Round the end of the address space.
    for (rmem_type type : {RMEM_READ, RMEM_ZERO, RMEM_DISCARD}) {
        Message wraps = client.clear_request(type, no_region, ~std::uint64_t{0} - 10, 4096);
        wraps.head.piece = type == RMEM_READ ? RMEM_PIECE_BYTES_MIN : 0;
        EXPECT_EQ(client.ask(wraps), RMEM_INVALID);
    }
}

// ---- atomics ----

std::uint64_t found(const Answer& answer) {
    EXPECT_EQ(answer.head.status, RMEM_OK);
    EXPECT_EQ(answer.payload.size(), sizeof(rmem_found));
    return answer.payload.size() == sizeof(rmem_found) ? base_load_le64(answer.payload.data())
                                                       : ~0ULL;
}

TEST_P(Level, AtomicsReturnTheIntegerBeforeThem) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    auto ask = [&](rmem_atomic_op op, std::uint32_t bytes, std::uint64_t value,
                   std::uint64_t compare = 0) {
        return found(pair().ask_one(client.atomic_request(op, region, 32, bytes, value, compare)));
    };
    EXPECT_EQ(ask(RMEM_ADD, 8, 5), 0U); // first touch
    EXPECT_EQ(ask(RMEM_CAS, 8, 9, 4), 5U);
    EXPECT_EQ(ask(RMEM_CAS, 8, 9, 5), 5U);
    EXPECT_EQ(ask(RMEM_SWAP, 4, 0xffff'ffff), 9U);
    EXPECT_EQ(ask(RMEM_ADD, 4, 3), 0xffff'ffffU);
    EXPECT_EQ(ask(RMEM_OR, 8, 0x30), 2U);
    EXPECT_EQ(ask(RMEM_AND, 8, 0x22), 0x32U);
    EXPECT_EQ(ask(RMEM_XOR, 8, 0x02), 0x22U);
    EXPECT_EQ(ask(RMEM_MIN, 8, 0x10), 0x20U);
    EXPECT_EQ(ask(RMEM_MAX, 8, ~0ULL), 0x10U);
    EXPECT_EQ(ask(RMEM_SMAX, 8, 7), ~0ULL);
    EXPECT_EQ(ask(RMEM_SMIN, 8, static_cast<std::uint64_t>(-3)), 7U);
    EXPECT_EQ(client.read(region, 32, 8), Bytes({0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}));
}

// Some processors have none: an emulated one, say, that is to keep off cmpxchg16b.
TEST_P(Level, AtomicsOf16BytesWhereTheProcessorHasThem) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    Message swap = client.atomic_request(RMEM_SWAP, region, 32, 16, 7);
    if (!rmem_atomic_has_16()) {
        EXPECT_EQ(client.ask(swap), RMEM_INVALID);
        return;
    }
    EXPECT_EQ(found(pair().ask_one(swap)), 0U);
    EXPECT_EQ(found(pair().ask_one(client.atomic_request(RMEM_CAS, region, 32, 16, 1, 6))), 7U);
    EXPECT_EQ(found(pair().ask_one(client.atomic_request(RMEM_CAS, region, 32, 16, 1, 7))), 7U);
    EXPECT_EQ(client.read(region, 32, 8), Bytes({1, 0, 0, 0, 0, 0, 0, 0}));
}

// By then somebody else was there.
TEST_P(Level, AtomicsCopyIsAnsweredAsTheFirst) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    client.floor = client.next_id;
    Message first = client.atomic_request(RMEM_ADD, region, 0, 8, 5);
    EXPECT_EQ(found(pair().ask_one(first)), 0U);
    EXPECT_EQ(found(pair().ask_one(client.atomic_request(RMEM_ADD, region, 0, 8, 2))), 5U);
    EXPECT_EQ(found(pair().ask_one(first)), 0U);
    EXPECT_EQ(client.read(region, 0, 1), Bytes{7});
    client.floor = client.next_id;
    EXPECT_EQ(client.write(region, 100, {1}), RMEM_OK);
    EXPECT_EQ(client.ask(first), RMEM_STALE);
}

TEST_P(Level, AtomicsThatCantBe) {
    Client client(GetParam());
    unsigned int region = client.allocate(1), fixed = client.allocate(1, RMEM_PERM_READ);
    auto ask = [&](unsigned int where, std::uint64_t offset, std::uint32_t bytes,
                   rmem_atomic_op op = RMEM_ADD) {
        return client.ask(client.atomic_request(op, where, offset, bytes, 1));
    };
    EXPECT_EQ(ask(region, 4, 8), RMEM_INVALID);
    EXPECT_EQ(ask(region, 8, 16), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, 16), RMEM_INVALID); // ADD
    EXPECT_EQ(ask(region, 0, 2), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, 0), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, 8, RMEM_ATOMIC_OP_END), RMEM_INVALID);
    EXPECT_EQ(ask(fixed, 0, 8), RMEM_PERM);
    EXPECT_EQ(ask(no_region, 0, 8), RMEM_FAULT);
    EXPECT_EQ(client.read(region, 0, 16), zeros(16));
    // The first one outstanding is so far behind that the result has no place yet.
    Message ahead = client.atomic_request(RMEM_ADD, region, 0, 8, 1);
    ahead.head.id = ahead.head.floor + RMEM_REPLAY;
    client.next_id = ahead.head.id + 1;
    auto busy = pair().ask_together({ahead});
    EXPECT_EQ(busy[0][0].head.status, RMEM_BUSY);
    ahead.head.floor++;
    EXPECT_EQ(found(pair().ask_one(ahead)), 0U);
}

// ---- puts ----

TEST_P(Level, PutsBringDataAndThenChangeTheInteger) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(4 * page), other = client.allocate(1);
    std::uint64_t sum = 0;
    auto most = static_cast<std::uint32_t>(pair().piece_bytes() - sizeof(rmem_put));
    for (std::uint32_t bytes : {1U, 8U, 1000U, most}) {
        Bytes data = random_bytes(bytes);
        std::uint64_t offset = 2 * page - bytes / 2; // two pages, but of the first one
        EXPECT_EQ(found(pair().ask_one(
                      client.put_request(region, offset, data, RMEM_ADD, other, 8, 8, bytes))),
                  sum);
        sum += bytes;
        EXPECT_EQ(client.read(region, offset, bytes), data);
        EXPECT_EQ(base_load_le64(client.read(other, 8, 8).data()), sum);
    }
    // As ATOMIC would.
    EXPECT_EQ(found(pair().ask_one(client.put_request(region, 0, {1}, RMEM_SWAP, other, 8, 8,
                                                      0xffff'ffff'0000'0001))),
              sum);
    EXPECT_EQ(found(pair().ask_one(client.put_request(region, 0, {2}, RMEM_SMAX, other, 12, 4, 3))),
              0xffff'ffffU);
    EXPECT_EQ(found(pair().ask_one(client.put_request(region, 0, {3}, RMEM_OR, other, 8, 8, 2))),
              0x3'0000'0001U);
    EXPECT_EQ(client.read(other, 8, 8), Bytes({3, 0, 0, 0, 3, 0, 0, 0}));
    EXPECT_EQ(client.read(region, 0, 2), Bytes({3, 0}));
}

TEST_P(Level, PutsWriteDataFirstWhereTheyOverlap) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    Bytes data = random_bytes(24);
    std::uint64_t there = base_load_le64(data.data() + 8);
    EXPECT_EQ(
        found(pair().ask_one(client.put_request(region, 16, data, RMEM_XOR, region, 24, 8, ~0ULL))),
        there);
    for (std::size_t i = 8; i < 16; i++)
        data[i] ^= 0xff;
    EXPECT_EQ(client.read(region, 16, 24), data);
}

TEST_P(Level, PutsCopyIsAnsweredAsTheFirst) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    client.floor = client.next_id;
    Message first = client.put_request(region, 64, {1, 2, 3}, RMEM_ADD, region, 0, 8, 5);
    EXPECT_EQ(found(pair().ask_one(first)), 0U);
    EXPECT_EQ(client.write(region, 64, {7, 7, 7}), RMEM_OK);
    EXPECT_EQ(found(pair().ask_one(client.atomic_request(RMEM_ADD, region, 0, 8, 2))), 5U);
    EXPECT_EQ(found(pair().ask_one(first)), 0U);
    EXPECT_EQ(client.read(region, 0, 1), Bytes{7});
    EXPECT_EQ(client.read(region, 64, 3), Bytes({7, 7, 7}));
    client.floor = client.next_id;
    EXPECT_EQ(client.write(region, 100, {1}), RMEM_OK);
    EXPECT_EQ(client.ask(first), RMEM_STALE);
}

TEST_P(Level, PutsThatCantBeChangeNothing) {
    Client client(GetParam());
    unsigned int region = client.allocate(1), fixed = client.allocate(1, RMEM_PERM_READ);
    Bytes data = random_bytes(100);
    auto ask = [&](unsigned int where, unsigned int integer_where, std::uint64_t integer,
                   std::uint32_t bytes = 8, rmem_atomic_op op = RMEM_ADD) {
        return client.ask(
            client.put_request(where, 256, data, op, integer_where, integer, bytes, 1));
    };
    EXPECT_EQ(ask(region, region, 4), RMEM_INVALID);
    EXPECT_EQ(ask(region, region, 2, 4), RMEM_INVALID);
    for (std::uint32_t bytes : {0U, 1U, 2U, 16U, UINT32_MAX})
        EXPECT_EQ(ask(region, region, 0, bytes), RMEM_INVALID) << bytes;
    EXPECT_EQ(ask(region, region, 0, 16, RMEM_SWAP), RMEM_INVALID);
    EXPECT_EQ(ask(region, region, 0, 8, RMEM_CAS), RMEM_INVALID);
    EXPECT_EQ(ask(region, region, 0, 8, RMEM_ATOMIC_OP_END), RMEM_INVALID);
    EXPECT_EQ(ask(fixed, region, 0), RMEM_PERM);
    EXPECT_EQ(ask(region, fixed, 0), RMEM_PERM);
    EXPECT_EQ(ask(no_region, region, 0), RMEM_FAULT);
    EXPECT_EQ(ask(region, no_region, 0), RMEM_FAULT);
    EXPECT_EQ(ask(region, region, pair().page_bytes()), RMEM_FAULT);
    data.clear();
    EXPECT_EQ(ask(region, region, 0), RMEM_INVALID);
    data = random_bytes(pair().piece_bytes() - sizeof(rmem_put) + 1);
    Message large = client.put_request(region, 0, data, RMEM_ADD, region, 0, 8, 1);
    if (data.size() + sizeof(rmem_put) > RMEM_PIECE_BYTES_MAX)
        EXPECT_TRUE(pair().ask(large).empty());
    else
        EXPECT_EQ(client.ask(large), RMEM_INVALID);
    EXPECT_EQ(client.read(region, 0, pair().page_bytes()), zeros(pair().page_bytes()));
}

// ---- vectors ----

// Bytes of all ranges, each of a place of its own, some of them across pages.
std::vector<Client::Range> spread(unsigned int region, std::size_t count, std::uint32_t bytes) {
    std::vector<Client::Range> ranges;
    for (std::size_t i = 0; i < count; i++)
        ranges.push_back({region, i % 3 * pair().page_bytes() + i * 2 * bytes, bytes});
    ranges.back().offset = pair().page_bytes() - bytes / 2;
    return ranges;
}

TEST_P(Level, VectorsReadAndWriteAllRanges) {
    Client client(GetParam());
    unsigned int region = client.allocate(4 * pair().page_bytes());
    struct {
        std::size_t count;
        std::uint32_t bytes;
    } const cases[] = {{1, 1}, {1, 900}, {2, 400}, {20, 16}, {RMEM_RANGES_MAX, 2}};
    for (auto [count, bytes] : cases) {
        auto ranges = spread(region, count, bytes);
        Bytes data = random_bytes(count * bytes);
        if (count * (bytes + sizeof(rmem_range)) > pair().piece_bytes())
            continue;
        EXPECT_EQ(client.ask(client.vector_request(RMEM_WRITEV, ranges, data)), RMEM_OK);
        Answer answer = pair().ask_one(client.vector_request(RMEM_READV, ranges));
        EXPECT_EQ(answer.head.status, RMEM_OK);
        EXPECT_EQ(answer.head.len, data.size());
        EXPECT_EQ(answer.payload, data);
        for (std::size_t i = 0; i < count; i++)
            EXPECT_EQ(client.read(region, ranges[i].offset, bytes),
                      Bytes(data.begin() + static_cast<std::ptrdiff_t>(i * bytes),
                            data.begin() + static_cast<std::ptrdiff_t>((i + 1) * bytes)));
    }
}

// As much as a packet carries, and what was never written.
TEST_P(Level, VectorsTakeAsMuchAsAPacket) {
    Client client(GetParam());
    std::uint32_t piece = pair().piece_bytes();
    unsigned int region = client.allocate(2 * pair().page_bytes());
    std::vector<Client::Range> two = {{region, 3, piece - 1}, {region, pair().page_bytes(), 1}};
    EXPECT_EQ(pair().ask_one(client.vector_request(RMEM_READV, two)).payload, zeros(piece));
    two[0].bytes -= 2 * sizeof(rmem_range);
    Bytes data = random_bytes(piece - 2 * sizeof(rmem_range));
    EXPECT_EQ(client.ask(client.vector_request(RMEM_WRITEV, two, data)), RMEM_OK);
    EXPECT_EQ(pair().ask_one(client.vector_request(RMEM_READV, two)).payload, data);
    two[0].bytes += 2 * sizeof(rmem_range) + 1;
    EXPECT_EQ(client.ask(client.vector_request(RMEM_READV, two)), RMEM_INVALID);
    two[0].bytes -= 2 * sizeof(rmem_range);
    Message large = client.vector_request(RMEM_WRITEV, two, random_bytes(data.size() + 1));
    if (piece == RMEM_PIECE_BYTES_MAX)
        EXPECT_TRUE(pair().ask(large).empty());
    else
        EXPECT_EQ(client.ask(large), RMEM_INVALID);
}

TEST_P(Level, VectorsAreWrittenInTheirOrder) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    EXPECT_EQ(client.ask(client.vector_request(RMEM_WRITEV,
                                               {{region, 0, 4}, {region, 2, 4}, {region, 3, 1}},
                                               {1, 2, 3, 4, 5, 6, 7, 8, 9})),
              RMEM_OK);
    EXPECT_EQ(client.read(region, 0, 7), Bytes({1, 2, 5, 9, 7, 8, 0}));
    EXPECT_EQ(pair()
                  .ask_one(client.vector_request(RMEM_READV,
                                                 {{region, 2, 2}, {region, 0, 3}, {region, 2, 1}}))
                  .payload,
              Bytes({5, 9, 1, 2, 5, 5}));
}

TEST_P(Level, VectorsCopyChangesNothing) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    client.floor = client.next_id;
    Message first = client.vector_request(RMEM_WRITEV, {{region, 0, 1}, {region, 64, 1}}, {1, 2});
    EXPECT_EQ(client.ask(first), RMEM_OK);
    EXPECT_EQ(client.write(region, 0, {7}), RMEM_OK);
    EXPECT_EQ(client.ask(first), RMEM_OK);
    EXPECT_EQ(client.read(region, 0, 1), Bytes{7});
    client.floor = client.next_id;
    EXPECT_EQ(client.write(region, 100, {1}), RMEM_OK);
    EXPECT_EQ(client.ask(first), RMEM_STALE);
}

TEST_P(Level, VectorsThatCantBeChangeNothing) {
    Client client(GetParam());
    unsigned int region = client.allocate(1), fixed = client.allocate(1, RMEM_PERM_READ);
    std::uint64_t page = pair().page_bytes();
    auto ask = [&](rmem_type type, std::vector<Client::Range> ranges) {
        std::size_t sum = 0;
        for (const Client::Range& range : ranges)
            sum += static_cast<u32>(range.bytes);
        return client.ask(client.vector_request(type, ranges, random_bytes(sum)));
    };
    // Wherever it is among those that are good.
    auto both = [&](Client::Range wrong, rmem_status status) {
        for (std::size_t at = 0; at < 5; at++) {
            std::vector<Client::Range> ranges(5, {region, 128, 8});
            ranges[at] = wrong;
            Message read = client.vector_request(RMEM_READV, ranges);
            EXPECT_EQ(client.ask(read), status) << at;
            EXPECT_EQ(ask(RMEM_WRITEV, ranges), status) << at;
        }
    };
    both({region, 0, 0}, RMEM_INVALID);
    both({no_region, UINT64_MAX - 3, 5}, RMEM_INVALID);
    both({region, 0, std::uint64_t{1} << 32}, RMEM_INVALID);
    both({no_region, 64, 8}, RMEM_FAULT);
    both({region, page, 1}, RMEM_FAULT);
    both({region, page - 4, 8}, RMEM_FAULT);
    EXPECT_EQ(ask(RMEM_WRITEV, {{region, 0, 8}, {fixed, 0, 8}}), RMEM_PERM);
    EXPECT_EQ(ask(RMEM_WRITEV, {{fixed, 0, 8}, {region, 0, 8}}), RMEM_PERM);
    for (rmem_type type : {RMEM_READV, RMEM_WRITEV}) {
        Bytes data = type == RMEM_WRITEV ? random_bytes(16) : Bytes();
        Message message = client.vector_request(type, {{region, 0, 8}, {region, 8, 8}}, data);
        message.head.addr = 1;
        EXPECT_EQ(client.ask(message), RMEM_INVALID);
        message = client.vector_request(type, {{region, 0, 8}, {region, 8, 9}}, data);
        message.head.len = 16;
        EXPECT_EQ(client.ask(message), RMEM_INVALID) << "more than the header says";
        for (u8 ranges : {0U, RMEM_RANGES_MAX + 1}) {
            message.head.op = ranges;
            EXPECT_TRUE(pair().ask(message).empty());
        }
    }
    EXPECT_EQ(client.read(region, 0, static_cast<u32>(page)), zeros(page));
}

TEST_P(Level, VectorsShareDatagrams) {
    Client client(GetParam(), 0, 4096);
    unsigned int region = client.allocate(4 * pair().page_bytes());
    Bytes data = random_bytes(160);
    auto ranges = spread(region, 10, 16);
    std::vector<Message> messages = {
        client.vector_request(RMEM_WRITEV, ranges, data), client.read_request(region, 1000, 16),
        client.vector_request(RMEM_READV, ranges), client.write_request(region, 0, {1, 2}),
        client.vector_request(RMEM_READV, {ranges[0]})};
    auto datagrams = pair().ask_together(messages);
    ASSERT_EQ(datagrams.size(), 1U);
    ASSERT_EQ(datagrams[0].size(), 5U);
    EXPECT_EQ(datagrams[0][2].payload, data);
    EXPECT_EQ(datagrams[0][4].payload[1], 2);
}

// ---- copies ----

TEST_P(Level, CopyMovesDataInsideTheNode) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(4 * page), other = client.allocate(2 * page);
    Bytes data = random_bytes(1000);
    EXPECT_EQ(client.write(other, page - 500, data), RMEM_OK);
    struct {
        std::uint64_t to, from;
        std::uint32_t bytes;
    } const cases[] = {{0, page - 500, 1000},          // a source in two pages
                       {page - 300, page - 500, 1000}, // both in two
                       {2 * page + 7, page - 1, 1}};
    for (auto [to, from, bytes] : cases) {
        EXPECT_EQ(client.ask(client.copy_request(region, to, other, from, bytes)), RMEM_OK);
        EXPECT_EQ(client.read(region, to, bytes), client.read(other, from, bytes));
    }
    EXPECT_EQ(client.read(other, page - 500, 1000), data);
    // Within one page, up to the source's first byte.
    EXPECT_EQ(client.ask(client.copy_request(region, 1000, region, 0, 1000)), RMEM_OK);
    EXPECT_EQ(client.read(region, 1000, 1000), data);
}

TEST_P(Level, CopyOfUnwrittenMemoryIsZeros) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(2 * page), empty = client.allocate(2 * page);
    for (std::uint32_t at = 0; at < 3 * pair().piece_bytes(); at += pair().piece_bytes())
        EXPECT_EQ(client.write(region, at, Bytes(pair().piece_bytes(), 7)), RMEM_OK);
    Message copy = client.copy_request(region, 1, empty, page - 1000, 2000);
    EXPECT_EQ(client.ask(copy), RMEM_OK);
    Bytes expected = zeros(2000);
    expected.insert(expected.begin(), 7);
    expected.push_back(7);
    EXPECT_EQ(client.read(region, 0, 2002), expected);
    EXPECT_EQ(client.ask(client.copy_request(region, 0, empty, 0, RMEM_COPY_BYTES_MAX)), RMEM_OK);
    EXPECT_EQ(client.read(region, 0, 20'000), zeros(20'000));
}

TEST_P(Level, CopysDuplicateChangesNothing) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    EXPECT_EQ(client.write(region, 0, {1, 2, 3}), RMEM_OK);
    client.floor = client.next_id;
    Message first = client.copy_request(region, 100, region, 0, 3);
    EXPECT_EQ(client.ask(first), RMEM_OK);
    EXPECT_EQ(client.write(region, 0, {4}), RMEM_OK);
    EXPECT_EQ(client.write(region, 101, {5}), RMEM_OK);
    EXPECT_EQ(client.ask(first), RMEM_OK);
    EXPECT_EQ(client.read(region, 100, 3), Bytes({1, 5, 3}));
    client.floor = client.next_id;
    EXPECT_EQ(client.write(region, 200, {1}), RMEM_OK);
    EXPECT_EQ(client.ask(first), RMEM_STALE);
}

TEST_P(Level, RefusedCopyChangesNothing) {
    Client client(GetParam());
    std::uint32_t page = pair().page_bytes();
    unsigned int region = client.allocate(2 * page);
    unsigned int fixed = client.allocate(page, RMEM_PERM_READ);
    auto ask = [&](unsigned int to_region, std::uint64_t to, unsigned int from_region,
                   std::uint64_t from, std::uint32_t bytes) {
        return client.ask(client.copy_request(to_region, to, from_region, from, bytes));
    };
    EXPECT_EQ(client.write(region, 0, Bytes(1000, 7)), RMEM_OK);
    EXPECT_EQ(ask(region, 0, region, 100, 0), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, region, page, RMEM_COPY_BYTES_MAX + 1), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, region, page, UINT32_MAX), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, no_region, UINT64_MAX - 3, 5), RMEM_INVALID);
    EXPECT_EQ(ask(no_region, UINT64_MAX - 3, region, 0, 5), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, region, 0, 100), RMEM_INVALID);
    EXPECT_EQ(ask(region, 99, region, 0, 100), RMEM_INVALID);
    EXPECT_EQ(ask(region, 0, region, 99, 100), RMEM_INVALID);
    EXPECT_EQ(ask(no_region, 64, region, 0, 8), RMEM_FAULT);
    EXPECT_EQ(ask(region, 0, no_region, 64, 8), RMEM_FAULT);
    EXPECT_EQ(ask(region, 2 * page - 4, region, 0, 8), RMEM_FAULT);
    EXPECT_EQ(ask(region, 0, region, 2 * page - 4, 8), RMEM_FAULT);
    EXPECT_EQ(ask(fixed, 0, region, 0, 8), RMEM_PERM);
    EXPECT_EQ(client.read(region, 0, 1000), Bytes(1000, 7));
    EXPECT_EQ(ask(region, 0, fixed, 0, 8), RMEM_OK);
    EXPECT_EQ(client.read(region, 0, 9), Bytes({0, 0, 0, 0, 0, 0, 0, 0, 7}));
}

TEST_P(Level, Fence) {
    Client client(GetParam());
    unsigned int region = client.allocate(1);
    EXPECT_EQ(client.write(region, 0, {1}), RMEM_OK);
    Message fence = client.request(RMEM_FENCE);
    EXPECT_EQ(client.ask(fence), RMEM_OK);
    EXPECT_EQ(client.ask(fence), RMEM_OK);
    Message nonsense = client.request(RMEM_FENCE);
    nonsense.head.len = 1;
    EXPECT_EQ(client.ask(nonsense), RMEM_INVALID);
}

} // namespace

} // namespace remora::test
