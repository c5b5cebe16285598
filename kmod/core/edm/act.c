// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * edm_host_next() decides in this order: ops that were sent, data that may be sent, joins and
 * leases, flows that go without grants, reports to the scheduler.
 */
#include "core/base/bits.h"
#include "core/edm/flow.h"

/* A REQUEST is repeated after a quarter of a lease, and then after twice the time up to this. */
#define ACT_REPEATS_MAX 3U

static u64 act_report_due_ns(const struct edm_host *h, const struct edm_flow *flow)
{
	if (flow->reported_ns < h->gap_ns)
		return 0;
	return flow->reported_ns ? flow->reported_ns + h->link[h->follow].lease_ns / 4 : 0;
}

static struct edm_flow *act_first_open(const struct edm_host *h)
{
	return edm_node_is_alone(&h->open) ? NULL : EDM_FLOW_OF(h->open.next, open);
}

static void act_data(const struct edm_host *h, const struct edm_flow *flow,
		     struct edm_host_action *action, u32 offset)
{
	const bool answer = flow->type == EDM_ANSWER;

	action->what = answer ? EDM_HOST_ANSWER : EDM_HOST_SEND;
	action->peer = flow->peer;
	action->unscheduled = flow->is_refused;
	action->message = (struct edm_message){
		.kind = EDM_DATA,
		.port = h->config.link.port,
		.type = flow->type,
		.id = flow->id,
		.epoch = answer ? h->peer_epoch[flow->peer] : h->config.link.epoch,
		.offset = offset,
		.payload_bytes = action->bytes,
	};
}

/* Bytes of a flow that may be sent: those of its first op, if it has several. */
static bool act_send(struct edm_host *h, struct edm_host_action *action)
{
	struct edm_flow *flow = EDM_FLOW_OF(h->ready.next, ready);
	u32 end;

	if (edm_node_is_alone(&h->ready))
		return false;
	end = flow->accepted;
	action->op = flow->ops;
	action->from = flow->sent;
	if (flow->ops) {
		end = (u32)base_min(end, (u64)flow->ops->offset + flow->ops->bytes);
		action->from -= flow->ops->offset;
	}
	action->bytes = end - flow->sent;
	act_data(h, flow, action, flow->sent);
	flow->sent = end;
	edm_flow_ready(h, flow);
	if (flow->ops && end == flow->ops->offset + flow->ops->bytes) {
		h->sent = flow->ops;
		flow->ops = h->sent->next;
		h->sent->next = NULL;
		if (!flow->ops)
			edm_flow_free(h, flow);
	}
	return true;
}

/* An op whose last bytes were sent by the action before. */
static bool act_sent(struct edm_host *h, struct edm_host_action *action)
{
	if (!h->sent)
		return false;
	action->what = EDM_HOST_SENT;
	action->op = h->sent;
	action->op->state = EDM_OP_IDLE;
	h->sent = NULL;
	return true;
}

/* The first open flow goes without grants, if it has to. */
static bool act_unscheduled(struct edm_host *h, struct edm_host_action *action, bool *acted)
{
	struct edm_flow *flow = act_first_open(h);

	if (!flow || (!flow->is_refused && !edm_host_is_unscheduled(h)))
		return false;
	flow->is_refused = true;
	h->counts.unscheduled++;
	if (flow->type != EDM_READ) {
		edm_flow_accept(h, flow, flow->size);
		return true;
	}
	edm_flow_close(h, flow);
	flow->repeat_ns = EDM_NEVER;
	action->what = EDM_HOST_ASK;
	action->peer = flow->peer;
	action->unscheduled = true;
	action->op = flow->ops;
	*acted = true;
	return true;
}

static void act_reported(struct edm_host *h, u64 now_ns, struct edm_flow *flow)
{
	edm_node_take(&flow->open);
	flow->reported_ns = now_ns;
	edm_node_insert(&h->open, &flow->open);
}

/* A read's request, as long as its answer has not come. It announces the read, too. */
static bool act_ask(struct edm_host *h, u64 now_ns, struct edm_flow *flow,
		    struct edm_host_action *action)
{
	struct edm_link *link = edm_flow_link(h);
	const u32 doublings = (u32)base_min(flow->repeats++, ACT_REPEATS_MAX);

	if (flow->repeats > ACT_REPEATS_MAX)
		flow->repeats = ACT_REPEATS_MAX;
	flow->repeat_ns = now_ns + (link->lease_ns / 4 << doublings);
	act_reported(h, now_ns, flow);
	edm_link_message(link, &h->config.link, now_ns, EDM_REQUEST, &action->message);
	action->message.follows = true;
	action->message.item = edm_flow_item(flow);
	action->what = EDM_HOST_ASK;
	action->link = h->follow;
	action->peer = flow->peer;
	action->op = flow->ops;
	return true;
}

/* A read's request goes before its entries: the scheduler forwards it. */
static bool act_must_ask(const struct edm_flow *flow, u64 now_ns)
{
	return flow->type == EDM_READ && flow->repeat_ns <= now_ns;
}

/* Tell the scheduler of a link: flows that are due, and that the host is there. */
static bool act_tell(struct edm_host *h, u64 now_ns, u8 link, struct edm_host_action *action)
{
	struct edm_message *message = &action->message;
	struct edm_flow *flow;

	action->what = EDM_HOST_TELL;
	action->link = link;
	edm_link_message(&h->link[link], &h->config.link, now_ns, EDM_DEMAND, message);
	message->follows = link == h->follow && h->turn == EDM_UNSCHEDULED;
	if (link == h->follow && !message->follows && !h->turn_seq)
		h->turn_seq = message->seq;
	if (!message->follows)
		return true;
	while (h->notes_count)
		action->items[message->count++] = h->note[--h->notes_count];
	while (message->count < EDM_ENTRIES_MAX && (flow = act_first_open(h)) != NULL &&
	       act_report_due_ns(h, flow) <= now_ns && !act_must_ask(flow, now_ns)) {
		action->items[message->count++] = edm_flow_item(flow);
		act_reported(h, now_ns, flow);
	}
	return true;
}

/* Is a flow due to be reported to the followed scheduler, or asked for? */
static bool act_report(struct edm_host *h, u64 now_ns, struct edm_host_action *action)
{
	const struct edm_link *link = edm_flow_link(h);
	struct edm_flow *flow = act_first_open(h);

	h->is_mute = link && edm_link_is_mute(link, now_ns);
	if (!link || h->is_mute || h->turn != EDM_UNSCHEDULED)
		return false;
	if (h->notes_count)
		return act_tell(h, now_ns, h->follow, action);
	if (!flow || act_report_due_ns(h, flow) > now_ns)
		return false;
	if (act_must_ask(flow, now_ns))
		return act_ask(h, now_ns, flow, action);
	return act_tell(h, now_ns, h->follow, action);
}

/* Joins, and leases to keep. */
static bool act_links(struct edm_host *h, u64 now_ns, struct edm_host_action *action)
{
	for (u8 n = 0; n < h->config.links; n++) {
		struct edm_link *link = &h->link[n];

		if (edm_link_falls(link, now_ns) && h->follow == n)
			edm_host_lose(h, now_ns);
		if (edm_link_join(link, &h->config.link, now_ns, &action->message)) {
			action->what = EDM_HOST_TELL;
			action->link = n;
			return true;
		}
		if (edm_link_is_due(link, now_ns))
			return act_tell(h, now_ns, n, action);
	}
	return false;
}

bool edm_host_next(struct edm_host *h, u64 now_ns, struct edm_host_action *action)
{
	bool acted = false;

	action->op = NULL;
	action->unscheduled = false;
	if (h->patient && now_ns - h->start_ns >= h->config.patience_ns)
		edm_host_end_patience(h, now_ns);
	while (edm_host_free_late(h, now_ns) || edm_host_pump(h, now_ns))
		;
	if (act_sent(h, action) || act_send(h, action))
		return true;
	if (act_links(h, now_ns, action))
		return true;
	while (act_unscheduled(h, action, &acted)) {
		if (acted || act_send(h, action))
			return true;
	}
	return act_report(h, now_ns, action);
}

u64 edm_host_deadline_ns(const struct edm_host *h)
{
	const struct edm_flow *flow = act_first_open(h);
	u64 due = EDM_NEVER;

	for (u32 link = 0; link < h->config.links; link++)
		due = base_min(due, edm_link_deadline_ns(&h->link[link]));
	if (h->patient)
		due = base_min(due, h->start_ns + h->config.patience_ns);
	if (!edm_node_is_alone(&h->late))
		due = base_min(due, EDM_FLOW_OF(h->late.next, open)->free_ns);
	if (flow && h->follow != EDM_UNSCHEDULED && h->turn == EDM_UNSCHEDULED && !h->is_mute)
		due = base_min(due, act_report_due_ns(h, flow));
	return due;
}
