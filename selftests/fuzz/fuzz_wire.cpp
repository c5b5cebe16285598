// SPDX-License-Identifier: GPL-2.0
// Any bytes as a datagram, as a record of plain messages, and as the plaintext of a sealed
// datagram: its messages lie within it, what parses encodes to the same bytes, and what is sealed
// verifies until a bit of its heads, or of a sealed datagram, changes. Any bytes as a sealed
// datagram, too.
//
// Input: direction (bit 0), form (bit 1: plain messages, bit 2: sealed), place of a bit to flip
// (2 bytes), then the bytes.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../common/messages.hpp"
#include "../common/null_cipher.hpp"

extern "C" {
#include "core/rmem/plain.h"
}

namespace {

void require(bool holds) {
    if (!holds)
        std::abort();
}

// False: it isn't one. is_sealed: a sealed one's plaintext.
bool datagram(const uint8_t* data, size_t size, bool response, bool is_sealed,
              const base_siphash_key& key) {
    rmem_datagram in;
    if ((is_sealed ? rmem_datagram_open_unsealed(&in, data, size, response)
                   : rmem_datagram_open(&in, data, size, response)) != RMEM_WIRE_GOOD) {
        require(!in.messages && !rmem_datagram_step(&in, data));
        return false;
    }
    require(rmem_datagram_heads_bytes(data) == RMEM_HEADS_BYTES(in.messages));
    const rmem_head first = in.head;
    size_t payloads = 0;
    uint64_t work = 0;
    while (rmem_datagram_step(&in, data)) {
        const rmem_head& head = in.head;
        require(in.payload_offset == RMEM_HEADS_BYTES(in.messages) + payloads);
        require(in.payload_offset + in.payload_bytes <= size);
        require(head.space == first.space && head.session == first.session &&
                head.boot == first.boot && head.integrity == first.integrity);
        require(!!(head.type & RMEM_RESPONSE) == response);
        require(!head.clear || head.integrity == RMEM_SEALED);
        require(is_sealed == (head.integrity == RMEM_SEALED && !head.clear));
        bool opens = (head.type & ~RMEM_RESPONSE) == RMEM_OPEN;
        require(head.integrity != RMEM_SEALED || !opens || head.clear);
        require(!head.clear || opens ||
                (head.type == (RMEM_CLOSE | RMEM_RESPONSE) && !head.id &&
                 (head.status == RMEM_NO_SESSION || head.status == RMEM_REBOOTED)));
        require(response ? head.status < RMEM_STATUS_COUNT : head.id && head.floor <= head.id);
        require(in.messages == 1 || rmem_type_may_share(head.type));
        require(rmem_wire_tagged_bytes(&head) <= in.payload_bytes);
        payloads += in.payload_bytes;
        work += rmem_wire_work_bytes(&head);
        // The parsed head encodes to the same bytes.
        uint8_t again[RMEM_MSG_BYTES];
        rmem_wire_encode_msg(again, &head);
        require(!std::memcmp(again, data + RMEM_HEADS_BYTES(in.steps - 1), sizeof(again)));
        rmem_datagram_is_damaged(&in, data);
    }
    require(in.steps == in.messages && in.messages <= RMEM_BUNDLE_MAX);
    require(RMEM_HEADS_BYTES(in.messages) + payloads == size && payloads <= RMEM_PIECE_BYTES_MAX);
    require(in.messages == 1 || work <= RMEM_READ_BYTES_MAX);
    rmem_datagram_verifies(&in, &key, data);
    return true;
}

void plain_record(const uint8_t* data, size_t size, bool response) {
    rmem_plain_record in;
    rmem_plain_begin(&in, static_cast<u32>(size), response);
    uint32_t messages = 0, end = 0;
    uint64_t work = 0;
    for (uint32_t offset; rmem_plain_next(&in, &offset) && rmem_plain_has_head(&in);) {
        if (rmem_plain_step(&in, data + offset) != RMEM_WIRE_GOOD)
            return;
        const rmem_head& head = in.head;
        require(offset == end && offset % 8 == 0);
        require(in.payload_offset == offset + RMEM_PLAIN_BYTES);
        require(in.payload_bytes == rmem_wire_payload_bytes(&head));
        end = offset + rmem_plain_bytes(in.payload_bytes);
        require(end <= size && in.payload_bytes <= RMEM_PIECE_BYTES_MAX);
        require(head.plain && head.integrity == RMEM_LINK && head.session);
        require(!!(head.type & RMEM_RESPONSE) == response && rmem_plain_fits(&head));
        require(response ? head.status < RMEM_STATUS_COUNT : head.id && head.floor <= head.id);
        work += rmem_wire_work_bytes(&head);
        require(++messages == 1 || work <= RMEM_READ_BYTES_MAX);
        require(messages <= RMEM_BUNDLE_MAX);
        uint8_t again[RMEM_PLAIN_BYTES];
        rmem_plain_encode(again, &head);
        require(!std::memcmp(again, data + offset, sizeof(again)));
    }
}

// The same messages, with digests and tag.
std::vector<uint8_t> sealed(const uint8_t* data, size_t size, bool response,
                            const base_siphash_key& key) {
    rmem_datagram in;
    wire::Datagram out;
    rmem_datagram_open(&in, data, size, response);
    while (rmem_datagram_step(&in, data)) {
        const uint8_t* payload = data + in.payload_offset;
        out.add(in.head, key, wire::Bytes(payload, payload + in.payload_bytes));
    }
    return out.take();
}

// Any bytes as they come from the network, then as a plaintext that a peer with the keys seals.
void sealed_datagram(const uint8_t* data, size_t size, bool response, size_t flip,
                     const base_siphash_key& space_key) {
    static const rmem_seal_key key = {{1, 2, 3, 4}};
    static const uint8_t salt[RMEM_SEAL_SALT_BYTES] = {1};
    wire::NullCipher null;
    const rmem_cipher* cipher = &null.core();
    const auto bytes = static_cast<u32>(size);
    std::vector<uint8_t> plain(size);
    if (rmem_seal_fits(bytes)) {
        rmem_seal_hdr_verifies(data, &space_key);
        plain.resize(size - RMEM_SEAL_BYTES);
        rmem_seal_open(cipher, &key, data, bytes, plain.data());
    }
    if (!datagram(data, size, response, true, space_key))
        return;
    std::vector<uint8_t> out(data, data + size);
    out.resize(size + RMEM_SEAL_BYTES);
    require(rmem_seal_close(cipher, &space_key, &key, salt, out.data(), bytes, data[2], false));
    auto opens = [&] {
        const auto all = static_cast<u32>(out.size());
        plain.resize(size);
        return rmem_seal_fits(all) && rmem_seal_hdr_verifies(out.data(), &space_key) &&
               rmem_seal_open(cipher, &key, out.data(), all, plain.data());
    };
    require(opens());
    // As it was, but for the tag.
    require(!std::memcmp(plain.data(), data, RMEM_TAGGED_BYTES));
    require(
        !std::memcmp(plain.data() + RMEM_HDR_BYTES, data + RMEM_HDR_BYTES, size - RMEM_HDR_BYTES));
    out[flip / 8 % out.size()] ^= 1 << (flip % 8);
    require(!opens());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const base_siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    base_crc32c_setup();
    if (size < 3)
        return 0;
    const bool response = data[0] & 1, is_plain = data[0] & 2, is_sealed = data[0] & 4;
    const size_t flip = data[1] | data[2] << 8;
    data += 3;
    size -= 3;
    if (is_plain) {
        plain_record(data, size, response);
        return 0;
    }
    if (is_sealed) {
        sealed_datagram(data, size, response, flip, key);
        return 0;
    }
    if (!datagram(data, size, response, false, key))
        return 0;
    std::vector<uint8_t> again = sealed(data, size, response, key);
    require(again.size() == size);
    // Header and heads are as they were but for count, tag and digests.
    require(!std::memcmp(again.data() + 3, data + 3, RMEM_TAGGED_BYTES - 3));
    auto key_of = [](uint32_t) { return &key; };
    for (const wire::Received& each : wire::received(again, response, key_of))
        require(each.verdict == RMEM_WIRE_GOOD);
    uint32_t heads = rmem_datagram_heads_bytes(data);
    again[flip / 8 % heads] ^= 1 << (flip % 8);
    for (const wire::Received& each : wire::received(again, response, key_of))
        require(each.verdict == RMEM_WIRE_TAG);
    return 0;
}
