/* SPDX-License-Identifier: GPL-2.0 */
/*
 * marlin.ko: what its files share. include/remora/marlin.h specifies what machines exchange.
 *
 *   main.c      client of the NTB core: a device is bound, and its interrupts
 *   link.c      windows, and how links to peers start and end
 *   bus.h       loads and stores across the bridge
 *   netdev.c    the interface eopN
 *   xmit.c      frames to peers
 *   recv.c      frames from peers
 *   messages.c  messages of a client and a node, for others' transports (../marlin_ops.h)
 *   loan.c      pages lent to a node, and copies to a client's
 *   xdp.c       programs that see frames first
 *   spin.c      how long the poll looks at empty rings
 *   ethtool.c   counters, and the time above
 *   cmmc.h      copies between programs, in files of their own
 *
 * Locks
 *   out->lock        the writer's end of a ring in a peer's memory; softirqs off
 *   in->lock         the reader's end of a ring in own memory; softirqs off; no out->lock within
 *   end->in_lock     as these two, of an end of messages; end->out_lock may be taken under the
 *   end->out_lock    in_lock, and under any of the sender's locks
 *   loans->lock      loans to the peer at a port; softirqs off; nothing within
 *   md->links_lock   what links share: addresses, carrier; softirqs off
 *   A link changes in its peer's link_work, and nowhere else. That may wait for copies under way,
 *   and takes no lock under which memory is allocated: reclaim may wait for the link.
 */
#ifndef REMORA_MARLIN_MARLIN_H
#define REMORA_MARLIN_MARLIN_H

#include <linux/netdevice.h>
#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <net/xdp.h>

#include "core/marlin/frames.h"
#include "core/marlin/pair.h"
#include "core/ring/ring.h"
#include "marlin/bus.h"
#include "marlin_ops.h"
#include "ntb_ops.h"

struct marlin_out_stats {
	u64 packets, bytes;
	u64 bells; /* interrupts of the peer */
	u64 stops; /* the queue had to wait for room */
	u64 sleeps; /* loads before such a wait */
};

struct marlin_in_stats {
	u64 packets, bytes;
	u64 tells; /* updates of the peer's copy of the tail */
	u64 bells; /* for a peer that waits for room */
	u64 sleeps; /* loads before the poll ended */
	u64 drop_memory;
	u64 drop_offload; /* an offload that doesn't fit its frame, or none was allowed */
	u64 drop_xdp; /* by a program, or for want of where to send */
	u64 xdp_tx, xdp_redirect;
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

/* The last exchange by a ring and its other direction (spin.c). */
struct marlin_spin {
	u64 asked_at_ns; /* by local_clock(): what was sent last */
	u32 turns; /* one sent, one received, so often in a row */
	bool asked; /* one was sent, and none received since */
};

/* A ring in a peer's memory, which this machine fills. It has a transmit queue. */
struct marlin_out {
	struct marlin_peer *peer;
	unsigned int number;

	spinlock_t lock; /* guards what follows */
	bool live;
	bool waits; /* the transmit queue is stopped until there is room */
	bool unrung; /* frames were posted after the last bell */
	struct timer_list stuck; /* a peer that makes no room for so long is taken for stuck */
	struct frames_out frames;
	struct marlin_out_stats stats;
};

/* A ring in own memory, which a peer fills. */
struct marlin_in {
	struct marlin_peer *peer;
	unsigned int number;
	struct marlin_spin spin;

	spinlock_t lock; /* guards what follows */
	bool live;
	struct frames_in frames;
	struct marlin_in_stats stats;
};

struct marlin_peer {
	struct marlin_dev *md;
	unsigned int index; /* of the NTB core */
	unsigned int port;
	unsigned int bell; /* the first doorbell of the port */

	struct work_struct link_work;
	struct marlin_bus bus; /* to the peer's memory */
	u32 epoch; /* of the link, as the session began with it; constant while it lasts */

	/* Of link_work. */
	struct pair pair;
	u64 starts, faults;
	void *in_memory; /* written by the peer, see remora/marlin.h; or NULL */
	dma_addr_t in_handle;
	size_t in_bytes;
	u32 in_area_bytes; /* for all rings */
	u32 in_ring_bytes;
	u32 out_ring_bytes;
	unsigned int in_rings; /* in own memory; the links' work alone looks */
	unsigned int out_rings; /* in use, in each direction */
	void *out_memory; /* the same in the peer's memory */
	size_t out_bytes;
	bool plain; /* wants frames without offloads */
	bool refused; /* was said since the link came up */
	struct ntb_pages pages; /* the peer's, for copies; changed while there are none */
	struct marlin_cmmc *cmmc; /* NULL: no copies, or the link was never up */

	bool up; /* messages and copies are exchanged, and frames if there is an address */
	u64 mac; /* 0: no frames */
	u64 mac_kept; /* its last one, which no other peer gets */
	const char *fault; /* the rule: found by an end, handled by link_work */
	struct marlin_messages *out_messages; /* in the peer's memory; NULL: never live */
	struct marlin_end ends[MARLIN_ENDS];
	atomic64_t message_bells; /* interrupts of the peer, for messages */
	u64 message_sleeps; /* loads before the poll ended */
	struct marlin_spin message_spin;
	bool loads_fast; /* from the peer's memory, by the CPU: loan.c measures */
	u64 loans_lent; /* guarded by the lock of the port's loans */
	/* Loans of this client that a copy is under way to, or from. */
	DECLARE_BITMAP(loans_copying, MARLIN_LOANS);
	atomic64_t loans_copied, loans_fetched;

	struct marlin_out out[MARLIN_RINGS_MAX];
	struct marlin_in in[MARLIN_RINGS_MAX];
};

/* Frames of a peer before the next peer has its turn. */
#define MARLIN_RECV_TURN 8
/* The number of the poll of messages. */
#define MARLIN_QUEUE_MESSAGES MARLIN_RINGS_MAX

/* A poll, of one ring of each peer or of all messages. Several run on several processors. */
struct marlin_queue {
	struct marlin_dev *md;
	struct napi_struct napi;
	unsigned int number; /* of the ring, or MARLIN_QUEUE_MESSAGES */
	unsigned int turn; /* the peer, or end, that the next poll begins with */
	struct page_pool *pool; /* for frames; of messages: none */
	u64 spins, spins_failed;
	unsigned int xdp_count;
	bool xdp_ran; /* since the last flush */
	struct xdp_buff xdp[MARLIN_RECV_TURN]; /* frames copied for the program */
	struct xdp_rxq_info xdp_rxq;
} ____cacheline_aligned_in_smp;

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
	spinlock_t links_lock; /* guards the peers' addresses, and the carrier */
	u64 linked; /* links that were up at the last event */
	struct work_struct cmmc_work;
	unsigned int port;
	unsigned int bells; /* of each port; the last is for messages and copies */
	unsigned int bell; /* the first of the own port */
	u64 bell_link;
	struct notifier_block sleep; /* the machine is going to sleep, or has woken up */
	bool sleeps; /* the interface was up before; under RTNL */
	bool open;
	bool copies; /* /dev/cmmc serves its peers */
	struct marlin_locks_dev *locks; /* across machines; NULL: no memory for them */
	struct bpf_prog __rcu *xdp;
	u32 spin_usecs; /* 0: never */
	atomic_long_t drops[MARLIN_DROPS];
	unsigned int rings_max; /* a power of two, as far as doorbells and processors go */
	unsigned int rings; /* wanted, of each peer; a power of two */
	u32 ring_bytes_max; /* wanted */
	struct marlin_queue queues[MARLIN_RINGS_MAX];
	struct marlin_queue messages;
	unsigned int peer_count;
	struct marlin_peer peers[];
};

/* Of a ring in own memory, as the peer writes it. */
static inline struct marlin_window *marlin_own_window(struct marlin_peer *peer, unsigned int ring)
{
	return peer->in_memory + ring * MARLIN_WINDOW_BYTES;
}

static inline struct marlin_messages *marlin_own_messages(struct marlin_peer *peer)
{
	return peer->in_memory + MARLIN_RING_OFFSET + peer->in_rings * peer->in_ring_bytes;
}

/* The same of the peer's memory. */
static inline struct marlin_window *marlin_peer_window(struct marlin_peer *peer, unsigned int ring)
{
	return peer->out_memory + ring * MARLIN_WINDOW_BYTES;
}

/* The cores know words of memory, whose byte order they change. */
static inline u32 *marlin_word(__le32 *word)
{
	return (__force u32 *)word;
}

/*
 * A load from the peer's memory, for an end that sleeps, or a session's end. It pushes what was
 * written there, and its completion what the peer has written here (remora/marlin.h, "Order").
 */
static inline void marlin_flush(struct marlin_peer *peer)
{
	mb(); /* stores may be combined on the way to the window, and loads don't wait for them */
	bus_load32(&peer->bus, &marlin_peer_window(peer, 0)->tail);
	mb(); /* loads of such memory are not ordered; what the caller looks at next is after it */
}

/* This machine's bells. */
static inline u64 marlin_bell_frames(const struct marlin_dev *md, unsigned int ring)
{
	return BIT_ULL(md->bell + ring);
}

static inline u64 marlin_bell_messages(const struct marlin_dev *md)
{
	return BIT_ULL(md->bell + md->bells - 1);
}

/* All that this machine listens to. */
static inline u64 marlin_bells(const struct marlin_dev *md)
{
	return GENMASK_ULL(md->bell + md->rings - 1, md->bell) | marlin_bell_messages(md) |
	       md->bell_link;
}

/* For messages and copies. */
static inline void marlin_ring(struct marlin_peer *peer)
{
	ntb_peer_db_set(peer->md->ntb, BIT_ULL(peer->bell + peer->md->bells - 1));
}

/* For frames of a ring, or room in it. */
static inline void marlin_ring_frames(struct marlin_peer *peer, unsigned int ring)
{
	ntb_peer_db_set(peer->md->ntb, BIT_ULL(peer->bell + ring));
}

/* The number of a ring's transmit queue; the last queue is for multicast frames. */
static inline unsigned int marlin_out_queue(const struct marlin_out *out)
{
	return out->peer->index * out->peer->md->rings_max + out->number;
}

static inline unsigned int marlin_multicast_queue(const struct marlin_dev *md)
{
	return md->peer_count * md->rings_max;
}

/* main.c */
void marlin_link_changed(struct marlin_dev *md);
void marlin_peer_changed(struct marlin_peer *peer);
void marlin_bells_rise(struct marlin_dev *md, u64 bells);

/* link.c */
void marlin_link_work(struct work_struct *work);
void marlin_link_flush(struct marlin_dev *md);
void marlin_link_cancel(struct marlin_dev *md);
int marlin_link_wait_quiet(struct marlin_dev *md);
void marlin_link_fault(struct marlin_peer *peer, const char *rule);
void marlin_link_lost(struct marlin_peer *peer);
void marlin_link_publish(struct marlin_dev *md);
void marlin_link_free(struct marlin_dev *md);
int marlin_link_window_number(struct marlin_peer *peer);
bool marlin_link_may_copy(const struct marlin_peer *peer, u64 page);

/* netdev.c */
struct net_device *marlin_netdev_alloc(unsigned int peer_count, unsigned int bells);
void marlin_netdev_free(struct marlin_dev *md);
bool marlin_netdev_pause(struct marlin_dev *md);
void marlin_netdev_resume(struct marlin_dev *md);
int marlin_netdev_change(struct marlin_dev *md, unsigned int rings, u32 ring_bytes_max);

/* xmit.c */
netdev_tx_t marlin_xmit(struct sk_buff *skb, struct net_device *dev);
u16 marlin_xmit_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev);
netdev_features_t marlin_xmit_features(struct sk_buff *skb, struct net_device *dev,
				       netdev_features_t features);
bool marlin_xmit_flat(struct marlin_dev *md, unsigned int ring, const void *frame, u32 bytes);
void marlin_xmit_flush(struct marlin_dev *md, unsigned int ring);
void marlin_xmit_wake(struct marlin_out *out);
void marlin_xmit_stuck(struct timer_list *timer);

/* xdp.c */
int marlin_xdp_init(struct marlin_dev *md);
void marlin_xdp_free(struct marlin_dev *md);
void marlin_xdp_copy(struct marlin_queue *queue, struct marlin_in *in, u32 bytes);
void marlin_xdp_run(struct marlin_queue *queue, struct marlin_in *in, struct bpf_prog *program);
void marlin_xdp_flush(struct marlin_queue *queue);
int marlin_xdp_xmit(struct net_device *dev, int count, struct xdp_frame **frames, u32 flags);
int marlin_xdp(struct net_device *dev, struct netdev_bpf *command);
int marlin_xdp_change_mtu(struct net_device *dev, int mtu);

/* spin.c */
void marlin_spin_sent(struct marlin_spin *spin, bool bulk);
void marlin_spin_got(const struct marlin_dev *md, struct marlin_spin *spin);
bool marlin_spin_is_due(const struct marlin_dev *md, const struct marlin_spin *spin);
bool marlin_spin(struct marlin_queue *queue);

/* recv.c */
int marlin_recv_init(struct marlin_dev *md);
void marlin_recv_free(struct marlin_dev *md);
bool marlin_recv_has_frame(struct marlin_in *in);
void marlin_recv_rise(struct marlin_in *in);
int marlin_recv_poll(struct napi_struct *napi, int budget);

/* messages.c */
void marlin_messages_init(struct marlin_peer *peer);
void marlin_messages_attach(struct marlin_dev *md);
void marlin_messages_detach(struct marlin_dev *md);
void marlin_messages_start(struct marlin_peer *peer, size_t out_area_bytes);
void marlin_messages_stop(struct marlin_peer *peer);
void marlin_messages_clean(struct marlin_peer *peer);
int marlin_messages_poll(struct napi_struct *napi, int budget);
bool marlin_messages_has_work(struct marlin_peer *peer);
void marlin_messages_rise(struct marlin_peer *peer);
struct marlin_peer *marlin_messages_peer(unsigned int port);

/* loan.c */
void marlin_loans_init(unsigned int port);
void marlin_loans_exit(void);
void marlin_loans_clean(struct marlin_peer *peer);
void marlin_loans_measure(struct marlin_peer *peer);
void marlin_loans_free(struct marlin_peer *peer);
bool marlin_loans_are_quiet(struct marlin_peer *peer);

/* cmmc.c */
int marlin_cmmc_register(void);
void marlin_cmmc_unregister(void);
void marlin_cmmc_attach(struct marlin_dev *md);
void marlin_cmmc_detach(struct marlin_dev *md);
void marlin_cmmc_start(struct marlin_peer *peer);
void marlin_cmmc_stop(struct marlin_peer *peer);
void marlin_cmmc_clean(struct marlin_peer *peer);
void marlin_cmmc_look(struct marlin_peer *peer);
bool marlin_cmmc_is_quiet(struct marlin_peer *peer);
void marlin_cmmc_bell(struct marlin_dev *md);

/* ethtool.c */
extern const struct ethtool_ops marlin_ethtool_ops;

#endif
