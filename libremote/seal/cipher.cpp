// SPDX-License-Identifier: MIT
#include "seal/cipher.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <sys/random.h>

#include "support/failure.hpp"

namespace remora {

namespace {

// The parts that all ciphers share. They are never freed: threads can seal until the process ends.
struct Suite {
    OSSL_LIB_CTX* context;
    EVP_CIPHER* aead;
    EVP_MAC* blake2s;
};

const Suite& suite() {
    static const Suite made = [] {
        Suite mine{OSSL_LIB_CTX_new(), nullptr, nullptr};
        if (mine.context) {
            mine.aead = EVP_CIPHER_fetch(mine.context, "ChaCha20-Poly1305", nullptr);
            mine.blake2s = EVP_MAC_fetch(mine.context, "BLAKE2SMAC", nullptr);
        }
        return mine;
    }();
    return made;
}

template <auto free>
struct Free {
    template <typename T>
    void operator()(T* object) const {
        free(object);
    }
};
using CipherCtx = std::unique_ptr<EVP_CIPHER_CTX, Free<EVP_CIPHER_CTX_free>>;
using MacCtx = std::unique_ptr<EVP_MAC_CTX, Free<EVP_MAC_CTX_free>>;
using Pkey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using PkeyCtx = std::unique_ptr<EVP_PKEY_CTX, Free<EVP_PKEY_CTX_free>>;

} // namespace

// Contexts keep the cipher's memory, so a datagram takes none.
struct Cipher::Parts {
    CipherCtx seals{EVP_CIPHER_CTX_new()}, opens{EVP_CIPHER_CTX_new()};
    MacCtx mac{suite().blake2s ? EVP_MAC_CTX_new(suite().blake2s) : nullptr};

    Parts() {
        if (!seals || !opens || !mac || !suite().aead ||
            EVP_EncryptInit_ex2(seals.get(), suite().aead, nullptr, nullptr, nullptr) != 1 ||
            EVP_DecryptInit_ex2(opens.get(), suite().aead, nullptr, nullptr, nullptr) != 1)
            throw Failure("libcrypto has no ChaCha20-Poly1305 and BLAKE2s: install OpenSSL 3 with "
                          "its default provider");
    }
};

Cipher::Cipher()
    : parts_(std::make_unique<Parts>()), core_{parts_.get(), generate, agree,
                                               mac,          encrypt,  decrypt} {}

Cipher::~Cipher() = default;

// The secret is the kernel's random number rather than libcrypto's: that one's generator can be in
// a snapshot.
bool Cipher::generate(void*, u8* secret, u8* public_key) {
    if (getrandom(secret, RMEM_X25519_BYTES, 0) != RMEM_X25519_BYTES)
        return false;
    Pkey pair(EVP_PKEY_new_raw_private_key_ex(suite().context, "X25519", nullptr, secret,
                                              RMEM_X25519_BYTES));
    std::size_t bytes = RMEM_X25519_BYTES;
    return pair && EVP_PKEY_get_raw_public_key(pair.get(), public_key, &bytes) == 1;
}

// libcrypto fails where the result is 0.
bool Cipher::agree(void*, const u8* secret, const u8* public_key, u8* shared) {
    Pkey own(EVP_PKEY_new_raw_private_key_ex(suite().context, "X25519", nullptr, secret,
                                             RMEM_X25519_BYTES));
    Pkey peer(EVP_PKEY_new_raw_public_key_ex(suite().context, "X25519", nullptr, public_key,
                                             RMEM_X25519_BYTES));
    if (!own || !peer)
        return false;
    PkeyCtx context(EVP_PKEY_CTX_new_from_pkey(suite().context, own.get(), nullptr));
    std::size_t bytes = RMEM_X25519_BYTES;
    return context && EVP_PKEY_derive_init(context.get()) == 1 &&
           EVP_PKEY_derive_set_peer(context.get(), peer.get()) == 1 &&
           EVP_PKEY_derive(context.get(), shared, &bytes) == 1 && bytes == RMEM_X25519_BYTES;
}

bool Cipher::mac(void* of, const u8* key, const void* in, std::size_t bytes, u8* out) {
    EVP_MAC_CTX* context = static_cast<Parts*>(of)->mac.get();
    std::size_t made = 0;
    return EVP_MAC_init(context, key, BASE_SIPHASH_KEY_BYTES, nullptr) == 1 &&
           EVP_MAC_update(context, static_cast<const u8*>(in), bytes) == 1 &&
           EVP_MAC_final(context, out, &made, RMEM_SEAL_KEY_BYTES) == 1 &&
           made == RMEM_SEAL_KEY_BYTES;
}

bool Cipher::encrypt(void* of, const u8* key, const u8* nonce, const void* ad, std::size_t ad_bytes,
                     void* text, std::size_t bytes, u8* tag) {
    EVP_CIPHER_CTX* context = static_cast<Parts*>(of)->seals.get();
    auto* at = static_cast<u8*>(text);
    int made = 0;
    return EVP_EncryptInit_ex2(context, nullptr, key, nonce, nullptr) == 1 &&
           EVP_EncryptUpdate(context, nullptr, &made, static_cast<const u8*>(ad),
                             static_cast<int>(ad_bytes)) == 1 &&
           EVP_EncryptUpdate(context, at, &made, at, static_cast<int>(bytes)) == 1 &&
           made == static_cast<int>(bytes) &&
           EVP_EncryptFinal_ex(context, at + bytes, &made) == 1 && !made &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, RMEM_SEAL_TAG_BYTES, tag) == 1;
}

bool Cipher::decrypt(void* of, const u8* key, const u8* nonce, const void* ad, std::size_t ad_bytes,
                     const void* from, void* to, std::size_t bytes, const u8* tag) {
    EVP_CIPHER_CTX* context = static_cast<Parts*>(of)->opens.get();
    auto* at = static_cast<u8*>(to);
    int made = 0;
    return EVP_DecryptInit_ex2(context, nullptr, key, nonce, nullptr) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, RMEM_SEAL_TAG_BYTES,
                               const_cast<u8*>(tag)) == 1 &&
           EVP_DecryptUpdate(context, nullptr, &made, static_cast<const u8*>(ad),
                             static_cast<int>(ad_bytes)) == 1 &&
           EVP_DecryptUpdate(context, at, &made, static_cast<const u8*>(from),
                             static_cast<int>(bytes)) == 1 &&
           EVP_DecryptFinal_ex(context, at + bytes, &made) == 1;
}

bool draw_salt(Salt& salt) {
    return getrandom(salt.data(), salt.size(), 0) == static_cast<ssize_t>(salt.size());
}

} // namespace remora
