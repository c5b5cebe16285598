// SPDX-License-Identifier: GPL-2.0
/*
 * Requests come in, and what they ask for is done, in the softirq that brought
 * them:
 *
 *   UDP (checksum verified by the stack)
 *     |
 *   form, lengths -> space known? -> tag                cheap checks first; nothing is
 *     |                                                  changed before all of them held
 *   each message: digest
 *     |-- OPEN CLOSE ALLOC FREE FENCE, long ZERO --> slow.c
 *     |
 *   slot lock { core decides; copy between packet and pages; executed; answer built }
 *     |
 *   outbox.c
 *
 * A packet's payload may lie in pieces; it is verified and copied where it lies.
 * Nothing is allocated but the answers.
 *
 * Packets whose buffer came from the reserves kept for swapping are dropped: the
 * node is nobody's swap, and whoever is needs that buffer back.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/timekeeping.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "compat/compat.h"
#include "rmem/node/host.h"
#include "rmem/node/trace.h"
#include "rmem/udp/skb.h"

/* One datagram on its way through, a message at a time; lives on the stack. */
struct node_rx {
	struct node_host *host;
	struct sk_buff *skb;
	const void *heads; /* in skb's linear part */
	struct rmem_datagram in;
	const struct base_siphash_key *key;
	struct node_path path;
	struct node_outbox *out;
	struct node_answers *answers; /* out's */
};

static bool drop(const struct sk_buff *skb, unsigned int count)
{
	node_count(count);
	trace_rmem_node_drop(count, skb->len);
	return false;
}

static void read_path(struct sk_buff *skb, struct node_path *path)
{
	path->ifindex = 0;
	path->peer.port = ntohs(udp_hdr(skb)->source);
	path->ipv4 = skb->protocol == htons(ETH_P_IP);
	if (path->ipv4) {
		struct in6_addr peer;

		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, &peer);
		memcpy(path->peer.addr, &peer, sizeof(path->peer.addr));
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &path->local);
	} else {
		memcpy(path->peer.addr, &ipv6_hdr(skb)->saddr, sizeof(path->peer.addr));
		path->local = ipv6_hdr(skb)->daddr;
		path->ifindex = ipv6_iface_scope_id(&ipv6_hdr(skb)->saddr, inet6_iif(skb));
	}
}

/* ---- execution ---- */

/* Must the UDP checksum be there? At the other levels, more than that protects the payload. */
static bool wants_checksum(const struct rmem_head *head)
{
	return head->integrity == RMEM_LINK;
}

/*
 * Payload from *offset on to pages. The lengths were compared, so there is as much of it as the
 * extents take. What of a WRITEV's was freed meanwhile has no page.
 */
static bool copy_extents(const struct node_rx *rx, u32 *offset, const struct rmem_answer *answer)
{
	unsigned int i;

	for (i = 0; i < answer->extents; i++) {
		const struct rmem_extent *extent = &answer->extent[i];

		if (extent->page != RMEM_PAGE_NONE &&
		    WARN_ON_ONCE(skb_copy_bits(rx->skb, *offset,
					       node_mem_at(&rx->host->mem, extent),
					       extent->bytes)))
			return false;
		*offset += extent->bytes;
	}
	return true;
}

/* All of the payload but its first skip_bytes. */
static bool copy_in(const struct node_rx *rx, u32 skip_bytes, const struct rmem_answer *answer)
{
	u32 offset = rmem_skb_payload(&rx->in) + skip_bytes;

	if (!copy_extents(rx, &offset, answer))
		return false;
	node_count_add(NODE_COUNT_WRITE_BYTES, rx->in.head.len);
	return true;
}

/* The same, of a WRITEV. */
static bool scatter(const struct node_rx *rx, const void *ranges, struct rmem_answer *answer)
{
	u32 offset = rmem_skb_payload(&rx->in) + rmem_wire_ranges_bytes(&rx->in.head);
	unsigned int i;

	for (i = 0; i < rx->in.head.op; i++) {
		rmem_node_range(&rx->host->core, ranges, i, answer);
		if (!copy_extents(rx, &offset, answer))
			return false;
	}
	node_count_add(NODE_COUNT_WRITE_BYTES, rx->in.head.len);
	return true;
}

static void fill(const struct node_rx *rx, const struct rmem_answer *answer)
{
	unsigned int i;

	for (i = 0; i < answer->extents; i++)
		memset(node_mem_at(&rx->host->mem, &answer->extent[i]), 0,
		       answer->extent[i].bytes);
}

/* The integer is in one page, since it's aligned. */
static bool do_atomic(const struct node_rx *rx, struct rmem_answer *answer)
{
	struct rmem_operands operands;

	if (WARN_ON_ONCE(skb_copy_bits(rx->skb, rmem_skb_payload(&rx->in), &operands,
				       sizeof(operands))))
		return false;
	rmem_node_atomic(&operands, node_mem_at(&rx->host->mem, &answer->extent[0]), answer);
	return true;
}

static bool do_put(const struct node_rx *rx, const struct rmem_put *put,
		   struct rmem_answer *answer)
{
	if (!copy_in(rx, sizeof(*put), answer))
		return false;
	rmem_node_put(put, node_mem_at(&rx->host->mem, &answer->integer), answer);
	return true;
}

static void reply(struct node_rx *rx, struct rmem_head *head)
{
	node_send_add(rx->answers, &rx->host->mem, rx->key, head, NULL, 0);
}

/* All parts of a READ, or those there are buffers for; the others are asked for again. */
static void send_parts(struct node_rx *rx, struct rmem_answer *answer)
{
	u32 offset = 0, bytes;

	while ((bytes = rmem_node_read_part(&rx->host->core, &rx->in.head, offset, answer))) {
		if (!node_send_add(rx->answers, &rx->host->mem, rx->key, &answer->reply,
				   answer->extent, answer->extents))
			break;
		node_count_add(NODE_COUNT_READ_BYTES, bytes);
		offset += bytes;
	}
}

static void gather(struct node_rx *rx, const void *ranges, struct rmem_answer *answer)
{
	if (node_send_add_gathered(rx->answers, rx->host, rx->key, ranges, answer))
		node_count_add(NODE_COUNT_READ_BYTES, answer->reply.len);
}

/*
 * As much of the payload as the core looks at. NULL: no memory to have that in one place, and the
 * request is as good as lost.
 */
static const void *known_payload(struct node_rx *rx, struct rmem_put *put)
{
	u32 offset = rmem_skb_payload(&rx->in);

	if (rmem_type_has_ranges(rx->in.head.type)) {
		if (!pskb_may_pull(rx->skb, offset + rmem_wire_ranges_bytes(&rx->in.head))) {
			node_count(NODE_COUNT_DROP_NO_BUFFER);
			return NULL;
		}
		rx->heads = rmem_skb_pull_heads(rx->skb); /* they may have been moved */
		return rx->skb->data + offset;
	}
	if (rx->in.head.type == RMEM_PUT &&
	    WARN_ON_ONCE(skb_copy_bits(rx->skb, offset, put, sizeof(*put))))
		return NULL;
	return put;
}

/* READ, WRITE, DISCARD, ZERO, ATOMIC, PUT, READV, WRITEV. Slot lock. */
static void execute(struct node_rx *rx)
{
	struct rmem_node *core = &rx->host->core;
	struct rmem_answer answer;
	struct rmem_put put = {};
	const void *known = known_payload(rx, &put);

	if (!known)
		return;
	rmem_node_request(core, ktime_get_coarse_ns(), &rx->in.head, known, &rx->path.peer,
			  &answer);
	rx->answers->limit_bytes = rmem_node_datagram_bytes(&answer);
	node_count(NODE_COUNT_REASON + answer.reason);
	trace_rmem_node_decision(&rx->in.head, &answer);

	switch (answer.action) {
	case RMEM_ACT_DROP:
		return;
	case RMEM_ACT_SEND_OUT:
		send_parts(rx, &answer);
		return;
	case RMEM_ACT_COPY_IN:
		if (!copy_in(rx, 0, &answer))
			return;
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_FILL:
		fill(rx, &answer);
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_ATOMIC:
		if (!do_atomic(rx, &answer))
			return;
		break;
	case RMEM_ACT_PUT:
		if (!do_put(rx, &put, &answer))
			return;
		break;
	case RMEM_ACT_GATHER:
		gather(rx, known, &answer);
		return;
	case RMEM_ACT_SCATTER:
		if (!scatter(rx, known, &answer))
			return;
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_REPLY:
		break;
	}
	if (rmem_wire_payload_bytes(&answer.reply))
		node_send_add_found(rx->answers, rx->key, &answer.reply, &answer.found);
	else
		reply(rx, &answer.reply);
}

/* The payload isn't what its digest says: that is told, and nothing changed. Slot lock. */
static void tell_damaged(struct node_rx *rx)
{
	struct rmem_head head;

	rmem_node_damaged(&rx->host->core, &rx->in.head, &head);
	rx->answers->limit_bytes = 0;
	reply(rx, &head);
}

static __always_inline void fast_path(struct node_rx *rx, void (*act)(struct node_rx *rx))
{
	struct node_host *host = rx->host;
	struct node_slot *slot = &host->slot[rmem_node_slot(&host->core, rx->in.head.session)];

	spin_lock(&slot->lock);
	act(rx);
	node_outbox_route(rx->out, &slot->route);
	spin_unlock(&slot->lock);
}

/* ---- reception ---- */

/* The checks anybody's packet goes through, cheapest first; what is left has a known space. */
static bool admit(struct node_rx *rx)
{
	struct sk_buff *skb = rx->skb;
	enum rmem_wire_verdict verdict;

	rx->heads = rmem_skb_pull_heads(skb);
	verdict = rmem_skb_open(&rx->in, skb, rx->heads, false);
	if (verdict != RMEM_WIRE_GOOD)
		return drop(skb, NODE_COUNT_WIRE + verdict);
	rx->key = rmem_node_key(&rx->host->core, rx->in.head.space);
	if (!rx->key)
		return drop(skb, NODE_COUNT_DROP_SPACE);
	if (wants_checksum(&rx->in.head) && !udp_hdr(skb)->check)
		return drop(skb, NODE_COUNT_DROP_NO_CHECKSUM);
	if (skb->pkt_type != PACKET_HOST)
		return drop(skb, NODE_COUNT_DROP_NOT_UNICAST);
	if (skb_pfmemalloc(skb))
		return drop(skb, NODE_COUNT_DROP_RESERVE);
	if (unlikely(READ_ONCE(rx->host->hibernating)))
		return drop(skb, NODE_COUNT_DROP_HIBERNATING);
	if (!rmem_skb_verifies(&rx->in, rx->key, skb, rx->heads))
		return drop(skb, NODE_COUNT_WIRE + RMEM_WIRE_TAG);
	return true;
}

/* False: dropped, and counted why. */
static bool handle_message(struct node_rx *rx)
{
	bool damaged = rmem_skb_is_damaged(&rx->in, rx->skb);
	const struct rmem_head *head = &rx->in.head;

	node_count(NODE_COUNT_WIRE + (damaged ? RMEM_WIRE_DAMAGED : RMEM_WIRE_GOOD));
	node_count(NODE_COUNT_TYPE + head->type - RMEM_OPEN);
	trace_rmem_node_request(head);

	if (unlikely(damaged)) {
		fast_path(rx, tell_damaged);
		return true;
	}
	if (!rmem_node_is_slow(&rx->host->core, head)) {
		fast_path(rx, execute);
		return true;
	}
	/* Its answer leaves from another thread; those to earlier requests leave before. */
	node_outbox_flush(rx->out);
	if (!node_slow_add(rx->host, head, &rx->path, rx->skb, rmem_skb_payload(&rx->in)))
		return drop(rx->skb, NODE_COUNT_DROP_QUEUE_FULL);
	return true;
}

/* False: nothing of it was good for anything. */
static bool handle(struct node_rx *rx)
{
	bool any = false;

	if (!admit(rx))
		return false;
	read_path(rx->skb, &rx->path);
	rx->out = node_outbox_get(rx->host, &rx->in.head, &rx->path);
	rx->answers = node_outbox_answers(rx->out);
	while (rmem_datagram_step(&rx->in, rx->heads))
		any |= handle_message(rx);
	node_outbox_put(rx->out, rx->in.head.more);
	node_mem_scrub(rx->host);
	return any;
}

static int receive(struct sock *sk, struct sk_buff *skb)
{
	struct node_rx rx = { .host = rcu_dereference_sk_user_data(sk), .skb = skb };

	if (likely(rx.host) && handle(&rx))
		consume_skb(skb);
	else
		kfree_skb(skb);
	return 0;
}

/* ---- sockets ---- */

static struct sock *listen(struct node_host *host, struct udp_port_cfg *port, int *err)
{
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = host,
		.encap_type = 1, /* anything but 0: no kind the stack treats by itself */
		.encap_rcv = receive,
	};
	struct socket *sock;

	*err = udp_sock_create(host->net, port, &sock);
	if (*err)
		return NULL;
	setup_udp_tunnel_sock(host->net, sock, &tunnel);
	return sock->sk;
}

/*
 * One socket per family. IPv6 is left out only where the kernel has none. Kernel
 * sockets don't hold their network namespace; host->net is a reference that does,
 * so the namespace stays as long as the node is started.
 */
int node_net_open(struct node_host *host, u16 port, struct netlink_ext_ack *extack)
{
	struct udp_port_cfg port4 = {
		.family = AF_INET,
		.local_ip.s_addr = htonl(INADDR_ANY),
		.local_udp_port = htons(port),
		.use_udp_checksums = true,
	};
	int err;

	host->port = htons(port);
	host->sk4 = listen(host, &port4, &err);
	if (err)
		goto say_why;
#if IS_ENABLED(CONFIG_IPV6)
	if (ipv6_mod_enabled()) {
		struct udp_port_cfg port6 = {
			.family = AF_INET6,
			.local_ip6 = IN6ADDR_ANY_INIT,
			.local_udp_port = htons(port),
			.use_udp6_tx_checksums = true,
			.use_udp6_rx_checksums = true,
			.ipv6_v6only = true,
		};

		host->sk6 = listen(host, &port6, &err);
		if (err)
			goto close_ipv4;
	}
#endif
	return 0;

#if IS_ENABLED(CONFIG_IPV6)
close_ipv4:
	host->sk6 = NULL;
	node_net_close(host);
#endif
say_why:
	if (err == -EADDRINUSE)
		NL_SET_ERR_MSG_FMT_MOD(extack, "UDP port %u is in use: choose another PORT", port);
	else
		NL_SET_ERR_MSG_FMT_MOD(extack, "no socket for UDP port %u: error %d", port, -err);
	return err;
}

/*
 * A request is received and answered by the same socket, so one may go while the other serves.
 * Whoever doesn't see that we are closing is under rcu_read_lock(), which the socket's memory
 * outlives.
 */
void node_net_close(struct node_host *host)
{
	WRITE_ONCE(host->closing, true);
	if (host->sk6)
		udp_tunnel_sock_release(host->sk6->sk_socket);
	udp_tunnel_sock_release(host->sk4->sk_socket);
	synchronize_rcu();
}
