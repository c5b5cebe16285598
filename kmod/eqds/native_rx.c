// SPDX-License-Identifier: GPL-2.0
/* A packet for a program is copied once, out of the NIC's buffer into a piece of fill. */
#include "eqds/native_rx.h"

#include <linux/highmem.h>
#include <net/ipv6.h>

/* Entries that are no piece of the area: a packet passes so many, with interrupts off. */
#define NATIVE_SKIPPED_MAX 16U

/*
 * The next piece of fill, if it has room for bytes; false: there is none, or it is too small. The
 * kernel leaves such a piece for smaller packets.
 */
static bool native_take_fill(struct eqds_native *native, u32 bytes, u64 *at)
{
	u32 n = eqds_native_available(&native->rings->fill.produced, native->fill_consumed,
				      native->entries);
	struct eqds_native_fill fill;
	bool good;

	lockdep_assert_held(&native->lock);
	for (n = min(n, NATIVE_SKIPPED_MAX); n; n--) {
		fill = native->fill[native->fill_consumed & (native->entries - 1)];
		barrier();
		good = eqds_native_in_area(native, fill.at, fill.bytes);
		if (good && fill.bytes < bytes)
			return false;
		native->fill_consumed++;
		/* Pairs with the program's acquire. */
		smp_store_release(&native->rings->fill.consumed, native->fill_consumed);
		if (good) {
			*at = fill.at;
			return true;
		}
		WRITE_ONCE(native->rings->fill_skipped, ++native->fill_skipped);
	}
	return false;
}

static bool native_copy(const struct eqds_native *native, const struct sk_buff *skb, u64 at,
			u32 offset, u32 bytes)
{
	while (bytes) {
		u32 now = min_t(u32, bytes, PAGE_SIZE - offset_in_page(at));
		void *to = kmap_local_page(native->pages[at >> PAGE_SHIFT]);
		int err = skb_copy_bits(skb, offset, to + offset_in_page(at), now);

		kunmap_local(to);
		if (err)
			return false;
		at += now;
		offset += now;
		bytes -= now;
	}
	return true;
}

static bool native_receive(struct eqds_native *native, const struct sk_buff *skb, u16 from,
			   const struct in6_addr *peer, u32 offset)
{
	struct eqds_native_packet packet = {.bytes = skb->len - offset, .port = from};
	unsigned long flags;
	bool good;

	memcpy(packet.peer, peer, sizeof(*peer));
	spin_lock_irqsave(&native->lock, flags);
	good = eqds_native_room(&native->rings->rx.consumed, native->rx_produced,
				native->entries) &&
	       native_take_fill(native, packet.bytes, &packet.at) &&
	       native_copy(native, skb, packet.at, offset, packet.bytes);
	if (good) {
		native->rx[native->rx_produced & (native->entries - 1)] = packet;
		native->rx_produced++;
		/* Pairs with the program's acquire. */
		smp_store_release(&native->rings->rx.produced, native->rx_produced);
	} else {
		WRITE_ONCE(native->rings->rx_dropped, ++native->rx_dropped);
	}
	spin_unlock_irqrestore(&native->lock, flags);
	if (good)
		wake_up_interruptible_poll(&native->wait, EPOLLIN | EPOLLRDNORM);
	return good;
}

/*
 * A native packet whose turn it is; skb begins with a UDP header. Returns false if it is dropped.
 * The caller frees it. RCU.
 */
bool eqds_native_deliver(struct eqds_dev *ed, struct sk_buff *skb, u32 head_bytes)
{
	const u32 payload = head_bytes + sizeof(struct eqds_native_head);
	struct eqds_native *native;
	struct eqds_native_head head;

	if (skb->len <= payload || skb_copy_bits(skb, head_bytes, &head, sizeof(head)))
		return false;
	hlist_for_each_entry_rcu(native, eqds_native_bucket(ed, ntohs(head.to)), port_hash)
		if (native->port == ntohs(head.to))
			return native_receive(native, skb, ntohs(head.from), &EQDS_CB(skb)->peer,
					      payload);
	return false;
}
