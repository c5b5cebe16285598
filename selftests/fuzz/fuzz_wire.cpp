// SPDX-License-Identifier: GPL-2.0
// Any bytes as a datagram, and as a record of plain messages: its messages lie within it, what
// parses encodes to the same bytes, and what is sealed verifies until a bit of its heads changes.
//
// Input: direction (bit 0) and form (bit 1), place of a bit to flip (2 bytes), then the bytes.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../common/messages.hpp"

extern "C" {
#include "core/rmem/plain.h"
}

namespace {

void require(bool holds) {
    if (!holds)
        std::abort();
}

// False: it isn't one.
bool datagram(const uint8_t* data, size_t size, bool response, const base_siphash_key& key) {
    rmem_datagram in;
    if (rmem_datagram_open(&in, data, size, response) != RMEM_WIRE_GOOD) {
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
        require(!!(head.type & RMEM_RESPONSE) == response && head.integrity <= RMEM_FULL);
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

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const base_siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    base_crc32c_setup();
    if (size < 3)
        return 0;
    const bool response = data[0] & 1, is_plain = data[0] & 2;
    const size_t flip = data[1] | data[2] << 8;
    data += 3;
    size -= 3;
    if (is_plain) {
        plain_record(data, size, response);
        return 0;
    }
    if (!datagram(data, size, response, key))
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
