/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The kernel's memory node around the core of core/rmem/node/node.h: the types that its files
 * share, and a list of them.
 *
 *   main.c     module: life
 *   host.c     start, stop
 *   netlink.c  control: family rmem_node
 *   request.c  requests are executed: softirq
 *   reply.c    answers that come late
 *   ports.c    where requests come from: UDP, and modules' ports
 *   slow.c     those that can take long (rmem_node_is_slow()): queues by space and a thread
 *   calls.c    QUERY and CALL messages, which that thread runs
 *   programs.c the modules with the programs of these messages, and the functions that they call
 *   steps.c    the clock of a step in BPF
 *   mem.c      the lent pages; a thread zeroes pages given back
 *   epoch.c    a new boot epoch when the machine's memory was rolled back
 *   count.c    counters
 *
 * A file includes headers of lower floors only; the floors are in ../README.md.
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
#ifndef REMORA_RMEM_NODE_TYPES_H
#define REMORA_RMEM_NODE_TYPES_H

#include <linux/cache.h>
#include <linux/mutex.h>
#include <linux/spinlock.h>
#include <linux/wait.h>

#include "core/rmem/node/node.h"
#include "core/rmem/node/queue.h"
#include "rmem_port_ops.h"

struct net;
struct node_calls;
struct node_frame;
struct task_struct;

struct node_slot {
	spinlock_t lock; /* the core's slot lock */
} ____cacheline_aligned_in_smp;

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

/* The one node there is, or NULL, and the lock that guards it: held for each command, whole. */
extern struct mutex node_control;
extern struct node_host *node_running;

#endif
