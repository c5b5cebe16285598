/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The codec of EDM's 66-bit blocks (remora/edm_block.h), and the scrambler that they pass.
 *
 *   message or note --encode--> blocks --scramble--> link --descramble--> blocks --read--> the same
 *
 * A bit error on the link becomes up to three behind the descrambler, and the scrambler detects
 * none. Notes have a check always, messages if the link is checked; that costs a block a message.
 * The caller has called base_crc32c_setup() once.
 */
#ifndef REMORA_EDM_CODEC_H
#define REMORA_EDM_CODEC_H

#include "core/base/types.h"
#include "remora/edm_block.h"

enum edm_profile {
	EDM_PROFILE_TYPES,
	EDM_PROFILE_SETS,
};

/* A link's parameters, equal at both ends. */
struct edm_line {
	u8 profile; /* enum edm_profile */
	bool checked;
};

struct edm_block {
	u64 payload;
	u8 sync;
};

enum edm_block_kind {
	EDM_BLOCK_DATA,	   /* of a message or a frame */
	EDM_BLOCK_FRAME,   /* a control block that isn't EDM's, but not idle */
	EDM_BLOCK_IDLE,
	EDM_BLOCK_N,
	EDM_BLOCK_G,
	EDM_BLOCK_MS,
	EDM_BLOCK_MT,
	EDM_BLOCK_MST,
	EDM_BLOCK_INVALID, /* sync 00 or 11 */
};

/* *field: of N, G, MS, MT and MST. */
enum edm_block_kind edm_block_kind_of(const struct edm_line *line, const struct edm_block *block,
				      u64 *field);

struct edm_block edm_block_idle(void);

/* Is a block of kind FRAME the end of a frame? */
bool edm_block_is_end(const struct edm_block *block);

/* Blocks of a frame of so many bytes, from its address to its FCS: the preamble is in the first. */
static inline u32 edm_block_frame(u32 bytes)
{
	return 1 + bytes / 8 + 1;
}

/* ---- N and G ---- */

struct edm_block_note {
	u16 destination; /* 9 bits */
	u8 id;
	u16 size;
	bool answer;
};

/* kind: EDM_BLOCK_N or EDM_BLOCK_G. */
struct edm_block edm_block_note_write(const struct edm_line *line, enum edm_block_kind kind,
				      const struct edm_block_note *note);
/* False: the check fails, or a bit is set that must not be. */
bool edm_block_note_read(u64 field, struct edm_block_note *note);

/* ---- messages ---- */

struct edm_block_head {
	u8 kind;	 /* EDM_RREQ .. EDM_RRES */
	u8 id;
	u8 opcode;	 /* RMWREQ */
	u16 destination; /* 9 bits */
	u16 size;	 /* 1 or more */
	u64 address;	 /* but RRES */
};

/* Bytes of data that follow the head in the message. */
static inline u32 edm_block_data_bytes(const struct edm_block_head *head)
{
	return head->kind == EDM_RREQ ? 0 : head->size;
}

/* Blocks of a message. */
u32 edm_block_count(const struct edm_line *line, const struct edm_block_head *head);

/* Writes a message block by block. Head and data stay as they are until all are written. */
struct edm_block_writer {
	const struct edm_block_head *head;
	const u8 *data;
	u32 at, bits; /* of the string: written, all */
	u32 check;
};

void edm_block_begin(const struct edm_line *line, struct edm_block_writer *w,
		     const struct edm_block_head *head, const u8 *data);
/* False: all blocks were written. */
bool edm_block_write(const struct edm_line *line, struct edm_block_writer *w,
		     struct edm_block *block);

/* Reads messages from blocks of kinds DATA, MS, MT and MST. */
struct edm_block_reader {
	struct edm_block_head head;
	u8 *data; /* the caller's, data_bytes_max of them */
	u32 data_bytes_max;
	u32 at, bits;
	u32 check;     /* as received */
	bool within;   /* MS was read, MT not yet */
};

enum edm_block_verdict {
	EDM_BLOCK_MORE,	   /* the message goes on */
	EDM_BLOCK_MESSAGE, /* head and data are complete */
	EDM_BLOCK_BROKEN,  /* the message is dropped: its check, its length or its order is wrong */
};

void edm_block_reader_init(struct edm_block_reader *r, u8 *data, u32 data_bytes_max);
/* While r->within, data blocks belong to the message. kind: DATA, MS, MT or MST. */
enum edm_block_verdict edm_block_read(const struct edm_line *line, struct edm_block_reader *r,
				      enum edm_block_kind kind, u64 bits);

/* ---- scrambler x^58 + x^39 + 1 ---- */

/* The last 58 bits on the link, the oldest one lowest. Any start will do. */
struct edm_scrambler {
	u64 history;
};

u64 edm_block_scramble(struct edm_scrambler *s, u64 payload);
/* After 58 bits its result is right, whatever the history was at the start. */
u64 edm_block_descramble(struct edm_scrambler *s, u64 payload);

#endif
