// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/leaf.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"

bool edm_leaf_config_is_valid(const struct edm_leaf_config *config)
{
	const u32 hosts = (u32)config->leaves * config->hosts;

	return edm_match_config_is_valid(&config->match) && config->hosts &&
	       config->leaf < config->leaves &&
	       config->window_bytes >= config->match.chunk_bytes &&
	       (config->leaves == 1 ? config->match.demand.ports == hosts
				    : config->match.demand.ports == hosts + config->leaves &&
					      config->hosts <= config->match.demand.slots);
}

/* ---- memory ---- */

static size_t leaf_lay_out(struct edm_leaf *l, const struct edm_leaf_config *config, void *memory)
{
	const u32 hosts = (u32)config->leaves * config->hosts;
	size_t used = 0;

	l->queue = base_carve(memory, &used, hosts * sizeof(*l->queue));
	l->offered = base_carve(memory, &used, hosts * sizeof(*l->offered));
	l->offers = base_carve(memory, &used, hosts * sizeof(*l->offers));
	return used;
}

size_t edm_leaf_bytes(const struct edm_leaf_config *config)
{
	struct edm_leaf l;

	return leaf_lay_out(&l, config, NULL) + edm_match_bytes(&config->match);
}

void edm_leaf_init(struct edm_leaf *l, const struct edm_leaf_config *config, void *memory)
{
	size_t used;

	base_zero(l, sizeof(*l));
	l->config = *config;
	used = leaf_lay_out(l, config, memory);
	base_zero(memory, used);
	edm_match_init(&l->match, &config->match, (char *)memory + used);
}

/* ---- offers of other leaves ---- */

/* Offers of the leaf with that port with one of this leaf's hosts. */
static struct edm_leaf_queue *leaf_queue(struct edm_leaf *l, u16 port, u16 source)
{
	return &l->queue[(port - edm_leaf_port(l, 0)) * l->config.hosts + source % l->config.hosts];
}

static struct edm_offer *leaf_first(struct edm_leaf_queue *queue)
{
	return &queue->offer[queue->head % EDM_LEAF_OFFERS];
}

/*
 * The first offer becomes a demand. The announcer is the other leaf, which has a slot for each of
 * this leaf's hosts.
 */
static void leaf_demand(struct edm_leaf *l, u64 now_ns, struct edm_leaf_queue *queue)
{
	const struct edm_offer *offer = leaf_first(queue);
	struct edm_demand *demand;
	struct edm_announcement a = {
		.id = queue->next++ * l->config.match.demand.slots +
		      offer->source % l->config.hosts,
		.size = offer->bytes,
		.beyond = offer->beyond,
		.source = offer->source,
		.destination = edm_leaf_port(l, edm_leaf_of(l, offer->destination)),
		.type = EDM_READ,
	};

	/* One at a time, so the pair is never full. */
	edm_match_announce(&l->match, now_ns, &a, &demand);
}

bool edm_leaf_offer(struct edm_leaf *l, u64 now_ns, const struct edm_offer *offer)
{
	const u16 port = edm_leaf_port(l, edm_leaf_of(l, offer->destination));
	struct edm_leaf_queue *queue = leaf_queue(l, port, offer->source);

	if (queue->count == EDM_LEAF_OFFERS)
		return false;
	queue->offer[(queue->head + queue->count++) % EDM_LEAF_OFFERS] = *offer;
	if (queue->count == 1)
		leaf_demand(l, now_ns, queue);
	return true;
}

/* An offer was booked, or a part of it. */
static void leaf_take(struct edm_leaf *l, u64 now_ns, const struct edm_booking *booking,
		      struct edm_leaf_action *action)
{
	const u16 port = booking->demand->destination;
	struct edm_leaf_queue *queue = leaf_queue(l, port, booking->demand->source);
	struct edm_offer *offer = leaf_first(queue);

	action->chunk = *offer;
	action->chunk.bytes = booking->bytes;
	action->chunk.end = offer->end - offer->bytes + booking->end;
	action->chunk.beyond = offer->beyond + offer->bytes - booking->end;
	action->taken_by = (u16)(port - edm_leaf_port(l, 0));
	action->last = booking->end == offer->bytes;
	offer->request = NULL;
	if (!action->last)
		return;
	queue->head++;
	if (--queue->count)
		leaf_demand(l, now_ns, queue);
}

/* ---- offers to other leaves ---- */

/* A source with a full window gets no offer until its own leaf has taken some. */
static void leaf_pace(struct edm_leaf *l, u16 source)
{
	edm_match_stop(&l->match, EDM_SOURCE, source,
		       l->offered[source] >= l->config.window_bytes ||
			       l->offers[source] >= EDM_LEAF_OFFERS);
}

void edm_leaf_taken(struct edm_leaf *l, u16 source, u32 bytes, bool last)
{
	l->offered[source] -= (u32)base_min(bytes, l->offered[source]);
	l->offers[source] -= last && l->offers[source];
	leaf_pace(l, source);
}

void edm_leaf_booked(struct edm_leaf *l, u64 now_ns, const struct edm_booking *booking,
		     struct edm_leaf_action *action)
{
	struct edm_demand *demand = booking->demand;

	*action = (struct edm_leaf_action){.what = EDM_LEAF_GRANT, .taken_by = EDM_LEAF_NONE};
	if (demand->destination >= edm_leaf_port(l, 0)) {
		leaf_take(l, now_ns, booking, action);
		return;
	}
	action->demand = demand;
	action->chunk = (struct edm_offer){
		.id = demand->id,
		.bytes = booking->bytes,
		.end = booking->end,
		.beyond = demand->size - booking->end,
		.source = demand->source,
		.destination = demand->destination,
		.type = demand->type,
	};
	if (edm_leaf_of(l, demand->source) == l->config.leaf)
		return;
	action->what = EDM_LEAF_OFFER;
	l->offered[demand->source] += booking->bytes;
	l->offers[demand->source]++;
	leaf_pace(l, demand->source);
}

bool edm_leaf_next(struct edm_leaf *l, u64 now_ns, struct edm_leaf_action *action)
{
	struct edm_booking booking;

	if (!edm_match_next(&l->match, now_ns, &booking))
		return false;
	edm_leaf_booked(l, now_ns, &booking, action);
	return true;
}

/* ---- invariants ---- */

const char *edm_leaf_check(const struct edm_leaf *l)
{
	const u32 hosts = (u32)l->config.leaves * l->config.hosts;

	for (u32 host = 0; host < hosts; host++) {
		if (l->offered[host] >= l->config.window_bytes + l->config.match.chunk_bytes ||
		    l->offers[host] > EDM_LEAF_OFFERS)
			return "a source has more offers than a window";
		if (!l->offers[host] != !l->offered[host])
			return "bytes of offers and their number don't agree";
	}
	return edm_match_check(&l->match);
}
