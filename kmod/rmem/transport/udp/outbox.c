// SPDX-License-Identifier: GPL-2.0
/*
 * Answers that wait for others, to share a packet with them:
 *
 *   datagram that says RMEM_FLAGS_MORE  -> its answers join those that wait
 *   the datagram after it               -> likewise; without MORE, they all leave
 *
 * A CPU keeps one packet back at most; a full one leaves at once. Should the next datagram not
 * come (it was lost, or comes to another CPU), or be another session's, the packet doesn't wait for
 * it: another session's answers send it, and so does a timer at the next jiffy. The timer isn't
 * stopped when there is nothing to wait for any more, so it costs a jiffy's tick at most.
 */
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/timer.h>
#include <net/dst.h>

#include "compat/compat.h"
#include "rmem/transport/udp/port.h"

struct udp_outbox {
	spinlock_t lock; /* all of it: a CPU's timer goes to another one when it is unplugged */
	struct udp_port *port;
	struct udp_answers answers;
	struct timer_list timer;
	/* The answers are of this session, and take this route; a reference is held. */
	struct rmem_port_path path;
	u64 session;
	u32 space;
	u8 integrity;
	bool sealed;
	struct rmem_seal_key key; /* if it is, while answers wait or are made */
	struct dst_entry *route;
};

static void outbox_send(struct udp_outbox *out, struct sk_buff *packets) __must_hold(&out->lock)
{
	lockdep_assert_held(&out->lock);
	if (packets && out->sealed)
		packets = udp_answers_seal(packets, &out->key);
	if (packets)
		udp_route_send(out->port, out->route, &out->path, out->integrity == RMEM_LINK,
			       packets);
}

void udp_outbox_flush(struct udp_outbox *out)
{
	outbox_send(out, udp_answers_take_full(&out->answers));
	outbox_send(out, udp_answers_take_open(&out->answers));
	dst_release(out->route);
	out->route = NULL;
}

static void outbox_drop(struct udp_outbox *out) __must_hold(&out->lock)
{
	lockdep_assert_held(&out->lock);
	kfree_skb_list(udp_answers_take_full(&out->answers));
	kfree_skb(udp_answers_take_open(&out->answers));
	dst_release(out->route);
	out->route = NULL;
}

/*
 * Nothing waits any more. The session can end before this CPU has another datagram to answer, so
 * the outbox has a key only while answers are made or wait.
 */
static void outbox_settle(struct udp_outbox *out) __must_hold(&out->lock)
{
	lockdep_assert_held(&out->lock);
	if (READ_ONCE(out->port->closing))
		outbox_drop(out);
	else
		udp_outbox_flush(out);
	if (out->sealed)
		rmem_seal_wipe(&out->key, sizeof(out->key));
}

static void outbox_waited(struct timer_list *timer)
{
	struct udp_outbox *out = from_timer(out, timer, timer);

	rcu_read_lock();
	spin_lock(&out->lock);
	outbox_settle(out);
	spin_unlock(&out->lock);
	rcu_read_unlock();
}

/* A sealed session's key changes with its name. */
static bool outbox_is_for(const struct udp_outbox *out, const struct rmem_head *head,
			  const struct rmem_port_path *path, const struct rmem_seal_key *seal)
{
	return out->session == head->session && out->space == head->space &&
	       out->integrity == head->integrity && out->sealed == !!seal &&
	       udp_path_equal(&out->path, path) &&
	       udp_way_of(&out->path)->tos == udp_way_of(path)->tos &&
	       udp_way_of(&out->path)->flow == udp_way_of(path)->flow;
}

struct udp_outbox *udp_outbox_get(struct udp_port *port, const struct rmem_head *head,
				  const struct rmem_port_path *path,
				  const struct rmem_seal_key *seal)
	__acquires(outbox)
{
	struct udp_outbox *out = this_cpu_ptr(port->outbox);

	spin_lock(&out->lock);
	if (unlikely(!outbox_is_for(out, head, path, seal))) {
		outbox_settle(out);
		out->session = head->session;
		out->space = head->space;
		out->integrity = head->integrity;
		out->path = *path;
		out->sealed = seal;
	}
	if (seal)
		out->key = *seal;
	return out;
}

struct udp_answers *udp_outbox_answers(struct udp_outbox *out)
{
	return &out->answers;
}

void udp_outbox_route(struct udp_outbox *out, struct udp_route *route)
{
	if (out->route || !udp_answers_any(&out->answers))
		return;
	out->route = udp_route_get(out->port, route, &out->path);
	if (out->route)
		dst_hold(out->route);
}

void udp_outbox_put(struct udp_outbox *out, bool more) __releases(outbox)
{
	if (more && !udp_way_of(&out->path)->flow && !READ_ONCE(out->port->closing) &&
	    udp_answers_any(&out->answers)) {
		outbox_send(out, udp_answers_take_full(&out->answers));
		if (!timer_pending(&out->timer))
			mod_timer(&out->timer, jiffies + 1);
	} else {
		outbox_settle(out);
	}
	spin_unlock(&out->lock);
}

int udp_outbox_open(struct udp_port *port)
{
	int cpu;

	port->outbox = alloc_percpu(struct udp_outbox);
	if (!port->outbox)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct udp_outbox *out = per_cpu_ptr(port->outbox, cpu);

		spin_lock_init(&out->lock);
		out->port = port;
		timer_setup(&out->timer, outbox_waited, TIMER_PINNED);
	}
	return 0;
}

/* After the sockets: nothing is received any more, and nothing can be sent. */
void udp_outbox_close(struct udp_port *port)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct udp_outbox *out = per_cpu_ptr(port->outbox, cpu);

		compat_timer_delete_sync(&out->timer);
		spin_lock_bh(&out->lock);
		outbox_settle(out);
		spin_unlock_bh(&out->lock);
	}
	free_percpu(port->outbox);
}
