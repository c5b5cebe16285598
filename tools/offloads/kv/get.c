// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * GET: keys are looked up side by side, an access a step, which the step before has prefetched. It takes
 * no lock and changes nothing, so it sees changes of other calls between its steps.
 */
#include "table.h"

#define GET_LANES 12U /* keys at once */

/* A key that is looked up. One access a step, which the step before has prefetched. */
struct get_lane {
	__u64 item : 48; /* offset of the item to look at; 0: look at the bucket */
	__u64 key_at : 10; /* of the key in the arguments, behind its length */
	__u64 key : 6;	   /* its number */
	__u32 bucket;	   /* its offset / 64 */
	__u16 tag;
	__u16 slot : 3; /* from which on to look */
	__u16 hops : 6;
	__u16 busy : 1;
};

/* From step to step. The keys are looked up GET_LANES at a time. */
struct get {
	__u64 seed[2];
	__u64 flushed;
	__u32 buckets;
	__u16 next_at;	  /* of the next key in the arguments */
	__u8 next, begun; /* its number */
	__u32 bytes;	  /* of the result */
	__u32 slabs;
	__u64 slabs_at;
	struct get_lane lane[GET_LANES];
};

_Static_assert(sizeof(struct get) <= RMEM_SCRATCH_BYTES_MAX, "scratch");
_Static_assert(KV_CHAIN_MAX < 64, "get_lane.hops");

/* Are there so many keys, and nothing else? */
static bool get_is_sound(const struct kv_get_args *args, __u32 args_bytes)
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

static int get_begin(struct rmem_call *call, const struct kv_get_args *args, struct get *get)
{
	struct kv kv;
	int error = kv_table_open(&kv, call, args->table, 0, false);

	if (error)
		return error;
	if (!get_is_sound(args, rmem_args_bytes(call)))
		return -EINVAL;
	get->seed[0] = le64_to_cpu(kv.table->seed[0]);
	get->seed[1] = le64_to_cpu(kv.table->seed[1]);
	get->flushed = offload_load(&kv.table->flushed);
	get->buckets = le32_to_cpu(kv.table->buckets);
	get->slabs = le32_to_cpu(kv.table->slabs);
	get->slabs_at = le64_to_cpu(kv.table->slabs_at);
	get->next_at = sizeof(*args);
	get->bytes = sizeof(struct kv_get_result);
	get->begun = 1;
	return rmem_result(call, get->bytes) ? 0 : rmem_error(call);
}

/* The next key takes the lane. */
static void get_start(struct rmem_call *call, const struct kv_get_args *args, struct get *get,
		      struct get_lane *lane)
{
	const __u8 *key = (const __u8 *)args + get->next_at;
	__u64 hash = kv_table_hash(get->seed[0], get->seed[1], key + 1, key[0]);

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

static void get_end(struct rmem_call *call, const struct get *get, struct get_lane *lane)
{
	struct kv_get_result *result = rmem_result(call, get->bytes);

	result->answered |= cpu_to_le64(1ULL << lane->key);
	lane->busy = 0;
}

static bool get_is_item(const struct get *get, __u64 offset)
{
	return offset >= get->slabs_at && offset % KV_ALIGN == 0 && kv_fits_slab(offset) &&
	       (offset - get->slabs_at) >> KV_SLAB_SHIFT < get->slabs;
}

/* Looks for the tag in the lane's bucket, from its slot on; then in the next bucket. */
static int get_bucket(struct rmem_call *call, __u64 at, const struct get *get,
		      struct get_lane *lane)
{
	const struct kv_bucket *bucket =
		rmem_look(call, at + (__u64)lane->bucket * sizeof(*bucket), sizeof(*bucket));
	__u64 link;
	__u32 n;

	if (!bucket)
		return rmem_error(call);
	for (n = lane->slot; n < KV_SLOTS; n++) {
		__u64 word = offload_load(&bucket->slot[n]);

		if (!word || word >> 48 != lane->tag || !get_is_item(get, word & KV_OFFSET_MASK))
			continue;
		lane->slot = n;
		lane->item = word & KV_OFFSET_MASK;
		rmem_prefetch(call, at + lane->item);
		return 0;
	}
	link = offload_load(&bucket->link) & KV_OFFSET_MASK;
	if (!link || link % sizeof(*bucket) || !get_is_item(get, link) ||
	    link / sizeof(*bucket) > 0xffffffffU) {
		get_end(call, get, lane);
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
static int get_emit(struct rmem_call *call, __u64 at, struct get *get,
		    const struct kv_item *item, const struct get_lane *lane)
{
	__u32 value_bytes = offload_load_32(&item->value_bytes), have, first;
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
static int get_item(struct rmem_call *call, const struct kv_get_args *args, struct get *get,
		    struct get_lane *lane)
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
				0 : get_emit(call, at, get, item, lane);
		if (!error)
			get_end(call, get, lane);
		else if (error == -EMSGSIZE)
			lane->busy = 0;
		return error == -EMSGSIZE ? 0 : error;
	}
	bucket = rmem_look(call, at + (__u64)lane->bucket * sizeof(*bucket), sizeof(*bucket));
	if (!bucket)
		return rmem_error(call);
	word = offload_load(&bucket->slot[lane->slot]);
	if (word == ((__u64)lane->tag << 48 | lane->item)) {
		lane->slot++; /* up to KV_SLOTS */
	} else if (lane->hops++ == KV_CHAIN_MAX) {
		return -EBUSY;
	}
	lane->item = 0;
	return 0;
}

int kv_get(struct rmem_call *call)
{
	const struct kv_get_args *args = rmem_args(call, sizeof(*args));
	struct get *get = rmem_scratch(call, sizeof(*get));
	__u32 n, busy = 0;
	int error;

	if (!args)
		return -EINVAL;
	args = rmem_args(call, rmem_args_bytes(call));
	if (!get->begun) {
		error = get_begin(call, args, get);
		if (error)
			return error;
	}
	for (n = 0; n < GET_LANES; n++) {
		struct get_lane *lane = &get->lane[n];

		error = 0;
		if (lane->busy && lane->item)
			error = get_item(call, args, get, lane);
		else if (lane->busy)
			error = get_bucket(call, le64_to_cpu(args->table), get, lane);
		if (error)
			return error;
		if (!lane->busy && get->next < args->count)
			get_start(call, args, get, lane);
		busy += lane->busy;
	}
	return busy ? RMEM_AGAIN : 0;
}
