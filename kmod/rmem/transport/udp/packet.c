// SPDX-License-Identifier: GPL-2.0
#include "rmem/transport/udp/packet.h"

#include <linux/highmem.h>
#include <linux/net.h>

#include "rmem/carrier/skb.h"
#include "rmem/carrier/socket.h"

/* Atomic, and swap: the allocation can use the reserves, and is tried again if it fails. */
#define PACKET_GFP (GFP_ATOMIC | __GFP_MEMALLOC | __GFP_NOWARN)

/* ---- building ---- */

/*
 * Pages to a packet, from its fragment first on. Their owner can write them while the packet is on
 * its way. SKBFL_SHARED_FRAG tells lower layers that they must not.
 */
struct lending {
	struct sk_buff *skb;
	int first;
};

static bool packet_lend(void *arg, struct page *page, u32 at, u32 bytes)
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
		skb_shinfo(l->skb)->flags |= SKBFL_SHARED_FRAG;
		skb_fill_page_desc_noacc(l->skb, frags, page, at, bytes);
	}
	l->skb->len += bytes;
	l->skb->data_len += bytes;
	l->skb->truesize += bytes;
	return true;
}

static bool packet_copy_in(void *arg, struct page *page, u32 at, u32 bytes)
{
	u8 **to = arg;

	memcpy_from_page(*to, page, at, bytes);
	*to += bytes;
	return true;
}

static bool packet_add_copy(struct sk_buff *skb, struct rmem_op *op, u32 offset, u32 bytes)
{
	while (bytes) {
		u32 now = min_t(u32, bytes, PAGE_SIZE);
		u8 *to = rmem_skb_add_own(skb, now, PACKET_GFP);

		if (!to || !op->ops->walk(op, offset, now, packet_copy_in, &to))
			return false;
		offset += now;
		bytes -= now;
	}
	return true;
}

/*
 * A page that is only lent can hold other data by the time its packet leaves, if the op was given
 * up meanwhile. Without a digest the node might well execute it. And data of a WRITEV is in memory
 * that is freed with the op.
 */
static bool packet_may_lend(const struct rmem_session *session, const struct rmem_op *op)
{
	return !rmem_type_has_ranges(op->type) && session->integrity != RMEM_SEALED &&
	       (session->integrity != RMEM_LINK || !session->fail_after_ms);
}

static bool packet_add_data(struct sk_buff *skb, struct rmem_op *op, u32 offset, u32 bytes,
			    bool lends, bool *copied)
{
	struct lending l = { .skb = skb, .first = skb_shinfo(skb)->nr_frags };
	struct rmem_skb_mark mark = rmem_skb_mark(skb);

	if (likely(lends && op->ops->walk(op, offset, bytes, packet_lend, &l)))
		return true;
	*copied = true;
	rmem_skb_take_back(skb, &mark);
	if (packet_add_copy(skb, op, offset, bytes))
		return true;
	rmem_skb_take_back(skb, &mark);
	return false;
}

static bool packet_count_stretch(void *arg, struct page *page, u32 at, u32 bytes)
{
	u32 *stretches = arg;

	++*stretches;
	return true;
}

/* Fragments that the message takes at most: its data lent, or copied to pages. */
static u32 packet_message_frags(const struct rmem_client_tx *tx)
{
	u32 stretches = 0;

	if (tx->data_bytes)
		tx->op->ops->walk(tx->op, tx->data_offset, tx->data_bytes, packet_count_stretch,
				  &stretches);
	return max_t(u32, stretches, DIV_ROUND_UP(tx->data_bytes, PAGE_SIZE)) +
	       !!tx->payload_bytes;
}

bool rmem_packet_takes(const struct rmem_packet *packet, const struct rmem_client_tx *tx,
		       u32 limit_bytes)
{
	struct rmem_bundle bundle = packet->bundle;

	return packet->skb && packet->shared && rmem_type_may_share(tx->head.type) &&
	       rmem_skb_has_head_room(packet->skb) &&
	       rmem_bundle_joins(&bundle, limit_bytes, &tx->head) &&
	       skb_shinfo(packet->skb)->nr_frags + packet_message_frags(tx) +
			       rmem_wire_is_sealed(packet->skb->data) <=
		       MAX_SKB_FRAGS;
}

/* Behind other messages there is room in fragments only. */
static bool packet_add_payload(struct sk_buff *skb, const struct rmem_client_tx *tx)
{
	void *payload = rmem_skb_add_own(skb, tx->payload_bytes, PACKET_GFP);

	if (!payload)
		return false;
	memcpy(payload, rmem_client_tx_payload(tx), tx->payload_bytes);
	return true;
}

static bool packet_add_body(struct sk_buff *skb, const struct rmem_session *session,
			    const struct rmem_client_tx *tx, bool *copied)
{
	struct rmem_skb_mark mark = rmem_skb_mark(skb);

	if (tx->payload_bytes && rmem_type_may_share(tx->head.type) && !packet_add_payload(skb, tx))
		return false;
	if (!tx->data_bytes || packet_add_data(skb, tx->op, tx->data_offset, tx->data_bytes,
					       packet_may_lend(session, tx->op), copied))
		return true;
	rmem_skb_take_back(skb, &mark);
	return false;
}

bool rmem_packet_add(struct rmem_packet *packet, const struct rmem_session *session,
		     struct rmem_client_tx *tx, u32 messages, bool *copied)
{
	bool shared = rmem_type_may_share(tx->head.type);
	struct sk_buff *skb = packet->skb;
	void *msg;

	if (!skb) {
		skb = alloc_skb(RMEM_SOCKET_HEADROOM + RMEM_HEADS_BYTES(messages) +
				tx->payload_bytes, PACKET_GFP);
		if (unlikely(!skb))
			return false;
		skb_reserve(skb, RMEM_SOCKET_HEADROOM);
		rmem_skb_begin(skb, &tx->head);
	}
	if (unlikely(!packet_add_body(skb, session, tx, copied))) {
		if (!packet->skb)
			kfree_skb(skb);
		return false;
	}
	if (!packet->skb) {
		packet->skb = skb;
		packet->bundle = (struct rmem_bundle){};
		base_siphash_init(&packet->hash, &session->key);
	}
	packet->shared = shared;
	packet->more = tx->head.more;
	rmem_bundle_joins(&packet->bundle, U32_MAX, &tx->head);
	msg = rmem_skb_put_msg(skb);
	if (tx->payload_bytes && !shared)
		skb_put_data(skb, rmem_client_tx_payload(tx), tx->payload_bytes);
	rmem_skb_add(skb, msg, &tx->head, &packet->hash);
	return true;
}

struct sk_buff *rmem_packet_take(struct rmem_packet *packet, const struct rmem_session *session)
{
	struct sk_buff *skb = packet->skb;

	if (skb)
		rmem_skb_end(skb, packet->bundle.messages, packet->more, &packet->hash,
			     &session->key);
	packet->skb = NULL;
	return skb;
}

bool rmem_packet_seal(struct sk_buff *skb, const struct rmem_seal_key *key,
		      const u8 salt[RMEM_SEAL_SALT_BYTES])
{
	return rmem_skb_seal(skb, key, salt, PACKET_GFP);
}
