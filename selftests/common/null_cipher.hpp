// SPDX-License-Identifier: GPL-2.0
// A cipher that hides nothing, for tests of all that is around one: it leaves texts as they are, so
// that a test can read them, but notices changes, another key, number or header. Pairs are numbers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>

extern "C" {
#include "core/base/siphash.h"
#include "core/rmem/seal.h"
}

namespace wire {

class NullCipher {
public:
    const rmem_cipher& core() const { return core_; }
    std::uint64_t generated = 0, agreed = 0; // calls of either
    std::function<void()> on_agree;

private:
    static void hash(const void* key, std::size_t key_bytes, const void* in, std::size_t bytes,
                     std::uint8_t* out, std::size_t out_bytes) {
        for (std::uint64_t word = 0; word < out_bytes / 8; word++) {
            base_siphash_key mine{{word, 1}};
            struct base_siphash h {};
            base_siphash_init(&h, &mine);
            base_siphash_update(&h, key, key_bytes);
            base_siphash_update(&h, in, bytes);
            std::uint64_t value = base_siphash_final(&h);
            std::memcpy(out + 8 * word, &value, 8);
        }
    }
    static bool generate(void* of, u8* secret, u8* public_key) {
        const std::uint64_t count = ++static_cast<NullCipher*>(of)->generated;
        std::memset(secret, 0, RMEM_X25519_BYTES);
        std::memcpy(secret, &count, sizeof(count));
        std::copy_n(secret, RMEM_X25519_BYTES, public_key);
        public_key[RMEM_X25519_BYTES - 1] = 1;
        return true;
    }
    // The same of either end's secret and the other's public key.
    static bool agree(void* of, const u8* secret, const u8* public_key, u8* shared) {
        auto* mine = static_cast<NullCipher*>(of);
        mine->agreed++;
        if (mine->on_agree)
            mine->on_agree();
        for (unsigned at = 0; at < RMEM_X25519_BYTES; at++)
            shared[at] = secret[at] ^ public_key[at];
        return public_key[RMEM_X25519_BYTES - 1] == 1;
    }
    static bool mac(void*, const u8* key, const void* in, std::size_t bytes, u8* out) {
        hash(key, BASE_SIPHASH_KEY_BYTES, in, bytes, out, RMEM_SEAL_KEY_BYTES);
        return true;
    }
    static void tag_of(const u8* key, const u8* nonce, const void* ad, std::size_t ad_bytes,
                       const void* text, std::size_t bytes, u8* tag) {
        u8 under[RMEM_SEAL_KEY_BYTES + RMEM_SEAL_NONCE_BYTES + 16];
        std::copy_n(key, RMEM_SEAL_KEY_BYTES, under);
        std::copy_n(nonce, RMEM_SEAL_NONCE_BYTES, under + RMEM_SEAL_KEY_BYTES);
        hash("", 0, ad, ad_bytes, under + RMEM_SEAL_KEY_BYTES + RMEM_SEAL_NONCE_BYTES, 16);
        hash(under, sizeof(under), text, bytes, tag, RMEM_SEAL_TAG_BYTES);
    }
    static bool encrypt(void*, const u8* key, const u8* nonce, const void* ad, std::size_t ad_bytes,
                        void* text, std::size_t bytes, u8* tag) {
        tag_of(key, nonce, ad, ad_bytes, text, bytes, tag);
        return true;
    }
    static bool decrypt(void*, const u8* key, const u8* nonce, const void* ad, std::size_t ad_bytes,
                        const void* from, void* to, std::size_t bytes, const u8* tag) {
        u8 right[RMEM_SEAL_TAG_BYTES];
        tag_of(key, nonce, ad, ad_bytes, from, bytes, right);
        std::memmove(to, from, bytes);
        return !std::memcmp(right, tag, sizeof(right));
    }

    const rmem_cipher core_{this, generate, agree, mac, encrypt, decrypt};
};

} // namespace wire
