/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The table's layout, words of it, and the functions that the files of the program share.
 *
 *	kv.c			dispatch, format, counters
 *	get.c  change.c  stage.c	the functions on keys
 *	item.c			search for an item, and putting one in its place
 *	memory.c		slabs, classes, the hand
 *	table.h  table.c	layout, words, hash
 *
 * A file calls only files of lower floors. README.md has the table's picture.
 *
 * Invariants:
 *   - a slot of a bucket names an item whose version is live, and each live item has one slot;
 *   - a free item is on its class's list, or was lost by a steal; the hand runs only while the list
 *     is empty, so a free item that it meets is a lost one;
 *   - a step that returns RMEM_AGAIN for want of memory or of a page has changed nothing of its call,
 *     which begins anew.
 *
 * Calls take turns by steps, so a step is atomic. Each change of the table is made in one step,
 * after all accesses that can fail. Clients can write to the table's memory, during a step, too:
 * addresses, indices and lengths are loaded once and checked, and loops have constant bounds.
 */
#ifndef REMORA_OFFLOADS_KV_TABLE_H
#define REMORA_OFFLOADS_KV_TABLE_H

#include "kv.h"

#include "../common.h"

#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

/* ---- layout --------------------------------------------------------------------------------- */

#define KV_MAGIC 0x3176656c62617476ULL /* "vtablev1" */
#define KV_CLASSES 26U
#define KV_OVERFLOW_CLASS KV_CLASSES /* buckets, not items */
#define KV_HEADER_BYTES 4096U	     /* before the buckets */
#define KV_CHUNK (1ULL << 62)	     /* the version of a piece of a value: its item's offset */
#define KV_SLICE_BYTES 1024U	     /* every node permits slices of so many bytes */
#define KV_CHAIN_MAX 32U
#define KV_ALIGN 16U
#define KV_SLOTS 7U
#define KV_OFFSET_MASK ((1ULL << 48) - 1)

struct kv_class {
	__le64 free;	   /* offset of the first free item; 0: none */
	__le32 hand_slab;  /* number + 1, also the entry to the ring of the class's slabs; 0: none */
	__le32 hand_item;  /* the next one that the hand looks at */
	__le32 fresh_slab; /* number + 1 of the slab whose items from fresh_item on were never used */
	__le32 fresh_item;
	__le32 slabs;
	__le32 reserved;
};

/* The header. Offsets count from the table's address. */
struct kv_table {
	__le64 magic;
	__le64 bytes;
	__le64 seed[2];
	__le64 slabs_at; /* offsets */
	__le64 rings_at;
	__le32 buckets;
	__le32 slabs;
	__le32 slabs_used;
	__le32 options;
	__le64 version; /* the last one given */
	__le64 flushed; /* items up to this version are gone */
	__le64 items, item_bytes; /* without flushed ones */
	__le64 evicted, reclaimed;
	__le32 leaving;	     /* number + 1 of the slab that changes its class; 0: none */
	__le32 leaving_item; /* its items before this one are gone */
	struct kv_class class[KV_CLASSES + 1];
};

/* One for each slab. */
struct kv_ring {
	__le32 next; /* number of the next slab of the class */
	__le32 class;
};

/* A slot: 16 bits of tag, 48 bits of offset; 0: empty. link: 16 bits of changes, 48 bits of offset. */
struct kv_bucket {
	__le64 slot[KV_SLOTS];
	__le64 link;
};

_Static_assert(sizeof(struct kv_table) <= KV_SLICE_BYTES, "one slice");
_Static_assert(sizeof(struct kv_bucket) == 64, "one cache line");
_Static_assert(sizeof(struct kv_item) == KV_ITEM_BYTES, "as documented");
_Static_assert(sizeof(struct kv_args) == 48 && sizeof(struct kv_found) == 32, "as documented");

/* ---- a call --------------------------------------------------------------------------------- */

/* A call's table, for one step. */
struct kv {
	struct rmem_call *call;
	struct kv_table *table; /* QUERY: not to be written */
	__u64 at;		/* the table's address */
	__u32 now_s;
};

/* From step to step, of a CALL. */
struct kv_work {
	__u64 staged;  /* KV_STAGE: offset of the item */
	__u64 version; /* KV_STAGE: the item's */
	__u32 pieces;  /* number of pieces that the item has */
	__u32 scanned; /* items that the hand passed */
	__u32 next;    /* KV_USED, KV_SETS: index of the next address or item */
	__u32 at;      /* KV_SETS: its offset in the arguments */
	__u64 stored;  /* KV_SETS: a bit an item */
};

/* Slices of the step. */
struct kv_place {
	__u64 item;		/* offset of the key's item; 0: there is none */
	struct kv_item *at;	/* the item */
	struct kv_bucket *bucket; /* the one with its slot, or with an empty one; NULL: none is */
	__u32 slot;
	struct kv_bucket *last; /* of the chain */
	__u32 hops;		/* to it */
};

/* An item to be made, of a value in up to two parts. */
struct kv_new {
	const __u8 *key;
	const void *part[2];
	__u32 part_bytes[2];
	__u32 key_bytes, flags, expiry_s;
};

/* ---- words ---------------------------------------------------------------------------------- */

/* The number of a hash's bucket. */
static inline __u64 kv_bucket_number(__u64 hash, __u32 buckets)
{
	return ((hash & 0xffffffffU) * buckets) >> 32;
}

static inline __u32 kv_load_8(const __u8 *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

static inline void kv_count(__le64 *counter, __s64 by)
{
	*counter = cpu_to_le64(le64_to_cpu(*counter) + by);
}

/* ---- items ---------------------------------------------------------------------------------- */

static inline void *kv_fails(int *error, int reason)
{
	*error = reason;
	return NULL;
}

static inline bool kv_is_item(const struct kv *kv, __u64 offset)
{
	__u64 from = le64_to_cpu(kv->table->slabs_at);

	return offset >= from && offset % KV_ALIGN == 0 &&
	       (offset - from) >> KV_SLAB_SHIFT < le32_to_cpu(kv->table->slabs);
}

/* Bytes of a slice of the item at the offset: never beyond its slab. */
static inline __u32 kv_slice_bytes(__u64 offset)
{
	__u32 left = KV_SLAB_BYTES - (__u32)(offset % KV_SLAB_BYTES);

	return left < KV_SLICE_BYTES ? left : KV_SLICE_BYTES;
}

static inline bool kv_fits_slab(__u64 offset)
{
	return KV_SLAB_BYTES - offset % KV_SLAB_BYTES >= 64;
}

static inline struct kv_item *kv_item_at(const struct kv *kv, __u64 offset, int *error)
{
	struct kv_item *item;

	if (!kv_is_item(kv, offset) || !kv_fits_slab(offset))
		return kv_fails(error, -EUCLEAN);
	item = rmem_at(kv->call, kv->at + offset, kv_slice_bytes(offset));
	return item ? item : kv_fails(error, rmem_error(kv->call));
}

static inline bool kv_is_live(const struct kv_item *item)
{
	__u64 version = offload_load(&item->version);

	return version && version < KV_CHUNK;
}

/* Live, but expired or flushed. */
static inline bool kv_is_dead(__u64 flushed, __u32 now_s, const struct kv_item *item)
{
	__u32 expiry_s = le32_to_cpu(item->expiry_s);

	return offload_load(&item->version) <= flushed || (expiry_s && expiry_s <= now_s);
}

static inline bool kv_has_key(const struct kv_item *item, const __u8 *key, __u32 bytes, __u64 offset)
{
	return kv_load_8(&item->key_bytes) == bytes && KV_ITEM_BYTES + bytes <= kv_slice_bytes(offset) &&
	       !memcmp(item + 1, key, bytes);
}

static inline __u64 kv_bytes_of(const struct kv_item *item)
{
	return (__u64)KV_ITEM_BYTES + item->key_bytes + le32_to_cpu(item->value_bytes);
}

/* Counts a live item that comes or goes. KV_FLUSH counted the flushed ones out. */
static inline void kv_count_item(struct kv *kv, const struct kv_item *item, __s64 by)
{
	if (offload_load(&item->version) <= offload_load(&kv->table->flushed))
		return;
	kv_count(&kv->table->items, by);
	kv_count(&kv->table->item_bytes, by * (__s64)kv_bytes_of(item));
}

/* ---- buckets -------------------------------------------------------------------------------- */

static inline __u64 kv_bucket_of(const struct kv *kv, __u64 hash)
{
	return KV_HEADER_BYTES + sizeof(struct kv_bucket) *
	       kv_bucket_number(hash, le32_to_cpu(kv->table->buckets));
}

/* SipHash of a key by the table's seeds. */
__u64 kv_table_hash(__u64 seed0, __u64 seed1, const __u8 *key, __u32 bytes);

static inline __u64 kv_hash_of(const struct kv *kv, const __u8 *key, __u32 bytes)
{
	return kv_table_hash(le64_to_cpu(kv->table->seed[0]), le64_to_cpu(kv->table->seed[1]), key,
			     bytes);
}

/* True: the chain goes on at *bucket. */
static inline bool kv_follow(const struct kv *kv, const struct kv_bucket *at, __u64 *bucket)
{
	__u64 link = offload_load(&at->link) & KV_OFFSET_MASK;

	if (!kv_is_item(kv, link) || link % sizeof(struct kv_bucket))
		return false;
	*bucket = link;
	return true;
}

/* Stores a slot's word, and counts the change. */
static inline void kv_set_slot(struct kv_bucket *bucket, __u32 slot, __u64 word)
{
	offload_store(&bucket->slot[slot], word);
	offload_store(&bucket->link, offload_load(&bucket->link) + (1ULL << 48));
}

/* ---- answers -------------------------------------------------------------------------------- */

static inline int kv_answer(struct rmem_call *call, enum kv_status status, __u64 version, __u64 number)
{
	struct kv_result *result = rmem_result(call, sizeof(*result));
	__le64 word = cpu_to_le64(version);

	if (!result)
		return rmem_error(call);
	result->status = cpu_to_le16(status);
	memcpy(result->version, &word, sizeof(result->version));
	result->number = cpu_to_le64(number);
	return 0;
}

/* The end of a call that can't go on: a lack of memory is a status. */
static inline int kv_ends(struct rmem_call *call, int error)
{
	return error == -ENOSPC ? kv_answer(call, KV_NO_MEMORY, 0, 0) : error;
}

/* ---- table.c -------------------------------------------------------------------------------- */

/* Takes the table of a step. 0, or -errno: there is none. change: the call can change it. */
int kv_table_open(struct kv *kv, struct rmem_call *call, __le64 table, __u32 now_s, bool change);

/* ---- memory.c ------------------------------------------------------------------------------- */

/*
 * Takes an item for so many bytes, of its head, key and value. NULL: *error; RMEM_AGAIN: the step
 * ends, and the call begins anew; -ENOSPC: there is no memory.
 */
struct kv_item *kv_memory_alloc(struct kv *kv, struct kv_work *work, __u32 bytes, __u64 *offset,
				int *error);

/*
 * Frees an item that no slot names, and its pieces. An access that fails leaves a piece to the hand, or
 * lost where the memory is damaged.
 */
void kv_memory_free(struct kv *kv, __u64 offset, struct kv_item *item);

/* Frees an item that isn't filled: it has no pieces. */
void kv_memory_free_one(struct kv *kv, __u64 offset, struct kv_item *item);

/* Does an item of its slab's class begin there? */
bool kv_memory_is_start(const struct kv *kv, __u64 offset);

/* Adds an empty bucket to the chain; in a full cache one of the chain's items goes. RMEM_AGAIN, or -errno. */
int kv_memory_extend(struct kv *kv, const struct kv_place *place);

/* ---- item.c --------------------------------------------------------------------------------- */

/* Finds the key's item, else an empty slot of its chain. */
int kv_item_search(const struct kv *kv, __u64 hash, const __u8 *key, __u32 key_bytes,
		   struct kv_place *place);

/* The key's item, unless it is dead. */
struct kv_item *kv_item_current(const struct kv *kv, const struct kv_place *place);

/* KV_OK, or why the item can't be stored. */
enum kv_status kv_item_permits(const struct kv_item *live, __u32 mode, __u64 version);

__u64 kv_item_next_version(const struct kv *kv);

/* Writes the key, the value and the head but its version. 0 or -errno. */
int kv_item_fill(struct kv *kv, __u64 offset, struct kv_item *item, const struct kv_new *new);

/* Publishes the filled item in the place, and frees the one that was there. */
void kv_item_publish(struct kv *kv, const struct kv_place *place, __u64 hash, __u64 offset,
		     struct kv_item *item, __u64 version);

/* Stores a new item in the place. Ends the call, or RMEM_AGAIN. number is for the answer. */
int kv_item_replace(struct kv *kv, struct kv_work *work, const struct kv_place *place, __u64 hash,
		    const struct kv_new *new, __u64 number);

/* ---- functions ------------------------------------------------------------------------------ */

int kv_get(struct rmem_call *call);
int kv_change(struct kv *kv, const struct kv_args *args, __u64 hash); /* SET, ADD, DELETE, TOUCH */
int kv_change_sets(struct rmem_call *call);
int kv_stage(struct kv *kv, const struct kv_args *args);
int kv_stage_publish(struct kv *kv, const struct kv_args *args);

#endif
