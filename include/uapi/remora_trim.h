/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * Options of the qdisc "trim" (sch_trim.ko), the queue of a switch that trims packets of EQDS
 * tunnels. RTM_NEWQDISC sets them; an option that it does not name stays as it is.
 */
#ifndef _UAPI_REMORA_TRIM_H
#define _UAPI_REMORA_TRIM_H

/* In TCA_OPTIONS. */
enum {
	EQDS_TRIM_A_UNSPEC,
	EQDS_TRIM_A_DATA,    /* u32 packets, 1 .. 16384: beyond, payloads are cut off; 15 */
	EQDS_TRIM_A_HEADERS, /* u32 packets, 1 .. 16384: beyond, headers are dropped; 8192 */
	EQDS_TRIM_A_WHICH,   /* u8, EQDS_TRIM_ARRIVING, _TAIL or _EITHER */

	__EQDS_TRIM_A_MAX,
	EQDS_TRIM_A_MAX = __EQDS_TRIM_A_MAX - 1
};

/* The packet whose payload is cut off when the data queue is full. */
enum {
	EQDS_TRIM_ARRIVING,
	EQDS_TRIM_TAIL,	  /* the last one of the queue, whose place the arriving one takes */
	EQDS_TRIM_EITHER, /* by chance */
};

#endif
