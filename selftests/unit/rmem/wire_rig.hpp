// SPDX-License-Identifier: GPL-2.0
// Messages with every field set to something of its own.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "../../common/messages.hpp"

namespace wire {

struct Message {
    rmem_head head{};
    uint8_t hdr[RMEM_HDR_BYTES];
    Bytes payload;

    rmem_wire_verdict parse(bool response = false) {
        rmem_head parsed;
        return rmem_wire_parse(hdr, sizeof(hdr), response, &parsed);
    }
    rmem_wire_verdict verify(const base_siphash_key& key) {
        rmem_head parsed;
        bool response = hdr[1] & RMEM_RESPONSE;
        rmem_wire_verdict verdict = rmem_wire_parse(hdr, sizeof(hdr), response, &parsed);
        if (verdict != RMEM_WIRE_GOOD)
            return verdict;
        return rmem_wire_verify(hdr, &parsed, &key, payload.data(), payload.size());
    }
};

inline base_siphash_key test_key(uint8_t first = 1) {
    uint8_t bytes[BASE_SIPHASH_KEY_BYTES] = {first, 2, 3};
    base_siphash_key key;
    base_crc32c_setup();
    base_siphash_key_load(&key, bytes);
    return key;
}

inline Message message(uint8_t type, uint8_t integrity, const base_siphash_key& key,
                       size_t bytes = 64) {
    Message m;
    m.head.type = type;
    m.head.integrity = integrity;
    m.head.attempt = 200;
    m.head.space = 0x01020304;
    m.head.session = 0x1112131415161718;
    m.head.boot = 0x2122232425262728;
    m.head.id = 0x3132333435363738;
    m.head.addr = 0x5152535455565758;
    m.head.len = bytes;
    if (type == RMEM_OPEN)
        m.head.session = m.head.boot = 0;
    if (!(type & RMEM_RESPONSE))
        m.head.floor = 0x3132333435363700;
    if (type == RMEM_READ)
        m.head.piece = 4096;
    if (rmem_type_is_exactly_once(type))
        m.head.op = RMEM_ADD;
    if (rmem_type_has_ranges(type))
        m.head.op = 3;
    if (type == (RMEM_READ | RMEM_RESPONSE))
        m.head.offset = 4096;
    m.payload.resize(rmem_wire_payload_bytes(&m.head));
    std::iota(m.payload.begin(), m.payload.end(), 1);
    rmem_wire_build(m.hdr, &m.head, &key, m.payload.data(), m.payload.size());
    return m;
}

// All types of requests, as the table has them.
inline const std::vector<uint8_t> requests = [] {
    std::vector<uint8_t> types;
#define TYPE(type, ...) types.push_back(RMEM_##type);
    RMEM_TYPES(TYPE)
#undef TYPE
    return types;
}();

} // namespace wire
