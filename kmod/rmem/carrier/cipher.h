/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The primitives of sealed sessions (core/rmem/seal.h) by the kernel's lib/crypto, which chooses
 * code for the processor, and can be called in softirq.
 */
#ifndef REMORA_RMEM_CIPHER_H
#define REMORA_RMEM_CIPHER_H

#include <linux/random.h>
#include <linux/skbuff.h>
#include <linux/timex.h>

#include "rmem_seal_ops.h"

/*
 * For datagrams that are sealed together. A CPU's numbers from get_random_u64() are made in
 * advance, so a restored snapshot has them again until the kernel hears of it; not the cycles.
 */
static inline u64 rmem_cipher_salt(void)
{
	return get_random_u64() ^ random_get_entropy();
}

/* ChaCha20-Poly1305 with once, of a text in place. False: it can't be done. */
bool rmem_cipher_encrypt(const struct rmem_seal_once *once, const void *ad, u32 ad_bytes,
			 struct scatterlist *text_and_tag, u32 text_bytes);
/* text has its tag behind it. False: the tag does not verify; text holds anything. */
bool rmem_cipher_decrypt(const struct rmem_seal_once *once, const void *ad, u32 ad_bytes,
			 void *text, u32 text_bytes);

#endif
