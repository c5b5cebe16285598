// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Rows filtered at the node, and a column of theirs summed up: only the result travels. A step looks
 * at the rows of one slice of 1 KiB, 64 at most, and prefetches the next.
 *
 * Slices end at multiples of 4 KiB, so they lie in one page. A row across such a border is looked at
 * alone, column by column. Clients can change rows meanwhile: nothing but the result depends on them.
 */
#include "filter.h"

#include "../common.h"

#define FILTER_SLICE_BYTES 1024U /* every node permits slices of so many bytes */
#define FILTER_BLOCK_BYTES 4096U /* a page is a multiple of it */
#define FILTER_STEP_ROWS 64U	 /* a microsecond or so, at 10 to 16 ns a row */
#define FILTER_SIGN (1ULL << 63)

/* From step to step. */
struct filter {
	__u64 next; /* row */
	__u64 matches;
	__u64 sum_low, sum_high;
	__u64 least, greatest; /* as filter_value() has them */
	__u32 steps;
	bool full; /* the result has no room for another row number */
};

/* Where the columns of one row are. */
struct filter_row {
	const __u8 *test[2], *column;
};

_Static_assert(sizeof(struct filter_args) == 88 && sizeof(struct filter_found) == 48,
	       "as documented");

/* ---- columns -------------------------------------------------------------------------------- */

/* 0: no column. */
static __u32 filter_bytes(const struct filter_column *column)
{
	return column->type & ~(__u32)FILTER_SIGNED;
}

static bool filter_all_zeros(const __u8 *bytes, __u32 count)
{
	__u8 any = 0;

	while (count--)
		any |= bytes[count];
	return !any;
}

static bool filter_is_column(const struct filter_column *column, __u32 row_bytes)
{
	__u32 bytes = filter_bytes(column);

	return (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) && bytes <= row_bytes &&
	       le16_to_cpu(column->offset) <= row_bytes - bytes &&
	       filter_all_zeros(column->reserved, sizeof(column->reserved));
}

static bool filter_is_test(const struct filter_test *test, __u32 row_bytes)
{
	if (!filter_all_zeros(test->reserved, sizeof(test->reserved)))
		return false;
	if (test->compare == FILTER_ANY && !test->value &&
	    filter_all_zeros((const __u8 *)&test->column, sizeof(test->column)))
		return true;
	return test->compare >= FILTER_LT && test->compare <= FILTER_ANY &&
	       filter_is_column(&test->column, row_bytes);
}

/* So that unsigned comparison gives the order of a column's values. */
static __u64 filter_order(const struct filter_column *column, __u64 value)
{
	return column->type & FILTER_SIGNED ? value ^ FILTER_SIGN : value;
}

static __u64 filter_value(const struct filter_column *column, const __u8 *from)
{
	__u32 bytes = filter_bytes(column);
	__u64 value, sign;
	__le64 whole;
	__le32 half;
	__le16 quarter;

	if (bytes == 8) {
		__builtin_memcpy(&whole, from, sizeof(whole));
		value = le64_to_cpu(whole);
	} else if (bytes == 4) {
		__builtin_memcpy(&half, from, sizeof(half));
		value = le32_to_cpu(half);
	} else if (bytes == 2) {
		__builtin_memcpy(&quarter, from, sizeof(quarter));
		value = le16_to_cpu(quarter);
	} else {
		value = *from;
	}
	if (!(column->type & FILTER_SIGNED))
		return value;
	sign = 1ULL << (8 * bytes - 1);
	return ((value ^ sign) - sign) ^ FILTER_SIGN;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static bool filter_test(const struct filter_test *test, const __u8 *from)
{
	__u64 value, limit;

	if (!filter_bytes(&test->column))
		return true;
	value = filter_value(&test->column, from);
	limit = filter_order(&test->column, le64_to_cpu(test->value));
	return test->compare >> ((value >= limit) + (value > limit)) & 1;
}

static void filter_add(struct filter *filter, const struct filter_column *column, __u64 value)
{
	__u64 addend = filter_order(column, value);

	if (value < filter->least || !filter->matches)
		filter->least = value;
	if (value > filter->greatest || !filter->matches)
		filter->greatest = value;
	filter->sum_low += addend;
	filter->sum_high += filter->sum_low < addend;
	if (column->type & FILTER_SIGNED && addend & FILTER_SIGN)
		filter->sum_high--;
}

static void filter_look(struct rmem_call *call, struct filter *filter,
			const struct filter_args *args, const struct filter_row *row)
{
	bool first = filter_test(&args->test[0], row->test[0]);
	bool second = filter_test(&args->test[1], row->test[1]);

	/* Without a jump for each test, which a processor would have to guess. */
	if (args->either ? first | second : first & second) {
		if (rmem_function(call) == FILTER_RUN) {
			filter_add(filter, &args->column, filter_value(&args->column, row->column));
		} else {
			struct filter_rows *rows = rmem_result(call, sizeof(*rows) +
							       8 * ((__u32)filter->matches + 1));

			if (!rows) {
				filter->full = true;
				return;
			}
			((__le64 *)(rows + 1))[filter->matches] = cpu_to_le64(filter->next);
		}
		filter->matches++;
	}
	filter->next++;
}

/* Rows of one slice. */
static int filter_rows(struct rmem_call *call, struct filter *filter,
		       const struct filter_args *args, __u64 at, __u32 count)
{
	__u32 row_bytes = le32_to_cpu(args->row_bytes), n;
	const __u8 *slice = rmem_look(call, at, count * row_bytes);

	if (!slice)
		return rmem_error(call);
	for (n = 0; n < count && !filter->full; n++, slice += row_bytes) {
		struct filter_row row = {
			{ slice + le16_to_cpu(args->test[0].column.offset),
			  slice + le16_to_cpu(args->test[1].column.offset) },
			slice + le16_to_cpu(args->column.offset),
		};

		filter_look(call, filter, args, &row);
	}
	return 0;
}

static int filter_copy(struct rmem_call *call, const struct filter_column *column, __u64 row,
		       __u8 to[8])
{
	__u32 bytes = filter_bytes(column);

	return bytes ? rmem_read(call, row + le16_to_cpu(column->offset), to, bytes) : 0;
}

/* A row that isn't in one slice. */
static int filter_lone_row(struct rmem_call *call, struct filter *filter,
			   const struct filter_args *args, __u64 at)
{
	__u8 copy[3][8] = {};
	struct filter_row row = { { copy[0], copy[1] }, copy[2] };
	int error = filter_copy(call, &args->test[0].column, at, copy[0]);

	if (!error)
		error = filter_copy(call, &args->test[1].column, at, copy[1]);
	if (!error)
		error = filter_copy(call, &args->column, at, copy[2]);
	if (!error)
		filter_look(call, filter, args, &row);
	return error;
}

/* ---- call ----------------------------------------------------------------------------------- */

static bool filter_is_valid(const struct filter_args *args, bool runs)
{
	__u64 addr = le64_to_cpu(args->addr), rows = le64_to_cpu(args->rows);
	__u32 row_bytes = le32_to_cpu(args->row_bytes);

	if (row_bytes - 1 >= FILTER_ROW_BYTES_MAX || rows > FILTER_ROWS_MAX ||
	    le64_to_cpu(args->first) > rows || addr + rows * row_bytes < addr ||
	    le32_to_cpu(args->either) > 1)
		return false;
	return filter_is_test(&args->test[0], row_bytes) && filter_is_test(&args->test[1], row_bytes) &&
	       (runs ? filter_is_column(&args->column, row_bytes) :
		       filter_all_zeros((const __u8 *)&args->column, sizeof(args->column)));
}

static int filter_answer(struct rmem_call *call, const struct filter *filter,
			 const struct filter_args *args)
{
	__u64 least = 0, greatest = 0;
	struct filter_found *found;

	if (rmem_function(call) == FILTER_ROWS) {
		__u32 matches = (__u32)filter->matches;
		struct filter_rows *rows = rmem_result(call, sizeof(*rows) + 8 * matches);

		if (!rows || (filter->full && !matches))
			return -EMSGSIZE;
		rows->next = cpu_to_le64(filter->next);
		rows->count = cpu_to_le64(matches);
		return 0;
	}
	found = rmem_result(call, sizeof(*found));
	if (!found)
		return rmem_error(call);
	if (filter->matches) {
		least = filter_order(&args->column, filter->least);
		greatest = filter_order(&args->column, filter->greatest);
	}
	found->next = cpu_to_le64(filter->next);
	found->matches = cpu_to_le64(filter->matches);
	found->sum_low = cpu_to_le64(filter->sum_low);
	found->sum_high = cpu_to_le64(filter->sum_high);
	found->least = cpu_to_le64(least);
	found->greatest = cpu_to_le64(greatest);
	return 0;
}

static int filter_step(struct rmem_call *call)
{
	const struct filter_args *args = rmem_args(call, sizeof(*args));
	struct filter *filter = rmem_scratch(call, sizeof(*filter));
	__u32 row_bytes, count, room;
	__u64 at, left;
	int error = 0;

	if (rmem_function(call) > FILTER_ROWS)
		return -ENOSYS;
	if (!args || rmem_args_bytes(call) != sizeof(*args))
		return -EINVAL;
	row_bytes = le32_to_cpu(args->row_bytes);
	if (!filter->steps) {
		if (!filter_is_valid(args, rmem_function(call) == FILTER_RUN))
			return -EINVAL;
		filter->next = le64_to_cpu(args->first);
	} else {
		at = le64_to_cpu(args->addr) + filter->next * row_bytes;
		left = le64_to_cpu(args->rows) - filter->next;
		room = FILTER_BLOCK_BYTES - at % FILTER_BLOCK_BYTES;
		count = (room < FILTER_SLICE_BYTES ? room : FILTER_SLICE_BYTES) / row_bytes;
		if (count > FILTER_STEP_ROWS)
			count = FILTER_STEP_ROWS;
		if (count > left)
			count = (__u32)left;
		error = count ? filter_rows(call, filter, args, at, count) :
				filter_lone_row(call, filter, args, at);
	}
	if (error)
		return error;
	if (filter->full || filter->next == le64_to_cpu(args->rows) ||
	    filter->steps++ == FILTER_STEPS)
		return filter_answer(call, filter, args);
	rmem_prefetch(call, le64_to_cpu(args->addr) + filter->next * row_bytes);
	return RMEM_AGAIN;
}

const struct rmem_offload_ops rmem_offload = {
	.version = RMEM_OFFLOAD_VERSION,
	.id = FILTER_ID,
	.budget_us = 10000, /* five times FILTER_STEPS of up to 2 us */
	.name = "filter",
	.step = filter_step,
};

#ifdef __KERNEL__
RMEM_OFFLOAD_MODULE(rmem_offload, "filter");
MODULE_DESCRIPTION("Filter and sum of rows at a memory node");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION(REMORA_VERSION);
#endif
