// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/sched.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/edm/link.h"

#define SCHED_BITS_PER_MBIT 1000000ULL

bool edm_sched_config_is_valid(const struct edm_sched_config *config)
{
	return edm_match_config_is_valid(&config->match) && config->life && config->book_permille &&
	       config->book_permille <= 1000 && config->lease_us >= EDM_LEASE_US_MIN &&
	       config->lease_us <= EDM_LEASE_US_MAX &&
	       config->match.demand.lease_ns == config->lease_us * BASE_NSEC_PER_USEC;
}

static size_t sched_members_bytes(const struct edm_sched_config *config)
{
	return config->match.demand.ports * sizeof(struct edm_member);
}

size_t edm_sched_bytes(const struct edm_sched_config *config)
{
	return sched_members_bytes(config) + edm_match_bytes(&config->match);
}

void edm_sched_init(struct edm_sched *s, const struct edm_sched_config *config, void *memory)
{
	const size_t members_bytes = sched_members_bytes(config);

	base_zero(s, sizeof(*s));
	base_zero(memory, members_bytes);
	s->config = *config;
	s->member = memory;
	s->lease.next = &s->lease;
	s->lease.prev = &s->lease;
	edm_match_init(&s->match, &config->match, (char *)memory + members_bytes);
}

/* ---- members ---- */

static u16 sched_ports(const struct edm_sched *s)
{
	return s->config.match.demand.ports;
}

static struct edm_member *sched_member_of(struct edm_node *node)
{
	return (struct edm_member *)((char *)node - offsetof(struct edm_member, lease));
}

static u64 sched_lease_ns(const struct edm_sched *s)
{
	return s->config.match.demand.lease_ns;
}

static void sched_unlist(struct edm_member *member)
{
	if (!member->listed)
		return;
	member->lease.prev->next = member->lease.next;
	member->lease.next->prev = member->lease.prev;
	member->listed = false;
}

static void sched_renew(struct edm_sched *s, u64 now_ns, struct edm_member *member)
{
	sched_unlist(member);
	member->heard_ns = now_ns;
	member->lease.next = &s->lease;
	member->lease.prev = s->lease.prev;
	s->lease.prev->next = &member->lease;
	s->lease.prev = &member->lease;
	member->listed = true;
}

const struct base_siphash_key *edm_sched_key(const struct edm_sched *s, u16 port)
{
	return port < sched_ports(s) && s->member[port].epoch ? &s->member[port].key : NULL;
}

/* A message to a port that has joined, numbered if it isn't part of the join. */
static struct edm_message sched_message(struct edm_sched *s, u8 kind, u16 port)
{
	struct edm_member *member = &s->member[port];

	return (struct edm_message){
		.kind = kind,
		.port = port,
		.epoch = member->epoch,
		.life = s->config.life,
		.seq = kind == EDM_WELCOME ? 0 : ++member->seq_out,
	};
}

/* Bytes of a control datagram on the link to a port or from it. */
static void sched_charge(struct edm_sched *s, enum edm_side side, u16 port,
			 const struct edm_message *message)
{
	edm_match_charge(&s->match, side, port,
			 edm_wire_header_bytes(message) + message->payload_bytes +
				 s->config.overhead_bytes);
}

/* ---- join ---- */

static void sched_welcome(struct edm_sched *s, u16 port, struct edm_message *reply)
{
	*reply = sched_message(s, EDM_WELCOME, port);
	reply->cookie = s->member[port].cookie;
	reply->chunk_bytes = s->config.match.chunk_bytes;
	reply->lease_us = s->config.lease_us;
	reply->slots = s->config.match.demand.slots;
	reply->active_max = s->config.match.demand.active_max;
}

/* The key follows the cookie, which changes with the scheduler's secret. */
static void sched_key(struct edm_sched *s, const struct edm_message *join)
{
	struct edm_message welcome;

	s->member[join->port].cookie = join->cookie;
	sched_welcome(s, join->port, &welcome);
	edm_wire_derive(&s->member[join->port].key, &s->config.key, &welcome);
}

/* A new life of the host begins. */
static void sched_enter(struct edm_sched *s, const struct edm_message *join, u64 address)
{
	struct edm_member *member = &s->member[join->port];

	sched_unlist(member);
	edm_match_leave(&s->match, join->port);
	edm_demand_forget(&s->match.demands, join->port);
	base_zero(member, sizeof(*member));
	member->epoch = join->epoch;
	member->address = address;
	member->byte_q24 =
		edm_match_byte_q24(join->rate_mbps * SCHED_BITS_PER_MBIT, s->config.book_permille);
	s->counts.joins++;
}

/* epoch: the least that the host can join with. */
static enum edm_sched_verdict sched_challenge(const struct edm_sched *s,
					      const struct edm_message *join, u32 epoch, u64 cookie,
					      struct edm_message *reply)
{
	*reply = (struct edm_message){
		.kind = EDM_CHALLENGE,
		.port = join->port,
		.epoch = epoch,
		.life = s->config.life,
		.cookie = cookie,
	};
	return EDM_SCHED_REPLY;
}

enum edm_sched_verdict edm_sched_join(struct edm_sched *s, u64 now_ns,
				      const struct edm_message *join, u64 address, u64 cookie,
				      struct edm_message *reply)
{
	struct edm_member *member;

	if (join->port >= sched_ports(s))
		return EDM_SCHED_IGNORE;
	member = &s->member[join->port];
	if (join->cookie != cookie)
		return sched_challenge(s, join, join->epoch, cookie, reply);
	/* An address cannot take a port whose host is there. */
	if (member->listed && member->address != address) {
		s->counts.stale++;
		return EDM_SCHED_IGNORE;
	}
	/* The host's clock went back, or did not go on between two of its lives. */
	if (edm_link_is_before(join->epoch, member->epoch) ||
	    (join->epoch == member->epoch && member->address != address)) {
		s->counts.stale++;
		return sched_challenge(s, join, edm_link_next_epoch(member->epoch), cookie,
				       reply);
	}
	if (join->epoch != member->epoch)
		sched_enter(s, join, address);
	sched_key(s, join);
	sched_renew(s, now_ns, member);
	sched_welcome(s, join->port, reply);
	return EDM_SCHED_REPLY;
}

/* ---- demand ---- */

/* Is a datagram from a host that has joined, and newer than all before it? Renews the lease. */
static bool sched_accept(struct edm_sched *s, u64 now_ns, const struct edm_message *message)
{
	struct edm_member *member;

	if (message->port >= sched_ports(s))
		return false;
	member = &s->member[message->port];
	if (!member->epoch || message->epoch != member->epoch || message->life != s->config.life ||
	    (s32)(message->seq - member->seq_in) <= 0) {
		s->counts.stale++;
		return false;
	}
	member->seq_in = message->seq;
	sched_renew(s, now_ns, member);
	sched_charge(s, EDM_SOURCE, message->port, message);
	if (message->follows != edm_match_follows(&s->match, message->port))
		member->turned_ns = now_ns;
	if (message->follows)
		edm_match_follow(&s->match, now_ns, message->port, member->byte_q24);
	else
		edm_match_leave(&s->match, message->port);
	return true;
}

/*
 * May a message from a port to a peer wait? Hosts turn to a standby within a lease of each other,
 * so a peer that does not follow yet gets as much time.
 */
static bool sched_may_wait(const struct edm_sched *s, u64 now_ns, u16 port, u16 peer)
{
	u64 since;

	if (peer >= sched_ports(s) || !edm_match_follows(&s->match, port))
		return false;
	since = base_max(s->member[port].turned_ns, s->member[peer].turned_ns);
	return edm_match_follows(&s->match, peer) || now_ns - since < sched_lease_ns(s);
}

/* The source has accepted grants up to an offset, and has seen datagrams up to a number. */
static void sched_reconcile(struct edm_sched *s, u64 now_ns, struct edm_demand *demand,
			    u32 accepted, u32 seen)
{
	if (accepted > demand->granted) {
		edm_demand_advance(&s->match.demands, demand, accepted);
		return;
	}
	/* A grant whose datagram might still arrive is not lost. */
	if (accepted == demand->granted || (s32)(seen - demand->grant_seq) < 0)
		return;
	s->counts.retracted += edm_match_retract(&s->match, now_ns, demand, accepted);
}

static u8 sched_status(enum edm_demand_verdict verdict)
{
	switch (verdict) {
	case EDM_DEMAND_STALE:
		return EDM_REFUSED_STALE;
	case EDM_DEMAND_FULL:
		return EDM_REFUSED_FULL;
	default:
		return EDM_GRANTED;
	}
}

/* A message that the port announces or renews. Returns the status to tell. */
static u8 sched_announce(struct edm_sched *s, u64 now_ns, u16 port, const struct edm_item *item,
			 u32 seen)
{
	const bool read = item->type == EDM_READ;
	struct edm_announcement a = {
		.id = item->id,
		.size = item->size,
		.granted = item->granted,
		.type = item->type,
		.source = read ? item->peer : port,
		.destination = read ? port : item->peer,
	};
	enum edm_demand_verdict verdict;
	struct edm_demand *demand;

	if (!sched_may_wait(s, now_ns, port, item->peer))
		return EDM_REFUSED_ABSENT;
	verdict = edm_match_announce(&s->match, now_ns, &a, &demand);
	/* A read's destination knows less than its source, which sends entries ANSWER. */
	if (verdict == EDM_DEMAND_KNOWN)
		sched_reconcile(s, now_ns, demand,
				read ? base_max(item->granted, demand->granted) : item->granted,
				seen);
	return sched_status(verdict);
}

/* A source tells how much of a read it has been granted. */
static void sched_answer(struct edm_sched *s, u64 now_ns, u16 port, const struct edm_item *item,
			 u32 seen)
{
	struct edm_demand *demand = NULL;

	if (item->peer < sched_ports(s))
		demand = edm_demand_find(&s->match.demands, item->peer, item->id);
	if (demand && demand->type == EDM_READ && demand->source == port &&
	    item->granted <= demand->size)
		sched_reconcile(s, now_ns, demand, item->granted, seen);
}

/* Returns the status to tell. */
static u8 sched_item(struct edm_sched *s, u64 now_ns, u16 port, const struct edm_item *item,
		     u32 seen)
{
	struct edm_demand *demand;

	if (item->type == EDM_ANSWER) {
		sched_answer(s, now_ns, port, item, seen);
		return EDM_GRANTED;
	}
	demand = edm_demand_find(&s->match.demands, port, item->id);
	/* A read is announced by its REQUEST alone: its source must know of it before a grant. */
	if (item->size && item->type == EDM_READ && !demand)
		return EDM_GRANTED;
	if (item->size)
		return sched_announce(s, now_ns, port, item, seen);
	if (demand)
		edm_demand_end(&s->match.demands, demand);
	return EDM_GRANTED;
}

static void sched_refuse(struct edm_sched *s, const struct edm_item *item, u8 status,
			 struct edm_item *refusal)
{
	*refusal = (struct edm_item){
		.id = item->id,
		.peer = item->peer,
		.type = item->type,
		.status = status,
	};
	s->counts.refused++;
}

enum edm_sched_verdict edm_sched_demand(struct edm_sched *s, u64 now_ns,
					const struct edm_message *demand, const void *data,
					struct edm_message *reply, struct edm_item *items)
{
	u16 refusals = 0;

	if (!sched_accept(s, now_ns, demand))
		return EDM_SCHED_IGNORE;
	for (u32 n = 0; n < demand->count; n++) {
		struct edm_item item;
		u8 status;

		edm_wire_item(data, n, &item);
		status = sched_item(s, now_ns, demand->port, &item, demand->seen);
		if (status)
			sched_refuse(s, &item, status, &items[refusals++]);
	}
	*reply = sched_message(s, EDM_GRANT, demand->port);
	reply->seen = demand->seq;
	reply->count = refusals;
	sched_charge(s, EDM_DESTINATION, reply->port, reply);
	return EDM_SCHED_REPLY;
}

enum edm_sched_verdict edm_sched_request(struct edm_sched *s, u64 now_ns,
					 const struct edm_message *request,
					 struct edm_message *reply, struct edm_item *item)
{
	u8 status;

	if (!sched_accept(s, now_ns, request))
		return EDM_SCHED_IGNORE;
	/* A peer that has not joined yet has no key. The host will ask again. */
	if (sched_may_wait(s, now_ns, request->port, request->item.peer) &&
	    !edm_sched_key(s, request->item.peer))
		return EDM_SCHED_IGNORE;
	status = sched_announce(s, now_ns, request->port, &request->item, request->seen);
	if (status) {
		sched_refuse(s, &request->item, status, item);
		*reply = sched_message(s, EDM_GRANT, request->port);
		reply->seen = request->seq;
		reply->count = 1;
		return EDM_SCHED_REFUSE;
	}
	*reply = sched_message(s, EDM_FORWARD, request->item.peer);
	reply->peer_epoch = request->epoch;
	reply->payload_bytes = request->payload_bytes;
	reply->item = (struct edm_item){
		.id = request->item.id,
		.size = request->item.size,
		.peer = request->port,
		.type = EDM_ANSWER,
	};
	sched_charge(s, EDM_DESTINATION, reply->port, reply);
	return EDM_SCHED_REPLY;
}

/* ---- time ---- */

bool edm_sched_next(struct edm_sched *s, u64 now_ns, struct edm_message *message,
		    struct edm_item *item)
{
	struct edm_booking booking;
	struct edm_demand *demand;
	bool read;

	if (!edm_match_next(&s->match, now_ns, &booking))
		return false;
	demand = booking.demand;
	read = demand->type == EDM_READ;
	*message = sched_message(s, EDM_GRANT, demand->source);
	message->seen = s->member[demand->source].seq_in;
	message->count = 1;
	*item = (struct edm_item){
		.id = demand->id,
		.size = booking.bytes,
		.granted = booking.end,
		.peer = demand->destination,
		.type = read ? EDM_ANSWER : EDM_WRITE,
	};
	demand->grant_seq = message->seq;
	s->counts.grants++;
	sched_charge(s, EDM_DESTINATION, message->port, message);
	return true;
}

static u64 sched_member_deadline_ns(const struct edm_sched *s)
{
	if (s->lease.next == &s->lease)
		return EDM_NEVER;
	return sched_member_of(s->lease.next)->heard_ns + sched_lease_ns(s);
}

bool edm_sched_expire(struct edm_sched *s, u64 now_ns)
{
	for (u32 n = 0; n < EDM_EXPIRES_MAX; n++) {
		struct edm_demand *demand = edm_demand_expired(&s->match.demands, now_ns);

		if (demand) {
			edm_demand_expire(&s->match.demands, demand);
		} else if (sched_member_deadline_ns(s) <= now_ns) {
			struct edm_member *member = sched_member_of(s->lease.next);

			sched_unlist(member);
			member->turned_ns = now_ns;
			edm_match_leave(&s->match, (u16)(member - s->member));
		} else {
			return false;
		}
		s->counts.expired++;
	}
	return true;
}

u64 edm_sched_deadline_ns(const struct edm_sched *s)
{
	const u64 lease =
		base_min(edm_demand_deadline_ns(&s->match.demands), sched_member_deadline_ns(s));

	return base_min(lease, edm_match_deadline_ns(&s->match));
}
