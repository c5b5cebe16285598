/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* The session of a channel, for client.c: how it begins, is replaced and ends. */
#ifndef REMORA_RMEM_CLIENT_SESSION_H
#define REMORA_RMEM_CLIENT_SESSION_H

#include "core/rmem/client/client.h"

/*
 * The session goes on under another name, or as a new one (renews: 0). One that did nothing but get
 * lost makes for a pause: two clients under one name would otherwise supersede each other at full
 * speed.
 */
void rmem_client_reopen(struct rmem_client *c, u64 now_ns, u64 renews);

/*
 * Copies of ended ops might be on their way; in a session of another name they are refused. But a
 * session with an ALLOC that nobody waits for, or is to know of, has to end, so that the node
 * undoes it.
 */
void rmem_client_renew(struct rmem_client *c, u64 now_ns);

/*
 * The node says that it doesn't know the session. It is renewed, unless one renewal just found that
 * nothing had ended: an attacker can have such answers sent at will, and renewals stop all traffic.
 */
void rmem_client_unknown(struct rmem_client *c, u64 now_ns);

/*
 * The node doesn't know the session: all that is outstanding goes again in a new one, parts done
 * excepted. An ATOMIC, PUT or PUBLISH that might have been executed ends instead; returns those,
 * linked.
 */
struct rmem_op *rmem_client_lose_ids(struct rmem_client *c);

/* The node is of another boot: the channel is LOST, and all ops end. */
void rmem_client_lose(struct rmem_client *c, struct rmem_client_rx *rx);

/* Takes an answer to OPEN or CLOSE. False: it doesn't answer the request under way. */
bool rmem_client_receive_own(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			     const void *payload, bool damaged, struct rmem_client_rx *rx);

/* Takes a notice (remora/rmem.h, "Sealed sessions"). */
void rmem_client_receive_notice(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
				struct rmem_client_rx *rx);

#endif
