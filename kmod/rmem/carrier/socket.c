// SPDX-License-Identifier: GPL-2.0
#include "rmem/carrier/socket.h"

#include <linux/inet.h>
#include <linux/inetdevice.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/notifier.h>
#include <linux/sched/mm.h>
#include <linux/udp.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/inet_sock.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ipv6.h>
#include <net/ipv6_stubs.h>
#include <net/ip6_route.h>
#include <net/net_namespace.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

/* The source address is the one that connecting chose, until socket_move() finds it lost. */
static void socket_flow_init(struct rmem_socket *s)
{
	struct sock *sk = s->sock->sk;
	struct inet_sock *inet = inet_sk(sk);

	if (sk->sk_family == AF_INET) {
		struct flowi4 *fl4 = &s->flow.u.ip4;

		fl4->saddr = inet->inet_saddr;
		fl4->daddr = inet->inet_daddr;
		fl4->fl4_sport = inet->inet_sport;
		fl4->fl4_dport = inet->inet_dport;
		return;
	}
#if IS_ENABLED(CONFIG_IPV6)
	s->flow.u.ip6 = (struct flowi6){
		.saddr = inet6_sk(sk)->saddr,
		.daddr = sk->sk_v6_daddr,
		.fl6_sport = inet->inet_sport,
		.fl6_dport = inet->inet_dport,
		.flowi6_proto = IPPROTO_UDP,
		.flowi6_oif = sk->sk_bound_dev_if,
	};
#endif
}

static void socket_hear(struct sock *sk, int (*receive)(struct sock *sk, struct sk_buff *skb),
			void *user_data)
{
	lock_sock(sk);
	rcu_assign_sk_user_data(sk, user_data);
	WRITE_ONCE(udp_sk(sk)->encap_rcv, receive);
	WRITE_ONCE(udp_sk(sk)->encap_type, 1);
	udp_tunnel_encap_enable(sk);
	release_sock(sk);
}

/* ---- addresses that come and go ---- */

/*
 * A lease ends, a privacy address expires, a network is renumbered: then packets from the socket's
 * address have no route, or their answers none. So whenever the machine gets or loses an address,
 * each socket whose own is gone is connected anew, which chooses another. The node takes the next
 * request for a copy from elsewhere, and the client renews its session, as it does behind a NAT
 * that forgets.
 */

static LIST_HEAD(sockets);
static DEFINE_MUTEX(sockets_lock); /* sockets, of_all; sockets are opened, moved, and closed */
static struct workqueue_struct *movers;

static bool socket_has_source(const struct rmem_socket *s)
{
	struct sock *sk = s->sock->sk;

	if (sk->sk_family == AF_INET)
		return inet_addr_type(sock_net(sk), s->flow.u.ip4.saddr) == RTN_LOCAL;
#if IS_ENABLED(CONFIG_IPV6)
	return ipv6_stub->ipv6_dev_find(sock_net(sk), &s->flow.u.ip6.saddr, NULL);
#else
	return true;
#endif
}

static int socket_connect(struct rmem_socket *s)
{
	return kernel_connect(s->sock, &s->to.any,
			      s->to.any.sa_family == AF_INET6 ? sizeof(s->to.in6)
							      : sizeof(s->to.in4),
			      0);
}

/*
 * Nothing is being sent. If no address leads to the node now, that stays so, and the next event, or
 * the next packet that can't be sent, comes here again: the route of a new address might follow it.
 */
static void socket_move(struct rmem_socket *s)
{
	struct sockaddr none = { .sa_family = AF_UNSPEC };

	kernel_connect(s->sock, &none, sizeof(none), 0);
	if (socket_connect(s))
		return;
	socket_flow_init(s);
	dst_release(unrcu_pointer(xchg(&s->dst, NULL)));
	WRITE_ONCE(s->moved, jiffies);
	WRITE_ONCE(s->unproven, true);
	/* Pairs with rmem_socket_transmit(): the addresses. */
	smp_store_release(&s->moves, false);
}

static void socket_move_all(struct work_struct *work)
{
	/* Swap-out can wait for this. */
	unsigned int noio = memalloc_noio_save();
	struct rmem_socket *s;
	bool any = false;

	mutex_lock(&sockets_lock);
	list_for_each_entry(s, &sockets, of_all) {
		if (s->moves || (!READ_ONCE(s->unproven) && socket_has_source(s)))
			continue;
		WRITE_ONCE(s->moves, true);
		any = true;
	}
	/* After this, each packet that is being sent has read the addresses. */
	if (any)
		synchronize_rcu();
	list_for_each_entry(s, &sockets, of_all) {
		if (s->moves)
			socket_move(s);
	}
	mutex_unlock(&sockets_lock);
	memalloc_noio_restore(noio);
}

static DECLARE_WORK(moving, socket_move_all);

static int socket_address_notify(struct notifier_block *block, unsigned long event, void *data)
{
	queue_work(movers, &moving);
	return NOTIFY_DONE;
}

static struct notifier_block ipv4_block = { .notifier_call = socket_address_notify };
static struct notifier_block ipv6_block = { .notifier_call = socket_address_notify };

int rmem_socket_start(void)
{
	int err;

	movers = alloc_workqueue("rmem_udp", WQ_MEM_RECLAIM, 0);
	if (!movers)
		return -ENOMEM;
	err = register_inetaddr_notifier(&ipv4_block);
	if (err)
		goto destroy;
	err = register_inet6addr_notifier(&ipv6_block);
	if (err)
		goto unregister_ipv4;
	return 0;

unregister_ipv4:
	unregister_inetaddr_notifier(&ipv4_block);
destroy:
	destroy_workqueue(movers);
	return err;
}

void rmem_socket_stop(void)
{
	unregister_inet6addr_notifier(&ipv6_block);
	unregister_inetaddr_notifier(&ipv4_block);
	destroy_workqueue(movers);
}

/* ---- addresses ---- */

/* Cuts text into a host and a port; NULL: there is none; empty: it is none. */
static const char *socket_text_split(char **text)
{
	char *host = *text, *end, *port;

	if (*host == '[') {
		*text = ++host;
		end = strchr(host, ']');
		if (!end)
			return "";
		*end++ = '\0';
		if (!*end)
			return NULL;
		return *end == ':' ? end + 1 : "";
	}
	port = strchr(host, ':');
	if (!port || strchr(port + 1, ':'))
		return NULL;
	*port = '\0';
	return port + 1;
}

int rmem_socket_parse(union udp_address *address, const char *text, u16 port)
{
	char room[RMEM_ADDRESS_TEXT_MAX + 1], usual[8], *host = room;
	struct sockaddr_storage found = {};
	const char *written;

	if (strscpy(room, text, sizeof(room)) < 0)
		return -EINVAL;
	snprintf(usual, sizeof(usual), "%u", port);
	written = socket_text_split(&host);
	if (inet_pton_with_scope(current->nsproxy->net_ns, AF_UNSPEC, host, written ?: usual,
				 &found) ||
	    !((struct sockaddr_in *)&found)->sin_port)
		return -EINVAL;
	memcpy(address, &found, sizeof(*address));
	return 0;
}

/* ---- packets in one piece ---- */

/*
 * A device that can't gather wants a packet in one piece, of several pages that lie side by side.
 * When memory is short, there might be none for as long as nothing is swapped out. The reserves
 * aren't for that either: some such packets would leave nothing to those whose need is small, the
 * network's receive buffers among them. So one such piece is kept, for a packet at a time. Its
 * clones leave, as TCP's do, and it is free again when the last of them is.
 */

#define SPARE_DATA_BYTES (RMEM_DATAGRAM_BYTES_MAX + RMEM_SEAL_BYTES)
#define SPARE_BYTES	 (RMEM_SOCKET_HEADROOM + SPARE_DATA_BYTES)
#define LINEAR_GFP  (GFP_ATOMIC | __GFP_NOMEMALLOC | __GFP_NOWARN)
#define CLONE_GFP   (GFP_ATOMIC | __GFP_MEMALLOC | __GFP_NOWARN)

static int socket_spare_init(struct rmem_socket *s)
{
	s->spare = alloc_skb(SPARE_BYTES, GFP_KERNEL);
	if (!s->spare)
		return -ENOMEM;
	skb_reserve(s->spare, RMEM_SOCKET_HEADROOM);
	/* The headers in front are a clone's own. */
	__skb_header_release(s->spare);
	return 0;
}

static struct sk_buff *socket_spare_copy(struct rmem_socket *s, const struct sk_buff *skb)
{
	struct sk_buff *copy = NULL;

	if (skb->len > SPARE_DATA_BYTES || test_and_set_bit_lock(0, &s->spare_taken))
		return NULL;
	if (!skb_cloned(s->spare)) {
		skb_copy_bits(skb, 0, s->spare->data, skb->len);
		copy = skb_clone(s->spare, CLONE_GFP);
	}
	clear_bit_unlock(0, &s->spare_taken);
	if (copy)
		skb_put(copy, skb->len);
	return copy;
}

/* Consumes skb. NULL: no memory. */
static struct sk_buff *socket_in_one_piece(struct rmem_socket *s, struct sk_buff *skb, int *spare)
{
	struct sk_buff *copy = alloc_skb(RMEM_SOCKET_HEADROOM + skb->len, LINEAR_GFP);

	if (copy) {
		skb_reserve(copy, RMEM_SOCKET_HEADROOM);
		skb_copy_bits(skb, 0, skb_put(copy, skb->len), skb->len);
	} else {
		copy = socket_spare_copy(s, skb);
		*spare = 1;
	}
	consume_skb(skb);
	return copy;
}

/* ---- life ---- */

int rmem_socket_open(struct rmem_socket *s, const union udp_address *to,
		     int (*receive)(struct sock *sk, struct sk_buff *skb), void *user_data)
{
	bool v6 = to->any.sa_family == AF_INET6;
	struct sock *sk;
	int err;

	err = socket_spare_init(s);
	if (err)
		return err;
	/* A kernel's socket holds no namespace by itself. */
	s->net = get_net(current->nsproxy->net_ns);
	err = sock_create_kern(s->net, to->any.sa_family, SOCK_DGRAM, IPPROTO_UDP, &s->sock);
	if (err)
		goto free_spare;
	sk = s->sock->sk;
	/* Swap-out goes this way: allocations never reclaim, and can use the reserves. */
	sk->sk_allocation = GFP_NOIO;
	sk->sk_use_task_frag = false;
	sk_set_memalloc(sk);
	if (v6)
		sk->sk_ipv6only = true;
	s->to = *to;
	err = socket_connect(s);
	if (err)
		goto release;
	socket_flow_init(s);
	socket_hear(sk, receive, user_data);
	mutex_lock(&sockets_lock);
	list_add_tail(&s->of_all, &sockets);
	mutex_unlock(&sockets_lock);
	/* The notifier has not seen this socket if the address went since socket_connect(). */
	if (!socket_has_source(s))
		queue_work(movers, &moving);
	return 0;

release:
	sk_clear_memalloc(sk);
	sock_release(s->sock);
	s->sock = NULL;
free_spare:
	put_net(s->net);
	kfree_skb(s->spare);
	return err;
}

void rmem_socket_mark(struct rmem_socket *s, u8 tos, u32 priority)
{
	/* ip_queue_xmit() takes both from the socket. */
	inet_sk(s->sock->sk)->tos = tos;
	s->sock->sk->sk_priority = priority;
}

void rmem_socket_deafen(struct rmem_socket *s)
{
	rcu_assign_sk_user_data(s->sock->sk, NULL);
}

void rmem_socket_close(struct rmem_socket *s)
{
	mutex_lock(&sockets_lock);
	list_del(&s->of_all);
	mutex_unlock(&sockets_lock);
	dst_release(rcu_replace_pointer(s->dst, NULL, true));
	sk_clear_memalloc(s->sock->sk);
	kernel_sock_shutdown(s->sock, SHUT_RDWR);
	sock_release(s->sock);
	s->sock = NULL;
	put_net(s->net);
	kfree_skb(s->spare);
}

static struct dst_entry *socket_route_lookup(struct rmem_socket *s)
{
	struct sock *sk = s->sock->sk;

	if (sk->sk_family == AF_INET) {
		const struct flowi4 *to = &s->flow.u.ip4;
		struct flowi4 fl4;
		struct rtable *rt;

		rt = ip_route_output_ports(sock_net(sk), &fl4, sk, to->daddr, to->saddr,
					   to->fl4_dport, to->fl4_sport, IPPROTO_UDP, 0,
					   sk->sk_bound_dev_if);
		return IS_ERR(rt) ? NULL : &rt->dst;
	}
#if IS_ENABLED(CONFIG_IPV6)
	{
		struct flowi6 fl6 = s->flow.u.ip6;
		struct dst_entry *dst;

		dst = ipv6_stub->ipv6_dst_lookup_flow(sock_net(sk), sk, &fl6, NULL);
		return IS_ERR(dst) ? NULL : dst;
	}
#endif
	return NULL;
}

/*
 * The route, valid under rcu_read_lock(). Two callers that find it stale both look it up; each
 * releases the one it took out, so nothing is released twice or lost.
 */
static struct dst_entry *socket_route(struct rmem_socket *s)
{
	struct dst_entry *dst = rcu_dereference(s->dst), *old;

	if (likely(dst && (!dst->obsolete || dst->ops->check(dst, READ_ONCE(s->cookie)))))
		return dst;
	dst = socket_route_lookup(s);
#if IS_ENABLED(CONFIG_IPV6)
	if (dst && s->sock->sk->sk_family == AF_INET6)
		WRITE_ONCE(s->cookie, rt6_get_cookie((struct rt6_info *)dst));
#endif
	old = unrcu_pointer(xchg(&s->dst, RCU_INITIALIZER(dst)));
	dst_release(old);
	return dst;
}

u32 rmem_socket_mtu_bytes(struct rmem_socket *s, bool *offload)
{
	bool v6 = s->sock->sk->sk_family == AF_INET6;
	struct dst_entry *dst;
	u32 mtu_bytes = 0;

	*offload = false;
	rcu_read_lock();
	/* Pairs with socket_move(): the addresses. */
	dst = smp_load_acquire(&s->moves) ? NULL : socket_route(s);
	if (dst) {
		mtu_bytes = dst_mtu(dst);
		*offload = dst->dev->features &
			   (NETIF_F_HW_CSUM | (v6 ? NETIF_F_IPV6_CSUM : NETIF_F_IP_CSUM));
	}
	rcu_read_unlock();
	return mtu_bytes;
}

unsigned int rmem_socket_header_bytes(const struct rmem_socket *s)
{
	bool v6 = s->sock->sk->sk_family == AF_INET6;

	return (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) + sizeof(struct udphdr);
}

static void socket_push_udp(struct rmem_socket *s, struct sk_buff *skb)
{
	bool v6 = s->to.any.sa_family == AF_INET6;
	struct udphdr *uh = skb_push(skb, sizeof(*uh));

	skb_reset_transport_header(skb);
	uh->source = v6 ? s->flow.u.ip6.fl6_sport : s->flow.u.ip4.fl4_sport;
	uh->dest = v6 ? s->flow.u.ip6.fl6_dport : s->flow.u.ip4.fl4_dport;
	uh->len = htons(skb->len);
}

/* RCU. */
static void socket_send(struct rmem_socket *s, struct sk_buff *skb, struct dst_entry *dst)
{
	struct sock *sk = s->sock->sk;

	socket_push_udp(s, skb);
	skb_set_hash_from_sk(skb, sk);
	/* A path with a smaller MTU than our route's gets fragments, not nothing. */
	skb->ignore_df = 1;
	if (READ_ONCE(s->heard)) {
		WRITE_ONCE(s->heard, false);
		skb_set_dst_pending_confirm(skb, 1);
	}
	skb_dst_set_noref(skb, dst);
	if (sk->sk_family == AF_INET) {
		udp_set_csum(false, skb, s->flow.u.ip4.saddr, s->flow.u.ip4.daddr, skb->len);
		ip_queue_xmit(sk, skb, &s->flow);
#if IS_ENABLED(CONFIG_IPV6)
	} else {
		udp6_set_csum(false, skb, &s->flow.u.ip6.saddr, &s->flow.u.ip6.daddr, skb->len);
		ip6_xmit(sk, skb, &s->flow.u.ip6, READ_ONCE(sk->sk_mark), NULL, inet_sk(sk)->tos,
			 READ_ONCE(sk->sk_priority));
#endif
	}
}

/*
 * All of the following is atomic and on the swap-out path: its allocations can use the reserves, as
 * the packet itself did by __GFP_MEMALLOC. But only in softirq: where a task submits with BHs off,
 * PF_MEMALLOC is not looked at, and allocations of the layers below have no more than GFP_ATOMIC's
 * share. Without it the packet is lost here, and the channel's timer, in softirq, sends it again.
 */
int rmem_socket_transmit(struct rmem_socket *s, struct sk_buff *skb)
{
	unsigned int noreclaim = memalloc_noreclaim_save();
	struct dst_entry *dst;
	int result = 0;

	rcu_read_lock();
	/* Pairs with socket_move(): the addresses. */
	dst = likely(!smp_load_acquire(&s->moves)) ? socket_route(s) : NULL;
	if (unlikely(!dst)) {
		kfree_skb(skb);
		queue_work(movers, &moving);
		result = -EHOSTUNREACH;
		goto out;
	}
	/* The better address might come without an event: one of IPv6 is tentative at first. */
	if (unlikely(READ_ONCE(s->unproven)) && time_after(jiffies, READ_ONCE(s->moved) + HZ))
		queue_work(movers, &moving);
	if (skb_is_nonlinear(skb) && !(dst->dev->features & NETIF_F_SG)) {
		skb = socket_in_one_piece(s, skb, &result);
		if (unlikely(!skb)) {
			result = -ENOMEM;
			goto out;
		}
	}
	socket_send(s, skb, dst);
out:
	rcu_read_unlock();
	memalloc_noreclaim_restore(noreclaim);
	return result;
}
