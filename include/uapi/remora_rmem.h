/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Generic netlink family "rmem": control of the kernel's client (rmem.ko) and
 * its block devices /dev/rmbN. The specification is specs/rmem.yaml beside this
 * file. All commands but STATUS need CAP_SYS_ADMIN. Errors carry extack text.
 */
#ifndef _UAPI_REMORA_RMEM_H
#define _UAPI_REMORA_RMEM_H

#define RMEM_GENL_NAME "rmem"
#define RMEM_GENL_VERSION 1

#define RMEM_KEY_BYTES 16

enum {
	RMEM_CMD_UNSPEC,
	/*
	 * NODE, PORT, BYTES, SPACE, KEY, ... Answers INDEX when /dev/rmbINDEX is
	 * there. An interrupted attach leaves nothing attached.
	 */
	RMEM_CMD_ATTACH,
	/*
	 * INDEX, FORCE. Gives the memory back; a node that doesn't answer in time
	 * may keep it, which extack text tells. -EBUSY while the device is open, but
	 * for FORCE: that fails outstanding I/O, asks the node only if the device
	 * is up, and waits 2 s for it at most.
	 */
	RMEM_CMD_DETACH,
	RMEM_CMD_STATUS, /* dump: one message per device */

	__RMEM_CMD_MAX,
	RMEM_CMD_MAX = __RMEM_CMD_MAX - 1
};

enum rmem_device_state {
	RMEM_DEVICE_UP,	  /* the node answers */
	RMEM_DEVICE_DOWN, /* it doesn't; I/O waits, or fails after fail_after */
	RMEM_DEVICE_LOST, /* it restarted: the content is gone, all I/O fails */
};

enum {
	RMEM_A_UNSPEC,
	RMEM_A_PAD,
	RMEM_A_INDEX,	      /* u32 N of /dev/rmbN; in ATTACH: wanted, absent: first free */
	RMEM_A_NODE,	      /* binary, 4 or 16 bytes: the node's IPv4 or IPv6 address */
	RMEM_A_PORT,	      /* u16; default 7670 */
	RMEM_A_SCOPE,	      /* u32 interface index of a link-local IPv6 address */
	RMEM_A_BYTES,	      /* u64 size of the device; multiple of 4096 */
	RMEM_A_SPACE,	      /* u32 RAS id */
	RMEM_A_KEY,	      /* binary, RMEM_KEY_BYTES; never answered */
	RMEM_A_INTEGRITY,     /* u8: 0 link, 1 digest, 2 full; default 1 */
	RMEM_A_FAIL_AFTER_MS, /* u32; 0 or absent: queue_if_down */
	RMEM_A_TIMEOUT_MS,    /* u32, ATTACH: how long to wait for the node; default 5000 */
	RMEM_A_QUEUES,	      /* u32 hardware queues; default one per CPU */
	RMEM_A_FORCE,	      /* flag, DETACH: though open; see RMEM_CMD_DETACH */
	RMEM_A_STATE,	      /* u8 enum rmem_device_state */
	RMEM_A_PAGE_BYTES,    /* u32 the node's page: granularity of discard */
	RMEM_A_BOOT,	      /* u64 epoch the region was allocated under */
	RMEM_A_ADDR,	      /* u64 address of the region in the space */
	RMEM_A_PIECE,	      /* u32 payload bytes per packet */
	RMEM_A_CWND,	      /* u32 congestion window of the node, in 1/1024 packet */
	RMEM_A_RTT_NS,	      /* u64 smoothed round trip */
	RMEM_A_OPENERS,	      /* u32 */
	RMEM_A_COUNTERS,      /* nest, multi: one RMEM_COUNTER_* each */

	__RMEM_A_MAX,
	RMEM_A_MAX = __RMEM_A_MAX - 1
};

/* In RMEM_A_COUNTERS, as many as the module has. */
enum {
	RMEM_COUNTER_UNSPEC,
	RMEM_COUNTER_PAD,
	RMEM_COUNTER_NAME,  /* string, as in the statistics: "read-bytes", "drop-tag" */
	RMEM_COUNTER_VALUE, /* u64 */

	__RMEM_COUNTER_MAX,
	RMEM_COUNTER_MAX = __RMEM_COUNTER_MAX - 1
};

#endif
