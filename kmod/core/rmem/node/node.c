// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/node.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/node/common.h"

#define STATE_ALIGN 64

#define ROW(reason, status, counter) [RMEM_NODE_##reason] = RMEM_##status,
static const u8 status_of[RMEM_NODE_REASONS] = { RMEM_NODE_REASON_ROWS(ROW) };
#undef ROW

#define COUNT(...) +1
_Static_assert(0 RMEM_NODE_REASON_ROWS(COUNT) == RMEM_NODE_REASONS, "each reason has one row");
#undef COUNT

/* ---- configuration and state ---------------------------------------------------------------- */

static u32 node_window_of(const struct rmem_node_config *config)
{
	return config->window_ids ? config->window_ids : RMEM_WINDOW;
}

const char *rmem_node_config_error(const struct rmem_node_config *config)
{
	if (!config->boot)
		return "boot epoch is 0";
	if (!config->pages || config->pages > RMEM_NODE_PAGES_MAX)
		return "number of pages out of range";
	if (config->persistent_pages >= config->pages)
		return "no pages but persistent ones";
	if (config->page_shift < RMEM_PAGE_SHIFT_MIN || config->page_shift > RMEM_PAGE_SHIFT_MAX)
		return "page size out of range";
	if (config->pool_pages < 2 || config->pool_pages > RMEM_NODE_PAGES_MAX ||
	    !base_is_pow2(config->pool_pages))
		return "pool is not a power of two pages, 2 or more";
	if (config->piece_bytes < RMEM_PIECE_BYTES_MIN ||
	    config->piece_bytes > RMEM_PIECE_BYTES_MAX)
		return "payload of a packet out of range";
	if (!config->spaces_max || config->spaces_max > RMEM_SPACES_MAX)
		return "number of spaces out of range";
	if (!config->sessions_max || config->sessions_max > RMEM_SESSIONS_MAX)
		return "number of sessions out of range";
	if (!config->regions_max || config->regions_max > RMEM_REGIONS_MAX)
		return "number of regions out of range";
	if (config->window_ids > RMEM_WINDOW || !base_is_pow2(node_window_of(config)))
		return "window is not a power of two, or too large";
	return NULL;
}

/* Where each part lies in the state. */
struct layout {
	size_t table, alloc, pool, spaces, names, sessions, total;
};

static size_t node_place(struct layout *layout, size_t bytes)
{
	size_t at = layout->total;

	layout->total = base_round_up(at + bytes, STATE_ALIGN);
	return at;
}

static struct layout node_lay_out(const struct rmem_node_config *config)
{
	struct layout layout = { 0 };

	layout.table = node_place(&layout, rmem_table_bytes(config->pages));
	layout.alloc = node_place(&layout, rmem_alloc_bytes(config->regions_max));
	layout.pool = node_place(&layout, rmem_pool_bytes(config->pages, config->pool_pages,
							  config->spaces_max));
	layout.spaces = node_place(&layout, rmem_spaces_bytes(config->spaces_max));
	layout.names = node_place(&layout, rmem_names_bytes(config->spaces_max));
	layout.sessions =
		node_place(&layout,
			   rmem_sessions_bytes(config->sessions_max, node_window_of(config)));
	return layout;
}

size_t rmem_node_state_bytes(const struct rmem_node_config *config)
{
	return node_lay_out(config).total;
}

void rmem_node_locate(struct rmem_node *node, void *state)
{
	const struct rmem_node_config *config = &node->config;
	struct layout layout = node_lay_out(config);
	u8 *memory = state;

	rmem_table_locate(&node->table, memory + layout.table, config->pages);
	rmem_alloc_locate(&node->alloc, memory + layout.alloc, config->regions_max);
	rmem_pool_locate(&node->pool, memory + layout.pool,
			 config->pages - config->persistent_pages, config->pool_pages);
	rmem_spaces_locate(&node->spaces, memory + layout.spaces, config->spaces_max);
	node->names.entry = (struct rmem_name *)(memory + layout.names);
	rmem_sessions_locate(&node->sessions, memory + layout.sessions, config->sessions_max,
			     node_window_of(config));
}

void rmem_node_init(struct rmem_node *node, const struct rmem_node_config *config, void *state)
{
	struct layout layout = node_lay_out(config);
	struct base_siphash_key secret = { { config->seed[2], config->seed[3] } };
	u8 *memory = state;

	node->config = *config;
	if (!config->step_pages)
		node->config.step_pages = RMEM_NODE_STEP_PAGES;
	rmem_table_init(&node->table, memory + layout.table, config->pages, config->seed);
	rmem_alloc_init(&node->alloc, memory + layout.alloc, config->regions_max, config->pages,
			config->page_shift, config->seed);
	rmem_pool_init(&node->pool, memory + layout.pool,
		       config->pages - config->persistent_pages, config->pool_pages,
		       config->spaces_max);
	rmem_spaces_init(&node->spaces, memory + layout.spaces, config->spaces_max);
	rmem_names_init(&node->names, memory + layout.names, config->spaces_max);
	rmem_sessions_init(&node->sessions, memory + layout.sessions, config->sessions_max,
			   node_window_of(config), base_mix64(config->boot), &secret);
	node->store = NULL;
	node->running = NULL;
	node->has_16 = rmem_atomic_has_16();
	node->persistent = false;
}

bool rmem_node_add_persistent(struct rmem_node *node, u32 space, u64 addr)
{
	const struct rmem_node_config *config = &node->config;
	const struct rmem_space *found = rmem_spaces_find(&node->spaces, space);
	struct rmem_alloc_request request = { .pages = config->persistent_pages,
					      .vpn = addr >> config->page_shift,
					      .perm = RMEM_PTE_READ };
	struct rmem_alloc_work work;
	struct rmem_place place;
	u64 n;

	if (!found || rmem_spaces_base(&node->spaces, found))
		return false;
	rmem_spaces_place(&node->spaces, found, &place);
	if (!rmem_alloc_make(&node->alloc, &node->spaces, place.memory, &request, &work))
		return false;
	while (rmem_alloc_step(&node->alloc, &node->table, &node->spaces, &node->pool, &work,
			       node->config.step_pages))
		;
	if (!work.region || work.region->vpn != request.vpn)
		return false;
	for (n = 0; n < request.pages; n++) {
		struct rmem_entry entry;
		u32 pte = rmem_table_find(&node->table, place.memory, request.vpn + n, &entry);
		bool placed;

		rmem_table_back(&entry, pte, config->pages - request.pages + n, &placed);
	}
	node->persistent_memory = place.memory;
	node->persistent = true;
	return true;
}

bool rmem_node_is_persistent(const struct rmem_node *node, const struct rmem_space *space)
{
	struct rmem_place place;

	rmem_spaces_place(&node->spaces, space, &place);
	return node->persistent && place.index == node->persistent_memory;
}

void rmem_node_reboot(struct rmem_node *node, u64 boot)
{
	/* Pairs with rmem_node_boot(). */
	__atomic_store_n(&node->config.boot, boot, __ATOMIC_RELEASE);
}

/* ---- spaces --------------------------------------------------------------------------------- */

enum rmem_space_error rmem_node_space_add(struct rmem_node *node, u32 space,
					  const u8 key[BASE_SIPHASH_KEY_BYTES], u64 quota_bytes)
{
	u64 quota_pages = quota_bytes >> node->config.page_shift;

	if (quota_bytes && !quota_pages)
		return RMEM_SPACE_QUOTA;
	return rmem_spaces_add(&node->spaces, space, key, quota_pages);
}

enum rmem_space_error rmem_node_space_add_view(struct rmem_node *node, u32 space,
					       const u8 key[BASE_SIPHASH_KEY_BYTES], u32 base)
{
	return rmem_spaces_add_view(&node->spaces, space, key, base, false);
}

enum rmem_space_error rmem_node_space_add_member(struct rmem_node *node, u32 space,
						 const u8 key[BASE_SIPHASH_KEY_BYTES], u32 base)
{
	return rmem_spaces_add_view(&node->spaces, space, key, base, true);
}

enum rmem_space_error rmem_node_space_del(struct rmem_node *node, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	if (found && rmem_node_is_persistent(node, found))
		return RMEM_SPACE_PERSISTENT;
	return rmem_spaces_del(&node->spaces, space);
}

bool rmem_node_space_is_view(const struct rmem_node *node, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	return found && found->base;
}

enum rmem_space_error rmem_node_space_revoke(struct rmem_node *node, u32 space)
{
	return rmem_spaces_revoke(&node->spaces, space);
}

void rmem_node_space_require(struct rmem_node *node, u32 space, u8 integrity)
{
	rmem_spaces_find(&node->spaces, space)->required = integrity;
}

void rmem_node_space_wipe(struct rmem_node *node)
{
	u32 n;

	rmem_spaces_wipe(&node->spaces);
	for (n = 0; n < node->sessions.slots; n++)
		if (!rmem_spaces_has(&node->spaces, &node->sessions.slot[n].place))
			rmem_session_forget_keys(&node->sessions.slot[n]);
}

u64 rmem_node_incarnation(const struct rmem_node *node, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	return found ? found->incarnation : 0;
}

u32 rmem_node_lane(const struct rmem_node *node, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	return found ? found - node->spaces.slot : 0;
}

const struct base_siphash_key *rmem_node_key(const struct rmem_node *node, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	return found && !rmem_space_is_revoked(found) ? &found->key : NULL;
}

bool rmem_node_keys(const struct rmem_node *node, const struct rmem_head *head,
		    struct rmem_seal_keys *keys)
{
	return rmem_sessions_keys(&node->sessions, head->session, head->space, keys);
}

/* ---- shared by all requests ----------------------------------------------------------------- */

u32 rmem_node_slot(const struct rmem_node *node, u64 session)
{
	return rmem_sessions_slot_of(&node->sessions, session);
}

static void node_reply_to(const struct rmem_node *node, const struct rmem_head *head, u8 status,
			  struct rmem_head *reply)
{
	*reply = *head;
	reply->type = head->type | RMEM_RESPONSE;
	reply->status = status;
	reply->boot = rmem_node_boot(node);
	reply->more = false;
	reply->number = 0; /* the carrier's */
	reply->floor = 0;
	reply->offset = 0;
	reply->digest = 0;
	reply->piece = 0;
}

void rmem_node_notice(const struct rmem_node *node, const struct rmem_head *head,
		      struct rmem_head *notice)
{
	struct rmem_head closes = { .type = RMEM_CLOSE,
				    .integrity = RMEM_SEALED,
				    .clear = true,
				    .space = head->space,
				    .session = head->session };
	bool rebooted = head->boot != rmem_node_boot(node);

	node_reply_to(node, &closes, rebooted ? RMEM_REBOOTED : RMEM_NO_SESSION, notice);
}

void rmem_node_answer(const struct rmem_node *node, const struct rmem_head *head,
		      enum rmem_node_reason reason, struct rmem_answer *answer)
{
	answer->action = RMEM_ACT_REPLY;
	answer->reason = reason;
	answer->extents = 0;
	node_reply_to(node, head, status_of[reason], &answer->reply);
}

enum rmem_node_reason rmem_node_identify(struct rmem_node *node, u64 now_ns,
					 const struct rmem_head *head, const struct rmem_peer *peer,
					 struct rmem_session **found)
{
	struct rmem_session *session;

	if (!head->plain && head->boot != rmem_node_boot(node))
		return RMEM_NODE_REBOOTED;
	session = rmem_sessions_find(&node->sessions, head->session);
	if (!session || !rmem_spaces_has(&node->spaces, &session->place) ||
	    rmem_space_is_revoked(&node->spaces.slot[session->place.index]))
		return RMEM_NODE_NO_SESSION;
	if ((!head->plain && session->place.space != head->space) ||
	    session->integrity != head->integrity)
		return RMEM_NODE_LEVEL;
	if (!rmem_peer_equal(&session->peer, peer))
		return RMEM_NODE_PEER;
	if (head->plain && session->boot != rmem_node_boot(node))
		return RMEM_NODE_REBOOTED;
	rmem_session_touch(session, head->id, now_ns);
	*found = session;
	return RMEM_NODE_OK;
}

bool rmem_node_refuses(const struct rmem_node *node, const struct rmem_head *head,
		       struct rmem_answer *answer)
{
	enum rmem_node_reason reason;
	u32 space;

	if (!head->plain && head->boot != rmem_node_boot(node))
		reason = RMEM_NODE_REBOOTED;
	else if (!rmem_sessions_names(&node->sessions, head->session, &space))
		reason = RMEM_NODE_NO_SESSION;
	else if (!head->plain && space != head->space)
		reason = RMEM_NODE_LEVEL;
	else
		return false;
	rmem_node_answer(node, head, reason, answer);
	answer->session = NULL;
	return true;
}

bool rmem_node_damaged(struct rmem_node *node, u64 now_ns, const struct rmem_head *head,
		       const struct rmem_peer *peer, struct rmem_head *reply)
{
	struct rmem_session *session;

	if (rmem_node_identify(node, now_ns, head, peer, &session) != RMEM_NODE_OK)
		return false;
	node_reply_to(node, head, RMEM_DAMAGED, reply);
	return true;
}

enum rmem_node_reason rmem_node_judge(struct rmem_session *session, const struct rmem_head *head)
{
	switch (rmem_session_check(session, head->id, head->floor)) {
	case RMEM_SESSION_FRESH:
		/* A session is of a view for good, so this needs no mark to be said again. */
		return session->place.read_only && rmem_type_changes(head->type) ?
			       RMEM_NODE_PERM :
			       RMEM_NODE_OK;
	case RMEM_SESSION_REPEATED:
		return RMEM_NODE_REPEATED;
	case RMEM_SESSION_REFUSED:
		return RMEM_NODE_FAULT;
	case RMEM_SESSION_RUNNING:
		return RMEM_NODE_RUNNING;
	case RMEM_SESSION_STALE:
		return RMEM_NODE_STALE;
	default:
		return RMEM_NODE_WINDOW;
	}
}

/* ---- background and status ------------------------------------------------------------------ */

u32 rmem_node_scrub_next(struct rmem_node *node, bool *used)
{
	u32 page;

	return rmem_pool_scrub_next(&node->pool, &page, used) ? page : RMEM_PAGE_NONE;
}

u32 rmem_node_scrub_quiet(struct rmem_node *node)
{
	u32 page;

	return rmem_pool_scrub_quiet(&node->pool, &page) ? page : RMEM_PAGE_NONE;
}

bool rmem_node_grace_begin(struct rmem_node *node)
{
	return rmem_pool_grace_begin(&node->pool);
}

void rmem_node_grace_end(struct rmem_node *node)
{
	rmem_pool_grace_end(&node->pool);
}

bool rmem_node_grace_wanted(const struct rmem_node *node)
{
	return rmem_pool_grace_wanted(&node->pool);
}

void rmem_node_scrub_done(struct rmem_node *node, u32 page)
{
	rmem_pool_scrub_done(&node->pool, page);
}

void rmem_node_scrub_later(struct rmem_node *node, u32 page)
{
	rmem_pool_scrub_later(&node->pool, page);
}

bool rmem_node_scrub_wanted(const struct rmem_node *node)
{
	return rmem_pool_scrub_wanted(&node->pool);
}

void rmem_node_usage(const struct rmem_node *node, struct rmem_node_usage *usage)
{
	usage->pages = node->config.pages;
	usage->pages_promised = node->alloc.pages_promised;
	usage->pages_backed = node->config.pages - rmem_pool_unused(&node->pool);
	usage->pages_ready = rmem_pool_ready(&node->pool);
	usage->alloc_retries = node->alloc.retries;
	usage->alloc_retries_worst = node->alloc.retries_worst;
	usage->allocs_undone = node->alloc.undone;
	usage->spaces = node->spaces.in_use;
	usage->regions = node->alloc.in_use;
	usage->sessions = node->sessions.in_use;
}
