// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Large values: an item is staged, its client WRITEs the value into it, then publishes it. An item that
 * fits in no slab has pieces of a slab each.
 */
#include "table.h"

/* A staged item without its pieces. */
static int stage_begin(struct kv *kv, struct kv_work *work, const struct kv_args *args)
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
	item = kv_memory_alloc(kv, work, bytes, &offset, &error);
	if (!item)
		return kv_ends(kv->call, error);
	error = kv_item_fill(kv, offset, item, &new);
	if (error) {
		kv_memory_free_one(kv, offset, item);
		return error;
	}
	item->value_bytes = cpu_to_le32(value_bytes);
	if (!KV_IN_ONE(args->key_bytes, value_bytes))
		memset((__u8 *)item + KV_PIECES_AT(args->key_bytes), 0,
		       KV_PIECES(value_bytes) * sizeof(__le64));
	work->version = kv_item_next_version(kv);
	offload_store(&item->version, KV_STAGED | work->version);
	work->staged = offset;
	return RMEM_AGAIN;
}

/* A piece a step, then the answer. The lease keeps the item from the hand meanwhile. */
int kv_stage(struct kv *kv, const struct kv_args *args)
{
	struct kv_work *work = rmem_scratch(kv->call, sizeof(*work));
	__u32 value_bytes = le32_to_cpu(args->value_bytes);
	struct kv_item *item, *piece;
	__u64 offset;
	int error = 0;
	__le64 *list;

	if (!work->staged)
		return stage_begin(kv, work, args);
	item = kv_item_at(kv, work->staged, &error);
	if (!item)
		return error;
	/* Its lease has ended, and it is another's. */
	if (offload_load(&item->version) != (KV_STAGED | work->version))
		return kv_answer(kv->call, KV_NOT_FOUND, 0, 0);
	if (KV_IN_ONE(args->key_bytes, value_bytes) || work->pieces == KV_PIECES(value_bytes))
		return kv_answer(kv->call, KV_OK, work->version, kv->at + work->staged);
	piece = kv_memory_alloc(kv, work, KV_SLAB_BYTES, &offset, &error);
	if (!piece) {
		if (error == -ENOSPC)
			kv_memory_free(kv, work->staged, item);
		return kv_ends(kv->call, error);
	}
	offload_store(&piece->version, KV_CHUNK | work->staged);
	list = (__le64 *)((__u8 *)item + KV_PIECES_AT(args->key_bytes));
	list[work->pieces++] = cpu_to_le64(kv->at + offset);
	return RMEM_AGAIN;
}

int kv_stage_publish(struct kv *kv, const struct kv_args *args)
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
	if (offload_load(&item->version) != (KV_STAGED | le64_to_cpu(told)))
		return kv_answer(kv->call, KV_NOT_FOUND, 0, 0);
	if (!kv_memory_is_start(kv, offset) ||
	    offload_load_32(&item->value_bytes) > KV_VALUE_BYTES_MAX)
		return -EUCLEAN;
	key_bytes = kv_load_8(&item->key_bytes);
	if (!key_bytes || KV_ITEM_BYTES + key_bytes > kv_slice_bytes(offset))
		return -EUCLEAN;
	hash = kv_hash_of(kv, (const __u8 *)(item + 1), key_bytes);
	error = kv_item_search(kv, hash, (const __u8 *)(item + 1), key_bytes, &place);
	if (error)
		return error;
	status = kv_item_permits(kv_item_current(kv, &place), args->mode, le64_to_cpu(args->version));
	if (status) {
		kv_memory_free(kv, offset, item);
		return kv_answer(kv->call, status, 0, 0);
	}
	if (!place.bucket)
		return kv_ends(kv->call, kv_memory_extend(kv, &place));
	version = kv_item_next_version(kv);
	item->flags = args->flags;
	item->expiry_s = args->expiry_s;
	kv_item_publish(kv, &place, hash, offset, item, version);
	return kv_answer(kv->call, KV_OK, version, 0);
}
