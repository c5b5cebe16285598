/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A user's packet as the core sees it: a node embedded in the caller's memory.
 *
 * The caller owns the bytes. The core holds the node from the call that takes it (enqueue at the
 * sender, receive at the receiver) until it comes back in a chain of struct eqds_out: free or
 * deliver. Chains go by next and end with NULL.
 */
#ifndef REMORA_EQDS_PACKET_H
#define REMORA_EQDS_PACKET_H

#include "core/eqds/wire.h"

enum eqds_packet_state {
	EQDS_PACKET_QUEUED, /* has no number in this epoch */
	EQDS_PACKET_IN_FLIGHT,
	EQDS_PACKET_RETRANSMIT, /* trimmed or timed out */
};

struct eqds_packet {
	struct eqds_packet *next, *prev;
	u64 sent_ns;
	/* The caller sets these two before enqueue. */
	u32 bytes;     /* credit it costs: payload and the tunnel's headers, 1 .. mtu_bytes */
	u8 next_proto; /* EQDS_PROTO_* */
	/* The core's. */
	u8 state;   /* enum eqds_packet_state */
	u8 attempt; /* transmissions before the last one in this epoch */
	bool again; /* pull_trimmed: in flight, and not for the first time */
	bool counted; /* sent behind the header of an earlier number: sender.h, whole packets */
	bool judged; /* strikes has the failure of the last transmission */
	u8 strikes; /* failed transmissions, of all epochs: sender.h, packets given up */
	u16 path;   /* of the last transmission */
	u16 more;   /* numbers after seq: a whole packet, or a part of one; else 0 */
	u16 nth;    /* the first of these segments, in the whole packet */
	u32 seq;
	u32 each_bytes; /* more: of bytes, what each number costs but for the last */
};

struct eqds_list {
	struct eqds_packet *head, *tail;
	u32 count; /* of numbers: a whole packet has several */
	u32 bytes;
};

static inline void eqds_list_init(struct eqds_list *list)
{
	list->head = NULL;
	list->tail = NULL;
	list->count = 0;
	list->bytes = 0;
}

/* Insert behind after; NULL: at the head. */
static inline void eqds_list_insert(struct eqds_list *list, struct eqds_packet *after,
				    struct eqds_packet *packet)
{
	packet->prev = after;
	packet->next = after ? after->next : list->head;
	*(packet->prev ? &packet->prev->next : &list->head) = packet;
	*(packet->next ? &packet->next->prev : &list->tail) = packet;
	list->count += packet->more + 1U;
	list->bytes += packet->bytes;
}

static inline void eqds_list_append(struct eqds_list *list, struct eqds_packet *packet)
{
	eqds_list_insert(list, list->tail, packet);
}

static inline void eqds_list_remove(struct eqds_list *list, struct eqds_packet *packet)
{
	*(packet->prev ? &packet->prev->next : &list->head) = packet->next;
	*(packet->next ? &packet->next->prev : &list->tail) = packet->prev;
	packet->next = NULL;
	packet->prev = NULL;
	list->count -= packet->more + 1U;
	list->bytes -= packet->bytes;
}

/* Outcome of an event. All but EQDS_OK are counted by the caller. */
enum eqds_verdict {
	EQDS_OK,
	EQDS_DUPLICATE,	 /* data: this number has arrived before */
	EQDS_TRIMMED,	 /* data: only the header arrived, or there is no room for more */
	EQDS_BEYOND,	 /* data: number beyond the window */
	EQDS_OLD_EPOCH,	 /* SYN of an epoch before the receiver's */
	EQDS_WRONG_EPOCH, /* of another epoch */
	EQDS_BAD_ACK,	 /* acknowledges what was not sent */
	EQDS_BAD_PULL,	 /* pull number beyond the target, or behind */
	EQDS_BAD_NACK,	 /* NACK for a packet that is not in flight, or a second one */
	EQDS_RESTARTED,	 /* the tunnel begins a new epoch */
	EQDS_CLOSED,	 /* the tunnel holds nothing any more: the caller may free its state */
	EQDS_NO_TUNNEL,	 /* no state for it */
	EQDS_VERDICTS
};

/* Work for the caller after an event. The core overwrites all of it. */
struct eqds_out {
	struct eqds_packet *deliver; /* receiver: to the user, in this order */
	struct eqds_packet *free;    /* not needed any more */
	struct eqds_packet *lost;    /* sender: given up; not needed any more */
	bool send;		     /* send head, without payload: RTS, FIN or control */
	struct eqds_head head;
	enum eqds_verdict verdict;
};

#endif
