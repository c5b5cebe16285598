/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Generic netlink family "rmem_node": control of the kernel's memory node
 * (rmem_node.ko). The specification is specs/rmem_node.yaml beside this file.
 * All commands but STATUS, SPACES and OFFLOADS need CAP_NET_ADMIN. SPACES and OFFLOADS need it
 * outside of the initial network namespace; without it figures of spaces can be a second old.
 * Errors carry extack text.
 */
#ifndef _UAPI_REMORA_NODE_H
#define _UAPI_REMORA_NODE_H

#define RMEM_NODE_GENL_NAME "rmem_node"
#define RMEM_NODE_GENL_VERSION 1

#define RMEM_NODE_KEY_BYTES 16

enum {
	RMEM_NODE_CMD_UNSPEC,
	RMEM_NODE_CMD_START,	 /* MEMORY, PAGE_BYTES, PORT, ... ; -EALREADY if started */
	RMEM_NODE_CMD_STOP,	 /* loses all lent memory */
	RMEM_NODE_CMD_STATUS,	 /* answer: configuration, usage, nested counters */
	RMEM_NODE_CMD_SPACE_ADD, /* SPACE, KEY; QUOTA, READ_ONLY_OF or MEMBER_OF */
	RMEM_NODE_CMD_SPACE_DEL, /* SPACE, FORCE; -EBUSY while it has regions, views or members */
	RMEM_NODE_CMD_SPACES,	 /* dump: one message per space */
	RMEM_NODE_CMD_REGIONS,	 /* dump, SPACE: one message per region, in no order; -ENOENT */
	RMEM_NODE_CMD_OFFLOAD_LOAD,   /* OFFLOAD, SPACE, CLIENTS, BUDGET_US; -ENOENT: no module */
	RMEM_NODE_CMD_OFFLOAD_REMOVE, /* OFFLOAD, SPACE; waits for its calls */
	RMEM_NODE_CMD_OFFLOADS,	 /* dump: one message per offload */
	/* SPACE: ends its sessions, and KEY opens none from then on; -EALREADY if it was revoked */
	RMEM_NODE_CMD_SPACE_REVOKE,

	__RMEM_NODE_CMD_MAX,
	RMEM_NODE_CMD_MAX = __RMEM_NODE_CMD_MAX - 1
};

enum {
	RMEM_NODE_A_UNSPEC,
	RMEM_NODE_A_PAD,
	RMEM_NODE_A_MEMORY,	     /* u64 bytes to lend; reserved at start */
	RMEM_NODE_A_PAGE_BYTES,	     /* u32, power of two, 64 KiB .. 4 MiB; default 64 KiB */
	RMEM_NODE_A_PORT,	     /* u16, UDP, IPv4 and IPv6; default 7670 */
	RMEM_NODE_A_POOL_PAGES,	     /* u32 zeroed pages kept ready; power of two */
	RMEM_NODE_A_SPACES_MAX,	     /* u32 */
	RMEM_NODE_A_SESSIONS_MAX,    /* u32 */
	RMEM_NODE_A_REGIONS_MAX,     /* u32 */
	RMEM_NODE_A_SESSION_IDLE_MS, /* u32; time after which the node MAY evict an idle session */
	RMEM_NODE_A_SPACE,	     /* u32 id, not 0 */
	RMEM_NODE_A_KEY,	     /* binary, RMEM_NODE_KEY_BYTES */
	RMEM_NODE_A_QUOTA,	     /* u64 bytes a space MAY allocate; 0 or absent: no quota */
	RMEM_NODE_A_BOOT,	     /* u64 boot epoch */
	RMEM_NODE_A_PROMISED,	     /* u64 bytes in regions */
	RMEM_NODE_A_BACKED,	     /* u64 bytes in regions and written to */
	RMEM_NODE_A_READY,	     /* u64 bytes zeroed, ready for a first touch */
	RMEM_NODE_A_SPACES,	     /* u32 in use */
	RMEM_NODE_A_SESSIONS,	     /* u32 in use */
	RMEM_NODE_A_REGIONS,	     /* u32 in use */
	RMEM_NODE_A_STARTED,	     /* flag: the node runs */
	RMEM_NODE_A_COUNTERS,	     /* nest, multi: one RMEM_NODE_COUNTER_* each */
	RMEM_NODE_A_FORCE,	     /* flag, SPACE_DEL: end all its sessions, free its regions */
	RMEM_NODE_A_READ_ONLY_OF,    /* u32 id of the space that the view shows; no view itself */
	RMEM_NODE_A_ADDRESS,	     /* u64 first byte of a region */
	RMEM_NODE_A_BYTES,	     /* u64 of a region, whole pages */
	RMEM_NODE_A_PERMISSION,	     /* u32 1: read; 3: read and write */
	RMEM_NODE_A_NAMES,	     /* u32 number of a region's names */
	RMEM_NODE_A_NAME,	     /* binary, one of them, 1 .. 64 bytes; absent: it has none */
	RMEM_NODE_A_OFFLOAD,	     /* string, name of an offload, up to 15 bytes */
	RMEM_NODE_A_CLIENTS,	     /* binary, u32 ids of other spaces that can call it, to 16 */
	RMEM_NODE_A_OFFLOAD_ID,	     /* u32, by which clients call it */
	RMEM_NODE_A_RUNNING,	     /* u32 calls of it that run */
	RMEM_NODE_A_ENDED,	     /* u64 calls of it that have ended; of these: */
	RMEM_NODE_A_FAILED,	     /* u64 with an error */
	RMEM_NODE_A_OVER_BUDGET,     /* u64 stopped, for they had used up their budget */
	RMEM_NODE_A_USED_NS,	     /* u64 time of an offload's calls, or a space's clients' */
	RMEM_NODE_A_BUDGET_US,	     /* u32 time that a call of it gets */
	RMEM_NODE_A_OPERATIONS,	     /* u64 of a space's clients, executed; of these: */
	RMEM_NODE_A_READ_BYTES,	     /* u64 that they read */
	RMEM_NODE_A_WRITTEN_BYTES,   /* u64 that they wrote */
	RMEM_NODE_A_SEALED_ONLY,     /* flag: the space's clients have to seal */
	RMEM_NODE_A_MEMBER_OF,	     /* u32 id of the space whose memory is the member's, too */
	RMEM_NODE_A_REVOKED,	     /* flag: the space's own key was revoked */

	__RMEM_NODE_A_MAX,
	RMEM_NODE_A_MAX = __RMEM_NODE_A_MAX - 1
};

/* One counter in RMEM_NODE_A_COUNTERS. */
enum {
	RMEM_NODE_COUNTER_UNSPEC,
	RMEM_NODE_COUNTER_PAD,
	RMEM_NODE_COUNTER_NAME,	 /* string, as in the statistics: "executed", "drop-tag" */
	RMEM_NODE_COUNTER_VALUE, /* u64 */

	__RMEM_NODE_COUNTER_MAX,
	RMEM_NODE_COUNTER_MAX = __RMEM_NODE_COUNTER_MAX - 1
};

#endif
