// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/seal.h"

#include "core/base/bytes.h"
#include "core/base/hchacha.h"
#include "core/rmem/wire.h"

_Static_assert(sizeof(struct rmem_seal_key) == RMEM_SEAL_KEY_BYTES, "a key is its words");
_Static_assert(sizeof(RMEM_KEYING_LABEL) - 1 == sizeof(((struct rmem_keying *)0)->label),
	       "label has no 0 behind it");

void rmem_seal_wipe(void *secret, size_t bytes)
{
	base_zero(secret, bytes);
	__asm__ __volatile__("" : : "r"(secret) : "memory");
}

bool rmem_seal_derive(const struct rmem_cipher *cipher, const struct base_siphash_key *space_key,
		      struct rmem_keying *keying, struct rmem_seal_keys *keys)
{
	u8 key[BASE_SIPHASH_KEY_BYTES];
	bool done;

	base_store_le64(key, space_key->k[0]);
	base_store_le64(key + 8, space_key->k[1]);
	base_copy(keying->label, RMEM_KEYING_LABEL, sizeof(keying->label));
	keying->from = RMEM_KEYING_CLIENT;
	done = cipher->mac(cipher->of, key, keying, sizeof(*keying), (u8 *)&keys->from_client);
	keying->from = RMEM_KEYING_NODE;
	done = done && cipher->mac(cipher->of, key, keying, sizeof(*keying),
				   (u8 *)&keys->from_node);
	rmem_seal_wipe(key, sizeof(key));
	return done;
}

/* XChaCha20's way. */
void rmem_seal_once(const struct rmem_seal_key *key, const u8 salt[RMEM_SEAL_SALT_BYTES],
		    const void *hdr, struct rmem_seal_once *once)
{
	u8 input[BASE_HCHACHA_INPUT_BYTES] = { 0 };

	base_copy(input, salt, RMEM_SEAL_SALT_BYTES);
	base_hchacha20(once->key, (const u8 *)key, input);
	base_zero(once->nonce, RMEM_SEAL_NONCE_BYTES - sizeof(u64));
	base_copy(once->nonce + RMEM_SEAL_NONCE_BYTES - sizeof(u64),
		  (const u8 *)hdr + __builtin_offsetof(struct rmem_hdr, number), sizeof(u64));
}

bool rmem_seal_close(const struct rmem_cipher *cipher, const struct base_siphash_key *space_key,
		     const struct rmem_seal_key *key, const u8 salt[RMEM_SEAL_SALT_BYTES],
		     void *datagram, u32 bytes, u32 messages, bool more)
{
	struct rmem_seal *seal = (struct rmem_seal *)((u8 *)datagram + bytes);
	struct rmem_seal_once once;
	struct base_siphash h;
	bool done;

	base_siphash_init(&h, space_key);
	rmem_wire_seal_hdr(datagram, messages, more, &h);
	rmem_seal_once(key, salt, datagram, &once);
	base_copy(seal->salt, salt, sizeof(seal->salt));
	done = cipher->encrypt(cipher->of, once.key, once.nonce, datagram, RMEM_TAGGED_BYTES,
			       (u8 *)datagram + RMEM_HDR_BYTES, bytes - RMEM_HDR_BYTES, seal->tag);
	rmem_seal_wipe(&once, sizeof(once));
	return done;
}

bool rmem_seal_hdr_verifies(const void *hdr, const struct base_siphash_key *space_key)
{
	return rmem_wire_tag_equal(hdr, base_siphash(space_key, hdr, RMEM_TAGGED_BYTES));
}

bool rmem_seal_open(const struct rmem_cipher *cipher, const struct rmem_seal_key *key,
		    const void *datagram, u32 bytes, void *to)
{
	u32 plain_bytes = bytes - RMEM_SEAL_BYTES;
	const u8 *at = datagram;
	struct rmem_seal_once once;
	struct rmem_seal seal;
	bool done;

	base_copy(&seal, at + plain_bytes, sizeof(seal));
	rmem_seal_once(key, seal.salt, at, &once);
	done = cipher->decrypt(cipher->of, once.key, once.nonce, at, RMEM_TAGGED_BYTES,
			       at + RMEM_HDR_BYTES, (u8 *)to + RMEM_HDR_BYTES,
			       plain_bytes - RMEM_HDR_BYTES, seal.tag);
	rmem_seal_wipe(&once, sizeof(once));
	if (to != datagram)
		base_copy(to, datagram, RMEM_HDR_BYTES);
	return done;
}
