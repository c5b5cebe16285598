/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Remote memory (remora/rmem.h) scheduled by EDM (remora/edm.h). This header specifies how
 * messages of the first become messages of the second. MAY permits clients and nodes something.
 *
 *   client                       scheduler                     node
 *     DEMAND (bytes) ------------> |                             |   WRITEs: announced, granted,
 *       | <-------------- GRANT    |                             |   then sent as by UDP
 *     datagram ------------------------------------------------> |
 *     REQUEST (prefix, datagram)-> | -- FORWARD ---------------> |   READs: forwarded; the answer
 *       | <------------------------|------------------ answer    |   is granted, and sent as by UDP
 *
 * - A datagram whose messages carry data, and one whose answers do, is a message of EDM. Its size
 *   is that of the datagram, or of its answers if each travels alone, on the link: with the headers
 *   of UDP and IP, and EDM_FRAME_BYTES.
 * - One of EDM_FREE_BYTES or less MAY leave without a grant, as do answers without data.
 * - The request in a REQUEST is struct rmem_edm_prefix and the datagram. The node executes it as if
 *   it had come by UDP from that client to that node, and answers by UDP.
 */
#ifndef REMORA_RMEM_EDM_H
#define REMORA_RMEM_EDM_H

#include <linux/types.h>

/* A datagram's part of a link beside IP: Ethernet's header, FCS, preamble and gap. */
#define EDM_FRAME_BYTES 38U
/* Datagrams up to these bytes on the link aren't announced: a demand and a grant take as much. */
#define EDM_FREE_BYTES 512U
/*
 * DSCP "expedited forwarding": scheduled datagrams find short queues. Linux gives it priority 6,
 * by which prio, mqprio and remora edm port let them go first.
 */
#define EDM_TOS 0xb8U
#define EDM_PRIORITY 6U

/* The addresses that the datagram would have had. */
struct rmem_edm_prefix {
	__u8 client[16], node[16]; /* IPv6, or IPv4 mapped into it; neither is link-local */
	__be16 port;		   /* the client's */
	__u8 zero[6];		   /* 0 */
};

#define RMEM_EDM_PREFIX_BYTES 40

#ifdef __cplusplus
static_assert(sizeof(struct rmem_edm_prefix) == RMEM_EDM_PREFIX_BYTES, "no padding");
#else
_Static_assert(sizeof(struct rmem_edm_prefix) == RMEM_EDM_PREFIX_BYTES, "no padding");
#endif

#endif
