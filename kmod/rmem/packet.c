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

static bool add_copy(struct sk_buff *skb, struct request *rq, u32 offset, u32 bytes)
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
		if (!request_walk(rq, offset, now, copy_in, &to))
			return false;
		offset += now;
		bytes -= now;
	}
	return true;
}

static bool add_data(struct sk_buff *skb, struct request *rq, u32 offset, u32 bytes, bool *copied)
{
	struct lending l = { .skb = skb, .first = skb_shinfo(skb)->nr_frags };
	u32 data_bytes = skb->data_len;

	if (likely(request_walk(rq, offset, bytes, lend, &l)))
		return true;
	*copied = true;
	take_back(skb, l.first, data_bytes);
	if (add_copy(skb, rq, offset, bytes))
		return true;
	take_back(skb, l.first, data_bytes);
	return false;
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

static bool has_header_room(const struct sk_buff *skb)
{
	return skb_end_pointer(skb) - skb_tail_pointer(skb) >= RMEM_HDR_BYTES;
}

/* skb_put() for a packet that has its data already, in fragments: headers come before all data. */
static void *put_header(struct sk_buff *skb)
{
	void *hdr = skb_tail_pointer(skb);

	skb->tail += RMEM_HDR_BYTES;
	skb->len += RMEM_HDR_BYTES;
	return hdr;
}

bool rmem_packet_takes(const struct rmem_packet *packet, const struct rmem_client_tx *tx,
		       u32 limit_bytes)
{
	struct rmem_bundle bundle = packet->bundle;
	/* In how many pieces its data lies isn't known yet; sectors are the smallest. */
	u32 frags = DIV_ROUND_UP(tx->data_bytes, SECTOR_SIZE);

	return packet->skb && packet->shared && rmem_type_may_share(tx->head.type) &&
	       has_header_room(packet->skb) &&
	       skb_shinfo(packet->skb)->nr_frags + frags <= MAX_SKB_FRAGS &&
	       rmem_wire_joins(&bundle, limit_bytes, tx->data_bytes);
}

bool rmem_packet_add(struct rmem_packet *packet, const struct rmem_client_config *config,
		     struct rmem_client_tx *tx, struct request *rq, u32 messages, bool *copied)
{
	u32 payload_bytes = tx->payload_bytes + tx->data_bytes;
	struct rmem_head *head = &tx->head;
	struct sk_buff *skb = packet->skb;
	u32 offset;
	void *hdr;

	if (!skb) {
		skb = alloc_skb(RMEM_SOCKET_HEADROOM + messages * RMEM_HDR_BYTES +
				tx->payload_bytes, PACKET_GFP);
		if (unlikely(!skb))
			return false;
		skb_reserve(skb, RMEM_SOCKET_HEADROOM);
		packet->bundle = (struct rmem_bundle){};
	}
	if (tx->data_bytes &&
	    unlikely(!add_data(skb, rq, tx->data_offset, tx->data_bytes, copied))) {
		if (!packet->skb)
			kfree_skb(skb);
		return false;
	}
	packet->skb = skb;
	packet->shared = rmem_type_may_share(head->type);
	rmem_wire_joins(&packet->bundle, U32_MAX, payload_bytes);
	hdr = put_header(skb);
	if (tx->payload_bytes)
		skb_put_data(skb, tx->payload, tx->payload_bytes);
	offset = skb->len - payload_bytes;
	head->digest = 0;
	if (tx->data_bytes && head->integrity == RMEM_DIGEST)
		head->digest = digest(skb, offset, tx->data_bytes);
	rmem_wire_encode(hdr, head);
	rmem_wire_seal(hdr, tag(&config->key, head, hdr, skb, offset, payload_bytes));
	return true;
}

/* ---- receiving ---- */

#define PACKET_HDR sizeof(struct udphdr)

static bool carries_data(const struct rmem_head *head)
{
	return head->type == (RMEM_READ | RMEM_RESPONSE) && head->status == RMEM_OK;
}

enum rmem_wire_verdict rmem_packet_open(struct rmem_packet_reader *reader, struct sk_buff *skb)
{
	u32 bytes = skb->len - PACKET_HDR, end = PACKET_HDR;
	enum rmem_wire_verdict verdict = RMEM_WIRE_SHORT;
	struct rmem_bundle *bundle = &reader->bundle;
	bool more;

	*reader = (struct rmem_packet_reader){ .skb = skb };
	do {
		end += RMEM_HDR_BYTES;
		if (!pskb_may_pull(skb, end)) {
			bundle->even = false;
			break;
		}
		more = rmem_wire_count(bundle, skb->data + end - RMEM_HDR_BYTES, bytes, true,
				       &reader->head, &verdict);
	} while (more);
	if (verdict != RMEM_WIRE_GOOD)
		return verdict;
	reader->offset = PACKET_HDR + bundle->messages * RMEM_HDR_BYTES;
	/* Whatever else has a payload has a small one, which is read where it lies. */
	if (!rmem_type_may_share(reader->head.type) &&
	    (bytes > RMEM_HDR_BYTES + RMEM_PIECE_BYTES_MIN || !pskb_may_pull(skb, skb->len)))
		return RMEM_WIRE_MALFORMED;
	return RMEM_WIRE_GOOD;
}

enum rmem_wire_verdict rmem_packet_next(struct rmem_packet_reader *reader,
					const struct rmem_client_config *config)
{
	const void *hdr = reader->skb->data + PACKET_HDR + reader->message * RMEM_HDR_BYTES;
	const struct rmem_head *head = &reader->head;
	enum rmem_wire_verdict verdict;

	reader->offset += reader->bytes;
	if (reader->message++) {
		verdict = rmem_wire_parse(hdr, RMEM_HDR_BYTES, true, &reader->head);
		if (verdict != RMEM_WIRE_GOOD)
			return verdict;
	}
	reader->bytes = rmem_wire_payload_bytes(head);
	/* A tag over a payload that isn't there as a whole can't verify, so take what there is. */
	if (unlikely(!reader->bundle.even))
		reader->bytes = min(reader->bytes, reader->skb->len - reader->offset);
	if (!rmem_wire_tag_equal(hdr, tag(&config->key, head, hdr, reader->skb, reader->offset,
					  reader->bytes)))
		return RMEM_WIRE_TAG;
	if (unlikely(!reader->bundle.even))
		return RMEM_WIRE_DAMAGED;
	if (carries_data(head) && head->integrity == RMEM_DIGEST &&
	    head->digest != digest(reader->skb, reader->offset, reader->bytes))
		return RMEM_WIRE_DAMAGED;
	return RMEM_WIRE_GOOD;
}

const void *rmem_packet_payload(const struct rmem_packet_reader *reader)
{
	if (carries_data(&reader->head) || !reader->bytes)
		return NULL;
	return reader->skb->data + reader->offset;
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

void rmem_packet_copy(const struct rmem_packet_reader *reader, struct request *rq, u32 offset,
		      u32 bytes)
{
	struct copy_out c = { .skb = reader->skb, .from = reader->offset };

	request_walk(rq, offset, bytes, copy_out, &c);
}
