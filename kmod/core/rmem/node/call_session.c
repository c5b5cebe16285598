// SPDX-License-Identifier: GPL-2.0 OR MIT
/* Calls about sessions: OPEN, CLOSE, those that expire; and the undoing at a session's end. */
#include "core/rmem/node/call.h"

#include "core/base/bytes.h"
#include "core/rmem/node/common.h"
#include "core/rmem/node/step.h"
#include "core/rmem/node/store.h"

/* ---- the end of a session ------------------------------------------------------------------- */

static void call_undo_find(struct rmem_node *node, struct rmem_node_call *call);

static void call_undo_work(struct rmem_node *node, struct rmem_node_call *call)
{
	if (!rmem_call_work_on(node, call))
		rmem_call_work(call, call_undo_find, RMEM_CALL_NO_SLOT);
}

static void call_undo_find(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_region *region;

	if (!rmem_call_walk(node, call, call->ended, call->ended_floor, ~0ULL, &region))
		return;
	if (!region) {
		rmem_work_end(node);
		rmem_call_go_on(call, call->then, RMEM_CALL_NO_SLOT);
		return;
	}
	node->alloc.undone++;
	rmem_call_give_back(node, call, region, call_undo_work);
}

void rmem_call_end_session(struct rmem_node *node, struct rmem_node_call *call,
			   rmem_call_step *then)
{
	struct rmem_session *session = &node->sessions.slot[call->slot];
	bool owes = rmem_session_owes(session);
	/* Its client's next session could write to pages that the FREE has yet to take. */
	bool frees = call->head.type == RMEM_OPEN && session->origin == call->freeing;

	if (call->entered && (owes || frees)) {
		rmem_call_finish_silently(node, call, RMEM_NODE_BUSY);
		call->put_off = true;
		return;
	}
	call->replaces |= session->place.space == call->attempt.place.space;
	call->ended = session->origin;
	call->ended_floor = session->floor;
	call->then = then;
	call->at = 0;
	call->memory = session->place.memory;
	if (owes) {
		rmem_work_begin(node, RMEM_WORK_END, NULL, call->ended, call->ended_floor);
		rmem_call_work(call, call_undo_find, RMEM_CALL_NO_SLOT);
	} else {
		rmem_call_go_on(call, then, RMEM_CALL_NO_SLOT);
	}
	rmem_traffic_settle(node, session);
	rmem_sessions_close(&node->sessions, session - node->sessions.slot);
}

/* ---- OPEN ----------------------------------------------------------------------------------- */

/* Is the OPEN one this node could grant? */
static bool call_open_is_sound(const struct rmem_head *head, const struct rmem_open *open)
{
	u8 bits = open->reserved;
	size_t n;

	for (n = 0; n < sizeof(open->reserved2); n++)
		bits |= open->reserved2[n];
	return !bits && open->integrity == head->integrity &&
	       head->len == rmem_wire_payload_bytes(head);
}

/* False: its space or its key is gone. */
static bool call_read_attempt(const struct rmem_node *node, struct rmem_node_call *call,
			      struct rmem_attempt *attempt)
{
	const struct rmem_space *space = rmem_spaces_find(&node->spaces, call->head.space);

	if (!space || rmem_space_is_revoked(space))
		return false;
	rmem_spaces_place(&node->spaces, space, &attempt->place);
	attempt->nonce = call->head.id;
	attempt->renews = call->head.session;
	attempt->replaces = call->replaces;
	attempt->integrity = call->in.open.integrity;
	attempt->datagram_bytes = base_load_le16(&call->in.open.datagram_bytes);
	if (attempt->datagram_bytes > RMEM_DATAGRAM_BYTES_MAX)
		attempt->datagram_bytes = RMEM_DATAGRAM_BYTES_MAX;
	base_copy(attempt->client, call->in.open.client, sizeof(attempt->client));
	attempt->seal = NULL;
	if (attempt->integrity == RMEM_SEALED) {
		call->seal.cipher = node->config.cipher;
		call->seal.space_key = &space->key;
		attempt->seal = &call->seal;
	}
	return true;
}

/*
 * Can a session of this level begin? One space's clients might have to seal, and a node might have
 * no cipher.
 */
static enum rmem_node_reason call_open_level(const struct rmem_node *node,
					     const struct rmem_node_call *call)
{
	u8 required = node->spaces.slot[call->attempt.place.index].required;

	if (call->attempt.integrity == RMEM_SEALED && !node->config.cipher)
		return RMEM_NODE_LEVEL;
	return required && call->attempt.integrity != required ? RMEM_NODE_PERM : RMEM_NODE_OK;
}

static void call_open_unagreed(struct rmem_node *node, struct rmem_node_call *call)
{
	rmem_call_finish_silently(node, call, RMEM_NODE_LEVEL);
}

/*
 * A step: the node's key, and the secret that it has with the client's. It takes as long as a
 * thousand requests, so it comes last of all that can refuse the OPEN, and other requests don't
 * wait for it. Then the OPEN is looked at once more from its begin.
 */
static void call_open_agree(struct rmem_node *node, struct rmem_node_call *call)
{
	const struct rmem_cipher *cipher = node->config.cipher;
	struct rmem_keying *keying = &call->seal.keying;
	u8 secret[RMEM_X25519_BYTES];

	base_copy(keying->client_key, call->in.open_sealed.key, sizeof(keying->client_key));
	base_copy(keying->client, call->attempt.client, sizeof(keying->client));
	base_store_le64(&keying->nonce, call->attempt.nonce);
	base_store_le64(&keying->renews, call->attempt.renews);
	base_store_le64(&keying->boot, call->boot);
	base_store_le32(&keying->space, call->head.space);
	call->agreed = cipher->generate(cipher->of, secret, keying->node_key) &&
		       cipher->agree(cipher->of, secret, keying->client_key, keying->shared);
	rmem_seal_wipe(secret, sizeof(secret));
	rmem_call_go_on(call, call->agreed ? rmem_call_open : call_open_unagreed,
			RMEM_CALL_NO_SLOT);
}

/* True: the call goes on elsewhere first. */
static bool call_open_agrees(struct rmem_node_call *call)
{
	if (!call->attempt.seal || call->agreed)
		return false;
	rmem_call_go_alone(call, call_open_agree);
	return true;
}

static u64 call_idle_ns(const struct rmem_node *node)
{
	return node->config.session_idle_ms * BASE_NSEC_PER_MSEC;
}

static void call_open_answer(struct rmem_node *node, struct rmem_node_call *call,
			     enum rmem_node_reason reason, const struct rmem_session *session)
{
	u64 free_pages = node->alloc.pages - node->alloc.pages_promised;
	struct rmem_opened *opened = &call->out.opened;

	rmem_call_finish(node, call, reason);
	call->answer.reply.session = session->name;
	call->answer.reply.len = rmem_wire_payload_bytes(&call->answer.reply);
	base_store_le64(&opened->memory_bytes, node->config.pages << node->config.page_shift);
	base_store_le64(&opened->free_bytes, free_pages << node->config.page_shift);
	base_store_le32(&opened->page_bytes, 1U << node->config.page_shift);
	base_store_le32(&opened->piece_bytes, node->config.piece_bytes);
	opened->renewed = rmem_session_is_renewed(session);
	base_zero(opened->reserved, sizeof(opened->reserved));
	if (session->integrity == RMEM_SEALED)
		base_copy(call->out.opened_sealed.key, session->node_key,
			  sizeof(session->node_key));
}

/* A session that began now would see rolled-back memory under the new boot; the client repeats. */
static bool call_open_overtaken(struct rmem_node *node, struct rmem_node_call *call)
{
	if (call->boot == rmem_node_boot(node))
		return false;
	rmem_call_finish_silently(node, call, RMEM_NODE_REBOOTED);
	return true;
}

/* Else the answer is another challenge. A renewal by the session's peer can't come twice. */
static bool call_open_meets_challenge(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 space = call->head.space;

	if (!node->config.challenges ||
	    rmem_sessions_meets(&node->sessions, call->challenge, call->boot, space, &call->peer,
				call->now_ns))
		return true;
	rmem_call_finish(node, call, RMEM_NODE_CHALLENGE);
	call->answer.reply.addr = rmem_sessions_challenge(&node->sessions, call->boot, space,
							  &call->peer, call->now_ns);
	return false;
}

/* True: the OPEN is a copy of the one that made or renewed the session. */
static bool call_open_repeats(struct rmem_node *node, struct rmem_node_call *call,
			      const struct rmem_session *session)
{
	if (!rmem_session_is_attempt(session, &call->attempt))
		return false;
	/* No client waits for the answer once the session is in use, nor at another address. */
	if (session->used || !rmem_peer_equal(&session->peer, &call->peer))
		rmem_call_finish_silently(node, call, RMEM_NODE_REPEATED);
	else
		call_open_answer(node, call, RMEM_NODE_REPEATED, session);
	return true;
}

static void call_open_grant(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[call->slot];

	if (call_open_overtaken(node, call) || call_open_repeats(node, call, session))
		return;
	if (session->name != RMEM_SESSION_NONE) {
		if (rmem_sessions_may_open(&node->sessions, call->slot, call->now_ns,
					   call_idle_ns(node)))
			rmem_call_end_session(node, call, rmem_call_open);
		else
			rmem_call_finish(node, call, RMEM_NODE_BUSY);
		return;
	}
	if (call_open_agrees(call))
		return;
	session->boot = rmem_node_boot(node); /* before the session has a name: none lacks it */
	if (!rmem_sessions_open(&node->sessions, call->slot, call->now_ns, &call->attempt,
				&call->peer)) {
		rmem_call_finish_silently(node, call, RMEM_NODE_LEVEL);
		return;
	}
	call_open_answer(node, call, RMEM_NODE_OK, session);
}

/*
 * The client's older session: an OPEN that names it renews it, any other ends it. The client might
 * have another address now. If the OPEN is a copy that somebody sent from elsewhere, the client
 * finds that the session belongs to another peer, and renews it once more: no id is lost.
 */
static void call_open_supersede(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = &node->sessions.slot[call->slot];
	bool renews = rmem_session_may_renew(session, &call->attempt);

	if (call_open_overtaken(node, call))
		return;
	if (!(renews && rmem_peer_equal(&session->peer, &call->peer)) &&
	    !call_open_meets_challenge(node, call))
		return;
	if (session->running) {
		rmem_session_drain(session, call->now_ns);
		rmem_call_await(node, call, rmem_call_open, RMEM_CALL_NO_SLOT);
		return;
	}
	if (!renews) {
		rmem_call_end_session(node, call, rmem_call_open);
		return;
	}
	if (call_open_agrees(call))
		return;
	if (!rmem_sessions_renew(&node->sessions, call->slot, call->now_ns, &call->attempt,
				 &call->peer)) {
		rmem_call_finish_silently(node, call, RMEM_NODE_LEVEL);
		return;
	}
	call_open_answer(node, call, RMEM_NODE_OK, session);
}

void rmem_call_open(struct rmem_node *node, struct rmem_node_call *call)
{
	enum rmem_node_reason reason;
	int slot;

	if (!call_open_is_sound(&call->head, &call->in.open)) {
		rmem_call_finish(node, call, RMEM_NODE_LENGTH);
		return;
	}
	if (!call_read_attempt(node, call, &call->attempt)) {
		rmem_call_finish_silently(node, call,
					  RMEM_NODE_NO_SESSION); /* and no key to answer with */
		return;
	}
	reason = call_open_level(node, call);
	if (reason != RMEM_NODE_OK) {
		rmem_call_finish(node, call, reason);
		return;
	}
	/* A recorded OPEN costs no search of the slots. One that renews names a session. */
	if (!rmem_sessions_find(&node->sessions, call->head.session) &&
	    !call_open_meets_challenge(node, call))
		return;
	if (rmem_sessions_is_late(&node->sessions, &call->attempt)) {
		rmem_call_finish_silently(node, call, RMEM_NODE_STALE);
		return;
	}
	slot = rmem_sessions_superseded(&node->sessions, &call->attempt);
	if (slot >= 0) {
		rmem_call_go_on(call, call_open_supersede, slot);
		return;
	}
	if (!call_open_meets_challenge(node, call))
		return;
	slot = rmem_sessions_choose(&node->sessions, &call->attempt, node->spaces.in_use,
				    call->now_ns, call_idle_ns(node));
	if (slot >= 0)
		rmem_call_go_on(call, call_open_grant, slot);
	else
		rmem_call_finish(node, call, RMEM_NODE_BUSY);
}

/* ---- CLOSE ---------------------------------------------------------------------------------- */

static void call_close_done(struct rmem_node *node, struct rmem_node_call *call)
{
	rmem_call_finish(node, call, RMEM_NODE_OK);
}

void rmem_call_close(struct rmem_node *node, struct rmem_node_call *call)
{
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = rmem_call_admit(node, call, &session);

	if (reason == RMEM_NODE_OK && session->running) {
		rmem_session_drain(session, call->now_ns);
		rmem_call_await(node, call, rmem_call_close, call->slot);
	} else if (reason == RMEM_NODE_OK) {
		rmem_call_end_session(node, call, call_close_done);
	} else if (reason == RMEM_NODE_PEER) {
		rmem_call_finish_silently(node, call, reason); /* its client would believe it */
	} else {
		rmem_call_finish(node, call, reason);
	}
}

/* ---- sessions that owe memory expire --------------------------------------------------------- */

static void call_expire_find(struct rmem_node *node, struct rmem_node_call *call);

static void call_expire_session(struct rmem_node *node, struct rmem_node_call *call)
{
	const struct rmem_session *session = &node->sessions.slot[call->slot];

	/* The session might have been used since it was found. */
	if (session->name != RMEM_SESSION_NONE && rmem_session_owes(session) &&
	    rmem_sessions_may_open(&node->sessions, call->slot, call->now_ns, call_idle_ns(node)))
		rmem_call_end_session(node, call, call_expire_find);
	else
		rmem_call_go_on(call, call_expire_find, RMEM_CALL_NO_SLOT);
}

static void call_expire_find(struct rmem_node *node, struct rmem_node_call *call)
{
	u32 left = node->config.step_pages;

	for (; call->session_at < node->sessions.slots && left; left--) {
		u32 at = call->session_at++;

		if (node->sessions.slot[at].name == RMEM_SESSION_NONE ||
		    !rmem_sessions_may_open(&node->sessions, at, call->now_ns, call_idle_ns(node)))
			continue;
		rmem_call_go_on(call, call_expire_session, at);
		return;
	}
	rmem_call_go_on(call, call->session_at < node->sessions.slots ? call_expire_find : NULL,
			RMEM_CALL_NO_SLOT);
}

void rmem_node_call_expire(struct rmem_node_call *call, u64 now_ns)
{
	base_zero(call, sizeof(*call));
	call->now_ns = now_ns;
	rmem_call_go_on(call, call_expire_find, RMEM_CALL_NO_SLOT);
}
