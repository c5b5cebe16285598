// SPDX-License-Identifier: GPL-2.0
#include "rmem/carrier/skb.h"

#include <linux/crc32c.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/scatterlist.h>

#include "core/base/crc32c.h"
#include "rmem/carrier/cipher.h"

/* fn for each stretch of bytes from offset. */
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
		/* A block can go on behind the wanted range. */
		now = min(now, bytes - done);
		fn(arg, data, now);
		done += now;
	}
}

static void skb_crc_update(void *arg, const void *data, size_t bytes)
{
	u32 *crc = arg;

	*crc = crc32c(*crc, data, bytes);
}

static void skb_hash_update(void *arg, const void *data, size_t bytes)
{
	base_siphash_update(arg, data, bytes);
}

static u32 skb_digest(const struct sk_buff *skb, u32 offset, u32 bytes)
{
	u32 crc = BASE_CRC32C_SEED;

	skb_walk(skb, offset, bytes, skb_crc_update, &crc);
	return base_crc32c_final(crc);
}

void rmem_skb_begin(struct sk_buff *skb, const struct rmem_head *head)
{
	rmem_wire_encode_hdr(skb_put(skb, RMEM_HDR_BYTES), head);
}

void *rmem_skb_put_msg(struct sk_buff *skb)
{
	void *msg = skb_tail_pointer(skb);

	/* skb_put() is for packets without fragments. */
	skb->tail += RMEM_MSG_BYTES;
	skb->len += RMEM_MSG_BYTES;
	return msg;
}

void rmem_skb_add(const struct sk_buff *skb, void *msg, struct rmem_head *head,
		  struct base_siphash *h)
{
	u32 bytes = rmem_wire_payload_bytes(head), offset = skb->len - bytes;

	head->digest = rmem_wire_has_digest(head) ? skb_digest(skb, offset, bytes) : 0;
	rmem_wire_encode_msg(msg, head);
	skb_walk(skb, offset, rmem_wire_tagged_bytes(head), skb_hash_update, h);
}

/* As many bytes as the header says, if the datagram has them. */
static u32 skb_heads_bytes(const struct sk_buff *skb, const void *hdr)
{
	return min(skb->len - (u32)RMEM_SKB_HEADS, rmem_datagram_heads_bytes(hdr));
}

const void *rmem_skb_copy_heads(const struct sk_buff *skb, struct rmem_skb_heads *buffer)
{
	const void *hdr = skb_header_pointer(skb, RMEM_SKB_HEADS, RMEM_HDR_BYTES, buffer);

	return hdr ? skb_header_pointer(skb, RMEM_SKB_HEADS, skb_heads_bytes(skb, hdr), buffer) :
		     NULL;
}

const void *rmem_skb_pull_heads(struct sk_buff *skb)
{
	if (!pskb_may_pull(skb, RMEM_SKB_HEADS + RMEM_HDR_BYTES) ||
	    !pskb_may_pull(skb, RMEM_SKB_HEADS + skb_heads_bytes(skb, skb->data + RMEM_SKB_HEADS)))
		return NULL;
	return skb->data + RMEM_SKB_HEADS;
}

enum rmem_wire_verdict rmem_skb_open(struct rmem_datagram *d, const struct sk_buff *skb,
				     const void *heads, bool response)
{
	return rmem_datagram_open(d, heads, heads ? skb->len - RMEM_SKB_HEADS : 0, response);
}

static void skb_hash_bytes(struct base_siphash *h, const void *skb, u32 offset, u32 bytes)
{
	skb_walk(skb, RMEM_SKB_HEADS + offset, bytes, skb_hash_update, h);
}

bool rmem_skb_verifies(const struct rmem_datagram *d, const struct base_siphash_key *key,
		       const struct sk_buff *skb, const void *heads)
{
	return rmem_datagram_verifies_by(d, key, heads, skb_hash_bytes, skb);
}

/* ---- memory of a packet's own ---- */

/*
 * Kept in skb->cb until the datagram is sealed: the last of `frags` fragments has `bytes` unused
 * bytes behind its data.
 */
struct skb_room {
	u32 frags, bytes;
};

static struct skb_room *skb_room_of(struct sk_buff *skb)
{
	static_assert(sizeof(struct skb_room) <= sizeof(skb->cb));

	return (struct skb_room *)skb->cb;
}

/*
 * Allocates part of a shared page; if that fails, a whole page, since gfp might open reserves.
 * Leaves room for a seal, unless the data fills a page.
 */
static void *skb_own_alloc(u32 bytes, gfp_t gfp, u32 *room_bytes)
{
	u32 wanted = SKB_DATA_ALIGN(min_t(u32, bytes + RMEM_SEAL_BYTES, PAGE_SIZE));
	void *own = netdev_alloc_frag(wanted);
	struct page *page;

	*room_bytes = wanted;
	if (likely(own))
		return own;
	*room_bytes = PAGE_SIZE;
	page = alloc_page(gfp);
	return page ? page_address(page) : NULL;
}

static void skb_own_add(struct sk_buff *skb, void *own, u32 bytes, u32 room_bytes)
{
	struct page *page = virt_to_head_page(own);
	struct skb_room *room = skb_room_of(skb);

	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, own - page_address(page), bytes,
			room_bytes);
	if (!rmem_wire_is_sealed(skb->data))
		return;
	room->frags = skb_shinfo(skb)->nr_frags;
	room->bytes = room_bytes - bytes;
}

void *rmem_skb_add_own(struct sk_buff *skb, u32 bytes, gfp_t gfp)
{
	u32 room_bytes;
	void *own;

	if (skb_shinfo(skb)->nr_frags == MAX_SKB_FRAGS)
		return NULL;
	own = skb_own_alloc(bytes, gfp, &room_bytes);
	if (own)
		skb_own_add(skb, own, bytes, room_bytes);
	return own;
}

void rmem_skb_take_back(struct sk_buff *skb, const struct rmem_skb_mark *mark)
{
	u32 bytes = skb->data_len - mark->data_bytes;

	while (skb_shinfo(skb)->nr_frags > mark->frags)
		put_page(skb_frag_page(&skb_shinfo(skb)->frags[--skb_shinfo(skb)->nr_frags]));
	skb->len -= bytes;
	skb->data_len -= bytes;
	skb->truesize = mark->truesize;
}

/* The most pieces of a datagram's data that isn't sealed yet. */
#define SKB_OWN_MAX DIV_ROUND_UP(RMEM_DATAGRAM_BYTES_MAX, PAGE_SIZE)

bool rmem_skb_own(struct sk_buff *skb, gfp_t gfp)
{
	struct rmem_skb_mark linear = { .truesize = skb->truesize - skb->data_len };
	u32 bytes = skb->data_len, done, now, room_bytes[SKB_OWN_MAX];
	void *own[SKB_OWN_MAX];
	unsigned int n = 0, i;

	for (done = 0; done < bytes; done += now) {
		now = min_t(u32, bytes - done, PAGE_SIZE);
		own[n] = skb_own_alloc(now, gfp, &room_bytes[n]);
		if (!own[n])
			goto free;
		WARN_ON_ONCE(skb_copy_bits(skb, skb_headlen(skb) + done, own[n++], now));
	}
	rmem_skb_take_back(skb, &linear);
	skb_shinfo(skb)->flags &= ~SKBFL_SHARED_FRAG;
	for (done = 0, i = 0; i < n; i++, done += now) {
		now = min_t(u32, bytes - done, PAGE_SIZE);
		skb_own_add(skb, own[i], now, room_bytes[i]);
	}
	return true;

free:
	while (n)
		skb_free_frag(own[--n]);
	return false;
}

/* ---- sealed ---- */

/* Behind fragments there is room in another one only, or in the last one. */
static struct rmem_seal *skb_put_seal(struct sk_buff *skb, gfp_t gfp)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	const struct skb_room *room = skb_room_of(skb);
	skb_frag_t *last;
	void *seal;

	if (!skb_is_nonlinear(skb) && skb_tailroom(skb) >= RMEM_SEAL_BYTES)
		return skb_put(skb, RMEM_SEAL_BYTES);
	if (!shinfo->nr_frags || room->frags != shinfo->nr_frags || room->bytes < RMEM_SEAL_BYTES)
		return rmem_skb_add_own(skb, RMEM_SEAL_BYTES, gfp);
	last = &shinfo->frags[shinfo->nr_frags - 1];
	seal = skb_frag_address(last) + skb_frag_size(last);
	skb_frag_size_add(last, RMEM_SEAL_BYTES);
	skb->len += RMEM_SEAL_BYTES;
	skb->data_len += RMEM_SEAL_BYTES;
	return seal;
}

bool rmem_skb_seal(struct sk_buff *skb, const struct rmem_seal_key *key,
		   const u8 salt[RMEM_SEAL_SALT_BYTES], gfp_t gfp)
{
	struct scatterlist list[MAX_SKB_FRAGS + 2]; /* linear part, fragments, tag */
	u32 bytes = skb->len - RMEM_HDR_BYTES;
	struct rmem_seal_once once;
	struct rmem_seal *seal;
	bool done;
	int parts;

	seal = skb_put_seal(skb, gfp);
	if (unlikely(!seal))
		return false;
	memcpy(seal->salt, salt, sizeof(seal->salt));
	sg_init_table(list, ARRAY_SIZE(list));
	parts = skb_to_sgvec_nomark(skb, list, RMEM_HDR_BYTES, bytes);
	if (WARN_ON_ONCE(parts < 0))
		return false;
	sg_set_buf(&list[parts], seal->tag, sizeof(seal->tag));
	sg_mark_end(&list[parts]);
	rmem_seal_once(key, salt, skb->data, &once);
	done = rmem_cipher_encrypt(&once, skb->data, RMEM_TAGGED_BYTES, list, bytes);
	rmem_seal_wipe(&once, sizeof(once));
	*skb_room_of(skb) = (struct skb_room){}; /* the layers below want their own zeroed */
	return done;
}

struct skb_opened {
	u8 bytes[RMEM_DATAGRAM_BYTES_MAX + RMEM_SEAL_BYTES];
} __aligned(sizeof(u64));

static struct skb_opened __percpu *skb_opened;
static DEFINE_MUTEX(skb_opened_lock); /* guards its allocation */

bool rmem_skb_prepare_unseal(void)
{
	bool done;

	if (!rmem_cipher())
		return false;
	mutex_lock(&skb_opened_lock);
	if (!skb_opened)
		skb_opened = alloc_percpu(struct skb_opened);
	done = skb_opened;
	mutex_unlock(&skb_opened_lock);
	return done;
}

void rmem_skb_stop(void)
{
	int cpu;

	if (!skb_opened)
		return;
	for_each_possible_cpu(cpu)
		memzero_explicit(per_cpu_ptr(skb_opened, cpu), sizeof(struct skb_opened));
	free_percpu(skb_opened);
}

const void *rmem_skb_unseal(const struct sk_buff *skb, const struct rmem_seal_key *key)
{
	u8 *at = this_cpu_ptr(skb_opened)->bytes;
	u32 bytes = skb->len - RMEM_SKB_HEADS, text_bytes;
	struct rmem_seal_once once;
	struct rmem_seal *seal;
	bool done;

	if (skb_copy_bits(skb, RMEM_SKB_HEADS, at, bytes))
		return NULL;
	text_bytes = bytes - RMEM_HDR_BYTES - RMEM_SEAL_BYTES;
	seal = (struct rmem_seal *)(at + RMEM_HDR_BYTES + text_bytes);
	rmem_seal_once(key, seal->salt, at, &once);
	/* Over the salt: the cipher wants the tag right behind the text. */
	memmove(seal, seal->tag, sizeof(seal->tag));
	done = rmem_cipher_decrypt(&once, at, RMEM_TAGGED_BYTES, at + RMEM_HDR_BYTES, text_bytes);
	rmem_seal_wipe(&once, sizeof(once));
	return done ? at : NULL;
}

/* ---- records ---- */

static bool skb_is_damaged(const struct rmem_datagram *d, const struct sk_buff *skb)
{
	return rmem_wire_has_digest(&d->head) &&
	       d->head.digest != skb_digest(skb, rmem_skb_payload(d), d->payload_bytes);
}

static void skb_copy_payload(const struct rmem_payload *payload, u32 offset, void *to, u32 n)
{
	const struct rmem_skb_record *r = container_of(payload, struct rmem_skb_record, payload);

	if (r->plain)
		memcpy(to, r->plain + r->at + offset, n);
	else
		WARN_ON_ONCE(skb_copy_bits(r->skb, r->at + offset, to, n));
}

void rmem_skb_record_init(struct rmem_skb_record *r, const struct rmem_datagram *d,
			  const struct sk_buff *skb, const void *plain)
{
	r->skb = skb;
	r->plain = plain;
	r->at = plain ? d->payload_offset : rmem_skb_payload(d);
	r->payload.bytes = d->payload_bytes;
	r->payload.copy = skb_copy_payload;
	r->record.head = &d->head;
	r->record.payload = &r->payload;
	r->record.damaged = !plain && skb_is_damaged(d, skb);
	r->record.last = d->steps == d->messages;
}
