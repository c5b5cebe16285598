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
	EQDS_CMD_TUNNELS, /* dump: one message per tunnel of this network namespace */

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
	EQDS_A_CREDIT,	     /* u64 bytes that may leave */
	EQDS_A_PULLS,	     /* u32 MTUs asked for and not granted */
	EQDS_A_RTT_NS,	     /* u64, smoothed; 0: not measured */
	EQDS_A_PATHS,	     /* nest, multi: one EQDS_PATH_A_* each */

	__EQDS_A_MAX,
	EQDS_A_MAX = __EQDS_A_MAX - 1
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
