/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Congestion notification packets (CNP) of RoCEv2, made at the sending edge (NSDI'22, section 6).
 *
 * A CNP names the queue pair (QP) that has to send slower. The packets of a reliable connection
 * name only the QP at the other end, so the connection manager's messages are tracked:
 *
 *   requester ---- REQ: my id, my QP ----> responder     pending:    (ends, id) -> QP
 *   requester <--- REP: your id, my QP --- responder     connection: (peer, its QP) -> QP here
 *
 * Each end sees both messages, one that it sends and one that it receives.
 *
 * Bounds. Both tables are of sets of four entries; the one used longest ago makes room. A
 * connection is entered only when a REQ or REP of this end is part of it. A peer that floods
 * this end with REQs can push out pending ones: those connections get no CNPs.
 *
 * Numbers are of the InfiniBand Architecture Specification, volume 1: chapter 9 (headers), 12
 * (connection management), annexes A17 (RoCEv2) and A10.
 */
#ifndef REMORA_EQDS_ROCE_H
#define REMORA_EQDS_ROCE_H

#include "core/base/siphash.h"

#define EQDS_ROCE_PORT	    4791
#define EQDS_ROCE_BTH_BYTES 12U
/* From the base transport header up to the last field that is read of a REP. */
#define EQDS_ROCE_CM_BYTES  80U
#define EQDS_ROCE_CNP	    0x81
/* IPv6, UDP, base transport header, 16 bytes of zeros, checksum. */
#define EQDS_ROCE_CNP_MAX   (40U + 8U + EQDS_ROCE_BTH_BYTES + 16U + 4U)

#define EQDS_ROCE_WAYS	      4U
#define EQDS_ROCE_PENDING     256U  /* connections that are being made */
#define EQDS_ROCE_CONNECTIONS 2048U

/* Addresses of a packet; IPv4 as mapped address. */
struct eqds_roce_ends {
	u8 from[16], to[16];
};

struct eqds_roce_entry {
	u8 local[16], remote[16]; /* pending: requester, responder; connection: zeros, the peer */
	u32 id;			  /* pending: the requester's; connection: the peer's QP */
	u32 qpn;		  /* pending: the requester's; connection: the QP here */
	u32 used;		  /* clock of the last use; 0: free */
	bool outgoing;		  /* pending: the requester is here */
};

struct eqds_roce {
	struct base_siphash_key key; /* peers must not choose which set they fill */
	u32 clock;
	struct eqds_roce_entry pending[EQDS_ROCE_PENDING];
	struct eqds_roce_entry connection[EQDS_ROCE_CONNECTIONS];
};

void eqds_roce_init(struct eqds_roce *roce, const struct base_siphash_key *key);

/*
 * A packet of port EQDS_ROCE_PORT. bth: its base transport header, and what follows as far as it is
 * at hand; EQDS_ROCE_CM_BYTES suffice. outgoing: this end sends it.
 */
void eqds_roce_track(struct eqds_roce *roce, const struct eqds_roce_ends *ends, const u8 *bth,
		     u32 bytes, bool outgoing);

/* Leaves in *qpn the QP here that sends this packet. False: unknown, or none that heeds a CNP. */
bool eqds_roce_source(struct eqds_roce *roce, const struct eqds_roce_ends *ends, const u8 *bth,
		      u32 bytes, u32 *qpn);

/* Writes an IP packet, EQDS_ROCE_CNP_MAX bytes at most, and returns its length. */
u32 eqds_roce_cnp(u8 *packet, const struct eqds_roce_ends *ends, u32 qpn);

#endif
