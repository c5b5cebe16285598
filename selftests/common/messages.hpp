// SPDX-License-Identifier: GPL-2.0
// Messages of the memory protocol as bytes: payloads by their fields, datagrams out and in. All
// tests and fuzz targets that speak the protocol build and read their messages here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

// Messages on their way into a datagram: headers first, then payloads.
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
        headers_.resize(headers_.size() + RMEM_HDR_BYTES);
        rmem_wire_build(headers_.data() + headers_.size() - RMEM_HDR_BYTES, &head, &key,
                        payload.data(), payload.size());
        payloads_.insert(payloads_.end(), payload.begin(), payload.end());
    }
    // A message that was built before, in as many of its bytes as there are.
    void add_built(const Bytes& message) {
        auto end = message.begin() + static_cast<std::ptrdiff_t>(
                                         std::min<std::size_t>(message.size(), RMEM_HDR_BYTES));
        headers_.insert(headers_.end(), message.begin(), end);
        payloads_.insert(payloads_.end(), end, message.end());
    }
    std::size_t header_bytes() const { return headers_.size(); }
    std::size_t bytes() const { return headers_.size() + payloads_.size(); }

    // The datagram; empty afterwards.
    Bytes take() {
        Bytes bytes = followed_by(std::move(headers_), payloads_);
        *this = Datagram();
        return bytes;
    }

private:
    rmem_bundle count_{};
    Bytes headers_, payloads_;
};

inline Bytes sealed(const rmem_head& head, const base_siphash_key& key, const Bytes& payload = {}) {
    Datagram datagram;
    datagram.add(head, key, payload);
    return datagram.take();
}

// A received message: parsed, and so much of its payload as is there.
struct Received {
    rmem_head head;
    Bytes payload;
    rmem_wire_verdict verdict;
};

// key_of(space) is the key to verify with, or NULL for none, when there are no messages. *even, if
// wanted: the datagram is as long as its messages say.
template <typename KeyOf>
std::vector<Received> received(const Bytes& bytes, bool response, KeyOf key_of,
                               bool* even = nullptr) {
    std::vector<Received> messages;
    rmem_datagram in;
    rmem_wire_verdict verdict =
        rmem_datagram_open(&in, bytes.data(), static_cast<u32>(bytes.size()), response);
    const base_siphash_key* key = verdict == RMEM_WIRE_GOOD ? key_of(in.head.space) : nullptr;
    while (key && rmem_datagram_step(&in, bytes.data())) {
        auto payload = bytes.begin() + in.payload_offset;
        messages.push_back({in.head, Bytes(payload, payload + in.payload_bytes),
                            rmem_datagram_verify(&in, key, bytes.data())});
    }
    if (even)
        *even = verdict == RMEM_WIRE_GOOD && in.even;
    return messages;
}

} // namespace wire
