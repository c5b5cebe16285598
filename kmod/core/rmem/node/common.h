/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Shared by the node's two paths: finding a request's session, judging the request, and the
 * beginning of the answer.
 */
#ifndef REMORA_RMEM_NODE_COMMON_H
#define REMORA_RMEM_NODE_COMMON_H

#include "core/rmem/node/node.h"

/* The session a request names, if the request is its peer's. The session then counts as used. */
enum rmem_node_reason rmem_node_identify(struct rmem_node *node, u64 now_ns,
					 const struct rmem_head *head, const struct rmem_peer *peer,
					 struct rmem_session **found);

/* RMEM_NODE_OK: the request is to be executed. Sessions of views get no change executed. */
enum rmem_node_reason rmem_node_judge(struct rmem_session *session, const struct rmem_head *head);

void rmem_node_answer(const struct rmem_node *node, const struct rmem_head *head,
		      enum rmem_node_reason reason, struct rmem_answer *answer);

/*
 * Answers a QUERY or CALL of answer->session with a refusal. That of a CALL is kept: offloads come
 * and go, and a late copy of a refused CALL might be executed else. BUSY isn't kept. Slot lock.
 */
void rmem_node_refuse_call(struct rmem_node *node, const struct rmem_head *head,
			   enum rmem_node_reason reason, u32 part, struct rmem_answer *answer);

/* Does rmem_node_add_persistent()'s region lie in this space? A view of it has none. Slow lock. */
bool rmem_node_is_persistent(const struct rmem_node *node, const struct rmem_space *space);

/*
 * DISCARD and ZERO. Whole pages go back; of a page that the range only
 * cuts (the first, the last) a ZERO has its bytes cleared by the caller. Slot lock.
 */
enum rmem_node_reason rmem_node_clear(struct rmem_node *node, u32 space_index,
				      const struct rmem_head *head, struct rmem_answer *answer);

/* Bytes a sound range has of a page it cuts at its begin, and of one it cuts at its end. */
void rmem_node_cuts(const struct rmem_node *node, const struct rmem_head *head, u32 *first,
		    u32 *last);

/* The boot epoch can change while requests are served: rmem_node_reboot(). */
static inline u64 rmem_node_boot(const struct rmem_node *node)
{
	return __atomic_load_n(&node->config.boot, __ATOMIC_ACQUIRE);
}

static inline u64 rmem_node_vpn(const struct rmem_node *node, u64 addr)
{
	return addr >> node->config.page_shift;
}

static inline u64 rmem_node_offset_mask(const struct rmem_node *node)
{
	return (1ULL << node->config.page_shift) - 1;
}

static inline u32 rmem_node_offset(const struct rmem_node *node, u64 addr)
{
	return addr & rmem_node_offset_mask(node);
}

/* Bytes from addr to the end of its page. */
static inline u32 rmem_node_room(const struct rmem_node *node, u64 addr)
{
	return (u32)rmem_node_offset_mask(node) + 1 - rmem_node_offset(node, addr);
}

#endif
