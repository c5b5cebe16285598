// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/store.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/node/common.h"

#define MAGIC 0x65726f74732e6d72ULL

_Static_assert(sizeof(struct rmem_session) <= RMEM_UNDO_BYTES, "a session can be undone");
_Static_assert(sizeof(struct rmem_spans) <= RMEM_UNDO_BYTES, "a space's spans can be undone");
_Static_assert(sizeof(struct rmem_name) <= RMEM_UNDO_BYTES, "a name can be undone");

#define AT(type, field) __builtin_offsetof(struct type, field)

/* Another value for each layout of the store's structures. */
static u64 store_layout(void)
{
	static const u64 parts[] = {
		RMEM_STORE_VERSION,
		RMEM_WINDOW,
		RMEM_REPLAY,
		RMEM_NAMES_MAX,
		sizeof(struct rmem_store),
		AT(rmem_store, work),
		AT(rmem_store, undo),
		AT(rmem_store, redo),
		AT(rmem_store, redo.payload),
		AT(rmem_store, node),
		sizeof(struct rmem_head),
		sizeof(struct rmem_node),
		AT(rmem_node, table),
		AT(rmem_node, alloc),
		AT(rmem_node, pool.fresh),
		AT(rmem_node, spaces),
		AT(rmem_node, sessions.generation),
		AT(rmem_node, sessions.secret),
		sizeof(struct rmem_bucket),
		sizeof(struct rmem_region),
		AT(rmem_region, session),
		AT(rmem_region, id),
		AT(rmem_region, space_index),
		sizeof(struct rmem_space),
		AT(rmem_space, key),
		AT(rmem_space, required),
		AT(rmem_space, base),
		AT(rmem_space, member),
		AT(rmem_space, revoked),
		AT(rmem_space, spans),
		AT(rmem_space, quota_pages),
		sizeof(struct rmem_name),
		sizeof(struct rmem_session),
		AT(rmem_session, floor),
		AT(rmem_session, rising),
		AT(rmem_session, peer),
		AT(rmem_session, place),
		AT(rmem_session, refused_id),
		AT(rmem_session, alloc_id),
		AT(rmem_session, nonce),
		AT(rmem_session, client),
		AT(rmem_session, keys),
		AT(rmem_session, node_key),
	};
	u64 hash = 0;
	u32 n;

	for (n = 0; n < sizeof(parts) / sizeof(*parts); n++)
		hash = base_mix64(hash ^ parts[n]);
	return hash;
}

size_t rmem_store_bytes(const struct rmem_node_config *config)
{
	return sizeof(struct rmem_store) + rmem_node_state_bytes(config);
}

static void store_connect(struct rmem_store *store)
{
	store->node.store = store;
	store->node.alloc.undo = &store->undo;
	store->node.sessions.undo = &store->undo;
	store->node.running = NULL;
}

void rmem_store_init(struct rmem_store *store, const struct rmem_node_config *config)
{
	rmem_node_init(&store->node, config, store + 1);
	store_connect(store);
	store->layout = store_layout();
	rmem_undo_order();
	store->magic = MAGIC;
}

void rmem_store_lapse(struct rmem_store *store)
{
	__atomic_store_n(&store->lapsed, 1, __ATOMIC_RELEASE);
}

/* ---- can it be taken over? ------------------------------------------------------------------ */

/* Was it made with this configuration? Its boot and seed are its own. */
static bool store_same_config(const struct rmem_node_config *its,
			      const struct rmem_node_config *config)
{
	return its->pages == config->pages && its->page_shift == config->page_shift &&
	       its->pool_pages == config->pool_pages && its->piece_bytes == config->piece_bytes &&
	       its->spaces_max == config->spaces_max &&
	       its->sessions_max == config->sessions_max &&
	       its->regions_max == config->regions_max && its->window_ids == config->window_ids &&
	       !its->persistent_pages && !config->persistent_pages &&
	       its->challenges == config->challenges;
}

/* Can everything that leads from one table into another be followed? */
static bool store_is_sound(const struct rmem_node *node)
{
	const struct rmem_node_config *config = &node->config;
	u32 n;

	if (node->pool.fresh > config->pages || node->store->work.region > config->regions_max)
		return false;
	for (n = 0; n < config->spaces_max; n++) {
		const struct rmem_space *space = &node->spaces.slot[n];

		if (space->id && (space->base > config->spaces_max || !space->spans.count ||
				  space->spans.count > RMEM_SPANS_MAX))
			return false;
	}
	for (n = 0; n < config->sessions_max; n++) {
		const struct rmem_place *place = &node->sessions.slot[n].place;

		if (place->index >= config->spaces_max || place->memory >= config->spaces_max)
			return false;
	}
	for (n = 0; n < config->regions_max; n++) {
		const struct rmem_region *region = &node->alloc.region[n];

		if (region->vpn && (region->space_index >= config->spaces_max || !region->pages ||
				    region->pages > config->pages ||
				    region->vpn >= node->alloc.vpn_max - region->pages))
			return false;
	}
	return true;
}

/* ---- putting it right ----------------------------------------------------------------------- */

/* Does the undone object lie in the store? */
static bool store_undo_is_sound(const struct rmem_store *store,
				const struct rmem_node_config *config)
{
	const s64 before = AT(rmem_store, undo);
	const s64 behind = (s64)rmem_store_bytes(config) - before;
	const struct rmem_undo *undo = &store->undo;

	return !undo->armed || (undo->bytes <= RMEM_UNDO_BYTES && undo->offset >= -before &&
				undo->offset <= behind - (s64)undo->bytes &&
				undo->slot <= config->sessions_max);
}

/* Before the sessions are located: the copy of one has the former process's pointers. */
static void store_undo(struct rmem_store *store)
{
	struct rmem_undo *undo = &store->undo;

	if (undo->armed && !undo->slot)
		base_copy((u8 *)undo + undo->offset, undo->old, undo->bytes);
}

static void store_undo_unless_marked(struct rmem_store *store)
{
	const struct rmem_sessions *sessions = &store->node.sessions;
	struct rmem_undo *undo = &store->undo;

	if (undo->armed && undo->slot &&
	    !rmem_session_is_done(&sessions->slot[undo->slot - 1], undo->id))
		base_copy((u8 *)undo + undo->offset, undo->old, undo->bytes);
	rmem_undo_end(undo);
	rmem_seal_wipe(undo->old, sizeof(undo->old));
}

static void store_drop_region(struct rmem_node *node, struct rmem_region *region)
{
	u64 n;

	rmem_names_withdraw(&node->names, region->space_index, region->vpn);
	for (n = 0; n < region->pages; n++)
		rmem_table_drop(&node->table, region->space_index, region->vpn + n);
	rmem_undo_order();
	region->vpn = 0;
}

static void store_drop_of(struct rmem_node *node, u64 origin, u64 from, u64 to)
{
	u32 n;

	for (n = 0; n < node->alloc.regions_max; n++) {
		struct rmem_region *region = rmem_alloc_at(&node->alloc, n);

		if (region && region->session == origin && region->id >= from && region->id <= to)
			store_drop_region(node, region);
	}
}

static void store_end_work(struct rmem_node *node)
{
	const struct rmem_work *work = &node->store->work;
	struct rmem_session *session = rmem_sessions_by_origin(&node->sessions, work->origin);
	struct rmem_region *region = NULL;

	switch (work->kind) {
	case RMEM_WORK_ALLOC:
		if (!session || !rmem_session_is_done(session, work->id))
			store_drop_of(node, work->origin, work->id, work->id);
		break;
	case RMEM_WORK_FREE:
		region = rmem_alloc_at(&node->alloc, work->region - 1);
		if (region)
			store_drop_region(node, region);
		rmem_undo_order();
		if (session)
			rmem_session_done(session, work->id);
		break;
	case RMEM_WORK_END:
		if (!session)
			store_drop_of(node, work->origin, work->id, ~0ULL);
		break;
	case RMEM_WORK_SPACE:
		if (rmem_spaces_find(&node->spaces, (u32)work->id))
			rmem_spaces_del(&node->spaces, (u32)work->id);
		break;
	default:
		break;
	}
	rmem_work_end(node);
}

/* A region's pages come and go while it is one, so one that lacks some was made or freed. */
static u64 store_drop_incomplete(struct rmem_node *node)
{
	u64 pages = 0, at;
	u32 n;

	for (n = 0; n < node->alloc.regions_max; n++) {
		struct rmem_region *region = rmem_alloc_at(&node->alloc, n);
		struct rmem_entry entry;

		if (!region)
			continue;
		for (at = 0; at < region->pages; at++)
			if (!rmem_table_find(&node->table, region->space_index, region->vpn + at,
					     &entry))
				break;
		if (at < region->pages)
			store_drop_region(node, region);
		else
			pages += region->pages;
	}
	return pages;
}

struct taken {
	struct rmem_pool *pool;
	bool all; /* each page was in one entry, and can be */
};

static void store_page_taken(void *of, u32 page)
{
	struct taken *taken = of;

	taken->all = taken->all && rmem_pool_rebuild_taken(taken->pool, page);
}

const char *rmem_store_take(struct rmem_store *store, const struct rmem_node_config *config,
			    u64 now_ns)
{
	struct rmem_node *node = &store->node;
	struct taken taken = { &node->pool, true };
	u64 pages;

	if (store->magic != MAGIC)
		return "it had another size, or was never complete: is --memory as before?";
	if (store->layout != store_layout())
		return "another version of the daemon made it, which lays it out otherwise";
	if (!store_same_config(&node->config, config))
		return "it was made with other sizes: --memory, --page, --pool or of its tables";
	if (store->lapsed)
		return "an offload was loaded, whose calls it can't hold";
	if (!store_undo_is_sound(store, config))
		return "its tables contradict each other";
	store_undo(store);
	node->config.cipher = config->cipher;
	node->config.session_idle_ms = config->session_idle_ms;
	rmem_node_locate(node, store + 1);
	store_connect(store);
	node->has_16 = rmem_atomic_has_16();
	if (!store_is_sound(node))
		return "its tables contradict each other";
	rmem_sessions_rebuild(&node->sessions, now_ns);
	store_undo_unless_marked(store);
	rmem_spaces_rebuild(&node->spaces);
	rmem_alloc_rebuild(&node->alloc, &node->spaces);
	store_end_work(node);
	pages = store_drop_incomplete(node);
	rmem_alloc_rebuild(&node->alloc, &node->spaces);
	rmem_pool_rebuild_begin(&node->pool);
	if (rmem_table_recount(&node->table, store_page_taken, &taken) != pages || !taken.all)
		return "its tables contradict each other";
	rmem_pool_rebuild_end(&node->pool, node->config.spaces_max);
	rmem_node_space_wipe(node);
	return NULL;
}

/* ---- the change that was under way ---------------------------------------------------------- */

/* The integer still has the value noted, so the operation is to be executed; or it was. */
static void store_redo_integer(const struct rmem_redo *redo, u32 bytes, void *place,
			       struct rmem_answer *answer)
{
	static const struct rmem_operands zero;
	struct rmem_found now;

	rmem_atomic_apply(place, RMEM_CAS, bytes, &zero, &now);
	if (now.value[0] != redo->found.value[0] || now.value[1] != redo->found.value[1])
		rmem_session_keep(answer->session, answer->reply.id, &redo->found);
	else if (answer->action == RMEM_ACT_ATOMIC)
		rmem_node_atomic(redo->payload, place, answer);
	else
		rmem_node_put(redo->payload, place, answer);
}

void rmem_store_redo(struct rmem_store *store, const struct rmem_execute_ops *ops, void *carrier,
		     u64 now_ns)
{
	struct rmem_node *node = &store->node;
	struct rmem_redo *redo = &store->redo;
	const struct rmem_head *head = &redo->head;
	struct rmem_answer answer;
	struct rmem_put put;

	if (redo->stage == RMEM_REDO_NONE)
		return;
	rmem_node_request(node, now_ns, head, redo->payload, &redo->peer, &answer);
	if (redo->stage == RMEM_REDO_INTEGER && answer.action == RMEM_ACT_ATOMIC) {
		store_redo_integer(redo, head->len, ops->at(carrier, &answer.extent[0]), &answer);
	} else if (redo->stage == RMEM_REDO_INTEGER && answer.action == RMEM_ACT_PUT) {
		base_copy(&put, redo->payload, sizeof(put));
		store_redo_integer(redo, base_load_le32(&put.bytes),
				   ops->at(carrier, &answer.integer), &answer);
	} else {
		rmem_execute(node, ops, carrier, head, redo->payload, &answer);
	}
	rmem_redo_end(redo);
}
