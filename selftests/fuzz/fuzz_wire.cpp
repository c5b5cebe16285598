// SPDX-License-Identifier: GPL-2.0
// Any bytes as a datagram: its messages lie within it, what parses encodes to the same bytes, and
// what is sealed verifies until a bit of it changes.
//
// Input: direction, place of a bit to flip (2 bytes), then the datagram.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../unit/core.hpp"

namespace {

void require(bool holds) {
    if (!holds)
        std::abort();
}

void datagram(const uint8_t* data, size_t size, bool response) {
    rmem_datagram in;
    size_t at = 0, payloads = 0;
    for (bool more = rmem_datagram_begin(&in, size, response); more; at += RMEM_HDR_BYTES) {
        require(at + RMEM_HDR_BYTES <= size);
        more = rmem_datagram_count(&in, data + at);
    }
    require(in.messages <= RMEM_BUNDLE_MAX && in.messages * RMEM_HDR_BYTES <= size);
    require(!in.messages == (in.verdict != RMEM_WIRE_GOOD));
    const rmem_head first = in.head;
    while (rmem_datagram_step(&in, data)) {
        const rmem_head& head = in.head;
        require(in.payload_offset == in.messages * RMEM_HDR_BYTES + payloads);
        require(in.payload_offset + in.payload_bytes <= size);
        require(!in.even || in.payload_bytes == rmem_wire_payload_bytes(&head));
        require(in.steps == 1 || (head.space == first.space && head.session == first.session &&
                                  head.boot == first.boot && head.integrity == first.integrity));
        require(in.messages == 1 || rmem_type_may_share(head.type));
        payloads += in.payload_bytes;
    }
    require(in.steps == in.messages);
    require(!in.even || (in.messages && in.messages * RMEM_HDR_BYTES + payloads == size &&
                         in.sum_bytes == payloads));
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const base_siphash_key key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
    base_crc32c_setup();
    if (size < 3)
        return 0;
    const bool response = data[0] & 1;
    const size_t flip = data[1] | data[2] << 8;
    data += 3;
    size -= 3;
    datagram(data, size, response);

    rmem_head head{}, again{};
    if (rmem_wire_parse(data, size, response, &head) != RMEM_WIRE_GOOD)
        return 0;
    require(!!(head.type & RMEM_RESPONSE) == response);
    require(head.integrity <= RMEM_FULL);
    require(response ? head.status < RMEM_STATUS_COUNT : head.id && head.floor <= head.id);

    // The tag is the one thing that parsing doesn't look at.
    uint8_t hdr[RMEM_HDR_BYTES];
    rmem_wire_encode(hdr, &head);
    require(!std::memcmp(hdr, data, RMEM_TAGGED_BYTES));

    const uint8_t* payload = data + RMEM_HDR_BYTES;
    size_t bytes = size - RMEM_HDR_BYTES;
    rmem_wire_verdict verdict = rmem_wire_verify(data, &head, &key, payload, bytes);
    require(verdict == RMEM_WIRE_GOOD || verdict == RMEM_WIRE_TAG || verdict == RMEM_WIRE_DAMAGED);

    std::vector<uint8_t> sealed(payload, payload + bytes);
    rmem_wire_build(hdr, &head, &key, sealed.data(), sealed.size());
    bool fits = bytes == rmem_wire_payload_bytes(&head);
    require(rmem_wire_parse(hdr, sizeof(hdr), response, &again) == RMEM_WIRE_GOOD);
    require(rmem_wire_verify(hdr, &again, &key, sealed.data(), bytes) ==
            (fits ? RMEM_WIRE_GOOD : RMEM_WIRE_DAMAGED));
    hdr[flip / 8 % RMEM_HDR_BYTES] ^= 1 << (flip % 8);
    if (rmem_wire_parse(hdr, sizeof(hdr), response, &again) == RMEM_WIRE_GOOD)
        require(rmem_wire_verify(hdr, &again, &key, sealed.data(), bytes) == RMEM_WIRE_TAG);
    return 0;
}
