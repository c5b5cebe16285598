// SPDX-License-Identifier: GPL-2.0
/*
 * Packets of programs. Sending copies nothing: fragments are pages of the program's area.
 *
 *   tx entry -> skb, fragments of the area -> tunnel's queue -> ... copies under tunnel headers
 *
 * Lent pages are marked as such (struct ubuf_info), so the stack copies them where it would keep
 * them: at a receiver of this kernel, or in a capture.
 */
#include "eqds/native_tx.h"

#include <linux/slab.h>
#include <net/ipv6.h>

#include "eqds/native_report.h"
#include "eqds/xmit.h"

static void native_lend(const struct eqds_native *native, struct sk_buff *skb, u64 at, u32 bytes)
{
	const u32 total = bytes;

	for (int i = 0; bytes; i++) {
		struct page *page = native->pages[at >> PAGE_SHIFT];
		u32 now = min_t(u32, bytes, PAGE_SIZE - offset_in_page(at));

		get_page(page);
		skb_fill_page_desc(skb, i, page, offset_in_page(at), now);
		at += now;
		bytes -= now;
	}
	skb->len += total;
	skb->data_len += total;
	skb->truesize += total;
}

static struct sk_buff *native_skb(struct eqds_native *native, const struct eqds_dev *ed,
				  const struct eqds_native_packet *packet)
{
	const u32 headroom = READ_ONCE(ed->dev->needed_headroom);
	struct eqds_native_head *head;
	struct sk_buff *skb = alloc_skb(headroom + sizeof(*head), GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	if (!eqds_native_owe(native, skb, packet->cookie)) {
		kfree_skb(skb);
		return NULL;
	}
	skb_reserve(skb, headroom);
	skb_reset_network_header(skb);
	head = skb_put_zero(skb, sizeof(*head));
	head->to = htons(packet->port);
	head->from = htons(native->port);
	native_lend(native, skb, packet->at, packet->bytes);
	return skb;
}

/* Keeps a place for the completion of one more packet. */
static bool native_may_send(struct eqds_native *native)
{
	const u32 *consumed = &native->rings->completion.consumed;
	unsigned long flags;
	bool may;

	spin_lock_irqsave(&native->lock, flags);
	/* The program's word alone would bound nothing. */
	may = native->unsettled < native->entries &&
	      eqds_native_room(consumed, native->completion_produced + native->unsettled,
			       native->entries);
	native->unsettled += may;
	spin_unlock_irqrestore(&native->lock, flags);
	return may;
}

static void native_forget(struct eqds_native *native)
{
	unsigned long flags;

	spin_lock_irqsave(&native->lock, flags);
	native->unsettled--;
	spin_unlock_irqrestore(&native->lock, flags);
}

/* Returns 0, also for one that is refused by a completion, else -ENOMEM: it stays in tx. RCU. */
static int native_send(struct eqds_native *native, struct eqds_dev *ed,
		       const struct eqds_native_packet *packet)
{
	struct eqds_native_completion bad = {
		.cookie = packet->cookie,
		.status = EQDS_NATIVE_BAD,
	};
	const u32 bytes_max = READ_ONCE(ed->dev->mtu) - sizeof(struct eqds_native_head);
	struct in6_addr peer;
	struct sk_buff *skb;

	memcpy(&peer, packet->peer, sizeof(peer));
	if (!packet->bytes || packet->bytes > bytes_max || packet->reserved || !packet->port ||
	    packet->bytes > (MAX_SKB_FRAGS - 1) * PAGE_SIZE ||
	    !eqds_native_in_area(native, packet->at, packet->bytes) ||
	    !eqds_xmit_peer_is_good(&peer)) {
		eqds_native_complete(native, &bad);
		return 0;
	}
	skb = native_skb(native, ed, packet);
	if (!skb)
		return -ENOMEM;
	eqds_xmit_native(ed, skb, &peer);
	return 0;
}

/*
 * Send what is in tx, as far as there is room for completions, and one ring's worth at most.
 * Returns 0, -ENODEV if the device is gone, or -ENOMEM. calls.
 */
int eqds_native_kick(struct eqds_native *native)
{
	u32 n = eqds_native_available(&native->rings->tx.produced, native->tx_consumed,
				      native->entries);
	struct eqds_native_packet packet;
	struct eqds_dev *ed;
	int err = rcu_access_pointer(native->ed) ? 0 : -ENODEV;

	while (n-- && !err && native_may_send(native)) {
		packet = native->tx[native->tx_consumed & (native->entries - 1)];
		barrier(); /* the program may change the entry: only the copy is looked at */
		rcu_read_lock_bh();
		ed = rcu_dereference_bh(native->ed);
		err = ed ? native_send(native, ed, &packet) : -ENODEV;
		rcu_read_unlock_bh();
		if (err) {
			native_forget(native);
			break;
		}
		native->tx_consumed++;
		/* Pairs with the program's acquire. */
		smp_store_release(&native->rings->tx.consumed, native->tx_consumed);
		cond_resched();
	}
	return err;
}
