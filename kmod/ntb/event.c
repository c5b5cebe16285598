// SPDX-License-Identifier: GPL-2.0
/*
 * Events from peers: doorbells, message registers, links.
 *
 *   vector 0..15   a doorbell: pending, kept here; the event unless masked
 *   vector 16      something in the registers may have changed: look at all of it
 *   irq_work       the same look, after a call of the client's that may have made events due
 *
 * A link is up while the client wants links, the switch permits it, and switch and peer say that
 * the peer is there. A link that was down between two looks has another epoch; the client is told
 * of both.
 *
 * A hostile peer can ring as fast as it likes. The interrupt of a doorbell that is masked is
 * disabled until the client unmasks it, and that of NTB_VECTOR_EVENT rests for a tick when there
 * were too many within one.
 */
#include "ivshmem.h"

#define MESSAGE_VALUE_MASK GENMASK_ULL(31, 0)
#define DOORBELL_REGISTER 12 /* of BAR 0: ID of the peer << 16 | vector */
/* More looks within a tick than links, messages and policy of all peers have changes. */
#define EVENT_COUNT_MAX 64

void ivshmem_ring(struct ivshmem_ntb *nt, struct ivshmem_peer *peer, unsigned int vector)
{
	writel(peer->port << 16 | vector, nt->registers + DOORBELL_REGISTER);
}

/* ---- doorbells ---- */

static void event_doorbell_rung(struct ivshmem_ntb *nt, unsigned int number)
{
	unsigned long flags;
	bool masked;

	spin_lock_irqsave(&nt->lock, flags);
	nt->doorbells |= BIT_ULL(number);
	masked = nt->doorbell_mask & BIT_ULL(number);
	if (masked && !(nt->doorbells_resting & BIT_ULL(number))) {
		nt->doorbells_resting |= BIT_ULL(number);
		disable_irq_nosync(nt->vectors[number].irq);
	}
	spin_unlock_irqrestore(&nt->lock, flags);
	if (!masked)
		ntb_db_event(&nt->ntb, number);
}

/* Doorbells that are no longer masked interrupt again. */
void ivshmem_doorbells_rise(struct ivshmem_ntb *nt, u64 bits)
{
	unsigned long flags;
	u64 risen;

	spin_lock_irqsave(&nt->lock, flags);
	risen = nt->doorbells_resting & bits & ~nt->doorbell_mask;
	nt->doorbells_resting &= ~risen;
	spin_unlock_irqrestore(&nt->lock, flags);
	for (; risen; risen &= risen - 1)
		enable_irq(nt->vectors[__ffs64(risen)].irq);
}

static void event_doorbells_look(struct ivshmem_ntb *nt)
{
	unsigned long flags;
	u64 due;

	spin_lock_irqsave(&nt->lock, flags);
	due = nt->doorbells & ~nt->doorbell_mask;
	spin_unlock_irqrestore(&nt->lock, flags);
	for (; due; due &= due - 1)
		ntb_db_event(&nt->ntb, __ffs64(due));
}

/* ---- message registers ---- */

/* The peer that wrote a message register's content, or -1 if that is no peer. */
static int event_message_sender(struct ivshmem_ntb *nt, u64 content)
{
	u64 port = (content >> NTB_MESSAGE_SENDER_SHIFT) - 1;

	if (port > nt->peer_count || port == nt->port)
		return -1;
	return port < nt->port ? port : port - 1;
}

/* The status bits of ntb_msg_read_sts(). A register with impossible content counts as empty. */
u64 ivshmem_message_status(struct ivshmem_ntb *nt)
{
	u64 bits = READ_ONCE(nt->messages_failed);
	unsigned int i;

	for (i = 0; i < NTB_MESSAGES; i++) {
		u64 content = ivshmem_read64(&nt->own->message[i]);

		if (content && event_message_sender(nt, content) >= 0)
			bits |= BIT_ULL(i);
	}
	return bits;
}

/* The value of a register, 0 if it is empty; *pidx is always a peer. */
u32 ivshmem_message_read(struct ivshmem_ntb *nt, int *pidx, unsigned int number)
{
	u64 content = ivshmem_read64(&nt->own->message[number]);
	int sender = event_message_sender(nt, content);

	*pidx = max(sender, 0);
	return sender < 0 ? 0 : content & MESSAGE_VALUE_MASK;
}

/* -EBUSY if the peer has not emptied the register; the status then has its out bit. */
int ivshmem_message_write(struct ivshmem_ntb *nt, struct ivshmem_peer *peer, unsigned int number,
			  u32 value)
{
	u64 content = (u64)(nt->port + 1) << NTB_MESSAGE_SENDER_SHIFT | value;
	unsigned long flags;

	if (cmpxchg64((__force u64 *)&peer->page->message[number], 0,
		      (__force u64)cpu_to_le64(content))) {
		spin_lock_irqsave(&nt->lock, flags);
		nt->messages_failed |= BIT_ULL(number) << IVSHMEM_MESSAGE_OUT_SHIFT;
		spin_unlock_irqrestore(&nt->lock, flags);
		return -EBUSY;
	}
	ivshmem_ring(nt, peer, NTB_VECTOR_EVENT);
	return 0;
}

void ivshmem_message_clear(struct ivshmem_ntb *nt, u64 bits)
{
	unsigned long flags;
	unsigned int i;

	for (i = 0; i < NTB_MESSAGES; i++)
		if (bits & BIT_ULL(i))
			WRITE_ONCE(nt->own->message[i], 0);
	spin_lock_irqsave(&nt->lock, flags);
	nt->messages_failed &= ~bits;
	spin_unlock_irqrestore(&nt->lock, flags);
}

/* Empties the registers that a peer filled whose link is down, or that no peer can have filled. */
static void event_messages_drop(struct ivshmem_ntb *nt, int pidx)
{
	unsigned int i;

	for (i = 0; i < NTB_MESSAGES; i++) {
		__le64 *at = &nt->own->message[i];
		u64 content = ivshmem_read64(at);

		if (content && event_message_sender(nt, content) == pidx)
			cmpxchg64((__force u64 *)at, (__force u64)cpu_to_le64(content), 0);
	}
}

static void event_messages_look(struct ivshmem_ntb *nt)
{
	event_messages_drop(nt, -1);
	if (ivshmem_message_status(nt) & ~READ_ONCE(nt->message_mask) & IVSHMEM_MESSAGES_IN)
		ntb_msg_event(&nt->ntb);
}

/* ---- links ---- */

/*
 * Each of these words changes whenever it takes the link down, or lets it come: so does their sum.
 * A restart of a machine changes the generation at random.
 */
u32 ivshmem_link_epoch(struct ntb_dev *ntb, int pidx)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	const struct ntb_port_page *peer = nt->peers[pidx].page;

	return ivshmem_read32(&nt->own->changes) + ivshmem_read32(&nt->own->link) +
	       ivshmem_read32(&peer->changes) + ivshmem_read32(&peer->link);
}

/* Takes a link down if it is to be, and returns whether it did. */
static bool event_link_goes(struct ivshmem_ntb *nt, int pidx, u32 epoch, bool up)
{
	unsigned long flags;
	bool goes;

	spin_lock_irqsave(&nt->lock, flags);
	goes = nt->linked & BIT_ULL(pidx) &&
	       (!up || !nt->enabled || nt->peers[pidx].link_epoch != epoch);
	if (goes)
		nt->linked &= ~BIT_ULL(pidx);
	spin_unlock_irqrestore(&nt->lock, flags);
	return goes;
}

static bool event_link_comes(struct ivshmem_ntb *nt, int pidx, u32 epoch, bool up)
{
	unsigned long flags;
	bool comes;

	spin_lock_irqsave(&nt->lock, flags);
	comes = up && nt->enabled && !(nt->linked & BIT_ULL(pidx));
	if (comes) {
		nt->linked |= BIT_ULL(pidx);
		nt->peers[pidx].link_epoch = epoch;
	}
	spin_unlock_irqrestore(&nt->lock, flags);
	return comes;
}

static void event_links_look(struct ivshmem_ntb *nt)
{
	u64 reach = ivshmem_read64(&nt->switch_page->map[nt->port].reach);
	unsigned int i;

	for (i = 0; i < nt->peer_count; i++) {
		/* First: a change after it is noticed by the next look, which its event brings. */
		u32 epoch = ivshmem_link_epoch(&nt->ntb, i), both, present, word;
		bool up;

		rmb(); /* the epoch is no newer than the words that follow */
		both = BIT(nt->port) | BIT(nt->peers[i].port);
		present = ivshmem_read32(&nt->switch_page->present);
		word = ivshmem_read32(&nt->peers[i].page->link);
		up = (present & both) == both && reach & BIT_ULL(nt->peers[i].port) &&
		     word & NTB_LINK_UP;

		if (event_link_goes(nt, i, epoch, up)) {
			event_messages_drop(nt, i);
			ntb_link_event(&nt->ntb);
		}
		if (event_link_comes(nt, i, epoch, up))
			ntb_link_event(&nt->ntb);
	}
}

/*
 * The client wants links, or no longer. It is told of links that come up, but not of those it takes
 * down: by the time of the event it might be gone.
 */
void ivshmem_link_set(struct ivshmem_ntb *nt, bool up)
{
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&nt->lock, flags);
	if (nt->enabled == up) {
		spin_unlock_irqrestore(&nt->lock, flags);
		return;
	}
	nt->enabled = up;
	nt->linked = 0;
	nt->generation += NTB_LINK_GENERATION;
	WRITE_ONCE(nt->own->link, cpu_to_le32(nt->generation | (up ? NTB_LINK_UP : 0)));
	spin_unlock_irqrestore(&nt->lock, flags);

	for (i = 0; i < nt->peer_count; i++)
		ivshmem_ring(nt, &nt->peers[i], NTB_VECTOR_EVENT);
	if (up)
		irq_work_queue(&nt->events);
}

/* ---- interrupts ---- */

void ivshmem_events(struct irq_work *work)
{
	struct ivshmem_ntb *nt = container_of(work, struct ivshmem_ntb, events);

	event_links_look(nt);
	ivshmem_pages_look(nt);
	event_messages_look(nt);
	event_doorbells_look(nt);
}

/* Too many interrupts of the vector within a tick: it rests for another one. */
static void event_limit(struct ivshmem_ntb *nt)
{
	if (time_after(jiffies, nt->event_jiffy)) {
		nt->event_jiffy = jiffies;
		nt->event_count = 0;
	}
	if (++nt->event_count != EVENT_COUNT_MAX)
		return;
	disable_irq_nosync(nt->vectors[NTB_VECTOR_EVENT].irq);
	mod_timer(&nt->event_rest, jiffies + 1);
}

void ivshmem_event_rest_end(struct timer_list *timer)
{
	struct ivshmem_ntb *nt = container_of(timer, struct ivshmem_ntb, event_rest);

	nt->event_count = 0;
	enable_irq(nt->vectors[NTB_VECTOR_EVENT].irq);
	irq_work_queue(&nt->events);
}

irqreturn_t ivshmem_interrupt(int irq, void *context)
{
	struct ivshmem_vector *vector = context;
	struct ivshmem_ntb *nt = vector->nt;

	if (vector->number < NTB_DOORBELLS) {
		event_doorbell_rung(nt, vector->number);
	} else {
		event_limit(nt);
		event_links_look(nt);
		ivshmem_pages_look(nt);
		event_messages_look(nt);
	}
	return IRQ_HANDLED;
}
