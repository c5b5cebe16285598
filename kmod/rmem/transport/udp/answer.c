// SPDX-License-Identifier: GPL-2.0
/*
 * Answers become datagrams.
 *
 *      linear:    | room for lower layers | UDP | rmem_hdr | rmem_msg | rmem_msg | ...
 *      fragments: page memory, by reference (READ); data to be copied at once (the value that an
 *                 ATOMIC found, a READV's ranges), in memory of its own
 *
 * Data of a READ isn't copied, unless it is small and has a digest (request.c): the packet refers
 * to the lent page itself, and the scrubber leaves a page alone while one does. A client that
 * writes a range while reading it can change the page while the packet waits in a queue. It gets
 * the old data, the new, or a packet that its digest refuses. The fragments are marked as shared,
 * for layers that would compute over them twice. Sealed answers are copied and encrypted as they
 * leave, without a slot's lock: a READ of RMEM_READ_BYTES_MAX takes long.
 */
#include <linux/ipv6.h>
#include <linux/mm.h>
#include <linux/skbuff.h>
#include <linux/udp.h>

#include "rmem/transport/udp/port.h"
#include "rmem/carrier/cipher.h"
#include "rmem/carrier/skb.h"

/* The layers below the message put theirs before it. */
#define HEADROOM (LL_MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr))

/*
 * The reserves that PF_MEMALLOC opens are for tasks that free memory; a lost
 * answer is asked for again.
 */
#define SEND_GFP (GFP_ATOMIC | __GFP_NOMEMALLOC | __GFP_NOWARN)

/* A longer payload is put into pages, for memory that is fragmented has no larger pieces. */
#define LINEAR_MAX 2048

/* ---- packets ---- */

static struct sk_buff *answer_packet_made(struct sk_buff *skb)
{
	if (likely(skb))
		skb_reserve(skb, HEADROOM);
	else
		rmem_port_count(RMEM_PORT_NO_BUFFER);
	return skb;
}

static struct sk_buff *answer_packet_new(u32 linear_bytes)
{
	return answer_packet_made(alloc_skb(HEADROOM + linear_bytes, SEND_GFP));
}

/* The caller counts the pages' bytes. */
static struct sk_buff *answer_packet_paged(u32 linear_bytes, u32 paged_bytes)
{
	int err;

	return answer_packet_made(alloc_skb_with_frags(HEADROOM + linear_bytes, paged_bytes, 0,
						       &err, SEND_GFP));
}

/* A CPU's datagrams, counted; with its name before it, no other has the same number. */
static DEFINE_PER_CPU(u64, numbers);

/* BH disabled, so that the CPU stays the same. */
static u64 answer_next_number(void)
{
	return (u64)smp_processor_id() << 48 | this_cpu_inc_return(numbers);
}

static bool answer_seal(struct sk_buff *skb, const struct rmem_seal_key *key, u64 salt)
{
	static_assert(sizeof(salt) == RMEM_SEAL_SALT_BYTES);

	if (!rmem_wire_is_sealed(skb->data))
		return true;
	if ((!(skb_shinfo(skb)->flags & SKBFL_SHARED_FRAG) || rmem_skb_own(skb, SEND_GFP)) &&
	    likely(rmem_skb_seal(skb, key, (const u8 *)&salt, SEND_GFP)))
		return true;
	rmem_port_count(RMEM_PORT_NO_BUFFER);
	kfree_skb(skb);
	return false;
}

struct sk_buff *udp_answers_seal(struct sk_buff *packets, const struct rmem_seal_key *key)
{
	struct sk_buff *sealed = NULL, **last = &sealed, *skb, *next;
	u64 salt = rmem_cipher_salt();

	skb_list_walk_safe(packets, skb, next) {
		skb_mark_not_on_list(skb);
		if (!answer_seal(skb, key, salt))
			continue;
		*last = skb;
		last = &skb->next;
	}
	return sealed;
}

struct sk_buff *udp_answer_alone(const struct base_siphash_key *key,
				 const struct rmem_seal_key *seal, struct rmem_head *head,
				 const void *payload)
{
	u32 bytes = rmem_wire_payload_bytes(head);
	u32 paged = bytes > LINEAR_MAX ? bytes : 0;
	struct base_siphash h;
	struct sk_buff *skb;

	skb = paged ? answer_packet_paged(RMEM_HEADS_BYTES(1), paged) :
		      answer_packet_new(RMEM_HEADS_BYTES(1) + bytes);
	if (!skb)
		return NULL;
	head->number = answer_next_number();
	rmem_datagram_build_one(skb_put(skb, RMEM_HEADS_BYTES(1)), head, key, payload);
	if (paged) {
		skb->data_len = paged;
		skb->len += paged;
		skb_store_bits(skb, RMEM_HEADS_BYTES(1), payload, paged);
	} else if (bytes) {
		skb_put_data(skb, payload, bytes);
	}
	if (!seal)
		return skb;
	rmem_skb_end(skb, 1, head->more, &h, key);
	return answer_seal(skb, seal, rmem_cipher_salt()) ? skb : NULL;
}

static bool answer_has_room(const struct sk_buff *skb, unsigned int fragments)
{
	fragments += rmem_wire_is_sealed(skb->data); /* the seal */
	return rmem_skb_has_head_room(skb) &&
	       skb_shinfo(skb)->nr_frags + fragments <= MAX_SKB_FRAGS;
}

struct sk_buff *udp_answers_take_full(struct udp_answers *answers)
{
	struct sk_buff *packets = answers->full;

	answers->full = NULL;
	answers->full_last = NULL;
	return packets;
}

struct sk_buff *udp_answers_take_open(struct udp_answers *answers)
{
	struct sk_buff *packet = answers->open;

	answers->open = NULL;
	if (!packet)
		return NULL;
	rmem_skb_end(packet, answers->bundle.messages, false, &answers->hash, &answers->key);
	/* The space can be gone before this CPU has another datagram to answer. */
	rmem_seal_wipe(&answers->key, sizeof(answers->key));
	rmem_seal_wipe(&answers->hash, sizeof(answers->hash));
	return packet;
}

static void answer_complete_open(struct udp_answers *answers)
{
	struct sk_buff *skb = udp_answers_take_open(answers);

	if (!skb)
		return;
	if (answers->full_last)
		answers->full_last->next = skb;
	else
		answers->full = skb;
	answers->full_last = skb;
}

/* The packet for another answer, the open one or a new one. NULL: no buffer. */
static struct sk_buff *answer_packet_for(struct udp_answers *answers,
					 const struct base_siphash_key *key, struct rmem_head *head,
					 unsigned int fragments, u32 room_bytes)
{
	struct sk_buff *skb = answers->open;

	if (skb && answer_has_room(skb, fragments) && head->boot == answers->boot &&
	    rmem_bundle_joins(&answers->bundle, room_bytes, head))
		return skb;
	/* Other answers can join this one, even if it joins none: so make room for all heads. */
	skb = answer_packet_new(RMEM_HEADS_BYTES(RMEM_BUNDLE_MAX));
	if (!skb)
		return NULL;
	answer_complete_open(answers);
	head->number = answer_next_number();
	rmem_skb_begin(skb, head);
	answers->key = *key;
	base_siphash_init(&answers->hash, key);
	answers->open = skb;
	answers->boot = head->boot;
	answers->bundle = (struct rmem_bundle){};
	rmem_bundle_joins(&answers->bundle, room_bytes, head);
	return skb;
}

static void answer_add_fragment(struct sk_buff *skb, struct page *page, const void *data, u32 bytes)
{
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, data - page_address(page), bytes,
			bytes);
}

static void answer_add_page(void *arg, struct page *page, const void *data, u32 bytes)
{
	get_page(page);
	answer_add_fragment(arg, page, data, bytes);
}

/* Memory of an answer's own. None is larger than a page, or it might never be had. */
#define OWN_MAX DIV_ROUND_UP(RMEM_PIECE_BYTES_MAX, PAGE_SIZE)

struct own {
	void *data[OWN_MAX];
	unsigned int count;
	u32 bytes, filled;
};

static void answer_own_free(struct own *own)
{
	while (own->count)
		skb_free_frag(own->data[--own->count]);
}

static bool answer_own_alloc(struct own *own, u32 bytes)
{
	u32 done;

	own->count = 0;
	own->bytes = bytes;
	own->filled = 0;
	for (done = 0; done < bytes; done += PAGE_SIZE) {
		void *data = netdev_alloc_frag(min_t(u32, bytes - done, PAGE_SIZE));

		if (unlikely(!data)) {
			answer_own_free(own);
			rmem_port_count(RMEM_PORT_NO_BUFFER);
			return false;
		}
		own->data[own->count++] = data;
	}
	return true;
}

/* The packet owns it from now on. */
static void answer_own_add(struct sk_buff *skb, const struct own *own)
{
	unsigned int i;

	for (i = 0; i < own->count; i++)
		answer_add_fragment(skb, virt_to_head_page(own->data[i]), own->data[i],
				    min_t(u32, own->bytes - i * PAGE_SIZE, PAGE_SIZE));
}

static void answer_own_fill(void *arg, struct page *page, const void *from, u32 bytes)
{
	struct own *own = arg;

	while (bytes) {
		u32 in_page = own->filled % PAGE_SIZE;
		u32 here = min_t(u32, bytes, PAGE_SIZE - in_page);

		memcpy(own->data[own->filled / PAGE_SIZE] + in_page, from, here);
		own->filled += here;
		from += here;
		bytes -= here;
	}
}

static void answer_end(struct udp_answers *answers, struct sk_buff *skb, struct rmem_head *head)
{
	rmem_skb_add(skb, rmem_skb_put_msg(skb), head, &answers->hash);
}

/* Behind the data of other answers there is room in fragments only, so this is one, too. */
static int answer_add_copied(struct udp_answers *answers, const struct base_siphash_key *key,
			     struct rmem_head *head, const struct rmem_port_data *data,
			     u32 room_bytes)
{
	struct sk_buff *skb;
	struct own own;

	if (!answer_own_alloc(&own, rmem_wire_payload_bytes(head)))
		return -ENOMEM;
	if (unlikely(!data->walk(data, answer_own_fill, &own))) {
		answer_own_free(&own);
		return -EFAULT;
	}
	skb = answer_packet_for(answers, key, head, own.count, room_bytes);
	if (!skb) {
		answer_own_free(&own);
		return -ENOMEM;
	}
	answer_own_add(skb, &own);
	answer_end(answers, skb, head);
	return 0;
}

int udp_answers_add(struct udp_answers *answers, const struct base_siphash_key *key,
		    struct rmem_head *head, const struct rmem_port_data *data, u32 room_bytes)
{
	struct sk_buff *skb;

	if (data && !data->pages)
		return answer_add_copied(answers, key, head, data, room_bytes);
	skb = answer_packet_for(answers, key, head, data ? data->pages : 0, room_bytes);
	if (!skb)
		return -ENOMEM;
	if (data) {
		data->walk(data, answer_add_page, skb);
		skb_shinfo(skb)->flags |= SKBFL_SHARED_FRAG;
	}
	answer_end(answers, skb, head);
	return 0;
}
