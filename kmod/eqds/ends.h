/* SPDX-License-Identifier: GPL-2.0 */
/* The addresses of a packet's IP header. */
#ifndef KMOD_EQDS_ENDS_H
#define KMOD_EQDS_ENDS_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <net/ipv6.h>

/* 16 bytes each; IPv4 as mapped address. */
static inline void eqds_ends(const struct sk_buff *skb, u8 *from, u8 *to)
{
	struct in6_addr source, destination;

	if (skb->protocol == htons(ETH_P_IPV6)) {
		source = ipv6_hdr(skb)->saddr;
		destination = ipv6_hdr(skb)->daddr;
	} else {
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, &source);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &destination);
	}
	memcpy(from, &source, sizeof(source));
	memcpy(to, &destination, sizeof(destination));
}

#endif
