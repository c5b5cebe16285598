// SPDX-License-Identifier: GPL-2.0
/*
 * The node's port at UDP/IP. In the softirq that brought a datagram:
 *
 *   UDP (checksum verified by the stack)
 *     |
 *   form, lengths -> space known? -> tag                cheap checks first; nothing is
 *     |                                                  changed before all of them held
 *     |    sealed: form of the header -> space known? -> its tag -> session's keys -> open -> form
 *     |
 *   each message: digest, rmem_port_request() --> answers
 *     |                                              |
 *   outbox.c <---------------------------------------'
 *
 * A packet's payload can lie in pieces; it is verified and copied where it lies.
 *
 * Packets whose buffer came from the reserves kept for swapping are dropped: the node is nobody's
 * swap, and swap needs that buffer back.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/slab.h>
#include <net/dsfield.h>
#include <net/inet_ecn.h>
#include <net/ipv6.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "compat/compat.h"
#include "rmem/transport/udp/port.h"
#include "rmem/carrier/skb.h"
#include "remora/rmem_edm.h"

/* One datagram on its way through, a message at a time; lives on the stack. */
struct udp_rx {
	struct rmem_port_batch batch; /* first */
	struct udp_port *port;
	struct sk_buff *skb;
	const void *heads; /* in skb's linear part, or of the plaintext */
	const void *plain; /* of a sealed datagram; else NULL */
	struct rmem_seal_keys keys;
	struct rmem_datagram in;
	struct udp_outbox *out;
};

const struct udp_port_gate __rcu *udp_port_gate;
static struct udp_port __rcu *udp_port_now; /* of the node that is started */

static struct udp_rx *port_rx_of(struct rmem_port_batch *batch)
{
	return container_of(batch, struct udp_rx, batch);
}

/* ---- reception ---- */

/* The answer's class, by its request's: EDM's alone. Clients choose no other for its answers. */
static u8 port_tos(u8 request)
{
	return (request & ~INET_ECN_MASK) == EDM_TOS ? EDM_TOS : 0;
}

static void port_read_path(struct sk_buff *skb, struct rmem_port_path *path)
{
	struct udp_way *way = (struct udp_way *)path->own;

	way->ifindex = 0;
	way->flow = 0;
	path->peer.port = ntohs(udp_hdr(skb)->source);
	way->ipv4 = skb->protocol == htons(ETH_P_IP);
	if (way->ipv4) {
		struct in6_addr peer;

		way->tos = port_tos(ip_hdr(skb)->tos);
		ipv6_addr_set_v4mapped(ip_hdr(skb)->saddr, &peer);
		memcpy(path->peer.addr, &peer, sizeof(path->peer.addr));
		ipv6_addr_set_v4mapped(ip_hdr(skb)->daddr, &way->local);
	} else {
		way->tos = port_tos(ipv6_get_dsfield(ipv6_hdr(skb)));
		memcpy(path->peer.addr, &ipv6_hdr(skb)->saddr, sizeof(path->peer.addr));
		way->local = ipv6_hdr(skb)->daddr;
		way->ifindex = ipv6_iface_scope_id(&ipv6_hdr(skb)->saddr, inet6_iif(skb));
	}
}

/* Must the UDP checksum be there? At the other levels, more than that protects the payload. */
static bool port_wants_checksum(const struct rmem_head *head)
{
	return head->integrity == RMEM_LINK;
}

/* The checks of anybody's packet before its tag, cheapest first. */
static bool port_looks_right(struct udp_rx *rx, const struct rmem_head *head)
{
	struct sk_buff *skb = rx->skb;

	rx->batch.key = rmem_port_key(&rx->port->port, head->space, skb->len);
	if (!rx->batch.key)
		return false;
	if (port_wants_checksum(head) && !udp_hdr(skb)->check)
		return rmem_port_drop(RMEM_PORT_NO_CHECKSUM, skb->len);
	if (skb->pkt_type != PACKET_HOST)
		return rmem_port_drop(RMEM_PORT_NOT_UNICAST, skb->len);
	if (skb_pfmemalloc(skb))
		return rmem_port_drop(RMEM_PORT_RESERVE, skb->len);
	return true;
}

static bool port_admit(struct udp_rx *rx)
{
	struct sk_buff *skb = rx->skb;
	enum rmem_wire_verdict verdict;

	verdict = rmem_skb_open(&rx->in, skb, rx->heads, false);
	if (verdict != RMEM_WIRE_GOOD)
		return rmem_port_drop(RMEM_PORT_WIRE + verdict, skb->len);
	if (!port_looks_right(rx, &rx->in.head))
		return false;
	if (!rmem_skb_verifies(&rx->in, rx->batch.key, skb, rx->heads))
		return rmem_port_drop(RMEM_PORT_WIRE + RMEM_WIRE_TAG, skb->len);
	return true;
}

/* A client whose keys are gone is told that its session is. */
static bool port_find_keys(struct udp_rx *rx, const struct rmem_head *head)
{
	struct rmem_head notice;

	if (likely(rmem_port_seal_keys(&rx->port->port, head, &rx->keys, &notice)))
		return true;
	rmem_udp_port_ops.reply(&rx->port->port, &rx->batch.path, rx->batch.key, NULL, &notice,
				NULL);
	return false;
}

/* The same for a sealed datagram: its heads can't be read before it's opened. */
static bool port_admit_sealed(struct udp_rx *rx)
{
	u32 bytes = rx->skb->len - RMEM_SKB_HEADS, messages;
	enum rmem_wire_verdict verdict;
	struct rmem_head head;

	verdict = rmem_wire_parse_hdr(rx->heads, &head, &messages);
	if (verdict == RMEM_WIRE_GOOD && (!rmem_seal_fits(bytes) || !rx->batch.seals))
		verdict = RMEM_WIRE_MALFORMED;
	if (verdict != RMEM_WIRE_GOOD)
		return rmem_port_drop(RMEM_PORT_WIRE + verdict, rx->skb->len);
	if (!port_looks_right(rx, &head))
		return false;
	if (!rmem_seal_hdr_verifies(rx->heads, rx->batch.key))
		return rmem_port_drop(RMEM_PORT_WIRE + RMEM_WIRE_TAG, rx->skb->len);
	if (!port_find_keys(rx, &head))
		return false;
	rx->batch.seal = &rx->keys.from_node;
	rx->plain = rmem_skb_unseal(rx->skb, &rx->keys.from_client);
	if (!rx->plain)
		return rmem_port_drop(RMEM_PORT_WIRE + RMEM_WIRE_SEAL, rx->skb->len);
	rx->heads = rx->plain;
	verdict = rmem_datagram_open_unsealed(&rx->in, rx->plain, bytes - RMEM_SEAL_BYTES, false);
	return verdict == RMEM_WIRE_GOOD ||
	       rmem_port_drop(RMEM_PORT_WIRE + verdict, rx->skb->len);
}

/* path: of a request that came another way; NULL. False: nothing of it was good for anything. */
static bool port_handle(struct udp_rx *rx, const struct rmem_port_path *path)
{
	struct rmem_skb_record r;
	bool any = false;

	rx->heads = rmem_skb_pull_heads(rx->skb);
	if (path)
		rx->batch.path = *path;
	else
		port_read_path(rx->skb, &rx->batch.path);
	rx->batch.seals = !path; /* the gate's messages have no room for a seal */
	if (rx->heads && rmem_wire_is_sealed(rx->heads) ? !port_admit_sealed(rx) : !port_admit(rx))
		return false;
	rx->out = udp_outbox_get(rx->port, &rx->in.head, &rx->batch.path, rx->batch.seal);
	while (rmem_datagram_step(&rx->in, rx->heads)) {
		rmem_skb_record_init(&r, &rx->in, rx->skb, rx->plain);
		any |= rmem_port_request(&rx->batch, &r.record);
	}
	udp_outbox_put(rx->out, rx->in.head.more);
	rmem_port_settle(&rx->port->port);
	return any;
}

static void port_execute(struct udp_port *port, struct sk_buff *skb,
			 const struct rmem_port_path *path)
{
	struct udp_rx rx = { .port = port, .skb = skb };
	bool handled = false;

	if (likely(port)) {
		rx.batch.port = &port->port;
		handled = port_handle(&rx, path);
		if (rx.batch.seal)
			rmem_seal_wipe(&rx.keys, sizeof(rx.keys));
	}
	if (handled)
		consume_skb(skb);
	else
		kfree_skb(skb);
}

static int port_request(struct sock *sk, struct sk_buff *skb)
{
	port_execute(rcu_dereference_sk_user_data(sk), skb, NULL);
	return 0;
}

void rmem_udp_request(struct sk_buff *skb, const struct rmem_port_path *path)
{
	port_execute(rcu_dereference(udp_port_now), skb, path);
}
EXPORT_SYMBOL_GPL(rmem_udp_request);

bool rmem_udp_serves(const struct net *net)
{
	struct udp_port *port = rcu_dereference(udp_port_now);

	return port && port->net == net;
}
EXPORT_SYMBOL_GPL(rmem_udp_serves);

int rmem_udp_gate_register(const struct udp_port_gate *gate)
{
	return unrcu_pointer(cmpxchg(&udp_port_gate, NULL, RCU_INITIALIZER(gate))) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(rmem_udp_gate_register);

void rmem_udp_gate_unregister(void)
{
	RCU_INIT_POINTER(udp_port_gate, NULL);
	synchronize_net();
}
EXPORT_SYMBOL_GPL(rmem_udp_gate_unregister);

/* ---- answers ---- */

static int port_answer(struct rmem_port_batch *batch, struct rmem_head *head,
		       const struct rmem_port_data *data, u32 room_bytes)
{
	struct udp_rx *rx = port_rx_of(batch);

	return udp_answers_add(udp_outbox_answers(rx->out), batch->key, head, data, room_bytes);
}

static void port_answered(struct rmem_port_batch *batch, u32 slot)
{
	struct udp_rx *rx = port_rx_of(batch);
	struct udp_route once = {};

	udp_outbox_route(rx->out, slot == RMEM_PORT_NO_SLOT ? &once : &rx->port->route[slot]);
	udp_route_forget(&once);
}

static void port_flush_answers(struct rmem_port_batch *batch)
{
	udp_outbox_flush(port_rx_of(batch)->out);
}

static void port_reply(struct rmem_port *port, const struct rmem_port_path *path,
		       const struct base_siphash_key *key, const struct rmem_seal_key *seal,
		       struct rmem_head *head, const void *payload)
{
	struct sk_buff *packet = udp_answer_alone(key, seal, head, payload);
	struct udp_port *mine = udp_port_of(port);
	struct udp_route route = {};

	if (!packet)
		return;
	udp_route_send(mine, udp_route_get(mine, &route, path), path, port_wants_checksum(head),
		       packet);
	udp_route_forget(&route);
}

/* ---- sockets ---- */

static struct sock *port_listen(struct udp_port *port, struct udp_port_cfg *at, int *err)
{
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = port,
		.encap_type = 1, /* anything but 0: no kind the stack treats by itself */
		.encap_rcv = port_request,
	};
	struct socket *sock;

	*err = udp_sock_create(port->net, at, &sock);
	if (*err)
		return NULL;
	setup_udp_tunnel_sock(port->net, sock, &tunnel);
	return sock->sk;
}

/*
 * A request is received and answered by the same socket, so one can go while the other serves.
 * Receivers that don't see that we are closing are under rcu_read_lock(), which the socket's memory
 * outlives.
 */
static void port_close_sockets(struct udp_port *port)
{
	WRITE_ONCE(port->closing, true);
	if (port->sk6)
		udp_tunnel_sock_release(port->sk6->sk_socket);
	udp_tunnel_sock_release(port->sk4->sk_socket);
	synchronize_rcu();
}

/* One socket per family. IPv6 is left out only where the kernel has none. */
static int port_open_sockets(struct udp_port *port, struct netlink_ext_ack *extack)
{
	struct udp_port_cfg port4 = {
		.family = AF_INET,
		.local_ip.s_addr = htonl(INADDR_ANY),
		.local_udp_port = port->number,
		.use_udp_checksums = true,
	};
	int err;

	port->sk4 = port_listen(port, &port4, &err);
	if (err)
		goto say_why;
#if IS_ENABLED(CONFIG_IPV6)
	if (ipv6_mod_enabled()) {
		struct udp_port_cfg port6 = {
			.family = AF_INET6,
			.local_ip6 = IN6ADDR_ANY_INIT,
			.local_udp_port = port->number,
			.use_udp6_tx_checksums = true,
			.use_udp6_rx_checksums = true,
			.ipv6_v6only = true,
		};

		port->sk6 = port_listen(port, &port6, &err);
		if (err)
			goto close_ipv4;
	}
#endif
	return 0;

#if IS_ENABLED(CONFIG_IPV6)
close_ipv4:
	port->sk6 = NULL;
	port_close_sockets(port);
#endif
say_why:
	if (err == -EADDRINUSE)
		NL_SET_ERR_MSG_FMT_MOD(extack, "UDP port %u is in use: choose another PORT",
				       ntohs(port->number));
	else
		NL_SET_ERR_MSG_FMT_MOD(extack, "no socket for UDP port %u: error %d",
				       ntohs(port->number), -err);
	return err;
}

/* ---- life ---- */

static void port_free(struct udp_port *port)
{
	u32 i;

	for (i = 0; i < port->slots; i++)
		udp_route_forget(&port->route[i]);
	kvfree(port->route);
	kfree(port);
}

static void port_close(struct rmem_port *port)
{
	struct udp_port *mine = udp_port_of(port);
	const struct udp_port_gate *gate;

	RCU_INIT_POINTER(udp_port_now, NULL);
	port_close_sockets(mine);
	udp_outbox_close(mine);
	rcu_read_lock();
	gate = rcu_dereference(udp_port_gate);
	if (gate)
		gate->close();
	rcu_read_unlock();
	port_free(mine);
}

static struct rmem_port *port_open(struct node_host *node,
				   const struct rmem_port_config *config,
				   struct netlink_ext_ack *extack)
{
	struct udp_port *port = kzalloc(sizeof(*port), GFP_KERNEL);
	int err;

	if (!port)
		goto no_memory;
	port->port.ops = &rmem_udp_port_ops;
	port->port.node = node;
	port->net = config->net;
	port->number = htons(config->number);
	port->route = kvcalloc(config->slots, sizeof(*port->route), GFP_KERNEL);
	if (!port->route)
		goto free_port;
	port->slots = config->slots;
	if (udp_outbox_open(port))
		goto free_port;
	err = port_open_sockets(port, extack);
	if (!err) {
		rcu_assign_pointer(udp_port_now, port);
		return &port->port;
	}
	udp_outbox_close(port);
	port_free(port);
	return ERR_PTR(err);

free_port:
	port_free(port);
no_memory:
	NL_SET_ERR_MSG_MOD(extack, "no memory for the sessions' routes; lower SESSIONS_MAX");
	return ERR_PTR(-ENOMEM);
}

const struct rmem_port_ops rmem_udp_port_ops = {
	.name = "udp",
	.owner = THIS_MODULE,
	.open = port_open,
	.close = port_close,
	.answer = port_answer,
	.answered = port_answered,
	.flush = port_flush_answers,
	.reply = port_reply,
};
