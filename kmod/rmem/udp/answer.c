// SPDX-License-Identifier: GPL-2.0
/*
 * Answers on their way out.
 *
 *      linear:    | room for lower layers | UDP | rmem_hdr | rmem_msg | rmem_msg | ...
 *      fragments: page memory, by reference (READ); what an ATOMIC, PUT found and what a READV
 *                 asked for, in memory of their own
 *
 * Data of a READ isn't copied: the packet refers to the lent page itself, and the
 * scrubber leaves a page alone while one does. So a page may change while it
 * waits in a queue, if its owner writes what he is reading; he gets the one, the
 * other, or a packet his digest refuses. The fragments are marked as shared,
 * for layers that would compute over them twice.
 *
 * An answer leaves from the address its request came to. Its route is looked
 * up once and kept with the session's slot for as long as it is valid and the
 * slot's requests come from the same peer.
 */
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/skbuff.h>
#include <net/dst.h>
#include <net/flow.h>
#include <net/ip.h>
#include <net/ip6_checksum.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/ipv6_stubs.h>
#include <net/route.h>
#include <net/udp.h>

#include "rmem/node/host.h"
#include "rmem/udp/skb.h"

/* What the layers below the message may want to put before it. */
#define HEADROOM (LL_MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr))

/*
 * The reserves that PF_MEMALLOC opens are for those who free memory; a lost
 * answer is asked for again.
 */
#define SEND_GFP (GFP_ATOMIC | __GFP_NOMEMALLOC | __GFP_NOWARN)

/* ---- packets ---- */

static struct sk_buff *new_packet(u32 linear_bytes)
{
	struct sk_buff *skb = alloc_skb(HEADROOM + linear_bytes, SEND_GFP);

	if (unlikely(!skb)) {
		node_count(NODE_COUNT_DROP_NO_BUFFER);
		return NULL;
	}
	skb_reserve(skb, HEADROOM);
	return skb;
}

/* A CPU's datagrams, counted; with its name before it, no other has the same number. */
static DEFINE_PER_CPU(u64, numbers);

/* BH disabled, so that the CPU stays the same. */
static u64 next_number(void)
{
	return (u64)smp_processor_id() << 48 | this_cpu_inc_return(numbers);
}

struct sk_buff *node_send_message(const struct base_siphash_key *key, struct rmem_head *reply,
				  const void *payload, u32 bytes)
{
	struct sk_buff *skb = new_packet(RMEM_HEADS_BYTES(1) + bytes);

	if (!skb)
		return NULL;
	reply->number = next_number();
	rmem_datagram_build_one(skb_put(skb, RMEM_HEADS_BYTES(1)), reply, key, payload);
	if (bytes)
		skb_put_data(skb, payload, bytes);
	return skb;
}

/* Pages of an extent as a fragment; an extent never written is the page of zeros. */
static void add_extent(struct sk_buff *skb, const struct node_mem *mem,
		       const struct rmem_extent *extent)
{
	bool written = extent->page != RMEM_PAGE_NONE;
	struct page *page = written ? mem->page[extent->page] : mem->zero;

	get_page(page);
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, written ? extent->offset : 0,
			extent->bytes, extent->bytes);
}

static bool has_room(const struct sk_buff *skb, unsigned int extents)
{
	return rmem_skb_has_head_room(skb) &&
	       skb_shinfo(skb)->nr_frags + extents <= MAX_SKB_FRAGS;
}

struct sk_buff *node_send_take_full(struct node_answers *answers)
{
	struct sk_buff *packets = answers->full;

	answers->full = NULL;
	answers->full_last = NULL;
	return packets;
}

struct sk_buff *node_send_take_open(struct node_answers *answers)
{
	struct sk_buff *packet = answers->open;

	if (packet)
		rmem_wire_seal(packet->data, answers->bundle.messages, false, &answers->hash);
	answers->open = NULL;
	return packet;
}

static void complete_open(struct node_answers *answers)
{
	struct sk_buff *skb = node_send_take_open(answers);

	if (!skb)
		return;
	if (answers->full_last)
		answers->full_last->next = skb;
	else
		answers->full = skb;
	answers->full_last = skb;
}

/* The packet for another answer, the open one or a new one. NULL: no buffer. */
static struct sk_buff *packet_for(struct node_answers *answers,
				  const struct base_siphash_key *key, struct rmem_head *head,
				  unsigned int extents)
{
	struct sk_buff *skb = answers->open;

	if (skb && has_room(skb, extents) && head->boot == answers->boot &&
	    rmem_bundle_joins(&answers->bundle, answers->limit_bytes, head))
		return skb;
	/* Room for all that may join, so that what joins is as the protocol says it. */
	skb = new_packet(RMEM_HEADS_BYTES(answers->limit_bytes ? RMEM_BUNDLE_MAX : 1));
	if (!skb)
		return NULL;
	complete_open(answers);
	head->number = next_number();
	rmem_skb_begin(skb, head);
	base_siphash_init(&answers->hash, key);
	answers->open = skb;
	answers->boot = head->boot;
	answers->bundle = (struct rmem_bundle){};
	rmem_bundle_joins(&answers->bundle, answers->limit_bytes, head);
	return skb;
}

bool node_send_add(struct node_answers *answers, const struct node_mem *mem,
		   const struct base_siphash_key *key, struct rmem_head *head,
		   const struct rmem_extent *extent, unsigned int extents)
{
	struct sk_buff *skb = packet_for(answers, key, head, extents);
	unsigned int i;

	if (!skb)
		return false;
	for (i = 0; i < extents; i++)
		add_extent(skb, mem, &extent[i]);
	if (extents)
		skb_shinfo(skb)->flags |= SKBFL_SHARED_FRAG;
	rmem_skb_add(skb, rmem_skb_put_msg(skb), head, &answers->hash);
	return true;
}

/* Memory of an answer's own. None is larger than a page, or it might never be had. */
#define OWN_MAX DIV_ROUND_UP(RMEM_PIECE_BYTES_MAX, PAGE_SIZE)

struct own {
	void *data[OWN_MAX];
	unsigned int count;
	u32 bytes;
};

static void own_free(struct own *own)
{
	while (own->count)
		skb_free_frag(own->data[--own->count]);
}

static bool own_alloc(struct own *own, u32 bytes)
{
	u32 done;

	own->count = 0;
	own->bytes = bytes;
	for (done = 0; done < bytes; done += PAGE_SIZE) {
		void *data = netdev_alloc_frag(min_t(u32, bytes - done, PAGE_SIZE));

		if (unlikely(!data)) {
			own_free(own);
			node_count(NODE_COUNT_DROP_NO_BUFFER);
			return false;
		}
		own->data[own->count++] = data;
	}
	return true;
}

/* It's the packet's from now on. */
static void own_add(struct sk_buff *skb, const struct own *own)
{
	unsigned int i;

	for (i = 0; i < own->count; i++) {
		struct page *page = virt_to_head_page(own->data[i]);
		u32 bytes = min_t(u32, own->bytes - i * PAGE_SIZE, PAGE_SIZE);

		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page,
				own->data[i] - page_address(page), bytes, bytes);
	}
}

/* Behind the data of other answers there is room in fragments only, so this is one, too. */
bool node_send_add_found(struct node_answers *answers, const struct base_siphash_key *key,
			 struct rmem_head *head, const struct rmem_found *found)
{
	struct sk_buff *skb;
	struct own own;

	if (!own_alloc(&own, sizeof(*found)))
		return false;
	skb = packet_for(answers, key, head, own.count);
	if (!skb) {
		own_free(&own);
		return false;
	}
	memcpy(own.data[0], found, sizeof(*found));
	own_add(skb, &own);
	rmem_skb_add(skb, rmem_skb_put_msg(skb), head, &answers->hash);
	return true;
}

static void own_fill(const struct own *own, u32 offset, const void *from, u32 bytes)
{
	while (bytes) {
		u32 in_page = offset % PAGE_SIZE;
		u32 here = min_t(u32, bytes, PAGE_SIZE - in_page);

		memcpy(own->data[offset / PAGE_SIZE] + in_page, from, here);
		offset += here;
		from += here;
		bytes -= here;
	}
}

/* False: some of it was freed meanwhile. */
static bool own_gather(const struct own *own, const struct node_host *host, const void *ranges,
		       struct rmem_answer *answer)
{
	unsigned int i, n;
	u32 offset = 0;

	for (i = 0; i < answer->reply.op; i++) {
		if (unlikely(!rmem_node_range(&host->core, ranges, i, answer)))
			return false;
		for (n = 0; n < answer->extents; n++) {
			const struct rmem_extent *extent = &answer->extent[n];
			bool written = extent->page != RMEM_PAGE_NONE;

			own_fill(own, offset,
				 written ? node_mem_at(&host->mem, extent) :
					   page_address(host->mem.zero),
				 extent->bytes);
			offset += extent->bytes;
		}
	}
	return true;
}

/* Fragments are few, so many ranges are copied. */
bool node_send_add_gathered(struct node_answers *answers, struct node_host *host,
			    const struct base_siphash_key *key, const void *ranges,
			    struct rmem_answer *answer)
{
	struct rmem_head *head = &answer->reply;
	struct sk_buff *skb;
	struct own own;

	if (!own_alloc(&own, head->len))
		return false;
	if (unlikely(!own_gather(&own, host, ranges, answer))) {
		own_free(&own);
		head->status = RMEM_FAULT;
		return node_send_add(answers, &host->mem, key, head, NULL, 0);
	}
	skb = packet_for(answers, key, head, own.count);
	if (!skb) {
		own_free(&own);
		return false;
	}
	own_add(skb, &own);
	rmem_skb_add(skb, rmem_skb_put_msg(skb), head, &answers->hash);
	return true;
}

/* ---- routes ---- */

static __be32 ipv4_of(const u8 mapped[16])
{
	__be32 addr;

	memcpy(&addr, mapped + 12, sizeof(addr));
	return addr;
}

static struct dst_entry *look_up_ipv4(struct node_host *host, const struct node_path *path)
{
	struct flowi4 flow = {
		.daddr = ipv4_of(path->peer.addr),
		.saddr = ipv4_of(path->local.s6_addr),
		.fl4_dport = htons(path->peer.port),
		.fl4_sport = host->port,
		.flowi4_proto = IPPROTO_UDP,
	};
	struct rtable *route;

	security_sk_classify_flow(host->sk4, flowi4_to_flowi_common(&flow));
	route = ip_route_output_flow(host->net, &flow, host->sk4);
	return IS_ERR(route) ? NULL : &route->dst;
}

static struct dst_entry *look_up_ipv6(struct node_host *host, const struct node_path *path,
				      u32 *cookie)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 flow = {
		.saddr = path->local,
		.fl6_dport = htons(path->peer.port),
		.fl6_sport = host->port,
		.flowi6_oif = path->ifindex,
		.flowi6_proto = IPPROTO_UDP,
	};
	struct dst_entry *dst;

	memcpy(&flow.daddr, path->peer.addr, sizeof(flow.daddr));
	security_sk_classify_flow(host->sk6, flowi6_to_flowi_common(&flow));
	dst = ipv6_stub->ipv6_dst_lookup_flow(host->net, host->sk6, &flow, NULL);
	if (IS_ERR(dst))
		return NULL;
	*cookie = rt6_get_cookie(container_of(dst, struct rt6_info, dst));
	return dst;
#else
	return NULL;
#endif
}

/* The ports but one are the same for all, and the peer's belongs to its address. */
bool node_path_equal(const struct node_path *a, const struct node_path *b)
{
	return rmem_peer_equal(&a->peer, &b->peer) && ipv6_addr_equal(&a->local, &b->local) &&
	       a->ifindex == b->ifindex && a->ipv4 == b->ipv4;
}

struct dst_entry *node_send_route(struct node_host *host, struct node_route *route,
				  const struct node_path *path)
{
	if (likely(route->dst && node_path_equal(&route->path, path) &&
		   dst_check(route->dst, route->cookie)))
		return route->dst;

	node_send_forget(route);
	route->cookie = 0;
	route->dst = path->ipv4 ? look_up_ipv4(host, path)
				: look_up_ipv6(host, path, &route->cookie);
	if (!route->dst)
		node_count(NODE_COUNT_DROP_NO_ROUTE);
	route->path = *path;
	return route->dst;
}

/* Whoever still sends by it does so under rcu_read_lock(), which the release waits for. */
void node_send_forget(struct node_route *route)
{
	dst_release(route->dst);
	route->dst = NULL;
}

/* ---- transmission ---- */

static void push_udp(const struct node_host *host, const struct node_path *path,
		     struct sk_buff *skb)
{
	struct udphdr *udp = skb_push(skb, sizeof(*udp));

	skb_reset_transport_header(skb);
	udp->source = host->port;
	udp->dest = htons(path->peer.port);
	udp->len = htons(skb->len);
	udp->check = 0;
}

/* A packet that the path's MTU turns out to be too small for is fragmented, not lost. */
static int send_ipv4(struct node_host *host, struct dst_entry *dst, const struct node_path *path,
		     bool check, struct sk_buff *skb)
{
	__be32 source = ipv4_of(path->local.s6_addr);
	__be32 dest = ipv4_of(path->peer.addr);
	struct iphdr *ip;

	push_udp(host, path, skb);
	udp_set_csum(!check, skb, source, dest, skb->len);

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	memset(IPCB(skb), 0, sizeof(*IPCB(skb)));
	ip->version = 4;
	ip->ihl = sizeof(*ip) / 4;
	ip->tos = 0;
	ip->ttl = ip4_dst_hoplimit(dst);
	ip->protocol = IPPROTO_UDP;
	ip->saddr = source;
	ip->daddr = dest;
	ip->id = 0;
	ip->frag_off = htons(IP_DF);
	if (unlikely(skb->len > dst_mtu(dst))) {
		ip->frag_off = 0;
		__ip_select_ident(host->net, ip, 1);
	}
	return ip_local_out(host->net, host->sk4, skb);
}

/* The UDP checksum is there at every level: without it, IPv6 protects no address. */
static int send_ipv6(struct node_host *host, struct dst_entry *dst, const struct node_path *path,
		     struct sk_buff *skb)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct ipv6hdr *ip;
	struct in6_addr dest;

	memcpy(&dest, path->peer.addr, sizeof(dest));
	push_udp(host, path, skb);
	udp6_set_csum(false, skb, &path->local, &dest, skb->len);

	ip = skb_push(skb, sizeof(*ip));
	skb_reset_network_header(skb);
	memset(IP6CB(skb), 0, sizeof(*IP6CB(skb)));
	ip6_flow_hdr(ip, 0, 0);
	ip->nexthdr = IPPROTO_UDP;
	ip->hop_limit = ip6_dst_hoplimit(dst);
	ip->saddr = path->local;
	ip->daddr = dest;
	skb->ignore_df = 1;
	return ip6_local_out(host->net, host->sk6, skb);
#else
	kfree_skb(skb);
	return -EAFNOSUPPORT;
#endif
}

void node_send_packets(struct node_host *host, struct dst_entry *route,
		       const struct node_path *path, bool check, struct sk_buff *packets)
{
	struct sk_buff *skb, *next;
	int err;

	skb_list_walk_safe(packets, skb, next) {
		skb_mark_not_on_list(skb);
		if (unlikely(!route)) {
			kfree_skb(skb);
			continue;
		}
		skb_dst_set_noref(skb, route);
		if (path->ipv4)
			err = send_ipv4(host, route, path, check, skb);
		else
			err = send_ipv6(host, route, path, skb);
		node_count(net_xmit_eval(err) ? NODE_COUNT_DROP_XMIT : NODE_COUNT_ANSWERS);
	}
}
