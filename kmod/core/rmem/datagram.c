// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/datagram.h"

bool rmem_bundle_joins(struct rmem_bundle *bundle, u32 limit_bytes, const struct rmem_head *head)
{
	u32 payload_bytes = bundle->payload_bytes + rmem_wire_payload_bytes(head);
	u32 work_bytes = bundle->work_bytes + rmem_wire_work_bytes(head);
	u32 bytes = (bundle->messages + 1) * RMEM_HDR_BYTES + payload_bytes;

	if (bundle->messages && (bytes > limit_bytes || bundle->messages == RMEM_BUNDLE_MAX ||
				 payload_bytes > RMEM_PIECE_BYTES_MAX ||
				 work_bytes > RMEM_READ_BYTES_MAX))
		return false;
	bundle->messages++;
	bundle->payload_bytes = payload_bytes;
	bundle->work_bytes = work_bytes;
	return true;
}

bool rmem_datagram_begin(struct rmem_datagram *d, u32 bytes, bool response)
{
	d->bytes = bytes;
	d->messages = 0;
	d->steps = 0;
	d->response = response;
	d->even = false;
	d->verdict = RMEM_WIRE_SHORT;
	d->sum_bytes = 0;
	d->work_bytes = 0;
	return bytes >= RMEM_HDR_BYTES;
}

static bool belongs_to(const struct rmem_head *head, const struct rmem_head *first)
{
	return rmem_type_may_share(head->type) && head->space == first->space &&
	       head->session == first->session && head->boot == first->boot &&
	       head->integrity == first->integrity;
}

bool rmem_datagram_count(struct rmem_datagram *d, const void *hdr)
{
	bool is_first = !d->messages;
	struct rmem_head other, *head = is_first ? &d->head : &other;
	enum rmem_wire_verdict form = rmem_wire_parse(hdr, RMEM_HDR_BYTES, d->response, head);
	u32 bytes;

	d->even = false;
	if (is_first)
		d->verdict = form;
	if (form != RMEM_WIRE_GOOD || (!is_first && !belongs_to(head, &d->head)))
		return false;
	d->messages++;
	d->work_bytes += rmem_wire_work_bytes(head);
	/* What it says hasn't verified yet: no sum of such may overflow. */
	if (rmem_wire_payload_bytes(head) > RMEM_PIECE_BYTES_MAX ||
	    (!is_first && d->work_bytes > RMEM_READ_BYTES_MAX))
		return false;
	d->sum_bytes += rmem_wire_payload_bytes(head);
	bytes = d->messages * RMEM_HDR_BYTES + d->sum_bytes;
	d->even = bytes == d->bytes;
	return bytes < d->bytes && rmem_type_may_share(d->head.type) &&
	       d->messages < RMEM_BUNDLE_MAX && (d->messages + 1) * RMEM_HDR_BYTES <= d->bytes;
}

bool rmem_datagram_step(struct rmem_datagram *d, const void *hdrs)
{
	if (d->steps == d->messages)
		return false;
	if (!d->steps++) {
		d->payload_offset = d->messages * RMEM_HDR_BYTES;
	} else {
		d->payload_offset += d->payload_bytes;
		/* It was good when it was counted. */
		rmem_wire_parse(rmem_datagram_hdr(d, hdrs), RMEM_HDR_BYTES, d->response, &d->head);
	}
	/* A tag over a payload that isn't there as a whole can't verify, so take what there is. */
	d->payload_bytes = rmem_wire_payload_bytes(&d->head);
	if (d->payload_bytes > d->bytes - d->payload_offset)
		d->payload_bytes = d->bytes - d->payload_offset;
	return true;
}

enum rmem_wire_verdict rmem_datagram_open(struct rmem_datagram *d, const void *data, u32 bytes,
					  bool response)
{
	bool more = rmem_datagram_begin(d, bytes, response);

	while (more)
		more = rmem_datagram_count(d, (const u8 *)data + d->messages * RMEM_HDR_BYTES);
	return d->verdict;
}

enum rmem_wire_verdict rmem_datagram_verify(const struct rmem_datagram *d,
					    const struct base_siphash_key *key, const void *data)
{
	enum rmem_wire_verdict verdict =
		rmem_wire_verify(rmem_datagram_hdr(d, data), &d->head, key,
				 (const u8 *)data + d->payload_offset, d->payload_bytes);

	return verdict == RMEM_WIRE_GOOD && !d->even ? RMEM_WIRE_DAMAGED : verdict;
}
