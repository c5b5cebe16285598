/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Headers and heads of messages in and out of their wire form (include/remora/rmem.h), and the
 * bytes that the tag and digests cover. datagram.h makes a datagram of them.
 */
#ifndef REMORA_RMEM_WIRE_H
#define REMORA_RMEM_WIRE_H

#include "core/base/siphash.h"
#include "core/base/types.h"
#include "core/rmem/types.h"
#include "remora/rmem.h"

/* A message's head with its datagram's common fields, in the host's byte order. */
struct rmem_head {
	u8 type;
	u8 integrity; /* enum rmem_integrity */
	u8 status;
	u8 attempt;
	u8 op; /* enum rmem_atomic_op; READV, WRITEV: ranges; QUERY, CALL: function */
	bool more; /* RMEM_FLAGS_MORE */
	bool clear; /* RMEM_FLAGS_CLEAR */
	bool plain; /* came without header and tag (plain.h), so space and boot are the session's */
	u32 space;
	u64 session;
	u64 boot;
	u64 number; /* of the datagram; of those that share one, the first's is taken */
	u64 id;
	u64 floor;
	u64 addr;
	u32 len;
	u32 offset;
	u32 digest;
	u16 piece;
};

/* Verdict on a datagram, or (DAMAGED) on one of its messages, before its content is interpreted. */
enum rmem_wire_verdict {
	RMEM_WIRE_GOOD,
	RMEM_WIRE_SHORT,     /* no whole header, or fewer heads than it says */
	RMEM_WIRE_VERSION,   /* another protocol, or another version of it */
	RMEM_WIRE_TYPE,	     /* unknown type, or a request where a response is due */
	RMEM_WIRE_MALFORMED, /* reserved bits set, fields or a length that can't be */
	RMEM_WIRE_TAG,	     /* does not verify under the space's key */
	RMEM_WIRE_DAMAGED,   /* the tag verified, the payload's digest didn't */
	RMEM_WIRE_SEAL,	     /* the header verifies, the sealed rest doesn't */
	RMEM_WIRE_VERDICTS
};

/* Each verdict, and the name of its counter. */
/* clang-format off */
#define RMEM_WIRE_ROWS(ROW) \
	ROW(GOOD,      "verified") \
	ROW(SHORT,     "drop-short") \
	ROW(VERSION,   "drop-version") \
	ROW(TYPE,      "drop-type") \
	ROW(MALFORMED, "drop-malformed") \
	ROW(TAG,       "drop-tag") \
	ROW(DAMAGED,   "damaged") \
	ROW(SEAL,      "drop-seal")
/* clang-format on */

/* Bytes of a READV's or WRITEV's ranges, which its payload begins with. */
static inline u32 rmem_wire_ranges_bytes(const struct rmem_head *head)
{
	return head->op * sizeof(struct rmem_range);
}

/* Bytes of a payload before its data. The tag covers them at every level. */
static inline u32 rmem_wire_frame_bytes(const struct rmem_head *head)
{
	const struct rmem_type_row *row = &rmem_type_table[head->type & ~RMEM_RESPONSE];

	u32 bytes = head->type & RMEM_RESPONSE ? row->answer_bytes : row->request_bytes;

	if (head->status != RMEM_OK)
		return 0;
	if (!(row->flags & (RMEM_TYPE_RANGES | RMEM_TYPE_KEYED)))
		return bytes;
	if (row->flags & RMEM_TYPE_KEYED)
		return bytes + (head->clear ? RMEM_X25519_BYTES : 0);
	return bytes + (head->type & RMEM_RESPONSE ? 0 : rmem_wire_ranges_bytes(head));
}

/* Bytes of the payload, from its begin, that the datagram's tag covers. */
u32 rmem_wire_tagged_bytes(const struct rmem_head *head);

/* True if the message's head has a digest of its payload. */
bool rmem_wire_has_digest(const struct rmem_head *head);

/*
 * Bytes of payload that a message with this head has. More than RMEM_PIECE_BYTES_MAX: none can be
 * right.
 */
u32 rmem_wire_payload_bytes(const struct rmem_head *head);

/* Bytes that a request counts for in the bound on the node's work for one datagram. */
u32 rmem_wire_work_bytes(const struct rmem_head *head);

/*
 * True if a session's message has sound fields. Space, session, boot and floor aren't checked; part
 * is the field as it came.
 */
bool rmem_wire_fields_are_sound(const struct rmem_head *head, bool response, u32 part);

/* Decode the header at hdr, which is whole. Checks the form only. */
enum rmem_wire_verdict rmem_wire_parse_hdr(const void *hdr, struct rmem_head *head, u32 *messages);

/*
 * Decode the head of a message at msg, into head with its header's fields. response: which
 * of the two directions is expected.
 */
enum rmem_wire_verdict rmem_wire_parse_msg(const void *msg, bool response, struct rmem_head *head);

/*
 * The header for a datagram that begins with this message, but for the fields that seal() fills in.
 */
void rmem_wire_encode_hdr(void *hdr, const struct rmem_head *head);
void rmem_wire_encode_msg(void *msg, const struct rmem_head *head);

/*
 * The tag of the datagram whose header and heads are at heads. h was begun with the key, and has
 * had rmem_wire_tagged_bytes() of each payload.
 */
u64 rmem_wire_tag(struct base_siphash *h, const void *heads, u32 messages);
/* True if tag equals the header's. Constant time. */
bool rmem_wire_tag_equal(const void *hdr, u64 tag);
/* All messages are encoded, and hashed into h. more: RMEM_FLAGS_MORE. */
void rmem_wire_seal(void *heads, u32 messages, bool more, struct base_siphash *h);
/* The same for a datagram that is encrypted then (seal.h): h was begun with the key. */
void rmem_wire_seal_hdr(void *hdr, u32 messages, bool more, struct base_siphash *h);

/* True if the header, which is whole, begins a datagram whose heads are encrypted. */
static inline bool rmem_wire_is_sealed(const void *hdr)
{
	const u8 *at = (const u8 *)hdr;

	return at[0] == RMEM_VERSION &&
	       (at[1] & (RMEM_FLAGS_INTEGRITY | RMEM_FLAGS_CLEAR)) == RMEM_SEALED;
}

#endif
