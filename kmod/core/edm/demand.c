// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/demand.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

/* SRPT: messages of up to so many bytes share the first level; a cache line. */
#define DEMAND_LINE_BYTES 64U

#define DEMAND_OF(node, member) \
	((struct edm_demand *)((char *)(node) - offsetof(struct edm_demand, member)))

/* ---- lists ---- */

static void demand_list_init(struct edm_node *list)
{
	list->next = list;
	list->prev = list;
}

static void demand_list_append(struct edm_node *list, struct edm_node *node)
{
	node->next = list;
	node->prev = list->prev;
	list->prev->next = node;
	list->prev = node;
}

static void demand_list_take(struct edm_node *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
}

/* ---- memory ---- */

static bool demand_ports_are_valid(const struct edm_demand_config *config)
{
	return config->ports >= 2 && config->ports <= EDM_PORTS_MAX &&
	       base_is_pow2(config->slots) && config->slots <= EDM_SLOTS_MAX;
}

bool edm_demand_config_is_valid(const struct edm_demand_config *config)
{
	return demand_ports_are_valid(config) && config->active_max &&
	       config->active_max <= EDM_ACTIVE_MAX && config->policy <= EDM_FCFS &&
	       (config->policy == EDM_SRPT || config->turn_ns) && config->lease_ns;
}

static u32 demand_words(const struct edm_demand_config *config)
{
	return (config->ports + 63U) / 64U;
}

static size_t demand_lay_out(struct edm_demands *d, void *memory)
{
	const u32 ports = d->config.ports;
	const size_t set_bytes = (size_t)EDM_LEVELS * d->words * sizeof(u64);
	size_t used = 0;

	d->demand =
		base_carve(memory, &used, (size_t)ports * d->config.slots * sizeof(*d->demand));
	d->pair = base_carve(memory, &used, (size_t)ports * ports * sizeof(*d->pair));
	d->to = base_carve(memory, &used, ports * sizeof(*d->to));
	d->from = base_carve(memory, &used, ports * sizeof(*d->from));
	d->in = base_carve(memory, &used, ports * sizeof(*d->in));
	d->out = base_carve(memory, &used, ports * sizeof(*d->out));
	for (u32 port = 0; port < ports; port++) {
		u64 *in = base_carve(memory, &used, set_bytes);
		u64 *out = base_carve(memory, &used, set_bytes);

		if (!memory)
			continue;
		d->in[port].set = in;
		d->out[port].set = out;
	}
	return used;
}

size_t edm_demand_bytes(const struct edm_demand_config *config)
{
	struct edm_demands d = {.config = *config, .words = demand_words(config)};

	return demand_lay_out(&d, NULL);
}

void edm_demand_init(struct edm_demands *d, const struct edm_demand_config *config, void *memory)
{
	base_zero(memory, edm_demand_bytes(config));
	base_zero(d, sizeof(*d));
	d->config = *config;
	d->words = demand_words(config);
	demand_lay_out(d, memory);
	for (u32 port = 0; port < config->ports; port++) {
		demand_list_init(&d->to[port]);
		demand_list_init(&d->from[port]);
	}
	demand_list_init(&d->all);
	demand_list_init(&d->lease);
}

/* ---- levels ---- */

/* The bytes that decide by SRPT. */
static u64 demand_weight(const struct edm_demand *demand)
{
	return (u64)edm_demand_left(demand) + demand->beyond;
}

/* Half octaves of cache lines: 1 for a line, 3 for two lines, 4 for three, 5 for four ... */
static u32 demand_level_srpt(const struct edm_demand *demand)
{
	const u64 left = demand_weight(demand);
	u32 lines = (u32)(left / DEMAND_LINE_BYTES + !!(left % DEMAND_LINE_BYTES));
	u32 octave = 31 - (u32)__builtin_clz(lines);
	u32 half = octave ? lines >> (octave - 1) & 1 : 0;

	return (u32)base_min(EDM_LEVEL_URGENT + 1 + 2 * octave + half, EDM_LEVEL_LAST - 1);
}

/* Levels are turns modulo EDM_TURNS, so order is that from the oldest message's turn on. */
static u32 demand_level_fcfs(const struct edm_demand *demand)
{
	return EDM_LEVEL_URGENT + 1 + demand->turn % EDM_TURNS;
}

static u32 demand_level(const struct edm_demands *d, const struct edm_demand *demand)
{
	if (demand->urgent)
		return EDM_LEVEL_URGENT;
	if (demand->disfavoured)
		return EDM_LEVEL_LAST;
	return d->config.policy == EDM_SRPT ? demand_level_srpt(demand) : demand_level_fcfs(demand);
}

static struct edm_demand *demand_oldest_of_all(const struct edm_demands *d)
{
	return d->all.next == &d->all ? NULL : DEMAND_OF(d->all.next, all);
}

/* The turn of a message that arrives: not so late that it would look older than the oldest. */
static u32 demand_turn(const struct edm_demands *d, u64 now_ns)
{
	const struct edm_demand *oldest = demand_oldest_of_all(d);
	u32 turn;

	if (d->config.policy == EDM_SRPT)
		return 0;
	turn = (u32)(now_ns / d->config.turn_ns);
	if (oldest && turn - oldest->turn >= EDM_TURNS)
		turn = oldest->turn + EDM_TURNS - 1;
	return turn;
}

/* Levels of a queue in the order in which they are served, from the first that isn't empty. */
static u32 demand_order_start(const struct edm_demands *d)
{
	const struct edm_demand *oldest = demand_oldest_of_all(d);

	return d->config.policy == EDM_FCFS && oldest ? oldest->turn % EDM_TURNS : 0;
}

/* ---- sets of peers ---- */

static void demand_set(const struct edm_demands *d, struct edm_queue *queue, u32 level, u16 peer)
{
	queue->set[level * d->words + peer / 64] |= 1ULL << (peer % 64);
	queue->levels |= 1U << level;
}

static void demand_clear(const struct edm_demands *d, struct edm_queue *queue, u32 level, u16 peer)
{
	u64 *set = queue->set + (size_t)level * d->words, any = 0;

	set[peer / 64] &= ~(1ULL << (peer % 64));
	for (u32 word = 0; word < d->words; word++)
		any |= set[word];
	if (!any)
		queue->levels &= ~(1U << level);
}

static void demand_show(struct edm_demands *d, const struct edm_demand *first)
{
	demand_set(d, &d->in[first->destination], first->level, first->source);
	demand_set(d, &d->out[first->source], first->level, first->destination);
	d->in[first->destination].peers++;
	d->out[first->source].peers++;
}

static void demand_hide(struct edm_demands *d, const struct edm_demand *first)
{
	demand_clear(d, &d->in[first->destination], first->level, first->source);
	demand_clear(d, &d->out[first->source], first->level, first->destination);
	d->in[first->destination].peers--;
	d->out[first->source].peers--;
}

/* ---- pairs ---- */

static struct edm_demand **demand_pair(struct edm_demands *d, const struct edm_demand *demand)
{
	return &d->pair[demand->source * d->config.ports + demand->destination];
}

/* 0: urgent, 1: by policy, 2: the announcer has used up its share. */
static u32 demand_group(const struct edm_demand *demand)
{
	return demand->urgent ? 0 : demand->disfavoured ? 2 : 1;
}

/* Does a go before b, which was there first? */
static bool demand_before(const struct edm_demands *d, const struct edm_demand *a,
			  const struct edm_demand *b)
{
	if (d->config.in_order)
		return a->arrived_ns < b->arrived_ns;
	if (demand_group(a) != demand_group(b))
		return demand_group(a) < demand_group(b);
	return d->config.policy == EDM_SRPT ? demand_weight(a) < demand_weight(b)
					    : a->queued_ns < b->queued_ns;
}

static void demand_pair_insert(struct edm_demands *d, struct edm_demand *demand)
{
	struct edm_demand **link = demand_pair(d, demand), *first = *link;

	demand->level = (u8)demand_level(d, demand);
	while (*link && !demand_before(d, demand, *link))
		link = &(*link)->next;
	demand->next = *link;
	*link = demand;
	if (demand->next != first && first)
		return; /* not the new first */
	if (first)
		demand_hide(d, first);
	demand_show(d, demand);
}

static void demand_pair_take(struct edm_demands *d, struct edm_demand *demand)
{
	struct edm_demand **link = demand_pair(d, demand);
	const bool was_first = *link == demand;

	while (*link != demand)
		link = &(*link)->next;
	*link = demand->next;
	if (!was_first)
		return;
	demand_hide(d, demand);
	if (demand->next)
		demand_show(d, demand->next);
}

/* ---- states ---- */

static void demand_enqueue(struct edm_demands *d, u64 now_ns, struct edm_demand *demand)
{
	demand->state = EDM_QUEUED;
	demand->queued_ns = now_ns;
	demand->turn = demand_turn(d, now_ns);
	demand_list_append(&d->to[demand->destination], &demand->to);
	demand_list_append(&d->from[demand->source], &demand->from);
	demand_list_append(&d->all, &demand->all);
	demand_pair_insert(d, demand);
	d->queued++;
}

static void demand_dequeue(struct edm_demands *d, struct edm_demand *demand)
{
	demand_pair_take(d, demand);
	demand_list_take(&demand->to);
	demand_list_take(&demand->from);
	demand_list_take(&demand->all);
	demand->urgent = false;
	demand->state = EDM_SPENT;
	d->queued--;
}

static struct edm_demand *demand_slot(const struct edm_demands *d, u16 announcer, u32 id)
{
	return &d->demand[announcer * d->config.slots + (id & (d->config.slots - 1U))];
}

struct edm_demand *edm_demand_find(struct edm_demands *d, u16 announcer, u32 id)
{
	struct edm_demand *demand = demand_slot(d, announcer, id);

	return demand->state != EDM_FREE && demand->id == id ? demand : NULL;
}

static void demand_renew(struct edm_demands *d, u64 now_ns, struct edm_demand *demand)
{
	demand->renewed_ns = now_ns;
	demand_list_take(&demand->lease);
	demand_list_append(&d->lease, &demand->lease);
}

/* Has the announcer X queued messages from source to destination? */
static bool demand_is_full(const struct edm_demands *d, u16 source, u16 destination, u8 type)
{
	const struct edm_demand *demand = edm_demand_first(d, source, destination);
	u32 active = 0;

	for (; demand; demand = demand->next)
		active += demand->type == type;
	return active >= d->config.active_max;
}

enum edm_demand_verdict edm_demand_announce(struct edm_demands *d, u64 now_ns,
					    const struct edm_announcement *a,
					    struct edm_demand **found)
{
	u16 announcer = a->type == EDM_READ ? a->destination : a->source;
	struct edm_demand *demand = demand_slot(d, announcer, a->id);

	if (demand->named && (s32)(a->id - demand->id) < 0)
		return EDM_DEMAND_STALE;
	if (demand->named && a->id == demand->id) {
		if (demand->state == EDM_FREE || demand->source != a->source ||
		    demand->destination != a->destination || demand->type != a->type ||
		    demand->size != a->size)
			return EDM_DEMAND_STALE;
		demand_renew(d, now_ns, demand);
		*found = demand;
		return EDM_DEMAND_KNOWN;
	}
	if (demand->state != EDM_FREE)
		edm_demand_end(d, demand);
	if (demand_is_full(d, a->source, a->destination, a->type))
		return EDM_DEMAND_FULL;
	*demand = (struct edm_demand){
		.arrived_ns = now_ns,
		.renewed_ns = now_ns,
		.id = a->id,
		.size = a->size,
		.granted = a->granted,
		.beyond = a->beyond,
		.source = a->source,
		.destination = a->destination,
		.type = a->type,
		.named = true,
		.disfavoured = a->disfavoured,
	};
	demand_list_append(&d->lease, &demand->lease);
	d->live++;
	if (edm_demand_left(demand))
		demand_enqueue(d, now_ns, demand);
	else
		demand->state = EDM_SPENT;
	*found = demand;
	return EDM_DEMAND_NEW;
}

/* Set granted, to less than the size, of a message that stays queued. */
static void demand_move(struct edm_demands *d, struct edm_demand *demand, u32 granted)
{
	demand_pair_take(d, demand);
	demand->granted = granted;
	demand_pair_insert(d, demand);
}

void edm_demand_grant(struct edm_demands *d, struct edm_demand *demand, u32 bytes)
{
	d->in[demand->destination].last = demand->source;
	d->out[demand->source].last = demand->destination;
	if (bytes == edm_demand_left(demand)) {
		demand_dequeue(d, demand);
		demand->granted = demand->size;
		return;
	}
	demand_move(d, demand, demand->granted + bytes);
}

bool edm_demand_retract(struct edm_demands *d, u64 now_ns, struct edm_demand *demand, u32 granted)
{
	if (granted >= demand->granted)
		return false;
	if (demand->state == EDM_QUEUED) {
		demand_move(d, demand, granted);
		return true;
	}
	/* An honest host counts the message among its X until it has accepted all grants. */
	if (demand_is_full(d, demand->source, demand->destination, demand->type))
		return false;
	demand->granted = granted;
	demand_enqueue(d, now_ns, demand);
	return true;
}

void edm_demand_advance(struct edm_demands *d, struct edm_demand *demand, u32 granted)
{
	if (granted <= demand->granted || demand->state != EDM_QUEUED)
		return;
	if (granted < demand->size) {
		demand_move(d, demand, granted);
		return;
	}
	demand_dequeue(d, demand);
	demand->granted = demand->size;
}

void edm_demand_end(struct edm_demands *d, struct edm_demand *demand)
{
	if (demand->state == EDM_FREE)
		return;
	if (demand->state == EDM_QUEUED)
		demand_dequeue(d, demand);
	demand_list_take(&demand->lease);
	demand->state = EDM_FREE;
	d->live--;
}

void edm_demand_expire(struct edm_demands *d, struct edm_demand *demand)
{
	edm_demand_end(d, demand);
	demand->named = false;
}

void edm_demand_forget(struct edm_demands *d, u16 announcer)
{
	for (u32 slot = 0; slot < d->config.slots; slot++)
		edm_demand_expire(d, demand_slot(d, announcer, slot));
}

void edm_demand_hurry(struct edm_demands *d, struct edm_demand *demand)
{
	if (d->config.in_order && demand->state == EDM_QUEUED)
		demand = *demand_pair(d, demand);
	if (demand->urgent || demand->state != EDM_QUEUED)
		return;
	demand_pair_take(d, demand);
	demand->urgent = true;
	demand_pair_insert(d, demand);
}

struct edm_demand *edm_demand_oldest_to(const struct edm_demands *d, u16 destination)
{
	const struct edm_node *list = &d->to[destination];

	return list->next == list ? NULL : DEMAND_OF(list->next, to);
}

struct edm_demand *edm_demand_oldest_from(const struct edm_demands *d, u16 source)
{
	const struct edm_node *list = &d->from[source];

	return list->next == list ? NULL : DEMAND_OF(list->next, from);
}

struct edm_demand *edm_demand_expired(struct edm_demands *d, u64 now_ns)
{
	return edm_demand_deadline_ns(d) <= now_ns ? DEMAND_OF(d->lease.next, lease) : NULL;
}

u64 edm_demand_deadline_ns(const struct edm_demands *d)
{
	if (d->lease.next == &d->lease)
		return EDM_NEVER;
	return DEMAND_OF(d->lease.next, lease)->renewed_ns + d->config.lease_ns;
}

/* ---- choice ---- */

/* The first member of both sets after `last`, in a circle. Returns false if there is none. */
static bool demand_next_of(const u64 *a, const u64 *b, u32 words, u32 last, u16 *peer)
{
	const u32 start = (last + 1) / 64 % words;
	const u64 after = ~0ULL << ((last + 1) % 64);

	for (u32 step = 0; step <= words; step++) {
		u32 word = start + step < words ? start + step : start + step - words;
		u64 both = a[word] & b[word];

		if (!step)
			both &= after;
		else if (step == words)
			both &= ~after;
		if (both) {
			*peer = (u16)(64 * word + (u32)__builtin_ctzll(both));
			return true;
		}
	}
	return false;
}

u32 edm_demand_rank(const struct edm_demands *d, u32 level)
{
	const u32 start = demand_order_start(d);

	if (level == EDM_LEVEL_URGENT || level >= EDM_LEVEL_LAST || !start)
		return level;
	/* FCFS: levels 1 to EDM_TURNS, in a circle. */
	return EDM_LEVEL_URGENT + 1 + (level - 1 + EDM_TURNS - start) % EDM_TURNS;
}

/* Levels below `start` come last, but the urgent one first. */
static u32 demand_pick_level(u32 levels, u32 start)
{
	const u32 turns = ~(1U << EDM_LEVEL_URGENT | 1U << EDM_LEVEL_LAST);
	const u32 first = levels & turns & ~0U << (EDM_LEVEL_URGENT + 1 + start);

	if (levels & 1U << EDM_LEVEL_URGENT)
		return EDM_LEVEL_URGENT;
	return (u32)__builtin_ctz(first ? first : levels);
}

u32 edm_demand_best(const struct edm_demands *d, const struct edm_queue *queue, const u64 *among,
		    u16 *peer)
{
	const u32 start = demand_order_start(d);

	for (u32 levels = queue->levels; levels;) {
		u32 level = demand_pick_level(levels, start);

		if (demand_next_of(queue->set + (size_t)level * d->words, among, d->words,
				   queue->last, peer))
			return level;
		levels &= ~(1U << level);
	}
	return EDM_LEVELS;
}

/* ---- invariants ---- */

static bool demand_counts_peers(const struct edm_demands *d, const struct edm_queue *queue)
{
	u32 peers = 0;

	for (u32 word = 0; word < EDM_LEVELS * d->words; word++)
		for (u64 left = queue->set[word]; left; left &= left - 1)
			peers++;
	return peers == queue->peers;
}

static const char *demand_check_pair(const struct edm_demands *d, u16 source, u16 destination,
				     u32 *queued)
{
	const struct edm_demand *first = edm_demand_first(d, source, destination);
	u32 count = 0;

	for (const struct edm_demand *demand = first; demand; demand = demand->next) {
		if (demand->state != EDM_QUEUED || demand->granted >= demand->size)
			return "a message without bytes is queued";
		if (demand->source != source || demand->destination != destination)
			return "a message is in another pair's queue";
		count++;
	}
	if (count > 2U * d->config.active_max)
		return "a pair has more than 2 X messages";
	for (u32 level = 0; level < EDM_LEVELS; level++) {
		const u32 at = level * d->words;
		bool in = d->in[destination].set[at + source / 64] >> (source % 64) & 1;
		bool out = d->out[source].set[at + destination / 64] >> (destination % 64) & 1;
		bool wanted = first && first->level == level;

		if (in != wanted || out != wanted)
			return "a pair is not in its first message's level alone";
	}
	*queued += count;
	return NULL;
}

const char *edm_demand_check(const struct edm_demands *d)
{
	u32 queued = 0, live = 0;

	for (u16 source = 0; source < d->config.ports; source++) {
		for (u16 destination = 0; destination < d->config.ports; destination++) {
			const char *broken = demand_check_pair(d, source, destination, &queued);

			if (broken)
				return broken;
		}
		if (!demand_counts_peers(d, &d->in[source]) ||
		    !demand_counts_peers(d, &d->out[source]))
			return "a port's count of peers is wrong";
	}
	for (u32 n = 0; n < (u32)d->config.ports * d->config.slots; n++) {
		live += d->demand[n].state != EDM_FREE;
		if (d->demand[n].granted > d->demand[n].size)
			return "more is granted than a message has";
	}
	if (queued != d->queued || live != d->live)
		return "a count is wrong";
	return NULL;
}
