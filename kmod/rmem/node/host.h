/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's memory node around the core of core/rmem/node/node.h: what its files share.
 *
 *   main.c     module: life
 *   host.c     start, stop
 *   netlink.c  control: family rmem_node
 *   net.c      sockets; receive, verify, execute: softirq
 *   send.c     answers: packets out of page memory, routes
 *   outbox.c   answers that wait for others to share their packet
 *   slow.c     OPEN CLOSE ALLOC FREE FENCE: queues by space and a thread
 *   mem.c      the lent pages; a thread zeroes what was given back
 *   epoch.c    a new boot epoch when the machine's memory was rolled back
 *   count.c    counters
 *
 * Locks, outermost first:
 *   node_control   mutex: start, stop and whatever looks at the one node
 *   call_lock      mutex: the core's call lock
 *   slow_lock      mutex: the core's slow lock
 *   slot[].lock    spinlock: the core's slot lock; also guards the slot's route
 *   outbox->lock   spinlock: a CPU's answers that wait; before a slot lock
 *   queue.lock     spinlock: the slow path's queue (with none but outbox->lock)
 * Receiving runs under rcu_read_lock(): pages and keys taken from the core are
 * waited for by synchronize_rcu() before they are used anew.
 */
#ifndef REMORA_RMEM_NODE_HOST_H
#define REMORA_RMEM_NODE_HOST_H

#include <linux/cache.h>
#include <linux/in6.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "core/rmem/datagram.h"
#include "core/rmem/node/call.h"
#include "core/rmem/node/lanes.h"

struct dst_entry;
struct genl_info;
struct net;
struct netlink_ext_ack;
struct node_outbox;
struct sock;
struct socket;
struct task_struct;

/* ---- counters: count.c ---- */

/* What the carrier itself counts, beside what the core has a reason for. */
enum node_count {
	NODE_COUNT_WIRE = 0, /* + enum rmem_wire_verdict */
	NODE_COUNT_REASON = NODE_COUNT_WIRE + RMEM_WIRE_VERDICTS, /* + enum rmem_node_reason */
	NODE_COUNT_TYPE = NODE_COUNT_REASON + RMEM_NODE_REASONS, /* + enum rmem_type - RMEM_OPEN */
	NODE_COUNT_READ_BYTES = NODE_COUNT_TYPE + RMEM_TYPE_END - RMEM_OPEN,
	NODE_COUNT_WRITE_BYTES,
	NODE_COUNT_ANSWERS,	     /* packets handed to the network */
	NODE_COUNT_SCRUBBED,	     /* pages zeroed */
	NODE_COUNT_HELD,	     /* pages found still referred to, put off */
	NODE_COUNT_DROP_SPACE,	     /* unknown address space */
	NODE_COUNT_DROP_NO_CHECKSUM, /* level link without an UDP checksum */
	NODE_COUNT_DROP_NOT_UNICAST,
	NODE_COUNT_DROP_RESERVE,     /* in a buffer meant for swap */
	NODE_COUNT_DROP_HIBERNATING,
	NODE_COUNT_DROP_QUEUE_FULL,  /* slow path's */
	NODE_COUNT_DROP_NO_BUFFER,   /* for the answer */
	NODE_COUNT_DROP_NO_ROUTE,    /* for the answer */
	NODE_COUNT_DROP_XMIT,	     /* answer refused on its way out */
	NODE_COUNTS
};

struct node_counts {
	u64 count[NODE_COUNTS];
};

DECLARE_PER_CPU_ALIGNED(struct node_counts, node_counts);

extern const char *const node_count_name[NODE_COUNTS];

/* Any context. 64-bit kernels only (Kbuild), so a sum never sees half a value. */
static inline void node_count_add(unsigned int which, u64 value)
{
	this_cpu_add(node_counts.count[which], value);
}

static inline void node_count(unsigned int which)
{
	node_count_add(which, 1);
}

u64 node_count_sum(unsigned int which);

/* ---- where answers go: send.c ---- */

/* A request's addresses, as an answer needs them. IPv4 is mapped into IPv6. */
struct node_path {
	struct rmem_peer peer;
	struct in6_addr local; /* the request's destination, hence the answer's source */
	int ifindex;	       /* of a link-local peer, else 0 */
	bool ipv4;
};

/* The way to the peer whose requests a slot saw last; slot lock. */
struct node_route {
	struct node_path path;
	struct dst_entry *dst; /* holds a reference; NULL: none looked up */
	u32 cookie;
};

struct node_slot {
	spinlock_t lock; /* the core's slot lock, and route */
	struct node_route route;
} ____cacheline_aligned_in_smp;

/* ---- memory: mem.c ---- */

struct node_mem {
	struct page **page; /* compound, of page_bytes; by the core's index */
	u64 pages;
	unsigned int order;
	struct page *zero; /* RMEM_PIECE_BYTES_MAX and more of zeros: memory never written */

	struct task_struct *scrubber;
	wait_queue_head_t wait;
	unsigned long wanted; /* bit 0: the scrubber was called and has not begun */
};

/* ---- slow path: slow.c ---- */

#define NODE_SLOW_JOBS 256U
#define NODE_SLOW_PAYLOAD_BYTES 24U

/* A verified request that waits for the slow path's thread. */
struct node_job {
	struct rmem_lane_job in_lane; /* first; while it is free, next links the free ones */
	u64 incarnation; /* of its space */
	struct rmem_head head;
	struct node_path path;
	u8 payload[NODE_SLOW_PAYLOAD_BYTES];
	struct rmem_node_call call;
};

/* By the space of the request, so that no tenant waits for another's row of requests. */
struct node_queue {
	spinlock_t lock; /* the lanes and free */
	struct rmem_lanes brief; /* rmem_node_call_is_brief() */
	struct rmem_lanes work;	 /* the others, and brief ones put off */
	struct node_job *free;
	struct node_job *job;
	void *lanes; /* memory of both */
	struct task_struct *thread;
	wait_queue_head_t wait;
};

/* ---- the node ---- */

struct node_host {
	struct rmem_node core;
	struct net *net;
	struct sock *sk4, *sk6; /* sk6 NULL: no IPv6 here */
	__be16 port;
	struct node_slot *slot; /* core.config.sessions_max of them */
	struct node_mem mem;
	struct node_outbox __percpu *outbox;
	bool hibernating; /* drop packets: what they change would be rolled back */
	bool closing; /* the sockets go: who receives still sends, nobody else does */
	struct node_queue queue;
	struct mutex call_lock; /* the core's call lock */
	struct mutex slow_lock; /* the core's slow lock */
	void *state;		/* the core's */
};

/* What START asked for. */
struct node_start {
	u64 memory_bytes;
	u32 page_bytes; /* a power of two */
	u16 port;
	u32 pool_pages; /* 0: fitting the memory */
	u32 spaces_max, sessions_max, regions_max, session_idle_ms;
};

/* host.c: the one node there is, or NULL. node_control. */
extern struct mutex node_control;
extern struct node_host *node_running;

int node_host_start(struct net *net, const struct node_start *start,
		    struct netlink_ext_ack *extack);
void node_host_stop(void);

/* epoch.c: once for the module; each event takes node_control. */
int node_epoch_register(void);
void node_epoch_unregister(void);
u64 node_epoch_random(void);
/* node_control. A hibernation has begun and isn't over. */
bool node_epoch_hibernates(void);

/* netlink.c */
int node_netlink_register(void);
void node_netlink_unregister(void);

/* net.c: receiving begins with open, and no request runs any more after close. */
int node_net_open(struct node_host *host, u16 port, struct netlink_ext_ack *extack);
void node_net_close(struct node_host *host);

/*
 * send.c. Packets are built with their messages only, and chained by
 * skb->next; when there is no buffer, that is counted. rcu_read_lock().
 */
struct node_answers {
	struct sk_buff *full, *full_last; /* complete packets */
	struct sk_buff *open;		  /* may take more */
	struct rmem_bundle bundle;	  /* in open */
	struct base_siphash hash;	  /* for open's tag, so far */
	u64 boot;			  /* that open's header tells */
	u32 limit_bytes;		  /* rmem_node_datagram_bytes() */
};

static inline bool node_send_any(const struct node_answers *answers)
{
	return answers->full || answers->open;
}

/* Seal the waiting packets and hand them to the caller, which sends them. */
struct sk_buff *node_send_take_full(struct node_answers *answers);
struct sk_buff *node_send_take_open(struct node_answers *answers);
/* Adds an answer, with the pages of its extents; false: no buffer. Slot lock. */
bool node_send_add(struct node_answers *answers, const struct node_mem *mem,
		   const struct base_siphash_key *key, struct rmem_head *head,
		   const struct rmem_extent *extent, unsigned int extents);
/* The same, with what an ATOMIC or PUT found. */
bool node_send_add_found(struct node_answers *answers, const struct base_siphash_key *key,
			 struct rmem_head *head, const struct rmem_found *found);
/* The same, with the data of a READV's ranges. */
bool node_send_add_gathered(struct node_answers *answers, struct node_host *host,
			    const struct base_siphash_key *key, const void *ranges,
			    struct rmem_answer *answer);
/* An answer of its own, with a payload of its own; NULL: no buffer. */
struct sk_buff *node_send_message(const struct base_siphash_key *key, struct rmem_head *reply,
				  const void *payload, u32 bytes);
/*
 * Route of a slot, kept up to date; NULL and counted when there is none. Slot
 * lock, and rcu_read_lock() for as long as the route is used.
 */
struct dst_entry *node_send_route(struct node_host *host, struct node_route *route,
				  const struct node_path *path);
void node_send_forget(struct node_route *route);
bool node_path_equal(const struct node_path *a, const struct node_path *b);
/* Frees packets if route is NULL. check: UDP checksum wanted. BH disabled, rcu_read_lock(). */
void node_send_packets(struct node_host *host, struct dst_entry *route,
		       const struct node_path *path, bool check, struct sk_buff *packets);

/*
 * outbox.c. BH disabled, rcu_read_lock(). get: this CPU's outbox, locked until put, without
 * answers that may not travel with those to head. route: the way its answers go is
 * looked up; slot lock of their session. put: they leave, but what may wait for more of them.
 */
int node_outbox_open(struct node_host *host);
void node_outbox_close(struct node_host *host);
struct node_outbox *node_outbox_get(struct node_host *host, const struct rmem_head *head,
				    const struct node_path *path)
	__acquires(outbox);
struct node_answers *node_outbox_answers(struct node_outbox *out);
void node_outbox_route(struct node_outbox *out, struct node_route *route);
void node_outbox_put(struct node_outbox *out, bool more) __releases(outbox);
void node_outbox_flush(struct node_outbox *out);

/* slow.c: the queue, there for as long as requests come; the thread that empties it. */
int node_slow_init(struct node_host *host);
void node_slow_exit(struct node_host *host);
int node_slow_start(struct node_host *host);
void node_slow_stop(struct node_host *host);
bool node_slow_add(struct node_host *host, const struct rmem_head *head,
		   const struct node_path *path, const struct sk_buff *skb, u32 payload_offset);

/* Does a call's steps, to its end, and between them the brief calls that may. Call lock. */
void node_slow_run(struct node_host *host, struct rmem_node_call *call);

/* mem.c: reservation, then the thread that zeroes. */
int node_mem_reserve(struct node_mem *mem, const struct rmem_node_config *config, u64 extra_bytes,
		     struct netlink_ext_ack *extack);
void node_mem_release(struct node_mem *mem);
int node_mem_start(struct node_host *host);
void node_mem_stop(struct node_host *host);
/* Calls the scrubber if it is wanted. Any context, no lock needed. */
void node_mem_scrub(struct node_host *host);

static inline void *node_mem_at(const struct node_mem *mem, const struct rmem_extent *extent)
{
	return page_address(mem->page[extent->page]) + extent->offset;
}

#endif
