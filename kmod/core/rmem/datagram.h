/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The messages of one datagram (include/remora/rmem.h, "Datagrams"), out and in.
 *
 * In: all headers are counted first, since only together they say where the payloads begin;
 * then the messages come one by one. Headers are contiguous by then; payloads may lie in
 * fragments that only the caller can walk.
 *
 *   for (more = rmem_datagram_begin(); more; more = rmem_datagram_count())
 *           ;
 *   while (rmem_datagram_step())
 *           ... verify it (wire.h) under the key of head.space, then act on it
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
 * May another message join those in bundle, in a datagram of limit_bytes at most? Then it's
 * counted. The first one always may. That they are of one session is the caller's to see to.
 */
bool rmem_bundle_joins(struct rmem_bundle *bundle, u32 limit_bytes, const struct rmem_head *head);

/* ---- in ---- */

struct rmem_datagram {
	u32 bytes;
	u32 messages;			/* counted */
	u32 steps;			/* taken; the number of the message below, from 1 up */
	bool response;			/* which of the two directions is expected */
	bool even;			/* it is as long as its messages say */
	enum rmem_wire_verdict verdict; /* on its first header; other than GOOD: no step */
	struct rmem_head head;		/* before the first step, the first message's */
	u32 payload_offset;		/* of the message, in the datagram */
	u32 payload_bytes;		/* if not even, as many as there are */
	u32 sum_bytes;			/* of payload, of the messages counted */
	u64 work_bytes;			/* the same */
};

/* True: there is a header to be counted. */
bool rmem_datagram_begin(struct rmem_datagram *d, u32 bytes, bool response);

/* hdr: header number d->messages, whole. True: count the next one, which is inside, too. */
bool rmem_datagram_count(struct rmem_datagram *d, const void *hdr);

/* The next message. hdrs: the first header, with all that were counted behind it. */
bool rmem_datagram_step(struct rmem_datagram *d, const void *hdrs);

/* Header of the message that was stepped to. */
static inline const void *rmem_datagram_hdr(const struct rmem_datagram *d, const void *hdrs)
{
	return (const u8 *)hdrs + (d->steps - 1) * RMEM_HDR_BYTES;
}

/* Begin and count, of a datagram that is contiguous, like data below. */
enum rmem_wire_verdict rmem_datagram_open(struct rmem_datagram *d, const void *data, u32 bytes,
					  bool response);

/*
 * rmem_wire_verify() of the message that was stepped to. Of a datagram that isn't even each
 * message that verifies is DAMAGED all the same.
 */
enum rmem_wire_verdict rmem_datagram_verify(const struct rmem_datagram *d,
					    const struct base_siphash_key *key, const void *data);

#endif
