/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Datagrams in socket buffers, of both ends. Their data can lie in fragments; it is hashed where it
 * lies. A sealed datagram (core/rmem/seal.h) is encrypted where it lies, in memory of its own, and
 * decrypted into memory of the CPU.
 */
#ifndef REMORA_RMEM_SKB_H
#define REMORA_RMEM_SKB_H

#include <linux/skbuff.h>
#include <linux/udp.h>

#include "core/rmem/datagram.h"
#include "rmem_record.h"
#include "rmem_seal_ops.h"

/* ---- out: header and heads are in the linear part, data is in fragments behind it ---- */

static inline bool rmem_skb_has_head_room(const struct sk_buff *skb)
{
	return skb_end_pointer(skb) - skb_tail_pointer(skb) >= RMEM_MSG_BYTES;
}

/* An empty packet begins a datagram, whose first message is this. */
void rmem_skb_begin(struct sk_buff *skb, const struct rmem_head *head);

/* Room for a head: before data that is in fragments, so before or after it was added. */
void *rmem_skb_put_msg(struct sk_buff *skb);

/*
 * Write the head, the payload being the last of skb, and hash the bytes of it that h covers. Fills
 * in head->digest if there is one.
 */
void rmem_skb_add(const struct sk_buff *skb, void *msg, struct rmem_head *head,
		  struct base_siphash *h);

/* The header, once all messages are there. h: as rmem_skb_add() left it, begun with the key. */
static inline void rmem_skb_end(struct sk_buff *skb, u32 messages, bool more,
				struct base_siphash *h, const struct base_siphash_key *key)
{
	if (!rmem_wire_is_sealed(skb->data)) {
		rmem_wire_seal(skb->data, messages, more, h);
		return;
	}
	base_siphash_init(h, key);
	rmem_wire_seal_hdr(skb->data, messages, more, h);
}

/*
 * Adds a fragment of memory that is the packet's own, 1 to PAGE_SIZE bytes. Returns where it is.
 * NULL: no memory, or the packet has as many fragments as it can have.
 */
void *rmem_skb_add_own(struct sk_buff *skb, u32 bytes, gfp_t gfp);

/* A packet's fragments at some moment; take_back(): those added since go. */
struct rmem_skb_mark {
	unsigned int frags, truesize;
	u32 data_bytes;
};

static inline struct rmem_skb_mark rmem_skb_mark(const struct sk_buff *skb)
{
	return (struct rmem_skb_mark){ .frags = skb_shinfo(skb)->nr_frags,
				       .truesize = skb->truesize,
				       .data_bytes = skb->data_len };
}

void rmem_skb_take_back(struct sk_buff *skb, const struct rmem_skb_mark *mark);

/*
 * Data that is lent becomes a copy of the packet's own. truesize counts the fragments' bytes.
 * False: no memory, and the packet is as before.
 */
bool rmem_skb_own(struct sk_buff *skb, gfp_t gfp);

/*
 * The datagram, which has its header and a free fragment, is encrypted, and its seal comes behind
 * it. No part of it is lent memory. False: no memory, or no cipher; it must not be sent.
 */
bool rmem_skb_seal(struct sk_buff *skb, const struct rmem_seal_key *key,
		   const u8 salt[RMEM_SEAL_SALT_BYTES], gfp_t gfp);

/* ---- in: from the UDP header on, as encap_rcv gets them ---- */

#define RMEM_SKB_HEADS sizeof(struct udphdr) /* where header and heads are */

struct rmem_skb_heads {
	u8 bytes[RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX)];
};

/*
 * Header and heads, or as much of them as there is. NULL: not even a header.
 * copy: where they lie, or in buffer if that is in pieces. Nothing is allocated: the answer to a
 * swap-out might be the one that frees memory. pull: in the linear part. NULL for want of memory,
 * too: then the datagram counts as lost.
 */
const void *rmem_skb_copy_heads(const struct sk_buff *skb, struct rmem_skb_heads *buffer);
const void *rmem_skb_pull_heads(struct sk_buff *skb);

/* Where the payload of the message is that was stepped to. */
static inline u32 rmem_skb_payload(const struct rmem_datagram *d)
{
	return RMEM_SKB_HEADS + d->payload_offset;
}

/* As rmem_datagram_open(); heads can be NULL. */
enum rmem_wire_verdict rmem_skb_open(struct rmem_datagram *d, const struct sk_buff *skb,
				     const void *heads, bool response);

/* As rmem_datagram_verifies(). */
bool rmem_skb_verifies(const struct rmem_datagram *d, const struct base_siphash_key *key,
		       const struct sk_buff *skb, const void *heads);

/*
 * A sealed datagram, whose size fits (rmem_seal_fits()), is opened. Returns header, heads and
 * payloads; they are there until the CPU's next call, or rmem_skb_stop(). So a CPU's memory has the
 * last datagram's plaintext, as the lent memory has all of it. NULL: it does not verify. BH
 * disabled.
 */
const void *rmem_skb_unseal(const struct sk_buff *skb, const struct rmem_seal_key *key);

/*
 * The message that was stepped to, for the other side of the seam; refers to d and skb. plain: the
 * result of rmem_skb_unseal(), or NULL.
 */
struct rmem_skb_record {
	struct rmem_record record;
	struct rmem_payload payload;
	const struct sk_buff *skb;
	const u8 *plain;
	u32 at;
};

void rmem_skb_record_init(struct rmem_skb_record *r, const struct rmem_datagram *d,
			  const struct sk_buff *skb, const void *plain);

/* Once for remora_core.ko. */
void rmem_skb_stop(void);

#endif
