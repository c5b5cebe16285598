// SPDX-License-Identifier: MIT
/*
 * The primitives of sealed sessions (core/rmem/seal.h) by libcrypto: X25519, BLAKE2s,
 * ChaCha20-Poly1305. libcrypto chooses code for the processor.
 *
 * The project has a library context of libcrypto to itself: neither a program's openssl.cnf nor its
 * engines matter here, and libcrypto's own end at exit() leaves it alone.
 */
#pragma once

#include <array>
#include <cstdint>
#include <memory>

extern "C" {
#include "core/rmem/seal.h"
}

namespace remora {

// One thread at a time.
class Cipher {
public:
    // Throws Failure: libcrypto lacks a part, or has no memory.
    Cipher();
    ~Cipher();
    Cipher(const Cipher&) = delete;
    Cipher& operator=(const Cipher&) = delete;

    // Valid as long as this object.
    const rmem_cipher& core() const { return core_; }

private:
    struct Parts;
    static bool generate(void* of, u8* secret, u8* public_key);
    static bool agree(void* of, const u8* secret, const u8* public_key, u8* shared);
    static bool mac(void* of, const u8* key, const void* in, std::size_t bytes, u8* out);
    static bool encrypt(void* of, const u8* key, const u8* nonce, const void* ad,
                        std::size_t ad_bytes, void* text, std::size_t bytes, u8* tag);
    static bool decrypt(void* of, const u8* key, const u8* nonce, const void* ad,
                        std::size_t ad_bytes, const void* from, void* to, std::size_t bytes,
                        const u8* tag);

    const std::unique_ptr<Parts> parts_;
    const rmem_cipher core_;
};

using Salt = std::array<std::uint8_t, RMEM_SEAL_SALT_BYTES>;

// A fresh salt for a batch of datagrams, of the kernel's generator, which a restored snapshot does
// not repeat. False: there is none, so nothing can be sealed.
bool draw_salt(Salt& salt);

} // namespace remora
