/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A key-value table in remote memory: its functions, their arguments and results, and the parts of
 * the table that a client READs and WRITEs. All fields are little-endian; all times are Unix time in seconds.
 *
 * A client allocates a region of zeros, calls KV_FORMAT once, and names the table's address in all
 * other calls. The node has no clock: each call tells the time, so the clocks of a table's clients
 * MUST agree within 10 s.
 *
 * A function fails (RMEM_FAILED) with ENOENT: there is no table at that address; EUCLEAN: the
 * table's memory is damaged; EINVAL: arguments; or an errno of an access. All else is a status.
 */
#ifndef REMORA_OFFLOADS_KV_H
#define REMORA_OFFLOADS_KV_H

#include <linux/types.h>

#define KV_ID 2

#define KV_KEY_BYTES_MAX 250U
#define KV_VALUE_BYTES_MAX (1U << 20)
#define KV_KEYS_MAX 64U	   /* of a KV_GET */
#define KV_USED_MAX 64U	   /* addresses of a KV_USED */
#define KV_STAGE_S 60U	   /* a staged item is freed after this time; clients give up at half */
#define KV_TABLE_ALIGN 65536U

enum kv_function {
	KV_FORMAT = 0,	/* CALL: kv_format_args. Makes a table of zeros. KV_EXISTS: there is one */
	KV_GET = 1,	/* QUERY: kv_get_args and keys; kv_get_result and values */
	KV_SET = 2,	/* CALL: kv_args, key, value. Stores a value that fits in the arguments */
	KV_DELETE = 3,	/* CALL: kv_args, key */
	KV_ADD = 4,	/* CALL: kv_args, key, or key and __le64. Adds to a decimal number */
	KV_TOUCH = 5,	/* CALL: kv_args, key. Sets expiry_s */
	KV_FLUSH = 6,	/* CALL: kv_args. All items of before are gone, and aren't counted any more */
	KV_STATS = 7,	/* QUERY: kv_args; kv_stats */
	KV_STAGE = 8,	/* CALL: kv_args, key. Room for a value of value_bytes, which the client WRITEs */
	KV_PUBLISH = 9, /* CALL: kv_args, __le64. Stores the staged item `number` */
	KV_SETS = 11,	/* CALL: kv_sets_args and items. KV_SET of several items, in their order */
	KV_USED = 10,	/* CALL: kv_used_args and addresses. Items that were read; a cache keeps them */
};

/* ---- CALLs ---------------------------------------------------------------------------------- */

enum kv_option {
	KV_CACHE = 1, /* KV_FORMAT: evict when memory is full; else KV_NO_MEMORY */
};

struct kv_format_args {
	__le64 table;	/* address of the region, a multiple of KV_TABLE_ALIGN */
	__le64 bytes;	/* of the region */
	__le64 seed[2]; /* random: else a client that chooses keys chooses their buckets, too */
	__le32 buckets; /* of 7 items each: the items expected / 5.6 for a load of 80 % */
	__le32 options; /* enum kv_option */
};

enum kv_mode {
	KV_MODE_SET = 0,
	KV_MODE_ADD = 1,     /* only if the key isn't there */
	KV_MODE_REPLACE = 2, /* only if it is; this and the next two */
	KV_MODE_APPEND = 3,  /* KV_SET: keeps flags and expiry; KV_TOO_LARGE: join, then compare and set */
	KV_MODE_PREPEND = 4,
	/* KV_ADD: */
	KV_MODE_UP = 0,	    /* unsigned, modulo 2^64 */
	KV_MODE_DOWN = 1,   /* unsigned, not below 0 */
	KV_MODE_SIGNED = 2, /* signed; KV_OVERFLOW */
};

/* Arguments of all CALLs on keys; fields that a function doesn't name MUST be 0. */
struct kv_args {
	__le64 table;
	__le64 version;	    /* not 0: KV_EXISTS unless the item has this version */
	__le64 number;	    /* KV_ADD: addend; KV_PUBLISH: the staged item's address */
	__le32 now_s;
	__le32 expiry_s;    /* SET, PUBLISH, TOUCH, and ADD of a new item; 0: never */
	__le32 flags;	    /* SET, PUBLISH: the client's, as GET returns them */
	__le32 value_bytes; /* SET: behind the key; ADD: 0, or 8 for the number of a new item */
			    /* STAGE: of the item to come; PUBLISH: 8, the version that STAGE told */
	__u8 mode;	    /* enum kv_mode */
	__u8 key_bytes;	    /* 1 to KV_KEY_BYTES_MAX; FLUSH, STATS, PUBLISH: 0 */
	__u8 reserved[6];
};

enum kv_status {
	KV_OK = 0,
	KV_NOT_FOUND = 1,  /* DELETE, ADD, TOUCH; SET with a version; PUBLISH: staged too long ago */
	KV_EXISTS = 2,	   /* another version */
	KV_NOT_STORED = 3, /* by its mode */
	KV_NO_MEMORY = 4,
	KV_TOO_LARGE = 5,
	KV_NOT_A_NUMBER = 6,
	KV_OVERFLOW = 7,
};

/* Result of every CALL. */
struct kv_result {
	__le16 status;	  /* enum kv_status */
	__u8 version[6];  /* of the item stored or staged, else 0. Versions grow; never 0 */
	__le64 number;	  /* ADD: the sum; STAGE: address of the item; SET: bytes of the value */
};

/*
 * Behind it `count` times kv_sets_item, key, value, without gaps. The result's number has bit n if
 * the nth item was stored; KV_SET tells why one can't be. Items of different keys are stored one by one.
 */
struct kv_sets_args {
	__le64 table;
	__le32 now_s;
	__u8 count; /* 1 to 64 */
	__u8 reserved[3];
};

struct kv_sets_item {
	__le32 flags;
	__le32 expiry_s;
	__le16 value_bytes;
	__u8 key_bytes;
	__u8 reserved;
};

struct kv_used_args {
	__le64 table;
	__le32 count; /* 1 to KV_USED_MAX, of __le64: kv_found.item */
	__le32 reserved;
};

/* ---- queries --------------------------------------------------------------------------------- */

/* Behind it `count` keys: a byte with their length, and the bytes. */
struct kv_get_args {
	__le64 table;
	__le32 now_s;
	__u8 count; /* 1 to KV_KEYS_MAX */
	__u8 reserved[3];
};

/*
 * Behind it a kv_found for each key that was found, in any order, each followed by its value unless
 * that is elsewhere, and zeros up to a multiple of 8. Keys without room are not answered.
 */
struct kv_get_result {
	__le64 answered; /* bit n: the nth key was looked up */
};

struct kv_found {
	__le64 version;
	__le64 item; /* address of the kv_item */
	__le32 flags;
	__le32 expiry_s;
	__le32 value_bytes;
	__u8 key; /* number of the key */
	__u8 elsewhere; /* the result never has room for this value: READ it from the item */
	__u8 seen;	/* a KV_USED would change nothing */
	__u8 key_bytes;
};

struct kv_stats {
	__le64 bytes;	   /* of the table */
	__le64 items;	   /* with expired ones whose memory wasn't used again */
	__le64 item_bytes; /* heads, keys and values */
	__le64 evicted;	   /* live items that made room for others */
	__le64 reclaimed;  /* expired or flushed items, of which the memory was used again */
	__le64 version;	   /* changes so far */
	__le32 buckets, overflow_slabs;
	__le32 slabs, slabs_used;
	__le32 options, reserved;
};

/* ---- memory --------------------------------------------------------------------------------- */

/*
 * An item, as the client READs and WRITEs it. The key begins at KV_ITEM_BYTES. The value follows if
 * the item fits in one slab (KV_IN_ONE); else, at the next multiple of 8, the addresses of pieces
 * follow, each of which has KV_PIECE_BYTES of the value, the last one the rest.
 *
 * A reader of a value MUST read `version` afterwards. The value is whole if the version is still
 * the one that KV_GET told; else the reader asks again.
 */
struct kv_item {
	__le64 version;	    /* 0: free; from KV_STAGED on: not in the table */
	__le32 flags;	    /* of a free item, with expiry_s: offset of the next one */
	__le32 expiry_s;    /* of a staged item: when it was staged */
	__le32 value_bytes;
	__u8 key_bytes;
	__u8 size_class;    /* of its size */
	__u8 seen;	    /* since the hand passed it */
	__u8 reserved;
};

#define KV_SLAB_SHIFT 16
#define KV_SLAB_BYTES (1U << KV_SLAB_SHIFT)
#define KV_ITEM_BYTES 24U
#define KV_PIECE_BYTES (KV_SLAB_BYTES - 32U)
#define KV_STAGED (1ULL << 63)
#define KV_IN_ONE(key_bytes, value_bytes) \
	(KV_ITEM_BYTES + (key_bytes) + (value_bytes) <= KV_SLAB_BYTES)
#define KV_PIECES(value_bytes) (((value_bytes) + KV_PIECE_BYTES - 1) / KV_PIECE_BYTES)
#define KV_PIECES_MAX KV_PIECES(KV_VALUE_BYTES_MAX)
#define KV_PIECES_AT(key_bytes) ((KV_ITEM_BYTES + (key_bytes) + 7U) & ~7U)

#endif
