/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ops and messages become packets, and back.
 *
 * The data of a WRITE is not copied: packets refer to the request's pages. Such a packet
 * may outlive its request: the first copy waits in a queueing discipline, the retry is
 * answered, the page is used anew, and then the first copy leaves with whatever the page
 * now holds. The node refuses it: its id was executed, or is below the session's floor.
 */
#ifndef REMORA_RMEM_PACKET_H
#define REMORA_RMEM_PACKET_H

#include <linux/skbuff.h>

#include "core/rmem/client.h"

struct request;

/* NULL: no memory. *copied: the request's pages could not be lent. Channel lock. */
struct sk_buff *rmem_packet_build(const struct rmem_client_config *config,
				  struct rmem_client_tx *tx, struct request *rq, bool *copied);

/*
 * Check the message behind skb's UDP header: form, tag, and payload. DAMAGED only after
 * the tag verified. The header is then linear, and, unless it is data, the payload, too.
 */
enum rmem_wire_verdict rmem_packet_verify(const struct rmem_client_config *config,
					  struct sk_buff *skb, struct rmem_head *head);

/* The payload of a message that carries no data; NULL without one. */
const void *rmem_packet_payload(const struct sk_buff *skb, const struct rmem_head *head);

/* The data of a READ's answer, to offset in rq's data. Channel lock. */
void rmem_packet_copy(const struct sk_buff *skb, struct request *rq, u32 offset, u32 bytes);

#endif
