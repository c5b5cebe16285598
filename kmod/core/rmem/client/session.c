// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The channel's state, and the OPEN and CLOSE that change it:
 *
 *   CLOSED -- open --> OPENING -- answer to OPEN --> OPEN -- answer to CLOSE --> CLOSED
 *                         ^                           |
 *                         +-- the session ended, or --+
 *                             is to be renewed
 *
 *   LOST, from OPENING or OPEN: the answer names another boot of the node.
 *
 * own_* describes the one OPEN or CLOSE under way. own_due: it is to be sent, and else
 * own_deadline_ns says when it is due again.
 */
#include "core/rmem/client/session.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/rmem/client/op.h"

/* Delay of the next OPEN: after a session lost before use; after a refusal, first and most. */
#define REOPEN_NS	   (50 * BASE_NSEC_PER_MSEC)
/* From one answer that the session is unknown to the next that counts, if it was known. */
#define UNKNOWN_NS	   (50 * BASE_NSEC_PER_MSEC)
#define OPEN_BUSY_NS_FIRST (10 * BASE_NSEC_PER_MSEC)
#define OPEN_NS_MAX	   BASE_NSEC_PER_SEC

/* The keys of a sealed session go with it. */
static void session_forget_keys(struct rmem_client *c)
{
	if (!c->config.cipher)
		return;
	rmem_seal_wipe(c->secret, sizeof(c->secret));
	rmem_seal_wipe(&c->keys, sizeof(c->keys));
	rmem_seal_wipe(&c->keys_before, sizeof(c->keys_before));
	c->has_pair = false;
}

/* renews: a session, or 0 */
static void session_begin_open(struct rmem_client *c, u64 renews)
{
	struct rmem_seal_keys before = c->keys;

	session_forget_keys(c);
	if (renews)
		c->keys_before = before;
	rmem_seal_wipe(&before, sizeof(before));
	c->state = RMEM_CHANNEL_OPENING;
	c->session = 0;
	c->renews = renews;
	c->own_id = ++c->nonce;
	c->own_attempt = 0;
	c->own_due = true;
	c->own_sent_ns = 0;
}

/* Retransmit all ops in flight, with their ids, once the session is open. */
static void session_recall_all(struct rmem_client *c)
{
	struct rmem_op *op, *next;

	while ((op = c->sending ? c->sending : c->partly.head ? c->partly.head : c->flying.head)) {
		rmem_op_recall(c, op, 0, op->parts);
		rmem_op_again(c, op);
	}
	for (op = c->timed.head; op; op = next) {
		next = op->next;
		rmem_op_recall(c, op, 0, op->parts);
		if (op->state == RMEM_OP_SLOW)
			rmem_op_again(c, op);
	}
}

void rmem_client_reopen(struct rmem_client *c, u64 now_ns, u64 renews)
{
	session_recall_all(c);
	c->count.reopened++;
	session_begin_open(c, renews);
	if (c->progress_ns == c->opened_ns && !c->was_renewed) {
		c->own_due = false;
		c->own_deadline_ns = now_ns + REOPEN_NS;
	}
}

void rmem_client_renew(struct rmem_client *c, u64 now_ns)
{
	/* A CLOSE that is under way names the session, and ends it. */
	if (c->state == RMEM_CHANNEL_OPEN && !c->closing)
		rmem_client_reopen(c, now_ns, c->abandons ? 0 : c->session);
}

void rmem_client_unknown(struct rmem_client *c, u64 now_ns)
{
	/* If the session has ended since, requests that go again are answered so again. */
	if (c->was_renewed && c->unknown_ns && now_ns < c->unknown_ns + UNKNOWN_NS) {
		c->count.ignored++;
		return;
	}
	if (c->state != RMEM_CHANNEL_OPEN || c->closing)
		return;
	c->unknown_ns = now_ns;
	rmem_client_renew(c, now_ns);
}

struct rmem_op *rmem_client_lose_ids(struct rmem_client *c)
{
	struct rmem_op *op = rmem_op_end_all(c);
	struct rmem_op *chain = NULL;
	struct rmem_op *next;

	for (; op; op = next) {
		next = op->next;
		if (rmem_type_is_exactly_once(op->type) && op->may_be_done) {
			op->next = chain;
			chain = op;
			continue;
		}
		op->id = 0;
		op->sent_before |= op->may_be_done;
		op->may_be_done = false;
		c->outstanding_ops++;
		rmem_op_put(c, op, op->state == RMEM_OP_WAITING ? RMEM_OP_WAITING : RMEM_OP_AGAIN);
	}
	rmem_seq_reset(&c->seq);
	c->renews = 0;
	c->abandons = false;
	return chain;
}

void rmem_client_lose(struct rmem_client *c, struct rmem_client_rx *rx)
{
	c->state = RMEM_CHANNEL_LOST;
	c->session = 0;
	c->closing = false;
	c->own_due = false;
	session_forget_keys(c);
	rx->accepted = true;
	rx->finished = rmem_op_end_all(c);
	rx->result = RMEM_CLIENT_LOST;
}

struct rmem_op *rmem_client_rolled_back(struct rmem_client *c)
{
	struct rmem_client_rx rx = {};

	rmem_client_lose(c, &rx);
	return rx.finished;
}

/* Callers that allocate rely on the page size. */
static bool session_is_page(u32 bytes)
{
	return bytes >= 1U << RMEM_PAGE_SHIFT_MIN && bytes <= 1U << RMEM_PAGE_SHIFT_MAX &&
	       !(bytes & (bytes - 1));
}

/*
 * The OPEN goes again under a fresh nonce, so each challenge is answered once, and the node can
 * tell the OPEN from a copy that met another peer's challenge. An attacker can relay a challenge
 * for each OPEN sent; a pause bounds their rate.
 */
static void session_challenged(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			       struct rmem_client_rx *rx)
{
	if (!head->addr) {
		c->count.ignored++;
		return;
	}
	rx->accepted = true;
	c->own_id = ++c->nonce;
	c->own_deadline_ns = c->challenge ? c->challenged_ns + REOPEN_NS : now_ns;
	c->own_due = c->own_deadline_ns <= now_ns;
	c->challenged_ns = base_max(c->own_deadline_ns, now_ns);
	c->challenge = head->addr;
}

static void session_closed(struct rmem_client *c, struct rmem_client_rx *rx)
{
	rx->accepted = true;
	c->state = RMEM_CHANNEL_CLOSED;
	c->closing = false;
	c->own_due = false;
	c->session = 0;
	session_forget_keys(c);
}

/* The keys of the session that the answer to OPEN names. False: the node's key is no such. */
static bool session_agree(struct rmem_client *c, const struct rmem_head *head,
			  const struct rmem_opened_sealed *opened)
{
	const struct rmem_cipher *cipher = c->config.cipher;
	struct rmem_keying keying;
	bool agreed;

	if (!c->has_pair)
		return false;
	base_copy(keying.client_key, c->public_key, sizeof(keying.client_key));
	base_copy(keying.node_key, opened->key, sizeof(keying.node_key));
	base_copy(keying.client, c->config.client, sizeof(keying.client));
	base_store_le64(&keying.nonce, head->id);
	base_store_le64(&keying.renews, c->renews);
	base_store_le64(&keying.session, head->session);
	base_store_le64(&keying.boot, head->boot);
	base_store_le32(&keying.space, head->space);
	agreed = cipher->agree(cipher->of, c->secret, opened->key, keying.shared) &&
		 rmem_seal_derive(cipher, &c->config.key, &keying, &c->keys);
	rmem_seal_wipe(&keying, sizeof(keying));
	if (agreed) {
		c->has_pair = false;
		rmem_seal_wipe(c->secret, sizeof(c->secret));
	}
	return agreed;
}

static void session_opened(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			   const void *payload, struct rmem_client_rx *rx)
{
	struct rmem_opened_sealed sealed;
	struct rmem_opened opened;
	u32 piece, page;

	if (head->boot != c->boot && c->boot) {
		rmem_client_lose(c, rx);
		return;
	}
	if (head->status == RMEM_CHALLENGE) {
		session_challenged(c, now_ns, head, rx);
		return;
	}
	if (head->status != RMEM_OK && c->closes) {
		session_closed(c, rx);
		return;
	}
	c->open_status = head->status;
	if (head->status != RMEM_OK) {
		rx->accepted = true;
		c->own_due = false;
		c->own_deadline_ns =
			now_ns +
			(head->status == RMEM_BUSY
				 ? base_doubled(OPEN_BUSY_NS_FIRST, c->own_attempt, OPEN_NS_MAX)
				 : OPEN_NS_MAX);
		return;
	}
	if (c->config.cipher)
		base_copy(&sealed, payload, sizeof(sealed));
	base_copy(&opened, payload, sizeof(opened));
	piece = base_load_le32(&opened.piece_bytes);
	page = base_load_le32(&opened.page_bytes);
	if (piece < RMEM_PIECE_BYTES_MIN || !head->session || head->session == c->renews ||
	    !session_is_page(page) || (c->config.cipher && !session_agree(c, head, &sealed))) {
		c->count.bad++;
		return;
	}
	rx->accepted = true;
	c->was_renewed = opened.renewed && c->renews;
	if (!c->was_renewed) {
		rx->finished = rmem_client_lose_ids(c);
		rx->result = RMEM_CLIENT_UNKNOWN;
	}
	c->node.memory_bytes = base_load_le64(&opened.memory_bytes);
	c->node.free_bytes = base_load_le64(&opened.free_bytes);
	c->node.page_bytes = page;
	c->node.piece_bytes = piece;
	c->piece = base_min(base_min(piece, c->config.piece_bytes), RMEM_PIECE_BYTES_MAX);
	c->session = head->session;
	rmem_seal_wipe(&c->keys_before, sizeof(c->keys_before));
	c->boot = head->boot;
	c->state = RMEM_CHANNEL_OPEN;
	c->own_due = false;
	c->opened_ns = now_ns;
	c->progress_ns = now_ns;
	if (c->closes)
		rmem_client_close(c, now_ns);
	else if (c->abandons)
		rmem_client_renew(c, now_ns); /* given up since the OPEN left */
}

bool rmem_client_receive_own(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
			     const void *payload, bool damaged, struct rmem_client_rx *rx)
{
	bool opening =
		c->state == RMEM_CHANNEL_OPENING && head->type == (RMEM_OPEN | RMEM_RESPONSE);
	bool closing = c->closing && head->type == (RMEM_CLOSE | RMEM_RESPONSE) &&
		       head->session == c->session;

	if (damaged || !(opening || closing) || head->id != c->own_id) {
		c->count.ignored++;
		return false;
	}
	if (opening)
		session_opened(c, now_ns, head, payload, rx);
	else
		session_closed(c, rx);
	return true;
}

/*
 * The node has no keys for the session, so it has ended, or the node restarted; or an attacker
 * sends an old notice, and the renewal finds that nothing has ended.
 */
void rmem_client_receive_notice(struct rmem_client *c, u64 now_ns, const struct rmem_head *head,
				struct rmem_client_rx *rx)
{
	bool rebooted = head->status == RMEM_REBOOTED;
	bool same_boot = head->boot == c->boot;

	if (c->state != RMEM_CHANNEL_OPEN || head->session != c->session) {
		c->count.ignored++;
		return;
	}
	if (rebooted == same_boot) {
		c->count.bad++;
		return;
	}
	rx->accepted = true;
	if (rebooted)
		rmem_client_lose(c, rx);
	else if (c->closing)
		session_closed(c, rx);
	else
		rmem_client_unknown(c, now_ns);
}

void rmem_client_open(struct rmem_client *c, u64 now_ns)
{
	if (c->state != RMEM_CHANNEL_CLOSED)
		return;
	rmem_seq_reset(&c->seq);
	c->abandons = false;
	c->closes = false;
	c->own_deadline_ns = now_ns;
	session_begin_open(c, 0);
}

void rmem_client_close(struct rmem_client *c, u64 now_ns)
{
	if (c->state == RMEM_CHANNEL_OPEN) {
		c->own_id = rmem_seq_take(&c->seq, 1, c);
		/* No id is left, as cancelled ops hold the floor. A new session ends this one. */
		if (!c->own_id) {
			rmem_client_reopen(c, now_ns, 0);
			c->closes = true;
			return;
		}
		c->closing = true;
		c->own_attempt = 0;
		c->own_due = true;
		c->own_deadline_ns = now_ns;
		return;
	}
	/* An OPEN that met no challenge has opened nothing. */
	if (c->state == RMEM_CHANNEL_OPENING && c->challenge) {
		c->closes = true;
		return;
	}
	c->state = RMEM_CHANNEL_CLOSED;
	c->own_due = false;
	session_forget_keys(c);
}
