/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * SipHash-2-4 (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012),
 * incremental, so that a packet scattered over page fragments is hashed
 * without being gathered. The result does not depend on how the input is cut.
 */
#ifndef REMORA_BASE_SIPHASH_H
#define REMORA_BASE_SIPHASH_H

#include "core/base/types.h"

#define BASE_SIPHASH_KEY_BYTES 16

struct base_siphash_key {
	u64 k[2];
};

struct base_siphash {
	u64 v[4];
	u64 tail;	 /* bytes not yet compressed, first one lowest */
	u64 total_bytes; /* the low byte goes into the last block */
};

/* Read a key from its 16 bytes as they stand in a key file or message. */
void base_siphash_key_load(struct base_siphash_key *key, const u8 bytes[BASE_SIPHASH_KEY_BYTES]);

void base_siphash_init(struct base_siphash *h, const struct base_siphash_key *key);
void base_siphash_update(struct base_siphash *h, const void *data, size_t bytes);
u64 base_siphash_final(struct base_siphash *h);

u64 base_siphash(const struct base_siphash_key *key, const void *data, size_t bytes);

#endif
