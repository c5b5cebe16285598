/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Messages in and out of their wire form (include/remora/rmem.h).
 *
 * Receiving is three steps, because the payload may lie in fragments only the
 * caller can walk: rmem_wire_parse() checks the form and decodes; the caller
 * finds the key of head.space; rmem_wire_verify() checks the tag. Nothing of a
 * message may be acted upon before it verified.
 */
#ifndef REMORA_RMEM_WIRE_H
#define REMORA_RMEM_WIRE_H

#include "core/base/siphash.h"
#include "core/base/types.h"
#include "core/rmem/types.h"
#include "remora/rmem.h"

/* A header in the host's byte order. */
struct rmem_head {
	u8 type;
	u8 integrity; /* enum rmem_integrity */
	u8 status;
	u8 attempt;
	u8 op; /* enum rmem_atomic_op; READV, WRITEV: ranges */
	bool more; /* RMEM_FLAGS_MORE */
	u32 space;
	u64 session;
	u64 boot;
	u64 id;
	u64 floor;
	u64 addr;
	u32 len;
	u32 offset;
	u32 digest;
	u16 piece;
};

/* What is wrong with a message, before its meaning is looked at. */
enum rmem_wire_verdict {
	RMEM_WIRE_GOOD,
	RMEM_WIRE_SHORT,     /* no whole header */
	RMEM_WIRE_VERSION,   /* another protocol, or another version of it */
	RMEM_WIRE_TYPE,	     /* unknown type, or a request where a response is due */
	RMEM_WIRE_MALFORMED, /* reserved bits set, fields that can't be */
	RMEM_WIRE_TAG,	     /* does not verify under the space's key */
	RMEM_WIRE_DAMAGED,   /* header verified, payload didn't, or has another length */
	RMEM_WIRE_VERDICTS
};

/* Bytes of a READV's or WRITEV's ranges, which its payload begins with. */
static inline u32 rmem_wire_ranges_bytes(const struct rmem_head *head)
{
	return head->op * sizeof(struct rmem_range);
}

/* Bytes of the payload, from its begin, that the message's tag runs over, too. */
u32 rmem_wire_tagged_bytes(const struct rmem_head *head, u32 payload_bytes);

/* Does its header have a digest of the payload? */
bool rmem_wire_has_digest(const struct rmem_head *head);

/*
 * Bytes of payload that a message with this head must have. More than RMEM_PIECE_BYTES_MAX: none
 * can be right.
 */
u32 rmem_wire_payload_bytes(const struct rmem_head *head);

/* What a request counts for in what the node has to do for one datagram. */
u32 rmem_wire_work_bytes(const struct rmem_head *head);

/*
 * Decode RMEM_HDR_BYTES (available_bytes of them are there). Checks the form
 * only; response: which of the two directions is expected.
 */
enum rmem_wire_verdict rmem_wire_parse(const void *hdr, size_t available_bytes, bool response,
				       struct rmem_head *head);

/*
 * The tag's hash, begun over the header; the caller then runs base_siphash_update() over
 * rmem_wire_tagged_bytes() of the payload, and passes base_siphash_final() as tag below.
 */
void rmem_wire_hash_begin(struct base_siphash *h, const struct base_siphash_key *key,
			  const void *hdr);

/* Does this tag equal the header's? Constant time. */
bool rmem_wire_tag_equal(const void *hdr, u64 tag);

/*
 * Encode head into the RMEM_HDR_BYTES at hdr, with a zero tag, to be
 * followed by rmem_wire_seal() with the tag computed as above.
 */
void rmem_wire_encode(void *hdr, const struct rmem_head *head);
void rmem_wire_seal(void *hdr, u64 tag);

/*
 * The same, whole, for a payload that is contiguous (or NULL when the message
 * has none). payload_bytes is what arrived after the header; digest and tag are
 * checked, the length first.
 */
enum rmem_wire_verdict rmem_wire_verify(const void *hdr, const struct rmem_head *head,
					const struct base_siphash_key *key, const void *payload,
					size_t payload_bytes);
/* Encodes and seals; fills in head->digest if the level wants it. */
void rmem_wire_build(void *hdr, struct rmem_head *head, const struct base_siphash_key *key,
		     const void *payload, size_t payload_bytes);

#endif
