/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Sums of embedding rows, as recommendation models need them: arguments and results. All fields
 * are little-endian.
 *
 * A table is an array of rows of DLRM_DIM numbers. A second array, the memo, can hold sums of rows
 * that queries often name together. A client replaces their ids by the memo's. The node adds the
 * rows and entries that the ids name, and knows nothing of the memo's content. The order of ids
 * doesn't matter for sums of integers.
 *
 * A function fails (RMEM_FAILED) with EINVAL: arguments, or an id beyond its array; EMSGSIZE: the
 * client has less room than a sum for each group; or the errno of an access.
 */
#ifndef REMORA_OFFLOADS_DLRM_H
#define REMORA_OFFLOADS_DLRM_H

#include <linux/types.h>

#define DLRM_ID 5

#define DLRM_DIM 64U	    /* numbers of a row and of a sum */
#define DLRM_GROUPS_MAX 16U /* sums of a call */
#define DLRM_IDS_MAX 247U   /* of a call, in all groups: as many as its arguments have room for */

enum dlrm_function {
	/*
	 * QUERY: dlrm_args; result: DLRM_DIM __le32 for each group, in two's complement. Rows have
	 * __s8, memo entries __le16, signed. DLRM_IDS_MAX of these can't overflow a sum.
	 */
	DLRM_SUM_I8 = 0,
	/*
	 * QUERY, by remora-node only; ENOSYS by the kernel's node. Rows, memo entries and sums are
	 * floats (IEEE 754 binary32). A group's are added in the order of its ids, from 0 on.
	 */
	DLRM_SUM_F32 = 1,
};

#define DLRM_I8_ROW_BYTES (DLRM_DIM * 1U)
#define DLRM_I8_MEMO_BYTES (DLRM_DIM * 2U)
#define DLRM_F32_ROW_BYTES (DLRM_DIM * 4U) /* and a memo entry's */
#define DLRM_SUM_BYTES (DLRM_DIM * 4U)

/*
 * Behind it: `groups` numbers of ids, __le16, padded with zeros to a multiple of 4; then all
 * groups' ids, __le32 each, nothing behind them. A group MAY be empty, and then its sum is 0.
 */
struct dlrm_args {
	__le64 rows;	   /* address of row 0; of any alignment, best a multiple of 256 */
	__le64 memo;	   /* the same of the memo */
	__le32 row_count;  /* ids are below; at most DLRM_MEMO */
	__le32 memo_count; /* 0: there is no memo */
	__le16 groups;	   /* 1 to DLRM_GROUPS_MAX */
	__le16 ids;	   /* in all groups, 0 to DLRM_IDS_MAX */
	__le32 reserved;   /* 0 */
};

#define DLRM_MEMO 0x80000000U /* in an id: the rest is a memo entry's number */
#define DLRM_COUNTS_BYTES(groups) (((groups) * 2U + 3U) & ~3U)

#endif
