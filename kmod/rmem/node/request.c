// SPDX-License-Identifier: GPL-2.0
/*
 * Requests are executed in the softirq that brought them:
 *
 *   port: form, space, tag (rmem_port_ops.h)
 *     |
 *   rmem_port_request(), a message at a time
 *     |-- OPEN CLOSE FENCE ALLOC FREE PUBLISH LOOKUP, long ZERO --> slow.c
 *     |
 *   slot lock { core decides; copy between payload and pages; executed; answer added }
 *     |
 *   port: the answers leave
 *
 * Nothing is allocated here.
 */
#include <linux/export.h>
#include <linux/ktime.h>
#include <linux/percpu.h>

#include "rmem/node/host.h"
#include "rmem/node/trace.h"

/* A message on its way through; lives on the stack. */
struct node_request {
	struct node_host *host;
	struct rmem_port_batch *batch;
	const struct rmem_record *in;
	u32 room_bytes; /* rmem_node_datagram_bytes() */
	bool identified; /* its sender is the session's client */
};

/*
 * The ranges of a READV or WRITEV, in one place. They are used within a softirq, which no other
 * interrupts on its CPU.
 */
struct node_ranges {
	struct rmem_range range[RMEM_RANGES_MAX];
};

/* ---- data in ---- */

/*
 * Payload from *offset on to pages. The lengths were compared, so there is as much of it as the
 * extents take. A range of a WRITEV that was freed meanwhile has no page.
 */
static void copy_extents(const struct node_request *rq, u32 *offset,
			 const struct rmem_answer *answer)
{
	const struct rmem_payload *payload = rq->in->payload;
	unsigned int i;

	for (i = 0; i < answer->extents; i++) {
		const struct rmem_extent *extent = &answer->extent[i];

		if (extent->page != RMEM_PAGE_NONE)
			payload->copy(payload, *offset, node_mem_at(&rq->host->mem, extent),
				      extent->bytes);
		*offset += extent->bytes;
	}
}

/* All of the payload but its first skip_bytes. */
static void copy_in(const struct node_request *rq, u32 skip_bytes,
		    const struct rmem_answer *answer)
{
	copy_extents(rq, &skip_bytes, answer);
	node_count_add(NODE_COUNT_WRITE_BYTES, rq->in->head->len);
}

/* The same, of a WRITEV. */
static void scatter(const struct node_request *rq, const void *ranges, struct rmem_answer *answer)
{
	u32 offset = rmem_wire_ranges_bytes(rq->in->head);
	unsigned int i;

	for (i = 0; i < rq->in->head->op; i++) {
		rmem_node_range(&rq->host->core, ranges, i, answer);
		copy_extents(rq, &offset, answer);
	}
	node_count_add(NODE_COUNT_WRITE_BYTES, rq->in->head->len);
}

static void fill(const struct node_request *rq, const struct rmem_answer *answer)
{
	unsigned int i;

	for (i = 0; i < answer->extents; i++)
		memset(node_mem_at(&rq->host->mem, &answer->extent[i]), 0,
		       answer->extent[i].bytes);
}

/* The integer is in one page, since it's aligned. */
static void request_atomic(const struct node_request *rq, struct rmem_answer *answer)
{
	struct rmem_operands operands;

	rq->in->payload->copy(rq->in->payload, 0, &operands, sizeof(operands));
	rmem_node_atomic(&operands, node_mem_at(&rq->host->mem, &answer->extent[0]), answer);
}

static void request_put(const struct node_request *rq, const struct rmem_put *put,
			struct rmem_answer *answer)
{
	copy_in(rq, sizeof(*put), answer);
	rmem_node_put(put, node_mem_at(&rq->host->mem, &answer->integer), answer);
}

static void request_copy(const struct node_request *rq, struct rmem_answer *answer)
{
	const struct node_mem *mem = &rq->host->mem;
	struct rmem_extent to, from;

	while (rmem_node_stretch(answer, &to, &from)) {
		if (from.page == RMEM_PAGE_NONE)
			memset(node_mem_at(mem, &to), 0, to.bytes);
		else
			memcpy(node_mem_at(mem, &to), node_mem_at(mem, &from), to.bytes);
	}
}

/* ---- data out ---- */

struct node_data {
	struct rmem_port_data data; /* first */
	const struct node_host *host;
	struct rmem_answer *answer;
	const void *ranges; /* of a READV */
};

static int send(struct node_request *rq, struct rmem_head *head, const struct node_data *data)
{
	return rq->batch->port->ops->answer(rq->batch, head, data ? &data->data : NULL,
					    rq->room_bytes);
}

/* An extent never written is read from the page of zeros. */
static bool walk_extents(const struct rmem_port_data *data, rmem_stretch_fn fn, void *arg)
{
	const struct node_data *mine = container_of(data, struct node_data, data);
	const struct node_mem *mem = &mine->host->mem;
	unsigned int i;

	for (i = 0; i < mine->answer->extents; i++) {
		const struct rmem_extent *extent = &mine->answer->extent[i];

		if (extent->page != RMEM_PAGE_NONE)
			fn(arg, mem->page[extent->page], node_mem_at(mem, extent), extent->bytes);
		else
			fn(arg, mem->zero, page_address(mem->zero), extent->bytes);
	}
	return true;
}

static bool walk_ranges(const struct rmem_port_data *data, rmem_stretch_fn fn, void *arg)
{
	const struct node_data *mine = container_of(data, struct node_data, data);
	unsigned int i;

	for (i = 0; i < mine->answer->reply.op; i++) {
		if (unlikely(!rmem_node_range(&mine->host->core, mine->ranges, i, mine->answer)))
			return false;
		walk_extents(data, fn, arg);
	}
	return true;
}

static bool walk_found(const struct rmem_port_data *data, rmem_stretch_fn fn, void *arg)
{
	const struct node_data *mine = container_of(data, struct node_data, data);

	fn(arg, NULL, &mine->answer->found, rmem_wire_payload_bytes(&mine->answer->reply));
	return true;
}

/*
 * Most bytes of an answer that are copied where it has a digest. The programs that poll or change a
 * small object do so at short intervals: a page that is lent changes between digest and departure,
 * and the reader finds the answer damaged, again and again.
 */
#define COPIED_BYTES_MAX 1024U

static bool may_lend(const struct rmem_head *reply)
{
	return reply->integrity == RMEM_LINK || reply->len > COPIED_BYTES_MAX;
}

/* All parts of a READ, or those there are buffers for; the others are asked for again. */
static void send_parts(struct node_request *rq, struct rmem_answer *answer)
{
	struct node_data data = {
		.data.walk = walk_extents,
		.host = rq->host,
		.answer = answer,
	};
	u32 offset = 0, bytes;

	while ((bytes = rmem_node_read_part(&rq->host->core, rq->in->head, offset, answer))) {
		data.data.pages = may_lend(&answer->reply) ? answer->extents : 0;
		if (send(rq, &answer->reply, &data))
			break;
		node_count_add(NODE_COUNT_READ_BYTES, bytes);
		offset += bytes;
	}
}

/* Ranges can be many, and short, so their data is copied. */
static void gather(struct node_request *rq, const void *ranges, struct rmem_answer *answer)
{
	const struct node_data data = {
		.data.walk = walk_ranges,
		.host = rq->host,
		.answer = answer,
		.ranges = ranges,
	};
	int err = send(rq, &answer->reply, &data);

	if (!err)
		node_count_add(NODE_COUNT_READ_BYTES, answer->reply.len);
	if (likely(err != -EFAULT))
		return;
	answer->reply.status = RMEM_FAULT;
	send(rq, &answer->reply, NULL);
}

static void reply(struct node_request *rq, struct rmem_answer *answer)
{
	const struct node_data found = { .data.walk = walk_found, .answer = answer };

	send(rq, &answer->reply, rmem_wire_payload_bytes(&answer->reply) ? &found : NULL);
}

/* ---- execution ---- */

/* The part of a payload that the core looks at, if the request has no ranges. */
union node_frame {
	struct rmem_put put;
	struct rmem_copy copy;
};

/* As much of the payload as the core looks at. */
static const void *known_payload(const struct node_request *rq, union node_frame *frame)
{
	const struct rmem_payload *payload = rq->in->payload;
	const struct rmem_head *head = rq->in->head;

	if (rmem_type_has_ranges(head->type)) {
		void *ranges = this_cpu_ptr(rq->host->ranges);

		payload->copy(payload, 0, ranges, rmem_wire_ranges_bytes(head));
		return ranges;
	}
	if (head->type == RMEM_PUT)
		payload->copy(payload, 0, &frame->put, sizeof(frame->put));
	if (head->type == RMEM_COPY)
		payload->copy(payload, 0, &frame->copy, sizeof(frame->copy));
	return frame;
}

/* READ, WRITE, DISCARD, ZERO, ATOMIC, PUT, READV, WRITEV, COPY. Slot lock. */
static void request_execute(struct node_request *rq)
{
	struct rmem_node *core = &rq->host->core;
	struct rmem_answer answer;
	union node_frame frame = {};
	const void *known = known_payload(rq, &frame);

	rmem_node_request(core, ktime_get_coarse_ns(), rq->in->head, known, &rq->batch->path.peer,
			  &answer);
	rq->room_bytes = rmem_node_datagram_bytes(&answer);
	rq->identified = answer.session;
	node_count(NODE_COUNT_REASON + answer.reason);
	trace_rmem_node_decision(rq->in->head, &answer);

	switch (answer.action) {
	case RMEM_ACT_DROP:
		return;
	case RMEM_ACT_SEND_OUT:
		send_parts(rq, &answer);
		return;
	case RMEM_ACT_GATHER:
		gather(rq, known, &answer);
		return;
	case RMEM_ACT_COPY_IN:
		copy_in(rq, 0, &answer);
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_SCATTER:
		scatter(rq, known, &answer);
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_FILL:
		fill(rq, &answer);
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_ATOMIC:
		request_atomic(rq, &answer);
		break;
	case RMEM_ACT_PUT:
		request_put(rq, &frame.put, &answer);
		break;
	case RMEM_ACT_COPY:
		request_copy(rq, &answer);
		rmem_node_done(&answer);
		break;
	case RMEM_ACT_REPLY:
		break;
	}
	reply(rq, &answer);
}

/* The payload doesn't match its digest: its client is told, and nothing changed. Slot lock. */
static void tell_damaged(struct node_request *rq)
{
	struct rmem_head head;

	rq->identified = rmem_node_damaged(&rq->host->core, ktime_get_coarse_ns(), rq->in->head,
					   &rq->batch->path.peer, &head);
	if (rq->identified)
		send(rq, &head, NULL);
}

static __always_inline void fast_path(struct node_request *rq, void (*act)(struct node_request *rq))
{
	u32 n = rmem_node_slot(&rq->host->core, rq->in->head->session);
	struct node_slot *slot = &rq->host->slot[n];

	spin_lock(&slot->lock);
	act(rq);
	rq->batch->port->ops->answered(rq->batch, rq->identified ? n : RMEM_PORT_NO_SLOT);
	spin_unlock(&slot->lock);
}

/* ---- the ports call ---- */

static bool drop(unsigned int count, u32 bytes)
{
	node_count(count);
	trace_rmem_node_drop(count, bytes);
	return false;
}

bool rmem_port_drop(enum rmem_port_count reason, u32 bytes)
{
	return drop(NODE_COUNT_PORT + reason, bytes);
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
	       drop(NODE_COUNT_DROP_HIBERNATING, bytes);
}
EXPORT_SYMBOL_GPL(rmem_port_takes);

const struct base_siphash_key *rmem_port_key(const struct rmem_port *port, u32 space, u32 bytes)
{
	const struct base_siphash_key *key = rmem_node_key(&port->node->core, space);

	if (!key)
		drop(NODE_COUNT_DROP_SPACE, bytes);
	return key && rmem_port_takes(port, bytes) ? key : NULL;
}
EXPORT_SYMBOL_GPL(rmem_port_key);

bool rmem_port_request(struct rmem_port_batch *batch, const struct rmem_record *record)
{
	struct node_request rq = { .host = batch->port->node, .batch = batch, .in = record };
	const struct rmem_head *head = record->head;

	rmem_port_count(RMEM_PORT_WIRE + (record->damaged ? RMEM_WIRE_DAMAGED : RMEM_WIRE_GOOD));
	node_count(NODE_COUNT_TYPE + head->type - RMEM_OPEN);
	trace_rmem_node_request(head);

	if (unlikely(record->damaged)) {
		fast_path(&rq, tell_damaged);
		return true;
	}
	if (!rmem_node_is_slow(&rq.host->core, head)) {
		fast_path(&rq, request_execute);
		return true;
	}
	/* Its answer leaves from another thread; those to earlier requests leave before. */
	batch->port->ops->flush(batch);
	return node_slow_add(batch, record) ||
	       drop(NODE_COUNT_DROP_QUEUE_FULL, record->payload->bytes);
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

	host->ranges = alloc_percpu(struct node_ranges);
	if (!host->ranges) {
		NL_SET_ERR_MSG_MOD(extack, "no memory for the ranges of requests");
		return -ENOMEM;
	}
	err = node_ports_open(host, extack);
	if (err)
		free_percpu(host->ranges);
	return err;
}

void node_request_close(struct node_host *host)
{
	node_ports_close(host);
	free_percpu(host->ranges);
}
