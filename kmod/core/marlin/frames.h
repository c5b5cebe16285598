/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Both ends of a ring of frames (include/remora/marlin.h; Marlin, ANCS'14, 3.4).
 *
 *     writer                                      reader
 *   frames_out_learn()  tail, own memory        frames_in_record()  the next record, checked
 *   frames_out_span()   where to write          frames_in_span()    where its frame is
 *   frames_out_close()  0 after the record      frames_in_take()    own count
 *   frames_out_post()   word ---------------->  frames_in_tell()    tail -> writer
 *
 *   [ taken | records posted ... | the record being written | 0 | free ]
 *   tail    freed                head                         a line, always
 *
 * Invariants, whatever the other end writes:
 *   - neither end touches memory outside the ring and its own words;
 *   - an end keeps all positions in memory of its own. It reads each shared word once, and believes
 *     it only within what it knows;
 *   - a record is returned once, in order, and only when its word is valid. Old bytes of the ring
 *     are never taken for a record of an honest writer: the word that is looked at next was
 *     written as 0 before the word ahead of it was valid.
 * The caller serialises the calls of each end. It ends the session when a call returns a fault.
 *
 * Barriers, by their partners:
 *   post (release)  -> record (acquire)    the record, and the 0 after it
 *   tell (release)  -> learn (acquire)     the records were read
 * A writer whose stores are combined on their way needs a barrier between close and post.
 */
#ifndef REMORA_MARLIN_FRAMES_H
#define REMORA_MARLIN_FRAMES_H

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/types.h"
#include "remora/marlin.h"

/* The rule that the other end broke. */
enum frames_fault {
	FRAMES_OK,
	FRAMES_FAULT_TAIL,     /* the tail ran backwards, too far, or between lines */
	FRAMES_FAULT_WORD,     /* a record's word isn't valid */
	FRAMES_FAULT_POSITION, /* a record has another position */
	FRAMES_FAULT_BYTES,    /* a frame is too short or too long */
	FRAMES_FAULT_STUCK,    /* the reader makes no room (the caller's to find) */
	FRAMES_FAULTS
};

const char *frames_fault_name(enum frames_fault fault);

/* Bytes of a ring are such as the specification allows. */
bool frames_ring_is_valid(u64 ring_bytes);

/*
 * The largest ring in a window of so many bytes, which also has struct marlin_messages; 0: the
 * window is too small for any.
 */
u32 frames_ring_bytes(u64 window_bytes);

/* Memory in at most two pieces. bytes[1] is 0 if the first piece is all. */
struct frames_span {
	u8 *at[2];
	u32 bytes[2];
};

struct frames_out {
	u8 *ring;	 /* in the other end's memory */
	const u32 *tail; /* in own memory */
	u32 mask;
	u32 head;
	u32 freed; /* position up to which the ring is free, as the tail has told */
};

struct frames_in {
	u8 *ring;  /* in own memory */
	u32 *tail; /* in the other end's memory */
	u32 mask;
	u32 taken;
	u32 told;
};

/* The ring's first word, and the tail, are 0. ring_bytes is valid. */
void frames_out_init(struct frames_out *out, void *ring, u32 ring_bytes, const u32 *tail);
void frames_in_init(struct frames_in *in, void *ring, u32 ring_bytes, u32 *tail);

/* Bytes of the ring that a frame's record takes. */
static inline u32 frames_record_bytes(u32 bytes)
{
	return (u32)base_round_up(MARLIN_RECORD_BYTES + bytes, MARLIN_LINE_BYTES);
}

/* Where the frame of so many bytes lies whose record begins at a position. */
static inline struct frames_span frames_span_at(u8 *ring, u32 mask, u32 position, u32 bytes)
{
	u32 first = (position & mask) + MARLIN_RECORD_BYTES;
	u32 to_end = mask + 1 - first;
	struct frames_span span = {{ring + first, ring}, {bytes, 0}};

	if (bytes > to_end) {
		span.bytes[0] = to_end;
		span.bytes[1] = bytes - to_end;
	}
	return span;
}

/* ---- writer ---- */

/* There is room for a frame of so many bytes, as far as known: learn() may find more. */
static inline bool frames_out_fits(const struct frames_out *out, u32 bytes)
{
	return frames_record_bytes(bytes) + MARLIN_LINE_BYTES <=
	       out->mask + 1 - (out->head - out->freed);
}

/* Look at the tail. */
static inline enum frames_fault frames_out_learn(struct frames_out *out)
{
	/* Pairs with frames_in_tell(): those records were read. */
	u32 tail = base_swap_le32(__atomic_load_n(out->tail, __ATOMIC_ACQUIRE));

	if (tail - out->freed > out->head - out->freed || tail % MARLIN_LINE_BYTES)
		return FRAMES_FAULT_TAIL;
	out->freed = tail;
	return FRAMES_OK;
}

/* Where to write the next frame, which fits. */
static inline struct frames_span frames_out_span(const struct frames_out *out, u32 bytes)
{
	return frames_span_at(out->ring, out->mask, out->head, bytes);
}

/* Where to write the next frame's offload. */
static inline struct marlin_offload *frames_out_offload(const struct frames_out *out)
{
	return &((struct marlin_record *)(out->ring + (out->head & out->mask)))->offload;
}

/* The frame of so many bytes is written: mark the end of the records. */
static inline void frames_out_close(const struct frames_out *out, u32 bytes)
{
	u32 next = out->head + frames_record_bytes(bytes);

	__atomic_store_n((u64 *)(out->ring + (next & out->mask)), 0, __ATOMIC_RELAXED);
}

/* The record of a frame of so many bytes is written and closed. */
static inline void frames_out_post(struct frames_out *out, u32 bytes)
{
	u64 *word = (u64 *)(out->ring + (out->head & out->mask));
	u64 value = (u64)out->head << 32 | MARLIN_VALID | bytes;

	/* Pairs with frames_in_record(): the record, and the 0 after it. */
	__atomic_store_n(word, base_swap_le64(value), __ATOMIC_RELEASE);
	out->head += frames_record_bytes(bytes);
}

/* ---- reader ---- */

static inline u64 frames_in_word(const struct frames_in *in)
{
	const u64 *word = (const u64 *)(in->ring + (in->taken & in->mask));

	/* Pairs with frames_out_post(): the record, and the 0 after it. */
	return base_swap_le64(__atomic_load_n(word, __ATOMIC_ACQUIRE));
}

static inline bool frames_in_has_record(const struct frames_in *in)
{
	return frames_in_word(in) != 0;
}

/*
 * The bytes of the next record's frame. 0: there is none, or *fault says what is wrong. The writer
 * may still change the frame: the caller copies it, and checks the copy.
 */
static inline u32 frames_in_record(const struct frames_in *in, enum frames_fault *fault)
{
	u64 word = frames_in_word(in);
	u32 bytes = (u32)word & ~MARLIN_VALID;

	*fault = FRAMES_OK;
	if (!word)
		return 0;
	if (!(word & MARLIN_VALID))
		*fault = FRAMES_FAULT_WORD;
	else if (word >> 32 != in->taken)
		*fault = FRAMES_FAULT_POSITION;
	else if (bytes < MARLIN_FRAME_BYTES_MIN || bytes > MARLIN_FRAME_BYTES_MAX)
		*fault = FRAMES_FAULT_BYTES;
	return *fault ? 0 : bytes;
}

/* Where the next frame lies; bytes: from frames_in_record(). */
static inline struct frames_span frames_in_span(const struct frames_in *in, u32 bytes)
{
	return frames_span_at(in->ring, in->mask, in->taken, bytes);
}

static inline const struct marlin_offload *frames_in_offload(const struct frames_in *in)
{
	return &((const struct marlin_record *)(in->ring + (in->taken & in->mask)))->offload;
}

/* The frame has been copied; bytes: from frames_in_record(). */
static inline void frames_in_take(struct frames_in *in, u32 bytes)
{
	in->taken += frames_record_bytes(bytes);
}

/* Tell the writer of what was taken, if a quarter of the ring or the caller says so. True: told. */
static inline bool frames_in_tell(struct frames_in *in, bool now)
{
	u32 owed = in->taken - in->told;

	if (!owed || (!now && owed < (in->mask + 1) / 4))
		return false;
	in->told = in->taken;
	/* Pairs with frames_out_learn(): the records were read. */
	__atomic_store_n(in->tail, base_swap_le32(in->taken), __ATOMIC_RELEASE);
	return true;
}

#endif
