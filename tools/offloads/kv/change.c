// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Changes of a key: SET, ADD, DELETE, TOUCH, and SETS for several keys. Each is one step, but for those
 * that made room.
 */
#include "table.h"

#define CHANGE_NUMBER_BYTES_MAX 20U /* a sign and 19 digits, or 20 digits */

/* Bytes of the value behind the key, in the item's slice. False: it isn't all there. */
static bool change_value_in_slice(const struct kv_item *item, __u64 offset, __u32 key_bytes,
				  __u32 *value_bytes)
{
	__u32 room = kv_slice_bytes(offset);

	*value_bytes = offload_load_32(&item->value_bytes);
	return KV_ITEM_BYTES + key_bytes <= room && *value_bytes <= room - KV_ITEM_BYTES - key_bytes;
}

static int change_set(struct kv *kv, struct kv_work *work, const struct kv_args *args,
		      const struct kv_place *place, __u64 hash, const struct kv_item *live)
{
	const __u8 *key = (const __u8 *)(args + 1);
	struct kv_new new = { .key = key,
			      .part = { key + args->key_bytes, NULL },
			      .part_bytes = { le32_to_cpu(args->value_bytes), 0 },
			      .key_bytes = args->key_bytes,
			      .flags = le32_to_cpu(args->flags),
			      .expiry_s = le32_to_cpu(args->expiry_s) };
	enum kv_status status = kv_item_permits(live, args->mode, le64_to_cpu(args->version));

	if (args->mode > KV_MODE_PREPEND)
		return -EINVAL;
	if (status)
		return kv_answer(kv->call, status, 0, 0);
	if (args->mode >= KV_MODE_APPEND) {
		__u32 old = args->mode == KV_MODE_APPEND ? 0 : 1, bytes;

		if (!change_value_in_slice(live, place->item, args->key_bytes, &bytes))
			return kv_answer(kv->call, KV_TOO_LARGE, 0, 0);
		new.part[!old] = new.part[0];
		new.part_bytes[!old] = new.part_bytes[0];
		new.part[old] = (const __u8 *)(live + 1) + args->key_bytes;
		new.part_bytes[old] = bytes;
		new.flags = le32_to_cpu(live->flags);
		new.expiry_s = le32_to_cpu(live->expiry_s);
	}
	return kv_item_replace(kv, work, place, hash, &new, new.part_bytes[0] + new.part_bytes[1]);
}

/* A decimal number, perhaps with a minus. False: it is none, or has more than 64 bits. */
static bool change_parse(const __u8 *text, __u32 bytes, bool is_signed, __u64 *number)
{
	bool minus = is_signed && bytes && text[0] == '-';
	__u64 value = 0;
	__u32 n;

	while (bytes > 1 && text[bytes - 1] == ' ')
		bytes--;
	if (bytes == minus || bytes > CHANGE_NUMBER_BYTES_MAX)
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

static __u32 change_print(__u8 text[CHANGE_NUMBER_BYTES_MAX], __u64 number, bool is_signed)
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

static enum kv_status change_sum(__u64 *number, __u64 by, __u32 mode)
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

static int change_add(struct kv *kv, struct kv_work *work, const struct kv_args *args,
		      const struct kv_place *place, __u64 hash, const struct kv_item *live)
{
	const __u8 *key = (const __u8 *)(args + 1);
	bool is_signed = args->mode == KV_MODE_SIGNED;
	enum kv_status status = KV_OK;
	__u8 text[CHANGE_NUMBER_BYTES_MAX];
	struct kv_new new = { .key = key,
			      .part = { text, NULL },
			      .key_bytes = args->key_bytes,
			      .expiry_s = le32_to_cpu(args->expiry_s) };
	__u64 number;

	if (args->mode > KV_MODE_SIGNED || (args->value_bytes && le32_to_cpu(args->value_bytes) != 8))
		return -EINVAL;
	if (le64_to_cpu(args->version))
		status = kv_item_permits(live, KV_MODE_SET, le64_to_cpu(args->version));
	else if (!live && !args->value_bytes)
		status = KV_NOT_FOUND;
	if (status)
		return kv_answer(kv->call, status, 0, 0);
	if (live) {
		const __u8 *value = (const __u8 *)(live + 1) + args->key_bytes;
		__u32 bytes;

		if (!change_value_in_slice(live, place->item, args->key_bytes, &bytes) ||
		    !change_parse(value, bytes, is_signed, &number))
			return kv_answer(kv->call, KV_NOT_A_NUMBER, 0, 0);
		status = change_sum(&number, le64_to_cpu(args->number), args->mode);
		if (status)
			return kv_answer(kv->call, status, 0, 0);
		new.flags = le32_to_cpu(live->flags);
		new.expiry_s = le32_to_cpu(live->expiry_s);
	} else {
		__le64 first;

		memcpy(&first, key + args->key_bytes, sizeof(first));
		number = le64_to_cpu(first);
	}
	new.part_bytes[0] = change_print(text, number, is_signed);
	return kv_item_replace(kv, work, place, hash, &new, number);
}

static int change_delete(struct kv *kv, const struct kv_args *args, const struct kv_place *place,
			 const struct kv_item *live)
{
	if (live && args->version && offload_load(&live->version) != le64_to_cpu(args->version))
		return kv_answer(kv->call, KV_EXISTS, 0, 0);
	if (place->item) {
		kv_set_slot(place->bucket, place->slot, 0);
		kv_count_item(kv, place->at, -1);
		kv_memory_free(kv, place->item, place->at);
	}
	return kv_answer(kv->call, live ? KV_OK : KV_NOT_FOUND, 0, 0);
}

static int change_touch(struct kv *kv, const struct kv_args *args, struct kv_item *live)
{
	enum kv_status status = kv_item_permits(live, KV_MODE_SET, le64_to_cpu(args->version));

	if (status || !live)
		return kv_answer(kv->call, live ? status : KV_NOT_FOUND, 0, 0);
	offload_store_32(&live->expiry_s, le32_to_cpu(args->expiry_s));
	live->seen = 1;
	return kv_answer(kv->call, KV_OK, offload_load(&live->version), 0);
}

/* The functions on a key. */
int kv_change(struct kv *kv, const struct kv_args *args, __u64 hash)
{
	struct kv_work *work = rmem_scratch(kv->call, sizeof(*work));
	struct kv_item *live;
	struct kv_place place;
	int error = kv_item_search(kv, hash, (const __u8 *)(args + 1), args->key_bytes, &place);

	if (error)
		return error;
	live = kv_item_current(kv, &place);
	switch (rmem_function(kv->call)) {
	case KV_SET:
		return change_set(kv, work, args, &place, hash, live);
	case KV_ADD:
		return change_add(kv, work, args, &place, hash, live);
	case KV_DELETE:
		return change_delete(kv, args, &place, live);
	default:
		return change_touch(kv, args, live);
	}
}

/* The item at the offset of the arguments. False: it isn't whole, or its key is none. */
static bool change_sets_item(struct rmem_call *call, __u32 at, struct kv_new *new, __u32 *end)
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

static bool change_sets_are_whole(struct rmem_call *call, __u32 count)
{
	__u32 at = sizeof(struct kv_sets_args);
	struct kv_new new;

	while (count && change_sets_item(call, at, &new, &at))
		count--;
	return !count && at == rmem_args_bytes(call);
}

/* An item a step. */
int kv_change_sets(struct rmem_call *call)
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
	error = kv_table_open(&kv, call, args->table, le32_to_cpu(args->now_s), true);
	if (error)
		return error;
	if (!work->at) {
		if (!change_sets_are_whole(call, args->count))
			return -EINVAL;
		work->at = sizeof(*args);
	}
	if (!change_sets_item(call, work->at, &new, &end))
		return -EINVAL;
	hash = kv_hash_of(&kv, new.key, new.key_bytes);
	error = kv_item_search(&kv, hash, new.key, new.key_bytes, &place);
	if (!error)
		error = kv_item_replace(&kv, work, &place, hash, &new, 0);
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
	if (!change_sets_item(call, work->at, &new, &end))
		return -EINVAL;
	rmem_prefetch(call, kv.at + kv_bucket_of(&kv, kv_hash_of(&kv, new.key, new.key_bytes)));
	return RMEM_AGAIN;
}
