/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The chase's arguments and results (include/remora/rmem.h has the messages). All fields are
 * little-endian. A list's element has its key and the address of the next element, 8 bytes each,
 * at the offsets that the arguments tell; address 0 ends the list.
 */
#ifndef REMORA_OFFLOADS_CHASE_H
#define REMORA_OFFLOADS_CHASE_H

#include <linux/types.h>

#define CHASE_ID 1

enum chase_function {
	/* QUERY. Find the first element with the key. Arguments chase_args, result chase_found. */
	CHASE_FIND = 0,
	/*
	 * CALL. Find it, and add to the integer of 8 bytes at value_offset of it, as ATOMIC does.
	 * Arguments chase_add_args, result chase_added.
	 */
	CHASE_ADD = 1,
};

struct chase_args {
	__le64 start;	    /* the first element */
	__le64 key;
	__le32 key_offset;  /* bytes, below 64 KiB, of the element's key */
	__le32 next_offset; /* the same of the next one's address */
	__le64 steps_max;   /* elements to be looked at; 0: as many as the budget permits */
};

struct chase_found {
	__le64 addr;  /* the element; 0: the list has none */
	__le64 steps; /* elements looked at */
};

struct chase_add_args {
	struct chase_args find;
	__le32 value_offset; /* bytes, below 64 KiB; the integer's address is a multiple of 8 */
	__le32 reserved;     /* 0 */
	__le64 value;
};

struct chase_added {
	__le64 addr;  /* the element; 0: the list has none */
	__le64 value; /* before the addition */
};

#endif
