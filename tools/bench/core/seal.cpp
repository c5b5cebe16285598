// SPDX-License-Identifier: GPL-2.0
// Sealed datagrams, by libcrypto; the cipher alone, as their floor; and a session's keys.
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "core.hpp"
#include "seal/cipher.hpp"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr rmem_seal_key seal_key = {{1, 2, 3, 4}};
constexpr uint8_t salt[RMEM_SEAL_SALT_BYTES] = {1};

// A WRITE with so many bytes of data, and room for the seal.
struct Write {
    const base_siphash_key key = bench::key();
    remora::Cipher libcrypto;
    const rmem_cipher* cipher = &libcrypto.core();
    uint32_t bytes;
    Bytes datagram, opened;

    explicit Write(benchmark::State& state)
        : bytes(RMEM_HEADS_BYTES(1) + static_cast<uint32_t>(state.range(0))),
          datagram(bytes + RMEM_SEAL_BYTES),
          opened(bytes) {
        rmem_head head{};
        head.type = RMEM_WRITE;
        head.integrity = RMEM_SEALED;
        head.space = 1;
        head.session = 2;
        head.boot = 3;
        head.id = head.floor = 1;
        head.len = static_cast<uint32_t>(state.range(0));
        rmem_wire_encode_hdr(datagram.data(), &head);
        rmem_wire_encode_msg(datagram.data() + RMEM_HDR_BYTES, &head);
    }
    bool close() {
        return rmem_seal_close(cipher, &key, &seal_key, salt, datagram.data(), bytes, 1, false);
    }
    bool open() {
        rmem_datagram in;
        return rmem_seal_hdr_verifies(datagram.data(), &key) &&
               rmem_seal_open(cipher, &seal_key, datagram.data(), bytes + RMEM_SEAL_BYTES,
                              opened.data()) &&
               rmem_datagram_open_unsealed(&in, opened.data(), bytes, false) == RMEM_WIRE_GOOD &&
               rmem_datagram_step(&in, opened.data());
    }
};

void seal(benchmark::State& state) {
    Write write(state);
    for (auto _ : state) {
        benchmark::DoNotOptimize(write.datagram.data());
        if (!write.close())
            return state.SkipWithError("not sealed");
    }
}

void open(benchmark::State& state) {
    Write write(state);
    write.close();
    for (auto _ : state) {
        benchmark::DoNotOptimize(write.datagram.data());
        if (!write.open())
            return state.SkipWithError("a good datagram is refused");
    }
}

// One call of the cipher, the least that sealing can cost.
void floor(benchmark::State& state) {
    Write write(state);
    uint8_t key[RMEM_SEAL_KEY_BYTES] = {1}, nonce[RMEM_SEAL_NONCE_BYTES] = {2};
    uint8_t tag[RMEM_SEAL_TAG_BYTES];
    for (auto _ : state) {
        benchmark::DoNotOptimize(write.datagram.data());
        write.cipher->encrypt(write.cipher->of, key, nonce, write.datagram.data(),
                              RMEM_TAGGED_BYTES, write.datagram.data() + RMEM_HDR_BYTES,
                              write.bytes - RMEM_HDR_BYTES, tag);
    }
}

BENCHMARK(seal)->Name("seal")->Arg(64)->Arg(1024)->Arg(4096);
BENCHMARK(open)->Name("open")->Arg(64)->Arg(1024)->Arg(4096);
BENCHMARK(floor)->Name("chacha20-poly1305")->Arg(64)->Arg(1024)->Arg(4096);

// One end's work for a session: a pair, the shared secret, both keys.
void agree(benchmark::State& state) {
    remora::Cipher libcrypto;
    const rmem_cipher& cipher = libcrypto.core();
    const base_siphash_key space_key = bench::key();
    uint8_t secret[RMEM_X25519_BYTES], peer[RMEM_X25519_BYTES];
    rmem_keying keying{};
    rmem_seal_keys keys;
    if (!cipher.generate(cipher.of, secret, peer))
        return state.SkipWithError("no key pair");
    for (auto _ : state) {
        if (!cipher.generate(cipher.of, secret, keying.client_key) ||
            !cipher.agree(cipher.of, secret, peer, keying.shared) ||
            !rmem_seal_derive(&cipher, &space_key, &keying, &keys))
            return state.SkipWithError("no keys");
    }
}

BENCHMARK(agree)->Name("session-keys");

} // namespace
