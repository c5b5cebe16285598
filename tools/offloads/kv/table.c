// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "table.h"

#define TABLE_ROTATE(x, n) ((x) << (n) | (x) >> (64 - (n)))

static void table_sip_round(__u64 v[4])
{
	v[0] += v[1];
	v[1] = TABLE_ROTATE(v[1], 13) ^ v[0];
	v[0] = TABLE_ROTATE(v[0], 32);
	v[2] += v[3];
	v[3] = TABLE_ROTATE(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = TABLE_ROTATE(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = TABLE_ROTATE(v[1], 17) ^ v[2];
	v[2] = TABLE_ROTATE(v[2], 32);
}

/*
 * SipHash-1-3, as hash tables use it. The core's incremental 2-4 is for tags, and an offload can't
 * call it.
 */
__u64 kv_table_hash(__u64 seed0, __u64 seed1, const __u8 *key, __u32 bytes)
{
	__u64 v[4] = { seed0 ^ 0x736f6d6570736575ULL, seed1 ^ 0x646f72616e646f6dULL,
		       seed0 ^ 0x6c7967656e657261ULL, seed1 ^ 0x7465646279746573ULL };
	__u64 last = (__u64)bytes << 56;
	__u32 n;

	for (n = 0; n + 8 <= bytes; n += 8) {
		__le64 word;

		memcpy(&word, key + n, sizeof(word));
		v[3] ^= le64_to_cpu(word);
		table_sip_round(v);
		v[0] ^= le64_to_cpu(word);
	}
	for (; n < bytes; n++)
		last |= (__u64)key[n] << 8 * (n % 8);
	v[3] ^= last;
	table_sip_round(v);
	v[0] ^= last;
	v[2] ^= 0xff;
	table_sip_round(v);
	table_sip_round(v);
	table_sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

int kv_table_open(struct kv *kv, struct rmem_call *call, __le64 table, __u32 now_s, bool change)
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
