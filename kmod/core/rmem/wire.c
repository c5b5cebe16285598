// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/wire.h"

#include "core/base/bytes.h"
#include "core/base/crc32c.h"

/* A header wherever it lies: behind Ethernet's 14 bytes it isn't aligned. */
struct anywhere {
	struct rmem_hdr hdr;
} __attribute__((packed));

/* Bytes of a payload before its data. The tag covers them at every level. */
static u32 frame_bytes(const struct rmem_head *head)
{
	const struct rmem_type_row *row = &rmem_type_table[head->type & ~RMEM_RESPONSE];

	if (head->status != RMEM_OK)
		return 0;
	if (head->type & RMEM_RESPONSE)
		return row->answer_bytes;
	return row->request_bytes +
	       (row->flags & RMEM_TYPE_RANGES ? rmem_wire_ranges_bytes(head) : 0);
}

static bool carries_data(const struct rmem_head *head)
{
	return head->type & RMEM_RESPONSE ?
		       rmem_type_reads(head->type) && head->status == RMEM_OK :
		       rmem_type_writes(head->type);
}

u32 rmem_wire_tagged_bytes(const struct rmem_head *head, u32 payload_bytes)
{
	u32 tagged_bytes = frame_bytes(head);

	if (head->integrity == RMEM_FULL || rmem_type_flags(head->type) & RMEM_TYPE_TAGGED)
		return payload_bytes;
	return tagged_bytes < payload_bytes ? tagged_bytes : payload_bytes;
}

bool rmem_wire_has_digest(const struct rmem_head *head)
{
	return head->integrity == RMEM_DIGEST && carries_data(head) &&
	       !(rmem_type_flags(head->type) & RMEM_TYPE_TAGGED);
}

u32 rmem_wire_payload_bytes(const struct rmem_head *head)
{
	u32 bytes = frame_bytes(head);

	if (!carries_data(head))
		return bytes;
	/* Nothing is verified yet: the sum must not overflow. */
	return head->len > ~0U - bytes ? ~0U : bytes + head->len;
}

u32 rmem_wire_work_bytes(const struct rmem_head *head)
{
	if (head->type & RMEM_RESPONSE)
		return 0;
	if (rmem_type_reads(head->type))
		return head->len;
	if (rmem_type_flags(head->type) & RMEM_TYPE_CLEARS)
		return head->len / (RMEM_ZERO_BYTES_MAX / RMEM_READ_BYTES_MAX);
	return 0;
}

static bool op_is_sound(const struct rmem_head *head)
{
	if (rmem_type_has_ranges(head->type))
		return head->op && head->op <= RMEM_RANGES_MAX;
	return rmem_type_is_exactly_once(head->type) == !!head->op;
}

/* May the request tell how many bytes an answer carries at most? */
static bool piece_is_told(u8 type)
{
	return rmem_type_reads(type) && rmem_type_is_cut(type);
}

static bool form_is_sound(const struct rmem_head *head, bool response)
{
	if (!head->space || head->integrity > RMEM_FULL || !op_is_sound(head))
		return false;
	if (response)
		return head->status < RMEM_STATUS_COUNT && head->boot;
	if (head->status || head->offset || !head->id || head->floor > head->id)
		return false;
	if (head->type == RMEM_OPEN)
		return !head->boot;
	return head->session && head->boot && (piece_is_told(head->type) || !head->piece);
}

enum rmem_wire_verdict rmem_wire_parse(const void *hdr, size_t available_bytes, bool response,
				       struct rmem_head *head)
{
	const struct anywhere *at = hdr;
	u8 request, known;

	if (available_bytes < RMEM_HDR_BYTES)
		return RMEM_WIRE_SHORT;
	if (at->hdr.version != RMEM_VERSION)
		return RMEM_WIRE_VERSION;
	request = at->hdr.type & ~RMEM_RESPONSE;
	if (request < RMEM_OPEN || request >= RMEM_TYPE_END ||
	    !!(at->hdr.type & RMEM_RESPONSE) != response)
		return RMEM_WIRE_TYPE;
	known = RMEM_FLAGS_INTEGRITY | (response ? 0 : RMEM_FLAGS_MORE);
	if (at->hdr.flags & ~known)
		return RMEM_WIRE_MALFORMED;

	head->type = at->hdr.type;
	head->integrity = at->hdr.flags & RMEM_FLAGS_INTEGRITY;
	head->more = at->hdr.flags & RMEM_FLAGS_MORE;
	head->status = at->hdr.status;
	head->attempt = at->hdr.attempt;
	head->op = at->hdr.op;
	head->space = base_load_le32(&at->hdr.space);
	head->session = base_load_le64(&at->hdr.session);
	head->boot = base_load_le64(&at->hdr.boot);
	head->id = base_load_le64(&at->hdr.id);
	head->floor = base_load_le64(&at->hdr.floor);
	head->addr = base_load_le64(&at->hdr.addr);
	head->len = base_load_le32(&at->hdr.len);
	head->offset = base_load_le32(&at->hdr.offset);
	head->digest = base_load_le32(&at->hdr.digest);
	head->piece = base_load_le16(&at->hdr.piece);
	return form_is_sound(head, response) ? RMEM_WIRE_GOOD : RMEM_WIRE_MALFORMED;
}

void rmem_wire_hash_begin(struct base_siphash *h, const struct base_siphash_key *key,
			  const void *hdr)
{
	base_siphash_init(h, key);
	base_siphash_update(h, hdr, RMEM_TAGGED_BYTES);
}

bool rmem_wire_tag_equal(const void *hdr, u64 tag)
{
	const struct anywhere *at = hdr;

	return !(base_load_le64(at->hdr.tag) ^ tag);
}

void rmem_wire_encode(void *hdr, const struct rmem_head *head)
{
	struct anywhere *at = hdr;

	at->hdr.version = RMEM_VERSION;
	at->hdr.type = head->type;
	at->hdr.flags = head->integrity | (head->more ? RMEM_FLAGS_MORE : 0);
	at->hdr.status = head->status;
	base_store_le32(&at->hdr.space, head->space);
	base_store_le64(&at->hdr.session, head->session);
	base_store_le64(&at->hdr.boot, head->boot);
	base_store_le64(&at->hdr.id, head->id);
	base_store_le64(&at->hdr.floor, head->floor);
	base_store_le64(&at->hdr.addr, head->addr);
	base_store_le32(&at->hdr.len, head->len);
	base_store_le32(&at->hdr.offset, head->offset);
	base_store_le16(&at->hdr.piece, head->piece);
	at->hdr.attempt = head->attempt;
	at->hdr.op = head->op;
	base_store_le32(&at->hdr.digest, head->digest);
	base_zero(at->hdr.tag, sizeof(at->hdr.tag));
}

void rmem_wire_seal(void *hdr, u64 tag)
{
	struct anywhere *at = hdr;

	base_store_le64(at->hdr.tag, tag);
}

static u64 contiguous_tag(const void *hdr, const struct rmem_head *head,
			  const struct base_siphash_key *key, const void *payload,
			  size_t payload_bytes)
{
	u32 tagged_bytes = rmem_wire_tagged_bytes(head, payload_bytes);
	struct base_siphash h;

	rmem_wire_hash_begin(&h, key, hdr);
	if (tagged_bytes)
		base_siphash_update(&h, payload, tagged_bytes);
	return base_siphash_final(&h);
}

enum rmem_wire_verdict rmem_wire_verify(const void *hdr, const struct rmem_head *head,
					const struct base_siphash_key *key, const void *payload,
					size_t payload_bytes)
{
	if (!rmem_wire_tag_equal(hdr, contiguous_tag(hdr, head, key, payload, payload_bytes)))
		return RMEM_WIRE_TAG;
	if (payload_bytes != rmem_wire_payload_bytes(head))
		return RMEM_WIRE_DAMAGED;
	if (rmem_wire_has_digest(head) &&
	    head->digest != base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, payload,
								  payload_bytes)))
		return RMEM_WIRE_DAMAGED;
	return RMEM_WIRE_GOOD;
}

void rmem_wire_build(void *hdr, struct rmem_head *head, const struct base_siphash_key *key,
		     const void *payload, size_t payload_bytes)
{
	head->digest = 0;
	if (rmem_wire_has_digest(head))
		head->digest = base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, payload,
								    payload_bytes));
	rmem_wire_encode(hdr, head);
	rmem_wire_seal(hdr, contiguous_tag(hdr, head, key, payload, payload_bytes));
}
