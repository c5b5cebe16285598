/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Messages become packets.
 *
 * The data of a WRITE is not copied: packets refer to the pages that it is in. A packet can outlive
 * its op: the first copy waits in a queueing discipline, the retransmission is answered, the page
 * is used anew, and then the first copy leaves with the page's new content. The node refuses it:
 * its id was executed, or is below the session's floor. Only an op that was given up has no such
 * id: there a digest finds out, and where there is none (level link with fail_after) the data is
 * copied. In a sealed session it is copied, too, and encrypted in the packet.
 */
#ifndef REMORA_RMEM_PACKET_H
#define REMORA_RMEM_PACKET_H

#include <linux/skbuff.h>

#include "core/rmem/client/client.h"
#include "core/rmem/datagram.h"
#include "rmem_ops.h"
#include "rmem_seal_ops.h"

/* A datagram: the messages in it, and those that can join them. */
struct rmem_packet {
	struct sk_buff *skb; /* NULL: there is none */
	bool shared;	     /* others can join */
	bool more;	     /* the last message's head says so */
	struct rmem_bundle bundle;
	struct base_siphash hash; /* for the tag, so far */
};

/* ---- building, under the channel's lock ---- */

/* True if the message fits beside those that packet holds, in limit_bytes at most. */
bool rmem_packet_takes(const struct rmem_packet *packet, const struct rmem_client_tx *tx,
		       u32 limit_bytes);

/*
 * Add a message: to those in packet, if it takes it, or to none. messages: the expected number.
 * False: no memory, and packet is as before. *copied is set when the pages of a WRITE were not
 * lent.
 */
bool rmem_packet_add(struct rmem_packet *packet, const struct rmem_session *session,
		     struct rmem_client_tx *tx, u32 messages, bool *copied);

/* The whole datagram with its tag; NULL: there is none. packet is empty afterwards. */
struct sk_buff *rmem_packet_take(struct rmem_packet *packet, const struct rmem_session *session);

/* As rmem_skb_seal(). Atomic, and with the kernel's reserves. */
bool rmem_packet_seal(struct sk_buff *skb, const struct rmem_seal_key *key,
		      const u8 salt[RMEM_SEAL_SALT_BYTES]);

#endif
