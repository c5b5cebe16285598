// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Calls about memory: its regions, their names, their content. And the beginning of every call. */
#include "core/rmem/node/call.h"

#include "core/base/bytes.h"
#include "core/rmem/node/common.h"
#include "core/rmem/node/step.h"
#include "core/rmem/node/store.h"

enum rmem_node_reason rmem_call_admit(struct rmem_node *node, struct rmem_node_call *call,
				      struct rmem_session **session)
{
	enum rmem_node_reason reason =
		rmem_node_identify(node, call->now_ns, &call->head, &call->peer, session);

	if (*session) {
		call->origin = (*session)->origin;
		call->memory = (*session)->place.memory;
	}
	return reason == RMEM_NODE_OK ? rmem_node_judge(*session, &call->head) : reason;
}

/*
 * The session that the call was admitted for, or NULL: it might have ended between two steps. If it
 * was renewed, head has its former name. Slot lock.
 */
static struct rmem_session *call_admitted(const struct rmem_node *node,
					  const struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[rmem_call_slot(node, call)];

	return session->name != RMEM_SESSION_NONE && session->origin == call->origin ? session :
										       NULL;
}

/* ---- regions -------------------------------------------------------------------------------- */

bool rmem_call_work_on(struct rmem_node *node, struct rmem_node_call *call)
{
	return rmem_alloc_step(&node->alloc, &node->table, &node->spaces, &node->pool, &call->work,
			       node->config.step_pages);
}

void rmem_call_give_back(struct rmem_node *node, struct rmem_node_call *call,
			 struct rmem_region *region, rmem_call_step *next)
{
	rmem_names_withdraw(&node->names, region->space_index, region->vpn);
	rmem_alloc_release(region, &call->work);
	rmem_call_work(call, next, RMEM_CALL_NO_SLOT);
}

bool rmem_call_walk(const struct rmem_node *node, struct rmem_node_call *call, u64 session,
		    u64 from, u64 to, struct rmem_region **found)
{
	u32 left = node->config.step_pages;

	for (; call->at < node->alloc.regions_max && left; call->at++, left--) {
		*found = rmem_alloc_at(&node->alloc, call->at);
		if (*found && (*found)->session == session && (*found)->id >= from &&
		    (*found)->id <= to)
			return true;
	}
	*found = NULL;
	return call->at == node->alloc.regions_max;
}

/* ---- ALLOC ---------------------------------------------------------------------------------- */

static void call_region_answer(struct rmem_node *node, struct rmem_node_call *call,
			       enum rmem_node_reason reason, const struct rmem_region *region)
{
	unsigned int shift = node->config.page_shift;

	rmem_call_finish(node, call, reason);
	call->answer.reply.len = sizeof(call->out.range);
	base_store_le64(&call->out.range.addr, region->vpn << shift);
	base_store_le64(&call->out.range.bytes, region->pages << shift);
}

/* Reads the request, in pages. False: it can never be granted. */
static bool call_read_request(const struct rmem_node *node, const struct rmem_node_call *call,
			      struct rmem_alloc_request *request)
{
	const struct rmem_head *head = &call->head;
	const struct rmem_alloc *wanted = &call->in.alloc;
	u64 bytes = base_load_le64(&wanted->bytes);
	u64 addr = base_load_le64(&wanted->addr);
	u32 perm = base_load_le32(&wanted->perm);

	if (head->addr || head->len != sizeof(*wanted) || base_load_le32(&wanted->reserved))
		return false;
	if (!bytes || addr & rmem_node_offset_mask(node))
		return false;
	if (perm != RMEM_PERM_READ && perm != (RMEM_PERM_READ | RMEM_PERM_WRITE))
		return false;
	request->pages = ((bytes - 1) >> node->config.page_shift) + 1;
	request->vpn = rmem_node_vpn(node, addr);
	request->perm = RMEM_PTE_READ | (perm & RMEM_PERM_WRITE ? RMEM_PTE_WRITE : 0);
	request->session = call->origin;
	request->id = head->id;
	return true;
}

/* An ALLOC executed before: finds its region, or how it ended. */
static void call_alloc_look_up(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_region *region;
	u64 id = call->head.id;

	if (!rmem_call_walk(node, call, call->origin, id, id, &region))
		return;
	if (region)
		call_region_answer(node, call, RMEM_NODE_REPEATED, region);
	else
		rmem_call_finish(node, call, RMEM_NODE_NO_MEMORY);
}

static void call_alloc_undo(struct rmem_node *node, struct rmem_node_call *call)
{
	if (rmem_call_work_on(node, call))
		return;
	rmem_work_end(node);
	rmem_call_finish(node, call, RMEM_NODE_STALE);
}

/*
 * NO_MEMORY is an answer like another: once given, a late copy of the request
 * must not get memory that nobody knows of. So the id is marked, too. If the client
 * has cancelled the request meanwhile, or its session has ended, no client will ever learn of the
 * region.
 */
static void call_alloc_done(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = call_admitted(node, call);
	struct rmem_region *region = call->work.region;

	if (!session || call->head.id < session->floor) {
		if (region) {
			node->alloc.undone++;
			rmem_call_give_back(node, call, region, call_alloc_undo);
		} else {
			rmem_work_end(node);
			rmem_call_finish(node, call, RMEM_NODE_STALE);
		}
		return;
	}
	if (region)
		rmem_session_made(session, call->head.id);
	rmem_undo_order();
	rmem_session_done(session, call->head.id);
	rmem_work_end(node);
	if (!region) {
		rmem_call_finish(node, call, RMEM_NODE_NO_MEMORY);
		return;
	}
	call_region_answer(node, call, RMEM_NODE_OK, region);
}

static void call_alloc_work(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!rmem_call_work_on(node, call))
		rmem_call_go_on(call, call_alloc_done, rmem_call_slot(node, call));
}

static void call_alloc_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	struct rmem_alloc_request request;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);

	if (reason == RMEM_NODE_REPEATED) {
		rmem_call_work(call, call_alloc_look_up, RMEM_CALL_NO_SLOT);
		return;
	}
	if (reason == RMEM_NODE_OK && !call_read_request(node, call, &request))
		reason = RMEM_NODE_LENGTH;
	if (reason != RMEM_NODE_OK) {
		rmem_call_finish(node, call, reason);
		return;
	}
	rmem_work_begin(node, RMEM_WORK_ALLOC, NULL, call->origin, call->head.id);
	if (rmem_alloc_make(&node->alloc, &node->spaces, session->place.memory, &request,
			    &call->work))
		rmem_call_work(call, call_alloc_work, RMEM_CALL_NO_SLOT);
	else
		call_alloc_done(node, call);
}

/* ---- FREE ----------------------------------------------------------------------------------- */

static void call_free_done(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = call_admitted(node, call);

	if (session)
		rmem_session_done(session, call->head.id);
	rmem_work_end(node);
	rmem_call_finish(node, call, session ? RMEM_NODE_OK : RMEM_NODE_NO_SESSION);
}

static void call_free_work(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!rmem_call_work_on(node, call))
		rmem_call_go_on(call, call_free_done, rmem_call_slot(node, call));
}

/* The region that is to be freed, or NULL and why not. */
static struct rmem_region *call_free_find(const struct rmem_node *node,
					  const struct rmem_node_call *call, u32 space_index,
					  enum rmem_node_reason *reason)
{
	const struct rmem_head *head = &call->head;
	u64 addr = base_load_le64(&call->in.range.addr);
	u64 bytes = base_load_le64(&call->in.range.bytes);
	struct rmem_region *region;

	*reason = RMEM_NODE_LENGTH;
	if (head->addr || head->len != sizeof(call->in.range) || !bytes ||
	    (addr | bytes) & rmem_node_offset_mask(node))
		return NULL;
	*reason = RMEM_NODE_FAULT;
	region = rmem_alloc_find(&node->alloc, space_index, rmem_node_vpn(node, addr));
	/* The region of rmem_node_add_persistent(). */
	if (region && !region->session) {
		*reason = RMEM_NODE_PERM;
		return NULL;
	}
	return region && region->pages == bytes >> node->config.page_shift ? region : NULL;
}

static void call_free_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	struct rmem_region *region = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);

	if (reason == RMEM_NODE_OK)
		region = call_free_find(node, call, session->place.memory, &reason);
	if (!region) {
		if (reason == RMEM_NODE_FAULT)
			rmem_session_refuse(session, call->head.id);
		rmem_call_finish(node, call, reason);
		return;
	}
	rmem_work_begin(node, RMEM_WORK_FREE, region, call->origin, call->head.id);
	rmem_call_give_back(node, call, region, call_free_work);
}

/* ---- PUBLISH and LOOKUP --------------------------------------------------------------------- */

static bool call_name_is_sound(const struct rmem_node_call *call)
{
	return !call->head.addr && call->head.len == sizeof(call->in.named) &&
	       rmem_name_is_sound(call->in.named.name);
}

/* RMEM_NODE_OK: *entry is to be changed. */
static enum rmem_node_reason call_publish_judge(const struct rmem_node *node, u32 space_index,
						u64 addr, const u8 name[RMEM_NAME_BYTES],
						struct rmem_name **entry)
{
	*entry = rmem_names_find(&node->names, space_index, name);
	if (!addr)
		return *entry ? RMEM_NODE_OK : RMEM_NODE_NO_NAME;
	if (!rmem_alloc_find(&node->alloc, space_index, rmem_node_vpn(node, addr)))
		return RMEM_NODE_FAULT;
	if (*entry)
		return RMEM_NODE_EXISTS;
	*entry = rmem_names_free(&node->names, space_index);
	return *entry ? RMEM_NODE_OK : RMEM_NODE_NO_MEMORY;
}

static void call_publish(struct rmem_node *node, struct rmem_node_call *call,
			 struct rmem_session *session)
{
	const u8 *name = call->in.named.name;
	u64 addr = base_load_le64(&call->in.named.addr);
	u32 space_index = session->place.memory;
	struct rmem_found found = { 0 };
	struct rmem_name *entry;
	enum rmem_node_reason reason = call_publish_judge(node, space_index, addr, name, &entry);

	base_store_le64(&found.value[0], reason);
	if (reason == RMEM_NODE_OK)
		rmem_undo_begin_unless(node->alloc.undo, entry, sizeof(*entry), call->slot + 1,
				       call->head.id);
	if (reason == RMEM_NODE_OK && addr)
		rmem_names_add(&node->names, space_index, rmem_node_vpn(node, addr), name);
	else if (reason == RMEM_NODE_OK)
		entry->vpn = 0;
	rmem_undo_order();
	rmem_session_keep(session, call->head.id, &found);
	if (reason == RMEM_NODE_OK)
		rmem_undo_end(node->alloc.undo);
	rmem_call_finish(node, call, reason);
}

/* The first answer again. A client that used the id for another type gets an arbitrary refusal. */
static enum rmem_node_reason call_publish_replay(const struct rmem_session *session, u64 id)
{
	struct rmem_found found;
	u64 kept;

	rmem_session_replay(session, id, &found);
	kept = base_load_le64(&found.value[0]);
	if (kept == RMEM_NODE_OK)
		return RMEM_NODE_REPEATED;
	return kept < RMEM_NODE_REASONS ? (enum rmem_node_reason)kept : RMEM_NODE_LENGTH;
}

/*
 * A refusal is kept like a success: names come and go, so a late copy of a refused request might be
 * executed else.
 */
static void call_publish_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	u64 addr = base_load_le64(&call->in.named.addr);
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);

	if (reason == RMEM_NODE_REPEATED) {
		reason = call_publish_replay(session, call->head.id);
	} else if (reason == RMEM_NODE_OK &&
		   (!call_name_is_sound(call) || addr & rmem_node_offset_mask(node))) {
		reason = RMEM_NODE_LENGTH;
	} else if (reason == RMEM_NODE_OK && !rmem_session_has_place(session, call->head.id)) {
		reason = RMEM_NODE_BUSY;
	} else if (reason == RMEM_NODE_OK) {
		call_publish(node, call, session);
		return;
	}
	rmem_call_finish(node, call, reason);
}

static void call_lookup_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	struct rmem_region *region = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);
	const struct rmem_name *entry;

	if (reason == RMEM_NODE_OK && (!call_name_is_sound(call) || call->in.named.addr))
		reason = RMEM_NODE_LENGTH;
	if (reason == RMEM_NODE_OK) {
		entry = rmem_names_find(&node->names, session->place.memory, call->in.named.name);
		if (entry)
			region = rmem_alloc_find(&node->alloc, session->place.memory, entry->vpn);
		reason = region ? RMEM_NODE_OK : RMEM_NODE_NO_NAME;
	}
	if (reason == RMEM_NODE_OK)
		call_region_answer(node, call, reason, region);
	else
		rmem_call_finish(node, call, reason);
}

/* ---- LIST ----------------------------------------------------------------------------------- */

bool rmem_node_list(const struct rmem_node *node, const struct rmem_region *region,
		    struct rmem_listed *listed)
{
	unsigned int shift = node->config.page_shift;
	struct rmem_entry entry;
	u32 pte = rmem_table_find(&node->table, region->space_index, region->vpn, &entry);
	const struct rmem_name *name;
	u32 names = 0, n;

	base_zero(listed, sizeof(*listed));
	if (!pte)
		return false;
	base_store_le64(&listed->addr, region->vpn << shift);
	base_store_le64(&listed->bytes, region->pages << shift);
	base_store_le32(&listed->perm,
			RMEM_PERM_READ | (pte & RMEM_PTE_WRITE ? RMEM_PERM_WRITE : 0));
	for (n = 0; n < RMEM_NAMES_MAX; n++) {
		name = &node->names.entry[(size_t)region->space_index * RMEM_NAMES_MAX + n];
		if (name->vpn != region->vpn)
			continue;
		if (!names++ || rmem_name_compare(name->name, listed->name) > 0)
			base_copy(listed->name, name->name, sizeof(listed->name));
	}
	base_store_le32(&listed->names, names);
	return true;
}

/* Addresses aren't in the order of slots, so the walk sees all regions. */
static void call_list_walk(struct rmem_node *node, struct rmem_node_call *call)
{
	u64 mask = rmem_node_offset_mask(node), addr = base_load_le64(&call->in.named.addr);
	u64 from = rmem_node_vpn(node, addr) + !!(addr & mask);
	u32 left = node->config.step_pages;
	const struct rmem_region *region;

	for (; call->at < node->alloc.regions_max && left; call->at++, left--) {
		region = rmem_alloc_at(&node->alloc, call->at);
		if (region && region->space_index == call->memory && region->vpn >= from &&
		    (!call->listed || region->vpn < call->listed))
			call->listed = region->vpn;
	}
	if (call->at < node->alloc.regions_max)
		return;
	rmem_call_finish(node, call, RMEM_NODE_OK);
	call->answer.reply.len = sizeof(call->out.listed);
	base_zero(&call->out.listed, sizeof(call->out.listed));
	region = call->listed ? rmem_alloc_find(&node->alloc, call->memory, call->listed) : NULL;
	if (region)
		rmem_node_list(node, region, &call->out.listed);
}

static void call_list_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);
	const struct rmem_named *named = &call->in.named;
	u32 n;

	if (reason == RMEM_NODE_OK && (call->head.addr || call->head.len != sizeof(*named)))
		reason = RMEM_NODE_LENGTH;
	for (n = 0; n < RMEM_NAME_BYTES && reason == RMEM_NODE_OK; n++)
		if (named->name[n])
			reason = RMEM_NODE_LENGTH;
	if (reason == RMEM_NODE_OK)
		rmem_call_go_on(call, call_list_walk, RMEM_CALL_NO_SLOT);
	else
		rmem_call_finish(node, call, reason);
}

/* ---- ZERO ----------------------------------------------------------------------------------- */

/* The next bytes of a page that is cleared in part. A page that isn't backed is zero already. */
static void call_zero_next(struct rmem_node *node, struct rmem_node_call *call, u32 space_index,
			   int n)
{
	u64 addr = call->cut[n].addr;
	u32 left = call->cut[n].left;
	u32 bytes = left < RMEM_NODE_FILL_BYTES_MAX ? left : RMEM_NODE_FILL_BYTES_MAX;
	struct rmem_entry entry;
	u32 pte = rmem_table_find(&node->table, space_index, rmem_node_vpn(node, addr), &entry);

	call->cut[n].addr += bytes;
	call->cut[n].left -= bytes;
	if (!(pte & RMEM_PTE_BACKED))
		return;
	call->fill.page = pte & RMEM_PTE_PAGE;
	call->fill.offset = rmem_node_offset(node, addr);
	call->fill.bytes = bytes;
}

/*
 * In the slot lock, as a WRITE. The client has given the ZERO up once the floor has passed it, the
 * session has been renewed, or it has ended. Nothing is cleared after that: the client might have
 * written the range since.
 */
static void call_zero_work(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = call_admitted(node, call);

	if (!session || session->name != call->head.session) {
		rmem_call_finish(node, call, RMEM_NODE_NO_SESSION);
	} else if (call->head.id < session->floor) {
		rmem_call_finish(node, call, RMEM_NODE_STALE);
	} else if (call->cut[0].left) {
		call_zero_next(node, call, session->place.memory, 0);
	} else if (call->cut[1].left) {
		call_zero_next(node, call, session->place.memory, 1);
	} else {
		rmem_session_done(session, call->head.id);
		rmem_call_finish(node, call, RMEM_NODE_OK);
	}
}

static void call_zero_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	const struct rmem_head *head = &call->head;
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);

	if (reason == RMEM_NODE_OK) {
		reason = rmem_node_clear(node, session->place.memory, head, &call->answer);
		if (reason == RMEM_NODE_FAULT)
			rmem_session_refuse(session, head->id);
	}
	if (reason != RMEM_NODE_OK) {
		rmem_call_finish(node, call, reason);
		return;
	}
	rmem_node_cuts(node, head, &call->cut[0].left, &call->cut[1].left);
	call->cut[0].addr = head->addr;
	call->cut[1].addr = head->addr + head->len - call->cut[1].left;
	rmem_call_work(call, call_zero_work, call->slot);
}

/* ---- FENCE ---------------------------------------------------------------------------------- */

/* Calls of offloads have numbers. So a FENCE that comes again waits for no more than before. */
static bool call_fence_is_passed(const struct rmem_node *node, const struct rmem_node_call *call,
				 const struct rmem_session *session)
{
	return !rmem_running_has_older(rmem_node_running(node), call->memory,
				       session->fence_number);
}

static void call_fence_await(struct rmem_node *node, struct rmem_node_call *call)
{
	const struct rmem_session *session = call_admitted(node, call);

	if (!session)
		rmem_call_finish(node, call, RMEM_NODE_NO_SESSION);
	else if (call_fence_is_passed(node, call, session))
		rmem_call_finish(node, call, RMEM_NODE_OK);
	else
		rmem_call_await(node, call, call_fence_await, call->slot);
}

static void call_fence_note(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = call_admitted(node, call);

	if (session) {
		session->fence_id = call->head.id;
		session->fence_number = __atomic_load_n(&rmem_node_running(node)->next,
							__ATOMIC_ACQUIRE);
	}
	call_fence_await(node, call);
}

/*
 * A request is executed in one hold of its slot's lock, so after a hold of each lock all earlier
 * requests are done, or calls that have a number. Slots that are unused, or come into use from
 * now on, have no earlier ones, and sessions of another memory have none that concern this one,
 * but for calls, which the run table knows by memory.
 */
static void call_fence_pass(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->at < node->sessions.slots && left; call->at++, left--) {
		const struct rmem_session *session = &node->sessions.slot[call->at];

		if (session->name == RMEM_SESSION_NONE ||
		    (session->place.memory != call->memory && !rmem_node_running(node)))
			continue;
		rmem_call_go_on(call, call_fence_pass, call->at++);
		return;
	}
	if (call->at < node->sessions.slots)
		rmem_call_go_on(call, call_fence_pass, RMEM_CALL_NO_SLOT);
	else if (rmem_node_running(node))
		rmem_call_go_on(call, call_fence_note, rmem_call_slot(node, call));
	else
		rmem_call_finish(node, call, RMEM_NODE_OK);
}

/*
 * A session's FENCEs wait one after the other, so that later ones don't move the note of one that
 * waits. One that comes again finds its own note, or a later one's, which counts for it, too.
 */
static void call_fence_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);

	if (reason == RMEM_NODE_OK && (call->head.addr || call->head.len))
		reason = RMEM_NODE_LENGTH;
	if (reason != RMEM_NODE_OK)
		rmem_call_finish(node, call, reason);
	else if (session->fence_id && !call_fence_is_passed(node, call, session))
		rmem_call_await(node, call, call_fence_admit, call->slot);
	else if (session->fence_id >= call->head.id)
		rmem_call_finish(node, call, RMEM_NODE_OK);
	else
		rmem_call_go_on(call, call_fence_pass, RMEM_CALL_NO_SLOT);
}

/* ---- a space is cleared, or all of them ----------------------------------------------------- */

static bool call_clear_wants_region(const struct rmem_node_call *call,
				    const struct rmem_region *region)
{
	return !call->attempt.place.space || call->attempt.place.index == region->space_index;
}

/*
 * Sessions of a space that had this one's slot before are refused anyhow. The end of one would
 * change call->memory, and with it the spaces whose OPENs wait.
 */
static bool call_clear_wants_session(const struct rmem_node_call *call,
				     const struct rmem_session *session)
{
	return !call->attempt.place.space ||
	       call->attempt.place.incarnation == session->place.incarnation;
}

static void call_clear_find_region(struct rmem_node *node, struct rmem_node_call *call);

static void call_clear_region(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!rmem_call_work_on(node, call))
		rmem_call_go_on(call, call_clear_find_region, RMEM_CALL_NO_SLOT);
}

static void call_clear_find_region(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->at < node->alloc.regions_max && left; call->at++, left--) {
		struct rmem_region *region = rmem_alloc_at(&node->alloc, call->at);

		if (!region || !call_clear_wants_region(call, region))
			continue;
		rmem_call_give_back(node, call, region, call_clear_region);
		/* After a reboot no session begins while an old region is there. */
		call->divisible = call->attempt.place.space;
		return;
	}
	rmem_call_go_on(call, call->at < node->alloc.regions_max ? call_clear_find_region : NULL,
			RMEM_CALL_NO_SLOT);
}

static void call_clear_find_session(struct rmem_node *node, struct rmem_node_call *call);

/*
 * Nothing but calls of offloads can go on meanwhile: no session begins. Each of this session's ends
 * in its next round, and no other begins.
 */
static void call_clear_session(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[call->slot];

	session->drains_ns = ~0ULL;
	__atomic_store_n(&session->stops, true, __ATOMIC_RELAXED);
	call->waits = session->running;
	if (call->waits)
		return;
	if (call->keeps_memory) {
		rmem_call_end_session(node, call, call_clear_find_session);
		return;
	}
	rmem_traffic_settle(node, session);
	rmem_sessions_close(&node->sessions, call->slot);
	rmem_call_go_on(call, call_clear_find_session, RMEM_CALL_NO_SLOT);
}

/* Sessions first: from then on no client of the space is served, or makes regions. */
static void call_clear_find_session(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->session_at < node->sessions.slots && left; call->session_at++, left--) {
		const struct rmem_session *session = &node->sessions.slot[call->session_at];

		if (session->name == RMEM_SESSION_NONE ||
		    !call_clear_wants_session(call, session))
			continue;
		rmem_call_go_on(call, call_clear_session, call->session_at);
		return;
	}
	if (call->session_at < node->sessions.slots)
		return;
	call->at = 0;
	rmem_call_go_on(call, call->keeps_memory ? NULL : call_clear_find_region,
			RMEM_CALL_NO_SLOT);
}

bool rmem_node_call_clear(const struct rmem_node *node, struct rmem_node_call *call, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	base_zero(call, sizeof(*call));
	if (!found || found->views || rmem_node_is_persistent(node, found))
		return false;
	rmem_spaces_place(&node->spaces, found, &call->attempt.place);
	call->memory = call->attempt.place.memory;
	call->keeps_memory = found->base;
	rmem_call_go_on(call, call_clear_find_session, RMEM_CALL_NO_SLOT);
	return true;
}

bool rmem_node_call_revoke(const struct rmem_node *node, struct rmem_node_call *call, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	base_zero(call, sizeof(*call));
	if (!found)
		return false;
	rmem_spaces_place(&node->spaces, found, &call->attempt.place);
	call->memory = call->attempt.place.memory;
	call->keeps_memory = true;
	rmem_call_go_on(call, call_clear_find_session, RMEM_CALL_NO_SLOT);
	return true;
}

void rmem_node_call_forget(struct rmem_node_call *call)
{
	base_zero(call, sizeof(*call));
	rmem_call_go_on(call, call_clear_find_session, RMEM_CALL_NO_SLOT);
}

/* ---- all of them ---------------------------------------------------------------------------- */

void rmem_node_call_begin(const struct rmem_node *node, struct rmem_node_call *call, u64 now_ns,
			  const struct rmem_head *head, const struct rmem_peer *peer,
			  const void *payload)
{
	base_zero(call, sizeof(*call));
	call->head = *head;
	call->peer = *peer;
	call->now_ns = now_ns;
	call->boot = rmem_node_boot(node);
	if (rmem_wire_payload_bytes(head))
		base_copy(&call->in, payload, rmem_wire_payload_bytes(head));
	switch (head->type) {
	case RMEM_OPEN:
		call->challenge = head->addr;
		call->head.addr = 0; /* nor the answer's */
		rmem_call_go_on(call, rmem_call_open, RMEM_CALL_NO_SLOT);
		break;
	case RMEM_CLOSE:
		rmem_call_go_on(call, rmem_call_close, rmem_call_slot(node, call));
		break;
	case RMEM_ALLOC:
		rmem_call_go_on(call, call_alloc_admit, rmem_call_slot(node, call));
		break;
	case RMEM_PUBLISH:
		rmem_call_go_on(call, call_publish_admit, rmem_call_slot(node, call));
		break;
	case RMEM_LOOKUP:
		rmem_call_go_on(call, call_lookup_admit, rmem_call_slot(node, call));
		break;
	case RMEM_LIST:
		rmem_call_go_on(call, call_list_admit, rmem_call_slot(node, call));
		break;
	case RMEM_FENCE:
		rmem_call_go_on(call, call_fence_admit, rmem_call_slot(node, call));
		break;
	case RMEM_ZERO:
		rmem_call_go_on(call, call_zero_admit, rmem_call_slot(node, call));
		break;
	default:
		rmem_call_go_on(call, call_free_admit, rmem_call_slot(node, call));
	}
}

bool rmem_node_call_enter(const struct rmem_node *node, const struct rmem_node_call *under_way,
			  struct rmem_node_call *call, u64 now_ns, const struct rmem_head *head,
			  const struct rmem_peer *peer, const void *payload)
{
	const struct rmem_space *space = rmem_spaces_find(&node->spaces, head->space);
	struct rmem_place place;

	if (!under_way->divisible || !space)
		return false;
	rmem_spaces_place(&node->spaces, space, &place);
	/* No session begins in a space that is being cleared: it would outlast the space. */
	if (place.memory == under_way->memory &&
	    (!rmem_type_is_of_session(head->type) || !under_way->head.type))
		return false;
	/* Renewed, the session could write to pages that its FREE has yet to take. */
	if (head->type == RMEM_OPEN && under_way->head.type == RMEM_FREE &&
	    head->session == under_way->head.session)
		return false;
	rmem_node_call_begin(node, call, now_ns, head, peer, payload);
	call->entered = true;
	call->freeing = under_way->head.type == RMEM_FREE ? under_way->origin : 0;
	return true;
}

bool rmem_node_call_step(struct rmem_node *node, struct rmem_node_call *call)
{
	call->fill.bytes = 0;
	call->next(node, call);
	return call->next;
}
