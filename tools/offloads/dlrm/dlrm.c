// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Sums of embedding rows (Orca's DLRM, HPCA'23, section IV-C; the memo after MERCI, ASPLOS'21).
 *
 * A step looks at DLRM_STEP_ROWS rows, which prefetches each, and then adds them. So their cache
 * misses overlap each other, and the search of the page table for the rows behind. The first step
 * also checks the arguments. rmem_prefetch() for the next step's rows would search the page table
 * twice for each row, which takes longer than to add the row.
 */
#include "dlrm.h"

#include "../common.h"

#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

#define DLRM_STEP_ROWS 16U
#define DLRM_LINE_BYTES 64U

/* Kinds of rows. */
enum dlrm_kind {
	DLRM_KIND_I8,
	DLRM_KIND_I16,
	DLRM_KIND_F32,
};

struct dlrm {
	__u32 begun;
	__u32 next;  /* id to be added */
	__u32 group; /* number of the group that it is part of */
	__u32 left;  /* ids of that group, from `next` on */
};

/* The parts of the arguments. */
struct dlrm_query {
	const struct dlrm_args *args;
	const __le16 *count;
	const __le32 *id;
	__u32 groups, ids;
	enum dlrm_kind row_kind, memo_kind;
};

/* A row that is to be added, in a slice or in `copy`. */
struct dlrm_row {
	const void *at;
	enum dlrm_kind kind;
	__u32 group;
};

static __u32 dlrm_bytes(enum dlrm_kind kind)
{
	return kind == DLRM_KIND_I8  ? DLRM_I8_ROW_BYTES :
	       kind == DLRM_KIND_I16 ? DLRM_I8_MEMO_BYTES :
				       DLRM_F32_ROW_BYTES;
}

static int dlrm_parse(struct rmem_call *call, struct dlrm_query *query)
{
	const struct dlrm_args *args = rmem_args(call, sizeof(*args));
	__u32 counts_bytes;

	switch (rmem_function(call)) {
	case DLRM_SUM_I8:
		query->row_kind = DLRM_KIND_I8;
		query->memo_kind = DLRM_KIND_I16;
		break;
#ifndef __KERNEL__
	case DLRM_SUM_F32:
		query->row_kind = DLRM_KIND_F32;
		query->memo_kind = DLRM_KIND_F32;
		break;
#endif
	default:
		return -ENOSYS;
	}
	if (!args)
		return -EINVAL;
	query->args = args;
	query->groups = le16_to_cpu(args->groups);
	query->ids = le16_to_cpu(args->ids);
	if (!query->groups || query->groups > DLRM_GROUPS_MAX || query->ids > DLRM_IDS_MAX)
		return -EINVAL;
	counts_bytes = DLRM_COUNTS_BYTES(query->groups);
	if (rmem_args_bytes(call) !=
	    sizeof(*args) + counts_bytes + query->ids * sizeof(*query->id))
		return -EINVAL;
	query->count = (const __le16 *)(args + 1);
	query->id = (const __le32 *)((const char *)query->count + counts_bytes);
	return 0;
}

/* Later steps rely on this: the groups have as many ids as there are. */
static int dlrm_check(const struct dlrm_query *query)
{
	__u32 sum = 0, n;

	for (n = 0; n < query->groups; n++)
		sum += le16_to_cpu(query->count[n]);
	/* An odd number of counts is padded. */
	if (query->groups % 2 && query->count[query->groups])
		return -EINVAL;
	return sum != query->ids || query->args->reserved ? -EINVAL : 0;
}

/* Address and kind of the nth id's row. False: there is no such row. */
static _Bool dlrm_find(const struct dlrm_query *query, __u32 n, __u64 *addr, enum dlrm_kind *kind)
{
	__u32 id = le32_to_cpu(query->id[n]);
	__u32 index = id & ~DLRM_MEMO;
	_Bool memo = id & DLRM_MEMO;

	*kind = memo ? query->memo_kind : query->row_kind;
	*addr = le64_to_cpu(memo ? query->args->memo : query->args->rows) +
		(__u64)index * dlrm_bytes(*kind);
	return index < le32_to_cpu(memo ? query->args->memo_count : query->args->row_count);
}

/*
 * The row's bytes: a slice, whose lines come while others are looked at; or *copy of a row that
 * lies in two pages, for clients can have put a table anywhere.
 */
static const void *dlrm_look(struct rmem_call *call, __u64 addr, __u32 bytes, __u8 *copy,
			     int *error)
{
	const char *row = rmem_look(call, addr, bytes);
	__u32 line;

	if (row) {
		for (line = 0; line < bytes; line += DLRM_LINE_BYTES)
			__builtin_prefetch(row + line);
		return row;
	}
	*error = rmem_error(call);
	if (*error != -EINVAL)
		return NULL;
	*error = rmem_read(call, addr, copy, bytes);
	return *error ? NULL : copy;
}

/* ---- sums ----------------------------------------------------------------------------------- */

/* Rows lie at any address, and other clients can write to them meanwhile. */
typedef __le16 __attribute__((aligned(1), may_alias)) dlrm_le16;
typedef __le32 __attribute__((may_alias)) dlrm_le32;

static __always_inline void dlrm_add_i8(dlrm_le32 *restrict sum, const __s8 *restrict row)
{
	__u32 n;

	for (n = 0; n < DLRM_DIM; n++)
		sum[n] = cpu_to_le32(le32_to_cpu(sum[n]) + (__u32)row[n]);
}

static __always_inline void dlrm_add_i16(dlrm_le32 *restrict sum, const dlrm_le16 *restrict row)
{
	__u32 n;

	for (n = 0; n < DLRM_DIM; n++)
		sum[n] = cpu_to_le32(le32_to_cpu(sum[n]) + (__u32)(__s16)le16_to_cpu(row[n]));
}

#ifndef __KERNEL__
typedef float __attribute__((aligned(1), may_alias)) dlrm_f32;

static __always_inline void dlrm_add_f32(dlrm_f32 *restrict sum, const dlrm_f32 *restrict row)
{
	__u32 n;

	for (n = 0; n < DLRM_DIM; n++)
		sum[n] += row[n];
}
#endif

static __always_inline void dlrm_add_all(char *sums, const struct dlrm_row *row, __u32 rows)
{
	__u32 n;

	for (n = 0; n < rows; n++) {
		void *sum = sums + row[n].group * DLRM_SUM_BYTES;

		switch (row[n].kind) {
		case DLRM_KIND_I8:
			dlrm_add_i8(sum, row[n].at);
			break;
		case DLRM_KIND_I16:
			dlrm_add_i16(sum, row[n].at);
			break;
		case DLRM_KIND_F32:
#ifndef __KERNEL__
			dlrm_add_f32(sum, row[n].at);
#endif
			break;
		}
	}
}

#if !defined(__KERNEL__) && defined(__x86_64__)
__attribute__((target("avx2"))) static void dlrm_add_avx2(char *sums, const struct dlrm_row *row,
							  __u32 rows)
{
	dlrm_add_all(sums, row, rows);
}
#define dlrm_has_avx2() __builtin_cpu_supports("avx2")
#else
#define dlrm_add_avx2 dlrm_add_all
#define dlrm_has_avx2() 0
#endif

static void dlrm_add(char *sums, const struct dlrm_row *row, __u32 rows)
{
	if (dlrm_has_avx2())
		dlrm_add_avx2(sums, row, rows);
	else
		dlrm_add_all(sums, row, rows);
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* Goes on to the group of the next id. Groups can be empty. */
static void dlrm_skip(const struct dlrm_query *query, struct dlrm *state)
{
	while (!state->left && state->group + 1 < query->groups)
		state->left = le16_to_cpu(query->count[++state->group]);
}

static int dlrm_rows(struct rmem_call *call, const struct dlrm_query *query, struct dlrm *state,
		     char *sums)
{
	struct dlrm_row row[DLRM_STEP_ROWS];
	__u8 copy[DLRM_F32_ROW_BYTES];
	__u32 rows = 0;
	int error = 0;

	while (rows < DLRM_STEP_ROWS && state->next < query->ids) {
		struct dlrm_row *each = &row[rows++];
		__u64 addr;

		if (!dlrm_find(query, state->next, &addr, &each->kind))
			return -EINVAL;
		each->at = dlrm_look(call, addr, dlrm_bytes(each->kind), copy, &error);
		if (!each->at)
			return error;
		dlrm_skip(query, state);
		each->group = state->group;
		state->left--;
		state->next++;
		/* There is one copy: add it before another row needs it. */
		if (each->at == copy)
			break;
	}
	dlrm_add(sums, row, rows);
	return 0;
}

static int dlrm_step(struct rmem_call *call)
{
	struct dlrm *state = rmem_scratch(call, sizeof(*state));
	struct dlrm_query query;
	char *sums;
	int error;

	error = dlrm_parse(call, &query);
	if (error)
		return error;
	sums = rmem_result(call, query.groups * DLRM_SUM_BYTES);
	if (!sums)
		return rmem_error(call);
	if (!state->begun) {
		error = dlrm_check(&query);
		if (error)
			return error;
		state->begun = 1;
		state->left = le16_to_cpu(query.count[0]);
	}
	error = dlrm_rows(call, &query, state, sums);
	if (error)
		return error;
	return state->next == query.ids ? 0 : RMEM_AGAIN;
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = DLRM_ID,
	.budget_us = 1000, /* a hundred times as long as all ids take whose rows miss the caches */
	.name = "dlrm",
	.step = dlrm_step,
};

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "dlrm");
MODULE_DESCRIPTION("Sums of embedding rows at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(REMORA_VERSION);
#endif
