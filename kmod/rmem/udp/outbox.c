// SPDX-License-Identifier: GPL-2.0
/*
 * Answers that wait for others, to share a packet with them:
 *
 *   datagram that says RMEM_FLAGS_MORE  -> its answers join those that wait
 *   the datagram after it               -> likewise; without MORE, they all leave
 *
 * A CPU keeps one packet back at most; what is full leaves at once. Should the next datagram not
 * come (it was lost, or comes to another CPU), or be another session's, the packet doesn't wait for
 * it: another session's answers send it, and so does a timer at the next jiffy. The timer isn't
 * stopped when there is nothing to wait for any more, so it costs a jiffy's tick at most.
 */
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/timer.h>
#include <net/dst.h>

#include "compat/compat.h"
#include "rmem/node/host.h"

struct node_outbox {
	spinlock_t lock; /* all of it: a CPU's timer goes to another one when it is unplugged */
	struct node_host *host;
	struct node_answers answers;
	struct timer_list timer;
	/* Whose answers they are, and their way; it holds a reference. */
	struct node_path path;
	u64 session;
	u32 space;
	u8 integrity;
	struct dst_entry *route;
};

static void send(struct node_outbox *out, struct sk_buff *packets) __must_hold(&out->lock)
{
	if (packets)
		node_send_packets(out->host, out->route, &out->path, out->integrity == RMEM_LINK,
				  packets);
}

void node_outbox_flush(struct node_outbox *out)
{
	send(out, node_send_take_full(&out->answers));
	send(out, node_send_take_open(&out->answers));
	dst_release(out->route);
	out->route = NULL;
}

static void drop(struct node_outbox *out) __must_hold(&out->lock)
{
	kfree_skb_list(node_send_take_full(&out->answers));
	kfree_skb(node_send_take_open(&out->answers));
	dst_release(out->route);
	out->route = NULL;
}

static void waited(struct timer_list *timer)
{
	struct node_outbox *out = from_timer(out, timer, timer);

	rcu_read_lock();
	spin_lock(&out->lock);
	if (READ_ONCE(out->host->closing))
		drop(out);
	else
		node_outbox_flush(out);
	spin_unlock(&out->lock);
	rcu_read_unlock();
}

static bool same(const struct node_outbox *out, const struct rmem_head *head,
		 const struct node_path *path)
{
	return out->session == head->session && out->space == head->space &&
	       out->integrity == head->integrity && node_path_equal(&out->path, path);
}

struct node_outbox *node_outbox_get(struct node_host *host, const struct rmem_head *head,
				    const struct node_path *path)
	__acquires(outbox)
{
	struct node_outbox *out = this_cpu_ptr(host->outbox);

	spin_lock(&out->lock);
	if (likely(same(out, head, path)))
		return out;
	if (READ_ONCE(host->closing))
		drop(out);
	else
		node_outbox_flush(out);
	out->session = head->session;
	out->space = head->space;
	out->integrity = head->integrity;
	out->path = *path;
	return out;
}

struct node_answers *node_outbox_answers(struct node_outbox *out)
{
	return &out->answers;
}

void node_outbox_route(struct node_outbox *out, struct node_route *route)
{
	if (out->route || !node_send_any(&out->answers))
		return;
	out->route = node_send_route(out->host, route, &out->path);
	if (out->route)
		dst_hold(out->route);
}

void node_outbox_put(struct node_outbox *out, bool more) __releases(outbox)
{
	if (!more || READ_ONCE(out->host->closing)) {
		node_outbox_flush(out);
	} else if (node_send_any(&out->answers)) {
		send(out, node_send_take_full(&out->answers));
		if (!timer_pending(&out->timer))
			mod_timer(&out->timer, jiffies + 1);
	}
	spin_unlock(&out->lock);
}

int node_outbox_open(struct node_host *host)
{
	int cpu;

	host->outbox = alloc_percpu(struct node_outbox);
	if (!host->outbox)
		return -ENOMEM;
	for_each_possible_cpu(cpu) {
		struct node_outbox *out = per_cpu_ptr(host->outbox, cpu);

		spin_lock_init(&out->lock);
		out->host = host;
		timer_setup(&out->timer, waited, TIMER_PINNED);
	}
	return 0;
}

/* After node_net_close(): nothing is received any more, and nothing can be sent. */
void node_outbox_close(struct node_host *host)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		struct node_outbox *out = per_cpu_ptr(host->outbox, cpu);

		compat_timer_delete_sync(&out->timer);
		spin_lock_bh(&out->lock);
		drop(out);
		spin_unlock_bh(&out->lock);
	}
	free_percpu(host->outbox);
}
