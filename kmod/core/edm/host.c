// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/host.h"

#include "core/base/bits.h"
#include "core/base/bytes.h"
#include "core/edm/flow.h"

/* The first member from n on, in a circle; or size: the set is empty. */
static u32 host_first(const u64 *set, u32 n, u32 size)
{
	const u32 words = (size + 63) / 64;

	for (u32 step = 0; step <= words; step++) {
		const u32 word = (n / 64 + step) % words;
		u64 left = set[word];

		if (!step)
			left &= ~0ULL << (n % 64);
		if (left)
			return 64 * word + (u32)__builtin_ctzll(left);
	}
	return size;
}

/* ---- memory ---- */

bool edm_host_config_is_valid(const struct edm_host_config *config)
{
	const struct edm_link_config *link = &config->link;

	return config->ports >= 2 && config->ports <= EDM_PORTS_MAX && link->port < config->ports &&
	       base_is_pow2(link->slots) && link->slots <= EDM_SLOTS_MAX && link->epoch &&
	       link->join_ns && link->rate_mbps && link->rate_mbps <= EDM_RATE_MBPS_MAX &&
	       config->links && config->links <= EDM_LINKS_MAX;
}

static size_t host_lay_out(struct edm_host *h, const struct edm_host_config *config, void *memory)
{
	const size_t ports = config->ports, slots = config->link.slots;
	size_t used = 0;

	h->message = base_carve(memory, &used, slots * sizeof(*h->message));
	h->answer = base_carve(memory, &used, ports * slots * sizeof(*h->answer));
	h->peer_epoch = base_carve(memory, &used, ports * sizeof(*h->peer_epoch));
	h->head = base_carve(memory, &used, ports * sizeof(*h->head));
	h->tail = base_carve(memory, &used, ports * sizeof(*h->tail));
	h->active = base_carve(memory, &used, ports * sizeof(*h->active));
	h->waiting = base_carve(memory, &used, (ports + 63) / 64 * sizeof(u64));
	h->free = base_carve(memory, &used, (slots + 63) / 64 * sizeof(u64));
	return used;
}

size_t edm_host_bytes(const struct edm_host_config *config)
{
	struct edm_host h;

	return host_lay_out(&h, config, NULL);
}

void edm_host_init(struct edm_host *h, u64 now_ns, const struct edm_host_config *config,
		   void *memory)
{
	base_zero(memory, edm_host_bytes(config));
	base_zero(h, sizeof(*h));
	h->config = *config;
	host_lay_out(h, config, memory);
	edm_node_init(&h->open);
	edm_node_init(&h->ready);
	edm_node_init(&h->late);
	for (u32 slot = 0; slot < config->link.slots; slot++) {
		h->message[slot].id = slot;
		edm_flow_set(h->free, slot, true);
	}
	for (u32 link = 0; link < config->links; link++)
		edm_link_init(&h->link[link], now_ns);
	h->start_ns = now_ns;
	h->follow = EDM_UNSCHEDULED;
	h->turn = EDM_UNSCHEDULED;
	h->patient = true;
}

/* ---- ops ---- */

void edm_host_submit(struct edm_host *h, u64 now_ns, struct edm_op *op)
{
	const u16 peer = op->peer;

	op->next = NULL;
	op->state = EDM_OP_QUEUED;
	*(h->head[peer] ? &h->tail[peer]->next : &h->head[peer]) = op;
	h->tail[peer] = op;
	edm_flow_refresh_peer(h, peer);
}

static struct edm_op *host_dequeue(struct edm_host *h, u16 peer)
{
	struct edm_op *op = h->head[peer];

	h->head[peer] = op->next;
	op->next = NULL;
	return op;
}

/* Queued ops of a peer become the message of a free slot: several, if they are small writes. */
static void host_fill(struct edm_host *h, u64 now_ns, u16 peer, u32 slot)
{
	struct edm_flow *flow = &h->message[slot];
	struct edm_op *op = host_dequeue(h, peer), *last = op;
	const u32 id = flow->id;

	*flow = (struct edm_flow){
		.ops = op,
		.id = id,
		.size = op->bytes,
		.peer = peer,
		.type = op->type,
		.state = EDM_FLOW_USED,
		.is_active = true,
		.repeat_ns = op->type == EDM_READ ? now_ns : EDM_NEVER,
	};
	op->offset = 0;
	op->slot = slot;
	op->state = EDM_OP_ACTIVE;
	for (u32 n = 1; n < EDM_MEGA_MAX && op->type == EDM_WRITE && h->head[peer]; n++) {
		if (h->head[peer]->type != EDM_WRITE ||
		    (u64)flow->size + h->head[peer]->bytes > h->config.mega_bytes)
			break;
		last->next = host_dequeue(h, peer);
		last = last->next;
		last->offset = flow->size;
		last->slot = slot;
		last->state = EDM_OP_ACTIVE;
		flow->size += last->bytes;
	}
	edm_flow_set(h->free, slot, false);
	h->active[peer]++;
	edm_flow_open(h, flow);
	edm_flow_refresh_peer(h, peer);
}

bool edm_host_pump(struct edm_host *h, u64 now_ns)
{
	const u32 ports = h->config.ports, slots = h->config.link.slots;
	const u32 peer = host_first(h->waiting, h->next_peer, ports);
	const u32 slot = host_first(h->free, 0, slots);

	if (peer == ports || slot == slots)
		return false;
	h->next_peer = (peer + 1) % ports;
	host_fill(h, now_ns, (u16)peer, slot);
	return true;
}

void edm_host_done(struct edm_host *h, u64 now_ns, struct edm_op *op)
{
	struct edm_flow *flow = &h->message[op->slot];

	if (op->state != EDM_OP_ACTIVE || op->type != EDM_READ)
		return;
	op->state = EDM_OP_IDLE;
	flow->ops = NULL;
	edm_flow_free(h, flow);
}

static void host_cancel_queued(struct edm_host *h, struct edm_op *op)
{
	struct edm_op **link = &h->head[op->peer], *before = NULL;

	while (*link != op) {
		before = *link;
		link = &before->next;
	}
	*link = op->next;
	if (h->tail[op->peer] == op)
		h->tail[op->peer] = before;
	op->state = EDM_OP_IDLE;
	edm_flow_refresh_peer(h, op->peer);
}

bool edm_host_cancel(struct edm_host *h, u64 now_ns, struct edm_op *op)
{
	struct edm_flow *flow = &h->message[op->slot];
	struct edm_item item;

	if (op->state == EDM_OP_QUEUED) {
		host_cancel_queued(h, op);
		return true;
	}
	if (op->state != EDM_OP_ACTIVE || op->offset || op->next || flow->sent)
		return false;
	item = edm_flow_item(flow);
	edm_flow_note(h, &item, 0, 0);
	flow->accepted = 0;
	edm_flow_ready(h, flow);
	edm_flow_close(h, flow);
	flow->ops = NULL;
	flow->state = EDM_FLOW_LATE;
	flow->free_ns = now_ns + h->config.late_ns;
	flow->is_open = false;
	edm_node_insert(&h->late, &flow->open);
	op->state = EDM_OP_IDLE;
	return true;
}

bool edm_host_free_late(struct edm_host *h, u64 now_ns)
{
	struct edm_flow *flow = EDM_FLOW_OF(h->late.next, open);

	if (edm_node_is_alone(&h->late) || flow->free_ns > now_ns)
		return false;
	edm_node_take(&flow->open);
	edm_flow_free(h, flow);
	return true;
}

/* ---- the scheduler ---- */

static void host_follow(struct edm_host *h, u64 now_ns, u8 link)
{
	h->follow = link;
	h->turn = EDM_UNSCHEDULED;
	h->patient = false;
	/* Every flow is new to the scheduler, and so is each request. */
	for (struct edm_node *node = h->open.next; node != &h->open; node = node->next) {
		struct edm_flow *flow = EDM_FLOW_OF(node, open);

		flow->reported_ns = 0;
		if (flow->type == EDM_READ)
			flow->repeat_ns = now_ns;
	}
	for (u16 peer = 0; peer < h->config.ports; peer++)
		edm_flow_refresh_peer(h, peer);
	h->link[link].told_ns = 0;
}

/* The first link that is up, if any. */
static void host_choose(struct edm_host *h, u64 now_ns)
{
	h->follow = EDM_UNSCHEDULED;
	h->turn = EDM_UNSCHEDULED;
	for (u8 link = 0; link < h->config.links; link++) {
		if (h->link[link].up && !edm_link_is_mute(&h->link[link], now_ns)) {
			host_follow(h, now_ns, link);
			return;
		}
	}
}

void edm_host_lose(struct edm_host *h, u64 now_ns)
{
	h->counts.silences++;
	host_choose(h, now_ns);
}

void edm_host_end_patience(struct edm_host *h, u64 now_ns)
{
	h->patient = false;
	host_choose(h, now_ns);
}

static void host_welcomed(struct edm_host *h, u64 now_ns, u8 link)
{
	if (h->follow == link) {
		host_follow(h, now_ns, link);
	} else if (h->follow == EDM_UNSCHEDULED) {
		/* The first scheduler might only be slower. */
		if (!link || !h->patient)
			host_follow(h, now_ns, link);
	} else if (link < h->follow) {
		h->turn = link;
		h->turn_seq = 0;
		h->link[h->follow].told_ns = 0;
	}
}

/* The followed scheduler has received datagrams up to a number. */
static void host_seen(struct edm_host *h, u64 now_ns, u32 seen)
{
	if (h->turn != EDM_UNSCHEDULED && h->turn_seq && (s32)(seen - h->turn_seq) >= 0)
		host_choose(h, now_ns);
}

/* The flow that a grant or refusal is for, or NULL. */
static struct edm_flow *host_flow(struct edm_host *h, const struct edm_item *item)
{
	const u32 slot = item->id & (h->config.link.slots - 1U);
	struct edm_flow *flow = &h->message[slot];

	if (item->type == EDM_ANSWER) {
		if (item->peer >= h->config.ports)
			return NULL;
		flow = &h->answer[item->peer * h->config.link.slots + slot];
	}
	return flow->state == EDM_FLOW_USED && flow->id == item->id && flow->peer == item->peer &&
			       flow->type == item->type
		       ? flow
		       : NULL;
}

/* Send without grants: the peer does not follow, or the scheduler has no room. */
static void host_refused(struct edm_host *h, struct edm_flow *flow)
{
	h->counts.refused++;
	flow->is_refused = true;
	edm_flow_open(h, flow);
}

/* Tell how much of the flow is accepted, as soon as possible. */
static void host_tell_again(struct edm_host *h, struct edm_flow *flow)
{
	const struct edm_item item = edm_flow_item(flow);

	if (flow->is_open)
		edm_flow_open(h, flow);
	else
		edm_flow_note(h, &item, flow->size, flow->accepted);
}

static void host_item(struct edm_host *h, const struct edm_item *item)
{
	struct edm_flow *flow = host_flow(h, item);

	if (item->status) {
		if (flow && flow->accepted < flow->size)
			host_refused(h, flow);
		return;
	}
	if (!flow) {
		if (item->type == EDM_WRITE)
			edm_flow_note(h, item, 0, 0);
		return;
	}
	/* The scheduler does not know how much was granted, or a grant before this one was lost. */
	if (item->granted <= flow->accepted || item->granted - item->size > flow->accepted)
		host_tell_again(h, flow);
	else if (item->granted <= flow->size)
		edm_flow_accept(h, flow, item->granted);
}

/*
 * A CHALLENGE with a later epoch: an earlier life had one that is not before this one's. This
 * life takes it, and joins anew everywhere.
 */
static bool host_takes_epoch(struct edm_host *h, u64 now_ns, u8 link,
			     const struct edm_message *message)
{
	if (message->kind != EDM_CHALLENGE || message->port != h->config.link.port ||
	    h->link[link].join_ns == EDM_NEVER ||
	    !edm_link_is_before(h->config.link.epoch, message->epoch))
		return false;
	h->config.link.epoch = message->epoch;
	if (h->follow != EDM_UNSCHEDULED)
		h->counts.silences++;
	h->follow = EDM_UNSCHEDULED;
	h->turn = EDM_UNSCHEDULED;
	for (u8 n = 0; n < h->config.links; n++)
		edm_link_init(&h->link[n], now_ns);
	h->link[link].cookie = message->cookie;
	return true;
}

void edm_host_receive(struct edm_host *h, u64 now_ns, u8 link, const struct edm_message *message,
		      const void *data)
{
	struct edm_link *l = &h->link[link];
	struct edm_item item;
	bool gap;

	if (host_takes_epoch(h, now_ns, link, message))
		return;
	if (message->kind == EDM_CHALLENGE || message->kind == EDM_WELCOME) {
		if (edm_link_welcome(l, &h->config.link, now_ns, message))
			host_welcomed(h, now_ns, link);
		return;
	}
	if (message->kind != EDM_GRANT ||
	    !edm_link_accept(l, &h->config.link, now_ns, message, &gap))
		return;
	/* Grants of a scheduler that is not followed bind nothing. */
	if (link != h->follow)
		return;
	if (gap) {
		h->counts.gaps++;
		h->gap_ns = now_ns;
	}
	for (u32 n = 0; n < message->count; n++) {
		edm_wire_item(data, n, &item);
		host_item(h, &item);
	}
	host_seen(h, now_ns, message->seen);
}

/* ---- reads: at the source ---- */

/* A peer's new life: its ids begin anew. */
static void host_peer_begins(struct edm_host *h, u16 peer, u32 epoch)
{
	h->peer_epoch[peer] = epoch;
	for (u32 slot = 0; slot < h->config.link.slots; slot++) {
		struct edm_flow *flow = &h->answer[peer * h->config.link.slots + slot];

		flow->accepted = 0;
		edm_flow_ready(h, flow);
		edm_flow_close(h, flow);
		base_zero(flow, sizeof(*flow));
	}
}

enum edm_host_verdict edm_host_request(struct edm_host *h, u64 now_ns, u8 link,
				       const struct edm_message *forward)
{
	const struct edm_item *item = &forward->item;
	const u32 slot = item->id & (h->config.link.slots - 1U);
	struct edm_flow *flow;
	bool gap;

	if (item->peer >= h->config.ports ||
	    !edm_link_accept(&h->link[link], &h->config.link, now_ns, forward, &gap) ||
	    (link != h->follow &&
	     edm_link_is_before(forward->peer_epoch, h->peer_epoch[item->peer])))
		return EDM_HOST_STALE;
	if (gap && link == h->follow) {
		h->counts.gaps++;
		h->gap_ns = now_ns;
	}
	if (forward->peer_epoch != h->peer_epoch[item->peer])
		host_peer_begins(h, item->peer, forward->peer_epoch);
	flow = &h->answer[item->peer * h->config.link.slots + slot];
	if (flow->named && (s32)(item->id - flow->id) < 0)
		return EDM_HOST_STALE;
	if (flow->named && item->id == flow->id) {
		h->counts.duplicates++;
		/* The scheduler might be another one, which does not know what was granted. */
		if (flow->accepted)
			host_tell_again(h, flow);
		return EDM_HOST_DUPLICATE;
	}
	/* The peer has ended the message before it in the slot. */
	flow->accepted = 0;
	edm_flow_ready(h, flow);
	edm_flow_close(h, flow);
	*flow = (struct edm_flow){
		.id = item->id,
		.size = item->size,
		.peer = item->peer,
		.type = EDM_ANSWER,
		.state = EDM_FLOW_USED,
		.named = true,
		.repeat_ns = EDM_NEVER,
	};
	edm_flow_open(h, flow);
	/* Its grant is on its way: there is nothing to report yet. */
	edm_node_take(&flow->open);
	flow->reported_ns = now_ns;
	edm_node_insert(&h->open, &flow->open);
	return EDM_HOST_NEW;
}

static struct edm_flow *host_answer_flow(struct edm_host *h, u16 peer, u32 id)
{
	const struct edm_item item = {.id = id, .peer = peer, .type = EDM_ANSWER};

	return host_flow(h, &item);
}

void edm_host_answer(struct edm_host *h, u16 peer, u32 id)
{
	struct edm_flow *flow = host_answer_flow(h, peer, id);

	if (!flow)
		return;
	flow->has_data = true;
	edm_flow_ready(h, flow);
}

struct edm_op *edm_host_op_of(struct edm_host *h, const struct edm_message *data)
{
	const struct edm_flow *flow = &h->message[data->id & (h->config.link.slots - 1U)];

	if (data->type != EDM_ANSWER || data->epoch != h->config.link.epoch ||
	    flow->state != EDM_FLOW_USED || flow->type != EDM_READ || flow->id != data->id ||
	    flow->peer != data->port || data->offset > flow->size ||
	    data->payload_bytes > flow->size - data->offset)
		return NULL;
	return flow->ops;
}

/* ---- invariants ---- */

static const char *host_check_flow(const struct edm_flow *flow)
{
	if (flow->sent > flow->accepted || flow->accepted > flow->size)
		return "sent <= accepted <= size does not hold";
	if (flow->is_active && flow->state != EDM_FLOW_USED)
		return "a message without state counts as active";
	if (flow->is_open && flow->type == EDM_WRITE && flow->accepted == flow->size)
		return "a message is open, but granted in full";
	return NULL;
}

const char *edm_host_check(const struct edm_host *h)
{
	u32 active = 0, counted = 0;

	for (u32 slot = 0; slot < h->config.link.slots; slot++) {
		const struct edm_flow *flow = &h->message[slot];
		const bool free = h->free[slot / 64] >> (slot % 64) & 1;
		const char *broken = host_check_flow(flow);

		if (broken)
			return broken;
		if (free == !!flow->state)
			return "the set of free slots is wrong";
		active += flow->is_active;
	}
	for (u32 peer = 0; peer < h->config.ports; peer++)
		counted += h->active[peer];
	return active == counted ? NULL : "the count of active messages is wrong";
}
