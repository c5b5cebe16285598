/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages in records of Marlin's message rings, of both ends (include/remora/marlin.h,
 * "Messages"):
 *
 *   struct marlin_message_head | hdr | msg | payload       a datagram of one message
 *   struct marlin_message_head | plain | payload ...       plain messages (core/rmem/plain.h)
 *   struct marlin_message_head | plain | pieces            a READ or WRITE that names a loan
 *   struct marlin_message_head | plain                     the READ's answer
 *
 * Out: the payload is written first, straight into the other machine's memory, and hashed from
 * where it came if there is a tag. In: the other machine can still write the record, so header and
 * heads are copied, and the payload too where a digest or the tag covers it.
 */
#ifndef REMORA_RMEM_MARLIN_RECORD_H
#define REMORA_RMEM_MARLIN_RECORD_H

#include <linux/build_bug.h>

#include "core/rmem/datagram.h"
#include "core/rmem/plain.h"
#include "marlin_ops.h"
#include "remora/marlin.h"
#include "rmem_record.h"

#define RMEM_MARLIN_HEAD_BYTES sizeof(struct marlin_message_head)

static_assert(RMEM_MARLIN_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX <= MARLIN_MESSAGE_BYTES_MAX);

/* ---- out ---- */

struct rmem_marlin_writer {
	u8 *record;
	u32 bytes; /* written of it */
	struct rmem_head *head;
	u32 loan, epoch;	  /* the caller's: the loan that the record names, or 0 */
	struct base_siphash hash; /* of a datagram; the rest, too */
	u32 tagged_bytes; /* of the payload, that the tag will cover still */
	u32 crc;
	bool has_digest;
};

/* A record of one message, which is plain if its head says so. key: of a datagram. */
void rmem_marlin_writer_begin(struct rmem_marlin_writer *w, u8 *record, struct rmem_head *head,
			      const struct base_siphash_key *key);
/* Appends to the payload. */
void rmem_marlin_writer_add(struct rmem_marlin_writer *w, const void *from, u32 bytes);
/* Writes the rest; returns the record's bytes. */
u32 rmem_marlin_writer_end(struct rmem_marlin_writer *w, u16 path);

/* Plain messages without payloads, RMEM_BUNDLE_MAX at most. Returns the record's bytes. */
u32 rmem_marlin_write_plains(u8 *record, const struct rmem_head *heads, u32 count, u16 path);

/* ---- in ---- */

/* A plain message of a record, parsed from a copy. */
struct rmem_marlin_plain {
	struct rmem_head head;
	u32 payload_offset; /* in the record, behind the message head */
	u32 payload_bytes;
};

struct rmem_marlin_reader {
	u16 path;
	u16 loan;
	u32 epoch;	    /* 0: no loan is named. Else there is one plain message, */
	u32 pieces_bytes;   /* in a request behind that */
	const u8 *messages; /* in the record, behind the message head */

	bool plain;
	u32 plain_count, plain_steps;
	enum rmem_wire_verdict plain_rest; /* not GOOD: why the record's rest is ignored */
	struct rmem_marlin_plain plains[RMEM_BUNDLE_MAX];

	struct rmem_datagram in;
	const u8 *payloads; /* where they are read: the record's or the copy's datagram */
	u8 copy[RMEM_DATAGRAM_BYTES_MAX];
};

/*
 * False: no message. Else *verdict; the path is set, and with GOOD plain, and in.head of a
 * datagram.
 */
bool rmem_marlin_reader_open(struct rmem_marlin_reader *r, const u8 *record, u32 bytes,
			     bool response, enum rmem_wire_verdict *verdict);
/*
 * Verifies the tag of a GOOD datagram. To be called before the first step. Plain messages have
 * none.
 */
bool rmem_marlin_reader_verifies(struct rmem_marlin_reader *r, const struct base_siphash_key *key);
/* Plain messages name no space: it is that of the path they came by. */
void rmem_marlin_reader_set_space(struct rmem_marlin_reader *r, u32 space);
/* Answers that the messages of a GOOD record ask for. */
u32 rmem_marlin_reader_answers(const struct rmem_marlin_reader *r);

/* The message that was stepped to, for the other side of the seam; refers to the reader. */
struct rmem_marlin_record {
	struct rmem_record record;
	struct rmem_payload payload;
	const u8 *from;
};

bool rmem_marlin_reader_step(struct rmem_marlin_reader *r, struct rmem_marlin_record *out);
/* Plain messages are stepped to once more. */
static inline void rmem_marlin_reader_rewind(struct rmem_marlin_reader *r)
{
	r->plain_steps = 0;
}

/* Copies the pieces of a request that names a loan. Returns how many; 0: they are none. */
u32 rmem_marlin_reader_pieces(const struct rmem_marlin_reader *r,
			      struct marlin_loan_piece pieces[MARLIN_LOAN_PIECES]);

#endif
