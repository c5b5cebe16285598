/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Plain messages (include/remora/rmem.h): a session's messages without header and tag, where the
 * carrier itself vouches for the sender.
 *
 * Out: while (rmem_plain_joins()) rmem_plain_encode() each, with its payload behind it.
 * In:  while (rmem_plain_step() == RMEM_WIRE_GOOD) act on the message.
 */
#ifndef REMORA_RMEM_PLAIN_H
#define REMORA_RMEM_PLAIN_H

#include "core/rmem/wire.h"

/* True if a message with this head can be plain. */
static inline bool rmem_plain_fits(const struct rmem_head *head)
{
	return head->integrity == RMEM_LINK && rmem_type_may_share(head->type) &&
	       !rmem_type_clears(head->type);
}

/* Bytes of a message with payload_bytes of payload, up to the begin of the next one. */
static inline u32 rmem_plain_bytes(u32 payload_bytes)
{
	return (RMEM_PLAIN_BYTES + payload_bytes + 7) & ~7U;
}

/* The messages of a record so far; zero at first. */
struct rmem_plain_sum {
	u32 messages;
	u32 bytes;
	u32 work_bytes;
};

/* True if the message, with payload_bytes of payload, can join them; it is then counted. */
bool rmem_plain_joins(struct rmem_plain_sum *sum, const struct rmem_head *head, u32 payload_bytes);

void rmem_plain_encode(void *at, const struct rmem_head *head);

/* A record, as it's read. */
struct rmem_plain_record {
	u32 bytes;
	bool response; /* which of the two directions is expected */
	bool bare; /* payloads travel by another way: the record has none. A WRITE can have parts */
	struct rmem_plain_sum sum;
	/* of the message that was stepped to; space, boot and number are not set */
	struct rmem_head head;
	u32 payload_offset; /* in the record */
	u32 payload_bytes;
};

static inline void rmem_plain_begin(struct rmem_plain_record *record, u32 bytes, bool response)
{
	record->bytes = bytes;
	record->response = response;
	record->bare = false;
	record->sum = (struct rmem_plain_sum){ 0, 0, 0 };
}

/* Where the next message begins. False: the record has no other. */
static inline bool rmem_plain_next(const struct rmem_plain_record *record, u32 *offset)
{
	*offset = record->sum.bytes;
	return *offset < record->bytes;
}

/* Is there a whole head at an offset that rmem_plain_next() told? */
static inline bool rmem_plain_has_head(const struct rmem_plain_record *record)
{
	return record->bytes - record->sum.bytes >= RMEM_PLAIN_BYTES;
}

/*
 * The message there, whose head is whole and at plain: a copy, if the sender can still write. Other
 * than GOOD: it and the rest of the record are ignored.
 */
enum rmem_wire_verdict rmem_plain_step(struct rmem_plain_record *record, const void *plain);

#endif
