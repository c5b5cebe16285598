/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Both ends of rings by one-sided writes (include/remora/ring.h; Orca, HPCA'23, III-A to III-C).
 *
 *     writer                                       reader
 *   ring_out_learn()   credit, own memory        ring_in_track()    pointer word -> how many came
 *   ring_out_record()  where to write            ring_in_record()   the next entry, checked
 *   ring_out_post()    word  ----------------->  ring_in_take()     word = 0
 *   ring_out_signal()  pointer word ---------->  ring_in_tell()     credit word -> writer
 *   ring_must_wake()   resets the reader's flag  ring_doze()        flag, before it looks once more
 *
 * Invariants, for any writes of the other end:
 *   - neither end touches memory outside the ring's entries and its own words;
 *   - an end keeps all counts in memory of its own. It reads each shared word once, and believes it
 *     only within its own knowledge;
 *   - a record is returned once, in order, and only when its word is valid.
 * The caller serialises the calls of each end. It closes the pair when a call returns a fault.
 *
 * Barriers, by their partners:
 *   post (release)   -> record (acquire)     the record's bytes
 *   take, tell (rel) -> learn (acquire)      the entry was read, and its word cleared
 *   signal (release) -> track (acquire)      the entries, where memory is coherent
 *   doze (full)     <-> must_wake (full)     the sleeper sees the write, or the writer the flag
 */
#ifndef REMORA_RING_RING_H
#define REMORA_RING_RING_H

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/base/types.h"
#include "remora/ring.h"

/* The rule that the other end broke. */
enum ring_fault {
	RING_OK,
	RING_FAULT_POINTER, /* the pointer word ran backwards, or beyond the ring */
	RING_FAULT_CREDIT,  /* the credit word did, or beyond the entries posted */
	RING_FAULT_WORD,    /* an entry's word isn't valid, or has another number */
	RING_FAULT_BYTES,   /* a record is longer than an entry */
	RING_FAULT_ABSENT,  /* signalled, and not there (the caller's to find) */
	RING_FAULTS
};

const char *ring_fault_name(enum ring_fault fault);

/* Entries and bytes are such as the specification allows. */
bool ring_shape_is_valid(u32 entries, u32 entry_bytes);

struct ring_out {
	u8 *entries;	   /* in the other end's memory */
	const u32 *credit; /* in own memory */
	u32 mask;
	u32 entry_bytes;
	u32 posted;
	u32 freed; /* of them, as the credit word has told */
};

struct ring_in {
	u8 *entries; /* in own memory */
	u32 *credit; /* in the other end's memory */
	u32 mask;
	u32 entry_bytes;
	u32 taken;
	u32 told;
	/*
	 * Entries that the pointer word told of at the last look; fewer than taken while it lags
	 * behind a reader that looks at entries
	 */
	u32 signalled;
};

/* Memory is zero, and shared. The shape is valid. */
void ring_out_init(struct ring_out *out, void *entries, u32 count, u32 entry_bytes,
		   const u32 *credit);
void ring_in_init(struct ring_in *in, void *entries, u32 count, u32 entry_bytes, u32 *credit);

/* ---- writer ---- */

/* Entries that can be posted, as far as known: learn() can find more. */
static inline u32 ring_out_room(const struct ring_out *out)
{
	return out->mask + 1 - (out->posted - out->freed);
}

/* Look at the credit word. */
static inline enum ring_fault ring_out_learn(struct ring_out *out)
{
	/* Pairs with ring_in_tell(): those entries are empty and read. */
	u32 freed = base_swap_le32(__atomic_load_n(out->credit, __ATOMIC_ACQUIRE));

	if (freed - out->freed > out->posted - out->freed)
		return RING_FAULT_CREDIT;
	out->freed = freed;
	return RING_OK;
}

static inline u32 ring_out_bytes_max(const struct ring_out *out)
{
	return out->entry_bytes - RING_HEAD_BYTES;
}

static inline u8 *ring_entry(u8 *entries, u32 mask, u32 entry_bytes, u32 number)
{
	return entries + (size_t)(number & mask) * entry_bytes;
}

/* Where to write the next record. There is room. */
static inline u8 *ring_out_record(const struct ring_out *out)
{
	return ring_entry(out->entries, out->mask, out->entry_bytes, out->posted) + RING_HEAD_BYTES;
}

/* The record of so many bytes is written. */
static inline void ring_out_post(struct ring_out *out, u32 bytes)
{
	u64 *word = (u64 *)ring_entry(out->entries, out->mask, out->entry_bytes, out->posted);
	u64 value = (u64)out->posted << 32 | RING_VALID | bytes;

	/* Pairs with ring_in_record(): the record. */
	__atomic_store_n(word, base_swap_le64(value), __ATOMIC_RELEASE);
	out->posted++;
}

/* Tell the reader by its pointer word of all entries posted. */
static inline void ring_out_signal(const struct ring_out *out, u32 *pointer)
{
	/* Pairs with ring_in_track(): the entries. */
	__atomic_store_n(pointer, base_swap_le32(out->posted), __ATOMIC_RELEASE);
}

/* ---- reader ---- */

/* Does a pointer word tell of entries that weren't taken? If it lags behind, it doesn't. */
static inline bool ring_tells_more(u32 signalled, u32 taken)
{
	return signalled != taken && signalled - taken < 1U << 31;
}

/* Entries that the pointer word told of and that weren't taken. */
static inline u32 ring_in_waiting(const struct ring_in *in)
{
	return ring_tells_more(in->signalled, in->taken) ? in->signalled - in->taken : 0;
}

/*
 * The ring tracker. Look at the pointer word: its change is the number of entries that came. A
 * reader that takes entries before the word tells of them calls it once in 2^30 entries at least.
 */
static inline enum ring_fault ring_in_track(struct ring_in *in, const u32 *pointer)
{
	/* Pairs with ring_out_signal(): the entries. */
	u32 signalled = base_swap_le32(__atomic_load_n(pointer, __ATOMIC_ACQUIRE));

	/* From where it was up to the ring's end. Entries taken before it told are between. */
	if (signalled - in->signalled > in->taken + in->mask + 1 - in->signalled)
		return RING_FAULT_POINTER;
	in->signalled = signalled;
	return RING_OK;
}

/* The next entry's word, for a reader that waits for it alone: not 0 once the entry has come. */
static inline const u64 *ring_in_word(const struct ring_in *in)
{
	return (const u64 *)ring_entry(in->entries, in->mask, in->entry_bytes, in->taken);
}

static inline bool ring_in_has_record(const struct ring_in *in)
{
	return __atomic_load_n(ring_in_word(in), __ATOMIC_RELAXED) != 0;
}

/*
 * The next record, until ring_in_take(); NULL: there is none, or *fault names the error.
 */
static inline const u8 *ring_in_record(const struct ring_in *in, u32 *bytes,
				       enum ring_fault *fault)
{
	const u8 *entry = ring_entry(in->entries, in->mask, in->entry_bytes, in->taken);
	/* Pairs with ring_out_post(): the record. */
	u64 word = base_swap_le64(__atomic_load_n((const u64 *)entry, __ATOMIC_ACQUIRE));

	*fault = RING_OK;
	*bytes = (u32)word & ~RING_VALID;
	if (!word)
		return NULL;
	if (!(word & RING_VALID) || word >> 32 != in->taken)
		*fault = RING_FAULT_WORD;
	else if (*bytes > in->entry_bytes - RING_HEAD_BYTES)
		*fault = RING_FAULT_BYTES;
	return *fault ? NULL : entry + RING_HEAD_BYTES;
}

/* The record has been read. */
static inline void ring_in_take(struct ring_in *in)
{
	u64 *word = (u64 *)ring_entry(in->entries, in->mask, in->entry_bytes, in->taken);

	/* Visible before ring_in_tell(), whose store is a release. */
	__atomic_store_n(word, 0, __ATOMIC_RELAXED);
	in->taken++;
}

/* Tell the writer of the entries taken, if that is due. True: it was told, and may sleep. */
static inline bool ring_in_tell(struct ring_in *in)
{
	if (in->taken - in->told < (in->mask + 1 + 3) / 4)
		return false;
	in->told = in->taken;
	/* Pairs with ring_out_learn(): the entries were read, and are empty. */
	__atomic_store_n(in->credit, base_swap_le32(in->taken), __ATOMIC_RELEASE);
	return true;
}

/* ---- sleeping ---- */

/*
 * The caller is going to sleep unless it now finds something: it has to look after this. It then
 * sleeps only while the flag is set; ring_must_wake() resets it.
 */
static inline void ring_doze(u32 *flag)
{
	__atomic_store_n(flag, base_swap_le32(1), __ATOMIC_RELAXED);
	/* Pairs with ring_must_wake(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void ring_rise(u32 *flag)
{
	__atomic_store_n(flag, 0, __ATOMIC_RELAXED);
}

/* After ring_out_post(), ring_out_signal() or ring_in_tell(): must the other end be woken? */
static inline bool ring_must_wake(u32 *flag)
{
	/* Pairs with ring_doze(). */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!__atomic_load_n(flag, __ATOMIC_RELAXED))
		return false;
	/* The sleeper might not sleep yet: then it won't. */
	__atomic_store_n(flag, 0, __ATOMIC_RELAXED);
	return true;
}

#endif
