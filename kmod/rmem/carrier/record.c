// SPDX-License-Identifier: GPL-2.0
#include "rmem/carrier/record.h"

#include <linux/crc32c.h>
#include <linux/kernel.h>
#include <linux/string.h>

#include "core/base/crc32c.h"

/* ---- out ---- */

#define WRITER_HEADS_BYTES (RMEM_MARLIN_HEAD_BYTES + RMEM_HEADS_BYTES(1))
#define WRITER_PLAIN_BYTES (RMEM_MARLIN_HEAD_BYTES + RMEM_PLAIN_BYTES)

void rmem_marlin_writer_begin(struct rmem_marlin_writer *w, u8 *record, struct rmem_head *head,
			      const struct base_siphash_key *key)
{
	w->record = record;
	w->head = head;
	if (head->plain) {
		w->bytes = WRITER_PLAIN_BYTES;
		return;
	}
	w->bytes = WRITER_HEADS_BYTES;
	base_siphash_init(&w->hash, key);
	w->tagged_bytes = rmem_wire_tagged_bytes(head);
	w->crc = BASE_CRC32C_SEED;
	w->has_digest = rmem_wire_has_digest(head);
}

void rmem_marlin_writer_add(struct rmem_marlin_writer *w, const void *from, u32 bytes)
{
	u32 tagged;

	memcpy(w->record + w->bytes, from, bytes);
	w->bytes += bytes;
	if (w->head->plain)
		return;
	tagged = min(bytes, w->tagged_bytes);
	if (w->has_digest)
		w->crc = crc32c(w->crc, from, bytes);
	base_siphash_update(&w->hash, from, tagged);
	w->tagged_bytes -= tagged;
}

u32 rmem_marlin_writer_end(struct rmem_marlin_writer *w, u16 path)
{
	struct marlin_message_head *front;
	u8 heads[WRITER_HEADS_BYTES] = {};

	front = (struct marlin_message_head *)heads;
	front->path = cpu_to_le16(path);
	front->loan = cpu_to_le16(w->loan);
	front->epoch = cpu_to_le32(w->epoch);
	if (w->head->plain) {
		rmem_plain_encode(heads + RMEM_MARLIN_HEAD_BYTES, w->head);
		memcpy(w->record, heads, WRITER_PLAIN_BYTES);
		return round_up(w->bytes, 8); /* as a next message would begin */
	}
	w->head->digest = w->has_digest ? base_crc32c_final(w->crc) : 0;
	rmem_wire_encode_hdr(heads + RMEM_MARLIN_HEAD_BYTES, w->head);
	rmem_wire_encode_msg(heads + RMEM_MARLIN_HEAD_BYTES + RMEM_HDR_BYTES, w->head);
	rmem_wire_seal(heads + RMEM_MARLIN_HEAD_BYTES, 1, w->head->more, &w->hash);
	memcpy(w->record, heads, WRITER_HEADS_BYTES);
	return w->bytes;
}

u32 rmem_marlin_write_plains(u8 *record, const struct rmem_head *heads, u32 count, u16 path)
{
	const struct marlin_message_head front = { .path = cpu_to_le16(path) };
	u32 bytes = sizeof(front);

	memcpy(record, &front, sizeof(front));
	for (u32 i = 0; i < count; i++) {
		u8 plain[RMEM_PLAIN_BYTES];

		rmem_plain_encode(plain, &heads[i]);
		memcpy(record + bytes, plain, sizeof(plain));
		bytes += sizeof(plain);
	}
	return bytes;
}

/* ---- in ---- */

/*
 * The heads of a record of plain messages, each copied once before it is parsed. Payloads stay in
 * the record: nothing covers them.
 */
static enum rmem_wire_verdict record_reader_open_plain(struct rmem_marlin_reader *r, u32 bytes,
						       bool response)
{
	struct rmem_plain_record in;
	u32 offset;

	r->plain_count = 0;
	r->plain_steps = 0;
	r->plain_rest = RMEM_WIRE_GOOD;
	rmem_plain_begin(&in, bytes, response);
	in.bare = r->epoch;
	while (rmem_plain_next(&in, &offset)) {
		struct rmem_marlin_plain *to = &r->plains[r->plain_count];
		struct rmem_plain plain;

		if (!rmem_plain_has_head(&in)) {
			r->plain_rest = RMEM_WIRE_SHORT;
			break;
		}
		memcpy(&plain, r->messages + offset, sizeof(plain));
		barrier(); /* the checks read the copy alone */
		r->plain_rest = rmem_plain_step(&in, &plain);
		if (r->plain_rest != RMEM_WIRE_GOOD)
			break;
		to->head = in.head;
		to->head.space = 0;
		to->head.number = 0;
		to->payload_offset = in.payload_offset;
		to->payload_bytes = in.payload_bytes;
		r->plain_count++;
	}
	return r->plain_count ? RMEM_WIRE_GOOD : r->plain_rest;
}

/* Bytes from on, of the datagram, into the copy. */
static void record_reader_copy(struct rmem_marlin_reader *r, u32 from, u32 bytes)
{
	memcpy(r->copy + from, r->messages + from, bytes - from);
	barrier(); /* the checks read the copy alone */
}

bool rmem_marlin_reader_open(struct rmem_marlin_reader *r, const u8 *record, u32 bytes,
			     bool response, enum rmem_wire_verdict *verdict)
{
	const struct marlin_message_head *front = (const struct marlin_message_head *)record;
	u32 heads_bytes;

	if (bytes < RMEM_MARLIN_HEAD_BYTES + RMEM_PLAIN_BYTES ||
	    bytes > RMEM_MARLIN_HEAD_BYTES + RMEM_DATAGRAM_BYTES_MAX)
		return false;
	r->path = le16_to_cpu(READ_ONCE(front->path));
	r->loan = le16_to_cpu(READ_ONCE(front->loan));
	r->epoch = 0;
	r->pieces_bytes = 0;
	r->messages = record + RMEM_MARLIN_HEAD_BYTES;
	bytes -= RMEM_MARLIN_HEAD_BYTES;
	r->plain = READ_ONCE(*r->messages) == RMEM_PLAIN;
	if (r->plain) {
		r->epoch = le32_to_cpu(READ_ONCE(front->epoch));
		if (r->epoch && !response) {
			r->pieces_bytes = bytes - RMEM_PLAIN_BYTES;
			bytes = RMEM_PLAIN_BYTES;
		}
		*verdict = record_reader_open_plain(r, bytes, response);
		return true;
	}
	if (bytes < RMEM_HDR_BYTES)
		return false;
	record_reader_copy(r, 0, RMEM_HDR_BYTES);
	heads_bytes = min(rmem_datagram_heads_bytes(r->copy), bytes);
	record_reader_copy(r, RMEM_HDR_BYTES, heads_bytes);
	*verdict = rmem_datagram_open(&r->in, r->copy, bytes, response);
	return true;
}

bool rmem_marlin_reader_verifies(struct rmem_marlin_reader *r, const struct base_siphash_key *key)
{
	u32 heads_bytes = RMEM_HEADS_BYTES(r->in.messages);

	r->payloads = r->messages;
	if (r->in.tagged_bytes || r->in.head.integrity != RMEM_LINK) {
		record_reader_copy(r, heads_bytes, r->in.bytes);
		r->payloads = r->copy;
	}
	return rmem_datagram_verifies(&r->in, key, r->copy);
}

/* Each is a record. */
static u32 record_reader_answers_to(const struct rmem_head *head)
{
	return head->type == RMEM_READ && head->piece ? 1 + head->len / head->piece : 1;
}

void rmem_marlin_reader_set_space(struct rmem_marlin_reader *r, u32 space)
{
	for (u32 i = 0; r->plain && i < r->plain_count; i++)
		r->plains[i].head.space = space;
}

u32 rmem_marlin_reader_answers(const struct rmem_marlin_reader *r)
{
	struct rmem_datagram each;
	u32 answers = 0;

	if (r->plain) {
		for (u32 i = 0; i < r->plain_count; i++)
			answers += record_reader_answers_to(&r->plains[i].head);
		return answers;
	}
	each = r->in;
	while (rmem_datagram_step(&each, r->copy))
		answers += record_reader_answers_to(&each.head);
	return answers;
}

u32 rmem_marlin_reader_pieces(const struct rmem_marlin_reader *r,
			      struct marlin_loan_piece pieces[MARLIN_LOAN_PIECES])
{
	u32 count = r->pieces_bytes / sizeof(*pieces);

	if (r->pieces_bytes % sizeof(*pieces) || count > MARLIN_LOAN_PIECES)
		return 0;
	memcpy(pieces, r->messages + RMEM_PLAIN_BYTES, r->pieces_bytes);
	barrier(); /* the checks read the copy alone */
	return count;
}

static void record_copy(const struct rmem_payload *payload, u32 offset, void *to, u32 n)
{
	const struct rmem_marlin_record *r =
		container_of(payload, struct rmem_marlin_record, payload);

	memcpy(to, r->from + offset, n);
}

static bool record_reader_step_plain(struct rmem_marlin_reader *r, struct rmem_marlin_record *out)
{
	const struct rmem_marlin_plain *plain;

	if (r->plain_steps == r->plain_count)
		return false;
	plain = &r->plains[r->plain_steps++];
	out->from = r->messages + plain->payload_offset;
	out->payload.bytes = plain->payload_bytes;
	out->record.head = &plain->head;
	out->record.damaged = false;
	out->record.last = r->plain_steps == r->plain_count;
	return true;
}

bool rmem_marlin_reader_step(struct rmem_marlin_reader *r, struct rmem_marlin_record *out)
{
	out->payload.copy = record_copy;
	out->record.payload = &out->payload;
	if (r->plain)
		return record_reader_step_plain(r, out);
	if (!rmem_datagram_step(&r->in, r->copy))
		return false;
	out->from = r->payloads + r->in.payload_offset;
	out->payload.bytes = r->in.payload_bytes;
	out->record.head = &r->in.head;
	out->record.damaged = r->payloads == r->copy &&
			      rmem_datagram_is_damaged(&r->in, r->copy);
	out->record.last = r->in.steps == r->in.messages;
	return true;
}
