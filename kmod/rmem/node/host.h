/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's memory node around the core of core/rmem/node/node.h: declarations for its files.
 *
 *   main.c     module: life
 *   host.c     start, stop
 *   netlink.c  control: family rmem_node
 *   request.c  requests are executed: softirq
 *   ports.c    where requests come from: UDP, and modules' ports
 *   slow.c     those that can take long (rmem_node_is_slow()): queues by space and a thread
 *   calls.c    QUERY and CALL messages, which that thread runs
 *   programs.c the modules with the programs of these messages, and the functions that they call
 *   steps.c    the clock of a step in BPF
 *   mem.c      the lent pages; a thread zeroes pages given back
 *   epoch.c    a new boot epoch when the machine's memory was rolled back
 *   count.c    counters
 *
 * Locks, outermost first:
 *   node_control   mutex: start, stop and all that looks at the one node
 *   call_lock      mutex: the core's call lock
 *   slow_lock      mutex: the core's slow lock
 *   calls.stepping mutex: steps of QUERY and CALL messages
 *   slot[].lock    spinlock: the core's slot lock; a port's locks come before it
 *   calls.lock     spinlock: the core's run lock
 *   queue.lock     spinlock: the slow path's queue (with none but a port's)
 * Receiving runs under rcu_read_lock(): pages and keys taken from the core are
 * waited for by synchronize_rcu() before they are used anew.
 *
 * Requests come and answers go by ports (rmem_port_ops.h); UDP's is ../transport/udp/port.c.
 */
#ifndef REMORA_RMEM_NODE_HOST_H
#define REMORA_RMEM_NODE_HOST_H

#include <linux/cache.h>
#include <linux/kernel.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "core/rmem/node/node.h"
#include "core/rmem/node/queue.h"
#include "core/rmem/offload/run.h"
#include "rmem_port_ops.h"

struct genl_info;
struct module;
struct net;
struct netlink_ext_ack;
struct node_frame;
struct task_struct;

/* ---- counters: count.c ---- */

/* Counters of the module itself, beside those of the core's reasons. */
enum node_count {
	NODE_COUNT_PORT = 0, /* + enum rmem_port_count */
	NODE_COUNT_REASON = NODE_COUNT_PORT + RMEM_PORT_COUNTS, /* + enum rmem_node_reason */
	NODE_COUNT_TYPE = NODE_COUNT_REASON + RMEM_NODE_REASONS, /* + enum rmem_type - RMEM_OPEN */
	NODE_COUNT_READ_BYTES = NODE_COUNT_TYPE + RMEM_TYPE_END - RMEM_OPEN,
	NODE_COUNT_WRITE_BYTES,
	NODE_COUNT_SCRUBBED,   /* pages zeroed */
	NODE_COUNT_HELD,       /* pages found still referred to, put off */
	NODE_COUNT_DROP_SPACE, /* unknown address space */
	NODE_COUNT_DROP_HIBERNATING,
	NODE_COUNT_DROP_QUEUE_FULL, /* slow path's */
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

struct node_slot {
	spinlock_t lock; /* the core's slot lock */
} ____cacheline_aligned_in_smp;

/* ---- memory: mem.c ---- */

struct node_mem {
	struct page **page; /* compound, of page_bytes; by the core's index */
	u64 pages;
	unsigned int order;
	struct page *zero; /* RMEM_PIECE_BYTES_MAX and more of zeros: memory never written */

	struct task_struct *scrubber;
	bool in_grace; /* the scrubber's: grace is a grace period that might not have passed */
	unsigned long grace;
	wait_queue_head_t wait;
	unsigned long wanted; /* bit 0: the scrubber was called and has not begun */
};

/* ---- slow path: slow.c ---- */

/* A request that waits for the slow path's thread. */
struct node_job {
	struct rmem_job job; /* first */
	struct rmem_port *port;
	struct rmem_port_path path;
};

struct node_queue {
	spinlock_t lock; /* waiting */
	struct rmem_queue waiting;
	struct node_job *job; /* RMEM_QUEUE_JOBS */
	void *lanes;	      /* waiting's memory */
	struct task_struct *thread;
	bool stopping; /* the call under way is given up */
	wait_queue_head_t wait;
};

/* ---- the node ---- */

/* Kinds of ports: UDP's, and one for each way that a machine can have beside it. */
#define NODE_PORTS_MAX 4

struct node_host {
	struct rmem_node core;
	struct net *net;
	struct rmem_port *port[NODE_PORTS_MAX]; /* of each kind, or NULL; node_control */
	u16 port_number;
	struct node_slot *slot; /* core.config.sessions_max of them */
	struct node_mem mem;
	struct node_frame __percpu *frame;
	bool hibernating; /* drop packets: their changes would be rolled back */
	struct node_queue queue;
	struct node_calls *calls; /* calls.c's, from the first offload on */
	struct mutex call_lock; /* the core's call lock */
	struct mutex slow_lock; /* the core's slow lock */
	void *state;		/* the core's */
};

/* The parameters of START. */
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

/* request.c: requests come from open on, and none runs any more after close. */
int node_request_open(struct node_host *host, struct netlink_ext_ack *extack);
void node_request_close(struct node_host *host);
/*
 * An answer to request by itself, sealed if its session is. key: the space's. BH disabled, under
 * rcu_read_lock().
 */
void node_reply(struct node_host *host, struct rmem_port *port, const struct rmem_port_path *path,
		const struct base_siphash_key *key, const struct rmem_head *request,
		struct rmem_head *reply, const void *payload);

/* ports.c */
int node_ports_open(struct node_host *host, struct netlink_ext_ack *extack);
void node_ports_close(struct node_host *host);

/* slow.c: the queue, there for as long as requests come; the thread that empties it. */
int node_slow_init(struct node_host *host);
void node_slow_exit(struct node_host *host);
int node_slow_start(struct node_host *host);
void node_slow_stop(struct node_host *host);
bool node_slow_add(const struct rmem_port_batch *batch, const struct rmem_record *record);

/* Does a call's steps, to its end, and between them the brief calls. Call lock. */
void node_slow_run(struct node_host *host, struct rmem_node_call *call);

/* calls.c: offloads, as LOAD and REMOVE name them. node_control. */
struct node_offload {
	const char *name;
	u32 space;
	u32 budget_us; /* 0: the program's own */
	u32 client[RMEM_RUN_CLIENTS];
	u32 clients;
};

int node_calls_load(struct node_host *host, const struct node_offload *offload,
		    struct netlink_ext_ack *extack);
int node_calls_remove(struct node_host *host, const struct node_offload *offload,
		      struct netlink_ext_ack *extack);
void node_calls_space_gone(struct node_host *host);
bool node_calls_at(struct node_host *host, unsigned int at, struct rmem_run_offload *copy);
void node_calls_drop(struct node_host *host, const struct rmem_offload_ops *ops);
void node_calls_replace(struct node_host *host, const struct rmem_offload_ops *from,
			const struct rmem_offload_ops *to);
bool node_calls_use(struct node_host *host, const struct rmem_offload_ops *ops);
void node_calls_exit(struct node_host *host);
bool node_calls_admit(const struct rmem_port_batch *batch, const struct rmem_record *record,
		      struct rmem_answer *answer);
bool node_calls_any(struct node_host *host);
void node_calls_run(struct node_host *host);

/* programs.c. The program of that name, with a reference to its module; or NULL. */
const struct rmem_offload_ops *node_programs_get(const char *name, struct module **owner);

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
