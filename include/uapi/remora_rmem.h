/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Generic netlink family "rmem": control of the kernel's client (rmem.ko) and
 * its devices /dev/rmbN and /dev/rmemN. The specification is specs/rmem.yaml beside this
 * file. All commands but STATUS need CAP_SYS_ADMIN. Errors carry extack text.
 */
#ifndef _UAPI_REMORA_RMEM_H
#define _UAPI_REMORA_RMEM_H

#define RMEM_GENL_NAME "rmem"
/* 2: OWNER, TAKE and COOKIE, which version 1 refuses */
#define RMEM_GENL_VERSION 2

#define RMEM_KEY_BYTES 16

/* vm.min_free_kbytes below which ATTACH of a disk warns, by extack text: swap needs that much. */
#define RMEM_MIN_FREE_KIB 8192

#define RMEM_INDEX_MAX			1023U
#define RMEM_DEVICE_NAME_MAX		48
#define RMEM_OWNER_MAX			10
#define RMEM_TIMEOUT_MS_MAX		30000
#define RMEM_FAIL_AFTER_MS_PROGRAMS_MAX 60000U

enum {
	RMEM_CMD_UNSPEC,
	/*
	 * NODE and PORT or ADDRESS, KIND, BYTES, SPACE, KEY, ... The answer has INDEX; it comes
	 * when the device exists. An interrupted attach leaves nothing attached. -EEXIST: a device
	 * has that INDEX or NAME, or another machine the NAME.
	 */
	RMEM_CMD_ATTACH,
	/*
	 * INDEX, KIND, FORCE. Gives the memory back. A node that doesn't answer in time might keep
	 * it; extack text then says so. -EBUSY while the device is open, unless FORCE is given.
	 * FORCE fails outstanding I/O, asks the node only if the device is up, and waits at most 2
	 * s for the node.
	 */
	RMEM_CMD_DETACH,
	RMEM_CMD_STATUS, /* dump: one message per device */

	__RMEM_CMD_MAX,
	RMEM_CMD_MAX = __RMEM_CMD_MAX - 1
};

enum rmem_device_state {
	RMEM_DEVICE_UP,	  /* the node answers */
	RMEM_DEVICE_DOWN, /* the node doesn't answer; I/O waits, or fails after fail_after */
	/*
	 * The node restarted: the content is lost, all I/O fails. A PROGRAMS device is up again
	 * when a program opens it anew.
	 */
	RMEM_DEVICE_LOST,
};

enum rmem_kind {
	RMEM_KIND_DISK,	    /* /dev/rmbN: a region, as a block device */
	RMEM_KIND_PROGRAMS, /* /dev/rmemN: the space, by remora_rmem_io.h */
};

enum {
	RMEM_A_UNSPEC,
	RMEM_A_PAD,
	RMEM_A_INDEX,	      /* u32 N of /dev/rmbN, rmemN; ATTACH: wanted, absent: first free */
	RMEM_A_NODE,	      /* binary, 4 or 16 bytes: the node's IPv4 or IPv6 address */
	RMEM_A_PORT,	      /* u16; default 7670 */
	RMEM_A_SCOPE,	      /* u32 interface index of a link-local IPv6 address */
	RMEM_A_BYTES,	      /* u64 size of a disk; multiple of 4096 */
	RMEM_A_SPACE,	      /* u32 RAS id */
	RMEM_A_KEY,	      /* binary, RMEM_KEY_BYTES; never answered */
	RMEM_A_INTEGRITY,     /* u8 enum rmem_integrity: 0 link, 1 digest, 2 full, 3 sealed; */
			      /* default 1. -EOPNOTSUPP: kernel or transport doesn't seal */
	RMEM_A_FAIL_AFTER_MS, /* u32; 0, absent: I/O waits; PROGRAMS: 1 .. 60000, default 10000 */
	RMEM_A_TIMEOUT_MS,    /* u32, ATTACH: wait for the node, 1 .. 30000; default 5000 */
	RMEM_A_QUEUES,	      /* u32 hardware queues; default one per CPU */
	RMEM_A_FORCE,	      /* flag, DETACH: even if open; see RMEM_CMD_DETACH */
	RMEM_A_STATE,	      /* u8 enum rmem_device_state */
	RMEM_A_PAGE_BYTES,    /* u32 the node's page: granularity of discard */
	RMEM_A_BOOT,	      /* u64 epoch the region was allocated under */
	RMEM_A_ADDR,	      /* u64 address of the region in the space */
	RMEM_A_PIECE,	      /* u32 payload bytes per packet */
	RMEM_A_CWND,	      /* u32 congestion windows of its channels, in 1/1024 packet */
	RMEM_A_RTT_NS,	      /* u64 smoothed round trip */
	RMEM_A_OPENERS,	      /* u32 */
	RMEM_A_COUNTERS,      /* nest, multi: one RMEM_COUNTER_* each */
	RMEM_A_TIMES,	      /* nest, multi: one RMEM_TIMES_* for each kind of operation */
	RMEM_A_KIND,	      /* u8 enum rmem_kind; ATTACH: default DISK; DETACH: default any */
	/*
	 * string, TRANSPORT:ADDRESS. ATTACH: in place of NODE, PORT and SCOPE; without a transport
	 * it is udp: "10.0.0.2", "udp:10.0.0.2:7670", "udp:[fe80::2%eth0]:7670".
	 * "marlin:1" is the machine at that port of a PCIe bridge.
	 */
	RMEM_A_ADDRESS,
	/*
	 * string of 1 .. RMEM_DEVICE_NAME_MAX letters, digits, '_', '-' and '.', a letter or digit
	 * first; absent: none. A disk's region is published in its space as "disk/" and that name.
	 * ATTACH frees the region that an earlier client of the same OWNER left under it, unless
	 * KEEP is given.
	 */
	RMEM_A_NAME,
	/*
	 * flag, of a disk with NAME. ATTACH takes the region that is there under NAME, with its
	 * content, and DETACH leaves it there. The region MUST have BYTES, rounded up to the node's
	 * pages. Two clients MUST NOT have it at once: nothing keeps their writes apart.
	 */
	RMEM_A_KEEP,
	/*
	 * string, written as NAME, of 1 .. RMEM_OWNER_MAX characters: the machine that NAME is to
	 * belong to, absent: to none. The region of a disk is published as "disk/NAME@OWNER", too.
	 * -EEXIST: NAME is another owner's.
	 */
	RMEM_A_OWNER,
	/*
	 * flag, ATTACH: takes a NAME that is another owner's, since that machine is gone. Without
	 * KEEP its region is freed. With KEEP that machine MUST NOT use it any more.
	 */
	RMEM_A_TAKE,
	/* u64, ATTACH: any number but 0, by which STATUS tells the device from others; absent: 0 */
	RMEM_A_COOKIE,

	__RMEM_A_MAX,
	RMEM_A_MAX = __RMEM_A_MAX - 1
};

/* One counter in RMEM_A_COUNTERS. */
enum {
	RMEM_COUNTER_UNSPEC,
	RMEM_COUNTER_PAD,
	RMEM_COUNTER_NAME,  /* string, as in the statistics: "read-bytes", "drop-tag" */
	RMEM_COUNTER_VALUE, /* u64 */

	__RMEM_COUNTER_MAX,
	RMEM_COUNTER_MAX = __RMEM_COUNTER_MAX - 1
};

/*
 * One histogram in RMEM_A_TIMES: successful operations by the time from submission to completion.
 * The first bucket counts operations of less than 64 ns. Each further bucket spans a quarter of a
 * power of two: 64 .. 80, 80 .. 96, 96 .. 112, 112 .. 128, 128 .. 160 ns, and so on. The last one
 * has no upper bound.
 */
#define RMEM_TIMES_BUCKETS 128
enum {
	RMEM_TIMES_UNSPEC,
	RMEM_TIMES_NAME,   /* string: "read", "write", "other" */
	RMEM_TIMES_COUNTS, /* binary: u64 for each bucket, up to the last that isn't 0 */
	RMEM_TIMES_PAD,
	RMEM_TIMES_SUM_NS, /* u64 sum of the durations */

	__RMEM_TIMES_MAX,
	RMEM_TIMES_MAX = __RMEM_TIMES_MAX - 1
};

#endif
