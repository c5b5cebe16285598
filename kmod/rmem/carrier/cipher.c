// SPDX-License-Identifier: GPL-2.0
#include "rmem/carrier/cipher.h"

#include <linux/random.h>

#include "core/base/bytes.h"

#if IS_ENABLED(CONFIG_CRYPTO_LIB_CHACHA20POLY1305) && IS_ENABLED(CONFIG_CRYPTO_LIB_CURVE25519)

#include <crypto/blake2s.h>
#include <crypto/chacha20poly1305.h>
#include <crypto/curve25519.h>

static bool cipher_generate(void *of, u8 secret[RMEM_X25519_BYTES],
			    u8 public_key[RMEM_X25519_BYTES])
{
	if (!rng_is_initialized())
		return false;
	get_random_bytes(secret, RMEM_X25519_BYTES);
	curve25519_clamp_secret(secret);
	return curve25519_generate_public(public_key, secret);
}

static bool cipher_agree(void *of, const u8 secret[RMEM_X25519_BYTES],
			 const u8 public_key[RMEM_X25519_BYTES], u8 shared[RMEM_X25519_BYTES])
{
	return curve25519(shared, secret, public_key);
}

static bool cipher_mac(void *of, const u8 key[BASE_SIPHASH_KEY_BYTES], const void *in, size_t bytes,
		       u8 out[RMEM_SEAL_KEY_BYTES])
{
	blake2s(out, in, key, RMEM_SEAL_KEY_BYTES, bytes, BASE_SIPHASH_KEY_BYTES);
	return true;
}

const struct rmem_cipher *rmem_cipher(void)
{
	static const struct rmem_cipher cipher = {
		.generate = cipher_generate,
		.agree = cipher_agree,
		.mac = cipher_mac,
	};

	return &cipher;
}

/* The nonce's first 4 bytes are 0, which the library takes for granted. */
static u64 cipher_nonce(const struct rmem_seal_once *once)
{
	return base_load_le64(once->nonce + RMEM_SEAL_NONCE_BYTES - sizeof(u64));
}

bool rmem_cipher_encrypt(const struct rmem_seal_once *once, const void *ad, u32 ad_bytes,
			 struct scatterlist *text_and_tag, u32 text_bytes)
{
	return chacha20poly1305_encrypt_sg_inplace(text_and_tag, text_bytes, ad, ad_bytes,
						   cipher_nonce(once), once->key);
}

bool rmem_cipher_decrypt(const struct rmem_seal_once *once, const void *ad, u32 ad_bytes,
			 void *text, u32 text_bytes)
{
	return chacha20poly1305_decrypt(text, text, text_bytes + RMEM_SEAL_TAG_BYTES, ad, ad_bytes,
					cipher_nonce(once), once->key);
}

#else

const struct rmem_cipher *rmem_cipher(void)
{
	return NULL;
}

bool rmem_cipher_encrypt(const struct rmem_seal_once *once, const void *ad, u32 ad_bytes,
			 struct scatterlist *text_and_tag, u32 text_bytes)
{
	return false;
}

bool rmem_cipher_decrypt(const struct rmem_seal_once *once, const void *ad, u32 ad_bytes,
			 void *text, u32 text_bytes)
{
	return false;
}

#endif
