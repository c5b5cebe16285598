/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Carries out the decisions of rmem_node_request(). Each carrier brings three functions:
 *
 *   rmem_node_request() -> answer.action
 *      |
 *   rmem_execute()  COPY_IN SCATTER PUT     ops->copy()  payload -> pages
 *      |            FILL COPY ATOMIC        ops->at()    pages, integers
 *      |            RUN                     ops->run()   into the run table
 *      |            SEND_OUT GATHER         ops->answer() reads the pages by rmem_execute_next()
 *      |
 *      '--------->  ops->answer()           under the lock that the request was decided under
 *
 * Everything is inline, and a carrier's ops are a constant that the compiler sees. It then calls
 * the carrier's functions directly: in the kernel an indirect call can take longer than the search
 * for a page.
 */
#ifndef REMORA_RMEM_NODE_EXECUTE_H
#define REMORA_RMEM_NODE_EXECUTE_H

#include "core/base/bytes.h"
#include "core/rmem/node/node.h"

/* The data of an answer, which lies in pages. */
struct rmem_execute_data {
	const struct rmem_node *node;
	struct rmem_answer *answer;
	const void *ranges; /* of a READV; NULL: the answer's extents are all of the data */
	u32 next;	    /* range */
	bool gone;	    /* some of it was freed since the request was checked */
};

struct rmem_execute_ops {
	/* The memory of an extent that has a page. */
	void *(*at)(void *carrier, const struct rmem_extent *extent);
	/* Copies bytes of the request's payload, from offset on. They lie within it. */
	void (*copy)(void *carrier, u32 offset, void *to, u32 bytes);
	/*
	 * Adds answer->reply to the answers. data NULL: rmem_wire_payload_bytes() bytes of
	 * answer->found are its payload. Else data is the payload (rmem_execute_next()). False:
	 * nothing was added, for want of room, or since data->gone.
	 */
	bool (*answer)(void *carrier, struct rmem_answer *answer, struct rmem_execute_data *data);
	/*
	 * A QUERY or CALL: rmem_run_admit(), and if that permits it, its arguments' copy and
	 * rmem_run_begin(). False: answer refuses it. NULL where node->running is.
	 */
	bool (*run)(void *carrier, const struct rmem_head *head, struct rmem_answer *answer);
};

static inline void rmem_execute_begin(struct rmem_execute_data *data)
{
	data->next = 0;
	data->gone = false;
}

/*
 * The answer's extents become the next of its data, after rmem_execute_begin(). False: there are no
 * more. Slot lock.
 */
static inline bool rmem_execute_next(struct rmem_execute_data *data)
{
	if (data->next == (data->ranges ? data->answer->reply.op : 1))
		return false;
	if (data->ranges && !rmem_node_range(data->node, data->ranges, data->next, data->answer))
		data->gone = true;
	data->next++;
	return true;
}

/* A range of a WRITEV that was freed meanwhile has no page. Returns the offset behind. */
static inline __attribute__((always_inline)) u32
rmem_execute_copy_in(const struct rmem_execute_ops *ops, void *carrier, u32 offset,
		     const struct rmem_answer *answer)
{
	u32 i;

	for (i = 0; i < answer->extents; i++) {
		const struct rmem_extent *extent = &answer->extent[i];

		if (extent->page != RMEM_PAGE_NONE)
			ops->copy(carrier, offset, ops->at(carrier, extent), extent->bytes);
		offset += extent->bytes;
	}
	return offset;
}

static inline __attribute__((always_inline)) void
rmem_execute_scatter(const struct rmem_node *node, const struct rmem_execute_ops *ops,
		     void *carrier, const struct rmem_head *head, const void *ranges,
		     struct rmem_answer *answer)
{
	u32 offset = rmem_wire_ranges_bytes(head);
	u32 i;

	for (i = 0; i < head->op; i++) {
		rmem_node_range(node, ranges, i, answer);
		offset = rmem_execute_copy_in(ops, carrier, offset, answer);
	}
}

static inline __attribute__((always_inline)) void
rmem_execute_fill(const struct rmem_execute_ops *ops, void *carrier,
		  const struct rmem_answer *answer)
{
	u32 i;

	for (i = 0; i < answer->extents; i++)
		base_zero(ops->at(carrier, &answer->extent[i]), answer->extent[i].bytes);
}

static inline __attribute__((always_inline)) void
rmem_execute_copy(const struct rmem_execute_ops *ops, void *carrier, struct rmem_answer *answer)
{
	struct rmem_extent to, from;

	while (rmem_node_stretch(answer, &to, &from)) {
		if (from.page == RMEM_PAGE_NONE)
			base_zero(ops->at(carrier, &to), to.bytes);
		else
			base_copy(ops->at(carrier, &to), ops->at(carrier, &from), to.bytes);
	}
}

/* All parts of a READ, or those there is room for; the client asks again for the others. */
static inline __attribute__((always_inline)) void
rmem_execute_read(struct rmem_node *node, const struct rmem_execute_ops *ops, void *carrier,
		  const struct rmem_head *head, struct rmem_answer *answer)
{
	struct rmem_execute_data data = { node, answer, NULL, 0, false };
	u32 offset = 0, bytes;

	while ((bytes = rmem_node_read_part(node, head, offset, answer))) {
		if (!ops->answer(carrier, answer, answer->extents ? &data : NULL))
			return;
		offset += bytes;
	}
}

static inline __attribute__((always_inline)) void
rmem_execute_gather(struct rmem_node *node, const struct rmem_execute_ops *ops, void *carrier,
		    const void *ranges, struct rmem_answer *answer)
{
	struct rmem_execute_data data = { node, answer, ranges, 0, false };

	if (ops->answer(carrier, answer, &data) || !data.gone)
		return;
	answer->reply.status = RMEM_FAULT;
	ops->answer(carrier, answer, NULL);
}

/*
 * head, payload and answer are those of rmem_node_request(). The ops are called with carrier.
 * Answers, too, unless the request is dropped. Slot lock, held since the decision.
 */
static inline __attribute__((always_inline)) void
rmem_execute(struct rmem_node *node, const struct rmem_execute_ops *ops, void *carrier,
	     const struct rmem_head *head, const void *payload, struct rmem_answer *answer)
{
	switch (answer->action) {
	case RMEM_ACT_DROP:
		return;
	case RMEM_ACT_SEND_OUT:
		rmem_execute_read(node, ops, carrier, head, answer);
		return;
	case RMEM_ACT_GATHER:
		rmem_execute_gather(node, ops, carrier, payload, answer);
		return;
	case RMEM_ACT_COPY_IN:
		rmem_execute_copy_in(ops, carrier, 0, answer);
		rmem_node_done(answer);
		break;
	case RMEM_ACT_SCATTER:
		rmem_execute_scatter(node, ops, carrier, head, payload, answer);
		rmem_node_done(answer);
		break;
	case RMEM_ACT_FILL:
		rmem_execute_fill(ops, carrier, answer);
		rmem_node_done(answer);
		break;
	case RMEM_ACT_ATOMIC:
		rmem_node_atomic(payload, ops->at(carrier, &answer->extent[0]), answer);
		break;
	case RMEM_ACT_PUT:
		rmem_execute_copy_in(ops, carrier, sizeof(struct rmem_put), answer);
		rmem_node_put(payload, ops->at(carrier, &answer->integer), answer);
		break;
	case RMEM_ACT_COPY:
		rmem_execute_copy(ops, carrier, answer);
		rmem_node_done(answer);
		break;
	case RMEM_ACT_RUN:
		if (ops->run && ops->run(carrier, head, answer))
			return;
		break;
	case RMEM_ACT_REPLY:
		break;
	}
	ops->answer(carrier, answer, NULL);
}

#endif
