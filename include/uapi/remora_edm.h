/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Generic netlink family "edm": EDM's scheduler, and this machine's membership at one (edm.ko). The
 * specification is specs/edm.yaml beside this file. All commands but STATUS need CAP_NET_ADMIN in
 * the initial user namespace. Errors carry extack text.
 */
#ifndef _UAPI_REMORA_EDM_H
#define _UAPI_REMORA_EDM_H

#define EDM_GENL_NAME "edm"
#define EDM_GENL_VERSION 1

#define EDM_KEY_BYTES 16

enum {
	EDM_CMD_UNSPEC,
	EDM_CMD_START,	/* KEY, PORTS, CHUNK_BYTES, LEASE_US, UDP_PORT; -EALREADY if started */
	EDM_CMD_STOP,	/* members send without grants, or turn to their standby */
	EDM_CMD_STATUS, /* answer: configuration and counters of both */
	EDM_CMD_JOIN,	/* SCHEDULER, STANDBY, KEY, PORT, RATE_MBPS; -EALREADY if a member */
	EDM_CMD_LEAVE,	/* -EBUSY while devices use the membership */

	__EDM_CMD_MAX,
	EDM_CMD_MAX = __EDM_CMD_MAX - 1
};

enum {
	EDM_A_UNSPEC,
	EDM_A_PAD,
	EDM_A_KEY,	   /* binary, EDM_KEY_BYTES: of a scheduler and its members */
	EDM_A_PORTS,	   /* u16 ports of the scheduler, 2 to 512; default 64 */
	EDM_A_CHUNK_BYTES, /* u32 most bytes of a grant, 4096 to 1048576; default 16384 */
	EDM_A_LEASE_US,	   /* u32, 1000 to 10000000; default 50000 */
	EDM_A_UDP_PORT,	   /* u16; default 7673 */
	EDM_A_STARTED,	   /* flag: a scheduler runs here */
	EDM_A_MEMBERS,	   /* u16 hosts whose leases run */
	EDM_A_SCHEDULER,   /* string: IP, IP:PORT or [IP]:PORT */
	EDM_A_STANDBY,	   /* string: the same, of a second one */
	EDM_A_PORT,	   /* u16: this machine's at the scheduler, from 0 up */
	EDM_A_RATE_MBPS,   /* u32: of this machine's link */
	EDM_A_STATE,	   /* string: joining, scheduled, standby, unscheduled; or absent */
	EDM_A_COUNTERS,	   /* nest, multi: one EDM_COUNTER_* each */

	__EDM_A_MAX,
	EDM_A_MAX = __EDM_A_MAX - 1
};

/* One counter in EDM_A_COUNTERS. */
enum {
	EDM_COUNTER_UNSPEC,
	EDM_COUNTER_PAD,
	EDM_COUNTER_NAME,  /* string: "sched-grants", "host-unscheduled" */
	EDM_COUNTER_VALUE, /* u64 */

	__EDM_COUNTER_MAX,
	EDM_COUNTER_MAX = __EDM_COUNTER_MAX - 1
};

#endif
