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
    Bytes headers, payloads;
    base_crc32c_setup();
    for (uint32_t n = 0; n < messages; n++) {
        rmem_head head = head_of(type, integrity, n + 1);
        Bytes payload(rmem_wire_payload_bytes(&head), static_cast<uint8_t>(n));
        headers.resize(headers.size() + RMEM_HDR_BYTES);
        rmem_wire_build(headers.data() + headers.size() - RMEM_HDR_BYTES, &head, &key,
                        payload.data(), payload.size());
        payloads.insert(payloads.end(), payload.begin(), payload.end());
    }
    headers.insert(headers.end(), payloads.begin(), payloads.end());
    return headers;
}

void tag(benchmark::State& state) {
    const base_siphash_key key = bench::key();
    Bytes bytes = datagram(1, RMEM_READ, RMEM_LINK);
    for (auto _ : state) {
        benchmark::DoNotOptimize(bytes.data());
        uint64_t hash = base_siphash(&key, bytes.data(), RMEM_TAGGED_BYTES);
        benchmark::DoNotOptimize(hash);
    }
}

BENCHMARK(tag)->Name("siphash-header");

// One message: parsed, then its tag and what its level covers of the payload.
void one(benchmark::State& state, uint8_t type, uint8_t integrity) {
    const base_siphash_key key = bench::key();
    Bytes bytes = datagram(1, type, integrity);
    rmem_head head;
    for (auto _ : state) {
        benchmark::DoNotOptimize(bytes.data());
        if (rmem_wire_parse(bytes.data(), bytes.size(), false, &head) != RMEM_WIRE_GOOD ||
            rmem_wire_verify(bytes.data(), &head, &key, bytes.data() + RMEM_HDR_BYTES,
                             bytes.size() - RMEM_HDR_BYTES) != RMEM_WIRE_GOOD)
            return state.SkipWithError("a good message is refused");
    }
}

BENCHMARK_CAPTURE(one, read, RMEM_READ, RMEM_LINK)->Name("wire-read");
BENCHMARK_CAPTURE(one, link, RMEM_WRITE, RMEM_LINK)->Name("wire-write-4k-link");
BENCHMARK_CAPTURE(one, digest, RMEM_WRITE, RMEM_DIGEST)->Name("wire-write-4k-digest");
BENCHMARK_CAPTURE(one, full, RMEM_WRITE, RMEM_FULL)->Name("wire-write-4k-full");

// A whole datagram of as many READs as may share one: headers counted, each parsed and verified.
void bundle(benchmark::State& state) {
    const base_siphash_key key = bench::key();
    Bytes bytes = datagram(RMEM_BUNDLE_MAX, RMEM_READ, RMEM_LINK);
    rmem_datagram in;
    for (auto _ : state) {
        benchmark::DoNotOptimize(bytes.data());
        uint32_t good = 0;
        rmem_datagram_open(&in, bytes.data(), static_cast<uint32_t>(bytes.size()), false);
        while (rmem_datagram_step(&in, bytes.data()))
            good += rmem_datagram_verify(&in, &key, bytes.data()) == RMEM_WIRE_GOOD;
        if (good != RMEM_BUNDLE_MAX)
            return state.SkipWithError("a good datagram is refused");
    }
}

BENCHMARK(bundle)->Name("datagram-16-reads");

} // namespace
