/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sealed sessions (include/remora/rmem.h): keys, and datagrams as they travel.
 *
 *   client                                      node
 *     generate: secret, public
 *     OPEN with public ------------------------->  generate; agree; rmem_seal_derive()
 *     agree; rmem_seal_derive() <----------------  answer with its public
 *
 *   out: hdr | heads | payloads   -- rmem_seal_close() --> hdr | ciphertext | struct rmem_seal
 *   in:  rmem_seal_fits(), rmem_seal_hdr_verifies(), before a key is looked for
 *        rmem_seal_open()         --> hdr | heads | payloads, for rmem_datagram_open_unsealed()
 *
 * The primitives come from outside: the machine's library has them for its processor.
 */
#ifndef REMORA_RMEM_SEAL_H
#define REMORA_RMEM_SEAL_H

#include "core/base/siphash.h"
#include "core/base/types.h"
#include "remora/rmem.h"

#define RMEM_SEAL_NONCE_BYTES 12
#define RMEM_SEAL_TAG_BYTES 16
#define RMEM_SEAL_SALT_BYTES 8

/*
 * The primitives. of: the functions' own; it needn't bear two calls at once. False: an error of the
 * primitives themselves, or the case that the function names.
 */
struct rmem_cipher {
	void *of;
	/* A fresh X25519 secret, and its public key. */
	bool (*generate)(void *of, u8 secret[RMEM_X25519_BYTES], u8 public_key[RMEM_X25519_BYTES]);
	/* X25519. False: the result would be 0. */
	bool (*agree)(void *of, const u8 secret[RMEM_X25519_BYTES],
		      const u8 public_key[RMEM_X25519_BYTES], u8 shared[RMEM_X25519_BYTES]);
	/* BLAKE2s with key and 32 bytes of output. */
	bool (*mac)(void *of, const u8 key[BASE_SIPHASH_KEY_BYTES], const void *in, size_t bytes,
		    u8 out[RMEM_SEAL_KEY_BYTES]);
	/*
	 * AEAD_CHACHA20_POLY1305 (RFC 8439), of a text in place. The two are for rmem_seal_close()
	 * and rmem_seal_open(); NULL where the carrier itself calls such functions.
	 */
	bool (*encrypt)(void *of, const u8 key[RMEM_SEAL_KEY_BYTES],
			const u8 nonce[RMEM_SEAL_NONCE_BYTES], const void *ad, size_t ad_bytes,
			void *text, size_t bytes, u8 tag[RMEM_SEAL_TAG_BYTES]);
	/* to and from can be the same. False: the tag does not verify; to holds anything. */
	bool (*decrypt)(void *of, const u8 key[RMEM_SEAL_KEY_BYTES],
			const u8 nonce[RMEM_SEAL_NONCE_BYTES], const void *ad, size_t ad_bytes,
			const void *from, void *to, size_t bytes,
			const u8 tag[RMEM_SEAL_TAG_BYTES]);
};

/* A session's. Words, as they are read without a lock (node/session.h). */
struct rmem_seal_key {
	u64 word[RMEM_SEAL_KEY_BYTES / sizeof(u64)];
};

struct rmem_seal_keys {
	struct rmem_seal_key from_client, from_node;
};

/*
 * The keys of a session, of all that keying has but from and label. False: the cipher failed; there
 * are no keys.
 */
bool rmem_seal_derive(const struct rmem_cipher *cipher, const struct base_siphash_key *space_key,
		      struct rmem_keying *keying, struct rmem_seal_keys *keys);

/* Forget secrets: the compiler must not leave it out as a store that nobody reads. */
void rmem_seal_wipe(void *secret, size_t bytes);

/*
 * Out. The datagram, bytes of it with its header, is encoded but for number of messages, flag and
 * tag; RMEM_SEAL_BYTES of room are behind it. salt: see "Sealed sessions". False: the cipher
 * failed, and the datagram must not be sent.
 */
bool rmem_seal_close(const struct rmem_cipher *cipher, const struct base_siphash_key *space_key,
		     const struct rmem_seal_key *key, const u8 salt[RMEM_SEAL_SALT_BYTES],
		     void *datagram, u32 bytes, u32 messages, bool more);

/* The AEAD's key and nonce for one datagram. */
struct rmem_seal_once {
	u8 key[RMEM_SEAL_KEY_BYTES];
	u8 nonce[RMEM_SEAL_NONCE_BYTES];
};

/*
 * For a datagram that isn't contiguous; hdr has its number. The caller encrypts the bytes behind
 * the header, or decrypts them, with the header's first RMEM_TAGGED_BYTES as associated data. Then
 * it wipes once.
 */
void rmem_seal_once(const struct rmem_seal_key *key, const u8 salt[RMEM_SEAL_SALT_BYTES],
		    const void *hdr, struct rmem_seal_once *once);

/* In. True: a datagram of so many bytes can be sealed at all. */
static inline bool rmem_seal_fits(u32 bytes)
{
	return bytes >= RMEM_HEADS_BYTES(1) + RMEM_SEAL_BYTES &&
	       bytes <= RMEM_DATAGRAM_BYTES_MAX + RMEM_SEAL_BYTES;
}

/* True if the header's tag verifies. Constant time. */
bool rmem_seal_hdr_verifies(const void *hdr, const struct base_siphash_key *space_key);

/*
 * The datagram fits. to: gets bytes - RMEM_SEAL_BYTES of it, header and plaintext; it can be the
 * datagram. False: it does not verify.
 */
bool rmem_seal_open(const struct rmem_cipher *cipher, const struct rmem_seal_key *key,
		    const void *datagram, u32 bytes, void *to);

#endif
