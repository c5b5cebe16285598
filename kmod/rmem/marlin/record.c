// SPDX-License-Identifier: GPL-2.0
#include "rmem/marlin/record.h"

#include <linux/crc32c.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "core/base/crc32c.h"

/* ---- out ---- */

#define WRITER_PAYLOAD_AT (RMEM_MARLIN_HEAD_BYTES + RMEM_HEADS_BYTES(1))

void rmem_marlin_writer_begin(struct rmem_marlin_writer *w, u8 *record, struct rmem_head *head,
			      const struct base_siphash_key *key)
{
	w->record = record;
	w->bytes = WRITER_PAYLOAD_AT;
	w->head = head;
	base_siphash_init(&w->hash, key);
	w->tagged_bytes = rmem_wire_tagged_bytes(head);
	w->crc = BASE_CRC32C_SEED;
	w->has_digest = rmem_wire_has_digest(head);
}

void rmem_marlin_writer_add(struct rmem_marlin_writer *w, const void *from, u32 bytes)
{
	u32 tagged = min(bytes, w->tagged_bytes);

	memcpy(w->record + w->bytes, from, bytes);
	w->bytes += bytes;
	if (w->has_digest)
		w->crc = crc32c(w->crc, from, bytes);
	base_siphash_update(&w->hash, from, tagged);
	w->tagged_bytes -= tagged;
}

u32 rmem_marlin_writer_end(struct rmem_marlin_writer *w, u16 path)
{
	struct marlin_message_head *front;
	u8 heads[WRITER_PAYLOAD_AT] = {};

	front = (struct marlin_message_head *)heads;
	front->path = cpu_to_le16(path);
	w->head->digest = w->has_digest ? base_crc32c_final(w->crc) : 0;
	rmem_wire_encode_hdr(heads + RMEM_MARLIN_HEAD_BYTES, w->head);
	rmem_wire_encode_msg(heads + RMEM_MARLIN_HEAD_BYTES + RMEM_HDR_BYTES, w->head);
	rmem_wire_seal(heads + RMEM_MARLIN_HEAD_BYTES, 1, w->head->more, &w->hash);
	memcpy(w->record, heads, sizeof(heads));
	return w->bytes;
}

/* ---- in ---- */

/* Bytes from on, of the datagram, into the copy. */
static void reader_copy(struct rmem_marlin_reader *r, u32 from, u32 bytes)
{
	memcpy(r->copy + from, r->datagram + from, bytes - from);
	barrier(); /* the copy is what is checked */
}

bool rmem_marlin_reader_open(struct rmem_marlin_reader *r, const u8 *record, u32 bytes,
			     bool response, enum rmem_wire_verdict *verdict)
{
	const struct marlin_message_head *front = (const struct marlin_message_head *)record;
	u32 heads_bytes;

	if (bytes < RMEM_MARLIN_HEAD_BYTES + RMEM_HDR_BYTES ||
	    bytes > RMEM_MARLIN_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX)
		return false;
	r->path = le16_to_cpu(READ_ONCE(front->path));
	r->datagram = record + RMEM_MARLIN_HEAD_BYTES;
	bytes -= RMEM_MARLIN_HEAD_BYTES;
	reader_copy(r, 0, RMEM_HDR_BYTES);
	heads_bytes = min(rmem_datagram_heads_bytes(r->copy), bytes);
	reader_copy(r, RMEM_HDR_BYTES, heads_bytes);
	*verdict = rmem_datagram_open(&r->in, r->copy, bytes, response);
	return true;
}

bool rmem_marlin_reader_verifies(struct rmem_marlin_reader *r, const struct base_siphash_key *key)
{
	u32 heads_bytes = RMEM_HEADS_BYTES(r->in.messages);

	r->payloads = r->datagram;
	if (r->in.tagged_bytes || r->in.head.integrity != RMEM_LINK) {
		reader_copy(r, heads_bytes, r->in.bytes);
		r->payloads = r->copy;
	}
	return rmem_datagram_verifies(&r->in, key, r->copy);
}

static void record_copy(const struct rmem_payload *payload, u32 offset, void *to, u32 n)
{
	const struct rmem_marlin_record *r =
		container_of(payload, struct rmem_marlin_record, payload);

	memcpy(to, r->from + offset, n);
}

bool rmem_marlin_reader_step(struct rmem_marlin_reader *r, struct rmem_marlin_record *out)
{
	if (!rmem_datagram_step(&r->in, r->copy))
		return false;
	out->from = r->payloads + r->in.payload_offset;
	out->payload.bytes = r->in.payload_bytes;
	out->payload.copy = record_copy;
	out->record.head = &r->in.head;
	out->record.payload = &out->payload;
	out->record.damaged = r->payloads == r->copy &&
			      rmem_datagram_is_damaged(&r->in, r->copy);
	out->record.last = r->in.steps == r->in.messages;
	return true;
}
