// SPDX-License-Identifier: GPL-2.0 OR MIT
#include "core/rmem/datagram.h"

#include "core/base/crc32c.h"

bool rmem_bundle_joins(struct rmem_bundle *bundle, u32 limit_bytes, const struct rmem_head *head)
{
	u32 payload_bytes = bundle->payload_bytes + rmem_wire_payload_bytes(head);
	u32 work_bytes = bundle->work_bytes + rmem_wire_work_bytes(head);
	u32 bytes = RMEM_HEADS_BYTES(bundle->messages + 1) + payload_bytes;

	if (bundle->messages && (bytes > limit_bytes || bundle->messages == RMEM_BUNDLE_MAX ||
				 payload_bytes > RMEM_PIECE_BYTES_MAX ||
				 work_bytes > RMEM_READ_BYTES_MAX))
		return false;
	bundle->messages++;
	bundle->payload_bytes = payload_bytes;
	bundle->work_bytes = work_bytes;
	return true;
}

static u32 datagram_digest(const void *payload, u32 bytes)
{
	return base_crc32c_final(base_crc32c_update(BASE_CRC32C_SEED, payload, bytes));
}

void rmem_datagram_build_one(void *heads, struct rmem_head *head,
			     const struct base_siphash_key *key, const void *payload)
{
	struct base_siphash h;

	head->digest = 0;
	if (rmem_wire_has_digest(head))
		head->digest = datagram_digest(payload, rmem_wire_payload_bytes(head));
	rmem_wire_encode_hdr(heads, head);
	rmem_wire_encode_msg((u8 *)heads + RMEM_HDR_BYTES, head);
	base_siphash_init(&h, key);
	base_siphash_update(&h, payload, rmem_wire_tagged_bytes(head));
	rmem_wire_seal(heads, 1, head->more, &h);
}

u32 rmem_datagram_heads_bytes(const void *hdr)
{
	u32 messages = ((const u8 *)hdr)[__builtin_offsetof(struct rmem_hdr, messages)];

	return RMEM_HEADS_BYTES(messages < RMEM_BUNDLE_MAX ? messages : RMEM_BUNDLE_MAX);
}

static const void *datagram_msg_at(const void *heads, u32 which)
{
	return (const u8 *)heads + RMEM_HEADS_BYTES(which);
}

/* Are all messages sound, and of types that can share a datagram? d->head is then the last's. */
static enum rmem_wire_verdict datagram_look_through(struct rmem_datagram *d, const void *heads,
						    u32 messages)
{
	u32 sum_bytes = 0, i;
	u64 work_bytes = 0;

	for (i = 0; i < messages; i++) {
		enum rmem_wire_verdict form =
			rmem_wire_parse_msg(datagram_msg_at(heads, i), d->response, &d->head);
		u32 payload_bytes;

		if (form != RMEM_WIRE_GOOD)
			return form;
		/* The tag is not verified yet: each length is checked, lest the sum overflow. */
		payload_bytes = rmem_wire_payload_bytes(&d->head);
		if (payload_bytes > RMEM_PIECE_BYTES_MAX ||
		    (messages > 1 && !rmem_type_may_share(d->head.type)))
			return RMEM_WIRE_MALFORMED;
		sum_bytes += payload_bytes;
		work_bytes += rmem_wire_work_bytes(&d->head);
		d->tagged_bytes += rmem_wire_tagged_bytes(&d->head);
	}
	if (sum_bytes > RMEM_PIECE_BYTES_MAX ||
	    RMEM_HEADS_BYTES(messages) + sum_bytes != d->bytes ||
	    (messages > 1 && work_bytes > RMEM_READ_BYTES_MAX))
		return RMEM_WIRE_MALFORMED;
	return RMEM_WIRE_GOOD;
}

/*
 * An answer to a CLOSE that the node can't seal, as it has no keys. Its id is 0, for the node
 * couldn't read the request's.
 */
static bool datagram_is_notice(const struct rmem_head *head)
{
	return head->type == (RMEM_CLOSE | RMEM_RESPONSE) && !head->id && !head->addr &&
	       !head->len && (head->status == RMEM_NO_SESSION || head->status == RMEM_REBOOTED);
}

static bool datagram_may_be_clear(const struct rmem_head *head)
{
	return (head->type & ~RMEM_RESPONSE) == RMEM_OPEN || datagram_is_notice(head);
}

static enum rmem_wire_verdict datagram_open(struct rmem_datagram *d, const void *heads, u32 bytes,
					    bool response, bool sealed)
{
	enum rmem_wire_verdict verdict;
	u32 messages;

	d->bytes = bytes;
	d->messages = 0;
	d->steps = 0;
	d->response = response;
	d->tagged_bytes = 0;
	if (bytes < RMEM_HDR_BYTES)
		return RMEM_WIRE_SHORT;
	verdict = rmem_wire_parse_hdr(heads, &d->head, &messages);
	if (verdict != RMEM_WIRE_GOOD)
		return verdict;
	/* Not by d->head: a load of several fields at once would wait for their stores. */
	if (rmem_wire_is_sealed(heads) != sealed)
		return RMEM_WIRE_MALFORMED;
	if (bytes < RMEM_HEADS_BYTES(messages))
		return RMEM_WIRE_SHORT;
	verdict = datagram_look_through(d, heads, messages);
	if (verdict != RMEM_WIRE_GOOD)
		return verdict;
	/* Types that are clear travel alone, so the last message is the first. */
	if (rmem_wire_is_sealed(heads) ? datagram_may_be_clear(&d->head)
				       : d->head.clear && !datagram_may_be_clear(&d->head))
		return RMEM_WIRE_MALFORMED;
	if (messages > 1)
		rmem_wire_parse_msg(datagram_msg_at(heads, 0), response, &d->head);
	d->messages = messages;
	d->payload_offset = RMEM_HEADS_BYTES(messages);
	d->payload_bytes = 0;
	return RMEM_WIRE_GOOD;
}

enum rmem_wire_verdict rmem_datagram_open(struct rmem_datagram *d, const void *heads, u32 bytes,
					  bool response)
{
	return datagram_open(d, heads, bytes, response, false);
}

enum rmem_wire_verdict rmem_datagram_open_unsealed(struct rmem_datagram *d, const void *heads,
						   u32 bytes, bool response)
{
	return datagram_open(d, heads, bytes, response, true);
}

bool rmem_datagram_step(struct rmem_datagram *d, const void *heads)
{
	if (d->steps == d->messages)
		return false;
	/* rmem_datagram_open() found every message good. */
	if (d->steps)
		rmem_wire_parse_msg(datagram_msg_at(heads, d->steps), d->response, &d->head);
	d->steps++;
	d->payload_offset += d->payload_bytes;
	d->payload_bytes = rmem_wire_payload_bytes(&d->head);
	return true;
}

static void datagram_hash_bytes(struct base_siphash *h, const void *datagram, u32 offset, u32 bytes)
{
	base_siphash_update(h, (const u8 *)datagram + offset, bytes);
}

bool rmem_datagram_verifies(const struct rmem_datagram *d, const struct base_siphash_key *key,
			    const void *data)
{
	return rmem_datagram_verifies_by(d, key, data, datagram_hash_bytes, data);
}

bool rmem_datagram_is_damaged(const struct rmem_datagram *d, const void *data)
{
	return rmem_wire_has_digest(&d->head) &&
	       d->head.digest != datagram_digest((const u8 *)data + d->payload_offset,
						 d->payload_bytes);
}
