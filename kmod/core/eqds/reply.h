/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Replies to a batch of packets of one tunnel. An ACK says all that an earlier one said, and a PULL
 * carries an ACK, so a batch leaves one control packet:
 *
 *   packet --> ACK, SACK --+
 *   packet --> ACK, SACK --+--> [ waiting ] --end of the batch--> one packet
 *   pull timer --> PULL ---+
 *
 * NACK, RST, and marks of congestion are about one packet, and leave at once. So does a reply whose
 * echo the next one would not cover: its bitmap reaches 64 numbers beyond the ack.
 */
#ifndef REMORA_EQDS_REPLY_H
#define REMORA_EQDS_REPLY_H

#include "core/eqds/wire.h"

/* Control packets that one reply lets leave. */
#define EQDS_REPLY_LEAVES 2U

struct eqds_reply {
	struct eqds_head head;
	bool waits;
};

/*
 * Take a control packet that the tunnel's receiver or list wants to send. Returns how many have to
 * leave now, in leaves, in this order. The caller sends reply->head, if it waits, at the end of the
 * batch, and clears waits.
 */
u32 eqds_reply_add(struct eqds_reply *reply, const struct eqds_head *head,
		   struct eqds_head leaves[EQDS_REPLY_LEAVES]);

#endif
