// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/wire.h"

#include "core/base/bytes.h"

/* Wherever they lie: behind Ethernet's 14 bytes they aren't aligned. */
struct any_hdr {
	struct rmem_hdr hdr;
} __attribute__((packed));

struct any_msg {
	struct rmem_msg msg;
} __attribute__((packed));

static bool wire_carries_data(const struct rmem_head *head)
{
	return head->type & RMEM_RESPONSE ?
		       rmem_type_answers_data(head->type) && head->status == RMEM_OK :
		       rmem_type_brings_data(head->type);
}

u32 rmem_wire_tagged_bytes(const struct rmem_head *head)
{
	if (head->integrity == RMEM_FULL || rmem_type_flags(head->type) & RMEM_TYPE_TAGGED)
		return rmem_wire_payload_bytes(head);
	return rmem_wire_frame_bytes(head);
}

bool rmem_wire_has_digest(const struct rmem_head *head)
{
	return head->integrity == RMEM_DIGEST && wire_carries_data(head) &&
	       !(rmem_type_flags(head->type) & RMEM_TYPE_TAGGED);
}

u32 rmem_wire_payload_bytes(const struct rmem_head *head)
{
	u32 bytes = rmem_wire_frame_bytes(head);

	if (!wire_carries_data(head))
		return bytes;
	/* Nothing is verified yet: the sum must not overflow. */
	return head->len > ~0U - bytes ? ~0U : bytes + head->len;
}

u32 rmem_wire_work_bytes(const struct rmem_head *head)
{
	if (head->type & RMEM_RESPONSE)
		return 0;
	if (rmem_type_runs(head->type))
		return head->piece;
	if (rmem_type_answers_data(head->type) || rmem_type_copies(head->type))
		return head->len;
	if (rmem_type_clears(head->type))
		return head->len / (RMEM_ZERO_BYTES_MAX / RMEM_READ_BYTES_MAX);
	return 0;
}

static bool wire_op_is_sound(const struct rmem_head *head)
{
	if (rmem_type_has_ranges(head->type))
		return head->op && head->op <= RMEM_RANGES_MAX;
	return rmem_type_runs(head->type) || rmem_type_has_integer(head->type) == !!head->op;
}

/* True if a request of this type can limit the bytes that an answer carries. */
static bool wire_piece_is_told(u8 type)
{
	return rmem_type_answers_data(type) && (rmem_type_is_cut(type) || rmem_type_runs(type));
}

bool rmem_wire_fields_are_sound(const struct rmem_head *head, bool response, u32 part)
{
	if (!wire_op_is_sound(head))
		return false;
	if (response)
		return head->status < RMEM_STATUS_COUNT;
	return !head->status && head->id &&
	       (wire_piece_is_told(head->type) ? part <= 0xffff : !part);
}

static bool wire_form_is_sound(const struct rmem_head *head, bool response, u32 part)
{
	if (!rmem_wire_fields_are_sound(head, response, part))
		return false;
	if (response)
		return head->boot && !head->floor;
	if (head->floor > head->id)
		return false;
	return head->type == RMEM_OPEN ? !head->boot : head->session && head->boot;
}

enum rmem_wire_verdict rmem_wire_parse_hdr(const void *hdr, struct rmem_head *head, u32 *messages)
{
	const struct any_hdr *at = hdr;
	u8 flags = at->hdr.flags;

	if (at->hdr.version != RMEM_VERSION)
		return RMEM_WIRE_VERSION;
	head->integrity = flags & RMEM_FLAGS_INTEGRITY;
	head->more = flags & RMEM_FLAGS_MORE;
	head->clear = flags & RMEM_FLAGS_CLEAR;
	head->plain = false;
	head->space = base_load_le32(&at->hdr.space);
	head->session = base_load_le64(&at->hdr.session);
	head->boot = base_load_le64(&at->hdr.boot);
	head->floor = base_load_le64(&at->hdr.floor);
	head->number = base_load_le64(&at->hdr.number);
	*messages = at->hdr.messages;
	if (flags & ~(RMEM_FLAGS_INTEGRITY | RMEM_FLAGS_MORE | RMEM_FLAGS_CLEAR) ||
	    at->hdr.reserved ||
	    (flags & RMEM_FLAGS_CLEAR && (flags & RMEM_FLAGS_INTEGRITY) != RMEM_SEALED) ||
	    !head->space || !*messages || *messages > RMEM_BUNDLE_MAX)
		return RMEM_WIRE_MALFORMED;
	return RMEM_WIRE_GOOD;
}

enum rmem_wire_verdict rmem_wire_parse_msg(const void *msg, bool response, struct rmem_head *head)
{
	const struct any_msg *at = msg;
	u8 request = at->msg.type & ~RMEM_RESPONSE;
	u32 part;

	if (request < RMEM_OPEN || request >= RMEM_TYPE_END ||
	    !!(at->msg.type & RMEM_RESPONSE) != response)
		return RMEM_WIRE_TYPE;
	head->type = at->msg.type;
	head->status = at->msg.status;
	head->attempt = at->msg.attempt;
	head->op = at->msg.op;
	head->len = base_load_le32(&at->msg.len);
	head->id = base_load_le64(&at->msg.id);
	head->addr = base_load_le64(&at->msg.addr);
	head->digest = base_load_le32(&at->msg.digest);
	part = base_load_le32(&at->msg.part);
	head->offset = response ? part : 0;
	head->piece = response ? 0 : (u16)part;
	return wire_form_is_sound(head, response, part) ? RMEM_WIRE_GOOD : RMEM_WIRE_MALFORMED;
}

void rmem_wire_encode_hdr(void *hdr, const struct rmem_head *head)
{
	struct any_hdr *at = hdr;

	at->hdr.version = RMEM_VERSION;
	at->hdr.flags = head->integrity | (head->clear ? RMEM_FLAGS_CLEAR : 0);
	at->hdr.messages = 0;
	at->hdr.reserved = 0;
	base_store_le32(&at->hdr.space, head->space);
	base_store_le64(&at->hdr.session, head->session);
	base_store_le64(&at->hdr.boot, head->boot);
	base_store_le64(&at->hdr.floor, head->floor);
	base_store_le64(&at->hdr.number, head->number);
}

void rmem_wire_encode_msg(void *msg, const struct rmem_head *head)
{
	struct any_msg *at = msg;

	at->msg.type = head->type;
	at->msg.status = head->status;
	at->msg.attempt = head->attempt;
	at->msg.op = head->op;
	base_store_le32(&at->msg.len, head->len);
	base_store_le64(&at->msg.id, head->id);
	base_store_le64(&at->msg.addr, head->addr);
	base_store_le32(&at->msg.part, head->type & RMEM_RESPONSE ? head->offset : head->piece);
	base_store_le32(&at->msg.digest, head->digest);
}

u64 rmem_wire_tag(struct base_siphash *h, const void *heads, u32 messages)
{
	base_siphash_update(h, (const u8 *)heads + RMEM_HDR_BYTES, messages * RMEM_MSG_BYTES);
	base_siphash_update(h, heads, RMEM_TAGGED_BYTES);
	return base_siphash_final(h);
}

bool rmem_wire_tag_equal(const void *hdr, u64 tag)
{
	const struct any_hdr *at = hdr;

	return !(base_load_le64(at->hdr.tag) ^ tag);
}

void rmem_wire_seal(void *heads, u32 messages, bool more, struct base_siphash *h)
{
	struct any_hdr *at = heads;

	at->hdr.messages = (u8)messages;
	at->hdr.flags |= more ? RMEM_FLAGS_MORE : 0;
	base_store_le64(at->hdr.tag, rmem_wire_tag(h, heads, messages));
}

void rmem_wire_seal_hdr(void *hdr, u32 messages, bool more, struct base_siphash *h)
{
	struct any_hdr *at = hdr;

	at->hdr.messages = (u8)messages;
	at->hdr.flags |= more ? RMEM_FLAGS_MORE : 0;
	base_siphash_update(h, hdr, RMEM_TAGGED_BYTES);
	base_store_le64(at->hdr.tag, base_siphash_final(h));
}
