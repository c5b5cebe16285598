// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/wire.h"

#include "core/base/bytes.h"
#include "core/base/crc32c.h"

/* A header wherever it lies: behind Ethernet's 14 bytes it isn't aligned. */
struct anywhere {
	struct rmem_hdr hdr;
} __attribute__((packed));

/* Is the payload data, and nothing else? */
static bool carries_data(const struct rmem_head *head)
{
	return head->type == RMEM_WRITE ||
	       ((head->type & RMEM_RESPONSE) && rmem_type_reads(head->type & ~RMEM_RESPONSE) &&
		head->status == RMEM_OK);
}

u32 rmem_wire_tagged_bytes(const struct rmem_head *head, u32 payload_bytes)
{
	u32 ranges_bytes = rmem_wire_ranges_bytes(head);

	if (head->integrity == RMEM_FULL)
		return payload_bytes;
	switch (head->type) {
	case RMEM_READ:
	case RMEM_READ | RMEM_RESPONSE:
	case RMEM_WRITE:
	case RMEM_WRITE | RMEM_RESPONSE:
	case RMEM_READV | RMEM_RESPONSE:
		return 0;
	case RMEM_WRITEV:
		return ranges_bytes < payload_bytes ? ranges_bytes : payload_bytes;
	default:
		return payload_bytes;
	}
}

bool rmem_wire_has_digest(const struct rmem_head *head)
{
	return head->integrity == RMEM_DIGEST &&
	       (carries_data(head) || head->type == RMEM_WRITEV);
}

/* What a header says hasn't verified yet: no sum with it may overflow. */
static u32 with_data(u32 bytes, u32 data_bytes)
{
	return bytes + (data_bytes < RMEM_PIECE_BYTES_MAX ? data_bytes : RMEM_PIECE_BYTES_MAX);
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
	case RMEM_ATOMIC:
		return sizeof(struct rmem_operands);
	case RMEM_PUT:
		return with_data(sizeof(struct rmem_put), head->len);
	case RMEM_READV:
		return rmem_wire_ranges_bytes(head);
	case RMEM_WRITEV:
		return with_data(rmem_wire_ranges_bytes(head), head->len);
	case RMEM_ATOMIC | RMEM_RESPONSE:
	case RMEM_PUT | RMEM_RESPONSE:
		return sizeof(struct rmem_found);
	default:
		return 0;
	}
}

u32 rmem_wire_work_bytes(const struct rmem_head *head)
{
	switch (head->type) {
	case RMEM_READ:
	case RMEM_READV:
		return head->len;
	case RMEM_DISCARD:
	case RMEM_ZERO:
		return head->len / (RMEM_ZERO_BYTES_MAX / RMEM_READ_BYTES_MAX);
	default:
		return 0;
	}
}

static bool op_is_sound(const struct rmem_head *head)
{
	if (rmem_type_has_ranges(head->type))
		return head->op && head->op <= RMEM_RANGES_MAX;
	return rmem_type_is_exactly_once(head->type) == !!head->op;
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
	return head->session && head->boot && (head->type == RMEM_READ || !head->piece);
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
