/* SPDX-License-Identifier: GPL-2.0 */
/*
 * marlin.ko: what its files share. include/remora/marlin.h specifies what machines exchange.
 *
 *   main.c      client of the NTB core: a device is bound, and its interrupts
 *   link.c      windows, and how links to peers start and end
 *   netdev.c    the interface eopN
 *   xmit.c      frames to peers
 *   recv.c      frames from peers
 *   messages.c  messages of a client and a node, for others' transports (../marlin_ops.h)
 *   watch.c     spins before messages need a doorbell
 *   ethtool.c   counters
 *   cmmc.h      copies between programs, in files of their own
 *
 * Locks
 *   peer->out_lock   the writer's end of the ring in the peer's memory; softirqs off
 *   peer->in_lock    the reader's end of the ring in own memory; softirqs off. Never with out_lock
 *   end->in_lock     as these two, of an end of messages; end->out_lock may be taken under the
 *   end->out_lock    in_lock, and under any lock of who sends
 *   Links change in one work item, md->link_work, and nowhere else.
 */
#ifndef REMORA_MARLIN_MARLIN_H
#define REMORA_MARLIN_MARLIN_H

#include <linux/netdevice.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>

#include "core/marlin/frames.h"
#include "core/marlin/pair.h"
#include "core/ring/ring.h"
#include "core/ring/spin.h"
#include "marlin_ops.h"
#include "ntb_ops.h"

struct marlin_out_stats {
	u64 packets, bytes;
	u64 bells; /* interrupts of the peer */
	u64 stops; /* the queue had to wait for room */
};

struct marlin_in_stats {
	u64 packets, bytes;
	u64 tells; /* updates of the peer's copy of the tail */
	u64 bells; /* for a peer that waits for room */
	u64 drop_memory;
	u64 drop_offload; /* an offload that doesn't fit its frame */
};

struct marlin_message_stats {
	u64 out, in; /* records */
	u64 dropped; /* records that came, and nobody wanted */
};

/* This machine's end, as client or node, of a pair of rings with a peer. */
struct marlin_end {
	u32 *pointer; /* of the requests: a client's in the peer's memory, a node's in own */

	spinlock_t out_lock; /* guards what follows */
	bool out_live;
	bool out_unrung; /* records were posted after the last bell */
	u32 out_wanted; /* a sender waits for room for so many; 0: none does */
	u32 out_reserved; /* records that senders have room for */
	u32 out_session; /* of the link */
	struct ring_out out;

	spinlock_t in_lock; /* guards what follows */
	bool in_live;
	bool in_held; /* the next record waits for room to answer it */
	struct ring_in in;

	struct marlin_message_stats stats;
};

struct marlin_cmmc;
struct marlin_locks_dev;

struct marlin_peer {
	struct marlin_dev *md;
	unsigned int index; /* of the NTB core, and of the transmit queue */
	unsigned int port;

	/* Of link_work. */
	struct pair pair;
	u64 starts, faults;
	void *in_memory; /* struct marlin_window, and the ring that the peer fills, or NULL */
	dma_addr_t in_handle;
	size_t in_bytes;
	u32 in_ring_bytes;
	void *out_memory; /* the same in the peer's memory */
	size_t out_bytes;
	bool refused; /* was said since the link came up */
	struct ntb_pages pages; /* the peer's, for copies; changed while there are none */
	struct marlin_cmmc *cmmc; /* NULL: no copies, or the link was never up */

	u64 mac; /* 0: no traffic */
	const char *fault; /* the rule: found by an end, handled by link_work */
	struct marlin_messages *out_messages; /* in the peer's memory; NULL: never live */
	struct marlin_end ends[MARLIN_ENDS];
	atomic64_t message_bells; /* interrupts of the peer, for messages */

	spinlock_t out_lock; /* guards what follows */
	bool out_live;
	bool out_waits; /* the transmit queue is stopped until there is room */
	bool out_unrung; /* frames were posted after the last bell */
	struct frames_out out;
	struct marlin_out_stats out_stats;

	spinlock_t in_lock; /* guards what follows */
	bool in_live;
	struct frames_in in;
	struct marlin_in_stats in_stats;
};

/* The thread that looks for messages (watch.c). */
struct marlin_watch {
	struct task_struct *thread; /* NULL: the interface is down */
	bool asked; /* to begin */
	bool watching; /* the thread looks, so no peer has to ring */
	spinlock_t lock; /* guards what follows; softirqs off */
	struct ring_spin spin;
	u64 until_ns;
	u32 rest, rest_next; /* events that don't wake the thread */
	u64 starts, hits; /* times it began; times it found something */
};

enum marlin_drop {
	MARLIN_DROP_UNKNOWN, /* no peer has this address */
	MARLIN_DROP_LINK, /* the peer's link is down */
	MARLIN_DROP_SIZE, /* a frame too short or too long, or an unknown kind of GSO */
	MARLIN_DROP_FULL, /* no room, and the frame isn't in the peer's own queue */
	MARLIN_DROPS
};

struct marlin_dev {
	struct net_device *dev;
	struct ntb_dev *ntb;
	struct napi_struct napi;
	struct napi_struct messages_napi;
	struct work_struct link_work;
	struct work_struct cmmc_work;
	unsigned int port;
	unsigned int turn; /* the peer that the next poll begins with */
	struct marlin_watch watch;
	unsigned int messages_turn; /* the end that the next poll of messages begins with */
	u64 bell_data, bell_link;
	bool open;
	bool copies; /* /dev/cmmc serves its peers */
	struct marlin_locks_dev *locks; /* across machines; NULL: no memory for them */
	atomic_long_t drops[MARLIN_DROPS];
	unsigned int peer_count;
	struct marlin_peer peers[];
};

static inline struct marlin_window *marlin_own_window(struct marlin_peer *peer)
{
	return peer->in_memory;
}

static inline struct marlin_messages *marlin_own_messages(struct marlin_peer *peer)
{
	return peer->in_memory + MARLIN_RING_OFFSET + peer->in_ring_bytes;
}

static inline struct marlin_window *marlin_peer_window(struct marlin_peer *peer)
{
	return peer->out_memory;
}

/* The cores know words of memory, whose byte order they change. */
static inline u32 *marlin_word(__le32 *word)
{
	return (__force u32 *)word;
}

/* Makes what was written to the peer's memory visible there: a read comes behind posted writes. */
static inline void marlin_flush(struct marlin_peer *peer)
{
	wmb(); /* stores may be combined on the way to the window */
	(void)READ_ONCE(marlin_peer_window(peer)->tail);
	mb(); /* loads of such memory are not ordered; what the caller looks at next is after it */
}

static inline void marlin_ring(struct marlin_peer *peer)
{
	ntb_peer_db_set(peer->md->ntb, BIT_ULL(peer->port));
}

/* main.c */
void marlin_link_changed(struct marlin_dev *md);

/* link.c */
void marlin_link_work(struct work_struct *work);
void marlin_link_fault(struct marlin_peer *peer, const char *rule);
void marlin_link_publish(struct marlin_dev *md);
void marlin_link_free(struct marlin_dev *md);
int marlin_link_window_number(struct marlin_peer *peer);
bool marlin_link_may_copy(const struct marlin_peer *peer, u64 page);

/* netdev.c */
struct net_device *marlin_netdev_alloc(unsigned int peer_count);

/* xmit.c */
netdev_tx_t marlin_xmit(struct sk_buff *skb, struct net_device *dev);
u16 marlin_xmit_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev);
void marlin_xmit_wake(struct marlin_peer *peer);
void marlin_xmit_timeout(struct net_device *dev, unsigned int queue);

/* recv.c */
int marlin_recv_poll(struct napi_struct *napi, int budget);

/* messages.c */
void marlin_messages_init(struct marlin_peer *peer);
void marlin_messages_attach(struct marlin_dev *md);
void marlin_messages_detach(struct marlin_dev *md);
void marlin_messages_start(struct marlin_peer *peer, u32 out_ring_bytes);
void marlin_messages_stop(struct marlin_peer *peer);
void marlin_messages_clean(struct marlin_peer *peer);
int marlin_messages_poll(struct napi_struct *napi, int budget);
bool marlin_messages_has_work(struct marlin_peer *peer);
void marlin_messages_rise(struct marlin_peer *peer);

/* watch.c */
void marlin_watch_init(struct marlin_dev *md);
int marlin_watch_start(struct marlin_dev *md);
void marlin_watch_stop(struct marlin_dev *md);
void marlin_watch_traffic(struct marlin_dev *md);

/* cmmc.c */
int marlin_cmmc_register(void);
void marlin_cmmc_unregister(void);
void marlin_cmmc_attach(struct marlin_dev *md);
void marlin_cmmc_detach(struct marlin_dev *md);
void marlin_cmmc_start(struct marlin_peer *peer);
void marlin_cmmc_stop(struct marlin_peer *peer);
void marlin_cmmc_clean(struct marlin_peer *peer);
void marlin_cmmc_bell(struct marlin_dev *md);

/* ethtool.c */
extern const struct ethtool_ops marlin_ethtool_ops;

#endif
