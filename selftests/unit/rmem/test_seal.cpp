// SPDX-License-Identifier: GPL-2.0
// Sealed datagrams and their keys, against vectors of other implementations (seal_vectors.py).
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

#include "seal/cipher.hpp"
#include "seal_vectors.hpp"
#include "wire_rig.hpp"

extern "C" {
#include "core/base/hchacha.h"
#include "core/rmem/seal.h"
}

namespace {

using namespace wire;

Bytes bytes_of_hex(std::string_view text) {
    auto value = [](char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; };
    Bytes bytes;
    for (size_t at = 0; at < text.size(); at += 2)
        bytes.push_back(static_cast<uint8_t>(value(text[at]) << 4 | value(text[at + 1])));
    return bytes;
}

template <typename Structure>
Structure of_hex(std::string_view text) {
    Structure structure;
    Bytes bytes = bytes_of_hex(text);
    EXPECT_EQ(bytes.size(), sizeof(structure));
    std::memcpy(&structure, bytes.data(), std::min(bytes.size(), sizeof(structure)));
    return structure;
}

struct Seal : testing::Test {
    remora::Cipher libcrypto;
    const rmem_cipher* cipher = &libcrypto.core();
    base_siphash_key space_key = [] {
        base_siphash_key key;
        base_siphash_key_load(&key, bytes_of_hex(seal_vectors::space_key).data());
        return key;
    }();
    rmem_seal_key client = of_hex<rmem_seal_key>(seal_vectors::key_client);
    rmem_seal_key node = of_hex<rmem_seal_key>(seal_vectors::key_node);
    Bytes request = bytes_of_hex(seal_vectors::request);
    Bytes request_sealed = bytes_of_hex(seal_vectors::request_sealed);

    // As far as a sender's own: without number of messages, flags of the row, and tag.
    Bytes close(Bytes datagram, uint32_t messages, bool more, const rmem_seal_key& key,
                const char* salt) {
        auto bytes = static_cast<u32>(datagram.size());
        datagram[1] &= ~RMEM_FLAGS_MORE;
        datagram[2] = 0;
        std::fill_n(datagram.begin() + RMEM_TAGGED_BYTES, 8, 0);
        datagram.resize(bytes + RMEM_SEAL_BYTES);
        EXPECT_TRUE(rmem_seal_close(cipher, &space_key, &key, bytes_of_hex(salt).data(),
                                    datagram.data(), bytes, messages, more));
        return datagram;
    }
    // Empty: it is refused.
    Bytes open(const Bytes& datagram, const rmem_seal_key& key) {
        Bytes plain(datagram.size() - RMEM_SEAL_BYTES);
        bool good = rmem_seal_fits(static_cast<u32>(datagram.size())) &&
                    rmem_seal_hdr_verifies(datagram.data(), &space_key) &&
                    rmem_seal_open(cipher, &key, datagram.data(), static_cast<u32>(datagram.size()),
                                   plain.data());
        return good ? plain : Bytes();
    }
};

// draft-irtf-cfrg-xchacha-03, section 2.2.1
TEST(Hchacha, GivesTheDraftsResult) {
    Bytes key = bytes_of_hex("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f");
    Bytes input = bytes_of_hex("000000090000004a0000000031415927");
    Bytes out(32);
    base_hchacha20(out.data(), key.data(), input.data());
    EXPECT_EQ(out,
              bytes_of_hex("82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"));
}

TEST_F(Seal, X25519GivesTheVectorsSharedSecret) {
    Bytes shared(32);
    auto keying = of_hex<rmem_keying>(seal_vectors::keying_client);
    ASSERT_TRUE(cipher->agree(cipher->of, bytes_of_hex(seal_vectors::client_secret).data(),
                              bytes_of_hex(seal_vectors::node_public).data(), shared.data()));
    EXPECT_EQ(shared, Bytes(keying.shared, keying.shared + 32));
    ASSERT_TRUE(cipher->agree(cipher->of, bytes_of_hex(seal_vectors::node_secret).data(),
                              bytes_of_hex(seal_vectors::client_public).data(), shared.data()));
    EXPECT_EQ(shared, Bytes(keying.shared, keying.shared + 32));
}

TEST_F(Seal, KeyOfSmallOrderIsRefused) {
    for (uint8_t first : {0, 1}) {
        Bytes small(32), shared(32);
        small[0] = first;
        EXPECT_FALSE(cipher->agree(cipher->of, bytes_of_hex(seal_vectors::client_secret).data(),
                                   small.data(), shared.data()));
    }
}

TEST_F(Seal, GeneratedPairsAgree) {
    Bytes secret(32), mine(32), other_secret(32), other(32), shared(32), same(32);
    ASSERT_TRUE(cipher->generate(cipher->of, secret.data(), mine.data()));
    ASSERT_TRUE(cipher->generate(cipher->of, other_secret.data(), other.data()));
    EXPECT_NE(mine, other);
    ASSERT_TRUE(cipher->agree(cipher->of, secret.data(), other.data(), shared.data()));
    ASSERT_TRUE(cipher->agree(cipher->of, other_secret.data(), mine.data(), same.data()));
    EXPECT_EQ(shared, same);
}

TEST_F(Seal, KeysAreTheVectors) {
    auto keying = of_hex<rmem_keying>(seal_vectors::keying_client);
    Bytes whole = bytes_of(keying);
    EXPECT_EQ(keying.from, RMEM_KEYING_CLIENT);
    keying.from = 0;
    std::memset(keying.label, 0, sizeof(keying.label));
    rmem_seal_keys keys;
    ASSERT_TRUE(rmem_seal_derive(cipher, &space_key, &keying, &keys));
    EXPECT_EQ(bytes_of(keying), bytes_of_hex(seal_vectors::keying_node));
    EXPECT_EQ(bytes_of(keys.from_client), bytes_of(client));
    EXPECT_EQ(bytes_of(keys.from_node), bytes_of(node));
}

TEST_F(Seal, DatagramsAreTheVectors) {
    EXPECT_EQ(close(request, 2, true, client, "a1a2a3a4a5a6a7a8"), request_sealed);
    EXPECT_EQ(open(request_sealed, client), request);
    Bytes answer = bytes_of_hex(seal_vectors::answer);
    Bytes answer_sealed = bytes_of_hex(seal_vectors::answer_sealed);
    EXPECT_EQ(close(answer, 2, false, node, "0102030405060708"), answer_sealed);
    EXPECT_EQ(open(answer_sealed, node), answer);
}

TEST_F(Seal, OpenedDatagramHasItsMessages) {
    Bytes plain = open(request_sealed, client);
    rmem_datagram in;
    ASSERT_EQ(rmem_datagram_open_unsealed(&in, plain.data(), static_cast<u32>(plain.size()), false),
              RMEM_WIRE_GOOD);
    ASSERT_TRUE(rmem_datagram_step(&in, plain.data()));
    EXPECT_EQ(in.head.type, RMEM_WRITE);
    EXPECT_EQ(in.payload_bytes, 100u);
    EXPECT_FALSE(rmem_datagram_is_damaged(&in, plain.data()));
    ASSERT_TRUE(rmem_datagram_step(&in, plain.data()));
    EXPECT_EQ(in.head.type, RMEM_READ);
    EXPECT_EQ(in.head.piece, 8704);
}

TEST_F(Seal, EveryFlippedBitIsRefused) {
    for (size_t bit = 0; bit < 8 * request_sealed.size(); bit++) {
        Bytes flipped = request_sealed;
        flipped[bit / 8] ^= 1 << bit % 8;
        // The header's tag notices those of the header, and the seal those behind.
        EXPECT_EQ(rmem_seal_hdr_verifies(flipped.data(), &space_key), bit / 8 >= RMEM_HDR_BYTES);
        EXPECT_TRUE(open(flipped, client).empty()) << "bit " << bit;
    }
}

TEST_F(Seal, AnotherLengthKeyOrDirectionIsRefused) {
    for (size_t bytes = RMEM_SEAL_BYTES; bytes < request_sealed.size(); bytes++)
        EXPECT_TRUE(
            open(Bytes(request_sealed.begin(), request_sealed.begin() + bytes), client).empty());
    Bytes longer = request_sealed;
    longer.push_back(0);
    EXPECT_TRUE(open(longer, client).empty());
    EXPECT_TRUE(open(request_sealed, node).empty());
}

// A header of one datagram with the rest of another.
TEST_F(Seal, SplicedDatagramIsRefused) {
    Bytes other = request;
    other[32]++; // its number
    other = close(other, 2, true, client, "a1a2a3a4a5a6a7a8");
    ASSERT_FALSE(open(other, client).empty());
    Bytes spliced = other;
    std::copy(request_sealed.begin() + RMEM_HDR_BYTES, request_sealed.end(),
              spliced.begin() + RMEM_HDR_BYTES);
    EXPECT_TRUE(rmem_seal_hdr_verifies(spliced.data(), &space_key));
    EXPECT_TRUE(open(spliced, client).empty());
}

// A sender restored from a snapshot seals other data under a number that it used before.
TEST_F(Seal, NumberThatComesAgainIsNoNonceThatDoes) {
    Bytes before = close(request, 2, true, client, "a1a2a3a4a5a6a7a8");
    Bytes after = close(request, 2, true, client, "b1b2b3b4b5b6b7b8");
    size_t alike = 0;
    for (size_t at = RMEM_HDR_BYTES; at < request.size(); at++)
        alike += before[at] == after[at];
    EXPECT_LT(alike, 20u); // one byte in 256 by chance
    remora::Salt one, two;
    ASSERT_TRUE(remora::draw_salt(one) && remora::draw_salt(two));
    EXPECT_NE(one, two);
}

// ---- which datagrams may be clear ----

struct Clear : Seal {
    // The level's, with the flag.
    Bytes clear(uint8_t type, uint8_t status, uint64_t id, bool flag = true) {
        Message m = message(type, RMEM_SEALED, space_key, 0);
        m.head.clear = flag;
        m.head.status = status;
        m.head.id = id;
        m.head.addr = 0;
        m.head.floor = 0;
        m.payload.assign(rmem_wire_payload_bytes(&m.head), 1);
        if ((type & ~RMEM_RESPONSE) == RMEM_OPEN)
            m.head.len = static_cast<u32>(m.payload.size());
        rmem_datagram_build_one(&m.heads, &m.head, &space_key, m.payload.data());
        return m.bytes();
    }
    static rmem_wire_verdict form(const Bytes& bytes, bool response) {
        rmem_datagram in;
        return rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), response);
    }
};

TEST_F(Clear, OpenItsAnswerAndNoticesAreGood) {
    EXPECT_EQ(form(clear(RMEM_OPEN, 0, 9), false), RMEM_WIRE_GOOD);
    for (uint8_t status : {RMEM_OK, RMEM_CHALLENGE, RMEM_INVALID})
        EXPECT_EQ(form(clear(RMEM_OPEN | RMEM_RESPONSE, status, 9), true), RMEM_WIRE_GOOD);
    for (uint8_t status : {RMEM_NO_SESSION, RMEM_REBOOTED})
        EXPECT_EQ(form(clear(RMEM_CLOSE | RMEM_RESPONSE, status, 0), true), RMEM_WIRE_GOOD);
}

TEST_F(Clear, OpenHasAKeyBehind) {
    EXPECT_EQ(clear(RMEM_OPEN, 0, 9).size(), RMEM_HEADS_BYTES(1) + sizeof(rmem_open_sealed));
    EXPECT_EQ(clear(RMEM_OPEN | RMEM_RESPONSE, RMEM_OK, 9).size(),
              RMEM_HEADS_BYTES(1) + sizeof(rmem_opened_sealed));
}

TEST_F(Clear, OthersAreMalformed) {
    for (uint8_t type : requests) {
        if (type == RMEM_OPEN)
            continue;
        EXPECT_NE(form(clear(type, 0, 9), false), RMEM_WIRE_GOOD) << int(type);
        for (uint8_t status = 0; status < RMEM_STATUS_COUNT; status++)
            EXPECT_NE(form(clear(type | RMEM_RESPONSE, status, 9), true), RMEM_WIRE_GOOD);
    }
    EXPECT_NE(form(clear(RMEM_CLOSE | RMEM_RESPONSE, RMEM_OK, 0), true), RMEM_WIRE_GOOD);
}

TEST_F(Clear, WithoutTheFlagNothingIsReadBeforeItsSealIsOpen) {
    EXPECT_EQ(form(clear(RMEM_OPEN, 0, 9, false), false), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(form(request, false), RMEM_WIRE_MALFORMED);
    EXPECT_EQ(form(request_sealed, false), RMEM_WIRE_MALFORMED);
}

TEST_F(Clear, FlagIsOfThatLevelAlone) {
    for (uint8_t level : {RMEM_LINK, RMEM_DIGEST, RMEM_FULL}) {
        Bytes open = message(RMEM_OPEN, level, space_key).bytes();
        ASSERT_EQ(form(open, false), RMEM_WIRE_GOOD);
        open[1] |= RMEM_FLAGS_CLEAR;
        EXPECT_EQ(form(open, false), RMEM_WIRE_MALFORMED);
    }
}

TEST_F(Clear, SealedOpenIsMalformed) {
    Bytes open = clear(RMEM_OPEN, 0, 9, false);
    rmem_datagram in;
    EXPECT_EQ(rmem_datagram_open_unsealed(&in, open.data(), static_cast<u32>(open.size()), false),
              RMEM_WIRE_MALFORMED);
}

} // namespace
