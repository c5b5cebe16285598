// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/edm/flow.h"

/* Messages of a peer that may wait for grants at a time. */
static u32 flow_active_max(const struct edm_host *h)
{
	return h->follow == EDM_UNSCHEDULED ? EDM_ACTIVE_MAX : h->link[h->follow].active_max;
}

void edm_flow_refresh_peer(struct edm_host *h, u16 peer)
{
	edm_flow_set(h->waiting, peer, h->head[peer] && h->active[peer] < flow_active_max(h));
}

void edm_flow_open(struct edm_host *h, struct edm_flow *flow)
{
	if (flow->is_open)
		edm_node_take(&flow->open);
	flow->is_open = true;
	flow->reported_ns = 0;
	edm_node_insert(h->open.next, &flow->open);
}

void edm_flow_close(struct edm_host *h, struct edm_flow *flow)
{
	if (flow->is_open)
		edm_node_take(&flow->open);
	flow->is_open = false;
	if (!flow->is_active)
		return;
	flow->is_active = false;
	h->active[flow->peer]--;
	edm_flow_refresh_peer(h, flow->peer);
}

void edm_flow_ready(struct edm_host *h, struct edm_flow *flow)
{
	const bool ready =
		flow->sent < flow->accepted &&
		(flow->type == EDM_WRITE || (flow->type == EDM_ANSWER && flow->has_data));

	if (ready && !flow->is_ready)
		edm_node_insert(&h->ready, &flow->ready);
	else if (!ready && flow->is_ready)
		edm_node_take(&flow->ready);
	flow->is_ready = ready;
}

void edm_flow_accept(struct edm_host *h, struct edm_flow *flow, u32 accepted)
{
	flow->accepted = accepted;
	if (accepted == flow->size)
		edm_flow_close(h, flow);
	edm_flow_ready(h, flow);
}

void edm_flow_free(struct edm_host *h, struct edm_flow *flow)
{
	edm_flow_close(h, flow);
	flow->state = EDM_FLOW_FREE;
	flow->id += h->config.link.slots;
	edm_flow_set(h->free, (u32)(flow - h->message), true);
}

void edm_flow_note(struct edm_host *h, const struct edm_item *item, u32 size, u32 accepted)
{
	if (h->notes_count < EDM_NOTES_MAX)
		h->note[h->notes_count++] = (struct edm_item){
			.id = item->id,
			.peer = item->peer,
			.type = item->type,
			.size = size,
			.granted = accepted,
		};
}

struct edm_item edm_flow_item(const struct edm_flow *flow)
{
	return (struct edm_item){
		.id = flow->id,
		.size = flow->size,
		.peer = flow->peer,
		.type = flow->type,
		.granted = flow->accepted,
	};
}
