// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/wire.h"

#include "core/base/bytes.h"
#include "core/base/crc32c.h"

static bool carries_data(const struct rmem_head *head)
{
	return head->type == RMEM_WRITE ||
	       (head->type == (RMEM_READ | RMEM_RESPONSE) && head->status == RMEM_OK);
}

bool rmem_wire_tags_payload(const struct rmem_head *head)
{
	u8 request = head->type & ~RMEM_RESPONSE;

	return head->integrity == RMEM_FULL || (request != RMEM_READ && request != RMEM_WRITE);
}

u32 rmem_wire_payload_bytes(const struct rmem_head *head)
{
	if (carries_data(head))
		return head->len;
	if (head->status != RMEM_OK)
		return 0;
	switch (head->type) {
	case RMEM_OPEN:
		return sizeof(struct rmem_open);
	case RMEM_OPEN | RMEM_RESPONSE:
		return sizeof(struct rmem_opened);
	case RMEM_ALLOC:
		return sizeof(struct rmem_alloc);
	case RMEM_ALLOC | RMEM_RESPONSE:
	case RMEM_FREE:
		return sizeof(struct rmem_range);
	default:
		return 0;
	}
}

static bool form_is_sound(const struct rmem_head *head, bool response)
{
	if (!head->space || head->integrity > RMEM_FULL)
		return false;
	if (response)
		return head->status < RMEM_STATUS_COUNT && head->boot;
	if (head->status || head->offset || !head->id || head->floor > head->id)
		return false;
	if (head->type == RMEM_OPEN)
		return !head->session && !head->boot;
	return head->session && head->boot && (head->type == RMEM_READ || !head->piece);
}

enum rmem_wire_verdict rmem_wire_parse(const void *hdr, size_t available_bytes, bool response,
				       struct rmem_head *head)
{
	const struct rmem_hdr *wire = hdr;
	u8 request;

	if (available_bytes < RMEM_HDR_BYTES)
		return RMEM_WIRE_SHORT;
	if (wire->version != RMEM_VERSION)
		return RMEM_WIRE_VERSION;
	request = wire->type & ~RMEM_RESPONSE;
	if (request < RMEM_OPEN || request > RMEM_ZERO ||
	    !!(wire->type & RMEM_RESPONSE) != response)
		return RMEM_WIRE_TYPE;
	if (wire->flags & ~RMEM_FLAGS_INTEGRITY || wire->reserved)
		return RMEM_WIRE_MALFORMED;

	head->type = wire->type;
	head->integrity = wire->flags & RMEM_FLAGS_INTEGRITY;
	head->status = wire->status;
	head->attempt = wire->attempt;
	head->space = base_load_le32(&wire->space);
	head->session = base_load_le64(&wire->session);
	head->boot = base_load_le64(&wire->boot);
	head->id = base_load_le64(&wire->id);
	head->floor = base_load_le64(&wire->floor);
	head->addr = base_load_le64(&wire->addr);
	head->len = base_load_le32(&wire->len);
	head->offset = base_load_le32(&wire->offset);
	head->digest = base_load_le32(&wire->digest);
	head->piece = base_load_le16(&wire->piece);
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
	const struct rmem_hdr *wire = hdr;

	return !(base_load_le64(wire->tag) ^ tag);
}

void rmem_wire_encode(void *hdr, const struct rmem_head *head)
{
	struct rmem_hdr *wire = hdr;

	wire->version = RMEM_VERSION;
	wire->type = head->type;
	wire->flags = head->integrity;
	wire->status = head->status;
	base_store_le32(&wire->space, head->space);
	base_store_le64(&wire->session, head->session);
	base_store_le64(&wire->boot, head->boot);
	base_store_le64(&wire->id, head->id);
	base_store_le64(&wire->floor, head->floor);
	base_store_le64(&wire->addr, head->addr);
	base_store_le32(&wire->len, head->len);
	base_store_le32(&wire->offset, head->offset);
	base_store_le16(&wire->piece, head->piece);
	wire->attempt = head->attempt;
	wire->reserved = 0;
	base_store_le32(&wire->digest, head->digest);
	base_zero(wire->tag, sizeof(wire->tag));
}

void rmem_wire_seal(void *hdr, u64 tag)
{
	struct rmem_hdr *wire = hdr;

	base_store_le64(wire->tag, tag);
}

static u64 contiguous_tag(const void *hdr, const struct rmem_head *head,
			  const struct base_siphash_key *key, const void *payload,
			  size_t payload_bytes)
{
	struct base_siphash h;

	rmem_wire_hash_begin(&h, key, hdr);
	if (rmem_wire_tags_payload(head) && payload_bytes)
		base_siphash_update(&h, payload, payload_bytes);
	return base_siphash_final(&h);
}

static bool has_digest(const struct rmem_head *head)
{
	return head->integrity == RMEM_DIGEST && carries_data(head);
}

enum rmem_wire_verdict rmem_wire_verify(const void *hdr, const struct rmem_head *head,
					const struct base_siphash_key *key, const void *payload,
					size_t payload_bytes)
{
	if (!rmem_wire_tag_equal(hdr, contiguous_tag(hdr, head, key, payload, payload_bytes)))
		return RMEM_WIRE_TAG;
	if (payload_bytes != rmem_wire_payload_bytes(head))
		return RMEM_WIRE_DAMAGED;
	if (has_digest(head) &&
	    head->digest != base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, payload,
								  payload_bytes)))
		return RMEM_WIRE_DAMAGED;
	return RMEM_WIRE_GOOD;
}

void rmem_wire_build(void *hdr, struct rmem_head *head, const struct base_siphash_key *key,
		     const void *payload, size_t payload_bytes)
{
	head->digest = 0;
	if (has_digest(head))
		head->digest = base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, payload,
								    payload_bytes));
	rmem_wire_encode(hdr, head);
	rmem_wire_seal(hdr, contiguous_tag(hdr, head, key, payload, payload_bytes));
}
