// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/node/traffic.h"

#include "core/rmem/node/node.h"

/* One writer, under the slot lock; traffic_since() reads without it. */
static void traffic_add(u64 *count, u64 more)
{
	__atomic_store_n(count, *count + more, __ATOMIC_RELAXED);
}

void rmem_traffic_count(struct rmem_session *session, const struct rmem_head *head)
{
	u32 flags = rmem_type_flags(head->type);

	traffic_add(&session->traffic.operations, 1);
	if (flags & RMEM_TYPE_DATA_OUT)
		traffic_add(&session->traffic.read_bytes, head->len);
	if (flags & RMEM_TYPE_DATA_IN)
		traffic_add(&session->traffic.written_bytes, head->len);
}

static u64 traffic_since(const u64 *count, u64 *settled)
{
	u64 now = __atomic_load_n(count, __ATOMIC_RELAXED);
	u64 since = now - *settled;

	*settled = now;
	return since;
}

void rmem_traffic_settle(struct rmem_node *node, struct rmem_session *session)
{
	struct rmem_traffic *settled = &session->settled;
	struct rmem_traffic since = {
		.operations = traffic_since(&session->traffic.operations, &settled->operations),
		.read_bytes = traffic_since(&session->traffic.read_bytes, &settled->read_bytes),
		.written_bytes = traffic_since(&session->traffic.written_bytes,
					       &settled->written_bytes),
	};
	struct rmem_space *space;

	/* A space that was deleted is told of no more. */
	if (!rmem_spaces_has(&node->spaces, &session->place))
		return;
	space = &node->spaces.slot[session->place.index];
	space->traffic.operations += since.operations;
	space->traffic.read_bytes += since.read_bytes;
	space->traffic.written_bytes += since.written_bytes;
}

void rmem_traffic_settle_all(struct rmem_node *node)
{
	u32 n;

	for (n = 0; n < node->sessions.slots; n++) {
		if (node->sessions.slot[n].name != RMEM_SESSION_NONE)
			rmem_traffic_settle(node, &node->sessions.slot[n]);
	}
}
