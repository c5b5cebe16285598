// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A key-value table in remote memory (Orca's KV, after MICA; memcached's slabs). README.md has the
 * picture.
 *
 * Invariants:
 *   - a slot of a bucket names an item whose version is live, and each live item has one slot;
 *   - a free item is on its class's list, or was lost by kv_steal(); the hand runs only while the
 *     list is empty, so a free item that it meets is a lost one;
 *   - a step that returns RMEM_AGAIN for want of memory or of a page has changed nothing of its call,
 *     which begins anew.
 *
 * Calls take turns by steps, so a step is atomic. Each change of the table is made in one step,
 * after all accesses that can fail. Clients can write to the table's memory, during a step, too:
 * addresses, indices and lengths are loaded once and checked, and loops have constant bounds.
 */
#include "kv.h"

#include "remora/offload.h"

#ifdef __KERNEL__
#include <asm/byteorder.h>
#include <linux/module.h>
#include <linux/string.h>

#include "rmem_offload_ops.h"
#else
#include <endian.h>
#include <stdbool.h>
#include <string.h>

#define le64_to_cpu le64toh
#define le32_to_cpu le32toh
#define le16_to_cpu le16toh
#define cpu_to_le64 htole64
#define cpu_to_le32 htole32
#define cpu_to_le16 htole16
#endif

#define KV_MAGIC 0x3176656c62617476ULL /* "vtablev1" */
#define KV_CLASSES 26U
#define KV_OVERFLOW_CLASS KV_CLASSES /* buckets, not items */
#define KV_HEADER_BYTES 4096U	     /* before the buckets */
#define KV_CHUNK (1ULL << 62)	     /* the version of a piece of a value: its item's offset */
#define KV_SLICE_BYTES 1024U	     /* every node permits slices of so many bytes */
#define KV_CHAIN_MAX 32U
#define KV_SCAN_STEP 16U   /* items that the hand passes in a step */
#define KV_SCAN_STORE 2048U /* items that it passes before a store gives up */
#define KV_SCAN_CACHE 4096U /* items that it passes before a cache evicts those in use, too */
#define KV_ALIGN 16U
#define KV_LANES 12U
#define KV_NUMBER_BYTES_MAX 20U /* a sign and 19 digits, or 20 digits */

static const __u32 kv_class_bytes[KV_CLASSES] = {
	64,   80,   112,  144,	192,  240,  304,  384,	480,   608,   768,   960,   1200,
	1520, 1920, 2416, 3120, 4096, 5456, 7280, 9360, 13104, 16384, 21840, 32768, 65536,
};

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
	__le64 items, item_bytes, evicted, reclaimed;
	__le32 leaving;	     /* number + 1 of the slab that changes its class; 0: none */
	__le32 leaving_item; /* its items before this one are gone */
	struct kv_class class[KV_CLASSES + 1];
};

/* One for each slab. */
struct kv_ring {
	__le32 next; /* number of the next slab of the class */
	__le32 class;
};

#define KV_SLOTS 7U

/* A slot: 16 bits of tag, 48 bits of offset; 0: empty. link: 16 bits of changes, 48 bits of offset. */
struct kv_bucket {
	__le64 slot[KV_SLOTS];
	__le64 link;
};

_Static_assert(sizeof(struct kv_table) <= KV_SLICE_BYTES, "one slice");
_Static_assert(sizeof(struct kv_bucket) == 64, "one cache line");
_Static_assert(sizeof(struct kv_item) == KV_ITEM_BYTES, "as documented");
_Static_assert(sizeof(struct kv_args) == 48 && sizeof(struct kv_found) == 32, "as documented");

#define KV_OFFSET_MASK ((1ULL << 48) - 1)

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

/* ---- hash ----------------------------------------------------------------------------------- */

#define KV_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

static void kv_sip_round(__u64 v[4])
{
	v[0] += v[1];
	v[1] = KV_ROTATE(v[1], 13) ^ v[0];
	v[0] = KV_ROTATE(v[0], 32);
	v[2] += v[3];
	v[3] = KV_ROTATE(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = KV_ROTATE(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = KV_ROTATE(v[1], 17) ^ v[2];
	v[2] = KV_ROTATE(v[2], 32);
}

/*
 * SipHash-1-3, as hash tables use it. The core's incremental 2-4 is for tags, and an offload can't
 * call it.
 */
static __u64 kv_hash(__u64 seed0, __u64 seed1, const __u8 *key, __u32 bytes)
{
	__u64 v[4] = { seed0 ^ 0x736f6d6570736575ULL, seed1 ^ 0x646f72616e646f6dULL,
		       seed0 ^ 0x6c7967656e657261ULL, seed1 ^ 0x7465646279746573ULL };
	__u64 last = (__u64)bytes << 56;
	__u32 n;

	for (n = 0; n + 8 <= bytes; n += 8) {
		__le64 word;

		memcpy(&word, key + n, sizeof(word));
		v[3] ^= le64_to_cpu(word);
		kv_sip_round(v);
		v[0] ^= le64_to_cpu(word);
	}
	for (; n < bytes; n++)
		last |= (__u64)key[n] << 8 * (n % 8);
	v[3] ^= last;
	kv_sip_round(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	kv_sip_round(v);
	kv_sip_round(v);
	kv_sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

static __u64 kv_bucket_number(__u64 hash, __u32 buckets)
{
	return ((hash & 0xffffffffU) * buckets) >> 32;
}

/* ---- memory --------------------------------------------------------------------------------- */

static __u64 kv_load(const __le64 *from)
{
	return le64_to_cpu(__atomic_load_n(from, __ATOMIC_RELAXED));
}

static __u32 kv_load_32(const __le32 *from)
{
	return le32_to_cpu(__atomic_load_n(from, __ATOMIC_RELAXED));
}

static __u32 kv_load_8(const __u8 *from)
{
	return __atomic_load_n(from, __ATOMIC_RELAXED);
}

/* One-sided readers that see the value see all earlier stores, too. */
static void kv_store(__le64 *to, __u64 value)
{
	__atomic_store_n(to, cpu_to_le64(value), __ATOMIC_RELEASE);
}

static void kv_count(__le64 *counter, __s64 by)
{
	*counter = cpu_to_le64(le64_to_cpu(*counter) + by);
}

/* An item's `free` link lies over flags and expiry_s. */
static __u64 kv_free_next(const struct kv_item *item)
{
	return le32_to_cpu(item->flags) | (__u64)le32_to_cpu(item->expiry_s) << 32;
}

static void kv_set_free_next(struct kv_item *item, __u64 offset)
{
	item->flags = cpu_to_le32((__u32)offset);
	item->expiry_s = cpu_to_le32((__u32)(offset >> 32));
}

static int kv_open(struct kv *kv, struct rmem_call *call, __le64 table, __u32 now_s, bool change)
{
	kv->call = call;
	kv->at = le64_to_cpu(table);
	kv->now_s = now_s;
	if (!kv->at || kv->at % KV_TABLE_ALIGN)
		return -EINVAL;
	kv->table = change ? rmem_at(call, kv->at, sizeof(*kv->table)) :
			     (struct kv_table *)rmem_look(call, kv->at, sizeof(*kv->table));
	if (!kv->table)
		return rmem_error(call);
	if (le64_to_cpu(kv->table->magic) != KV_MAGIC)
		return -ENOENT;
	if (!kv->table->buckets || le64_to_cpu(kv->table->slabs_at) % KV_SLAB_BYTES ||
	    le64_to_cpu(kv->table->slabs_at) > KV_OFFSET_MASK ||
	    le64_to_cpu(kv->table->rings_at) % sizeof(struct kv_ring))
		return -EUCLEAN;
	return 0;
}

static void *kv_fails(int *error, int reason)
{
	*error = reason;
	return NULL;
}

static bool kv_is_item(const struct kv *kv, __u64 offset)
{
	__u64 from = le64_to_cpu(kv->table->slabs_at);

	return offset >= from && offset % KV_ALIGN == 0 &&
	       (offset - from) >> KV_SLAB_SHIFT < le32_to_cpu(kv->table->slabs);
}

/* Bytes of a slice of the item at the offset: never beyond its slab. */
static __u32 kv_slice_bytes(__u64 offset)
{
	__u32 left = KV_SLAB_BYTES - (__u32)(offset % KV_SLAB_BYTES);

	return left < KV_SLICE_BYTES ? left : KV_SLICE_BYTES;
}

static bool kv_fits_slab(__u64 offset)
{
	return KV_SLAB_BYTES - offset % KV_SLAB_BYTES >= 64;
}

static struct kv_item *kv_item_at(const struct kv *kv, __u64 offset, int *error)
{
	struct kv_item *item;

	if (!kv_is_item(kv, offset) || !kv_fits_slab(offset))
		return kv_fails(error, -EUCLEAN);
	item = rmem_at(kv->call, kv->at + offset, kv_slice_bytes(offset));
	return item ? item : kv_fails(error, rmem_error(kv->call));
}

static bool kv_is_live(const struct kv_item *item)
{
	__u64 version = kv_load(&item->version);

	return version && version < KV_CHUNK;
}

/* Live, but expired or flushed. */
static bool kv_is_dead(__u64 flushed, __u32 now_s, const struct kv_item *item)
{
	__u32 expiry_s = le32_to_cpu(item->expiry_s);

	return kv_load(&item->version) <= flushed || (expiry_s && expiry_s <= now_s);
}

static bool kv_has_key(const struct kv_item *item, const __u8 *key, __u32 bytes, __u64 offset)
{
	return kv_load_8(&item->key_bytes) == bytes && KV_ITEM_BYTES + bytes <= kv_slice_bytes(offset) &&
	       !memcmp(item + 1, key, bytes);
}

static __u64 kv_bytes_of(const struct kv_item *item)
{
	return (__u64)KV_ITEM_BYTES + item->key_bytes + le32_to_cpu(item->value_bytes);
}

/* Bytes of the value behind the key, in the item's slice. False: it isn't all there. */
static bool kv_value_in_slice(const struct kv_item *item, __u64 offset, __u32 key_bytes,
			      __u32 *value_bytes)
{
	__u32 room = kv_slice_bytes(offset);

	*value_bytes = kv_load_32(&item->value_bytes);
	return KV_ITEM_BYTES + key_bytes <= room && *value_bytes <= room - KV_ITEM_BYTES - key_bytes;
}

static __u64 kv_bucket_of(const struct kv *kv, __u64 hash)
{
	return KV_HEADER_BYTES + sizeof(struct kv_bucket) *
	       kv_bucket_number(hash, le32_to_cpu(kv->table->buckets));
}

static __u64 kv_next_version(const struct kv *kv)
{
	kv_count(&kv->table->version, 1);
	return le64_to_cpu(kv->table->version) & (KV_OFFSET_MASK >> 1);
}

/* ---- search --------------------------------------------------------------------------------- */

/* Slices of the step. */
struct kv_place {
	__u64 item;		/* offset of the key's item; 0: there is none */
	struct kv_item *at;	/* the item */
	struct kv_bucket *bucket; /* the one with its slot, or with an empty one; NULL: none is */
	__u32 slot;
	struct kv_bucket *last; /* of the chain */
	__u32 hops;		/* to it */
};

/* True: the chain goes on at *bucket. */
static bool kv_follow(const struct kv *kv, const struct kv_bucket *at, __u64 *bucket)
{
	__u64 link = kv_load(&at->link) & KV_OFFSET_MASK;

	if (!kv_is_item(kv, link) || link % sizeof(struct kv_bucket))
		return false;
	*bucket = link;
	return true;
}

static int kv_search_bucket(const struct kv *kv, __u64 tag, const __u8 *key, __u32 key_bytes,
			    struct kv_place *place)
{
	struct kv_bucket *bucket = place->last;
	__u32 n;

	for (n = 0; n < KV_SLOTS; n++) {
		__u64 word = kv_load(&bucket->slot[n]);
		struct kv_item *item;
		int error = 0;

		if (!word && !place->bucket) {
			place->bucket = bucket;
			place->slot = n;
		}
		if (!word || word >> 48 != tag)
			continue;
		item = kv_item_at(kv, word & KV_OFFSET_MASK, &error);
		if (!item)
			return error;
		if (!kv_is_live(item) || !kv_has_key(item, key, key_bytes, word & KV_OFFSET_MASK))
			continue;
		place->item = word & KV_OFFSET_MASK;
		place->at = item;
		place->bucket = bucket;
		place->slot = n;
		return 0;
	}
	return 0;
}

/* Finds the key's item, else an empty slot of its chain. */
static int kv_search(const struct kv *kv, __u64 hash, const __u8 *key, __u32 key_bytes,
		     struct kv_place *place)
{
	__u64 bucket = kv_bucket_of(kv, hash);
	__u32 hops;

	memset(place, 0, sizeof(*place));
	for (hops = 0; hops < KV_CHAIN_MAX; hops++) {
		int error;

		place->hops = hops;
		place->last = rmem_at(kv->call, kv->at + bucket, sizeof(*place->last));
		if (!place->last)
			return rmem_error(kv->call);
		error = kv_search_bucket(kv, hash >> 48, key, key_bytes, place);
		if (error || place->item || !kv_follow(kv, place->last, &bucket))
			return error;
	}
	return -EUCLEAN;
}

/* Stores a slot's word, and counts the change. */
static void kv_set_slot(struct kv_bucket *bucket, __u32 slot, __u64 word)
{
	kv_store(&bucket->slot[slot], word);
	kv_store(&bucket->link, kv_load(&bucket->link) + (1ULL << 48));
}

/* ---- freeing -------------------------------------------------------------------------------- */

static bool kv_is_leaving(const struct kv *kv, __u64 offset)
{
	__u64 number = (offset - le64_to_cpu(kv->table->slabs_at)) >> KV_SLAB_SHIFT;

	return number + 1 == le32_to_cpu(kv->table->leaving);
}

/* Readers see the version go before the memory is used again. */
static void kv_free_one(struct kv *kv, __u64 offset, struct kv_item *item)
{
	__u32 which = kv_load_8(&item->size_class);
	struct kv_class *class;

	kv_store(&item->version, 0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (which >= KV_CLASSES || kv_is_leaving(kv, offset))
		return;
	class = &kv->table->class[which];
	kv_set_free_next(item, le64_to_cpu(class->free));
	class->free = cpu_to_le64(offset);
}

static __u32 kv_pieces_of(const struct kv_item *item, __u32 *at)
{
	__u32 value_bytes = kv_load_32(&item->value_bytes);
	__u32 key_bytes = kv_load_8(&item->key_bytes);

	*at = KV_PIECES_AT(key_bytes);
	if (KV_IN_ONE(key_bytes, (__u64)value_bytes) || value_bytes > KV_VALUE_BYTES_MAX)
		return 0;
	return KV_PIECES(value_bytes);
}

/*
 * Frees an item that no slot names, and its pieces. An access that fails leaves a piece to the hand, or
 * lost where the memory is damaged.
 */
static void kv_free(struct kv *kv, __u64 offset, struct kv_item *item)
{
	__u32 at, n, pieces = kv_pieces_of(item, &at);
	const __le64 *list = (const __le64 *)((const __u8 *)item + at);

	kv_store(&item->version, 0);
	if (at + pieces * sizeof(*list) > kv_slice_bytes(offset))
		pieces = 0;
	for (n = 0; n < pieces; n++) {
		__u64 where = le64_to_cpu(list[n]) - kv->at;
		struct kv_item *piece;
		int error;

		if (!list[n] || where % KV_SLAB_BYTES)
			continue;
		piece = kv_item_at(kv, where, &error);
		if (piece && kv_load(&piece->version) == (KV_CHUNK | offset))
			kv_free_one(kv, where, piece);
	}
	kv_free_one(kv, offset, item);
}

/* Takes a live item out of its slot, and frees it. */
static int kv_unlink(struct kv *kv, __u64 offset, struct kv_item *item, __le64 *counter)
{
	__u32 key_bytes = kv_load_8(&item->key_bytes), hops, n;
	__u64 hash, bucket;

	if (KV_ITEM_BYTES + key_bytes > kv_slice_bytes(offset))
		return -EUCLEAN;
	hash = kv_hash(le64_to_cpu(kv->table->seed[0]), le64_to_cpu(kv->table->seed[1]),
		       (const __u8 *)(item + 1), key_bytes);
	bucket = kv_bucket_of(kv, hash);
	for (hops = 0; hops < KV_CHAIN_MAX; hops++) {
		struct kv_bucket *at = rmem_at(kv->call, kv->at + bucket, sizeof(*at));

		if (!at)
			return rmem_error(kv->call);
		for (n = 0; n < KV_SLOTS; n++) {
			if ((kv_load(&at->slot[n]) & KV_OFFSET_MASK) != offset)
				continue;
			kv_set_slot(at, n, 0);
			hops = KV_CHAIN_MAX;
			break;
		}
		if (!kv_follow(kv, at, &bucket))
			break;
	}
	kv_count(&kv->table->items, -1);
	kv_count(&kv->table->item_bytes, -(__s64)kv_bytes_of(item));
	kv_count(counter, 1);
	kv_free(kv, offset, item);
	return 0;
}

/* ---- making room ---------------------------------------------------------------------------- */

static struct kv_ring *kv_ring_at(const struct kv *kv, __u32 slab)
{
	if (slab >= le32_to_cpu(kv->table->slabs))
		return NULL;
	return rmem_at(kv->call,
		       kv->at + le64_to_cpu(kv->table->rings_at) + slab * sizeof(struct kv_ring),
		       sizeof(struct kv_ring));
}

static __u32 kv_class_items(__u32 class)
{
	return class == KV_OVERFLOW_CLASS ? KV_SLAB_BYTES / sizeof(struct kv_bucket) :
					    KV_SLAB_BYTES / kv_class_bytes[class];
}

static __u64 kv_item_offset(const struct kv *kv, __u32 slab, __u32 class, __u32 item)
{
	__u32 bytes = class == KV_OVERFLOW_CLASS ? sizeof(struct kv_bucket) : kv_class_bytes[class];

	return le64_to_cpu(kv->table->slabs_at) + ((__u64)slab << KV_SLAB_SHIFT) +
	       (__u64)item * bytes;
}

/* Does an item of the slab's class begin there? */
static bool kv_is_item_start(const struct kv *kv, __u64 offset)
{
	const struct kv_ring *ring;
	__u32 which;

	if (!kv_is_item(kv, offset))
		return false;
	ring = kv_ring_at(kv, (__u32)((offset - le64_to_cpu(kv->table->slabs_at)) >> KV_SLAB_SHIFT));
	which = ring ? kv_load_32(&ring->class) : KV_CLASSES;
	return which < KV_CLASSES && offset % KV_SLAB_BYTES % kv_class_bytes[which] == 0;
}

/* Puts the slab, whose items were never used or are gone, into the ring of the class. */
static int kv_add_slab(struct kv *kv, __u32 number, __u32 which)
{
	struct kv_class *class = &kv->table->class[which];
	struct kv_ring *ring = kv_ring_at(kv, number), *hand = NULL;

	if (!ring)
		return rmem_error(kv->call);
	if (class->hand_slab) {
		hand = kv_ring_at(kv, le32_to_cpu(class->hand_slab) - 1);
		if (!hand)
			return -EUCLEAN;
	}
	ring->class = cpu_to_le32(which);
	ring->next = hand ? hand->next : cpu_to_le32(number);
	if (hand)
		hand->next = cpu_to_le32(number);
	/* The hand passes it last. */
	class->hand_slab = cpu_to_le32(number + 1);
	class->hand_item = cpu_to_le32(kv_class_items(which));
	class->fresh_slab = cpu_to_le32(number + 1);
	class->fresh_item = 0;
	class->slabs = cpu_to_le32(le32_to_cpu(class->slabs) + 1);
	return 0;
}

/* The end of a look at an item: it stays, its memory is free, or a client writes to it. */
enum kv_verdict { KV_PASS, KV_FREED, KV_WAIT };

/* A piece of a value: its version names the item. */
static bool kv_is_piece(const struct kv_item *item)
{
	__u64 version = kv_load(&item->version);

	return version >= KV_CHUNK && version < KV_STAGED;
}

/* The item that a piece belongs to; NULL: *error, or it is gone and the piece is freed. */
static struct kv_item *kv_owner(struct kv *kv, struct kv_item *piece, __u64 *offset, int *error)
{
	__u64 of = kv_load(&piece->version) & KV_OFFSET_MASK;
	struct kv_item *owner = kv_item_at(kv, of, error);

	if (!owner && *error == RMEM_AGAIN)
		return NULL;
	*error = 0;
	if (owner && kv_load(&owner->version) && !kv_is_piece(owner)) {
		*offset = of;
		return owner;
	}
	kv_free_one(kv, *offset, piece);
	return NULL;
}

/*
 * Frees the item of the class, if it isn't needed. all: seen or not, but for one that a client writes
 * to. Without an error, one of the verdicts.
 */
static int kv_judge(struct kv *kv, __u64 offset, __u32 class, bool all, bool evict)
{
	int error = 0;
	struct kv_item *item = kv_item_at(kv, offset, &error);

	if (!item)
		return error;
	if (!kv_load(&item->version)) {
		item->size_class = (__u8)class;
		kv_free_one(kv, offset, item);
		return KV_FREED;
	}
	if (kv_is_piece(item)) {
		item = kv_owner(kv, item, &offset, &error);
		if (!item)
			return error ? error : KV_FREED;
	}
	if (!kv_is_live(item)) {
		if ((__s32)(kv->now_s - le32_to_cpu(item->expiry_s)) <= (__s32)KV_STAGE_S)
			return all ? KV_WAIT : KV_PASS;
		kv_free(kv, offset, item);
		return KV_FREED;
	}
	if (kv_is_dead(le64_to_cpu(kv->table->flushed), kv->now_s, item)) {
		error = kv_unlink(kv, offset, item, &kv->table->reclaimed);
		return error ? error : KV_FREED;
	}
	if (!evict || (item->seen && !all)) {
		item->seen = 0;
		return KV_PASS;
	}
	error = kv_unlink(kv, offset, item, &kv->table->evicted);
	return error ? error : KV_FREED;
}

/* The class with the most slabs, of two at least. KV_CLASSES: none. */
static __u32 kv_richest(const struct kv *kv)
{
	__u32 n, best = KV_CLASSES, most = 1;

	for (n = 0; n < KV_CLASSES; n++) {
		if (le32_to_cpu(kv->table->class[n].slabs) > most) {
			most = le32_to_cpu(kv->table->class[n].slabs);
			best = n;
		}
	}
	return best;
}

/* Takes the slab behind the hand out of the richest class. All its free items are lost to the list. */
static int kv_steal_begin(struct kv *kv)
{
	__u32 which = kv_richest(kv), number;
	struct kv_class *class = &kv->table->class[which];
	struct kv_ring *hand, *ring;

	if (which == KV_CLASSES)
		return -ENOSPC;
	hand = kv_ring_at(kv, le32_to_cpu(class->hand_slab) - 1);
	if (!hand)
		return -EUCLEAN;
	number = le32_to_cpu(hand->next);
	ring = kv_ring_at(kv, number);
	if (!ring || ring == hand)
		return -EUCLEAN;
	hand->next = ring->next;
	class->slabs = cpu_to_le32(le32_to_cpu(class->slabs) - 1);
	class->free = 0;
	/* Its rest isn't used; a list of lost items has those of the slab before, too. */
	if (le32_to_cpu(class->fresh_slab) == number + 1)
		class->fresh_slab = 0;
	kv->table->leaving = cpu_to_le32(number + 1);
	kv->table->leaving_item = 0;
	return RMEM_AGAIN;
}

/* A client writes to a staged item of the slab that leaves, so it goes back. */
static int kv_steal_back(struct kv *kv, __u32 number, __u32 which)
{
	struct kv_class *class = &kv->table->class[which];
	__le32 fresh_slab = class->fresh_slab, fresh_item = class->fresh_item;
	int error = kv_add_slab(kv, number, which);

	class->fresh_slab = fresh_slab;
	class->fresh_item = fresh_item;
	kv->table->leaving = 0;
	return error ? error : -ENOSPC;
}

/* Clears some of the slab's bytes: all items of another class in it are free. */
static int kv_steal_clear(struct kv *kv, __u32 number, __u32 part)
{
	__u64 offset = kv_item_offset(kv, number, 0, 0) + (__u64)part * KV_SLICE_BYTES;
	void *at = rmem_at(kv->call, kv->at + offset, KV_SLICE_BYTES);

	if (!at)
		return rmem_error(kv->call);
	memset(at, 0, KV_SLICE_BYTES);
	return 0;
}

/* Some items of the slab that leaves go, then its bytes are cleared; then it is the class's. */
static int kv_steal(struct kv *kv, __u32 for_class)
{
	__u32 number = le32_to_cpu(kv->table->leaving) - 1, n, next, which, items;
	struct kv_ring *ring;
	int verdict;

	if (!kv->table->leaving)
		return kv_steal_begin(kv);
	ring = kv_ring_at(kv, number);
	which = ring ? le32_to_cpu(ring->class) : KV_CLASSES;
	if (which >= KV_CLASSES) {
		kv->table->leaving = 0;
		return -EUCLEAN;
	}
	items = kv_class_items(which);
	next = le32_to_cpu(kv->table->leaving_item);
	for (n = 0; n < KV_SCAN_STEP && next < items + KV_SLAB_BYTES / KV_SLICE_BYTES; n++, next++) {
		if (next < items)
			verdict = kv_judge(kv, kv_item_offset(kv, number, which, next), which, true,
					   true);
		else
			verdict = kv_steal_clear(kv, number, next - items);
		if (next < items && verdict == KV_WAIT)
			return kv_steal_back(kv, number, which);
		if (verdict < 0)
			return verdict;
	}
	kv->table->leaving_item = cpu_to_le32(next);
	if (next < items + KV_SLAB_BYTES / KV_SLICE_BYTES)
		return RMEM_AGAIN;
	kv->table->leaving = 0;
	verdict = kv_add_slab(kv, number, for_class);
	return verdict ? verdict : RMEM_AGAIN;
}

static int kv_turn_hand(struct kv *kv, struct kv_class *class, __u32 *slab)
{
	struct kv_ring *ring = kv_ring_at(kv, *slab);

	if (!ring)
		return -EUCLEAN;
	*slab = le32_to_cpu(ring->next);
	class->hand_slab = cpu_to_le32(*slab + 1);
	class->hand_item = 0;
	return 0;
}

/* Items of the slab that the hand can look at: not those that were never used. */
static __u32 kv_hand_end(const struct kv_class *class, __u32 which, __u32 slab)
{
	__u32 items = kv_class_items(which), fresh = le32_to_cpu(class->fresh_item);

	return le32_to_cpu(class->fresh_slab) == slab + 1 && fresh < items ? fresh : items;
}

/*
 * Turns the class's hand until an item was freed (CLOCK: an item that was seen since the last round
 * stays). RMEM_AGAIN: look for a free item again. -ENOSPC: there is no memory.
 */
static int kv_make_room(struct kv *kv, struct kv_work *work, __u32 which)
{
	struct kv_class *class = &kv->table->class[which];
	bool cache = le32_to_cpu(kv->table->options) & KV_CACHE;
	__u32 slab = le32_to_cpu(class->hand_slab) - 1, n;

	if (!class->hand_slab)
		return cache ? kv_steal(kv, which) : -ENOSPC;
	/* Clients use all items that the hand of a cache passed: another class gives a slab. */
	if (work->scanned >= (cache ? 2 * KV_SCAN_CACHE : KV_SCAN_STORE))
		return cache ? kv_steal(kv, which) : -ENOSPC;
	for (n = 0; n < KV_SCAN_STEP; n++) {
		__u32 item = le32_to_cpu(class->hand_item);
		int verdict;

		work->scanned++;
		if (item >= kv_hand_end(class, which, slab)) {
			int error = kv_turn_hand(kv, class, &slab);

			if (error)
				return error;
			continue;
		}
		verdict = kv_judge(kv, kv_item_offset(kv, slab, which, item), which,
				   work->scanned > KV_SCAN_CACHE, cache);
		if (verdict < 0)
			return verdict;
		class->hand_item = cpu_to_le32(item + 1);
		if (verdict == KV_FREED)
			return RMEM_AGAIN;
	}
	return RMEM_AGAIN;
}

/* ---- allocation ----------------------------------------------------------------------------- */

/* The smallest class of so many bytes. KV_CLASSES: none is. */
static __u32 kv_class_for(__u32 bytes)
{
	__u32 n;

	for (n = 0; n < KV_CLASSES && kv_class_bytes[n] < bytes; n++) {
	}
	return n;
}

static struct kv_item *kv_alloc_fresh(struct kv *kv, __u32 which, __u64 *offset, int *error)
{
	struct kv_class *class = &kv->table->class[which];
	__u32 used = le32_to_cpu(kv->table->slabs_used), item = kv_load_32(&class->fresh_item);
	__u32 slab = kv_load_32(&class->fresh_slab);
	void *at;

	if (!slab || item >= kv_class_items(which)) {
		if (used >= le32_to_cpu(kv->table->slabs))
			return kv_fails(error, -ENOSPC);
		*error = kv_add_slab(kv, used, which);
		if (*error)
			return NULL;
		kv->table->slabs_used = cpu_to_le32(used + 1);
		slab = used + 1;
		item = 0;
	}
	*offset = kv_item_offset(kv, slab - 1, which, item);
	at = kv_item_at(kv, *offset, error);
	if (at)
		class->fresh_item = cpu_to_le32(item + 1);
	return at;
}

/* Is a slice at the offset as long as one of the class's items has to be? */
static bool kv_has_room(__u64 offset, __u32 which)
{
	__u32 bytes = kv_class_bytes[which];

	return kv_slice_bytes(offset) >= (bytes < KV_SLICE_BYTES ? bytes : KV_SLICE_BYTES);
}

/*
 * Takes an item of the class. NULL: *error; RMEM_AGAIN: the step ends, and the call begins anew;
 * -ENOSPC: there is no memory.
 */
static struct kv_item *kv_alloc(struct kv *kv, struct kv_work *work, __u32 which, __u64 *offset,
				int *error)
{
	struct kv_class *class;
	struct kv_item *item;

	if (which >= KV_CLASSES)
		return kv_fails(error, -EUCLEAN);
	class = &kv->table->class[which];
	*offset = kv_load(&class->free);
	if (*offset) {
		item = kv_item_at(kv, *offset, error);
		if (item) {
			class->free = cpu_to_le64(kv_free_next(item));
			/* Damaged, if it is in use, or its class's items don't fit there. */
			if (kv_load(&item->version) || !kv_has_room(*offset, which)) {
				class->free = 0;
				return kv_fails(error, -EUCLEAN);
			}
		} else if (*error != RMEM_AGAIN) {
			class->free = 0;
		}
	} else {
		item = kv_alloc_fresh(kv, which, offset, error);
		if (item && !kv_has_room(*offset, which))
			return kv_fails(error, -EUCLEAN);
		if (!item && *error == -ENOSPC && which != KV_OVERFLOW_CLASS)
			*error = kv_make_room(kv, work, which);
	}
	if (item)
		item->size_class = (__u8)which;
	return item;
}

/* Adds an empty bucket to the chain; in a full cache one of the chain's items goes. */
static int kv_extend(struct kv *kv, const struct kv_place *place)
{
	struct kv_bucket *last = place->last, *more;
	struct kv_item *item;
	__u64 offset;
	int error = 0;

	/* A longer chain couldn't be searched. */
	more = place->hops + 1 < KV_CHAIN_MAX ?
		       (struct kv_bucket *)kv_alloc_fresh(kv, KV_OVERFLOW_CLASS, &offset, &error) :
		       kv_fails(&error, -ENOSPC);
	if (more) {
		memset(more, 0, sizeof(*more));
		kv_store(&last->link, (kv_load(&last->link) & ~KV_OFFSET_MASK) | offset);
		return RMEM_AGAIN;
	}
	if (error != -ENOSPC || !(le32_to_cpu(kv->table->options) & KV_CACHE))
		return error;
	offset = kv_load(&last->slot[le64_to_cpu(kv->table->version) % KV_SLOTS]) & KV_OFFSET_MASK;
	item = kv_item_at(kv, offset, &error);
	if (item)
		error = kv_unlink(kv, offset, item, &kv->table->evicted);
	return error ? error : RMEM_AGAIN;
}

/* ---- changes -------------------------------------------------------------------------------- */

static int kv_answer(struct rmem_call *call, enum kv_status status, __u64 version, __u64 number)
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
static int kv_ends(struct rmem_call *call, int error)
{
	return error == -ENOSPC ? kv_answer(call, KV_NO_MEMORY, 0, 0) : error;
}

/* An item to be made, of a value in up to two parts. */
struct kv_new {
	const __u8 *key;
	const void *part[2];
	__u32 part_bytes[2];
	__u32 key_bytes, flags, expiry_s;
};

static int kv_fill(struct kv *kv, __u64 offset, struct kv_item *item, const struct kv_new *new)
{
	__u32 room = kv_slice_bytes(offset), at = KV_ITEM_BYTES + new->key_bytes, n;

	memcpy(item + 1, new->key, new->key_bytes);
	for (n = 0; n < 2; n++) {
		__u32 here = at < room ? room - at : 0;

		if (here > new->part_bytes[n])
			here = new->part_bytes[n];
		if (here)
			memcpy((__u8 *)item + at, new->part[n], here);
		if (here < new->part_bytes[n]) {
			int error = rmem_write(kv->call, kv->at + offset + at + here,
					       (const __u8 *)new->part[n] + here,
					       new->part_bytes[n] - here);

			if (error)
				return error;
		}
		at += new->part_bytes[n];
	}
	item->flags = cpu_to_le32(new->flags);
	item->expiry_s = cpu_to_le32(new->expiry_s);
	item->value_bytes = cpu_to_le32(new->part_bytes[0] + new->part_bytes[1]);
	item->key_bytes = (__u8)new->key_bytes;
	item->seen = 0;
	item->reserved = 0;
	return 0;
}

/* Publishes the filled item in the place, and frees the one that was there. */
static void kv_publish(struct kv *kv, const struct kv_place *place, __u64 hash, __u64 offset,
		       struct kv_item *item, __u64 version)
{
	kv_store(&item->version, version);
	kv_set_slot(place->bucket, place->slot, (hash >> 48) << 48 | offset);
	kv_count(&kv->table->item_bytes, (__s64)kv_bytes_of(item));
	if (place->item) {
		kv_count(&kv->table->item_bytes, -(__s64)kv_bytes_of(place->at));
		kv_free(kv, place->item, place->at);
	} else {
		kv_count(&kv->table->items, 1);
	}
}

/* Stores a new item in the place. Ends the call, or RMEM_AGAIN. number is for the answer. */
static int kv_replace(struct kv *kv, struct kv_work *work, const struct kv_place *place,
		      __u64 hash, const struct kv_new *new, __u64 number)
{
	__u32 bytes = KV_ITEM_BYTES + new->key_bytes + new->part_bytes[0] + new->part_bytes[1];
	struct kv_item *item;
	__u64 offset, version;
	int error = 0;

	if (!place->bucket)
		return kv_ends(kv->call, kv_extend(kv, place));
	item = kv_alloc(kv, work, kv_class_for(bytes), &offset, &error);
	if (!item)
		return kv_ends(kv->call, error);
	error = kv_fill(kv, offset, item, new);
	if (error) {
		kv_free_one(kv, offset, item);
		return error;
	}
	version = kv_next_version(kv);
	kv_publish(kv, place, hash, offset, item, version);
	return kv_answer(kv->call, KV_OK, version, number);
}

/* The key's item, unless it is dead. */
static struct kv_item *kv_current(const struct kv *kv, const struct kv_place *place)
{
	if (!place->item || kv_is_dead(le64_to_cpu(kv->table->flushed), kv->now_s, place->at))
		return NULL;
	return place->at;
}

/* KV_OK, or why the item can't be stored. */
static enum kv_status kv_permits(const struct kv_item *live, __u32 mode, __u64 version)
{
	if (version && !live)
		return KV_NOT_FOUND;
	if (version && kv_load(&live->version) != version)
		return KV_EXISTS;
	if (mode == KV_MODE_ADD ? !!live : mode != KV_MODE_SET && !live)
		return KV_NOT_STORED;
	return KV_OK;
}

static int kv_set(struct kv *kv, struct kv_work *work, const struct kv_args *args,
		  const struct kv_place *place, __u64 hash, const struct kv_item *live)
{
	const __u8 *key = (const __u8 *)(args + 1);
	struct kv_new new = { .key = key,
			      .part = { key + args->key_bytes, NULL },
			      .part_bytes = { le32_to_cpu(args->value_bytes), 0 },
			      .key_bytes = args->key_bytes,
			      .flags = le32_to_cpu(args->flags),
			      .expiry_s = le32_to_cpu(args->expiry_s) };
	enum kv_status status = kv_permits(live, args->mode, le64_to_cpu(args->version));

	if (args->mode > KV_MODE_PREPEND)
		return -EINVAL;
	if (status)
		return kv_answer(kv->call, status, 0, 0);
	if (args->mode >= KV_MODE_APPEND) {
		__u32 old = args->mode == KV_MODE_APPEND ? 0 : 1, bytes;

		if (!kv_value_in_slice(live, place->item, args->key_bytes, &bytes))
			return kv_answer(kv->call, KV_TOO_LARGE, 0, 0);
		new.part[!old] = new.part[0];
		new.part_bytes[!old] = new.part_bytes[0];
		new.part[old] = (const __u8 *)(live + 1) + args->key_bytes;
		new.part_bytes[old] = bytes;
		new.flags = le32_to_cpu(live->flags);
		new.expiry_s = le32_to_cpu(live->expiry_s);
	}
	return kv_replace(kv, work, place, hash, &new, new.part_bytes[0] + new.part_bytes[1]);
}

/* A decimal number, perhaps with a minus. False: it is none, or has more than 64 bits. */
static bool kv_parse(const __u8 *text, __u32 bytes, bool is_signed, __u64 *number)
{
	bool minus = is_signed && bytes && text[0] == '-';
	__u64 value = 0;
	__u32 n;

	while (bytes > 1 && text[bytes - 1] == ' ')
		bytes--;
	if (bytes == minus || bytes > KV_NUMBER_BYTES_MAX)
		return false;
	for (n = minus; n < bytes; n++) {
		__u32 digit = text[n] - '0';

		if (digit > 9 || __builtin_mul_overflow(value, 10ULL, &value) ||
		    __builtin_add_overflow(value, (__u64)digit, &value))
			return false;
	}
	if (is_signed && value > (~0ULL >> 1) + minus)
		return false;
	*number = minus ? 0 - value : value;
	return true;
}

static __u32 kv_print(__u8 text[KV_NUMBER_BYTES_MAX], __u64 number, bool is_signed)
{
	bool minus = is_signed && number >> 63;
	__u64 value = minus ? 0 - number : number, rest;
	__u32 bytes = 1 + minus, n;

	for (rest = value; rest >= 10; rest /= 10)
		bytes++;
	for (n = bytes; n > minus; n--, value /= 10)
		text[n - 1] = '0' + (__u8)(value % 10);
	if (minus)
		text[0] = '-';
	return bytes;
}

static enum kv_status kv_sum(__u64 *number, __u64 by, __u32 mode)
{
	__s64 sum;

	switch (mode) {
	case KV_MODE_UP:
		*number += by;
		return KV_OK;
	case KV_MODE_DOWN:
		*number = *number > by ? *number - by : 0;
		return KV_OK;
	default:
		if (__builtin_add_overflow((__s64)*number, (__s64)by, &sum))
			return KV_OVERFLOW;
		*number = (__u64)sum;
		return KV_OK;
	}
}

static int kv_add(struct kv *kv, struct kv_work *work, const struct kv_args *args,
		  const struct kv_place *place, __u64 hash, const struct kv_item *live)
{
	const __u8 *key = (const __u8 *)(args + 1);
	bool is_signed = args->mode == KV_MODE_SIGNED;
	enum kv_status status = KV_OK;
	__u8 text[KV_NUMBER_BYTES_MAX];
	struct kv_new new = { .key = key,
			      .part = { text, NULL },
			      .key_bytes = args->key_bytes,
			      .expiry_s = le32_to_cpu(args->expiry_s) };
	__u64 number;

	if (args->mode > KV_MODE_SIGNED || (args->value_bytes && le32_to_cpu(args->value_bytes) != 8))
		return -EINVAL;
	if (le64_to_cpu(args->version))
		status = kv_permits(live, KV_MODE_SET, le64_to_cpu(args->version));
	else if (!live && !args->value_bytes)
		status = KV_NOT_FOUND;
	if (status)
		return kv_answer(kv->call, status, 0, 0);
	if (live) {
		const __u8 *value = (const __u8 *)(live + 1) + args->key_bytes;
		__u32 bytes;

		if (!kv_value_in_slice(live, place->item, args->key_bytes, &bytes) ||
		    !kv_parse(value, bytes, is_signed, &number))
			return kv_answer(kv->call, KV_NOT_A_NUMBER, 0, 0);
		status = kv_sum(&number, le64_to_cpu(args->number), args->mode);
		if (status)
			return kv_answer(kv->call, status, 0, 0);
		new.flags = le32_to_cpu(live->flags);
		new.expiry_s = le32_to_cpu(live->expiry_s);
	} else {
		__le64 first;

		memcpy(&first, key + args->key_bytes, sizeof(first));
		number = le64_to_cpu(first);
	}
	new.part_bytes[0] = kv_print(text, number, is_signed);
	return kv_replace(kv, work, place, hash, &new, number);
}

static int kv_delete(struct kv *kv, const struct kv_args *args, const struct kv_place *place,
		     const struct kv_item *live)
{
	if (live && args->version && kv_load(&live->version) != le64_to_cpu(args->version))
		return kv_answer(kv->call, KV_EXISTS, 0, 0);
	if (place->item) {
		kv_set_slot(place->bucket, place->slot, 0);
		kv_count(&kv->table->items, -1);
		kv_count(&kv->table->item_bytes, -(__s64)kv_bytes_of(place->at));
		kv_free(kv, place->item, place->at);
	}
	return kv_answer(kv->call, live ? KV_OK : KV_NOT_FOUND, 0, 0);
}

static int kv_touch(struct kv *kv, const struct kv_args *args, struct kv_item *live)
{
	if (!live)
		return kv_answer(kv->call, KV_NOT_FOUND, 0, 0);
	__atomic_store_n(&live->expiry_s, args->expiry_s, __ATOMIC_RELAXED);
	live->seen = 1;
	return kv_answer(kv->call, KV_OK, kv_load(&live->version), 0);
}

/* The functions on a key. */
static int kv_change(struct kv *kv, const struct kv_args *args, __u64 hash)
{
	struct kv_work *work = rmem_scratch(kv->call, sizeof(*work));
	struct kv_item *live;
	struct kv_place place;
	int error = kv_search(kv, hash, (const __u8 *)(args + 1), args->key_bytes, &place);

	if (error)
		return error;
	live = kv_current(kv, &place);
	switch (rmem_function(kv->call)) {
	case KV_SET:
		return kv_set(kv, work, args, &place, hash, live);
	case KV_ADD:
		return kv_add(kv, work, args, &place, hash, live);
	case KV_DELETE:
		return kv_delete(kv, args, &place, live);
	default:
		return kv_touch(kv, args, live);
	}
}

/* ---- large values --------------------------------------------------------------------------- */

/* A staged item without its pieces. */
static int kv_stage_begin(struct kv *kv, struct kv_work *work, const struct kv_args *args)
{
	__u32 value_bytes = le32_to_cpu(args->value_bytes), bytes;
	struct kv_new new = { .key = (const __u8 *)(args + 1),
			      .key_bytes = args->key_bytes,
			      .expiry_s = kv->now_s };
	struct kv_item *item;
	__u64 offset;
	int error = 0;

	if (value_bytes > KV_VALUE_BYTES_MAX)
		return kv_answer(kv->call, KV_TOO_LARGE, 0, 0);
	bytes = KV_IN_ONE(args->key_bytes, value_bytes) ?
			KV_ITEM_BYTES + args->key_bytes + value_bytes :
			KV_PIECES_AT(args->key_bytes) + KV_PIECES(value_bytes) * (__u32)sizeof(__le64);
	item = kv_alloc(kv, work, kv_class_for(bytes), &offset, &error);
	if (!item)
		return kv_ends(kv->call, error);
	error = kv_fill(kv, offset, item, &new);
	if (error) {
		kv_free_one(kv, offset, item);
		return error;
	}
	item->value_bytes = cpu_to_le32(value_bytes);
	if (!KV_IN_ONE(args->key_bytes, value_bytes))
		memset((__u8 *)item + KV_PIECES_AT(args->key_bytes), 0,
		       KV_PIECES(value_bytes) * sizeof(__le64));
	work->version = kv_next_version(kv);
	kv_store(&item->version, KV_STAGED | work->version);
	work->staged = offset;
	return RMEM_AGAIN;
}

/* A piece a step, then the answer. The lease keeps the item from the hand meanwhile. */
static int kv_stage(struct kv *kv, const struct kv_args *args)
{
	struct kv_work *work = rmem_scratch(kv->call, sizeof(*work));
	__u32 value_bytes = le32_to_cpu(args->value_bytes);
	struct kv_item *item, *piece;
	__u64 offset;
	int error = 0;
	__le64 *list;

	if (!work->staged)
		return kv_stage_begin(kv, work, args);
	item = kv_item_at(kv, work->staged, &error);
	if (!item)
		return error;
	/* Its lease has ended, and it is another's. */
	if (kv_load(&item->version) != (KV_STAGED | work->version))
		return kv_answer(kv->call, KV_NOT_FOUND, 0, 0);
	if (KV_IN_ONE(args->key_bytes, value_bytes) || work->pieces == KV_PIECES(value_bytes))
		return kv_answer(kv->call, KV_OK, work->version, kv->at + work->staged);
	piece = kv_alloc(kv, work, KV_CLASSES - 1, &offset, &error);
	if (!piece) {
		if (error == -ENOSPC)
			kv_free(kv, work->staged, item);
		return kv_ends(kv->call, error);
	}
	kv_store(&piece->version, KV_CHUNK | work->staged);
	list = (__le64 *)((__u8 *)item + KV_PIECES_AT(args->key_bytes));
	list[work->pieces++] = cpu_to_le64(kv->at + offset);
	return RMEM_AGAIN;
}

static int kv_publish_staged(struct kv *kv, const struct kv_args *args)
{
	__u64 offset = le64_to_cpu(args->number) - kv->at, hash, version;
	__u32 key_bytes;
	struct kv_item *item;
	enum kv_status status;
	struct kv_place place;
	__le64 told;
	int error = 0;

	if (args->key_bytes || le32_to_cpu(args->value_bytes) != sizeof(told) ||
	    args->mode > KV_MODE_REPLACE)
		return -EINVAL;
	item = kv_item_at(kv, offset, &error);
	if (!item)
		return error;
	memcpy(&told, args + 1, sizeof(told));
	if (kv_load(&item->version) != (KV_STAGED | le64_to_cpu(told)))
		return kv_answer(kv->call, KV_NOT_FOUND, 0, 0);
	if (!kv_is_item_start(kv, offset) ||
	    kv_load_32(&item->value_bytes) > KV_VALUE_BYTES_MAX)
		return -EUCLEAN;
	key_bytes = kv_load_8(&item->key_bytes);
	if (!key_bytes || KV_ITEM_BYTES + key_bytes > kv_slice_bytes(offset))
		return -EUCLEAN;
	hash = kv_hash(le64_to_cpu(kv->table->seed[0]), le64_to_cpu(kv->table->seed[1]),
		       (const __u8 *)(item + 1), key_bytes);
	error = kv_search(kv, hash, (const __u8 *)(item + 1), key_bytes, &place);
	if (error)
		return error;
	status = kv_permits(kv_current(kv, &place), args->mode, le64_to_cpu(args->version));
	if (status) {
		kv_free(kv, offset, item);
		return kv_answer(kv->call, status, 0, 0);
	}
	if (!place.bucket)
		return kv_ends(kv->call, kv_extend(kv, &place));
	version = kv_next_version(kv);
	item->flags = args->flags;
	item->expiry_s = args->expiry_s;
	kv_publish(kv, &place, hash, offset, item, version);
	return kv_answer(kv->call, KV_OK, version, 0);
}

/* ---- other CALLs ---------------------------------------------------------------------------- */

static int kv_format(struct rmem_call *call)
{
	const struct kv_format_args *args = rmem_args(call, sizeof(*args));
	__u64 at, bytes, buckets_end, slabs_at, slabs;
	struct kv_table *table;

	if (!args || rmem_args_bytes(call) != sizeof(*args))
		return -EINVAL;
	at = le64_to_cpu(args->table);
	bytes = le64_to_cpu(args->bytes);
	buckets_end = KV_HEADER_BYTES + (__u64)le32_to_cpu(args->buckets) * sizeof(struct kv_bucket);
	if (!at || at % KV_TABLE_ALIGN || !args->buckets || bytes > KV_OFFSET_MASK ||
	    bytes < buckets_end + 2 * KV_SLAB_BYTES ||
	    (bytes - buckets_end) >> KV_SLAB_SHIFT > 0xffffffffU ||
	    le32_to_cpu(args->options) & ~KV_CACHE)
		return -EINVAL;
	slabs = (bytes - buckets_end) >> KV_SLAB_SHIFT;
	slabs_at = (buckets_end + slabs * sizeof(struct kv_ring) + KV_SLAB_BYTES - 1) &
		   ~(__u64)(KV_SLAB_BYTES - 1);
	slabs = slabs_at < bytes ? (bytes - slabs_at) >> KV_SLAB_SHIFT : 0;
	if (!slabs)
		return -EINVAL;
	table = rmem_at(call, at, sizeof(*table));
	if (!table)
		return rmem_error(call);
	if (kv_load(&table->magic))
		return kv_answer(call, KV_EXISTS, 0, 0);
	memset(table, 0, sizeof(*table));
	table->bytes = args->bytes;
	table->seed[0] = args->seed[0];
	table->seed[1] = args->seed[1];
	table->slabs_at = cpu_to_le64(slabs_at);
	table->rings_at = cpu_to_le64(buckets_end);
	table->buckets = args->buckets;
	table->slabs = cpu_to_le32((__u32)slabs);
	table->options = args->options;
	kv_store(&table->magic, KV_MAGIC);
	return kv_answer(call, KV_OK, 0, 0);
}

static int kv_used(struct rmem_call *call)
{
	const struct kv_used_args *args = rmem_args(call, sizeof(*args));
	struct kv_work *work = rmem_scratch(call, sizeof(*work));
	const __le64 *list;
	struct kv kv;
	__u32 count, n;
	int error;

	if (!args)
		return -EINVAL;
	count = le32_to_cpu(args->count);
	if (!count || count > KV_USED_MAX || args->reserved ||
	    rmem_args_bytes(call) != sizeof(*args) + count * sizeof(*list))
		return -EINVAL;
	list = (const __le64 *)((const __u8 *)rmem_args(call, rmem_args_bytes(call)) + sizeof(*args));
	error = kv_open(&kv, call, args->table, 0, true);
	if (error)
		return error;
	if (!work->scanned) {
		work->scanned = 1;
		for (n = 0; n < count; n++)
			rmem_prefetch(call, le64_to_cpu(list[n]));
		return RMEM_AGAIN;
	}
	for (n = 0; n < KV_SCAN_STEP && work->next < count; n++, work->next++) {
		__u64 offset = le64_to_cpu(list[work->next]) - kv.at;
		struct kv_item *item;

		/* The slab might have another class since the client saw the item. */
		if (!kv_is_item_start(&kv, offset))
			continue;
		item = kv_item_at(&kv, offset, &error);
		if (item && kv_is_live(item))
			item->seen = 1;
	}
	return work->next < count ? RMEM_AGAIN : kv_answer(call, KV_OK, 0, 0);
}

/* The item at the offset of the arguments. False: it isn't whole, or its key is none. */
static bool kv_sets_item(struct rmem_call *call, __u32 at, struct kv_new *new, __u32 *end)
{
	const __u8 *bytes = rmem_args(call, rmem_args_bytes(call));
	struct kv_sets_item item;

	if (at + sizeof(item) > rmem_args_bytes(call))
		return false;
	memcpy(&item, bytes + at, sizeof(item));
	memset(new, 0, sizeof(*new));
	new->key = bytes + at + sizeof(item);
	new->key_bytes = item.key_bytes;
	new->part[0] = new->key + item.key_bytes;
	new->part_bytes[0] = le16_to_cpu(item.value_bytes);
	new->flags = le32_to_cpu(item.flags);
	new->expiry_s = le32_to_cpu(item.expiry_s);
	*end = at + sizeof(item) + item.key_bytes + new->part_bytes[0];
	return *end <= rmem_args_bytes(call) && item.key_bytes &&
	       item.key_bytes <= KV_KEY_BYTES_MAX;
}

static __u64 kv_hash_of(const struct kv *kv, const __u8 *key, __u32 bytes)
{
	return kv_hash(le64_to_cpu(kv->table->seed[0]), le64_to_cpu(kv->table->seed[1]), key,
		       bytes);
}

static bool kv_sets_are_whole(struct rmem_call *call, __u32 count)
{
	__u32 at = sizeof(struct kv_sets_args);
	struct kv_new new;

	while (count && kv_sets_item(call, at, &new, &at))
		count--;
	return !count && at == rmem_args_bytes(call);
}

/* An item a step. */
static int kv_sets(struct rmem_call *call)
{
	const struct kv_sets_args *args = rmem_args(call, sizeof(*args));
	struct kv_work *work = rmem_scratch(call, sizeof(*work));
	struct kv_result *result;
	struct kv_place place;
	struct kv_new new;
	struct kv kv;
	__u32 end;
	__u64 hash;
	int error;

	if (!args || !args->count || args->count > 64)
		return -EINVAL;
	error = kv_open(&kv, call, args->table, le32_to_cpu(args->now_s), true);
	if (error)
		return error;
	if (!work->at) {
		if (!kv_sets_are_whole(call, args->count))
			return -EINVAL;
		work->at = sizeof(*args);
	}
	if (!kv_sets_item(call, work->at, &new, &end))
		return -EINVAL;
	hash = kv_hash_of(&kv, new.key, new.key_bytes);
	error = kv_search(&kv, hash, new.key, new.key_bytes, &place);
	if (!error)
		error = kv_replace(&kv, work, &place, hash, &new, 0);
	/* The client learns which items were stored before. */
	if (error && error != RMEM_AGAIN && work->stored)
		return kv_answer(call, KV_OK, 0, work->stored);
	if (error)
		return error;
	result = rmem_result(call, sizeof(*result));
	if (le16_to_cpu(result->status) == KV_OK)
		work->stored |= 1ULL << work->next;
	work->scanned = 0;
	work->at = end;
	if (++work->next == args->count)
		return kv_answer(call, KV_OK, 0, work->stored);
	if (!kv_sets_item(call, work->at, &new, &end))
		return -EINVAL;
	rmem_prefetch(call, kv.at + kv_bucket_of(&kv, kv_hash_of(&kv, new.key, new.key_bytes)));
	return RMEM_AGAIN;
}

static int kv_flush(struct kv *kv)
{
	kv_store(&kv->table->flushed, kv_next_version(kv));
	return kv_answer(kv->call, KV_OK, 0, 0);
}

static bool kv_is_keyed(__u32 function)
{
	return function == KV_SET || function == KV_DELETE || function == KV_ADD ||
	       function == KV_TOUCH || function == KV_STAGE;
}

static int kv_call(struct rmem_call *call)
{
	const struct kv_args *args = rmem_args(call, sizeof(*args));
	__u32 function = rmem_function(call), bytes;
	struct kv kv;
	int error;

	if (!args)
		return -EINVAL;
	bytes = sizeof(*args) + args->key_bytes;
	if (function == KV_SET || function == KV_ADD || function == KV_PUBLISH) {
		if (le32_to_cpu(args->value_bytes) > rmem_args_bytes(call))
			return -EINVAL;
		bytes += le32_to_cpu(args->value_bytes);
	}
	if (rmem_args_bytes(call) != bytes || args->key_bytes > KV_KEY_BYTES_MAX ||
	    !args->key_bytes == kv_is_keyed(function))
		return -EINVAL;
	args = rmem_args(call, bytes);
	error = kv_open(&kv, call, args->table, le32_to_cpu(args->now_s), true);
	if (error)
		return error;
	switch (function) {
	case KV_FLUSH:
		return kv_flush(&kv);
	case KV_STAGE:
		return kv_stage(&kv, args);
	case KV_PUBLISH:
		return kv_publish_staged(&kv, args);
	default:
		return kv_change(&kv, args,
				 kv_hash(le64_to_cpu(kv.table->seed[0]), le64_to_cpu(kv.table->seed[1]),
					 (const __u8 *)(args + 1), args->key_bytes));
	}
}

static int kv_stats(struct rmem_call *call)
{
	const struct kv_args *args = rmem_args(call, sizeof(*args));
	struct kv_stats *stats;
	struct kv kv;
	int error;

	if (!args || rmem_args_bytes(call) != sizeof(*args))
		return -EINVAL;
	error = kv_open(&kv, call, args->table, 0, false);
	if (error)
		return error;
	stats = rmem_result(call, sizeof(*stats));
	if (!stats)
		return rmem_error(call);
	stats->bytes = kv.table->bytes;
	stats->items = kv.table->items;
	stats->item_bytes = kv.table->item_bytes;
	stats->evicted = kv.table->evicted;
	stats->reclaimed = kv.table->reclaimed;
	stats->version = kv.table->version;
	stats->buckets = kv.table->buckets;
	stats->overflow_slabs = kv.table->class[KV_OVERFLOW_CLASS].slabs;
	stats->slabs = kv.table->slabs;
	stats->slabs_used = kv.table->slabs_used;
	stats->options = kv.table->options;
	return 0;
}

/* ---- GET ------------------------------------------------------------------------------------ */

/* A key that is looked up. One access a step, which the step before has prefetched. */
struct kv_lane {
	__u64 item : 48; /* offset of the item to look at; 0: look at the bucket */
	__u64 key_at : 10; /* of the key in the arguments, behind its length */
	__u64 key : 6;	   /* its number */
	__u32 bucket;	   /* its offset / 64 */
	__u16 tag;
	__u16 slot : 3; /* from which on to look */
	__u16 hops : 6;
	__u16 busy : 1;
};

/* From step to step. The keys are looked up KV_LANES at a time. */
struct kv_get {
	__u64 seed[2];
	__u64 flushed;
	__u32 buckets;
	__u16 next_at;	  /* of the next key in the arguments */
	__u8 next, begun; /* its number */
	__u32 bytes;	  /* of the result */
	__u32 slabs;
	__u64 slabs_at;
	struct kv_lane lane[KV_LANES];
};

_Static_assert(sizeof(struct kv_get) <= RMEM_SCRATCH_BYTES_MAX, "scratch");
_Static_assert(KV_CHAIN_MAX < 64, "kv_lane.hops");

/* Are there so many keys, and nothing else? */
static bool kv_get_is_sound(const struct kv_get_args *args, __u32 args_bytes)
{
	const __u8 *bytes = (const __u8 *)args;
	__u32 at = sizeof(*args), n;

	if (!args->count || args->count > KV_KEYS_MAX)
		return false;
	for (n = 0; n < args->count && at < args_bytes; n++) {
		if (!bytes[at] || bytes[at] > KV_KEY_BYTES_MAX)
			return false;
		at += 1 + bytes[at];
	}
	return n == args->count && at == args_bytes;
}

static int kv_get_begin(struct rmem_call *call, const struct kv_get_args *args, struct kv_get *get)
{
	struct kv kv;
	int error = kv_open(&kv, call, args->table, 0, false);

	if (error)
		return error;
	if (!kv_get_is_sound(args, rmem_args_bytes(call)))
		return -EINVAL;
	get->seed[0] = le64_to_cpu(kv.table->seed[0]);
	get->seed[1] = le64_to_cpu(kv.table->seed[1]);
	get->flushed = kv_load(&kv.table->flushed);
	get->buckets = le32_to_cpu(kv.table->buckets);
	get->slabs = le32_to_cpu(kv.table->slabs);
	get->slabs_at = le64_to_cpu(kv.table->slabs_at);
	get->next_at = sizeof(*args);
	get->bytes = sizeof(struct kv_get_result);
	get->begun = 1;
	return rmem_result(call, get->bytes) ? 0 : rmem_error(call);
}

/* The next key takes the lane. */
static void kv_get_start(struct rmem_call *call, const struct kv_get_args *args, struct kv_get *get,
			 struct kv_lane *lane)
{
	const __u8 *key = (const __u8 *)args + get->next_at;
	__u64 hash = kv_hash(get->seed[0], get->seed[1], key + 1, key[0]);

	lane->item = 0;
	lane->bucket = (__u32)(KV_HEADER_BYTES / sizeof(struct kv_bucket) +
			       kv_bucket_number(hash, get->buckets));
	lane->tag = (__u16)(hash >> 48);
	lane->key = get->next++;
	lane->key_at = get->next_at + 1;
	lane->slot = 0;
	lane->hops = 0;
	lane->busy = 1;
	get->next_at += 1 + key[0];
	rmem_prefetch(call, le64_to_cpu(args->table) + (__u64)lane->bucket * sizeof(struct kv_bucket));
}

static void kv_get_end(struct rmem_call *call, const struct kv_get *get, struct kv_lane *lane)
{
	struct kv_get_result *result = rmem_result(call, get->bytes);

	result->answered |= cpu_to_le64(1ULL << lane->key);
	lane->busy = 0;
}

static bool kv_get_is_item(const struct kv_get *get, __u64 offset)
{
	return offset >= get->slabs_at && offset % KV_ALIGN == 0 && kv_fits_slab(offset) &&
	       (offset - get->slabs_at) >> KV_SLAB_SHIFT < get->slabs;
}

/* Looks for the tag in the lane's bucket, from its slot on; then in the next bucket. */
static int kv_get_bucket(struct rmem_call *call, __u64 at, const struct kv_get *get,
			 struct kv_lane *lane)
{
	const struct kv_bucket *bucket =
		rmem_look(call, at + (__u64)lane->bucket * sizeof(*bucket), sizeof(*bucket));
	__u64 link;
	__u32 n;

	if (!bucket)
		return rmem_error(call);
	for (n = lane->slot; n < KV_SLOTS; n++) {
		__u64 word = kv_load(&bucket->slot[n]);

		if (!word || word >> 48 != lane->tag || !kv_get_is_item(get, word & KV_OFFSET_MASK))
			continue;
		lane->slot = n;
		lane->item = word & KV_OFFSET_MASK;
		rmem_prefetch(call, at + lane->item);
		return 0;
	}
	link = kv_load(&bucket->link) & KV_OFFSET_MASK;
	if (!link || link % sizeof(*bucket) || !kv_get_is_item(get, link) ||
	    link / sizeof(*bucket) > 0xffffffffU) {
		kv_get_end(call, get, lane);
		return 0;
	}
	if (lane->hops++ == KV_CHAIN_MAX)
		return -EUCLEAN;
	lane->bucket = (__u32)(link / sizeof(*bucket));
	lane->slot = 0;
	rmem_prefetch(call, at + link);
	return 0;
}

/*
 * Adds the item to the result. -EMSGSIZE: there is no room for it. An item with a value that no
 * result has room for counts as one without.
 */
static int kv_get_emit(struct rmem_call *call, __u64 at, struct kv_get *get,
		       const struct kv_item *item, const struct kv_lane *lane)
{
	__u32 value_bytes = kv_load_32(&item->value_bytes), have, first;
	__u32 key_bytes = kv_load_8(&item->key_bytes), head = KV_ITEM_BYTES + key_bytes;
	struct kv_found *found;
	bool elsewhere = false;
	__u8 *result;

	result = rmem_result(call, get->bytes + sizeof(*found) + ((value_bytes + 7U) & ~7U));
	if (!result || value_bytes > KV_VALUE_BYTES_MAX) {
		/* Would it fit if it were alone? */
		if (get->bytes > sizeof(struct kv_get_result))
			return -EMSGSIZE;
		elsewhere = true;
		result = rmem_result(call, get->bytes + sizeof(*found));
		if (!result)
			return rmem_error(call);
	}
	found = (struct kv_found *)(result + get->bytes);
	found->version = item->version;
	found->item = cpu_to_le64(at + lane->item);
	found->flags = item->flags;
	found->expiry_s = item->expiry_s;
	found->value_bytes = cpu_to_le32(value_bytes);
	found->key = lane->key;
	found->elsewhere = elsewhere;
	found->seen = item->seen;
	found->key_bytes = (__u8)key_bytes;
	get->bytes += sizeof(*found);
	if (elsewhere)
		return 0;
	have = kv_slice_bytes(lane->item) > head ? kv_slice_bytes(lane->item) - head : 0;
	first = value_bytes < have ? value_bytes : have;
	memcpy(found + 1, (const __u8 *)item + head, first);
	get->bytes += (value_bytes + 7U) & ~7U;
	if (first == value_bytes)
		return 0;
	if (!KV_IN_ONE(key_bytes, value_bytes))
		return -EUCLEAN;
	return rmem_read(call, at + lane->item + head + first, (__u8 *)(found + 1) + first,
			 value_bytes - first);
}

/*
 * Looks at the lane's item. It might have been freed, and be another key's, since the step before
 * saw its slot. So if it isn't the key's, look at the slot again: unchanged, its tag is another
 * key's, and the search goes on behind it.
 */
static int kv_get_item(struct rmem_call *call, const struct kv_get_args *args, struct kv_get *get,
		       struct kv_lane *lane)
{
	const __u8 *key = (const __u8 *)args + lane->key_at;
	__u64 at = le64_to_cpu(args->table), word;
	const struct kv_item *item = rmem_look(call, at + lane->item, kv_slice_bytes(lane->item));
	const struct kv_bucket *bucket;
	int error;

	if (!item)
		return rmem_error(call);
	if (kv_is_live(item) && kv_has_key(item, key, key[-1], lane->item)) {
		error = kv_is_dead(get->flushed, le32_to_cpu(args->now_s), item) ?
				0 : kv_get_emit(call, at, get, item, lane);
		if (!error)
			kv_get_end(call, get, lane);
		else if (error == -EMSGSIZE)
			lane->busy = 0;
		return error == -EMSGSIZE ? 0 : error;
	}
	bucket = rmem_look(call, at + (__u64)lane->bucket * sizeof(*bucket), sizeof(*bucket));
	if (!bucket)
		return rmem_error(call);
	word = kv_load(&bucket->slot[lane->slot]);
	if (word == ((__u64)lane->tag << 48 | lane->item)) {
		lane->slot++; /* up to KV_SLOTS */
	} else if (lane->hops++ == KV_CHAIN_MAX) {
		return -EBUSY;
	}
	lane->item = 0;
	return 0;
}

static int kv_get(struct rmem_call *call)
{
	const struct kv_get_args *args = rmem_args(call, sizeof(*args));
	struct kv_get *get = rmem_scratch(call, sizeof(*get));
	__u32 n, busy = 0;
	int error;

	if (!args)
		return -EINVAL;
	args = rmem_args(call, rmem_args_bytes(call));
	if (!get->begun) {
		error = kv_get_begin(call, args, get);
		if (error)
			return error;
	}
	for (n = 0; n < KV_LANES; n++) {
		struct kv_lane *lane = &get->lane[n];

		error = 0;
		if (lane->busy && lane->item)
			error = kv_get_item(call, args, get, lane);
		else if (lane->busy)
			error = kv_get_bucket(call, le64_to_cpu(args->table), get, lane);
		if (error)
			return error;
		if (!lane->busy && get->next < args->count)
			kv_get_start(call, args, get, lane);
		busy += lane->busy;
	}
	return busy ? RMEM_AGAIN : 0;
}

static int kv_step(struct rmem_call *call)
{
	switch (rmem_function(call)) {
	case KV_FORMAT:
		return kv_format(call);
	case KV_GET:
		return kv_get(call);
	case KV_STATS:
		return kv_stats(call);
	case KV_USED:
		return kv_used(call);
	case KV_SETS:
		return kv_sets(call);
	case KV_SET:
	case KV_DELETE:
	case KV_ADD:
	case KV_TOUCH:
	case KV_FLUSH:
	case KV_STAGE:
	case KV_PUBLISH:
		return kv_call(call);
	default:
		return -ENOSYS;
	}
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = KV_ID,
	.once_mask = 1 << KV_FORMAT | 1 << KV_SET | 1 << KV_DELETE | 1 << KV_ADD | 1 << KV_TOUCH |
		     1 << KV_FLUSH | 1 << KV_STAGE | 1 << KV_PUBLISH | 1 << KV_USED |
		     1 << KV_SETS,
	.budget_us = 2000, /* a full cache whose hand passes 8,192 items */
	.name = "kv",
	.step = kv_step,
};

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "kv");
MODULE_DESCRIPTION("A key-value table at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
#endif
