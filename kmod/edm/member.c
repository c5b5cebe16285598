// SPDX-License-Identifier: GPL-2.0
/*
 * This machine as a scheduler's host: core/edm/host.h between transports, sockets and a timer.
 *
 *   edm_member_begin(), submit ..., edm_member_end() --> member_pump()
 *   encap_rcv -> member_receive() --> [ core ] --------> member_pump()
 *   hrtimer   -> member_due() -------------------------> member_pump()
 *
 *   member_pump():  edm_host_next() until there is nothing to do:
 *     TELL    a JOIN or DEMAND to a scheduler
 *     ASK     a read's request: to the scheduler, or to the peer if there is none
 *     SENT    a write may leave
 *     ANSWER  bytes of an answer may leave
 *
 * It sends under its lock, so that datagrams leave in the order of their numbers. One that finds
 * no memory counts as lost. The sockets can use the kernel's reserves, for a member might swap.
 *
 * A network namespace has one membership at most, and a machine as many as it has namespaces.
 *
 * Locks, outermost first:
 *   members_lock    the list, and the users of each
 *   member->lock    a membership, and the ops in it
 */
#include <linux/hrtimer.h>
#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/slab.h>
#include <linux/wait.h>
#include <net/net_namespace.h>
#include <net/sock.h>

#include "compat/compat.h"
#include "core/base/bits.h"
#include "edm/edm.h"
#include "rmem/carrier/socket.h"

#define CREATE_TRACE_POINTS
#include "edm/trace.h"

#define MEMBER_GFP (GFP_ATOMIC | __GFP_MEMALLOC | __GFP_NOWARN)
/* Datagrams of one peer that share an announcement, in bytes on the link. */
#define MEMBER_MEGA_BYTES 65536U
#define MEMBER_JOIN_NS (20 * NSEC_PER_MSEC)
/* From the join, until messages go without a scheduler that has not answered yet. */
#define MEMBER_PATIENCE_NS NSEC_PER_SEC
/* The timer's pause if a deadline stays in the past: a fault there costs little CPU time. */
#define MEMBER_PAST_NS (10 * NSEC_PER_MSEC)
/* No datagram is older when it arrives. */
#define MEMBER_LATE_NS (100 * NSEC_PER_MSEC)

enum member_count {
	MEMBER_DROP, /* + enum edm_wire_verdict */
	MEMBER_DROP_TAG = MEMBER_DROP + EDM_WIRE_VERDICTS,
	MEMBER_NO_BUFFER,
	MEMBER_TIMER_LATE,
	MEMBER_COUNTS
};

static const char *const member_count_name[MEMBER_COUNTS] = {
	[MEMBER_DROP + EDM_WIRE_SHORT] = "host-drop-short",
	[MEMBER_DROP + EDM_WIRE_VERSION] = "host-drop-version",
	[MEMBER_DROP + EDM_WIRE_RANGE] = "host-drop-range",
	[MEMBER_DROP_TAG] = "host-drop-tag",
	[MEMBER_NO_BUFFER] = "host-no-buffer",
	[MEMBER_TIMER_LATE] = "host-timer-late",
};

/* The way to one scheduler. */
struct member_link {
	struct edm_membership *member;
	union udp_address address;
	struct rmem_socket socket;
	u8 index;
};

struct edm_membership {
	struct edm_member_config config;
	struct net *net; /* its sockets hold it */
	struct list_head of_all;
	unsigned int users; /* edm_member_get(); members_lock */
	spinlock_t lock;
	bool gone;	  /* the membership has not begun, or has ended */
	unsigned int ops; /* of the client's, that the core has */
	struct edm_host core;
	struct edm_host_action action; /* the one that is being done */
	struct member_link link[EDM_LINKS_MAX];
	u8 links;
	struct hrtimer timer;
	u64 armed_ns; /* time at which the timer goes off; 0: it is not set */
	bool unscheduled; /* the bytes sent last had no grants */
	u32 sent_id;	  /* of the message whose bytes were sent last */
	u64 count[MEMBER_COUNTS];
	void *memory; /* the core's */
};

static DEFINE_SPINLOCK(members_lock);
static LIST_HEAD(members);
static atomic_t member_ops; /* of all memberships */
static DECLARE_WAIT_QUEUE_HEAD(member_idle);

static const struct edm_client_ops *member_client; /* changes while no core has an op of it */
static const struct edm_node_ops __rcu *member_node;

/* ---- out ---- */

static void member_transmit(struct edm_membership *m, u8 link, struct sk_buff *skb)
{
	const struct edm_host_action *action = &m->action;
	const struct base_siphash_key *key = edm_host_key(&m->core, link);

	if (action->message.kind == EDM_JOIN)
		key = &m->config.key;
	edm_wire_encode(&action->message, action->items, skb->data);
	edm_wire_seal(skb->data, skb->len, key);
	rmem_socket_transmit(&m->link[link].socket, skb);
}

static void member_tell(struct edm_membership *m, const struct edm_host_action *action)
{
	u32 bytes = edm_wire_header_bytes(&action->message);
	struct sk_buff *skb = alloc_skb(RMEM_SOCKET_HEADROOM + bytes, MEMBER_GFP);

	if (unlikely(!skb)) {
		m->count[MEMBER_NO_BUFFER]++;
		return;
	}
	skb_reserve(skb, RMEM_SOCKET_HEADROOM);
	skb_put(skb, bytes);
	member_transmit(m, action->link, skb);
}

static void member_ask(struct edm_membership *m, struct edm_host_action *action)
{
	u32 bytes = EDM_HEAD_BYTES + EDM_REQUEST_BYTES;
	struct sk_buff *skb;

	if (action->unscheduled) {
		member_client->ask(action->op);
		return;
	}
	skb = member_client->request(action->op, RMEM_SOCKET_HEADROOM + bytes);
	if (unlikely(!skb)) {
		m->count[MEMBER_NO_BUFFER]++;
		return;
	}
	action->message.payload_bytes = skb->len;
	skb_push(skb, bytes);
	member_transmit(m, action->link, skb);
}

static void member_end_op(struct edm_membership *m)
{
	m->ops--;
	atomic_dec(&member_ops);
}

/* Entries that end a message, or tell of an answer, announce nothing. */
static void member_trace_announced(const struct edm_membership *m,
				   const struct edm_host_action *action)
{
	u32 n;

	if (!trace_edm_announce_enabled() || action->message.kind == EDM_JOIN)
		return;
	for (n = 0; n < action->message.count; n++) {
		if (action->items[n].size && action->items[n].type != EDM_ANSWER)
			trace_edm_announce(m->config.port, &action->items[n]);
	}
}

static void member_trace_granted(const struct edm_membership *m,
				 const struct edm_message *message, const void *data)
{
	struct edm_item item;
	u32 n;

	if (!trace_edm_grant_enabled() || message->kind != EDM_GRANT)
		return;
	for (n = 0; n < message->count; n++) {
		edm_wire_item(data, n, &item);
		trace_edm_grant(m->config.port, &item);
	}
}

static void member_do(struct edm_membership *m, struct edm_host_action *action)
{
	const struct edm_node_ops *node;

	switch (action->what) {
	case EDM_HOST_TELL:
		member_trace_announced(m, action);
		member_tell(m, action);
		break;
	case EDM_HOST_ASK:
		if (!action->unscheduled)
			trace_edm_announce(m->config.port, &action->message.item);
		member_ask(m, action);
		break;
	case EDM_HOST_SEND:
		m->unscheduled = action->unscheduled;
		m->sent_id = action->message.id;
		break;
	case EDM_HOST_SENT:
		member_end_op(m);
		trace_edm_leave(m->config.port, action->op->peer, action->op->type, m->sent_id,
				action->op->offset, action->op->bytes, m->unscheduled);
		member_client->sent(action->op, m->unscheduled);
		break;
	case EDM_HOST_ANSWER:
		trace_edm_leave(m->config.port, action->peer, EDM_ANSWER, action->message.id,
				action->from, action->bytes, action->unscheduled);
		node = rcu_dereference_bh(member_node);
		if (node)
			node->granted(m, action->peer, action->message.id,
				      action->from + action->bytes, action->unscheduled);
		break;
	}
}

static void member_pump(struct edm_membership *m)
{
	u64 now_ns = ktime_get_ns(), deadline_ns;

	lockdep_assert_held(&m->lock);
	rcu_read_lock_bh();
	while (edm_host_next(&m->core, now_ns, &m->action))
		member_do(m, &m->action);
	rcu_read_unlock_bh();
	if (!m->ops && wq_has_sleeper(&member_idle))
		wake_up_all(&member_idle);
	deadline_ns = edm_host_deadline_ns(&m->core);
	if (unlikely(deadline_ns <= now_ns)) {
		m->count[MEMBER_TIMER_LATE]++;
		deadline_ns = now_ns + MEMBER_PAST_NS;
	}
	if (deadline_ns == EDM_NEVER || (m->armed_ns && m->armed_ns <= deadline_ns))
		return;
	m->armed_ns = deadline_ns;
	hrtimer_start(&m->timer, ns_to_ktime(deadline_ns), HRTIMER_MODE_ABS_SOFT);
}

static enum hrtimer_restart member_due(struct hrtimer *timer)
{
	struct edm_membership *m = container_of(timer, struct edm_membership, timer);

	spin_lock(&m->lock);
	m->armed_ns = 0;
	if (!m->gone)
		member_pump(m);
	spin_unlock(&m->lock);
	return HRTIMER_NORESTART;
}

/* ---- in ---- */

static const struct base_siphash_key *member_key(struct edm_membership *m, u8 link,
						 const struct edm_message *message)
{
	switch (message->kind) {
	case EDM_CHALLENGE:
	case EDM_WELCOME:
		return &m->config.key;
	case EDM_GRANT:
	case EDM_FORWARD:
		return edm_host_key(&m->core, link);
	default:
		return NULL;
	}
}

/* Returns true if the datagram has a request, which is to be executed. */
static bool member_handle(struct edm_membership *m, u8 link, const struct edm_message *message,
			  const void *data, u32 bytes)
{
	const struct base_siphash_key *key = member_key(m, link, message);
	u64 now_ns = ktime_get_ns();

	lockdep_assert_held(&m->lock);
	if (unlikely(!key || !edm_wire_verifies(data, bytes, key))) {
		m->count[MEMBER_DROP_TAG]++;
		return false;
	}
	rmem_socket_heard(&m->link[link].socket);
	if (message->kind == EDM_FORWARD)
		return edm_host_request(&m->core, now_ns, link, message) == EDM_HOST_NEW;
	member_trace_granted(m, message, data);
	edm_host_receive(&m->core, now_ns, link, message, data);
	return false;
}

static int member_receive(struct sock *sk, struct sk_buff *skb)
{
	struct member_link *link = rcu_dereference_sk_user_data(sk);
	const struct edm_node_ops *node = rcu_dereference_bh(member_node);
	enum edm_wire_verdict verdict;
	struct edm_message message;
	struct edm_membership *m;
	bool asks = false;
	const void *data;
	u32 bytes;

	if (unlikely(!link))
		goto drop;
	m = link->member;
	verdict = edm_way_parse(skb, &message, &data, &bytes);
	spin_lock(&m->lock);
	if (unlikely(verdict != EDM_WIRE_GOOD)) {
		m->count[MEMBER_DROP + verdict]++;
	} else if (likely(!m->gone)) {
		asks = member_handle(m, link->index, &message, data, bytes);
		member_pump(m);
	}
	spin_unlock(&m->lock);
	if (!asks || !node)
		goto drop;
	skb_pull(skb, sizeof(struct udphdr) + edm_wire_header_bytes(&message));
	node->request(m, message.item.peer, message.item.id, message.item.size, skb);
	return 0;
drop:
	consume_skb(skb);
	return 0;
}

/* ---- transports ---- */

bool edm_member_begin(struct edm_membership *m) __acquires(m)
{
	__acquire(m);
	spin_lock(&m->lock);
	__release(&m->lock);
	return !m->gone;
}
EXPORT_SYMBOL_GPL(edm_member_begin);

void edm_member_end(struct edm_membership *m) __releases(m)
{
	if (!m->gone)
		member_pump(m);
	__acquire(&m->lock);
	spin_unlock(&m->lock);
	__release(m);
}
EXPORT_SYMBOL_GPL(edm_member_end);

void edm_member_submit(struct edm_membership *m, struct edm_op *op)
{
	m->ops++;
	atomic_inc(&member_ops);
	edm_host_submit(&m->core, ktime_get_ns(), op);
}
EXPORT_SYMBOL_GPL(edm_member_submit);

void edm_member_done(struct edm_membership *m, struct edm_op *op)
{
	if (op->state == EDM_OP_QUEUED) {
		edm_member_cancel(m, op);
		return;
	}
	member_end_op(m);
	edm_host_done(&m->core, ktime_get_ns(), op);
}
EXPORT_SYMBOL_GPL(edm_member_done);

bool edm_member_cancel(struct edm_membership *m, struct edm_op *op)
{
	if (!edm_host_cancel(&m->core, ktime_get_ns(), op))
		return false;
	member_end_op(m);
	return true;
}
EXPORT_SYMBOL_GPL(edm_member_cancel);

void edm_member_answer(struct edm_membership *m, u16 peer, u32 id)
{
	edm_host_answer(&m->core, peer, id);
}
EXPORT_SYMBOL_GPL(edm_member_answer);

u64 edm_member_lease_ns(const struct edm_membership *m)
{
	return m->core.link[0].lease_ns;
}
EXPORT_SYMBOL_GPL(edm_member_lease_ns);

int edm_client_register(const struct edm_client_ops *ops)
{
	return cmpxchg(&member_client, NULL, ops) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(edm_client_register);

/*
 * No op is submitted any more. Each that is left is granted, or goes without grants in three
 * leases.
 */
void edm_client_unregister(void)
{
	wait_event(member_idle, !atomic_read(&member_ops));
	/* Wait for each member_pump() that still calls the client. */
	synchronize_net();
	WRITE_ONCE(member_client, NULL);
}
EXPORT_SYMBOL_GPL(edm_client_unregister);

int edm_node_register(const struct edm_node_ops *ops)
{
	return unrcu_pointer(cmpxchg(&member_node, NULL, RCU_INITIALIZER(ops))) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(edm_node_register);

void edm_node_unregister(void)
{
	RCU_INIT_POINTER(member_node, NULL);
	synchronize_net();
}
EXPORT_SYMBOL_GPL(edm_node_unregister);

static bool member_address_equal(const union udp_address *a, const union udp_address *b)
{
	if (a->any.sa_family != b->any.sa_family)
		return false;
	if (a->any.sa_family == AF_INET)
		return a->in4.sin_addr.s_addr == b->in4.sin_addr.s_addr &&
		       a->in4.sin_port == b->in4.sin_port;
	return ipv6_addr_equal(&a->in6.sin6_addr, &b->in6.sin6_addr) &&
	       a->in6.sin6_port == b->in6.sin6_port;
}

/* This namespace's, or NULL. */
static struct edm_membership *member_find(void)
{
	const struct net *net = current->nsproxy->net_ns;
	struct edm_membership *m;

	lockdep_assert_held(&members_lock);
	list_for_each_entry(m, &members, of_all) {
		if (m->net == net)
			return m;
	}
	return NULL;
}

struct edm_membership *edm_member_get(const union udp_address *scheduler)
{
	struct edm_membership *m;

	spin_lock_bh(&members_lock);
	m = member_find();
	if (m && scheduler && !member_address_equal(&m->link[0].address, scheduler))
		m = NULL;
	if (m)
		m->users++;
	spin_unlock_bh(&members_lock);
	return m ?: ERR_PTR(-ENOTCONN);
}
EXPORT_SYMBOL_GPL(edm_member_get);

void edm_member_put(struct edm_membership *m)
{
	spin_lock_bh(&members_lock);
	m->users--;
	spin_unlock_bh(&members_lock);
}
EXPORT_SYMBOL_GPL(edm_member_put);

/* ---- life ---- */

/* A later life has a later epoch, if the clock goes forward or the module stays. */
static u32 member_epoch(void)
{
	static u32 last;

	last = edm_link_epoch(last, ktime_get_real_seconds());
	return last;
}

static void member_free(struct edm_membership *m)
{
	u8 i;

	for (i = 0; i < m->links; i++)
		rmem_socket_deafen(&m->link[i].socket);
	synchronize_net();
	hrtimer_cancel(&m->timer);
	for (i = 0; i < m->links; i++)
		rmem_socket_close(&m->link[i].socket);
	kvfree(m->memory);
	kvfree_sensitive(m, sizeof(*m));
}

static int member_open(struct edm_membership *m, const char *text, struct netlink_ext_ack *extack)
{
	struct member_link *link = &m->link[m->links];
	int err;

	link->member = m;
	link->index = m->links;
	err = rmem_socket_parse(&link->address, text, EDM_PORT);
	if (!err)
		err = rmem_socket_open(&link->socket, &link->address, member_receive, link);
	if (err) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "no way to scheduler %s: error %d", text, -err);
		return err;
	}
	rmem_socket_mark(&link->socket, EDM_TOS, EDM_PRIORITY);
	m->links++;
	return 0;
}

static int member_init(struct edm_membership *m)
{
	struct edm_host_config core = {
		.link = {
			.key = m->config.key,
			.join_ns = MEMBER_JOIN_NS,
			.epoch = member_epoch(),
			.rate_mbps = m->config.rate_mbps,
			.port = m->config.port,
			.slots = EDM_MEMBER_SLOTS,
		},
		.ports = EDM_PORTS_MAX,
		.links = m->links,
		.mega_bytes = MEMBER_MEGA_BYTES,
		.patience_ns = MEMBER_PATIENCE_NS,
		.late_ns = MEMBER_LATE_NS,
	};

	if (!edm_host_config_is_valid(&core))
		return -EINVAL;
	m->memory = kvzalloc(edm_host_bytes(&core), GFP_KERNEL);
	if (!m->memory)
		return -ENOMEM;
	edm_host_init(&m->core, ktime_get_ns(), &core, m->memory);
	return 0;
}

/* The control mutex is held, so the membership stays. */
static struct edm_membership *member_current(void)
{
	struct edm_membership *m;

	spin_lock_bh(&members_lock);
	m = member_find();
	spin_unlock_bh(&members_lock);
	return m;
}

int edm_member_join(const struct edm_member_config *config, struct netlink_ext_ack *extack)
{
	struct edm_membership *m;
	int err;

	m = member_current();
	if (m) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "this machine is a member of %s: leave that first",
				       m->config.scheduler);
		return -EALREADY;
	}
	m = kvzalloc(sizeof(*m), GFP_KERNEL);
	if (!m)
		return -ENOMEM;
	m->config = *config;
	/* Its sockets receive before the core is there. */
	m->gone = true;
	m->net = current->nsproxy->net_ns;
	spin_lock_init(&m->lock);
	hrtimer_init(&m->timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
	m->timer.function = member_due;
	err = member_open(m, config->scheduler, extack);
	if (!err && *config->standby)
		err = member_open(m, config->standby, extack);
	if (!err)
		err = member_init(m);
	if (err) {
		member_free(m);
		return err;
	}
	spin_lock_bh(&members_lock);
	list_add_tail(&m->of_all, &members);
	spin_unlock_bh(&members_lock);
	spin_lock_bh(&m->lock);
	m->gone = false;
	member_pump(m);
	spin_unlock_bh(&m->lock);
	return 0;
}

static void member_gone(struct edm_membership *m)
{
	const struct edm_node_ops *node;

	rcu_read_lock_bh();
	node = rcu_dereference_bh(member_node);
	if (node)
		node->gone(m);
	rcu_read_unlock_bh();
}

static bool member_is_idle(struct edm_membership *m)
{
	bool idle;

	spin_lock_bh(&m->lock);
	idle = !m->ops;
	spin_unlock_bh(&m->lock);
	return idle;
}

/* False: it has users. */
static bool member_unlist(struct edm_membership *m)
{
	bool used;

	spin_lock_bh(&members_lock);
	used = m->users;
	if (!used)
		list_del(&m->of_all);
	spin_unlock_bh(&members_lock);
	return !used;
}

static void member_end(struct edm_membership *m)
{
	/* Ops whose paths are closed still end, one by one. */
	wait_event(member_idle, member_is_idle(m));
	spin_lock_bh(&m->lock);
	m->gone = true;
	member_gone(m);
	spin_unlock_bh(&m->lock);
	member_free(m);
}

int edm_member_leave(struct netlink_ext_ack *extack)
{
	struct edm_membership *m = member_current();

	if (!m) {
		NL_SET_ERR_MSG_MOD(extack, "this machine is no member of a scheduler");
		return -ENOTCONN;
	}
	if (!member_unlist(m)) {
		NL_SET_ERR_MSG_MOD(extack, "devices use the membership: detach them first");
		return -EBUSY;
	}
	member_end(m);
	return 0;
}

void edm_member_leave_all(void)
{
	struct edm_membership *m, *next;

	list_for_each_entry_safe(m, next, &members, of_all) {
		if (member_unlist(m))
			member_end(m);
	}
}

/* ---- status ---- */

static const char *member_state(const struct edm_host *host)
{
	if (host->follow != EDM_UNSCHEDULED)
		return host->follow ? "standby" : "scheduled";
	return host->patient ? "joining" : "unscheduled";
}

const struct edm_member_config *edm_member_status(const char **state)
{
	struct edm_membership *m = member_current();

	if (!m)
		return NULL;
	spin_lock_bh(&m->lock);
	*state = member_state(&m->core);
	spin_unlock_bh(&m->lock);
	return &m->config;
}

int edm_member_counts(edm_count_fn put, void *arg)
{
	struct edm_membership *m = member_current();
	struct edm_host_counts core;
	unsigned int i;
	int err;

	if (!m)
		return 0;
	spin_lock_bh(&m->lock);
	core = m->core.counts;
	spin_unlock_bh(&m->lock);
	err = put(arg, "host-unscheduled", core.unscheduled);
	err = err ?: put(arg, "host-refused", core.refused) ?: put(arg, "host-gaps", core.gaps);
	err = err ?: put(arg, "host-silences", core.silences);
	err = err ?: put(arg, "host-duplicates", core.duplicates);
	for (i = 0; !err && i < MEMBER_COUNTS; i++) {
		if (member_count_name[i])
			err = put(arg, member_count_name[i], READ_ONCE(m->count[i]));
	}
	return err;
}
