// SPDX-License-Identifier: GPL-2.0
#include "rmem/packet.h"

#include <linux/blk-mq.h>
#include <linux/highmem.h>
#include <linux/net.h>

#include "rmem/skb.h"
#include "rmem/socket.h"

/* Atomic, and swap: the reserves may be used, and what fails is tried again. */
#define PACKET_GFP (GFP_ATOMIC | __GFP_MEMALLOC | __GFP_NOWARN)

/* ---- an op's memory ---- */

typedef bool (*walk_fn)(void *arg, struct page *page, u32 at, u32 bytes);

static __always_inline bool request_walk(struct request *rq, u32 offset, u32 bytes, walk_fn fn,
					 void *arg)
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

static __always_inline bool chr_walk(const struct rmem_chr_data *data, u32 offset, u32 bytes,
				     walk_fn fn, void *arg)
{
	struct bvec_iter iter = data->iter;
	struct bio_vec bv;

	if (!bvec_iter_advance(data->bvec, &iter, offset))
		return false;
	iter.bi_size = min(iter.bi_size, bytes);
	for_each_bvec(bv, data->bvec, iter, iter) {
		if (!fn(arg, bv.bv_page, bv.bv_offset, bv.bv_len))
			return false;
	}
	return true;
}

/* fn for each stretch within a page of bytes of op's data from offset; ends when fn is false. */
static __always_inline bool data_walk(struct rmem_op *op, u32 offset, u32 bytes, walk_fn fn,
				      void *arg)
{
	if (op->owner == RMEM_OWNER_CHR)
		return chr_walk(rmem_chr_data(op), offset, bytes, fn, arg);
	return request_walk(rmem_blk_request(op), offset, bytes, fn, arg);
}

/* Into how many stretches the bytes may fall, at most. */
static u32 data_stretches(const struct rmem_op *op, u32 bytes)
{
	if (op->owner == RMEM_OWNER_CHR)
		return bytes ? DIV_ROUND_UP(bytes, PAGE_SIZE) + 1 : 0;
	return DIV_ROUND_UP(bytes, SECTOR_SIZE);
}

/* ---- building ---- */

/* Pages to a packet, from its fragment first on. */
struct lending {
	struct sk_buff *skb;
	int first;
};

static bool lend(void *arg, struct page *page, u32 at, u32 bytes)
{
	struct lending *l = arg;
	struct skb_shared_info *shinfo = skb_shinfo(l->skb);
	int frags = shinfo->nr_frags;

	if (frags > l->first && skb_can_coalesce(l->skb, frags, page, at)) {
		skb_frag_size_add(&shinfo->frags[frags - 1], bytes);
	} else {
		/* The network counts references, which slab memory doesn't have. */
		if (frags == MAX_SKB_FRAGS || !sendpage_ok(page))
			return false;
		get_page(page);
		skb_fill_page_desc_noacc(l->skb, frags, page, at, bytes);
	}
	l->skb->len += bytes;
	l->skb->data_len += bytes;
	l->skb->truesize += bytes;
	return true;
}

static bool copy_in(void *arg, struct page *page, u32 at, u32 bytes)
{
	u8 **to = arg;

	memcpy_from_page(*to, page, at, bytes);
	*to += bytes;
	return true;
}

/* Undo what came after so many fragments and bytes of data. */
static void take_back(struct sk_buff *skb, int frags, u32 data_bytes)
{
	u32 bytes = skb->data_len - data_bytes;

	while (skb_shinfo(skb)->nr_frags > frags)
		put_page(skb_frag_page(&skb_shinfo(skb)->frags[--skb_shinfo(skb)->nr_frags]));
	skb->len -= bytes;
	skb->data_len -= bytes;
	skb->truesize -= bytes;
}

static bool add_copy(struct sk_buff *skb, struct rmem_op *op, u32 offset, u32 bytes)
{
	while (bytes) {
		u32 now = min_t(u32, bytes, PAGE_SIZE);
		struct page *page;
		u8 *to;

		if (skb_shinfo(skb)->nr_frags == MAX_SKB_FRAGS)
			return false;
		page = alloc_page(PACKET_GFP);
		if (!page)
			return false;
		to = page_address(page);
		skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, 0, now, now);
		if (!data_walk(op, offset, now, copy_in, &to))
			return false;
		offset += now;
		bytes -= now;
	}
	return true;
}

/*
 * A page that is only lent may hold something else by the time its packet leaves, if the op was
 * given up meanwhile. Then the node may well execute it: a digest would not let it. And data of a
 * WRITEV is in memory that is freed with the op.
 */
static bool may_lend(const struct rmem_client_config *config, const struct rmem_op *op)
{
	return op->type != RMEM_WRITEV &&
	       (config->integrity != RMEM_LINK || !config->fail_after_ns);
}

static bool add_data(struct sk_buff *skb, struct rmem_op *op, u32 offset, u32 bytes, bool lends,
		     bool *copied)
{
	struct lending l = { .skb = skb, .first = skb_shinfo(skb)->nr_frags };
	u32 data_bytes = skb->data_len;

	if (likely(lends && data_walk(op, offset, bytes, lend, &l)))
		return true;
	*copied = true;
	take_back(skb, l.first, data_bytes);
	if (add_copy(skb, op, offset, bytes))
		return true;
	take_back(skb, l.first, data_bytes);
	return false;
}

bool rmem_packet_takes(const struct rmem_packet *packet, const struct rmem_client_tx *tx,
		       u32 limit_bytes)
{
	struct rmem_bundle bundle = packet->bundle;
	u32 frags;

	if (!tx->op)
		return false;
	frags = data_stretches(tx->op, tx->data_bytes) + !!tx->payload_bytes;
	return packet->skb && packet->shared && rmem_type_may_share(tx->head.type) &&
	       rmem_skb_has_hdr_room(packet->skb) &&
	       skb_shinfo(packet->skb)->nr_frags + frags <= MAX_SKB_FRAGS &&
	       rmem_bundle_joins(&bundle, limit_bytes, &tx->head);
}

/* Behind other messages there is room in fragments only. */
static bool add_payload(struct sk_buff *skb, const struct rmem_client_tx *tx)
{
	void *payload = netdev_alloc_frag(tx->payload_bytes);
	struct page *page;

	if (!payload)
		return false;
	memcpy(payload, rmem_client_tx_payload(tx), tx->payload_bytes);
	page = virt_to_head_page(payload);
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, payload - page_address(page),
			tx->payload_bytes, tx->payload_bytes);
	return true;
}

static bool add_body(struct sk_buff *skb, const struct rmem_client_config *config,
		     const struct rmem_client_tx *tx, bool *copied)
{
	int frags = skb_shinfo(skb)->nr_frags;
	u32 data_bytes = skb->data_len;

	if (tx->payload_bytes && rmem_type_may_share(tx->head.type) && !add_payload(skb, tx))
		return false;
	if (!tx->data_bytes || add_data(skb, tx->op, tx->data_offset, tx->data_bytes,
					may_lend(config, tx->op), copied))
		return true;
	take_back(skb, frags, data_bytes);
	return false;
}

bool rmem_packet_add(struct rmem_packet *packet, const struct rmem_client_config *config,
		     struct rmem_client_tx *tx, u32 messages, bool *copied)
{
	bool shared = rmem_type_may_share(tx->head.type);
	struct sk_buff *skb = packet->skb;
	void *hdr;

	if (!skb) {
		skb = alloc_skb(RMEM_SOCKET_HEADROOM + messages * RMEM_HDR_BYTES +
				tx->payload_bytes, PACKET_GFP);
		if (unlikely(!skb))
			return false;
		skb_reserve(skb, RMEM_SOCKET_HEADROOM);
		packet->bundle = (struct rmem_bundle){};
	}
	if (unlikely(!add_body(skb, config, tx, copied))) {
		if (!packet->skb)
			kfree_skb(skb);
		return false;
	}
	packet->skb = skb;
	packet->shared = shared;
	rmem_bundle_joins(&packet->bundle, U32_MAX, &tx->head);
	hdr = rmem_skb_put_hdr(skb);
	if (tx->payload_bytes && !shared)
		skb_put_data(skb, tx->payload, tx->payload_bytes);
	rmem_skb_seal(skb, hdr, &tx->head, &config->key);
	return true;
}

/* ---- receiving ---- */

enum rmem_wire_verdict rmem_packet_open(struct rmem_datagram *d, struct sk_buff *skb)
{
	enum rmem_wire_verdict verdict = rmem_skb_open(d, skb, true);

	if (verdict != RMEM_WIRE_GOOD || rmem_type_may_share(d->head.type))
		return verdict;
	/* A payload that isn't data is small, and is read where it lies. */
	if (d->bytes > RMEM_HDR_BYTES + RMEM_PIECE_BYTES_MIN || !pskb_may_pull(skb, skb->len))
		return RMEM_WIRE_MALFORMED;
	return RMEM_WIRE_GOOD;
}

const void *rmem_packet_payload(const struct rmem_datagram *d, const struct sk_buff *skb,
				struct rmem_found *room)
{
	if (!d->payload_bytes)
		return NULL;
	if (rmem_type_is_exactly_once(d->head.type))
		return skb_header_pointer(skb, rmem_skb_payload(d), sizeof(*room), room);
	return rmem_type_may_share(d->head.type) ? NULL : skb->data + rmem_skb_payload(d);
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

void rmem_packet_copy(const struct rmem_datagram *d, const struct sk_buff *skb,
		      struct rmem_op *op, u32 offset, u32 bytes)
{
	struct copy_out c = { .skb = skb, .from = rmem_skb_payload(d) };

	data_walk(op, offset, bytes, copy_out, &c);
}
