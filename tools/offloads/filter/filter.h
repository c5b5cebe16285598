/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A filter over rows in remote memory: its functions, their arguments and results. All fields are
 * little-endian.
 *
 * Rows have one size and lie one behind the other. A row matches if its columns compare as up to two
 * tests say. One call looks at up to FILTER_STEPS steps of rows; `next` of the result tells where the
 * next call goes on. Clients combine the results of such calls.
 *
 * A function fails (RMEM_FAILED) with EINVAL: arguments; EFAULT: a row isn't allocated; EMSGSIZE:
 * the client has no room for the result.
 *
 * A call that is stopped (RMEM_OVER_BUDGET) has no result: the node was busier than FILTER_STEPS
 * allow for. The client calls again with fewer rows, by a lower `rows`.
 *
 * Other clients can write to rows meanwhile. Each use of a column is a load of its own: a test, and
 * the sum. So a value beside a writer can be counted that is outside of the tests.
 */
#ifndef REMORA_OFFLOADS_FILTER_H
#define REMORA_OFFLOADS_FILTER_H

#include <linux/types.h>

#define FILTER_ID 7

#define FILTER_ROW_BYTES_MAX 1024U
#define FILTER_ROWS_MAX (1ULL << 48)
/*
 * Steps of a call, each of up to 64 rows in 1 KiB: one row at least. They bound how long a call holds
 * up another client's FENCE.
 */
#define FILTER_STEPS 1024U

enum filter_function {
	/*
	 * QUERY: filter_args, filter_found. Counts the matching rows, and tells sum, least and greatest
	 * value of a column of theirs.
	 */
	FILTER_RUN = 0,
	/*
	 * QUERY: filter_args, filter_rows and the numbers of matching rows, 8 bytes each, in their
	 * order: as many as there is room for.
	 */
	FILTER_ROWS = 1,
};

/* An integer in a row: its bytes, and whether it is signed. */
enum filter_type {
	FILTER_U8 = 1,
	FILTER_U16 = 2,
	FILTER_U32 = 4,
	FILTER_U64 = 8,
	FILTER_SIGNED = 16, /* with one of these */
};

/* A bit for each outcome: less, equal, greater. */
enum filter_compare {
	FILTER_LT = 1,
	FILTER_EQ = 2,
	FILTER_LE = 3,
	FILTER_GT = 4,
	FILTER_NE = 5,
	FILTER_GE = 6,
	FILTER_ANY = 7,
};

struct filter_column {
	__le16 offset;	 /* of its first byte in the row; need not be aligned */
	__u8 type;	 /* enum filter_type */
	__u8 reserved[5]; /* 0 */
};

/* compare FILTER_ANY and all else 0: each row matches, as if there were no such test. */
struct filter_test {
	__le64 value; /* the column's is compared with it; signed as the column is */
	struct filter_column column;
	__u8 compare; /* enum filter_compare: the column's value is less than `value`, ... */
	__u8 reserved[7]; /* 0 */
};

struct filter_args {
	__le64 addr;  /* of row 0 */
	__le64 rows;  /* up to FILTER_ROWS_MAX */
	__le64 first; /* row to begin at; results are those of rows from here on */
	__le32 row_bytes; /* 1 to FILTER_ROW_BYTES_MAX */
	__le32 either;	  /* 0: rows match both tests; 1: one of them suffices */
	struct filter_test test[2];
	struct filter_column column; /* FILTER_RUN: to be summed up; FILTER_ROWS: all 0 */
};

struct filter_found {
	__le64 next;	/* first row that wasn't looked at; `rows`: none is left */
	__le64 matches; /* rows */
	/*
	 * The sum has 128 bits, in two's complement if the column is signed. It can't overflow, for
	 * there are at most 2^48 rows.
	 */
	__le64 sum_low, sum_high;
	__le64 least, greatest; /* signed as the column is; 0 without matches */
};

struct filter_rows {
	__le64 next; /* as above */
	__le64 count; /* of row numbers that follow */
};

#endif
