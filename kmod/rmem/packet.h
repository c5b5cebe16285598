/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ops and messages become packets, and back.
 *
 * The data of a WRITE is not copied: packets refer to the pages that it is in. Such a packet
 * may outlive its op: the first copy waits in a queueing discipline, the retry is
 * answered, the page is used anew, and then the first copy leaves with whatever the page
 * now holds. The node refuses it: its id was executed, or is below the session's floor. Only
 * an op that was given up has no such id: there a digest finds out, and where there is
 * none (level link with fail_after) the data is copied.
 */
#ifndef REMORA_RMEM_PACKET_H
#define REMORA_RMEM_PACKET_H

#include <linux/skbuff.h>

#include "core/rmem/client.h"
#include "core/rmem/datagram.h"

/* A datagram: the messages in it, and those that may join them. */
struct rmem_packet {
	struct sk_buff *skb; /* NULL: there is none */
	bool shared;	     /* others may join */
	struct rmem_bundle bundle;
};

/* ---- building; channel lock ---- */

/* May the message join those that packet holds, in limit_bytes at most? */
bool rmem_packet_takes(const struct rmem_packet *packet, const struct rmem_client_tx *tx,
		       u32 limit_bytes);

/*
 * Add a message: to those in packet, if it takes it, or to none. messages: how many there will be,
 * as far as known. False: no memory, and packet is as before. *copied is set when the pages of a
 * WRITE were not lent.
 */
bool rmem_packet_add(struct rmem_packet *packet, const struct rmem_client_config *config,
		     struct rmem_client_tx *tx, u32 messages, bool *copied);

/* ---- receiving ---- */

/* rmem_skb_open() of answers; then a payload that isn't data is in the linear part, too. */
enum rmem_wire_verdict rmem_packet_open(struct rmem_datagram *d, struct sk_buff *skb);

/* The payload of a message that carries no data, perhaps in room; NULL without one. */
const void *rmem_packet_payload(const struct rmem_datagram *d, const struct sk_buff *skb,
				struct rmem_found *room);

/* The data of a READ's answer, to offset in op's data. Channel lock. */
void rmem_packet_copy(const struct rmem_datagram *d, const struct sk_buff *skb,
		      struct rmem_op *op, u32 offset, u32 bytes);

#endif
