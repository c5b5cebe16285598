// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A call's step says what the next is and whose slot lock it wants, by go_on(); or
 * answers and ends, by finish().
 */
#include "core/rmem/node/call.h"

#include "core/base/bytes.h"
#include "core/rmem/node/common.h"

#define NO_SLOT (-1)

static void go_on(struct rmem_node_call *call,
		  void (*next)(struct rmem_node *node, struct rmem_node_call *call), int slot)
{
	call->next = next;
	call->slot = slot;
	call->divisible = false;
}

/* As go_on(), to a step that may be one of many, and relies on nothing but memory's regions. */
static void work(struct rmem_node_call *call,
		 void (*next)(struct rmem_node *node, struct rmem_node_call *call), int slot)
{
	go_on(call, next, slot);
	call->divisible = true;
}

static void finish(struct rmem_node *node, struct rmem_node_call *call,
		   enum rmem_node_reason reason)
{
	rmem_node_answer(node, &call->head, reason, &call->answer);
	go_on(call, NULL, NO_SLOT);
}

static void finish_silently(struct rmem_node *node, struct rmem_node_call *call,
			    enum rmem_node_reason reason)
{
	finish(node, call, reason);
	call->answer.action = RMEM_ACT_DROP;
}

static int slot_of(const struct rmem_node *node, const struct rmem_node_call *call)
{
	return rmem_node_slot(node, call->head.session);
}

/* Is it to be done, and for which session? Slot lock. */
static enum rmem_node_reason admit(struct rmem_node *node, struct rmem_node_call *call,
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
 * The session that the call was admitted for, or NULL: it may have ended between two steps. If it
 * was renewed, head has its former name. Slot lock.
 */
static struct rmem_session *admitted(const struct rmem_node *node,
				     const struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[slot_of(node, call)];

	return session->name != RMEM_SESSION_NONE && session->origin == call->origin ? session :
										       NULL;
}

/* ---- regions -------------------------------------------------------------------------------- */

/* Some more pages of the region under work. True: there are more. */
static bool work_on(struct rmem_node *node, struct rmem_node_call *call)
{
	return rmem_alloc_step(&node->alloc, &node->table, &node->spaces, &node->pool, &call->work,
			       node->config.step_pages);
}

/* Withdraws the names of the region at once; its pages go in steps. */
static void give_back(struct rmem_node *node, struct rmem_node_call *call,
		      struct rmem_region *region,
		      void (*next)(struct rmem_node *node, struct rmem_node_call *call))
{
	rmem_names_withdraw(&node->names, region->space_index, region->vpn);
	rmem_alloc_release(region, &call->work);
	work(call, next, NO_SLOT);
}

/*
 * From call->at on, the region that an ALLOC of this session made whose id is from .. to. A
 * step's regions cost what its pages would. False: not yet found, nor the last one seen.
 */
static bool walk(const struct rmem_node *node, struct rmem_node_call *call, u64 session, u64 from,
		 u64 to, struct rmem_region **found)
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

/* ---- the end of a session ------------------------------------------------------------------- */

static void undo_find(struct rmem_node *node, struct rmem_node_call *call);

static void undo_work(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!work_on(node, call))
		work(call, undo_find, NO_SLOT);
}

static void undo_find(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_region *region;

	if (!walk(node, call, call->ended, call->ended_floor, ~0ULL, &region))
		return;
	if (!region) {
		go_on(call, call->then, NO_SLOT);
		return;
	}
	node->alloc.undone++;
	give_back(node, call, region, undo_work);
}

/* Slot lock of call->slot. No request can acknowledge anything from here on. */
static void end_session(struct rmem_node *node, struct rmem_node_call *call,
			void (*then)(struct rmem_node *node, struct rmem_node_call *call))
{
	const struct rmem_session *session = &node->sessions.slot[call->slot];
	bool owes = rmem_session_owes(session);

	if (call->entered && owes) {
		finish_silently(node, call, RMEM_NODE_BUSY);
		call->put_off = true;
		return;
	}
	call->ended = session->origin;
	call->ended_floor = session->floor;
	call->then = then;
	call->at = 0;
	call->memory = session->place.memory;
	if (owes)
		work(call, undo_find, NO_SLOT);
	else
		go_on(call, then, NO_SLOT);
	rmem_sessions_close(&node->sessions, session - node->sessions.slot);
}

/* ---- OPEN ----------------------------------------------------------------------------------- */

/* Is the OPEN one this node could grant? */
static bool open_is_sound(const struct rmem_head *head, const struct rmem_open *open)
{
	u8 bits = open->reserved;
	size_t n;

	for (n = 0; n < sizeof(open->reserved2); n++)
		bits |= open->reserved2[n];
	return !bits && open->integrity == head->integrity && head->len == sizeof(*open);
}

/* False: its space is gone. */
static bool read_attempt(const struct rmem_node *node, const struct rmem_node_call *call,
			 struct rmem_attempt *attempt)
{
	const struct rmem_space *space = rmem_spaces_find(&node->spaces, call->head.space);

	if (!space)
		return false;
	rmem_spaces_place(&node->spaces, space, &attempt->place);
	attempt->nonce = call->head.id;
	attempt->integrity = call->in.open.integrity;
	attempt->datagram_bytes = base_load_le16(&call->in.open.datagram_bytes);
	if (attempt->datagram_bytes > RMEM_DATAGRAM_BYTES_MAX)
		attempt->datagram_bytes = RMEM_DATAGRAM_BYTES_MAX;
	base_copy(attempt->client, call->in.open.client, sizeof(attempt->client));
	return true;
}

static u64 idle_ns(const struct rmem_node *node)
{
	return node->config.session_idle_ms * BASE_NSEC_PER_MSEC;
}

static void open_answer(struct rmem_node *node, struct rmem_node_call *call,
			enum rmem_node_reason reason, const struct rmem_session *session)
{
	u64 free_pages = node->alloc.pages - node->alloc.pages_promised;
	struct rmem_opened *opened = &call->out.opened;

	finish(node, call, reason);
	call->answer.reply.session = session->name;
	call->answer.reply.len = sizeof(*opened);
	base_store_le64(&opened->memory_bytes, node->config.pages << node->config.page_shift);
	base_store_le64(&opened->free_bytes, free_pages << node->config.page_shift);
	base_store_le32(&opened->page_bytes, 1U << node->config.page_shift);
	base_store_le32(&opened->piece_bytes, node->config.piece_bytes);
	opened->renewed = rmem_session_is_renewed(session);
	base_zero(opened->reserved, sizeof(opened->reserved));
}

static void open_find(struct rmem_node *node, struct rmem_node_call *call);

/* A session that began now would see rolled-back memory under the new boot; the client repeats. */
static bool open_overtaken(struct rmem_node *node, struct rmem_node_call *call)
{
	if (call->boot == rmem_node_boot(node))
		return false;
	finish_silently(node, call, RMEM_NODE_REBOOTED);
	return true;
}

/* Else the answer is another challenge. A renewal needs none: it can't come twice. */
static bool open_meets_challenge(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 space = call->head.space;

	if (!node->config.challenges ||
	    rmem_sessions_meets(&node->sessions, call->challenge, call->boot, space, &call->peer,
				call->now_ns))
		return true;
	finish(node, call, RMEM_NODE_CHALLENGE);
	call->answer.reply.addr = rmem_sessions_challenge(&node->sessions, call->boot, space,
							  &call->peer, call->now_ns);
	return false;
}

/*
 * A repeated OPEN from where the first came gets the same session; from elsewhere the
 * session has to be another, for the first may have been told of this one. Once
 * the session is in use, a copy is a late one: nobody waits for its answer.
 */
static void open_grant(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[call->slot];

	if (open_overtaken(node, call))
		return;
	if (rmem_session_is_attempt(session, &call->attempt)) {
		if (session->used) {
			finish_silently(node, call, RMEM_NODE_REPEATED);
			return;
		}
		if (rmem_peer_equal(&session->peer, &call->peer)) {
			open_answer(node, call, RMEM_NODE_REPEATED, session);
			return;
		}
		if (rmem_session_is_renewed(session)) {
			end_session(node, call, open_find);
			return;
		}
	} else if (session->name != RMEM_SESSION_NONE) {
		if (rmem_sessions_may_open(&node->sessions, call->slot, call->now_ns,
					   idle_ns(node)))
			end_session(node, call, open_find);
		else
			finish(node, call, RMEM_NODE_BUSY);
		return;
	}
	rmem_sessions_open(&node->sessions, call->slot, call->now_ns, &call->attempt, &call->peer);
	session->boot = rmem_node_boot(node);
	open_answer(node, call, RMEM_NODE_OK, session);
}

/* The client's older session: it is renewed, or ends. */
static void open_supersede(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[call->slot];

	if (open_overtaken(node, call))
		return;
	if (!rmem_session_may_renew(session, call->head.session, &call->attempt, &call->peer)) {
		if (open_meets_challenge(node, call))
			end_session(node, call, open_find);
		return;
	}
	rmem_sessions_renew(&node->sessions, call->slot, call->now_ns, &call->attempt);
	open_answer(node, call, RMEM_NODE_OK, session);
}

static void open_find(struct rmem_node *node, struct rmem_node_call *call)
{
	int slot;

	if (!open_is_sound(&call->head, &call->in.open)) {
		finish(node, call, RMEM_NODE_LENGTH);
		return;
	}
	if (!read_attempt(node, call, &call->attempt)) {
		finish_silently(node, call, RMEM_NODE_NO_SESSION); /* and no key to answer with */
		return;
	}
	/* A recorded OPEN costs no search of the slots. One that renews names a session. */
	if (!rmem_sessions_find(&node->sessions, call->head.session) &&
	    !open_meets_challenge(node, call))
		return;
	if (rmem_sessions_is_late(&node->sessions, &call->attempt)) {
		finish_silently(node, call, RMEM_NODE_STALE);
		return;
	}
	slot = rmem_sessions_superseded(&node->sessions, &call->attempt);
	if (slot >= 0) {
		go_on(call, open_supersede, slot);
		return;
	}
	if (!open_meets_challenge(node, call))
		return;
	slot = rmem_sessions_choose(&node->sessions, &call->attempt, call->now_ns, idle_ns(node));
	if (slot >= 0)
		go_on(call, open_grant, slot);
	else
		finish(node, call, RMEM_NODE_BUSY);
}

/* ---- CLOSE ---------------------------------------------------------------------------------- */

static void close_done(struct rmem_node *node, struct rmem_node_call *call)
{
	finish(node, call, RMEM_NODE_OK);
}

static void close_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = admit(node, call, &session);

	if (reason == RMEM_NODE_OK)
		end_session(node, call, close_done);
	else
		finish(node, call, reason);
}

/* ---- ALLOC ---------------------------------------------------------------------------------- */

static void region_answer(struct rmem_node *node, struct rmem_node_call *call,
			  enum rmem_node_reason reason, const struct rmem_region *region)
{
	unsigned int shift = node->config.page_shift;

	finish(node, call, reason);
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

/* Executed before: what became of it? */
static void alloc_look_up(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_region *region;
	u64 id = call->head.id;

	if (!walk(node, call, call->origin, id, id, &region))
		return;
	if (region)
		region_answer(node, call, RMEM_NODE_REPEATED, region);
	else
		finish(node, call, RMEM_NODE_NO_MEMORY);
}

static void alloc_undo(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!work_on(node, call))
		finish(node, call, RMEM_NODE_STALE);
}

/*
 * NO_MEMORY is an answer like another: once given, a late copy of the request
 * must not get memory that nobody knows of. So the id is marked, too. If the client
 * has cancelled the request meanwhile, or its session has ended, no client will ever learn of the
 * region.
 */
static void alloc_done(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = admitted(node, call);
	struct rmem_region *region = call->work.region;

	if (!session || call->head.id < session->floor) {
		if (region) {
			node->alloc.undone++;
			give_back(node, call, region, alloc_undo);
		} else {
			finish(node, call, RMEM_NODE_STALE);
		}
		return;
	}
	rmem_session_done(session, call->head.id);
	if (!region) {
		finish(node, call, RMEM_NODE_NO_MEMORY);
		return;
	}
	rmem_session_made(session, call->head.id);
	region_answer(node, call, RMEM_NODE_OK, region);
}

static void alloc_work(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!work_on(node, call))
		go_on(call, alloc_done, slot_of(node, call));
}

static void alloc_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	struct rmem_alloc_request request;
	enum rmem_node_reason reason = admit(node, call, &session);

	if (reason == RMEM_NODE_REPEATED) {
		work(call, alloc_look_up, NO_SLOT);
		return;
	}
	if (reason == RMEM_NODE_OK && !call_read_request(node, call, &request))
		reason = RMEM_NODE_LENGTH;
	if (reason != RMEM_NODE_OK) {
		finish(node, call, reason);
		return;
	}
	if (rmem_alloc_make(&node->alloc, &node->spaces, session->place.memory, &request,
			    &call->work))
		work(call, alloc_work, NO_SLOT);
	else
		alloc_done(node, call);
}

/* ---- FREE ----------------------------------------------------------------------------------- */

static void free_done(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = admitted(node, call);

	if (session)
		rmem_session_done(session, call->head.id);
	finish(node, call, session ? RMEM_NODE_OK : RMEM_NODE_NO_SESSION);
}

static void free_work(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!work_on(node, call))
		go_on(call, free_done, slot_of(node, call));
}

/* The region that is to be freed, or NULL and why not. */
static struct rmem_region *free_find(const struct rmem_node *node,
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
	return region && region->pages == bytes >> node->config.page_shift ? region : NULL;
}

static void free_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	struct rmem_region *region = NULL;
	enum rmem_node_reason reason = admit(node, call, &session);

	if (reason == RMEM_NODE_OK)
		region = free_find(node, call, session->place.memory, &reason);
	if (!region) {
		if (reason == RMEM_NODE_FAULT)
			rmem_session_refuse(session, call->head.id);
		finish(node, call, reason);
		return;
	}
	give_back(node, call, region, free_work);
}

/* ---- PUBLISH and LOOKUP --------------------------------------------------------------------- */

static bool name_is_sound(const struct rmem_node_call *call)
{
	return !call->head.addr && call->head.len == sizeof(call->in.named) &&
	       rmem_name_is_sound(call->in.named.name);
}

static enum rmem_node_reason publish(struct rmem_node *node, u32 space_index, u64 addr,
				     const u8 name[RMEM_NAME_BYTES])
{
	struct rmem_name *entry = rmem_names_find(&node->names, space_index, name);
	u64 vpn = rmem_node_vpn(node, addr);

	if (!addr) {
		if (!entry)
			return RMEM_NODE_NO_NAME;
		entry->vpn = 0;
		return RMEM_NODE_OK;
	}
	if (!rmem_alloc_find(&node->alloc, space_index, vpn))
		return RMEM_NODE_FAULT;
	if (entry)
		return RMEM_NODE_EXISTS;
	return rmem_names_add(&node->names, space_index, vpn, name) ? RMEM_NODE_OK :
								       RMEM_NODE_NO_MEMORY;
}

/* The first answer again. A client that used the id for another type gets an arbitrary refusal. */
static enum rmem_node_reason publish_replay(const struct rmem_session *session, u64 id)
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
 * A refusal is kept like a success: names come and go, so a late copy of what was refused might be
 * executed else.
 */
static void publish_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	u64 addr = base_load_le64(&call->in.named.addr);
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = admit(node, call, &session);
	struct rmem_found found = { 0 };

	if (reason == RMEM_NODE_REPEATED) {
		reason = publish_replay(session, call->head.id);
	} else if (reason == RMEM_NODE_OK &&
		   (!name_is_sound(call) || addr & rmem_node_offset_mask(node))) {
		reason = RMEM_NODE_LENGTH;
	} else if (reason == RMEM_NODE_OK && !rmem_session_has_place(session, call->head.id)) {
		reason = RMEM_NODE_BUSY;
	} else if (reason == RMEM_NODE_OK) {
		reason = publish(node, session->place.memory, addr, call->in.named.name);
		base_store_le64(&found.value[0], reason);
		rmem_session_keep(session, call->head.id, &found);
	}
	finish(node, call, reason);
}

static void lookup_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	struct rmem_region *region = NULL;
	enum rmem_node_reason reason = admit(node, call, &session);
	const struct rmem_name *entry;

	if (reason == RMEM_NODE_OK && (!name_is_sound(call) || call->in.named.addr))
		reason = RMEM_NODE_LENGTH;
	if (reason == RMEM_NODE_OK) {
		entry = rmem_names_find(&node->names, session->place.memory, call->in.named.name);
		if (entry)
			region = rmem_alloc_find(&node->alloc, session->place.memory, entry->vpn);
		reason = region ? RMEM_NODE_OK : RMEM_NODE_NO_NAME;
	}
	if (reason == RMEM_NODE_OK)
		region_answer(node, call, reason, region);
	else
		finish(node, call, reason);
}

/* ---- ZERO ----------------------------------------------------------------------------------- */

/* The next bytes of a page that is cleared in part. A page that isn't backed is zero already. */
static void zero_next(struct rmem_node *node, struct rmem_node_call *call, u32 space_index, int n)
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
 * session has been renewed, or it has ended. Nothing is cleared after that: the client may have
 * written the range since.
 */
static void zero_work(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = admitted(node, call);

	if (!session || session->name != call->head.session) {
		finish(node, call, RMEM_NODE_NO_SESSION);
	} else if (call->head.id < session->floor) {
		finish(node, call, RMEM_NODE_STALE);
	} else if (call->cut[0].left) {
		zero_next(node, call, session->place.memory, 0);
	} else if (call->cut[1].left) {
		zero_next(node, call, session->place.memory, 1);
	} else {
		rmem_session_done(session, call->head.id);
		finish(node, call, RMEM_NODE_OK);
	}
}

static void zero_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	const struct rmem_head *head = &call->head;
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = admit(node, call, &session);

	if (reason == RMEM_NODE_OK) {
		reason = rmem_node_clear(node, session->place.memory, head, &call->answer);
		if (reason == RMEM_NODE_FAULT)
			rmem_session_refuse(session, head->id);
	}
	if (reason != RMEM_NODE_OK) {
		finish(node, call, reason);
		return;
	}
	rmem_node_cuts(node, head, &call->cut[0].left, &call->cut[1].left);
	call->cut[0].addr = head->addr;
	call->cut[1].addr = head->addr + head->len - call->cut[1].left;
	work(call, zero_work, call->slot);
}

/* ---- FENCE ---------------------------------------------------------------------------------- */

/*
 * A request is executed in one hold of its slot's lock, so after a hold of each lock all earlier
 * requests are done. Slots that are unused, or come into use from now on, have no earlier ones, and
 * sessions of another memory have none that concern this one.
 */
static void fence_pass(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->at < node->sessions.slots && left; call->at++, left--) {
		const struct rmem_session *session = &node->sessions.slot[call->at];

		if (session->name == RMEM_SESSION_NONE || session->place.memory != call->memory)
			continue;
		go_on(call, fence_pass, call->at++);
		return;
	}
	if (call->at == node->sessions.slots)
		finish(node, call, RMEM_NODE_OK);
	else
		go_on(call, fence_pass, NO_SLOT);
}

static void fence_admit(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = admit(node, call, &session);

	if (reason == RMEM_NODE_OK && (call->head.addr || call->head.len))
		reason = RMEM_NODE_LENGTH;
	if (reason == RMEM_NODE_OK)
		go_on(call, fence_pass, NO_SLOT);
	else
		finish(node, call, reason);
}

/* ---- a space is cleared, or all of them ----------------------------------------------------- */

static bool clear_wants(const struct rmem_node_call *call, u32 index)
{
	return !call->attempt.place.space || call->attempt.place.index == index;
}

static void clear_find_region(struct rmem_node *node, struct rmem_node_call *call);

static void clear_region(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!work_on(node, call))
		go_on(call, clear_find_region, NO_SLOT);
}

static void clear_find_region(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->at < node->alloc.regions_max && left; call->at++, left--) {
		struct rmem_region *region = rmem_alloc_at(&node->alloc, call->at);

		if (!region || !clear_wants(call, region->space_index))
			continue;
		give_back(node, call, region, clear_region);
		/* After a reboot no session may begin while an old region is there. */
		call->divisible = call->attempt.place.space;
		return;
	}
	go_on(call, call->at < node->alloc.regions_max ? clear_find_region : NULL, NO_SLOT);
}

static void clear_find_session(struct rmem_node *node, struct rmem_node_call *call);

static void clear_session(struct rmem_node *node, struct rmem_node_call *call)
{
	rmem_sessions_close(&node->sessions, call->slot);
	go_on(call, clear_find_session, NO_SLOT);
}

/* Sessions first: from then on nobody of the space is served, nor makes regions. */
static void clear_find_session(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->at < node->sessions.slots && left; call->at++, left--) {
		const struct rmem_session *session = &node->sessions.slot[call->at];

		if (session->name == RMEM_SESSION_NONE || !clear_wants(call, session->place.index))
			continue;
		go_on(call, clear_session, call->at);
		return;
	}
	if (call->at < node->sessions.slots)
		return;
	call->at = 0;
	go_on(call, clear_find_region, NO_SLOT);
}

bool rmem_node_call_clear(const struct rmem_node *node, struct rmem_node_call *call, u32 space)
{
	const struct rmem_space *found = space ? rmem_spaces_find(&node->spaces, space) : NULL;

	base_zero(call, sizeof(*call));
	if (!found || found->views)
		return false;
	rmem_spaces_place(&node->spaces, found, &call->attempt.place);
	call->memory = call->attempt.place.memory;
	go_on(call, clear_find_session, NO_SLOT);
	return true;
}

void rmem_node_call_forget(struct rmem_node_call *call)
{
	base_zero(call, sizeof(*call));
	go_on(call, clear_find_session, NO_SLOT);
}

/* ---- sessions that owe memory expire --------------------------------------------------------- */

static void expire_find(struct rmem_node *node, struct rmem_node_call *call);

static void expire_session(struct rmem_node *node, struct rmem_node_call *call)
{
	const struct rmem_session *session = &node->sessions.slot[call->slot];

	/* The session may have been used since it was found. */
	if (session->name != RMEM_SESSION_NONE && rmem_session_owes(session) &&
	    rmem_sessions_may_open(&node->sessions, call->slot, call->now_ns, idle_ns(node)))
		end_session(node, call, expire_find);
	else
		go_on(call, expire_find, NO_SLOT);
}

static void expire_find(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->session_at < node->sessions.slots && left; left--) {
		u32 at = call->session_at++;

		if (node->sessions.slot[at].name == RMEM_SESSION_NONE ||
		    !rmem_sessions_may_open(&node->sessions, at, call->now_ns, idle_ns(node)))
			continue;
		go_on(call, expire_session, at);
		return;
	}
	go_on(call, call->session_at < node->sessions.slots ? expire_find : NULL, NO_SLOT);
}

void rmem_node_call_expire(struct rmem_node_call *call, u64 now_ns)
{
	base_zero(call, sizeof(*call));
	call->now_ns = now_ns;
	go_on(call, expire_find, NO_SLOT);
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
		go_on(call, open_find, NO_SLOT);
		break;
	case RMEM_CLOSE:
		go_on(call, close_admit, slot_of(node, call));
		break;
	case RMEM_ALLOC:
		go_on(call, alloc_admit, slot_of(node, call));
		break;
	case RMEM_PUBLISH:
		go_on(call, publish_admit, slot_of(node, call));
		break;
	case RMEM_LOOKUP:
		go_on(call, lookup_admit, slot_of(node, call));
		break;
	case RMEM_FENCE:
		go_on(call, fence_admit, slot_of(node, call));
		break;
	case RMEM_ZERO:
		go_on(call, zero_admit, slot_of(node, call));
		break;
	default:
		go_on(call, free_admit, slot_of(node, call));
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
	if ((head->type == RMEM_FENCE || rmem_type_has_name(head->type)) &&
	    place.memory == under_way->memory)
		return false;
	/* Renewed, the session could write to pages that its FREE has yet to take. */
	if (head->type == RMEM_OPEN && under_way->head.type == RMEM_FREE &&
	    head->session == under_way->head.session)
		return false;
	rmem_node_call_begin(node, call, now_ns, head, peer, payload);
	call->entered = true;
	return true;
}

bool rmem_node_call_step(struct rmem_node *node, struct rmem_node_call *call)
{
	call->fill.bytes = 0;
	call->next(node, call);
	return call->next;
}
