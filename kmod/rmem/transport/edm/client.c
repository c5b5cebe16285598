// SPDX-License-Identifier: GPL-2.0
/*
 * rmem_edm.ko: the client's transport by EDM. Its messages are UDP's, on UDP's path (udp/path.h); a
 * gate decides when a datagram leaves.
 *
 *   pass ---- small, or neither long nor asking for much ------------------------> leaves
 *     |-- WRITEs --> held ---> edm_member_submit(), granted --> client_sent() ---> leaves
 *     '-- READs ---> reads --> edm_member_submit() --> client_request(): a copy by the scheduler
 *                      '<---- answered in full: edm_member_done()
 *
 * A datagram is its own op, in its cb. The congestion window of the core bounds the data that waits
 * here, and protects the network while no scheduler answers.
 *
 * Address: edm:SCHEDULER/PORT@NODE. PORT is the node's at the scheduler, NODE its address by UDP.
 */
#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/timer.h>
#include <net/ipv6.h>
#include <net/netlink.h>

#include "compat/compat.h"
#include "core/base/bytes.h"
#include "edm_ops.h"
#include "rmem/transport/udp/path.h"
#include "uapi/remora_rmem.h"

#define SCHEME "edm"
#define CLIENT_GFP (GFP_ATOMIC | __GFP_MEMALLOC | __GFP_NOWARN)
/* An answer that has not come for so long is lost: its READ has been sent again, or given up. */
#define CLIENT_READ_JIFFIES HZ
/* A READ sent again within this part of a lease is early: its answer waits for a grant. */
#define CLIENT_EARLY_SHIFT 3

struct client_path {
	struct udp_path udp; /* first */
	u16 peer;
	struct edm_membership *member;
	/* The member's lock guards both. */
	struct sk_buff_head held;  /* WRITEs, until they leave */
	struct sk_buff_head reads; /* READs, until they are answered; the oldest first */
	struct timer_list ages;	   /* pending while there are READs, and at times without */
};

struct client_address {
	union udp_address node;
	u16 peer;
};

static_assert(sizeof(struct client_address) <= sizeof_field(struct rmem_address, bytes));

/* In a datagram that waits. */
struct client_op {
	struct edm_op op;
	struct client_path *path; /* NULL: closed meanwhile */
	u32 left;		  /* READs: bytes that their answers lack */
	u32 since;		  /* READs: jiffies */
};

static_assert(sizeof(struct client_op) <= sizeof_field(struct sk_buff, cb));

static struct client_op *client_op_of(struct sk_buff *skb)
{
	return (struct client_op *)skb->cb;
}

static struct sk_buff *client_skb_of(struct edm_op *op)
{
	return container_of((void *)op, struct sk_buff, cb);
}

/* ---- datagrams: their heads are in the linear part ---- */

static u32 client_messages(const struct sk_buff *skb)
{
	return ((const struct rmem_hdr *)skb->data)->messages;
}

static const struct rmem_msg *client_message(const struct sk_buff *skb, u32 n)
{
	return (const struct rmem_msg *)(skb->data + RMEM_HEADS_BYTES(n));
}

static bool client_reads_data(const struct sk_buff *skb)
{
	return rmem_type_answers_data(client_message(skb, 0)->type);
}

static u32 client_link_bytes(const struct client_path *path, u32 datagram_bytes)
{
	return datagram_bytes + rmem_socket_header_bytes(&path->udp.socket) + EDM_FRAME_BYTES;
}

/* Bytes on the link of the answers to READs, if none shares a datagram. */
static u32 client_answer_bytes(const struct client_path *path, const struct sk_buff *skb)
{
	u32 heads = client_link_bytes(path, RMEM_HEADS_BYTES(1));
	u32 n, bytes = 0;

	for (n = 0; n < client_messages(skb); n++) {
		const struct rmem_msg *message = client_message(skb, n);
		u32 len = base_load_le32(&message->len), piece = base_load_le32(&message->part);

		bytes += len + heads * (piece ? DIV_ROUND_UP(len, piece) : 1);
	}
	return bytes;
}

static u32 client_wanted_bytes(const struct sk_buff *skb)
{
	u32 n, bytes = 0;

	for (n = 0; n < client_messages(skb); n++)
		bytes += base_load_le32(&client_message(skb, n)->len);
	return bytes;
}

static bool client_has(const struct sk_buff *skb, u64 session, u64 id)
{
	u32 n;

	if (base_load_le64(&((const struct rmem_hdr *)skb->data)->session) != session)
		return false;
	for (n = 0; n < client_messages(skb); n++) {
		if (base_load_le64(&client_message(skb, n)->id) == id)
			return true;
	}
	return false;
}

static struct sk_buff *client_find(struct sk_buff_head *list, u64 session, u64 id)
{
	struct sk_buff *skb;

	skb_queue_walk(list, skb) {
		if (client_has(skb, session, id))
			return skb;
	}
	return NULL;
}

/* ---- out: BH disabled, with the member's lock ---- */

/* The layers below take the cb for theirs. */
static void client_leave(struct client_path *path, struct sk_buff *skb)
{
	memset(skb->cb, 0, sizeof(skb->cb));
	rmem_udp_transmit(&path->udp, skb);
}

/*
 * As UDP's do, so that they don't delay those that have grants: nobody booked a port for them.
 * Their answers have the same mark. The member's lock keeps other datagrams of the socket away
 * meanwhile.
 */
static void client_leave_unscheduled(struct client_path *path, struct sk_buff *skb)
{
	rmem_path_count(&path->udp.path, RMEM_PATH_UNSCHEDULED);
	rmem_socket_mark(&path->udp.socket, 0, 0);
	client_leave(path, skb);
	rmem_socket_mark(&path->udp.socket, EDM_TOS, EDM_PRIORITY);
}

static void client_sent(struct edm_op *op, bool unscheduled)
{
	struct sk_buff *skb = client_skb_of(op);
	struct client_path *path = client_op_of(skb)->path;

	if (unlikely(!path)) {
		consume_skb(skb);
		return;
	}
	__skb_unlink(skb, &path->held);
	if (unlikely(unscheduled))
		client_leave_unscheduled(path, skb);
	else
		client_leave(path, skb);
}

static void client_write_prefix(const struct client_path *path, struct rmem_edm_prefix *prefix)
{
	const struct rmem_socket *socket = &path->udp.socket;
	const struct flowi4 *ip4 = &socket->flow.u.ip4;
	const struct flowi6 *ip6 = &socket->flow.u.ip6;

	struct in6_addr client = ip6->saddr, node = ip6->daddr;

	memset(prefix, 0, sizeof(*prefix));
	if (socket->sock->sk->sk_family == AF_INET) {
		ipv6_addr_set_v4mapped(ip4->saddr, &client);
		ipv6_addr_set_v4mapped(ip4->daddr, &node);
		prefix->port = ip4->fl4_sport;
	} else {
		prefix->port = ip6->fl6_sport;
	}
	memcpy(prefix->client, &client, sizeof(prefix->client));
	memcpy(prefix->node, &node, sizeof(prefix->node));
}

static struct sk_buff *client_copy(const struct sk_buff *skb, u32 headroom, u32 prefix_bytes)
{
	struct sk_buff *copy = alloc_skb(headroom + prefix_bytes + skb->len, CLIENT_GFP);

	if (unlikely(!copy))
		return NULL;
	skb_reserve(copy, headroom);
	skb_put(copy, prefix_bytes);
	skb_copy_bits(skb, 0, skb_put(copy, skb->len), skb->len);
	return copy;
}

static struct sk_buff *client_request(struct edm_op *op, u32 headroom)
{
	struct sk_buff *skb = client_skb_of(op), *copy;

	copy = client_copy(skb, headroom, sizeof(struct rmem_edm_prefix));
	if (likely(copy))
		client_write_prefix(client_op_of(skb)->path, (void *)copy->data);
	return copy;
}

static void client_ask(struct edm_op *op)
{
	struct sk_buff *skb = client_skb_of(op);
	struct client_path *path = client_op_of(skb)->path;
	struct sk_buff *copy = client_copy(skb, RMEM_SOCKET_HEADROOM, 0);

	if (likely(copy))
		client_leave_unscheduled(path, copy);
	else
		rmem_path_count(&path->udp.path, RMEM_PATH_NO_BUFFER);
}

static const struct edm_client_ops client_member_ops = {
	.request = client_request,
	.ask = client_ask,
	.sent = client_sent,
};

/* ---- the gate ---- */

/* A READ is never part of a message of several ops, so it can be cancelled. */
static void client_end_read(struct client_path *path, struct sk_buff *skb)
{
	edm_member_cancel(path->member, &client_op_of(skb)->op);
	__skb_unlink(skb, &path->reads);
	consume_skb(skb);
}

static void client_end_old_reads(struct client_path *path)
{
	struct sk_buff *skb;

	while ((skb = skb_peek(&path->reads)) &&
	       (u32)jiffies - client_op_of(skb)->since >= CLIENT_READ_JIFFIES)
		client_end_read(path, skb);
}

/* A path that passes nothing more gives the slots of its dead READs to other paths, too. */
static void client_aged(struct timer_list *timer)
{
	struct client_path *path = from_timer(path, timer, ages);

	edm_member_begin(path->member);
	client_end_old_reads(path);
	if (!skb_queue_empty(&path->reads))
		mod_timer(&path->ages, jiffies + CLIENT_READ_JIFFIES);
	edm_member_end(path->member);
}

/* The first copy of a READ still has a chance: it has not been asked for, or not for long. */
static bool client_is_early(const struct client_path *path, struct sk_buff *first)
{
	u32 waited_jiffies = (u32)jiffies - client_op_of(first)->since;
	u64 early_ns = edm_member_lease_ns(path->member) >> CLIENT_EARLY_SHIFT;

	return client_op_of(first)->op.state == EDM_OP_QUEUED ||
	       jiffies_to_nsecs(waited_jiffies) < early_ns;
}

/*
 * Is all of a datagram that is sent again under way? The core takes a message for lost when one
 * that was sent later is answered first, and messages overtake each other here. Earlier copies of
 * READs that are lost end.
 */
static bool client_is_under_way(struct client_path *path, struct sk_buff *skb, bool reads)
{
	u64 session = base_load_le64(&((const struct rmem_hdr *)skb->data)->session);
	bool all = true;
	u32 n;

	for (n = 0; n < client_messages(skb); n++) {
		const struct rmem_msg *message = client_message(skb, n);
		struct sk_buff *first = NULL;

		if (message->attempt)
			first = client_find(reads ? &path->reads : &path->held, session,
					    base_load_le64(&message->id));
		if (first && reads && !client_is_early(path, first)) {
			client_end_read(path, first);
			first = NULL;
		}
		all &= !!first;
	}
	return all;
}

/* A datagram that has to be scheduled, with the member's lock. */
static void client_hold(struct client_path *path, struct sk_buff *skb, u32 link_bytes, bool reads)
{
	struct client_op *op = client_op_of(skb);

	if (unlikely(client_is_under_way(path, skb, reads))) {
		rmem_path_count(&path->udp.path, RMEM_PATH_WAITING);
		consume_skb(skb);
		return;
	}
	*op = (struct client_op){
		.op = {
			.bytes = link_bytes,
			.peer = path->peer,
			.type = reads ? EDM_READ : EDM_WRITE,
			.state = EDM_OP_IDLE,
		},
		.path = path,
		.left = reads ? client_wanted_bytes(skb) : 0,
		.since = (u32)jiffies,
	};
	__skb_queue_tail(reads ? &path->reads : &path->held, skb);
	if (reads && !timer_pending(&path->ages))
		mod_timer(&path->ages, jiffies + CLIENT_READ_JIFFIES);
	edm_member_submit(path->member, &op->op);
}

static void client_pass_one(struct client_path *path, struct sk_buff *skb)
{
	bool reads = client_reads_data(skb);
	u32 link_bytes = reads ? client_answer_bytes(path, skb) : client_link_bytes(path, skb->len);

	if (link_bytes <= EDM_FREE_BYTES)
		client_leave(path, skb);
	else if (reads && sizeof(struct rmem_edm_prefix) + skb->len > EDM_OPAQUE_BYTES_MAX)
		client_leave_unscheduled(path, skb);
	else
		client_hold(path, skb, link_bytes, reads);
}

static void client_pass(struct udp_path *udp, struct sk_buff *datagrams)
{
	struct client_path *path = container_of(udp, struct client_path, udp);
	struct sk_buff *skb, *next;

	edm_member_begin(path->member);
	client_end_old_reads(path);
	skb_list_walk_safe(datagrams, skb, next) {
		skb_mark_not_on_list(skb);
		client_pass_one(path, skb);
	}
	edm_member_end(path->member);
}

static void client_answered(struct udp_path *udp, const struct rmem_head *head)
{
	struct client_path *path = container_of(udp, struct client_path, udp);
	struct client_op *op;
	struct sk_buff *skb;

	edm_member_begin(path->member);
	skb = client_find(&path->reads, head->session, head->id);
	if (skb) {
		op = client_op_of(skb);
		/* An answer that isn't OK ends its message. */
		op->left -= head->status == RMEM_OK ? min(op->left, head->len) : op->left;
		if (!op->left) {
			edm_member_done(path->member, &op->op);
			__skb_unlink(skb, &path->reads);
			consume_skb(skb);
		}
	}
	edm_member_end(path->member);
}

static const struct udp_gate client_gate = {
	.pass = client_pass,
	.answered = client_answered,
};

/* ---- addresses ---- */

static int client_refuse(struct netlink_ext_ack *extack, const struct nlattr *attr)
{
	NL_SET_ERR_MSG_ATTR(extack, attr, "no such ADDRESS: write edm:SCHEDULER/PORT@NODE");
	return -EINVAL;
}

static bool client_is_link_local(const union udp_address *address)
{
	return address->any.sa_family == AF_INET6 &&
	       ipv6_addr_type(&address->in6.sin6_addr) & IPV6_ADDR_LINKLOCAL;
}

static int client_address_get(struct rmem_address *to, struct nlattr **attrs,
			      struct netlink_ext_ack *extack)
{
	const struct nlattr *attr = attrs[RMEM_A_ADDRESS];
	char text[RMEM_ADDRESS_TEXT_MAX + 1], *scheduler, *port, *node;
	struct client_address address = {};
	struct edm_membership *member;
	union udp_address at = {};

	nla_strscpy(text, attr, sizeof(text));
	scheduler = text + strlen(SCHEME ":");
	memset(to, 0, sizeof(*to));
	strscpy(to->text, scheduler, sizeof(to->text));
	port = strchr(scheduler, '/');
	node = port ? strchr(port, '@') : NULL;
	if (!node)
		return client_refuse(extack, attr);
	*port++ = '\0';
	*node++ = '\0';
	if (kstrtou16(port, 10, &address.peer) || address.peer >= EDM_PORTS_MAX ||
	    rmem_socket_parse(&at, scheduler, EDM_PORT) ||
	    rmem_socket_parse(&address.node, node, RMEM_PORT) ||
	    client_is_link_local(&address.node))
		return client_refuse(extack, attr);
	member = edm_member_get(&at);
	if (IS_ERR(member)) {
		NL_SET_ERR_MSG_ATTR(extack, attr,
				    "this machine is no member there: 'remora edm join' first");
		return -ENOTCONN;
	}
	edm_member_put(member);
	memcpy(to->bytes, &address, sizeof(address));
	return 0;
}

static int client_address_put(const struct rmem_address *address, struct sk_buff *reply)
{
	return 0;
}

/* ---- life ---- */

static struct client_path *client_path_of(struct rmem_path *path)
{
	return container_of(path, struct client_path, udp.path);
}

static int client_open(struct rmem_path *path, const struct rmem_address *to)
{
	const struct client_address *address = (const struct client_address *)to->bytes;
	struct client_path *mine = client_path_of(path);
	int err;

	mine->member = edm_member_get(NULL);
	if (IS_ERR(mine->member))
		return PTR_ERR(mine->member);
	mine->peer = address->peer;
	mine->udp.gate = &client_gate;
	__skb_queue_head_init(&mine->held);
	__skb_queue_head_init(&mine->reads);
	timer_setup(&mine->ages, client_aged, 0);
	err = rmem_udp_open(path, &address->node);
	if (err)
		edm_member_put(mine->member);
	else
		rmem_socket_mark(&mine->udp.socket, EDM_TOS, EDM_PRIORITY);
	return err;
}

/* A WRITE that shares its message with others stays the member's, and is freed once granted. */
static void client_forget(struct client_path *path)
{
	struct sk_buff *skb;

	while ((skb = skb_peek(&path->reads)))
		client_end_read(path, skb);
	while ((skb = __skb_dequeue(&path->held))) {
		client_op_of(skb)->path = NULL;
		if (edm_member_cancel(path->member, &client_op_of(skb)->op))
			consume_skb(skb);
	}
}

static void client_close(struct rmem_path *path)
{
	struct client_path *mine = client_path_of(path);

	compat_timer_delete_sync(&mine->ages);
	local_bh_disable();
	edm_member_begin(mine->member);
	client_forget(mine);
	edm_member_end(mine->member);
	local_bh_enable();
	edm_member_put(mine->member);
	rmem_udp_close(path);
}

static const struct rmem_transport_ops client_transport = {
	.name = SCHEME,
	.owner = THIS_MODULE,
	.path_bytes = sizeof(struct client_path),
	.no_answer = "the node does not answer: is its UDP port open, do space and key match?",
	.address_get = client_address_get,
	.address_put = client_address_put,
	.open = client_open,
	.quiesce = rmem_udp_quiesce,
	.close = client_close,
	.limits = rmem_udp_limits,
	.add = rmem_udp_add,
	.flush = rmem_udp_flush,
};

static int __init client_init(void)
{
	int err = edm_client_register(&client_member_ops);

	if (err)
		return err;
	err = rmem_transport_register(&client_transport);
	if (err)
		edm_client_unregister();
	return err;
}

static void __exit client_exit(void)
{
	rmem_transport_unregister(&client_transport);
	edm_client_unregister();
}

module_init(client_init);
module_exit(client_exit);

MODULE_ALIAS("rmem-transport-" SCHEME);
MODULE_DESCRIPTION("Remora remote memory: the client's transport by EDM");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
