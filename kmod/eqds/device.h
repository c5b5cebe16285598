/* SPDX-License-Identifier: GPL-2.0 */
/*
 * An eqds device, its tunnels, and other types that the files of this module share. A file includes
 * headers of lower floors only; README.md has the floors.
 *
 * Locking: one spinlock per device guards the core's state, the tunnel tables and the counters. It
 * is taken in softirq and by administration. No packet leaves, is delivered or is freed while it
 * is held: struct eqds_work collects them, and eqds_work_run() does the rest after the unlock.
 *
 * Lifetime: a tunnel belongs to its device and has no references. It is freed under the lock, for
 * nothing outside the lock keeps a pointer to one. The timers belong to the device.
 */
#ifndef KMOD_EQDS_DEVICE_H
#define KMOD_EQDS_DEVICE_H

#include <linux/bitmap.h>
#include <linux/hrtimer.h>
#include <linux/in6.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/skbuff.h>
#include <linux/spinlock.h>
#include <linux/timerqueue.h>
#include <linux/udp.h>
#include <net/dst_cache.h>

#include "core/eqds/class.h"
#include "core/eqds/cookie.h"
#include "core/eqds/drr.h"
#include "core/eqds/receiver.h"
#include "core/eqds/reply.h"
#include "core/eqds/roce.h"
#include "uapi/remora_eqds.h"

/* Room for IPv6 outside, whichever a peer has: both ends count credit in the same MTU. */
#define EQDS_OUTER_BYTES    (sizeof(struct ipv6hdr) + sizeof(struct udphdr))
#define EQDS_OVERHEAD_BYTES (EQDS_OUTER_BYTES + EQDS_DATA_BYTES) /* and ed->tag_bytes */

/* Source ports of a tunnel's packets, by which routers choose paths: a power of two. */
#define EQDS_PATHS     16U
#define EQDS_PATH_PORT 0xc000U
/*
 * The window, one bandwidth-delay product, unless the operator sets another: at 1500 bytes,
 * 780 Mbit/s at a round trip of 1 ms. A full window of the largest has as many packets as a tunnel
 * has numbers.
 */
#define EQDS_WINDOW_MTUS     64U
#define EQDS_WINDOW_MTUS_MAX EQDS_WINDOW_PACKETS
/* Tunnels of a direction, unless the operator wants fewer. One takes 5 KB: 80 MB. */
#define EQDS_TUNNELS_MAX 16384U
/* A peer that is silent for so long, while packets wait for it, loses them and its tunnel. */
#define EQDS_SILENT_NS	   (15 * NSEC_PER_SEC)
/* The same, where a translator of addresses might keep the peer's answers. */
#define EQDS_SILENT_TRANSLATED_NS NSEC_PER_SEC
#define EQDS_HASH_BITS	   10
#define EQDS_MBITS_DEFAULT 10000U
#define EQDS_MBITS_MAX	   1000000U
#define EQDS_TOS_INHERIT   256U
/* Of packets that take one path: as much as GRO joins. */
#define EQDS_TRAIN_BYTES 65536U
/* The longest IP packet: of a whole packet, all segments under one outer header. */
#define EQDS_WHOLE_BYTES_MAX 65535U
/* Datagrams that wait for the device's NAPI: some ms at the rate one CPU takes them. */
#define EQDS_BACKLOG_MAX 8192U
/* A train comes only while fewer wait: 32 MiB of them. */
#define EQDS_BACKLOG_TRAINS_MAX 512U

/* Cookies that change apart from each other: key.c. A power of two. */
#define EQDS_GENERATIONS 1024U

#define EQDS_RULE_BUCKETS   256U
#define EQDS_RULE_LENGTHS   129U
/* Of programs, by port. */
#define EQDS_NATIVE_BUCKETS 64U
/* A firing of the pull timer is late by less than 2^n us; the last one: or more. */
#define EQDS_LATE_BUCKETS 16U

/* Counters under the device's lock; ethtool.c names them. */
struct eqds_stats {
	u64 tx_packets, tx_retransmits, tx_control;
	u64 tx_drop_class, tx_mark, tx_drop_peer, tx_drop_size, tx_drop_memory, tx_drop_tunnels;
	u64 tx_drop_held, rx_drop_held, rx_drop_class, shrunk;
	u64 tx_undelivered; /* given up, or in a tunnel that ended */
	u64 tx_uncaptured; /* left to the link by hook.c */
	u64 tx_translated, rx_translated; /* tunnels that end for a translator; SYNs by one */
	u64 tx_expired, tx_timeouts, tx_given_up, tx_unreachable, tx_evicted;
	u64 icmp_heard, icmp_refused;
	u64 rx_packets, rx_control, rx_held_max;
	u64 rx_drop_wire, rx_drop_size, rx_drop_memory, rx_drop_backlog, rx_evicted, rx_refused;
	u64 rx_polls, rx_replies_merged, rx_drop_stranger;
	u64 rx_trains, tx_whole, rx_counted;
	u64 tx_unnumbered, rx_unnumbered;
	u64 rx_drop_untagged, rx_drop_tagged, rx_drop_tag;
	u64 tx_native, rx_native, rx_drop_native;
	u64 tx_rdma, tx_cnp, tx_cnp_unknown, rx_rdma, rx_drop_rdma;
	u64 timer_late; /* deadlines in the past after a timer; 0 unless a fault is here */
	u64 pulls, pull_timers, pull_late_ns_sum, pull_late_ns_max;
	u64 pull_late[EQDS_LATE_BUCKETS];
	u64 sender[EQDS_VERDICTS], receiver[EQDS_VERDICTS];
};

/* Apart, so that peers that fill reorder queues leave room for packets to send. */
enum eqds_pool {
	EQDS_POOL_TX,
	EQDS_POOL_RX,
	EQDS_POOLS,
};

/* The common part of tunnels of both directions. */
struct eqds_tunnel {
	struct timerqueue_node due; /* at or before its deadline */
	struct hlist_node hash;
	struct list_head lru;
	struct in6_addr peer; /* IPv4 as mapped address */
	/* Receiving: the address that the peer sends to, and has to hear from. Else any. */
	struct in6_addr local;
	bool sending;
};

struct eqds_tx {
	struct eqds_tunnel tunnel;
	struct eqds_sender core; /* its id is the class, enum eqds_class_kind */
	struct eqds_class_queue queue;
	struct eqds_paths paths;
	struct eqds_path path[EQDS_PATHS];
	struct eqds_packet *slot[];
};

struct eqds_rx {
	struct eqds_tunnel tunnel;
	struct eqds_receiver core;
	u32 held_bytes; /* of its reorder queue, in memory */
	struct list_head replying; /* in ed->replies while reply waits for the end of the batch */
	struct eqds_reply reply;
	struct eqds_packet *slot[];
};

/* The core's node of an skb: its own memory, since skbs are cloned and changed by others. */
struct eqds_node {
	union {
		struct sk_buff *skb;
		struct eqds_node *spare; /* the next node that is free */
	};
	u32 held_bytes; /* the packet's part of its pool */
	u8 pool;	/* enum eqds_pool */
	u16 segments;	/* more than 1: a whole packet */
	u16 left;	/* segments that the core has not given back */
	struct eqds_packet core; /* the first of an array, by segment */
};

/* Kinds of rules: rule.c. */
enum eqds_rule_kind {
	EQDS_RULE_MAP = EQDS_RULE_KIND_MAP,
	EQDS_RULE_ALLOW = EQDS_RULE_KIND_ALLOW,
	EQDS_RULE_SHARE = EQDS_RULE_KIND_SHARE,
	EQDS_RULE_KINDS,
};

struct eqds_rule {
	struct hlist_node hash;
	struct rcu_head rcu;
	struct in6_addr prefix; /* IPv4 as mapped address, and its length with 96 more */
	struct in6_addr peer;	/* map */
	u32 weight;		/* share: 1 .. EQDS_WEIGHT_MAX */
	u8 priority;		/* share: 0 is served first */
	u8 length, kind;
};

struct eqds_rules {
	struct hlist_head hash[EQDS_RULE_BUCKETS];
	u32 count;
	u32 of_length[EQDS_RULE_LENGTHS];
	DECLARE_BITMAP(lengths, EQDS_RULE_LENGTHS); /* of which there are rules */
};

/* A direction's tunnels. */
struct eqds_table {
	struct hlist_head hash[1 << EQDS_HASH_BITS];
	struct list_head lru; /* used longest ago first */
	u32 count;
};

/* A CPU keeps the route of its last packet in ed->route: between whom, and since when. */
struct eqds_route_of {
	struct in6_addr peer, local;
	unsigned long since; /* jiffies */
};

struct eqds_key;

struct eqds_dev {
	struct net_device *dev;
	struct net *net;	      /* the link's */
	struct list_head all;	      /* in netdev.c's list of devices */
	struct socket *sock4, *sock6; /* while up; sock6: NULL without IPv6 */
	int link;		      /* ifindex of the device that outer packets use */
	struct dst_cache route;	      /* of each CPU's last outer packet */
	struct eqds_route_of __percpu *route_of;
	u32 mbits;		      /* 0: the link's */
	u32 rate_mbits;		      /* the one in use; under lock */
	u8 ttl;			      /* of outer packets; 0: the route's */
	u16 tos;		      /* of outer packets; EQDS_TOS_INHERIT: the inner packet's */
	bool burst;		      /* a new tunnel starts with a window of credit */
	u16 window_mtus;	      /* 1 .. EQDS_WINDOW_MTUS_MAX */
	bool trains;		      /* packets of one time share a path: train.c */
	bool whole;		      /* packets of many segments leave whole: whole.c */
	u64 train_to;		      /* jiffies, and an IPv4 address of this host then */
	struct eqds_key __rcu *key;   /* NULL: packets have no tag; written under RTNL */
	struct eqds_rules rules[EQDS_RULE_KINDS]; /* readers under RCU, writers under RTNL */
	struct hlist_head natives[EQDS_NATIVE_BUCKETS]; /* readers under RCU, writers under RTNL */
	struct eqds_roce __rcu *roce; /* NULL: no CNPs; content: lock; written under RTNL */
	struct nf_hook_ops hook[2], untrack[4];
	bool hooked;
	struct shrinker *shrinker;
	struct napi_struct napi;
	struct sk_buff_head backlog; /* datagrams for napi, under its own lock */

	spinlock_t lock; /* all below */
	bool up;
	u8 tag_bytes;	  /* EQDS_TAG_BYTES with a key, else 0; also under RTNL */
	u8 refusals_told; /* bit of each eqds_tag_verdict that the log has a line of */
	bool translation_told; /* by the log */
	u32 tunnels_max;  /* of a direction: 1 .. EQDS_TUNNELS_MAX */
	u64 held_bytes[EQDS_POOLS]; /* of all packets that a node holds */
	u64 held_max_bytes;	    /* of both together, half for each */
	struct eqds_node *spares; /* without a packet, for the next ones: memory.c */
	u32 spare_count;
	struct eqds_config config;
	struct eqds_class class[EQDS_CLASSES];
	struct eqds_asl asl;
	struct eqds_drr drr;
	struct eqds_eqif eqif[EQDS_CLASSES];
	struct base_siphash_key cookie_key;
	u32 hash_seed;
	u32 generation[EQDS_GENERATIONS]; /* of a peer's cookie, with a key */
	struct eqds_table tx, rx;
	struct list_head replies; /* struct eqds_rx.replying */
	struct timerqueue_head due;
	struct hrtimer due_timer, pull_timer;
	u64 due_ns, pull_ns; /* when these fire; EQDS_NEVER: not armed */
	u64 fired_ns; /* now_ns of due_timer's handler while it ends deadlines, else 0 */
	struct eqds_stats stats;
};

/*
 * Has the device left its link's namespace? Then its owner, which might be another user, must not
 * reach packets of the link. Changes only while the device is down.
 */
static inline bool eqds_is_away(const struct eqds_dev *ed)
{
	return !net_eq(ed->net, dev_net(ed->dev));
}

/* Reasons to take the lock for events of one time; trace.h. */
enum eqds_turn {
	EQDS_TURN_XMIT,
	EQDS_TURN_POLL,
	EQDS_TURN_DUE,
	EQDS_TURN_PULL,
};

/* Packets that an event under the lock made, for after the unlock. */
struct eqds_work {
	struct sk_buff_head emit, deliver, free;
	struct sk_buff_head local; /* for the stack, as if they came by the link */
	struct sk_buff_head lost;  /* their senders are told that the host is unreachable */
	bool polling; /* the device's NAPI made it, so that its GRO may be used */
};

/* skb->cb of a packet in work->emit, and of a received one that waits for its turn. */
struct eqds_cb {
	struct in6_addr peer;
	struct in6_addr local; /* sent: the source; any: the route's */
	__be16 sport;
	__be16 dport; /* sent */
	u8 tos; /* outer: traffic class */
	u8 ttl; /* outer; 0: the route's */
	u8 next_proto;
	bool tagged;
	bool rdma; /* received by a tunnel of the RDMA class */
	bool claims; /* sent: the claim of the source address is to be written */
	bool counted; /* sent: IP IDs count from ip_id */
	u16 ip_id;
};

#define EQDS_CB(skb) ((struct eqds_cb *)(skb)->cb)

/* The source port of a path. */
static inline __be16 eqds_path_port(u32 path)
{
	return htons(EQDS_PATH_PORT | (path & (EQDS_PATHS - 1)));
}

#endif
