// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/base/siphash.h"

#include "core/base/bytes.h"

static inline u64 siphash_rotate(u64 x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void siphash_round(u64 v[4])
{
	v[0] += v[1];
	v[1] = siphash_rotate(v[1], 13) ^ v[0];
	v[0] = siphash_rotate(v[0], 32);
	v[2] += v[3];
	v[3] = siphash_rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = siphash_rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = siphash_rotate(v[1], 17) ^ v[2];
	v[2] = siphash_rotate(v[2], 32);
}

static inline void siphash_compress(u64 v[4], u64 block)
{
	v[3] ^= block;
	siphash_round(v);
	siphash_round(v);
	v[0] ^= block;
}

void base_siphash_key_load(struct base_siphash_key *key, const u8 bytes[BASE_SIPHASH_KEY_BYTES])
{
	key->k[0] = base_load_le64(bytes);
	key->k[1] = base_load_le64(bytes + 8);
}

void base_siphash_init(struct base_siphash *h, const struct base_siphash_key *key)
{
	h->v[0] = key->k[0] ^ 0x736f6d6570736575ULL;
	h->v[1] = key->k[1] ^ 0x646f72616e646f6dULL;
	h->v[2] = key->k[0] ^ 0x6c7967656e657261ULL;
	h->v[3] = key->k[1] ^ 0x7465646279746573ULL;
	h->tail = 0;
	h->total_bytes = 0;
}

void base_siphash_update(struct base_siphash *h, const void *data, size_t bytes)
{
	unsigned int held = h->total_bytes & 7;
	const u8 *p = data;
	u64 v[4];

	h->total_bytes += bytes;
	base_copy(v, h->v, sizeof(v));
	while (held && bytes) {
		h->tail |= (u64)*p++ << (8 * held);
		bytes--;
		held = (held + 1) & 7;
		if (!held) {
			siphash_compress(v, h->tail);
			h->tail = 0;
		}
	}
	for (; bytes >= 8; bytes -= 8, p += 8)
		siphash_compress(v, base_load_le64(p));
	for (; bytes; bytes--)
		h->tail |= (u64)*p++ << (8 * held++);
	base_copy(h->v, v, sizeof(v));
}

u64 base_siphash_final(struct base_siphash *h)
{
	u64 v[4];

	base_copy(v, h->v, sizeof(v));
	siphash_compress(v, h->tail | h->total_bytes << 56);
	v[2] ^= 0xff;
	siphash_round(v);
	siphash_round(v);
	siphash_round(v);
	siphash_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

u64 base_siphash(const struct base_siphash_key *key, const void *data, size_t bytes)
{
	struct base_siphash h;

	base_siphash_init(&h, key);
	base_siphash_update(&h, data, bytes);
	return base_siphash_final(&h);
}
