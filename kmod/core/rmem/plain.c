// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/plain.h"

#include "core/base/bytes.h"

/* At any address: a reader's copy might not be aligned. */
struct any_plain {
	struct rmem_plain plain;
} __attribute__((packed));

bool rmem_plain_joins(struct rmem_plain_sum *sum, const struct rmem_head *head, u32 payload_bytes)
{
	u32 bytes = sum->bytes + rmem_plain_bytes(payload_bytes);
	u32 work_bytes = sum->work_bytes + rmem_wire_work_bytes(head);

	if (sum->messages && (sum->messages == RMEM_BUNDLE_MAX || bytes > RMEM_DATAGRAM_BYTES_MAX ||
			      work_bytes > RMEM_READ_BYTES_MAX))
		return false;
	sum->messages++;
	sum->bytes = bytes;
	sum->work_bytes = work_bytes;
	return true;
}

void rmem_plain_encode(void *plain, const struct rmem_head *head)
{
	struct any_plain *any = plain;
	bool response = head->type & RMEM_RESPONSE;
	bool rebooted = response && head->status == RMEM_REBOOTED;

	any->plain.version = RMEM_PLAIN;
	any->plain.type = head->type;
	any->plain.status = head->status;
	any->plain.attempt = head->attempt;
	any->plain.op = head->op;
	any->plain.reserved = 0;
	base_store_le16(&any->plain.above, response ? 0 : (u16)(head->id - head->floor));
	base_store_le64(&any->plain.session, head->session);
	base_store_le64(&any->plain.id, head->id);
	base_store_le64(&any->plain.addr, rebooted ? head->boot : head->addr);
	base_store_le32(&any->plain.len, head->len);
	base_store_le32(&any->plain.part, response ? head->offset : head->piece);
}

static enum rmem_wire_verdict plain_parse(const struct any_plain *any, bool response, bool bare,
					  struct rmem_head *head)
{
	u32 part = base_load_le32(&any->plain.part);
	u16 above = base_load_le16(&any->plain.above);
	bool lends = bare && !response;
	bool has_parts = lends && any->plain.type == RMEM_WRITE;

	if (any->plain.version != RMEM_PLAIN)
		return RMEM_WIRE_VERSION;
	head->type = any->plain.type;
	head->integrity = RMEM_LINK;
	head->clear = false;
	if (!!(head->type & RMEM_RESPONSE) != response || !rmem_plain_fits(head) ||
	    (lends && head->type != RMEM_READ && head->type != RMEM_WRITE))
		return RMEM_WIRE_TYPE;
	head->status = any->plain.status;
	head->attempt = any->plain.attempt;
	head->op = any->plain.op;
	head->more = false;
	head->plain = true;
	head->session = base_load_le64(&any->plain.session);
	head->id = base_load_le64(&any->plain.id);
	head->floor = response ? 0 : head->id - above;
	head->addr = base_load_le64(&any->plain.addr);
	head->boot = response && head->status == RMEM_REBOOTED ? head->addr : 0;
	head->len = base_load_le32(&any->plain.len);
	head->digest = 0;
	head->offset = response ? part : 0;
	head->piece = response ? 0 : (u16)part;
	if (any->plain.reserved || !head->session || (response ? above : above > head->id) ||
	    (response && head->status == RMEM_REBOOTED && !head->boot) ||
	    !rmem_wire_fields_are_sound(head, response, has_parts ? 0 : part) ||
	    (has_parts && part > 0xffff))
		return RMEM_WIRE_MALFORMED;
	return RMEM_WIRE_GOOD;
}

enum rmem_wire_verdict rmem_plain_step(struct rmem_plain_record *record, const void *plain)
{
	u32 offset = record->sum.bytes;
	enum rmem_wire_verdict form = plain_parse(plain, record->response, record->bare,
						  &record->head);

	if (form != RMEM_WIRE_GOOD)
		return form;
	record->payload_offset = offset + RMEM_PLAIN_BYTES;
	record->payload_bytes = record->bare ? 0 : rmem_wire_payload_bytes(&record->head);
	if (record->payload_bytes > RMEM_PIECE_BYTES_MAX ||
	    record->bytes - offset < rmem_plain_bytes(record->payload_bytes) ||
	    !rmem_plain_joins(&record->sum, &record->head, record->payload_bytes))
		return RMEM_WIRE_MALFORMED;
	return RMEM_WIRE_GOOD;
}
