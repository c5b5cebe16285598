// SPDX-License-Identifier: GPL-2.0
#include "rmem/udp/skb.h"

#include <linux/crc32c.h>

#include "core/base/crc32c.h"

/* fn for each stretch of bytes from offset. */
static __always_inline void walk(const struct sk_buff *skb, u32 offset, u32 bytes,
				 void (*fn)(void *arg, const void *data, size_t bytes), void *arg)
{
	struct skb_seq_state state;
	unsigned int done = 0, now;
	const u8 *data;

	if (!bytes)
		return;
	if (offset + bytes <= skb_headlen(skb)) {
		fn(arg, skb->data + offset, bytes);
		return;
	}
	skb_prepare_seq_read((struct sk_buff *)skb, offset, offset + bytes, &state);
	while ((now = skb_seq_read(done, &data, &state))) {
		/* A block may go on behind what was asked for. */
		now = min(now, bytes - done);
		fn(arg, data, now);
		done += now;
	}
}

static void crc_update(void *arg, const void *data, size_t bytes)
{
	u32 *crc = arg;

	*crc = crc32c(*crc, data, bytes);
}

static void hash_update(void *arg, const void *data, size_t bytes)
{
	base_siphash_update(arg, data, bytes);
}

static u32 digest(const struct sk_buff *skb, u32 offset, u32 bytes)
{
	u32 crc = BASE_CRC32C_SEED;

	walk(skb, offset, bytes, crc_update, &crc);
	return base_crc32c_final(crc);
}

static u64 tag(const struct base_siphash_key *key, const struct rmem_head *head, const void *hdr,
	       const struct sk_buff *skb, u32 offset, u32 bytes)
{
	struct base_siphash h;

	rmem_wire_hash_begin(&h, key, hdr);
	walk(skb, offset, rmem_wire_tagged_bytes(head, bytes), hash_update, &h);
	return base_siphash_final(&h);
}

void *rmem_skb_put_hdr(struct sk_buff *skb)
{
	void *hdr = skb_tail_pointer(skb);

	/* skb_put() is for packets without fragments. */
	skb->tail += RMEM_HDR_BYTES;
	skb->len += RMEM_HDR_BYTES;
	return hdr;
}

void rmem_skb_seal(const struct sk_buff *skb, void *hdr, struct rmem_head *head,
		   const struct base_siphash_key *key)
{
	u32 bytes = rmem_wire_payload_bytes(head), offset = skb->len - bytes;

	head->digest = rmem_wire_has_digest(head) ? digest(skb, offset, bytes) : 0;
	rmem_wire_encode(hdr, head);
	rmem_wire_seal(hdr, tag(key, head, hdr, skb, offset, bytes));
}

enum rmem_wire_verdict rmem_skb_open(struct rmem_datagram *d, struct sk_buff *skb, bool response)
{
	bool more = rmem_datagram_begin(d, skb->len - RMEM_SKB_HDRS, response);

	while (more) {
		u32 offset = RMEM_SKB_HDRS + d->messages * RMEM_HDR_BYTES;

		/* Without memory to pull it, the datagram isn't even: its messages are damaged. */
		if (!pskb_may_pull(skb, offset + RMEM_HDR_BYTES))
			break;
		more = rmem_datagram_count(d, skb->data + offset);
	}
	return d->verdict;
}

enum rmem_wire_verdict rmem_skb_verify(const struct rmem_datagram *d,
				       const struct base_siphash_key *key,
				       const struct sk_buff *skb)
{
	const void *hdr = rmem_datagram_hdr(d, rmem_skb_hdrs(skb));
	u32 offset = rmem_skb_payload(d);

	if (!rmem_wire_tag_equal(hdr, tag(key, &d->head, hdr, skb, offset, d->payload_bytes)))
		return RMEM_WIRE_TAG;
	if (unlikely(!d->even))
		return RMEM_WIRE_DAMAGED;
	if (rmem_wire_has_digest(&d->head) &&
	    d->head.digest != digest(skb, offset, d->payload_bytes))
		return RMEM_WIRE_DAMAGED;
	return RMEM_WIRE_GOOD;
}
