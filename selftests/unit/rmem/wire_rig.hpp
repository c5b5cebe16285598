// SPDX-License-Identifier: GPL-2.0
// Messages with every field set to something of its own.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "../../common/messages.hpp"

namespace wire {

struct Heads {
    rmem_hdr hdr;
    rmem_msg msg;
};

struct Message {
    rmem_head head{};
    Heads heads;
    Bytes payload;

    Bytes bytes() const { return followed_by(bytes_of(heads), payload); }
    rmem_wire_verdict parse(bool response = false) const {
        rmem_datagram in;
        return rmem_datagram_open(&in, bytes().data(), static_cast<u32>(bytes().size()), response);
    }
    rmem_wire_verdict verify(const base_siphash_key& key) const {
        bool response = heads.msg.type & RMEM_RESPONSE;
        rmem_wire_verdict form = parse(response);
        if (form != RMEM_WIRE_GOOD)
            return form;
        return received(bytes(), response, [&](uint32_t) { return &key; })[0].verdict;
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
    m.head.number = 0x4142434445464748;
    m.head.id = 0x3132333435363738;
    m.head.addr = 0x5152535455565758;
    m.head.len = bytes;
    if (type == RMEM_OPEN)
        m.head.session = m.head.boot = 0;
    if (!(type & RMEM_RESPONSE))
        m.head.floor = 0x3132333435363700;
    if (type == RMEM_READ)
        m.head.piece = 4096;
    if (rmem_type_has_integer(type))
        m.head.op = RMEM_ADD;
    if (rmem_type_has_ranges(type))
        m.head.op = 3;
    if (type == (RMEM_READ | RMEM_RESPONSE))
        m.head.offset = 4096;
    m.payload.resize(rmem_wire_payload_bytes(&m.head));
    std::iota(m.payload.begin(), m.payload.end(), 1);
    rmem_datagram_build_one(&m.heads, &m.head, &key, m.payload.data());
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
