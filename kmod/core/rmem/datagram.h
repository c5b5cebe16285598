/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The messages of one datagram (include/remora/rmem.h, "Datagrams"), out and in.
 *
 * In: header and heads are contiguous; payloads can lie in fragments that only the caller can walk.
 *
 *   rmem_datagram_open()            form, and where each payload is
 *   find the key of head.space
 *   verify the tag                  nothing of a datagram is acted upon before
 *   while (rmem_datagram_step())
 *           ... check the digest, if the message has one, then act on it
 *
 * Out: as each message comes, its head is encoded (wire.h), and the covered part of its payload is
 * hashed; at last the header is encoded and the datagram is sealed.
 */
#ifndef REMORA_RMEM_DATAGRAM_H
#define REMORA_RMEM_DATAGRAM_H

#include "core/rmem/wire.h"

/* ---- out ---- */

/* The messages put into a datagram so far; zero at first. */
struct rmem_bundle {
	u32 messages;
	u32 payload_bytes; /* of all of them */
	u32 work_bytes;
};

/*
 * True if another message fits beside those in bundle, in a datagram of limit_bytes at most; it is
 * then counted. The first one always does. The caller passes messages of one session only.
 */
bool rmem_bundle_joins(struct rmem_bundle *bundle, u32 limit_bytes, const struct rmem_head *head);

/*
 * Encode header and head at heads, and seal, for a message that is alone with a payload that is
 * contiguous (or NULL when it has none). Fills in head->digest if there is one.
 */
void rmem_datagram_build_one(void *heads, struct rmem_head *head,
			     const struct base_siphash_key *key, const void *payload);

/* ---- in ---- */

struct rmem_datagram {
	u32 bytes;
	u32 messages;	     /* in it; 0: there is nothing to step to */
	u32 steps;	     /* taken; the number of the message below, from 1 up */
	bool response;	     /* which of the two directions is expected */
	struct rmem_head head; /* before the first step, the first message's */
	u32 payload_offset;  /* of the message, in the datagram */
	u32 payload_bytes;
	u32 tagged_bytes;    /* of all payloads, that the tag covers */
};

/* Bytes of header and heads that open() looks at, as the header says, which is whole. */
u32 rmem_datagram_heads_bytes(const void *hdr);

/*
 * heads: as many as that, if the datagram has them. Other than GOOD: there is no message. A sealed
 * datagram (rmem_wire_is_sealed()) is MALFORMED here: the caller opens its seal before (seal.h),
 * and then calls the second, with the bytes of the plaintext and the header.
 */
enum rmem_wire_verdict rmem_datagram_open(struct rmem_datagram *d, const void *heads, u32 bytes,
					  bool response);
enum rmem_wire_verdict rmem_datagram_open_unsealed(struct rmem_datagram *d, const void *heads,
						   u32 bytes, bool response);

/* The next message. */
bool rmem_datagram_step(struct rmem_datagram *d, const void *heads);

/*
 * Before the first step: does the tag verify? hash() hashes bytes of the datagram, from an offset
 * on. It is called directly, for this is inline and hash a constant.
 */
static inline __attribute__((always_inline)) bool
rmem_datagram_verifies_by(const struct rmem_datagram *d, const struct base_siphash_key *key,
			  const void *heads,
			  void (*hash)(struct base_siphash *h, const void *datagram, u32 offset,
				       u32 bytes),
			  const void *datagram)
{
	struct rmem_datagram each = *d;
	struct base_siphash h;

	base_siphash_init(&h, key);
	while (d->tagged_bytes && rmem_datagram_step(&each, heads))
		hash(&h, datagram, each.payload_offset, rmem_wire_tagged_bytes(&each.head));
	return rmem_wire_tag_equal(heads, rmem_wire_tag(&h, heads, d->messages));
}

/*
 * For a contiguous datagram: the same. After a step: is the payload of the message that was stepped
 * to damaged?
 */
bool rmem_datagram_verifies(const struct rmem_datagram *d, const struct base_siphash_key *key,
			    const void *data);
bool rmem_datagram_is_damaged(const struct rmem_datagram *d, const void *data);

#endif
