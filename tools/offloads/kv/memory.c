// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Memory of items and of further buckets: slabs of a class's items, its list of free ones, and the
 * hand that frees some (CLOCK).
 *
 *	kv_memory_alloc()  free list -> fresh item -> next slab -> memory_make_room(): the hand
 *								-> memory_steal(): a slab of another class
 */
#include "table.h"

#define MEMORY_SCAN_STEP 16U	/* items that the hand passes in a step */
#define MEMORY_SCAN_STORE 2048U /* items that it passes before a store gives up */
#define MEMORY_SCAN_CACHE 4096U /* items that it passes before a cache evicts those in use, too */

static const __u32 memory_class_bytes[KV_CLASSES] = {
	64,   80,   112,  144,	192,  240,  304,  384,	480,   608,   768,   960,   1200,
	1520, 1920, 2416, 3120, 4096, 5456, 7280, 9360, 13104, 16384, 21840, 32768, 65536,
};

/* An item's `free` link lies over flags and expiry_s. */
static __u64 memory_free_next(const struct kv_item *item)
{
	return le32_to_cpu(item->flags) | (__u64)le32_to_cpu(item->expiry_s) << 32;
}

static void memory_set_free_next(struct kv_item *item, __u64 offset)
{
	item->flags = cpu_to_le32((__u32)offset);
	item->expiry_s = cpu_to_le32((__u32)(offset >> 32));
}

/* ---- freeing -------------------------------------------------------------------------------- */

static bool memory_is_leaving(const struct kv *kv, __u64 offset)
{
	__u64 number = (offset - le64_to_cpu(kv->table->slabs_at)) >> KV_SLAB_SHIFT;

	return number + 1 == le32_to_cpu(kv->table->leaving);
}

/* Readers see the version go before the memory is used again. */
void kv_memory_free_one(struct kv *kv, __u64 offset, struct kv_item *item)
{
	__u32 which = kv_load_8(&item->size_class);
	struct kv_class *class;

	offload_store(&item->version, 0);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (which >= KV_CLASSES || memory_is_leaving(kv, offset))
		return;
	class = &kv->table->class[which];
	memory_set_free_next(item, le64_to_cpu(class->free));
	class->free = cpu_to_le64(offset);
}

static __u32 memory_pieces_of(const struct kv_item *item, __u32 *at)
{
	__u32 value_bytes = offload_load_32(&item->value_bytes);
	__u32 key_bytes = kv_load_8(&item->key_bytes);

	*at = KV_PIECES_AT(key_bytes);
	if (KV_IN_ONE(key_bytes, (__u64)value_bytes) || value_bytes > KV_VALUE_BYTES_MAX)
		return 0;
	return KV_PIECES(value_bytes);
}

void kv_memory_free(struct kv *kv, __u64 offset, struct kv_item *item)
{
	__u32 at, n, pieces = memory_pieces_of(item, &at);
	const __le64 *list = (const __le64 *)((const __u8 *)item + at);

	offload_store(&item->version, 0);
	if (at + pieces * sizeof(*list) > kv_slice_bytes(offset))
		pieces = 0;
	for (n = 0; n < pieces; n++) {
		__u64 where = le64_to_cpu(list[n]) - kv->at;
		struct kv_item *piece;
		int error;

		if (!list[n] || where % KV_SLAB_BYTES)
			continue;
		piece = kv_item_at(kv, where, &error);
		if (piece && offload_load(&piece->version) == (KV_CHUNK | offset))
			kv_memory_free_one(kv, where, piece);
	}
	kv_memory_free_one(kv, offset, item);
}

/* Takes a live item out of its slot, and frees it. */
static int memory_unlink(struct kv *kv, __u64 offset, struct kv_item *item, __le64 *counter)
{
	__u32 key_bytes = kv_load_8(&item->key_bytes), hops, n;
	__u64 hash, bucket;

	if (KV_ITEM_BYTES + key_bytes > kv_slice_bytes(offset))
		return -EUCLEAN;
	hash = kv_hash_of(kv, (const __u8 *)(item + 1), key_bytes);
	bucket = kv_bucket_of(kv, hash);
	for (hops = 0; hops < KV_CHAIN_MAX; hops++) {
		struct kv_bucket *at = rmem_at(kv->call, kv->at + bucket, sizeof(*at));

		if (!at)
			return rmem_error(kv->call);
		for (n = 0; n < KV_SLOTS; n++) {
			if ((offload_load(&at->slot[n]) & KV_OFFSET_MASK) != offset)
				continue;
			kv_set_slot(at, n, 0);
			hops = KV_CHAIN_MAX;
			break;
		}
		if (!kv_follow(kv, at, &bucket))
			break;
	}
	kv_count_item(kv, item, -1);
	kv_count(counter, 1);
	kv_memory_free(kv, offset, item);
	return 0;
}

/* ---- slabs ---------------------------------------------------------------------------------- */

static struct kv_ring *memory_ring_at(const struct kv *kv, __u32 slab, int *error)
{
	__u64 offset = le64_to_cpu(kv->table->rings_at) + slab * sizeof(struct kv_ring);
	struct kv_ring *ring;

	if (slab >= le32_to_cpu(kv->table->slabs))
		return kv_fails(error, -EUCLEAN);
	ring = rmem_at(kv->call, kv->at + offset, sizeof(*ring));
	return ring ? ring : kv_fails(error, rmem_error(kv->call));
}

static __u32 memory_class_items(__u32 class)
{
	return class == KV_OVERFLOW_CLASS ? KV_SLAB_BYTES / sizeof(struct kv_bucket) :
					    KV_SLAB_BYTES / memory_class_bytes[class];
}

static __u64 memory_item_offset(const struct kv *kv, __u32 slab, __u32 class, __u32 item)
{
	__u32 bytes = class == KV_OVERFLOW_CLASS ? sizeof(struct kv_bucket) : memory_class_bytes[class];

	return le64_to_cpu(kv->table->slabs_at) + ((__u64)slab << KV_SLAB_SHIFT) +
	       (__u64)item * bytes;
}

bool kv_memory_is_start(const struct kv *kv, __u64 offset)
{
	__u64 slab = (offset - le64_to_cpu(kv->table->slabs_at)) >> KV_SLAB_SHIFT;
	const struct kv_ring *ring;
	__u32 which;
	int error;

	if (!kv_is_item(kv, offset))
		return false;
	ring = memory_ring_at(kv, (__u32)slab, &error);
	which = ring ? offload_load_32(&ring->class) : KV_CLASSES;
	return which < KV_CLASSES && offset % KV_SLAB_BYTES % memory_class_bytes[which] == 0;
}

/* Puts the slab, whose items were never used or are gone, into the ring of the class. */
static int memory_add_slab(struct kv *kv, __u32 number, __u32 which)
{
	struct kv_class *class = &kv->table->class[which];
	int error = 0;
	struct kv_ring *ring = memory_ring_at(kv, number, &error), *hand = NULL;

	if (ring && class->hand_slab)
		hand = memory_ring_at(kv, le32_to_cpu(class->hand_slab) - 1, &error);
	if (error)
		return error;
	ring->class = cpu_to_le32(which);
	ring->next = hand ? hand->next : cpu_to_le32(number);
	if (hand)
		hand->next = cpu_to_le32(number);
	/* The hand passes it last. */
	class->hand_slab = cpu_to_le32(number + 1);
	class->hand_item = cpu_to_le32(memory_class_items(which));
	class->fresh_slab = cpu_to_le32(number + 1);
	class->fresh_item = 0;
	class->slabs = cpu_to_le32(le32_to_cpu(class->slabs) + 1);
	return 0;
}

/* ---- making room ---------------------------------------------------------------------------- */

/* The end of a look at an item: it stays, its memory is free, or a client writes to it. */
enum memory_verdict { MEMORY_PASS, MEMORY_FREED, MEMORY_WAIT };

/* A piece of a value: its version names the item. */
static bool memory_is_piece(const struct kv_item *item)
{
	__u64 version = offload_load(&item->version);

	return version >= KV_CHUNK && version < KV_STAGED;
}

/* The item that a piece belongs to; NULL: *error, or it is gone and the piece is freed. */
static struct kv_item *memory_owner(struct kv *kv, struct kv_item *piece, __u64 *offset, int *error)
{
	__u64 of = offload_load(&piece->version) & KV_OFFSET_MASK;
	struct kv_item *owner = kv_item_at(kv, of, error);

	if (!owner && *error == RMEM_AGAIN)
		return NULL;
	*error = 0;
	if (owner && offload_load(&owner->version) && !memory_is_piece(owner)) {
		*offset = of;
		return owner;
	}
	kv_memory_free_one(kv, *offset, piece);
	return NULL;
}

/* Is the piece the first one of the item at the offset? */
static bool memory_is_first(const struct kv *kv, const struct kv_item *item, __u64 offset,
			    __u64 piece)
{
	__u32 at, pieces = memory_pieces_of(item, &at);

	if (!pieces || at + sizeof(__le64) > kv_slice_bytes(offset))
		return true;
	return offload_load((const __le64 *)((const __u8 *)item + at)) == kv->at + piece;
}

/*
 * Frees the item of the class, if it isn't needed. A value of several pieces is judged at its first
 * one, so once in a round. all: seen or not, but for one that a client writes
 * to. Without an error, one of the verdicts.
 */
static int memory_judge(struct kv *kv, __u64 offset, __u32 class, bool all, bool evict)
{
	int error = 0;
	struct kv_item *item = kv_item_at(kv, offset, &error);
	__u64 piece = offset;
	bool first = true;

	if (!item)
		return error;
	if (!offload_load(&item->version)) {
		item->size_class = (__u8)class;
		kv_memory_free_one(kv, offset, item);
		return MEMORY_FREED;
	}
	if (memory_is_piece(item)) {
		item = memory_owner(kv, item, &offset, &error);
		if (!item)
			return error ? error : MEMORY_FREED;
		first = memory_is_first(kv, item, offset, piece);
	}
	if (!kv_is_live(item)) {
		if ((__s32)(kv->now_s - le32_to_cpu(item->expiry_s)) <= (__s32)KV_STAGE_S)
			return all ? MEMORY_WAIT : MEMORY_PASS;
		kv_memory_free(kv, offset, item);
		return MEMORY_FREED;
	}
	if (kv_is_dead(le64_to_cpu(kv->table->flushed), kv->now_s, item)) {
		error = memory_unlink(kv, offset, item, &kv->table->reclaimed);
		return error ? error : MEMORY_FREED;
	}
	if (!first && !all)
		return MEMORY_PASS;
	if (!evict || (item->seen && !all)) {
		item->seen = 0;
		return MEMORY_PASS;
	}
	error = memory_unlink(kv, offset, item, &kv->table->evicted);
	return error ? error : MEMORY_FREED;
}

/* The class with the most slabs, of two at least. KV_CLASSES: none. */
static __u32 memory_richest(const struct kv *kv)
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
static int memory_steal_begin(struct kv *kv)
{
	__u32 which = memory_richest(kv), number;
	struct kv_class *class = &kv->table->class[which];
	struct kv_ring *hand, *ring;
	int error = 0;

	if (which == KV_CLASSES)
		return -ENOSPC;
	hand = memory_ring_at(kv, le32_to_cpu(class->hand_slab) - 1, &error);
	if (!hand)
		return error;
	number = le32_to_cpu(hand->next);
	ring = memory_ring_at(kv, number, &error);
	if (!ring || ring == hand)
		return ring ? -EUCLEAN : error;
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
static int memory_steal_back(struct kv *kv, __u32 number, __u32 which)
{
	struct kv_class *class = &kv->table->class[which];
	__le32 fresh_slab = class->fresh_slab, fresh_item = class->fresh_item;
	int error = memory_add_slab(kv, number, which);

	class->fresh_slab = fresh_slab;
	class->fresh_item = fresh_item;
	kv->table->leaving = 0;
	return error ? error : -ENOSPC;
}

/* Clears some of the slab's bytes: all items of another class in it are free. */
static int memory_steal_clear(struct kv *kv, __u32 number, __u32 part)
{
	__u64 offset = memory_item_offset(kv, number, 0, 0) + (__u64)part * KV_SLICE_BYTES;
	void *at = rmem_at(kv->call, kv->at + offset, KV_SLICE_BYTES);

	if (!at)
		return rmem_error(kv->call);
	memset(at, 0, KV_SLICE_BYTES);
	return 0;
}

/* Some items of the slab that leaves go, then its bytes are cleared; then it is the class's. */
static int memory_steal(struct kv *kv, __u32 for_class)
{
	__u32 number = le32_to_cpu(kv->table->leaving) - 1, n, next, which, items;
	struct kv_ring *ring;
	int verdict = -EUCLEAN;

	if (!kv->table->leaving)
		return memory_steal_begin(kv);
	ring = memory_ring_at(kv, number, &verdict);
	if (!ring && verdict == RMEM_AGAIN)
		return verdict;
	which = ring ? le32_to_cpu(ring->class) : KV_CLASSES;
	if (which >= KV_CLASSES) {
		kv->table->leaving = 0;
		return -EUCLEAN;
	}
	items = memory_class_items(which);
	next = le32_to_cpu(kv->table->leaving_item);
	for (n = 0; n < MEMORY_SCAN_STEP && next < items + KV_SLAB_BYTES / KV_SLICE_BYTES; n++, next++) {
		if (next < items)
			verdict = memory_judge(kv, memory_item_offset(kv, number, which, next), which, true,
					       true);
		else
			verdict = memory_steal_clear(kv, number, next - items);
		if (next < items && verdict == MEMORY_WAIT)
			return memory_steal_back(kv, number, which);
		if (verdict < 0)
			return verdict;
	}
	kv->table->leaving_item = cpu_to_le32(next);
	if (next < items + KV_SLAB_BYTES / KV_SLICE_BYTES)
		return RMEM_AGAIN;
	kv->table->leaving = 0;
	verdict = memory_add_slab(kv, number, for_class);
	return verdict ? verdict : RMEM_AGAIN;
}

static int memory_turn_hand(struct kv *kv, struct kv_class *class, __u32 *slab)
{
	int error = 0;
	struct kv_ring *ring = memory_ring_at(kv, *slab, &error);

	if (!ring)
		return error;
	*slab = le32_to_cpu(ring->next);
	class->hand_slab = cpu_to_le32(*slab + 1);
	class->hand_item = 0;
	return 0;
}

/* Items of the slab that the hand can look at: not those that were never used. */
static __u32 memory_hand_end(const struct kv_class *class, __u32 which, __u32 slab)
{
	__u32 items = memory_class_items(which), fresh = le32_to_cpu(class->fresh_item);

	return le32_to_cpu(class->fresh_slab) == slab + 1 && fresh < items ? fresh : items;
}

/*
 * Turns the class's hand until an item was freed (CLOCK: an item that was seen since the last round
 * stays). RMEM_AGAIN: look for a free item again. -ENOSPC: there is no memory.
 */
static int memory_make_room(struct kv *kv, struct kv_work *work, __u32 which)
{
	struct kv_class *class = &kv->table->class[which];
	bool cache = le32_to_cpu(kv->table->options) & KV_CACHE;
	__u32 slab = le32_to_cpu(class->hand_slab) - 1, n;

	if (!class->hand_slab)
		return cache ? memory_steal(kv, which) : -ENOSPC;
	/* Clients use all items that the hand of a cache passed: another class gives a slab. */
	if (work->scanned >= (cache ? 2 * MEMORY_SCAN_CACHE : MEMORY_SCAN_STORE))
		return cache ? memory_steal(kv, which) : -ENOSPC;
	for (n = 0; n < MEMORY_SCAN_STEP; n++) {
		__u32 item = le32_to_cpu(class->hand_item);
		int verdict;

		work->scanned++;
		if (item >= memory_hand_end(class, which, slab)) {
			int error = memory_turn_hand(kv, class, &slab);

			if (error)
				return error;
			continue;
		}
		verdict = memory_judge(kv, memory_item_offset(kv, slab, which, item), which,
				       work->scanned > MEMORY_SCAN_CACHE, cache);
		if (verdict < 0)
			return verdict;
		class->hand_item = cpu_to_le32(item + 1);
		if (verdict == MEMORY_FREED)
			return RMEM_AGAIN;
	}
	return RMEM_AGAIN;
}

/* ---- allocation ----------------------------------------------------------------------------- */

/* The smallest class of so many bytes. KV_CLASSES: none is. */
static __u32 memory_class_for(__u32 bytes)
{
	__u32 n;

	for (n = 0; n < KV_CLASSES && memory_class_bytes[n] < bytes; n++) {
	}
	return n;
}

static struct kv_item *memory_alloc_fresh(struct kv *kv, __u32 which, __u64 *offset, int *error)
{
	struct kv_class *class = &kv->table->class[which];
	__u32 used = le32_to_cpu(kv->table->slabs_used), item = offload_load_32(&class->fresh_item);
	__u32 slab = offload_load_32(&class->fresh_slab);
	void *at;

	if (!slab || item >= memory_class_items(which)) {
		if (used >= le32_to_cpu(kv->table->slabs))
			return kv_fails(error, -ENOSPC);
		*error = memory_add_slab(kv, used, which);
		if (*error)
			return NULL;
		kv->table->slabs_used = cpu_to_le32(used + 1);
		slab = used + 1;
		item = 0;
	}
	*offset = memory_item_offset(kv, slab - 1, which, item);
	at = kv_item_at(kv, *offset, error);
	if (at)
		class->fresh_item = cpu_to_le32(item + 1);
	return at;
}

/* Is a slice at the offset as long as one of the class's items has to be? */
static bool memory_has_room(__u64 offset, __u32 which)
{
	__u32 bytes = memory_class_bytes[which];

	return kv_slice_bytes(offset) >= (bytes < KV_SLICE_BYTES ? bytes : KV_SLICE_BYTES);
}

struct kv_item *kv_memory_alloc(struct kv *kv, struct kv_work *work, __u32 bytes, __u64 *offset,
				int *error)
{
	__u32 which = memory_class_for(bytes);
	struct kv_class *class;
	struct kv_item *item;

	if (which >= KV_CLASSES)
		return kv_fails(error, -EUCLEAN);
	class = &kv->table->class[which];
	*offset = offload_load(&class->free);
	if (*offset) {
		item = kv_item_at(kv, *offset, error);
		if (item) {
			class->free = cpu_to_le64(memory_free_next(item));
			/* Damaged, if it is in use, or its class's items don't fit there. */
			if (offload_load(&item->version) || !memory_has_room(*offset, which)) {
				class->free = 0;
				return kv_fails(error, -EUCLEAN);
			}
		} else if (*error != RMEM_AGAIN) {
			class->free = 0;
		}
	} else {
		item = memory_alloc_fresh(kv, which, offset, error);
		if (item && !memory_has_room(*offset, which))
			return kv_fails(error, -EUCLEAN);
		if (!item && *error == -ENOSPC)
			*error = memory_make_room(kv, work, which);
	}
	if (item)
		item->size_class = (__u8)which;
	return item;
}

int kv_memory_extend(struct kv *kv, const struct kv_place *place)
{
	struct kv_bucket *last = place->last, *more;
	struct kv_item *item;
	__u64 offset;
	int error = 0;

	/* A longer chain couldn't be searched. */
	more = place->hops + 1 < KV_CHAIN_MAX ?
		       (struct kv_bucket *)memory_alloc_fresh(kv, KV_OVERFLOW_CLASS, &offset, &error) :
		       kv_fails(&error, -ENOSPC);
	if (more) {
		memset(more, 0, sizeof(*more));
		offload_store(&last->link, (offload_load(&last->link) & ~KV_OFFSET_MASK) | offset);
		return RMEM_AGAIN;
	}
	if (error != -ENOSPC || !(le32_to_cpu(kv->table->options) & KV_CACHE))
		return error;
	offset = offload_load(&last->slot[le64_to_cpu(kv->table->version) % KV_SLOTS]) & KV_OFFSET_MASK;
	item = kv_item_at(kv, offset, &error);
	if (item)
		error = memory_unlink(kv, offset, item, &kv->table->evicted);
	return error ? error : RMEM_AGAIN;
}
