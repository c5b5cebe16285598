// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/match.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

/* A share is full after at most this: longer pauses would overflow the product. */
#define MATCH_FILL_NS_MAX (1ULL << 36)

bool edm_match_config_is_valid(const struct edm_match_config *config)
{
	return edm_demand_config_is_valid(&config->demand) && config->unit_bytes &&
	       config->chunk_bytes && config->chunk_bytes <= EDM_CHUNK_BYTES_MAX &&
	       config->chunk_bytes % config->unit_bytes == 0 &&
	       config->late_bytes_max <= config->chunk_bytes && config->share_permille &&
	       config->share_permille <= 1000 && config->share_bytes >= config->chunk_bytes &&
	       config->share_bytes <= 1U << 30;
}

/* ---- memory ---- */

static size_t match_lay_out(struct edm_match *m, const struct edm_match_config *config,
			    void *memory)
{
	const u32 ports = config->demand.ports;
	const size_t set_bytes = (ports + 63U) / 64U * sizeof(u64);
	size_t used = 0;

	for (u32 side = 0; side < EDM_SIDES; side++) {
		m->idle[side] = base_carve(memory, &used, set_bytes);
		m->look[side] = base_carve(memory, &used, set_bytes);
		m->held[side] = base_carve(memory, &used, set_bytes);
		m->half[side] = base_carve(memory, &used, ports * sizeof(*m->half[side]));
	}
	m->share = base_carve(memory, &used, ports * sizeof(*m->share));
	m->heap = base_carve(memory, &used, (size_t)EDM_SIDES * ports * sizeof(*m->heap));
	return used;
}

size_t edm_match_bytes(const struct edm_match_config *config)
{
	struct edm_match m;

	return match_lay_out(&m, config, NULL) + edm_demand_bytes(&config->demand);
}

void edm_match_init(struct edm_match *m, const struct edm_match_config *config, void *memory)
{
	size_t used;

	base_zero(m, sizeof(*m));
	m->config = *config;
	used = match_lay_out(m, config, memory);
	base_zero(memory, used);
	edm_demand_init(&m->demands, &config->demand, (char *)memory + used);
}

/* ---- sets of ports ---- */

static bool match_has(const u64 *set, u16 port)
{
	return set[port / 64] >> (port % 64) & 1;
}

bool edm_match_is_idle(const struct edm_match *m, u32 side, u16 port)
{
	return match_has(m->idle[side], port);
}

static void match_put(u64 *set, u16 port, bool member)
{
	const u64 bit = 1ULL << (port % 64);

	set[port / 64] = member ? set[port / 64] | bit : set[port / 64] & ~bit;
}

/* A half's state has changed. */
static void match_refresh(struct edm_match *m, u32 side, u16 port)
{
	const struct edm_half *half = &m->half[side][port];
	const bool idle = half->follows && !half->busy && !half->full;

	if (idle && !match_has(m->idle[side], port))
		match_put(m->look[side], port, true);
	match_put(m->idle[side], port, idle);
}

/* ---- the heap of busy halves, the first end on top ---- */

static u64 match_key(const struct edm_match *m, u32 at)
{
	const u32 ports = m->config.demand.ports;

	return m->half[m->heap[at] / ports][m->heap[at] % ports].free_ns;
}

static void match_swap(struct edm_match *m, u32 a, u32 b)
{
	const u32 entry = m->heap[a];

	m->heap[a] = m->heap[b];
	m->heap[b] = entry;
}

static void match_push(struct edm_match *m, u32 side, u16 port, u64 free_ns)
{
	u32 at = m->heap_count++;

	m->half[side][port].busy = true;
	m->half[side][port].free_ns = free_ns;
	m->heap[at] = side * m->config.demand.ports + port;
	for (; at && match_key(m, at) < match_key(m, (at - 1) / 2); at = (at - 1) / 2)
		match_swap(m, at, (at - 1) / 2);
	match_refresh(m, side, port);
}

static void match_pop(struct edm_match *m)
{
	u32 at = 0, child;

	m->heap[0] = m->heap[--m->heap_count];
	while ((child = 2 * at + 1) < m->heap_count) {
		if (child + 1 < m->heap_count && match_key(m, child + 1) < match_key(m, child))
			child++;
		if (match_key(m, at) <= match_key(m, child))
			break;
		match_swap(m, at, child);
		at = child;
	}
}

/* A port has become idle, perhaps the one that others wait for. */
static void match_look_again(struct edm_match *m)
{
	if (!m->any_held)
		return;
	m->any_held = false;
	for (u32 side = 0; side < EDM_SIDES; side++) {
		for (u32 word = 0; word < m->demands.words; word++) {
			m->look[side][word] |= m->held[side][word];
			m->held[side][word] = 0;
		}
	}
}

void edm_match_release(struct edm_match *m, u64 now_ns)
{
	const u32 ports = m->config.demand.ports;

	while (edm_match_deadline_ns(m) <= now_ns) {
		const u32 side = m->heap[0] / ports;
		const u16 port = (u16)(m->heap[0] % ports);
		struct edm_half *half = &m->half[side][port];

		match_pop(m);
		match_look_again(m);
		half->busy = false;
		if (half->hold_ns > now_ns)
			match_push(m, side, port, half->hold_ns);
		else
			match_refresh(m, side, port);
	}
}

/* ---- ports ---- */

/* Time of bytes at a port, times 2^24. */
static u64 match_time_q24(const struct edm_match *m, u16 port, u32 bytes)
{
	return bytes * m->share[port].byte_q24;
}

void edm_match_follow(struct edm_match *m, u64 now_ns, u16 port, u64 byte_q24)
{
	struct edm_share *share = &m->share[port];

	share->byte_q24 = byte_q24;
	if (edm_match_follows(m, port))
		return;
	share->bytes = m->config.share_bytes;
	share->filled_ns = now_ns;
	for (u32 side = 0; side < EDM_SIDES; side++) {
		struct edm_half *half = &m->half[side][port];

		half->follows = true;
		half->full = false;
		half->control_bytes = 0;
		half->hold_ns = now_ns + (match_time_q24(m, port, m->config.chunk_bytes) >> 24) + 1;
		if (!half->busy)
			match_push(m, side, port, half->hold_ns);
	}
}

void edm_match_leave(struct edm_match *m, u16 port)
{
	for (u32 side = 0; side < EDM_SIDES; side++) {
		m->half[side][port].follows = false;
		match_refresh(m, side, port);
	}
}

void edm_match_stop(struct edm_match *m, enum edm_side side, u16 port, bool stop)
{
	m->half[side][port].full = stop;
	match_refresh(m, side, port);
}

void edm_match_egress(struct edm_match *m, u16 port, u32 bytes)
{
	edm_match_stop(m, EDM_DESTINATION, port, bytes > m->config.egress_bytes_max);
}

void edm_match_charge(struct edm_match *m, enum edm_side side, u16 port, u32 bytes)
{
	struct edm_half *half = &m->half[side][port];

	/* A flood of control messages delays a port by one chunk at most. */
	half->control_bytes =
		(u32)base_min((u64)half->control_bytes + bytes, m->config.chunk_bytes);
}

/* ---- shares ---- */

static bool match_share_is_left(struct edm_match *m, u64 now_ns, u16 port)
{
	struct edm_share *share = &m->share[port];
	const u64 ns = base_min(now_ns - share->filled_ns, MATCH_FILL_NS_MAX);
	const u64 bytes = share->byte_q24
				  ? (ns << 24) / share->byte_q24 * m->config.share_permille / 1000
				  : 0;

	/* Keep the time until it makes a byte. */
	if (!bytes)
		return share->bytes > 0;
	share->filled_ns = now_ns;
	share->bytes += (s64)bytes;
	if (share->bytes > m->config.share_bytes)
		share->bytes = m->config.share_bytes;
	return share->bytes > 0;
}

/* Ports that have messages to the announcer's peer, or from it, as this one: 1 or more. */
static u32 match_rivals(const struct edm_match *m, const struct edm_demand *demand)
{
	return demand->type == EDM_READ ? m->demands.out[demand->source].peers
					: m->demands.in[demand->destination].peers;
}

/* Short messages precede others, so they cost their announcer a part of its share. */
static void match_share_charge(struct edm_match *m, u64 now_ns, struct edm_demand *demand,
			       u32 bytes)
{
	const u16 announcer = edm_demand_announcer(demand);

	if (!demand->disfavoured && edm_demand_left(demand) <= m->config.chunk_bytes)
		m->share[announcer].bytes -= (s64)bytes * match_rivals(m, demand);
	demand->disfavoured = !match_share_is_left(m, now_ns, announcer);
}

/* ---- demand ---- */

static void match_look_at(struct edm_match *m, const struct edm_demand *demand)
{
	if (demand->state == EDM_QUEUED && match_has(m->idle[EDM_SOURCE], demand->source))
		match_put(m->look[EDM_DESTINATION], demand->destination, true);
}

enum edm_demand_verdict edm_match_announce(struct edm_match *m, u64 now_ns,
					   struct edm_announcement *a, struct edm_demand **demand)
{
	const u16 announcer = a->type == EDM_READ ? a->destination : a->source;
	enum edm_demand_verdict verdict;

	a->disfavoured = !match_share_is_left(m, now_ns, announcer);
	verdict = edm_demand_announce(&m->demands, now_ns, a, demand);
	if (verdict == EDM_DEMAND_NEW)
		match_look_at(m, *demand);
	return verdict;
}

bool edm_match_retract(struct edm_match *m, u64 now_ns, struct edm_demand *demand, u32 granted)
{
	if (!edm_demand_retract(&m->demands, now_ns, demand, granted))
		return false;
	match_look_at(m, demand);
	return true;
}

/* ---- choice ---- */

static const struct edm_queue *match_queue(const struct edm_match *m, u32 side, u16 port)
{
	return side == EDM_SOURCE ? &m->demands.out[port] : &m->demands.in[port];
}

/* The port's oldest message goes first if it is too old. */
static void match_hurry(struct edm_match *m, u64 now_ns, u32 side, u16 port)
{
	struct edm_demand *oldest = side == EDM_SOURCE ? edm_demand_oldest_from(&m->demands, port)
						       : edm_demand_oldest_to(&m->demands, port);

	if (oldest && now_ns - oldest->queued_ns >= m->config.age_ns)
		edm_demand_hurry(&m->demands, oldest);
}

u32 edm_match_best(struct edm_match *m, u64 now_ns, u32 side, u16 port, u16 *peer)
{
	match_hurry(m, now_ns, side, port);
	return edm_demand_best(&m->demands, match_queue(m, side, port), m->idle[!side], peer);
}

/* Place of a level in the order of service. */
static u32 match_rank(const struct edm_match *m, u32 level)
{
	return edm_demand_rank(&m->demands, level);
}

/*
 * A pair that is best for both of its ports, reached from one port by better and better pairs.
 * Between pairs of one level the destination decides, so its sources take turns. NULL: the port has
 * no message to or from an idle peer.
 */
static struct edm_demand *match_choose(struct edm_match *m, u64 now_ns, u32 side, u16 port)
{
	u16 peer = 0, other = 0;
	u32 level = edm_match_best(m, now_ns, side, port, &peer);

	if (level == EDM_LEVELS)
		return NULL;
	/* Of two steps, one at least reaches a better level. */
	for (u32 steps = 0; steps < 2 * EDM_LEVELS; steps++) {
		const u32 best = edm_match_best(m, now_ns, !side, peer, &other);
		const bool better = match_rank(m, best) < match_rank(m, level);

		if (!better && (side == EDM_DESTINATION || other == port))
			break;
		level = best;
		side = !side;
		port = peer;
		peer = other;
	}
	return side == EDM_SOURCE ? edm_demand_first(&m->demands, port, peer)
				  : edm_demand_first(&m->demands, peer, port);
}

/* ---- alignment ---- */

/* When the first of a level's busy peers becomes idle; of EDM_ALIGN_PEERS peers at most. */
static u64 match_soonest(const struct edm_match *m, u32 side, const u64 *peers)
{
	u64 soonest = EDM_NEVER;
	u32 seen = 0;

	for (u32 word = 0; word < m->demands.words && seen < EDM_ALIGN_PEERS; word++) {
		for (u64 left = peers[word]; left && seen < EDM_ALIGN_PEERS; left &= left - 1) {
			const u32 peer = 64 * word + (u32)__builtin_ctzll(left);
			const struct edm_half *half = &m->half[!side][peer];

			if (half->follows && !half->full && half->busy)
				soonest = base_min(soonest, half->free_ns);
			seen++;
		}
	}
	return soonest;
}

/* When a message that is better than a level, and waits for the port, could start. */
static u64 match_awaited(const struct edm_match *m, u32 side, u16 port, u32 level)
{
	const struct edm_queue *queue = match_queue(m, side, port);
	u32 best = EDM_LEVELS;

	for (u32 left = queue->levels; left; left &= left - 1) {
		const u32 other = (u32)__builtin_ctz(left);

		if (match_rank(m, other) < match_rank(m, best))
			best = other;
	}
	if (match_rank(m, best) >= match_rank(m, level))
		return EDM_NEVER;
	return match_soonest(m, side, queue->set + (size_t)best * m->demands.words);
}

/*
 * The bytes of a chunk that ends, at a port, no later than a better message could start there. 0:
 * not even a unit fits, so the port rather waits. Control bytes of the port are part of its time.
 */
static u32 match_shorten(const struct edm_match *m, u64 now_ns, u32 side, u16 port, u32 level,
			 u32 bytes)
{
	const u32 control = m->half[side][port].control_bytes, unit = m->config.unit_bytes;
	const u64 soonest = match_awaited(m, side, port, level);
	u64 fit;

	/* A chunk has fewer than 2^43 nanoseconds, so the shift keeps all bits that matter. */
	if (soonest == EDM_NEVER ||
	    (soonest - now_ns) >= match_time_q24(m, port, bytes + control) >> 24)
		return bytes;
	fit = ((soonest - now_ns) << 24) / m->share[port].byte_q24;
	fit = fit > control ? fit - control : 0;
	return (u32)base_min(fit - fit % unit, bytes);
}

/* The bytes to book of a message whose ports are idle; 0: a port waits for a better one. */
static u32 match_bytes(const struct edm_match *m, u64 now_ns, const struct edm_demand *demand)
{
	u32 bytes = (u32)base_min(m->config.chunk_bytes, edm_demand_left(demand));

	/* The paper's chunks, of one size, are never shortened, and no port waits. */
	if (m->config.unit_bytes == m->config.chunk_bytes)
		return bytes;
	bytes = match_shorten(m, now_ns, EDM_SOURCE, demand->source, demand->level, bytes);
	return match_shorten(m, now_ns, EDM_DESTINATION, demand->destination, demand->level, bytes);
}

/* ---- booking ---- */

static void match_occupy(struct edm_match *m, u64 now_ns, u32 side, u16 port, u32 bytes,
			 struct edm_booking *booking)
{
	struct edm_half *half = &m->half[side][port];
	const u64 late_ns = match_time_q24(m, port, m->config.late_bytes_max) >> 24;
	/* Booked from its last chunk's end, so that late timers don't lower the port's rate. */
	const bool follows_on = now_ns - half->free_ns <= late_ns;
	const u64 start_ns = follows_on ? half->free_ns : now_ns;
	const u64 time = match_time_q24(m, port, bytes + half->control_bytes) +
			 (follows_on ? half->rest_q24 : 0);

	half->control_bytes = 0;
	half->rest_q24 = time & 0xffffff;
	match_push(m, side, port, start_ns + (time >> 24));
	booking->ends_ns = base_max(booking->ends_ns, half->free_ns);
}

void edm_match_book(struct edm_match *m, u64 now_ns, struct edm_demand *demand,
		    struct edm_booking *booking)
{
	u32 bytes = match_bytes(m, now_ns, demand);

	if (!bytes)
		bytes = (u32)base_min(m->config.unit_bytes, edm_demand_left(demand));
	*booking = (struct edm_booking){
		.demand = demand, .bytes = bytes, .end = demand->granted + bytes};
	match_occupy(m, now_ns, EDM_SOURCE, demand->source, bytes, booking);
	match_occupy(m, now_ns, EDM_DESTINATION, demand->destination, bytes, booking);
	match_share_charge(m, now_ns, demand, bytes);
	edm_demand_grant(&m->demands, demand, bytes);
}

/* The pair's ports, and the one that led to them, stay idle until the next chunk ends. */
static void match_hold(struct edm_match *m, const struct edm_demand *demand, u32 side, u16 port)
{
	match_put(m->held[side], port, true);
	match_put(m->held[EDM_SOURCE], demand->source, true);
	match_put(m->held[EDM_DESTINATION], demand->destination, true);
	m->any_held = true;
}

/* A port to look at. Returns false if there is none. */
static bool match_look(const struct edm_match *m, u32 *side, u16 *port)
{
	for (u32 word = 0; word < m->demands.words; word++) {
		for (u32 s = 0; s < EDM_SIDES; s++) {
			if (!m->look[s][word])
				continue;
			*side = s;
			*port = (u16)(64 * word + (u32)__builtin_ctzll(m->look[s][word]));
			return true;
		}
	}
	return false;
}

bool edm_match_next(struct edm_match *m, u64 now_ns, struct edm_booking *booking)
{
	u32 side;
	u16 port;

	edm_match_release(m, now_ns);
	while (match_look(m, &side, &port)) {
		struct edm_demand *demand = NULL;

		if (match_has(m->idle[side], port))
			demand = match_choose(m, now_ns, side, port);
		if (demand && match_bytes(m, now_ns, demand)) {
			edm_match_book(m, now_ns, demand, booking);
			return true;
		}
		if (demand)
			match_hold(m, demand, side, port);
		match_put(m->look[side], port, false);
	}
	return false;
}

/* ---- invariants ---- */

const char *edm_match_check(const struct edm_match *m)
{
	u32 busy = 0;
	u16 peer = 0;

	for (u16 port = 0; port < m->config.demand.ports; port++) {
		for (u32 side = 0; side < EDM_SIDES; side++) {
			const struct edm_half *half = &m->half[side][port];

			busy += half->busy;
			if (match_has(m->idle[side], port) !=
			    (half->follows && !half->busy && !half->full))
				return "the set of idle ports is wrong";
		}
		if (match_has(m->idle[EDM_SOURCE], port) &&
		    edm_demand_best(&m->demands, &m->demands.out[port], m->idle[EDM_DESTINATION],
				    &peer) != EDM_LEVELS &&
		    !match_has(m->held[EDM_SOURCE], port) &&
		    !match_has(m->held[EDM_DESTINATION], peer))
			return "the matching is not maximal";
	}
	if (busy != m->heap_count)
		return "a busy port is not in the heap";
	for (u32 at = 1; at < m->heap_count; at++)
		if (match_key(m, at) < match_key(m, (at - 1) / 2))
			return "the heap is out of order";
	return edm_demand_check(&m->demands);
}
