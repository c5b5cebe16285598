/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages in socket buffers, of both ends. Their data may lie in fragments; it is hashed
 * where it lies.
 */
#ifndef REMORA_RMEM_SKB_H
#define REMORA_RMEM_SKB_H

#include <linux/skbuff.h>
#include <linux/udp.h>

#include "core/rmem/datagram.h"

/* ---- out: the headers are in the linear part, data is in fragments behind it ---- */

static inline bool rmem_skb_has_hdr_room(const struct sk_buff *skb)
{
	return skb_end_pointer(skb) - skb_tail_pointer(skb) >= RMEM_HDR_BYTES;
}

/* Room for a header: before data that is in fragments, so before or after it was added. */
void *rmem_skb_put_hdr(struct sk_buff *skb);

/* Write the header, the payload being the last of skb. Fills in head->digest if there is one. */
void rmem_skb_seal(const struct sk_buff *skb, void *hdr, struct rmem_head *head,
		   const struct base_siphash_key *key);

/* ---- in: from the UDP header on, as encap_rcv gets them ---- */

#define RMEM_SKB_HDRS sizeof(struct udphdr) /* where the first header is */

static inline const void *rmem_skb_hdrs(const struct sk_buff *skb)
{
	return skb->data + RMEM_SKB_HDRS;
}

/* Where the payload of the message is that was stepped to. */
static inline u32 rmem_skb_payload(const struct rmem_datagram *d)
{
	return RMEM_SKB_HDRS + d->payload_offset;
}

/* As rmem_datagram_open(): pulls the headers into the linear part. */
enum rmem_wire_verdict rmem_skb_open(struct rmem_datagram *d, struct sk_buff *skb, bool response);

/* As rmem_datagram_verify(). */
enum rmem_wire_verdict rmem_skb_verify(const struct rmem_datagram *d,
				       const struct base_siphash_key *key,
				       const struct sk_buff *skb);

#endif
