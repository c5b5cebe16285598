// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Search for a key's item, and putting a new one in its place. */
#include "table.h"

static int item_search_bucket(const struct kv *kv, __u64 tag, const __u8 *key, __u32 key_bytes,
			      struct kv_place *place)
{
	struct kv_bucket *bucket = place->last;
	__u32 n;

	for (n = 0; n < KV_SLOTS; n++) {
		__u64 word = offload_load(&bucket->slot[n]);
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

int kv_item_search(const struct kv *kv, __u64 hash, const __u8 *key, __u32 key_bytes,
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
		error = item_search_bucket(kv, hash >> 48, key, key_bytes, place);
		if (error || place->item || !kv_follow(kv, place->last, &bucket))
			return error;
	}
	return -EUCLEAN;
}

struct kv_item *kv_item_current(const struct kv *kv, const struct kv_place *place)
{
	if (!place->item || kv_is_dead(le64_to_cpu(kv->table->flushed), kv->now_s, place->at))
		return NULL;
	return place->at;
}

enum kv_status kv_item_permits(const struct kv_item *live, __u32 mode, __u64 version)
{
	if (version && !live)
		return KV_NOT_FOUND;
	if (version && offload_load(&live->version) != version)
		return KV_EXISTS;
	if (mode == KV_MODE_ADD ? !!live : mode != KV_MODE_SET && !live)
		return KV_NOT_STORED;
	return KV_OK;
}

__u64 kv_item_next_version(const struct kv *kv)
{
	kv_count(&kv->table->version, 1);
	return le64_to_cpu(kv->table->version) & (KV_OFFSET_MASK >> 1);
}

int kv_item_fill(struct kv *kv, __u64 offset, struct kv_item *item, const struct kv_new *new)
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

void kv_item_publish(struct kv *kv, const struct kv_place *place, __u64 hash, __u64 offset,
		     struct kv_item *item, __u64 version)
{
	offload_store(&item->version, version);
	kv_set_slot(place->bucket, place->slot, (hash >> 48) << 48 | offset);
	kv_count_item(kv, item, 1);
	if (place->item) {
		kv_count_item(kv, place->at, -1);
		kv_memory_free(kv, place->item, place->at);
	}
}

int kv_item_replace(struct kv *kv, struct kv_work *work, const struct kv_place *place,
		    __u64 hash, const struct kv_new *new, __u64 number)
{
	__u32 bytes = KV_ITEM_BYTES + new->key_bytes + new->part_bytes[0] + new->part_bytes[1];
	struct kv_item *item;
	__u64 offset, version;
	int error = 0;

	if (!place->bucket)
		return kv_ends(kv->call, kv_memory_extend(kv, place));
	item = kv_memory_alloc(kv, work, bytes, &offset, &error);
	if (!item)
		return kv_ends(kv->call, error);
	error = kv_item_fill(kv, offset, item, new);
	if (error) {
		kv_memory_free_one(kv, offset, item);
		return error;
	}
	version = kv_item_next_version(kv);
	kv_item_publish(kv, place, hash, offset, item, version);
	return kv_answer(kv->call, KV_OK, version, number);
}
