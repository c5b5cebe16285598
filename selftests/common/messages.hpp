// SPDX-License-Identifier: GPL-2.0
// Messages of the memory protocol as bytes: payloads by their fields, datagrams out and in. All
// tests and fuzz targets that speak the protocol build and read their messages here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "../unit/core.hpp"

namespace wire {

using Bytes = std::vector<std::uint8_t>;

// ---- payloads ----

template <typename Structure>
Bytes bytes_of(const Structure& structure) {
    Bytes bytes(sizeof(structure));
    std::memcpy(bytes.data(), &structure, sizeof(structure));
    return bytes;
}

inline Bytes followed_by(Bytes bytes, const Bytes& data) {
    bytes.insert(bytes.end(), data.begin(), data.end());
    return bytes;
}

inline rmem_alloc alloc_of(std::uint64_t bytes, std::uint64_t addr, std::uint32_t perm) {
    rmem_alloc alloc{};
    base_store_le64(&alloc.bytes, bytes);
    base_store_le64(&alloc.addr, addr);
    base_store_le32(&alloc.perm, perm);
    return alloc;
}

inline rmem_range range_of(std::uint64_t addr, std::uint64_t bytes) {
    rmem_range range{};
    base_store_le64(&range.addr, addr);
    base_store_le64(&range.bytes, bytes);
    return range;
}

inline rmem_operands operands_of(std::uint64_t value, std::uint64_t compare = 0) {
    rmem_operands operands{};
    base_store_le64(&operands.value[0], value);
    base_store_le64(&operands.compare[0], compare);
    return operands;
}

// bytes: of the integer at addr.
inline rmem_put put_of(std::uint64_t addr, std::uint64_t value, std::uint32_t bytes) {
    rmem_put put{};
    base_store_le64(&put.addr, addr);
    base_store_le64(&put.value, value);
    base_store_le32(&put.bytes, bytes);
    return put;
}

inline rmem_copy copy_of(std::uint64_t from) {
    rmem_copy copy{};
    base_store_le64(&copy.from, from);
    return copy;
}

// A name of at most RMEM_NAME_BYTES.
inline rmem_named named_of(std::string_view name, std::uint64_t addr = 0) {
    rmem_named named{};
    base_store_le64(&named.addr, addr);
    name.copy(reinterpret_cast<char*>(named.name), sizeof(named.name));
    return named;
}

struct Range {
    std::uint64_t addr, bytes;
};

inline Bytes ranges_of(const std::vector<Range>& ranges) {
    Bytes all;
    for (const Range& range : ranges)
        all = followed_by(std::move(all), bytes_of(range_of(range.addr, range.bytes)));
    return all;
}

// ---- datagrams ----

// Messages on their way into a datagram. The first one gives the header's fields.
class Datagram {
public:
    // False: another message of this head doesn't join those that were counted. The first does.
    bool takes(std::uint32_t limit_bytes, const rmem_head& head) {
        return rmem_bundle_joins(&count_, limit_bytes, &head);
    }
    // Forget one that takes() counted and that isn't added.
    void forget(const rmem_head& head) {
        count_.messages--;
        count_.payload_bytes -= rmem_wire_payload_bytes(&head);
        count_.work_bytes -= rmem_wire_work_bytes(&head);
    }
    std::uint32_t messages() const { return count_.messages; }

    // Whether it was counted or not: a test may send what no peer would.
    void add(rmem_head head, const base_siphash_key& key, const Bytes& payload = {}) {
        if (heads_.empty()) {
            heads_.resize(RMEM_HDR_BYTES);
            rmem_wire_encode_hdr(heads_.data(), &head);
            base_siphash_init(&hash_, &key);
            integrity_ = head.integrity;
        }
        head.integrity = integrity_;
        more_ = head.more;
        head.digest = 0;
        if (rmem_wire_has_digest(&head))
            head.digest = base_crc32c_final(
                base_crc32c_update(BASE_CRC32C_SEED, payload.data(), payload.size()));
        heads_.resize(heads_.size() + RMEM_MSG_BYTES);
        rmem_wire_encode_msg(heads_.data() + heads_.size() - RMEM_MSG_BYTES, &head);
        base_siphash_update(&hash_, payload.data(),
                            std::min<std::size_t>(rmem_wire_tagged_bytes(&head), payload.size()));
        payloads_.insert(payloads_.end(), payload.begin(), payload.end());
        added_++;
    }
    std::uint32_t added() const { return added_; }
    std::size_t bytes() const { return heads_.size() + payloads_.size(); }

    // The datagram, sealed; empty afterwards.
    Bytes take() {
        if (added_)
            rmem_wire_seal(heads_.data(), added_, more_, &hash_);
        Bytes bytes = followed_by(std::move(heads_), payloads_);
        *this = Datagram();
        return bytes;
    }

private:
    rmem_bundle count_{};
    struct base_siphash hash_ {};
    std::uint32_t added_ = 0;
    std::uint8_t integrity_ = 0;
    bool more_ = false;
    Bytes heads_, payloads_;
};

inline Bytes sealed(const rmem_head& head, const base_siphash_key& key, const Bytes& payload = {}) {
    Datagram datagram;
    datagram.add(head, key, payload);
    return datagram.take();
}

// A received message: parsed, with its payload.
struct Received {
    rmem_head head;
    Bytes payload;
    rmem_wire_verdict verdict; // GOOD, DAMAGED, or its datagram's TAG
};

// key_of(space) is the key to verify with, or NULL for none, when there are no messages.
template <typename KeyOf>
std::vector<Received> received(const Bytes& bytes, bool response, KeyOf key_of) {
    std::vector<Received> messages;
    rmem_datagram in;
    rmem_wire_verdict verdict =
        rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), response);
    const base_siphash_key* key = verdict == RMEM_WIRE_GOOD ? key_of(in.head.space) : nullptr;
    if (!key)
        return messages;
    bool verifies = rmem_datagram_verifies(&in, key, bytes.data());
    while (rmem_datagram_step(&in, bytes.data())) {
        auto payload = bytes.begin() + in.payload_offset;
        verdict = rmem_datagram_is_damaged(&in, bytes.data()) ? RMEM_WIRE_DAMAGED : RMEM_WIRE_GOOD;
        messages.push_back({in.head, Bytes(payload, payload + in.payload_bytes),
                            verifies ? verdict : RMEM_WIRE_TAG});
    }
    return messages;
}

// The messages of a sealed datagram whose seal was opened.
inline std::vector<Received> opened(const Bytes& plain, bool response) {
    std::vector<Received> messages;
    rmem_datagram in;
    if (rmem_datagram_open_unsealed(&in, plain.data(), static_cast<u32>(plain.size()), response) !=
        RMEM_WIRE_GOOD)
        return messages;
    while (rmem_datagram_step(&in, plain.data())) {
        auto payload = plain.begin() + in.payload_offset;
        messages.push_back({in.head, Bytes(payload, payload + in.payload_bytes), RMEM_WIRE_GOOD});
    }
    return messages;
}

inline bool is_sealed(const Bytes& bytes) {
    return bytes.size() >= RMEM_HDR_BYTES && rmem_wire_is_sealed(bytes.data());
}

// Its header's fields.
inline rmem_head header_of(const Bytes& bytes) {
    rmem_head head{};
    u32 messages;
    rmem_wire_parse_hdr(bytes.data(), &head, &messages);
    return head;
}

// The first message's head of a datagram that is an answer; nothing if it isn't.
inline std::optional<rmem_head> answer_head(const Bytes& bytes) {
    rmem_datagram in;
    if (rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), true) !=
        RMEM_WIRE_GOOD)
        return std::nullopt;
    return in.head;
}

} // namespace wire
