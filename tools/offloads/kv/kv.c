// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A key-value table in remote memory (Orca's KV, after MICA; memcached's slabs). README.md has the
 * picture, table.h the floors and invariants. Here: which function a call runs, and those on the
 * table as a whole.
 */
#include "table.h"

#define KV_USED_STEP 16U /* items that a step of KV_USED marks */

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
	if (offload_load(&table->magic))
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
	offload_store(&table->magic, KV_MAGIC);
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
	error = kv_table_open(&kv, call, args->table, 0, true);
	if (error)
		return error;
	if (!work->scanned) {
		work->scanned = 1;
		for (n = 0; n < count; n++)
			rmem_prefetch(call, le64_to_cpu(list[n]));
		return RMEM_AGAIN;
	}
	for (n = 0; n < KV_USED_STEP && work->next < count; n++, work->next++) {
		__u64 offset = le64_to_cpu(list[work->next]) - kv.at;
		struct kv_item *item;

		/* The slab might have another class since the client saw the item. */
		if (!kv_memory_is_start(&kv, offset))
			continue;
		item = kv_item_at(&kv, offset, &error);
		if (item && kv_is_live(item))
			item->seen = 1;
	}
	return work->next < count ? RMEM_AGAIN : kv_answer(call, KV_OK, 0, 0);
}

static int kv_flush(struct kv *kv)
{
	offload_store(&kv->table->flushed, kv_item_next_version(kv));
	kv->table->items = 0;
	kv->table->item_bytes = 0;
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
	error = kv_table_open(&kv, call, args->table, le32_to_cpu(args->now_s), true);
	if (error)
		return error;
	switch (function) {
	case KV_FLUSH:
		return kv_flush(&kv);
	case KV_STAGE:
		return kv_stage(&kv, args);
	case KV_PUBLISH:
		return kv_stage_publish(&kv, args);
	default:
		return kv_change(&kv, args,
				 kv_hash_of(&kv, (const __u8 *)(args + 1), args->key_bytes));
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
	error = kv_table_open(&kv, call, args->table, 0, false);
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
		return kv_change_sets(call);
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
MODULE_VERSION(REMORA_VERSION);
#endif
