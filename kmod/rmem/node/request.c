// SPDX-License-Identifier: GPL-2.0
/*
 * Requests are executed in the softirq that brought them:
 *
 *   port: form, space, tag (rmem_port_ops.h)
 *     |
 *   rmem_port_request(), a message at a time
 *     |-- rmem_node_is_slow() --> slow.c
 *     |
 *   slot lock { rmem_node_request() decides; rmem_execute() copies, and adds the answer }
 *     |
 *   port: the answers leave
 *
 * Nothing is allocated here.
 */
#include <linux/export.h>
#include <linux/ktime.h>
#include <linux/percpu.h>

#include "core/rmem/node/execute.h"
#include "rmem/node/calls.h"
#include "rmem/node/count.h"
#include "rmem/node/mem.h"
#include "rmem/node/ports.h"
#include "rmem/node/reply.h"
#include "rmem/node/request.h"
#include "rmem/node/slow.h"
#include "rmem/node/trace.h"
#include "rmem/node/types.h"

/* A message on its way through; lives on the stack. */
struct node_request {
	struct node_host *host;
	struct rmem_port_batch *batch;
	const struct rmem_record *in;
	u32 room_bytes; /* rmem_node_datagram_bytes() */
	bool identified; /* its sender is the session's client */
};

/*
 * The part of a payload that the core looks at, the ranges of a READV or WRITEV for one, in one
 * place. It is used within a softirq, which no other interrupts on its CPU.
 */
struct node_frame {
	u8 bytes[RMEM_RANGES_MAX * sizeof(struct rmem_range)];
};

/* ---- data in ---- */

static void *request_at(void *carrier, const struct rmem_extent *extent)
{
	const struct node_request *rq = carrier;

	return node_mem_at(&rq->host->mem, extent);
}

static void request_copy(void *carrier, u32 offset, void *to, u32 bytes)
{
	const struct rmem_payload *payload = ((const struct node_request *)carrier)->in->payload;

	payload->copy(payload, offset, to, bytes);
}

/* ---- data out ---- */

struct node_data {
	struct rmem_port_data data; /* first */
	const struct node_host *host;
	struct rmem_answer *answer;
	struct rmem_execute_data *pages;
};

static int request_send(struct node_request *rq, struct rmem_head *head,
			const struct node_data *data)
{
	return rq->batch->port->ops->answer(rq->batch, head, data ? &data->data : NULL,
					    rq->room_bytes);
}

/* An extent never written is read from the page of zeros. */
static bool request_walk_pages(const struct rmem_port_data *data, rmem_stretch_fn fn, void *arg)
{
	const struct node_data *mine = container_of(data, struct node_data, data);
	const struct node_mem *mem = &mine->host->mem;
	unsigned int i;

	rmem_execute_begin(mine->pages);
	while (rmem_execute_next(mine->pages)) {
		if (unlikely(mine->pages->gone))
			return false;
		for (i = 0; i < mine->answer->extents; i++) {
			const struct rmem_extent *extent = &mine->answer->extent[i];

			if (extent->page != RMEM_PAGE_NONE)
				fn(arg, mem->page[extent->page], node_mem_at(mem, extent),
				   extent->bytes);
			else
				fn(arg, mem->zero, page_address(mem->zero), extent->bytes);
		}
	}
	return true;
}

static bool request_walk_found(const struct rmem_port_data *data, rmem_stretch_fn fn, void *arg)
{
	const struct node_data *mine = container_of(data, struct node_data, data);

	fn(arg, NULL, &mine->answer->found, rmem_wire_payload_bytes(&mine->answer->reply));
	return true;
}

/*
 * Most bytes of an answer that are copied where it has a digest, or is to be sealed. The programs
 * that poll or change a small object do so at short intervals: a page that is lent changes between
 * digest and departure, and the reader finds the answer damaged, again and again. A sealed answer
 * is copied in any case, but a long one without the slot's lock, as it leaves.
 */
#define COPIED_BYTES_MAX 1024U

/* Ranges can be many, and short, so their data is copied. */
static bool request_may_lend(const struct rmem_execute_data *pages, const struct rmem_head *reply)
{
	return !pages->ranges &&
	       (reply->integrity == RMEM_LINK || reply->len > COPIED_BYTES_MAX);
}

static bool request_answer(void *carrier, struct rmem_answer *answer,
			   struct rmem_execute_data *pages)
{
	struct node_request *rq = carrier;
	struct node_data data = {
		.data.walk = pages ? request_walk_pages : request_walk_found,
		.host = rq->host,
		.answer = answer,
		.pages = pages,
	};

	if (!pages)
		return !request_send(rq, &answer->reply,
				     rmem_wire_payload_bytes(&answer->reply) ? &data : NULL);
	if (request_may_lend(pages, &answer->reply))
		data.data.pages = answer->extents;
	if (request_send(rq, &answer->reply, &data))
		return false;
	node_count_add(NODE_COUNT_READ_BYTES, answer->reply.len);
	return true;
}

/* ---- execution ---- */

static bool request_run(void *carrier, const struct rmem_head *head, struct rmem_answer *answer)
{
	struct node_request *rq = carrier;

	return node_calls_admit(rq->batch, rq->in, answer);
}

static const struct rmem_execute_ops request_ops = {
	.at = request_at,
	.copy = request_copy,
	.answer = request_answer,
	.run = request_run,
};

/* As much of the payload as the core looks at. */
static const void *request_known_payload(const struct node_request *rq)
{
	const struct rmem_payload *payload = rq->in->payload;
	u32 bytes = rmem_wire_frame_bytes(rq->in->head);
	void *frame = this_cpu_ptr(rq->host->frame);

	if (bytes)
		payload->copy(payload, 0, frame, bytes);
	return frame;
}

/* Slot lock. */
static void request_execute(struct node_request *rq)
{
	struct rmem_node *core = &rq->host->core;
	const struct rmem_head *head = rq->in->head;
	const void *known = request_known_payload(rq);
	struct rmem_answer answer;

	rmem_node_request(core, ktime_get_coarse_ns(), head, known, &rq->batch->path.peer, &answer);
	rq->room_bytes = rmem_node_datagram_bytes(&answer);
	rq->identified = answer.session;
	if (answer.action != RMEM_ACT_RUN) /* counted at its end */
		node_count(NODE_COUNT_REASON + answer.reason);
	if (answer.reason == RMEM_NODE_OK && rmem_type_brings_data(head->type) &&
	    !rmem_type_runs(head->type))
		node_count_add(NODE_COUNT_WRITE_BYTES, head->len);
	trace_rmem_node_decision(head, &answer);
	rmem_execute(core, &request_ops, rq, head, known, &answer);
}

/* The payload doesn't match its digest: its client is told, and nothing changed. Slot lock. */
static void request_tell_damaged(struct node_request *rq)
{
	struct rmem_head head;

	rq->identified = rmem_node_damaged(&rq->host->core, ktime_get_coarse_ns(), rq->in->head,
					   &rq->batch->path.peer, &head);
	if (rq->identified)
		request_send(rq, &head, NULL);
}

/* No slot lock. A damaged request isn't answered: who sent it isn't known. */
static void request_refuse(struct node_request *rq, struct rmem_answer *answer)
{
	if (!rq->in->damaged) {
		node_count(NODE_COUNT_REASON + answer->reason);
		trace_rmem_node_decision(rq->in->head, answer);
		rq->room_bytes = rmem_node_datagram_bytes(answer);
		request_answer(rq, answer, NULL);
	}
	rq->batch->port->ops->answered(rq->batch, RMEM_PORT_NO_SLOT);
}

static __always_inline void request_fast_path(struct node_request *rq,
					      void (*act)(struct node_request *rq))
{
	u32 n = rmem_node_slot(&rq->host->core, rq->in->head->session);
	struct node_slot *slot = &rq->host->slot[n];
	struct rmem_answer answer;

	if (unlikely(rmem_node_refuses(&rq->host->core, rq->in->head, &answer))) {
		request_refuse(rq, &answer);
		return;
	}
	spin_lock(&slot->lock);
	act(rq);
	rq->batch->port->ops->answered(rq->batch, rq->identified ? n : RMEM_PORT_NO_SLOT);
	spin_unlock(&slot->lock);
}

/* ---- the ports call ---- */

static bool request_drop(unsigned int count, u32 bytes)
{
	node_count(count);
	trace_rmem_node_drop(count, bytes);
	return false;
}

bool rmem_port_drop(enum rmem_port_count reason, u32 bytes)
{
	return request_drop(NODE_COUNT_PORT + reason, bytes);
}
EXPORT_SYMBOL_GPL(rmem_port_drop);

void rmem_port_count(enum rmem_port_count which)
{
	node_count(NODE_COUNT_PORT + which);
}
EXPORT_SYMBOL_GPL(rmem_port_count);

bool rmem_port_takes(const struct rmem_port *port, u32 bytes)
{
	return likely(!READ_ONCE(port->node->hibernating)) ||
	       request_drop(NODE_COUNT_DROP_HIBERNATING, bytes);
}
EXPORT_SYMBOL_GPL(rmem_port_takes);

const struct base_siphash_key *rmem_port_key(const struct rmem_port *port, u32 space, u32 bytes)
{
	const struct base_siphash_key *key = rmem_node_key(&port->node->core, space);

	if (!key)
		request_drop(NODE_COUNT_DROP_SPACE, bytes);
	return key && rmem_port_takes(port, bytes) ? key : NULL;
}
EXPORT_SYMBOL_GPL(rmem_port_key);

bool rmem_port_seal_keys(const struct rmem_port *port, const struct rmem_head *head,
			 struct rmem_seal_keys *keys, struct rmem_head *notice)
{
	if (likely(rmem_node_keys(&port->node->core, head, keys)))
		return true;
	node_reply_notice(port->node, head, notice);
	return false;
}
EXPORT_SYMBOL_GPL(rmem_port_seal_keys);

bool rmem_port_request(struct rmem_port_batch *batch, const struct rmem_record *record)
{
	struct node_request rq = { .host = batch->port->node, .batch = batch, .in = record };
	const struct rmem_head *head = record->head;

	if (unlikely(head->integrity == RMEM_SEALED && !batch->seals))
		return rmem_port_drop(RMEM_PORT_WIRE + RMEM_WIRE_MALFORMED, record->payload->bytes);
	rmem_port_count(RMEM_PORT_WIRE + (record->damaged ? RMEM_WIRE_DAMAGED : RMEM_WIRE_GOOD));
	node_count(NODE_COUNT_TYPE + head->type - RMEM_OPEN);
	trace_rmem_node_request(head);

	if (unlikely(record->damaged)) {
		request_fast_path(&rq, request_tell_damaged);
		return true;
	}
	if (!rmem_node_is_slow(&rq.host->core, head)) {
		request_fast_path(&rq, request_execute);
		return true;
	}
	/* Its answer leaves from another thread; those to earlier requests leave before. */
	batch->port->ops->flush(batch);
	return node_slow_add(batch, record) ||
	       request_drop(NODE_COUNT_DROP_QUEUE_FULL, record->payload->bytes);
}
EXPORT_SYMBOL_GPL(rmem_port_request);

void rmem_port_settle(struct rmem_port *port)
{
	node_mem_scrub(port->node);
}
EXPORT_SYMBOL_GPL(rmem_port_settle);

/* ---- life ---- */

int node_request_open(struct node_host *host, struct netlink_ext_ack *extack)
{
	int err;

	host->frame = alloc_percpu(struct node_frame);
	if (!host->frame) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the ranges of requests");
		return -ENOMEM;
	}
	err = node_ports_open(host, extack);
	if (err)
		free_percpu(host->frame);
	return err;
}

void node_request_close(struct node_host *host)
{
	node_ports_close(host);
	free_percpu(host->frame);
}
