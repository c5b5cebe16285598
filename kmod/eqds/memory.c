// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes of packets, and bounds on a device's memory.
 *
 *   packets   struct eqds_node holds each: queued, in flight, or in a reorder queue. The bytes of
 *             those to send stay below half of ed->held_max_bytes, and so do those of reorder
 *             queues, but for packets that let a tunnel go on: the first one of a queue, and the
 *             one that a reorder queue waits for
 *   guests    devices in namespaces of users without privileges hold packets of one account,
 *             memory_guests_bytes, since such a user can make any number of devices. Each can hold
 *             a part of the room left, so one leaves room for the others
 *   tunnels   ed->tunnels_max of a direction (life.c), and fewer when memory is short (shrink.c)
 */
#include "eqds/memory.h"

#include <linux/capability.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <net/net_namespace.h>

/* Packets can hold 1 / 2^n of the machine's memory, unless the operator says otherwise. */
#define MEMORY_HELD_SHIFT 3
/* A reorder queue can hold 1 / 2^n of the room that is left. */
#define MEMORY_TUNNEL_SHIFT 3
/* Guests can hold 1 / 2^n of the machine's memory together, and each 1 / 2^n of the room left. */
#define MEMORY_GUESTS_SHIFT 4
#define MEMORY_GUEST_SHIFT 1

/* Nodes that a device keeps for its next packets. With KASAN, which watches freed memory, none. */
#define MEMORY_SPARES_MAX (IS_ENABLED(CONFIG_KASAN) ? 0U : 256U)

static struct kmem_cache *memory_nodes;
static atomic64_t memory_guests_bytes = ATOMIC64_INIT(0); /* held by devices of guests */

static u64 memory_part(u32 shift)
{
	return (u64)totalram_pages() << PAGE_SHIFT >> shift;
}

/* Is the device in a network namespace of a user namespace that an unprivileged user can make? */
static bool memory_is_guests(const struct eqds_dev *ed)
{
	return dev_net(ed->dev)->user_ns != &init_user_ns;
}

static void memory_count_held(struct eqds_dev *ed, enum eqds_pool pool, s64 bytes)
{
	ed->held_bytes[pool] += bytes;
	if (memory_is_guests(ed))
		atomic64_add(bytes, &memory_guests_bytes);
}

/* Bytes that a pool of the device can hold. */
static u64 memory_pool_max(const struct eqds_dev *ed)
{
	const u64 max = ed->held_max_bytes / EQDS_POOLS;
	u64 all, held;

	if (!memory_is_guests(ed))
		return max;
	all = memory_part(MEMORY_GUESTS_SHIFT);
	held = atomic64_read(&memory_guests_bytes);
	return min(max, held < all ? (all - held) >> MEMORY_GUEST_SHIFT : 0);
}

/* The largest value of ed->held_max_bytes that the caller, a process, can set. */
u64 eqds_memory_max_bytes(void)
{
	return capable(CAP_NET_ADMIN) ? U64_MAX : memory_part(MEMORY_HELD_SHIFT);
}

static struct eqds_node *memory_node_get(struct eqds_dev *ed, gfp_t gfp)
{
	struct eqds_node *node = ed->spares;

	lockdep_assert_held(&ed->lock);
	if (!node)
		return kmem_cache_alloc(memory_nodes, gfp);
	ed->spares = node->spare;
	ed->spare_count--;
	return node;
}

static void memory_node_put(struct eqds_dev *ed, struct eqds_node *node)
{
	lockdep_assert_held(&ed->lock);
	if (ed->spare_count >= MEMORY_SPARES_MAX) {
		kmem_cache_free(memory_nodes, node);
		return;
	}
	node->spare = ed->spares;
	ed->spares = node;
	ed->spare_count++;
}

/*
 * The core's node of a packet, which counts from now on. segments: 1, or those of a whole packet.
 * NULL: no memory.
 */
struct eqds_node *eqds_node_get(struct eqds_dev *ed, enum eqds_pool pool, struct sk_buff *skb,
				u16 segments)
{
	const gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;
	struct eqds_node *node;

	lockdep_assert_held(&ed->lock);
	if (segments > 1)
		node = kmalloc(sizeof(*node) + (segments - 1) * sizeof(node->core), gfp);
	else
		node = memory_node_get(ed, gfp);
	if (!node)
		return NULL;
	node->skb = skb;
	node->segments = segments;
	node->left = segments;
	node->held_bytes = skb->truesize + (segments - 1) * sizeof(node->core);
	node->pool = pool;
	memory_count_held(ed, pool, node->held_bytes);
	return node;
}

/* Returns the packet, which is the caller's again. */
struct sk_buff *eqds_node_put(struct eqds_dev *ed, struct eqds_node *node)
{
	struct sk_buff *skb = node->skb;

	lockdep_assert_held(&ed->lock);
	memory_count_held(ed, node->pool, -(s64)node->held_bytes);
	if (node->segments > 1)
		kfree(node);
	else
		memory_node_put(ed, node);
	return skb;
}

bool eqds_memory_is_full(const struct eqds_dev *ed, enum eqds_pool pool)
{
	return ed->held_bytes[pool] >= memory_pool_max(ed);
}

/*
 * Has a tunnel's reorder queue room for a packet of that memory? Each can have a part of the room
 * that is left, as ports of a switch share its buffer (Choudhury and Hahne, 1998): many greedy
 * tunnels leave as much to a modest one as each of them has.
 */
bool eqds_memory_may_hold(const struct eqds_dev *ed, const struct eqds_rx *rx, u32 bytes)
{
	const u64 max = memory_pool_max(ed), held = ed->held_bytes[EQDS_POOL_RX];

	return held < max && rx->held_bytes + bytes <= (max - held) >> MEMORY_TUNNEL_SHIFT;
}

void eqds_memory_open(struct eqds_dev *ed)
{
	ed->tunnels_max = EQDS_TUNNELS_MAX;
	ed->held_max_bytes = memory_part(MEMORY_HELD_SHIFT);
}

void eqds_memory_close(struct eqds_dev *ed)
{
	struct eqds_node *node;

	while ((node = ed->spares)) {
		ed->spares = node->spare;
		kmem_cache_free(memory_nodes, node);
	}
	ed->spare_count = 0;
}

int eqds_memory_register(void)
{
	memory_nodes = KMEM_CACHE(eqds_node, SLAB_HWCACHE_ALIGN);
	return memory_nodes ? 0 : -ENOMEM;
}

void eqds_memory_unregister(void)
{
	kmem_cache_destroy(memory_nodes);
}
