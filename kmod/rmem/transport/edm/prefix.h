/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The addresses that a datagram of remote memory would have had. They stand before it when it
 * travels as a request of EDM's. Its answers return by UDP, without the scheduler.
 */
#ifndef REMORA_RMEM_EDM_PREFIX_H
#define REMORA_RMEM_EDM_PREFIX_H

#include <linux/in6.h>
#include <linux/types.h>

struct rmem_edm_prefix {
	struct in6_addr client, node; /* IPv4 is mapped into IPv6; neither is link-local */
	__be16 port;		      /* the client's */
	__u8 zero[6];		      /* 0; the node puts the UDP header here */
};

static_assert(sizeof(struct rmem_edm_prefix) == 40);

#endif
