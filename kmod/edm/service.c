// SPDX-License-Identifier: GPL-2.0
/*
 * The scheduler: core/edm/sched.h between UDP and a timer, all of it in softirq.
 *
 *   encap_rcv -> service_receive():  JOIN, DEMAND, REQUEST --> [ core ] --> replies
 *   hrtimer   -> service_due():      a chunk has ended, a lease --> [ core ]
 *                service_drain():    edm_sched_next() --> a GRANT each
 *
 * A datagram that finds no buffer counts as lost: hosts repeat their demands.
 */
#include <linux/hrtimer.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/slab.h>
#include <linux/udp.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "core/base/bits.h"
#include "edm/edm.h"

/* Less than the link is booked: the scheduler doesn't see datagrams that need no grant. */
#define SERVICE_BOOK_PERMILLE 970
/* A shortened chunk is a multiple of this: about a datagram of Ethernet's usual MTU. */
#define SERVICE_UNIT_BYTES 1024U
/* The oldest message of a port that has waited for so long goes first. */
#define SERVICE_AGE_NS (100 * NSEC_PER_MSEC)
/*
 * Bytes of short messages by which a host can precede others, in chunks; they return at half rate.
 */
#define SERVICE_SHARE_CHUNKS 64U
#define SERVICE_SHARE_PERMILLE 500

/*
 * Grants in one hold of the lock. Chunks of a fast port end sooner than a grant is sent, and others
 * wait for the lock.
 */
#define SERVICE_GRANTS_MAX 64U
/* The timer's pause if a deadline stays in the past: a fault there costs little CPU time. */
#define SERVICE_PAST_NS (10 * NSEC_PER_MSEC)

enum service_count {
	SERVICE_DROP, /* + enum edm_wire_verdict */
	SERVICE_DROP_TAG = SERVICE_DROP + EDM_WIRE_VERDICTS,
	SERVICE_NO_BUFFER,
	SERVICE_TIMER_LATE,
	SERVICE_COUNTS
};

static const char *const service_count_name[SERVICE_COUNTS] = {
	[SERVICE_DROP + EDM_WIRE_SHORT] = "sched-drop-short",
	[SERVICE_DROP + EDM_WIRE_VERSION] = "sched-drop-version",
	[SERVICE_DROP + EDM_WIRE_RANGE] = "sched-drop-range",
	[SERVICE_DROP_TAG] = "sched-drop-tag",
	[SERVICE_NO_BUFFER] = "sched-no-buffer",
	[SERVICE_TIMER_LATE] = "sched-timer-late",
};

struct edm_service {
	struct edm_service_config config;
	struct edm_sockets sockets;
	spinlock_t lock; /* guards the members below */
	bool stopped;
	struct hrtimer timer;
	u64 armed_ns; /* time at which the timer goes off; 0: it is not set */
	struct base_siphash_key secret; /* of cookies */
	struct edm_way *way;		/* [port] of hosts that have joined */
	struct edm_sched core;
	struct edm_item items[EDM_ENTRIES_MAX]; /* of a reply */
	u64 count[SERVICE_COUNTS];
	void *memory; /* the core's */
};

static struct edm_service *service_running; /* netlink.c's mutex */

/* ---- out ---- */

/* payload_bytes of message from payload, behind its headers. */
static void service_send(struct edm_service *s, const struct edm_way *way,
			 const struct edm_message *message, const void *payload,
			 const struct base_siphash_key *key)
{
	u32 header_bytes = edm_wire_header_bytes(message);
	u32 bytes = header_bytes + message->payload_bytes;
	struct sk_buff *skb = edm_way_alloc(bytes);
	u8 *data;

	lockdep_assert_held(&s->lock);
	if (unlikely(!skb)) {
		s->count[SERVICE_NO_BUFFER]++;
		return;
	}
	data = skb_put(skb, bytes);
	edm_wire_encode(message, s->items, data);
	if (message->payload_bytes)
		memcpy(data + header_bytes, payload, message->payload_bytes);
	edm_wire_seal(data, bytes, key);
	edm_way_send(&s->sockets, way, skb);
}

/* To a port that has joined. */
static void service_reply(struct edm_service *s, const struct edm_message *message,
			  const void *payload)
{
	const struct base_siphash_key *key = edm_sched_key(&s->core, message->port);

	if (key)
		service_send(s, &s->way[message->port], message, payload, key);
}

/* A grant that has become possible, at *now_ns. False: nothing is due then. */
static bool service_next(struct edm_service *s, struct edm_message *message, u64 *now_ns)
{
	*now_ns = ktime_get_ns();
	while (edm_sched_expire(&s->core, *now_ns))
		;
	return edm_sched_next(&s->core, *now_ns, message, s->items);
}

/* All that is due, or as much as one hold of the lock permits, and the time of the next. */
static void service_drain(struct edm_service *s)
{
	struct edm_message message;
	u64 now_ns, deadline_ns;
	u32 grants = 0;

	lockdep_assert_held(&s->lock);
	while (grants < SERVICE_GRANTS_MAX && service_next(s, &message, &now_ns)) {
		service_reply(s, &message, NULL);
		grants++;
	}
	deadline_ns = edm_sched_deadline_ns(&s->core);
	if (unlikely(grants == SERVICE_GRANTS_MAX)) {
		deadline_ns = now_ns;
	} else if (unlikely(deadline_ns <= now_ns)) {
		s->count[SERVICE_TIMER_LATE]++;
		deadline_ns = now_ns + SERVICE_PAST_NS;
	}
	if (deadline_ns == EDM_NEVER || (s->armed_ns && s->armed_ns <= deadline_ns))
		return;
	s->armed_ns = deadline_ns;
	hrtimer_start(&s->timer, ns_to_ktime(deadline_ns), HRTIMER_MODE_ABS_SOFT);
}

static enum hrtimer_restart service_due(struct hrtimer *timer)
{
	struct edm_service *s = container_of(timer, struct edm_service, timer);

	rcu_read_lock();
	spin_lock(&s->lock);
	s->armed_ns = 0;
	if (!s->stopped)
		service_drain(s);
	spin_unlock(&s->lock);
	rcu_read_unlock();
	return HRTIMER_NORESTART;
}

/* ---- in ---- */

static void service_join(struct edm_service *s, const struct edm_message *join,
			 const struct edm_way *way)
{
	struct {
		struct in6_addr peer;
		u64 port;
	} from = { .peer = way->peer, .port = (__force u16)way->port };
	u64 cookie = edm_wire_cookie(&s->secret, &from, sizeof(from));
	struct edm_message reply;

	/* A cookie names the sender, and nobody can make two of the same. */
	if (edm_sched_join(&s->core, ktime_get_ns(), join, cookie, cookie, &reply) !=
	    EDM_SCHED_REPLY)
		return;
	if (reply.kind == EDM_WELCOME)
		s->way[reply.port] = *way;
	service_send(s, way, &reply, NULL, &s->config.key);
}

static void service_handle(struct edm_service *s, const struct edm_message *message,
			   const void *data, const struct edm_way *way)
{
	const void *payload = data + edm_wire_header_bytes(message);
	u64 now_ns = ktime_get_ns();
	struct edm_message reply;
	enum edm_sched_verdict verdict;

	lockdep_assert_held(&s->lock);
	if (message->kind == EDM_JOIN) {
		service_join(s, message, way);
		return;
	}
	if (message->kind == EDM_DEMAND)
		verdict = edm_sched_demand(&s->core, now_ns, message, data, &reply, s->items);
	else
		verdict = edm_sched_request(&s->core, now_ns, message, &reply, s->items);
	if (verdict != EDM_SCHED_IGNORE)
		service_reply(s, &reply, payload);
}

/* The key that the datagram must be tagged with; NULL: there is none, or its kind is a host's. */
static const struct base_siphash_key *
service_key(struct edm_service *s, const struct edm_message *message)
{
	switch (message->kind) {
	case EDM_JOIN:
		return &s->config.key;
	case EDM_DEMAND:
	case EDM_REQUEST:
		return edm_sched_key(&s->core, message->port);
	default:
		return NULL;
	}
}

static int service_receive(struct sock *sk, struct sk_buff *skb)
{
	struct edm_service *s = rcu_dereference_sk_user_data(sk);
	const struct base_siphash_key *key;
	enum edm_wire_verdict verdict;
	struct edm_message message;
	struct edm_way way;
	const void *data;
	u32 bytes;

	if (unlikely(!s)) {
		kfree_skb(skb);
		return 0;
	}
	verdict = edm_way_parse(skb, &message, &data, &bytes);
	spin_lock(&s->lock);
	if (unlikely(verdict != EDM_WIRE_GOOD)) {
		s->count[SERVICE_DROP + verdict]++;
	} else if (!s->stopped) {
		key = service_key(s, &message);
		if (likely(key && edm_wire_verifies(data, bytes, key))) {
			edm_way_read(skb, &way);
			service_handle(s, &message, data, &way);
			service_drain(s);
		} else {
			s->count[SERVICE_DROP_TAG]++;
		}
	}
	spin_unlock(&s->lock);
	consume_skb(skb);
	return 0;
}

/* ---- life ---- */

static struct edm_sched_config service_core_config(const struct edm_service_config *config)
{
	return (struct edm_sched_config){
		.match = {
			.demand = {
				.ports = config->ports,
				.slots = EDM_MEMBER_SLOTS,
				.active_max = EDM_ACTIVE_MAX,
				.policy = EDM_SRPT,
				.turn_ns = 1,
				.lease_ns = config->lease_us * (u64)NSEC_PER_USEC,
			},
			.chunk_bytes = config->chunk_bytes,
			.unit_bytes = SERVICE_UNIT_BYTES,
			.late_bytes_max = config->chunk_bytes,
			.age_ns = SERVICE_AGE_NS,
			.egress_bytes_max = ~0U,
			.share_bytes = SERVICE_SHARE_CHUNKS * config->chunk_bytes,
			.share_permille = SERVICE_SHARE_PERMILLE,
		},
		.life = get_random_u32() | 1,
		.lease_us = config->lease_us,
		.book_permille = SERVICE_BOOK_PERMILLE,
		.overhead_bytes = sizeof(struct ipv6hdr) + sizeof(struct udphdr) + EDM_FRAME_BYTES,
		.key = config->key,
	};
}

static void service_free(struct edm_service *s)
{
	kvfree(s->way);
	kvfree(s->memory);
	kvfree_sensitive(s, sizeof(*s));
}

static struct edm_service *service_new(struct net *net, const struct edm_service_config *config,
				       struct netlink_ext_ack *extack)
{
	struct edm_sched_config core = service_core_config(config);
	struct edm_service *s;

	if (!edm_sched_config_is_valid(&core)) {
		NL_SET_ERR_MSG_MOD(extack, "CHUNK_BYTES is no multiple of 1024: write one");
		return ERR_PTR(-EINVAL);
	}
	s = kvzalloc(sizeof(*s), GFP_KERNEL);
	if (!s)
		return ERR_PTR(-ENOMEM);
	s->memory = kvzalloc(edm_sched_bytes(&core), GFP_KERNEL);
	s->way = kvcalloc(config->ports, sizeof(*s->way), GFP_KERNEL);
	if (!s->memory || !s->way) {
		service_free(s);
		return ERR_PTR(-ENOMEM);
	}
	s->config = *config;
	s->sockets.net = net;
	s->sockets.number = htons(config->udp_port);
	spin_lock_init(&s->lock);
	hrtimer_init(&s->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	s->timer.function = service_due;
	get_random_bytes(&s->secret, sizeof(s->secret));
	edm_sched_init(&s->core, &core, s->memory);
	return s;
}

int edm_service_start(struct net *net, const struct edm_service_config *config,
		      struct netlink_ext_ack *extack)
{
	struct edm_service *s;
	int err;

	if (service_running) {
		NL_SET_ERR_MSG_MOD(extack, "the scheduler is started already: stop it first");
		return -EALREADY;
	}
	s = service_new(net, config, extack);
	if (IS_ERR(s))
		return PTR_ERR(s);
	err = edm_way_open(&s->sockets, service_receive, s);
	if (err) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "no socket for UDP port %u: error %d",
				       config->udp_port, -err);
		service_free(s);
		return err;
	}
	get_net(net);
	service_running = s;
	return 0;
}

void edm_service_stop(void)
{
	struct edm_service *s = service_running;

	if (!s)
		return;
	service_running = NULL;
	spin_lock_bh(&s->lock);
	s->stopped = true;
	spin_unlock_bh(&s->lock);
	hrtimer_cancel(&s->timer);
	edm_way_close(&s->sockets);
	put_net(s->sockets.net);
	service_free(s);
}

/* ---- status ---- */

const struct edm_service_config *edm_service_status(u16 *members)
{
	struct edm_service *s = service_running;
	u16 port;

	*members = 0;
	if (!s)
		return NULL;
	spin_lock_bh(&s->lock);
	for (port = 0; port < s->config.ports; port++)
		*members += s->core.member[port].listed;
	spin_unlock_bh(&s->lock);
	return &s->config;
}

int edm_service_counts(edm_count_fn put, void *arg)
{
	struct edm_service *s = service_running;
	struct edm_sched_counts core;
	unsigned int i;
	int err;

	if (!s)
		return 0;
	spin_lock_bh(&s->lock);
	core = s->core.counts;
	spin_unlock_bh(&s->lock);
	err = put(arg, "sched-grants", core.grants) ?: put(arg, "sched-retracted", core.retracted);
	err = err ?: put(arg, "sched-refused", core.refused);
	err = err ?: put(arg, "sched-stale", core.stale) ?: put(arg, "sched-expired", core.expired);
	err = err ?: put(arg, "sched-joins", core.joins);
	for (i = 0; !err && i < SERVICE_COUNTS; i++) {
		if (service_count_name[i])
			err = put(arg, service_count_name[i], READ_ONCE(s->count[i]));
	}
	return err;
}
