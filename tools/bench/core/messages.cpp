// SPDX-License-Identifier: GPL-2.0
// What both ends do with the bytes of every message.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "core.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint32_t block_bytes = 4096;

rmem_head head_of(uint8_t type, uint8_t integrity, uint64_t id) {
    rmem_head head{};
    head.type = type;
    head.integrity = integrity;
    head.space = 1;
    head.session = 2;
    head.boot = 3;
    head.id = id;
    head.floor = 1;
    head.addr = 1 << 20;
    head.len = block_bytes;
    if (type == RMEM_READ)
        head.piece = block_bytes;
    return head;
}

// Messages of one type, sealed, as one datagram.
Bytes datagram(uint32_t messages, uint8_t type, uint8_t integrity) {
    const base_siphash_key key = bench::key();
    Bytes heads(RMEM_HEADS_BYTES(messages)), payloads;
    struct base_siphash hash;
    base_crc32c_setup();
    base_siphash_init(&hash, &key);
    for (uint32_t n = 0; n < messages; n++) {
        rmem_head head = head_of(type, integrity, n + 1);
        Bytes payload(rmem_wire_payload_bytes(&head), static_cast<uint8_t>(n));
        if (!n)
            rmem_wire_encode_hdr(heads.data(), &head);
        if (rmem_wire_has_digest(&head))
            head.digest = base_crc32c_final(
                base_crc32c_update(BASE_CRC32C_SEED, payload.data(), payload.size()));
        rmem_wire_encode_msg(heads.data() + RMEM_HEADS_BYTES(n), &head);
        base_siphash_update(&hash, payload.data(), rmem_wire_tagged_bytes(&head));
        payloads.insert(payloads.end(), payload.begin(), payload.end());
    }
    rmem_wire_seal(heads.data(), messages, false, &hash);
    heads.insert(heads.end(), payloads.begin(), payloads.end());
    return heads;
}

void tag(benchmark::State& state) {
    const base_siphash_key key = bench::key();
    Bytes bytes = datagram(1, RMEM_READ, RMEM_LINK);
    for (auto _ : state) {
        benchmark::DoNotOptimize(bytes.data());
        struct base_siphash hash;
        base_siphash_init(&hash, &key);
        uint64_t tag = rmem_wire_tag(&hash, bytes.data(), 1);
        benchmark::DoNotOptimize(tag);
    }
}

BENCHMARK(tag)->Name("siphash-header");

// A datagram: parsed, then the tag and what the level covers of each payload.
bool takes_all(const Bytes& bytes, const base_siphash_key& key) {
    rmem_datagram in;
    bool good = rmem_datagram_open(&in, bytes.data(), static_cast<uint32_t>(bytes.size()), false) ==
                    RMEM_WIRE_GOOD &&
                rmem_datagram_verifies(&in, &key, bytes.data());
    while (rmem_datagram_step(&in, bytes.data()))
        good &= !rmem_datagram_is_damaged(&in, bytes.data());
    return good;
}

void one(benchmark::State& state, uint8_t type, uint8_t integrity) {
    const base_siphash_key key = bench::key();
    Bytes bytes = datagram(1, type, integrity);
    for (auto _ : state) {
        benchmark::DoNotOptimize(bytes.data());
        if (!takes_all(bytes, key))
            return state.SkipWithError("a good message is refused");
    }
}

BENCHMARK_CAPTURE(one, read, RMEM_READ, RMEM_LINK)->Name("wire-read");
BENCHMARK_CAPTURE(one, link, RMEM_WRITE, RMEM_LINK)->Name("wire-write-4k-link");
BENCHMARK_CAPTURE(one, digest, RMEM_WRITE, RMEM_DIGEST)->Name("wire-write-4k-digest");
BENCHMARK_CAPTURE(one, full, RMEM_WRITE, RMEM_FULL)->Name("wire-write-4k-full");

// As many READs as may share a datagram.
void bundle(benchmark::State& state) {
    const base_siphash_key key = bench::key();
    Bytes bytes = datagram(RMEM_BUNDLE_MAX, RMEM_READ, RMEM_LINK);
    for (auto _ : state) {
        benchmark::DoNotOptimize(bytes.data());
        if (!takes_all(bytes, key))
            return state.SkipWithError("a good datagram is refused");
    }
}

BENCHMARK(bundle)->Name("datagram-16-reads");

} // namespace
