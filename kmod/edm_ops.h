/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where EDM's host (kmod/edm/member.c) meets the transports whose messages it schedules.
 *
 *   a client's transport              a memory node's
 *     submit |   ^ request, sent        answer |   ^ request, granted
 *            v   |                             v   |
 *   member.c     this machine's port at a scheduler: core/edm/host.h, its lock, timer and sockets
 *
 * A client's op is a datagram that writes, or one that asks for data. The member announces its
 * bytes, and tells when it MAY leave. Bytes count as on the link, with all headers.
 */
#ifndef REMORA_EDM_OPS_H
#define REMORA_EDM_OPS_H

#include <linux/types.h>

#include "core/edm/host.h"
#include "remora/rmem_edm.h"

struct edm_membership; /* member.c's; a network namespace has one at most */
struct sk_buff;
union udp_address;

/* Messages and answers of each peer under way at a time. */
#define EDM_MEMBER_SLOTS 32U

/* Called under the member's lock, BH disabled. */
struct edm_client_ops {
	/*
	 * A copy of a read's request, for the scheduler to forward; headroom bytes are free before
	 * skb->data. NULL: no memory. It has EDM_OPAQUE_BYTES_MAX at most.
	 */
	struct sk_buff *(*request)(struct edm_op *op, u32 headroom);
	/* Send a read's request to its peer: it goes without a scheduler. The op goes on. */
	void (*ask)(struct edm_op *op);
	/* All bytes of a write MAY leave. The op is the client's again. */
	void (*sent)(struct edm_op *op, bool unscheduled);
};

struct edm_node_ops {
	/*
	 * A request of a peer's message, whose answer is announced with so many bytes. Consumes
	 * skb, whose data is the request; the UDP header that brought it is still in udp_hdr(). No
	 * lock.
	 */
	void (*request)(struct edm_membership *member, u16 peer, u32 id, u32 bytes,
			struct sk_buff *skb);
	/*
	 * The answer's bytes before end MAY leave. unscheduled: without grants. Under the member's
	 * lock.
	 */
	void (*granted)(struct edm_membership *member, u16 peer, u32 id, u32 end,
			bool unscheduled);
	/* The membership has ended: no answer is granted any more. Under the member's lock. */
	void (*gone)(struct edm_membership *member);
};

/*
 * Process context. A module has at most one of each registered. unregister: no call is under way
 * afterwards, and no op of the client is the member's.
 */
int edm_client_register(const struct edm_client_ops *ops);
void edm_client_unregister(void);
int edm_node_register(const struct edm_node_ops *ops);
void edm_node_unregister(void);

/*
 * The membership of the caller's network namespace, which stays until put. scheduler: its address,
 * or NULL for any. -ENOTCONN: there is none.
 */
struct edm_membership *edm_member_get(const union udp_address *scheduler);
void edm_member_put(struct edm_membership *member);

/*
 * BH disabled. begin takes the member's lock, and returns false if the membership has ended, which
 * happens to none that the caller has got. end executes the actions that became possible, which
 * calls the ops above, and releases the lock.
 */
bool edm_member_begin(struct edm_membership *member) __acquires(member);
void edm_member_end(struct edm_membership *member) __releases(member);

/* Between begin, which returned true, and end; as in core/edm/host.h. */
void edm_member_submit(struct edm_membership *member, struct edm_op *op);
void edm_member_done(struct edm_membership *member, struct edm_op *op);
bool edm_member_cancel(struct edm_membership *member, struct edm_op *op);
void edm_member_answer(struct edm_membership *member, u16 peer, u32 id);
/* The scheduler's lease; 0 until one has welcomed this machine. */
u64 edm_member_lease_ns(const struct edm_membership *member);

#endif
