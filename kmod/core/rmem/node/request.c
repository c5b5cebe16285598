// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The node's fast path: a request that is decided at once, under its session's slot lock. All of a
 * change is checked for permission before any of it is executed.
 */
#include "core/base/bytes.h"
#include "core/rmem/datagram.h"
#include "core/rmem/node/common.h"
#include "core/rmem/node/store.h"

/* Is the range permitted: neither empty, too long, nor round the end? */
static bool request_range_is_sound(u64 addr, u32 bytes, u32 bytes_max)
{
	return bytes && bytes <= bytes_max && addr + (bytes - 1) >= addr;
}

static enum rmem_node_reason request_check_pte(u32 pte, u32 perm)
{
	if (!pte)
		return RMEM_NODE_FAULT;
	return pte & perm ? RMEM_NODE_OK : RMEM_NODE_PERM;
}

/* *backed: false, if one of the pages isn't. */
static enum rmem_node_reason request_check_range(const struct rmem_node *node, u32 space_index,
						 u64 addr, u32 bytes, u32 perm, bool *backed)
{
	u64 last = rmem_node_vpn(node, addr + (bytes - 1));
	u64 vpn;

	for (vpn = rmem_node_vpn(node, addr); vpn <= last; vpn++) {
		struct rmem_entry entry;
		u32 pte = rmem_table_find(&node->table, space_index, vpn, &entry);
		enum rmem_node_reason reason = request_check_pte(pte, perm);

		if (reason != RMEM_NODE_OK)
			return reason;
		if (!(pte & RMEM_PTE_BACKED))
			*backed = false;
	}
	return RMEM_NODE_OK;
}

static enum rmem_node_reason request_check_pages(const struct rmem_node *node, u32 space_index,
						 const struct rmem_head *head, u32 perm)
{
	bool backed;

	return request_check_range(node, space_index, head->addr, head->len, perm, &backed);
}

static void request_add_extent(struct rmem_answer *answer, u32 page, u32 offset, u32 bytes)
{
	struct rmem_extent *extent = &answer->extent[answer->extents++];

	extent->page = page;
	extent->offset = offset;
	extent->bytes = bytes;
}

/* The part of a range in one page. Initially bytes is 0, and addr and left are the range. */
struct span {
	u64 addr;
	u32 bytes;
	u32 left; /* with this one */
	struct rmem_entry entry;
	u32 pte;
};

static bool request_next_span(const struct rmem_node *node, u32 space_index, struct span *span)
{
	u32 room;

	span->addr += span->bytes;
	span->left -= span->bytes;
	room = rmem_node_room(node, span->addr);
	span->bytes = span->left < room ? span->left : room;
	if (span->bytes)
		span->pte = rmem_table_find(&node->table, space_index,
					    rmem_node_vpn(node, span->addr), &span->entry);
	return span->bytes;
}

/* Adds the span to the extents that are read. */
static void request_add_span(const struct rmem_node *node, const struct span *span,
			     struct rmem_answer *answer)
{
	u32 page = span->pte & RMEM_PTE_BACKED ? span->pte & RMEM_PTE_PAGE : RMEM_PAGE_NONE;

	request_add_extent(answer, page, rmem_node_offset(node, span->addr), span->bytes);
}

/* Re-reads the entries. False: part was freed since the check, and has no page. */
static bool request_add_extents(const struct rmem_node *node, u32 space_index, u64 addr, u32 bytes,
				struct rmem_answer *answer)
{
	struct span span = { .addr = addr, .left = bytes };
	bool all = true;

	while (request_next_span(node, space_index, &span)) {
		all &= !!span.pte;
		request_add_span(node, &span, answer);
	}
	return all;
}

static enum rmem_node_reason request_do_read(const struct rmem_node *node, u32 space_index,
					     const struct rmem_head *head,
					     struct rmem_answer *answer)
{
	if (!request_range_is_sound(head->addr, head->len, RMEM_READ_BYTES_MAX) ||
	    head->piece < RMEM_PIECE_BYTES_MIN)
		return RMEM_NODE_LENGTH;
	answer->action = RMEM_ACT_SEND_OUT;
	return request_check_pages(node, space_index, head, RMEM_PTE_READ);
}

u32 rmem_node_read_part(struct rmem_node *node, const struct rmem_head *head, u32 offset,
			struct rmem_answer *answer)
{
	u32 piece = head->piece < node->config.piece_bytes ? head->piece :
							      node->config.piece_bytes;
	u32 bytes;

	if (offset >= head->len)
		return 0;
	bytes = head->len - offset < piece ? head->len - offset : piece;
	rmem_node_answer(node, head, RMEM_NODE_OK, answer);
	answer->action = RMEM_ACT_SEND_OUT;
	answer->reply.offset = offset;
	answer->reply.len = bytes;
	if (request_add_extents(node, answer->session->place.memory, head->addr + offset, bytes,
				answer))
		return bytes;
	rmem_node_answer(node, head, RMEM_NODE_FAULT, answer);
	return head->len - offset;
}

/* The one or two pages that a WRITE or COPY changes. */
struct target {
	struct rmem_entry entry;
	u32 pte;
	u32 spare; /* page from the pool, to back it with, or RMEM_PAGE_NONE */
};

static enum rmem_node_reason request_find_targets(const struct rmem_node *node, u32 space_index,
						  u64 vpn, struct target *target,
						  unsigned int count)
{
	enum rmem_node_reason reason = RMEM_NODE_OK;
	unsigned int n;

	for (n = 0; n < count && reason == RMEM_NODE_OK; n++) {
		target[n].pte = rmem_table_find(&node->table, space_index, vpn + n,
						&target[n].entry);
		target[n].spare = RMEM_PAGE_NONE;
		reason = request_check_pte(target[n].pte, RMEM_PTE_WRITE);
	}
	return reason;
}

static void request_untake_spares(struct rmem_node *node, struct target *target, unsigned int count)
{
	unsigned int n;

	for (n = 0; n < count; n++)
		if (target[n].spare != RMEM_PAGE_NONE)
			rmem_pool_untake(&node->pool, target[n].spare);
}

/* A page from the pool for each target of the space that needs one: all, or none. */
static bool request_take_spares(struct rmem_node *node, u32 space_index, struct target *target,
				unsigned int count)
{
	u32 spaces = __atomic_load_n(&node->spaces.in_use, __ATOMIC_RELAXED);
	unsigned int n;

	for (n = 0; n < count; n++) {
		if (target[n].pte & RMEM_PTE_BACKED ||
		    rmem_pool_take(&node->pool, space_index, spaces, &target[n].spare))
			continue;
		request_untake_spares(node, target, n);
		return false;
	}
	return true;
}

/* First touch of a range that isn't backed; false: the page was freed just now. */
static bool request_back_target(struct rmem_node *node, struct target *target)
{
	bool placed;

	if (target->spare == RMEM_PAGE_NONE)
		return true;
	target->pte = rmem_table_back(&target->entry, target->pte, target->spare, &placed);
	if (!placed)
		rmem_pool_untake(&node->pool, target->spare);
	target->spare = RMEM_PAGE_NONE;
	return target->pte;
}

/* Extents of a sound range that is written: at most two pages, which are backed from now on. */
static enum rmem_node_reason request_add_targets(struct rmem_node *node, u32 space_index, u64 addr,
						 u32 bytes, struct rmem_answer *answer)
{
	u32 in_page = rmem_node_offset(node, addr);
	u32 room = rmem_node_room(node, addr);
	u32 first = bytes < room ? bytes : room;
	unsigned int count = bytes > first ? 2 : 1;
	struct target target[RMEM_EXTENTS_MAX];
	enum rmem_node_reason reason;
	unsigned int n;

	reason = request_find_targets(node, space_index, rmem_node_vpn(node, addr), target, count);
	if (reason != RMEM_NODE_OK)
		return reason;
	if (!request_take_spares(node, space_index, target, count))
		return RMEM_NODE_BUSY;
	for (n = 0; n < count; n++) {
		if (!request_back_target(node, &target[n])) {
			request_untake_spares(node, target, count);
			return RMEM_NODE_FAULT;
		}
	}
	request_add_extent(answer, target[0].pte & RMEM_PTE_PAGE, in_page, first);
	if (count == 2)
		request_add_extent(answer, target[1].pte & RMEM_PTE_PAGE, 0, bytes - first);
	return RMEM_NODE_OK;
}

static enum rmem_node_reason request_do_write(struct rmem_node *node, u32 space_index, u64 addr,
					      u32 bytes, struct rmem_answer *answer)
{
	if (!request_range_is_sound(addr, bytes, node->config.piece_bytes))
		return RMEM_NODE_LENGTH;
	answer->action = RMEM_ACT_COPY_IN;
	return request_add_targets(node, space_index, addr, bytes, answer);
}

static enum rmem_node_reason request_do_atomic(struct rmem_node *node,
					       const struct rmem_session *session,
					       const struct rmem_head *head,
					       struct rmem_answer *answer)
{
	enum rmem_node_reason reason;

	if (!rmem_atomic_is_known(head->op, head->len) || head->addr & (head->len - 1) ||
	    (head->len == 16 && !node->has_16))
		return RMEM_NODE_LENGTH;
	if (!rmem_session_has_place(session, head->id))
		return RMEM_NODE_BUSY;
	reason = request_do_write(node, session->place.memory, head->addr, head->len, answer);
	answer->action = RMEM_ACT_ATOMIC;
	return reason;
}

/* PUT's payload, in the host's byte order. */
struct put {
	u64 addr, value;
	u32 bytes;
	u32 reserved;
};

static struct put request_load_put(const void *payload)
{
	struct rmem_put wire;

	base_copy(&wire, payload, sizeof(wire));
	return (struct put){base_load_le64(&wire.addr), base_load_le64(&wire.value),
			    base_load_le32(&wire.bytes), base_load_le32(&wire.reserved)};
}

static bool request_put_is_sound(const struct rmem_node *node, const struct rmem_head *head,
				 const struct put *put)
{
	return request_range_is_sound(head->addr, head->len,
				      node->config.piece_bytes - sizeof(struct rmem_put)) &&
	       (put->bytes == 4 || put->bytes == 8) && !(put->addr & (put->bytes - 1)) &&
	       rmem_atomic_is_known(head->op, put->bytes) && head->op != RMEM_CAS &&
	       !put->reserved;
}

/*
 * Checks that both permit writing before either gets a page. Then one after the other: a page
 * for the integer stays even if there is none for the data, reads as zero as it did before, and
 * isn't wanted any more when the request comes again. So no pool is too small for it.
 */
static enum rmem_node_reason request_do_put(struct rmem_node *node,
					    const struct rmem_session *session,
					    const struct rmem_head *head, const void *payload,
					    struct rmem_answer *answer)
{
	struct put put = request_load_put(payload);
	u32 space_index = session->place.memory;
	enum rmem_node_reason reason;

	if (!request_put_is_sound(node, head, &put))
		return RMEM_NODE_LENGTH;
	if (!rmem_session_has_place(session, head->id))
		return RMEM_NODE_BUSY;
	reason = request_check_pages(node, space_index, head, RMEM_PTE_WRITE);
	if (reason == RMEM_NODE_OK)
		reason = request_do_write(node, space_index, put.addr, put.bytes, answer);
	if (reason != RMEM_NODE_OK)
		return reason;
	answer->integer = answer->extent[0];
	answer->extents = 0;
	reason = request_do_write(node, space_index, head->addr, head->len, answer);
	answer->action = RMEM_ACT_PUT;
	return reason;
}

/* A range of a READV or WRITEV, in the host's byte order. */
struct range {
	u64 addr, bytes;
};

static struct range request_load_range(const void *ranges, u32 index)
{
	const u8 *at = (const u8 *)ranges + index * sizeof(struct rmem_range);

	return (struct range){base_load_le64(at),
			      base_load_le64(at + __builtin_offsetof(struct rmem_range, bytes))};
}

/*
 * Each of them by itself, and that they are len bytes together. The sum is of numbers below
 * bytes_max, so it doesn't overflow.
 */
static enum rmem_node_reason request_check_ranges(const struct rmem_node *node, u32 space_index,
						  const struct rmem_head *head, const void *ranges,
						  u32 bytes_max, u32 perm, bool *backed)
{
	enum rmem_node_reason reason = RMEM_NODE_OK;
	u64 sum = 0;
	u32 i;

	*backed = true;
	for (i = 0; i < head->op; i++) {
		struct range range = request_load_range(ranges, i);

		if (range.bytes > bytes_max ||
		    !request_range_is_sound(range.addr, range.bytes, bytes_max))
			return RMEM_NODE_LENGTH;
		sum += range.bytes;
		if (reason == RMEM_NODE_OK)
			reason = request_check_range(node, space_index, range.addr, range.bytes,
						     perm, backed);
	}
	return head->addr || sum != head->len || sum > bytes_max ? RMEM_NODE_LENGTH : reason;
}

static enum rmem_node_reason request_do_readv(const struct rmem_node *node, u32 space_index,
					      const struct rmem_head *head, const void *ranges,
					      struct rmem_answer *answer)
{
	bool backed;

	answer->action = RMEM_ACT_GATHER;
	return request_check_ranges(node, space_index, head, ranges, node->config.piece_bytes,
				    RMEM_PTE_READ, &backed);
}

/*
 * As for a PUT, checks that all ranges permit writing before any gets a page. Pages taken before
 * there was none for another range stay.
 */
static enum rmem_node_reason request_do_writev(struct rmem_node *node, u32 space_index,
					       const struct rmem_head *head, const void *ranges,
					       struct rmem_answer *answer)
{
	u32 ranges_bytes = rmem_wire_ranges_bytes(head);
	enum rmem_node_reason reason;
	bool backed;
	u32 i;

	if (ranges_bytes >= node->config.piece_bytes)
		return RMEM_NODE_LENGTH;
	reason = request_check_ranges(node, space_index, head, ranges,
				      node->config.piece_bytes - ranges_bytes, RMEM_PTE_WRITE,
				      &backed);
	for (i = 0; !backed && i < head->op && reason == RMEM_NODE_OK; i++) {
		struct range range = request_load_range(ranges, i);

		answer->extents = 0;
		reason = request_do_write(node, space_index, range.addr, range.bytes, answer);
	}
	answer->extents = 0;
	answer->action = RMEM_ACT_SCATTER;
	return reason;
}

bool rmem_node_range(const struct rmem_node *node, const void *ranges, u32 index,
		     struct rmem_answer *answer)
{
	struct range range = request_load_range(ranges, index);

	answer->extents = 0;
	return request_add_extents(node, answer->session->place.memory, range.addr, range.bytes,
				   answer);
}

/* Extents of a sound range that is read: at most two pages, too. */
static enum rmem_node_reason request_add_sources(const struct rmem_node *node, u32 space_index,
						 u64 addr, u32 bytes, struct rmem_answer *answer)
{
	struct span span = { .addr = addr, .left = bytes };
	enum rmem_node_reason reason;

	while (request_next_span(node, space_index, &span)) {
		reason = request_check_pte(span.pte, RMEM_PTE_READ);
		if (reason != RMEM_NODE_OK)
			return reason;
		request_add_span(node, &span, answer);
	}
	return RMEM_NODE_OK;
}

enum rmem_node_reason rmem_node_access(struct rmem_node *node, u32 space_index, u8 type, u64 addr,
				       u32 bytes, struct rmem_answer *answer)
{
	answer->extents = 0;
	if (!request_range_is_sound(addr, bytes, node->config.piece_bytes))
		return RMEM_NODE_LENGTH;
	if (type == RMEM_READ)
		return request_add_sources(node, space_index, addr, bytes, answer);
	return request_add_targets(node, space_index, addr, bytes, answer);
}

_Static_assert(RMEM_COPY_BYTES_MAX <= 1U << RMEM_PAGE_SHIFT_MIN, "a range lies in two pages");

static bool request_copy_is_sound(u64 to, u64 from, u32 bytes)
{
	u64 distance = to > from ? to - from : from - to;

	return request_range_is_sound(to, bytes, RMEM_COPY_BYTES_MAX) &&
	       request_range_is_sound(from, bytes, RMEM_COPY_BYTES_MAX) && distance >= bytes;
}

/*
 * The source is found first, so its pages are as they were before the target's are backed. No
 * target gets a page unless both ranges permit the copy.
 */
enum rmem_node_reason rmem_node_access_copy(struct rmem_node *node, u32 space_index, u64 to,
					    u64 from, u32 bytes, struct rmem_answer *answer)
{
	enum rmem_node_reason reason;

	answer->action = RMEM_ACT_COPY;
	if (!request_copy_is_sound(to, from, bytes))
		return RMEM_NODE_LENGTH;
	answer->extents = 0;
	answer->extent[1].bytes = 0;
	reason = request_add_sources(node, space_index, from, bytes, answer);
	if (reason != RMEM_NODE_OK)
		return reason;
	answer->source[0] = answer->extent[0];
	answer->source[1] = answer->extent[1];
	answer->extents = 0;
	answer->extent[1].bytes = 0;
	return request_add_targets(node, space_index, to, bytes, answer);
}

static struct rmem_extent *request_extent_left(struct rmem_extent extent[RMEM_EXTENTS_MAX])
{
	return extent[0].bytes ? &extent[0] : &extent[1];
}

static struct rmem_extent request_take_from(struct rmem_extent *extent, u32 bytes)
{
	struct rmem_extent taken = { extent->page, extent->offset, bytes };

	extent->offset += bytes;
	extent->bytes -= bytes;
	return taken;
}

bool rmem_node_stretch(struct rmem_answer *answer, struct rmem_extent *to, struct rmem_extent *from)
{
	struct rmem_extent *target = request_extent_left(answer->extent);
	struct rmem_extent *source = request_extent_left(answer->source);
	u32 bytes = target->bytes < source->bytes ? target->bytes : source->bytes;

	*to = request_take_from(target, bytes);
	*from = request_take_from(source, bytes);
	return bytes;
}

static enum rmem_node_reason request_do_copy(struct rmem_node *node, u32 space_index,
					     const struct rmem_head *head, const void *payload,
					     struct rmem_answer *answer)
{
	struct rmem_copy copy;

	base_copy(&copy, payload, sizeof(copy));
	return rmem_node_access_copy(node, space_index, head->addr, base_load_le64(&copy.from),
				     head->len, answer);
}

static void request_free_page(struct rmem_node *node, const struct rmem_entry *entry, u32 pte)
{
	if (rmem_table_unback(entry, pte))
		rmem_pool_put_dirty(&node->pool, pte & RMEM_PTE_PAGE);
}

enum rmem_node_reason rmem_node_clear(struct rmem_node *node, u32 space_index,
				      const struct rmem_head *head, struct rmem_answer *answer)
{
	struct span span = { .addr = head->addr, .left = head->len };
	enum rmem_node_reason reason;

	if (!request_range_is_sound(head->addr, head->len, RMEM_ZERO_BYTES_MAX))
		return RMEM_NODE_LENGTH;
	reason = request_check_pages(node, space_index, head, RMEM_PTE_WRITE);
	if (reason != RMEM_NODE_OK)
		return reason;
	while (request_next_span(node, space_index, &span)) {
		if (!(span.pte & RMEM_PTE_BACKED))
			continue;
		if (span.bytes > rmem_node_offset_mask(node))
			request_free_page(node, &span.entry, span.pte);
		else if (head->type == RMEM_ZERO)
			request_add_span(node, &span, answer);
	}
	answer->action = RMEM_ACT_FILL;
	return RMEM_NODE_OK;
}

void rmem_node_cuts(const struct rmem_node *node, const struct rmem_head *head, u32 *first,
		    u32 *last)
{
	u32 room = rmem_node_room(node, head->addr);
	bool whole = !rmem_node_offset(node, head->addr) && head->len >= room;

	*first = whole ? 0 : head->len < room ? head->len : room;
	*last = (head->len - *first) & rmem_node_offset_mask(node);
}

bool rmem_node_is_slow(const struct rmem_node *node, const struct rmem_head *head)
{
	u32 first, last;

	if (head->type != RMEM_ZERO)
		return !rmem_type_may_share(head->type);
	/* Only a change that is executed at once can be executed again as a whole (store.h). */
	if (node->store)
		return false;
	rmem_node_cuts(node, head, &first, &last);
	return first + last > RMEM_NODE_FILL_BYTES_MAX;
}

/* A refusal that was kept. A client that used the id for another type gets an arbitrary one. */
static void request_replay_refusal(struct rmem_node *node, const struct rmem_head *head,
				   struct rmem_answer *answer)
{
	struct rmem_found kept;
	u64 reason;

	rmem_session_replay(answer->session, head->id, &kept);
	reason = base_load_le64(&kept.value[0]);
	rmem_node_answer(node, head,
			 reason && reason < RMEM_NODE_REASONS ? (enum rmem_node_reason)reason :
								RMEM_NODE_LENGTH,
			 answer);
	answer->reply.offset = (u32)base_load_le64(&kept.value[1]);
}

void rmem_node_refuse_call(struct rmem_node *node, const struct rmem_head *head,
			   enum rmem_node_reason reason, u32 part, struct rmem_answer *answer)
{
	if (head->type == RMEM_CALL && reason != RMEM_NODE_BUSY)
		rmem_session_keep_refusal(answer->session, head->id, reason, part);
	rmem_node_answer(node, head, reason, answer);
	answer->reply.offset = part;
}

/* The session judged head so. A call that is to be executed needs a place in the run table. */
static void request_run_program(struct rmem_node *node, u64 now_ns, const struct rmem_head *head,
				enum rmem_node_reason reason, struct rmem_answer *answer)
{
	struct rmem_session *session = answer->session;

	if (reason == RMEM_NODE_OK &&
	    (now_ns < session->drains_ns || (rmem_type_keeps_result(head->type) &&
					     !rmem_session_has_place(session, head->id))))
		reason = RMEM_NODE_BUSY;
	if (reason == RMEM_NODE_FAULT) {
		request_replay_refusal(node, head, answer);
		return;
	}
	rmem_node_answer(node, head, reason, answer);
	if (reason == RMEM_NODE_REPEATED)
		rmem_session_replay(session, head->id, &answer->found);
	else if (reason == RMEM_NODE_RUNNING)
		answer->action = RMEM_ACT_DROP;
	else if (reason == RMEM_NODE_OK && rmem_node_running(node))
		answer->action = RMEM_ACT_RUN;
	else if (reason == RMEM_NODE_OK)
		rmem_node_refuse_call(node, head, RMEM_NODE_NO_OFFLOAD, 0, answer);
}

static enum rmem_node_reason request_dispatch(struct rmem_node *node,
					      const struct rmem_session *session,
					      const struct rmem_head *head, const void *payload,
					      struct rmem_answer *answer)
{
	switch (head->type) {
	case RMEM_READ:
		return request_do_read(node, session->place.memory, head, answer);
	case RMEM_WRITE:
		return request_do_write(node, session->place.memory, head->addr, head->len, answer);
	case RMEM_ATOMIC:
		return request_do_atomic(node, session, head, answer);
	case RMEM_PUT:
		return request_do_put(node, session, head, payload, answer);
	case RMEM_READV:
		return request_do_readv(node, session->place.memory, head, payload, answer);
	case RMEM_WRITEV:
		return request_do_writev(node, session->place.memory, head, payload, answer);
	case RMEM_COPY:
		return request_do_copy(node, session->place.memory, head, payload, answer);
	default:
		return rmem_node_clear(node, session->place.memory, head, answer);
	}
}

void rmem_node_request(struct rmem_node *node, u64 now_ns, const struct rmem_head *head,
		       const void *payload, const struct rmem_peer *peer,
		       struct rmem_answer *answer)
{
	struct rmem_session *session = NULL;
	enum rmem_node_reason reason = rmem_node_identify(node, now_ns, head, peer, &session);

	if (reason == RMEM_NODE_OK)
		reason = rmem_node_judge(session, head);
	/* A request without a mark need not be in the window. */
	if (!rmem_type_needs_mark(head->type) &&
	    (reason == RMEM_NODE_WINDOW || reason == RMEM_NODE_REPEATED ||
	     reason == RMEM_NODE_FAULT))
		reason = RMEM_NODE_OK;
	rmem_node_answer(node, head, RMEM_NODE_OK, answer);
	answer->session = session;
	answer->redo = node->store ? &node->store->redo : NULL;
	if (session && rmem_type_runs(head->type)) {
		request_run_program(node, now_ns, head, reason, answer);
		return;
	}
	if (reason == RMEM_NODE_OK) {
		reason = request_dispatch(node, session, head, payload, answer);
		if (reason == RMEM_NODE_FAULT && rmem_type_needs_mark(head->type))
			rmem_session_refuse(session, head->id);
	}
	if (reason == RMEM_NODE_OK)
		rmem_traffic_count(session, head);
	else
		rmem_node_answer(node, head, reason, answer);
	if (reason == RMEM_NODE_REPEATED && rmem_type_has_integer(head->type))
		rmem_session_replay(session, head->id, &answer->found);
}

/* The data of a PUT is in place. The value that the integer has becomes the change's `found`. */
static void request_note(struct rmem_redo *redo, u32 bytes, void *place)
{
	static const struct rmem_operands zero;

	/* Compared with 0, and 0 stored: nothing changes. */
	rmem_atomic_apply(place, RMEM_CAS, bytes, &zero, &redo->found);
	rmem_undo_order();
	redo->stage = RMEM_REDO_INTEGER;
	rmem_undo_order();
}

static void request_change(u32 bytes, const struct rmem_operands *in, void *place,
			   struct rmem_answer *answer)
{
	if (answer->redo)
		request_note(answer->redo, bytes, place);
	rmem_atomic_apply(place, answer->reply.op, bytes, in, &answer->found);
	rmem_undo_order();
	rmem_session_keep(answer->session, answer->reply.id, &answer->found);
}

void rmem_node_atomic(const void *operands, void *place, struct rmem_answer *answer)
{
	struct rmem_operands in;

	base_copy(&in, operands, sizeof(in));
	request_change(answer->reply.len, &in, place, answer);
}

void rmem_node_put(const void *put, void *place, struct rmem_answer *answer)
{
	struct put wanted = request_load_put(put);
	struct rmem_operands in = { 0 };

	base_store_le64(&in.value[0], wanted.value);
	request_change(wanted.bytes, &in, place, answer);
}

void rmem_node_done(const struct rmem_answer *answer)
{
	rmem_undo_order();
	rmem_session_done(answer->session, answer->reply.id);
}
