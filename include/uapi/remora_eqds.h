/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Generic netlink family "eqds": the tunnels of eqds devices (eqds.ko). The specification is
 * specs/eqds.yaml beside this file. Devices are made and changed by rtnetlink and ethtool.
 */
#ifndef _UAPI_REMORA_EQDS_H
#define _UAPI_REMORA_EQDS_H

#define EQDS_GENL_NAME "eqds"
#define EQDS_GENL_VERSION 1

enum {
	EQDS_CMD_UNSPEC,
	EQDS_CMD_TUNNELS,     /* dump: one message per tunnel of this network namespace */
	EQDS_CMD_DEVICES,     /* dump: one message per device of this network namespace */
	/* EQDS_A_DEVICE; TTL, TOS, CNP, TUNNELS_MAX, HELD_MAX, WINDOW_MTUS that change */
	EQDS_CMD_SET,
	EQDS_CMD_RULE_SET,    /* EQDS_A_DEVICE, KIND, PREFIX, LENGTH; PEER, or WEIGHT, PRIORITY */
	EQDS_CMD_RULE_REMOVE, /* EQDS_A_DEVICE, KIND, PREFIX, LENGTH */
	EQDS_CMD_RULES,	      /* dump: one message per rule of this network namespace */
	EQDS_CMD_KEY,	      /* EQDS_A_DEVICE, and EQDS_A_KEY; without: no key. Ends all tunnels */

	__EQDS_CMD_MAX,
	EQDS_CMD_MAX = __EQDS_CMD_MAX - 1
};

enum {
	EQDS_A_UNSPEC,
	EQDS_A_PAD,
	EQDS_A_DEVICE,	     /* string */
	EQDS_A_PEER,	     /* binary, 16: address of the other end; IPv4 as mapped address */
	EQDS_A_SENDING,	     /* flag: packets leave by it; else they arrive */
	EQDS_A_ESTABLISHED,  /* flag: the other end has answered */
	EQDS_A_QUEUED,	     /* u32 packets. Sending: without credit; else held for reordering */
	EQDS_A_QUEUED_BYTES, /* u32 */
	EQDS_A_IN_FLIGHT,    /* u32 packets, sent and not acknowledged; to be sent again, too */
	EQDS_A_CREDIT,	     /* u64 bytes that MAY leave */
	EQDS_A_PULLS,	     /* u32 MTUs asked for and not granted */
	EQDS_A_RTT_NS,	     /* u64, smoothed; 0: not measured */
	EQDS_A_PATHS,	     /* nest, multi: one EQDS_PATH_A_* each */
	EQDS_A_LINK,	     /* string: the device that outer packets use */
	EQDS_A_MBITS,	     /* u32: rate at which credit is given */
	EQDS_A_MTU,	     /* u32 bytes: credit of one pull */
	EQDS_A_WINDOW,	     /* u32 bytes: one bandwidth-delay product */
	EQDS_A_TTL,	     /* u8 of outer packets; 0: the route's */
	EQDS_A_TOS,	     /* u16 of outer packets; 256: the inner packet's */
	EQDS_A_TX_TUNNELS,   /* u32 */
	EQDS_A_RX_TUNNELS,   /* u32 */
	EQDS_A_ACTIVE,	     /* u32 tunnels that wait for credit */
	EQDS_A_OWED,	     /* u64 MTUs that they ask for, or say they will */
	EQDS_A_BUSY_US,	     /* u32: the link is busy with those for so long */
	EQDS_A_TIMERS,	     /* u64 firings of the pull timer */
	EQDS_A_LATE_NS_SUM,  /* u64 by which they were late */
	EQDS_A_LATE_NS_MAX,  /* u64 */
	EQDS_A_LATE,	     /* binary, u64 each: firings late by less than 2^n us, n = 0 .. */
	EQDS_A_TX_PACKETS,   /* u64 */
	EQDS_A_TX_AGAIN,     /* u64 of those, retransmissions */
	EQDS_A_RX_PACKETS,   /* u64 */
	EQDS_A_RULE_KIND,    /* u8, EQDS_RULE_KIND_* */
	EQDS_A_PREFIX,	     /* binary, 16; IPv4 as mapped address */
	EQDS_A_LENGTH,	     /* u8 bits of the prefix; IPv4: 96 more */
	EQDS_A_WEIGHT,	     /* u32, 1 .. 1024 */
	EQDS_A_PRIORITY,     /* u8, 0 .. 7; 0 is served first */
	EQDS_A_KEY,	     /* binary, 16: packets without its tag are dropped; never dumped */
	EQDS_A_KEYED,	     /* flag: the device has a key */
	EQDS_A_REFUSED,	     /* u64 packets that were dropped for their tag, or want of one */
	EQDS_A_CLASS,	     /* u16: a sending tunnel's EQDS_CLASS_ID_*; else the peer's word */
	EQDS_A_CNP,	     /* u8: 1, queues of RDMA send CNPs to queue pairs; 0, they don't */
	EQDS_A_TUNNELS_MAX,  /* u32, 1 .. 16384: bound on the tunnels of a direction */
	EQDS_A_HELD,	     /* u64 bytes of memory of packets that wait or are in flight */
	EQDS_A_HELD_MAX,     /* u64 bytes, after which packets that would wait are dropped */
	EQDS_A_WINDOW_MTUS,  /* u16, 1 .. 512; a change ends the tunnels and drops their queues */

	__EQDS_A_MAX,
	EQDS_A_MAX = __EQDS_A_MAX - 1
};

/* Classes of traffic: a host has a tunnel of its own for each. */
enum {
	EQDS_CLASS_ID_TCP,    /* IP packets, dropped or marked as TCP expects */
	EQDS_CLASS_ID_RDMA,   /* RoCEv2: packets wait, and their queue pair with them */
	EQDS_CLASS_ID_NATIVE, /* of programs, by /dev/eqds */
};

/* Rules by prefix. */
enum {
	EQDS_RULE_KIND_MAP,   /* packets to these destinations go by a tunnel to EQDS_A_PEER */
	EQDS_RULE_KIND_ALLOW, /* peers that MAY open tunnels; without such a rule, all MAY */
	EQDS_RULE_KIND_SHARE, /* priority and weight of these peers when credit is given */
};

/* One path in EQDS_A_PATHS. */
enum {
	EQDS_PATH_A_UNSPEC,
	EQDS_PATH_A_RTT_NS,  /* u32, smoothed */
	EQDS_PATH_A_SENT,    /* u32 packets, wrapping, as the others */
	EQDS_PATH_A_TRIMMED, /* u32 */
	EQDS_PATH_A_LOST,    /* u32, by timeout */
	EQDS_PATH_A_MARKED,  /* u32 */

	__EQDS_PATH_A_MAX,
	EQDS_PATH_A_MAX = __EQDS_PATH_A_MAX - 1
};

#endif
