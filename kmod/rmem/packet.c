// SPDX-License-Identifier: GPL-2.0
#include "rmem/packet.h"

#include <linux/blk-mq.h>
#include <linux/crc32c.h>
#include <linux/highmem.h>
#include <linux/net.h>
#include <linux/udp.h>

#include "core/base/bytes.h"
#include "core/base/crc32c.h"
#include "rmem/socket.h"

/* Atomic, and swap: the reserves may be used, and what fails is tried again. */
#define PACKET_GFP (GFP_ATOMIC | __GFP_MEMALLOC | __GFP_NOWARN)

/* ---- a request's memory ---- */

/* fn for each stretch within a page of bytes of rq's data from offset; ends when fn is false. */
static __always_inline bool
request_walk(struct request *rq, u32 offset, u32 bytes,
	     bool (*fn)(void *arg, struct page *page, u32 at, u32 bytes), void *arg)
{
	struct req_iterator iter;
	struct bio_vec bv;
	u32 now;

	rq_for_each_segment(bv, rq, iter) {
		if (offset >= bv.bv_len) {
			offset -= bv.bv_len;
			continue;
		}
		now = min(bv.bv_len - offset, bytes);
		if (!fn(arg, bv.bv_page, bv.bv_offset + offset, now))
			return false;
		bytes -= now;
		offset = 0;
		if (!bytes)
			return true;
	}
	return false;
}

/* ---- building ---- */

static bool lend(void *arg, struct page *page, u32 at, u32 bytes)
{
	struct sk_buff *skb = arg;
	int frags = skb_shinfo(skb)->nr_frags;

	if (skb_can_coalesce(skb, frags, page, at)) {
		skb_frag_size_add(&skb_shinfo(skb)->frags[frags - 1], bytes);
	} else {
		/* The network counts references, which slab memory doesn't have. */
		if (frags == MAX_SKB_FRAGS || !sendpage_ok(page))
			return false;
		get_page(page);
		skb_fill_page_desc_noacc(skb, frags, page, at, bytes);
	}
	skb->len += bytes;
	skb->data_len += bytes;
	skb->truesize += bytes;
	return true;
}

static bool copy_in(void *arg, struct page *page, u32 at, u32 bytes)
{
	u8 **to = arg;

	memcpy_from_page(*to, page, at, bytes);
	*to += bytes;
	return true;
}

static bool add_copy(struct sk_buff *skb, struct request *rq, u32 offset, u32 bytes)
{
	while (bytes) {
		u32 now = min_t(u32, bytes, PAGE_SIZE);
		struct page *page = alloc_page(PACKET_GFP);
		u8 *to;

		if (!page)
			return false;
		to = page_address(page);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, 0, now, PAGE_SIZE);
		if (!request_walk(rq, offset, now, copy_in, &to))
			return false;
		offset += now;
		bytes -= now;
	}
	return true;
}

/* What lend() put into skb before it met a page that can't be lent. */
static void take_back(struct sk_buff *skb)
{
	int i;

	for (i = 0; i < skb_shinfo(skb)->nr_frags; i++)
		put_page(skb_frag_page(&skb_shinfo(skb)->frags[i]));
	skb_shinfo(skb)->nr_frags = 0;
	skb->truesize -= skb->data_len;
	skb->len -= skb->data_len;
	skb->data_len = 0;
}

static bool add_data(struct sk_buff *skb, struct request *rq, u32 offset, u32 bytes, bool *copied)
{
	if (likely(request_walk(rq, offset, bytes, lend, skb)))
		return true;
	*copied = true;
	take_back(skb);
	return add_copy(skb, rq, offset, bytes);
}

/* ---- digests and tags ---- */

static __always_inline void skb_walk(const struct sk_buff *skb, u32 offset, u32 bytes,
				     void (*fn)(void *arg, const void *data, size_t bytes),
				     void *arg)
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

	skb_walk(skb, offset, bytes, crc_update, &crc);
	return base_crc32c_final(crc);
}

/* hdr: in skb's linear part; payload: bytes from offset. */
static u64 tag(const struct base_siphash_key *key, const struct rmem_head *head, const void *hdr,
	       const struct sk_buff *skb, u32 offset, u32 bytes)
{
	struct base_siphash h;

	rmem_wire_hash_begin(&h, key, hdr);
	if (rmem_wire_tags_payload(head))
		skb_walk(skb, offset, bytes, hash_update, &h);
	return base_siphash_final(&h);
}

struct sk_buff *rmem_packet_build(const struct rmem_client_config *config,
				  struct rmem_client_tx *tx, struct request *rq, bool *copied)
{
	u32 payload_bytes = tx->payload_bytes + tx->data_bytes;
	struct rmem_head *head = &tx->head;
	struct sk_buff *skb;
	void *hdr;

	skb = alloc_skb(RMEM_SOCKET_HEADROOM + RMEM_HDR_BYTES + tx->payload_bytes, PACKET_GFP);
	if (unlikely(!skb))
		return NULL;
	skb_reserve(skb, RMEM_SOCKET_HEADROOM);
	hdr = skb_put(skb, RMEM_HDR_BYTES);
	if (tx->payload_bytes)
		skb_put_data(skb, tx->payload, tx->payload_bytes);
	if (tx->data_bytes &&
	    unlikely(!add_data(skb, rq, tx->data_offset, tx->data_bytes, copied))) {
		kfree_skb(skb);
		return NULL;
	}
	head->digest = 0;
	if (tx->data_bytes && head->integrity == RMEM_DIGEST)
		head->digest = digest(skb, RMEM_HDR_BYTES, tx->data_bytes);
	rmem_wire_encode(hdr, head);
	rmem_wire_seal(hdr, tag(&config->key, head, hdr, skb, RMEM_HDR_BYTES, payload_bytes));
	return skb;
}

/* ---- receiving ---- */

#define PACKET_HDR sizeof(struct udphdr)
#define PACKET_PAYLOAD (PACKET_HDR + RMEM_HDR_BYTES)

enum rmem_wire_verdict rmem_packet_verify(const struct rmem_client_config *config,
					  struct sk_buff *skb, struct rmem_head *head)
{
	enum rmem_wire_verdict verdict;
	bool data;
	void *hdr;
	u32 bytes;

	if (!pskb_may_pull(skb, PACKET_PAYLOAD))
		return RMEM_WIRE_SHORT;
	bytes = skb->len - PACKET_PAYLOAD;
	verdict = rmem_wire_parse(skb->data + PACKET_HDR, RMEM_HDR_BYTES, true, head);
	if (verdict != RMEM_WIRE_GOOD)
		return verdict;
	data = head->type == (RMEM_READ | RMEM_RESPONSE) && head->status == RMEM_OK;
	/* Whatever else has a payload has a small one, which is read where it lies. */
	if (!data && (bytes > RMEM_PIECE_BYTES_MIN || !pskb_may_pull(skb, skb->len)))
		return RMEM_WIRE_MALFORMED;

	hdr = skb->data + PACKET_HDR;
	if (!rmem_wire_tag_equal(hdr, tag(&config->key, head, hdr, skb, PACKET_PAYLOAD, bytes)))
		return RMEM_WIRE_TAG;
	if (bytes != rmem_wire_payload_bytes(head))
		return RMEM_WIRE_DAMAGED;
	if (data && head->integrity == RMEM_DIGEST &&
	    head->digest != digest(skb, PACKET_PAYLOAD, bytes))
		return RMEM_WIRE_DAMAGED;
	return RMEM_WIRE_GOOD;
}

const void *rmem_packet_payload(const struct sk_buff *skb, const struct rmem_head *head)
{
	if (head->type == (RMEM_READ | RMEM_RESPONSE) || !rmem_wire_payload_bytes(head))
		return NULL;
	return skb->data + PACKET_PAYLOAD;
}

struct copy_out {
	const struct sk_buff *skb;
	u32 from;
};

static bool copy_out(void *arg, struct page *page, u32 at, u32 bytes)
{
	struct copy_out *c = arg;
	u8 *to = kmap_local_page(page);

	skb_copy_bits(c->skb, c->from, to + at, bytes);
	flush_dcache_page(page);
	kunmap_local(to);
	c->from += bytes;
	return true;
}

void rmem_packet_copy(const struct sk_buff *skb, struct request *rq, u32 offset, u32 bytes)
{
	struct copy_out c = { .skb = skb, .from = PACKET_PAYLOAD };

	request_walk(rq, offset, bytes, copy_out, &c);
}
