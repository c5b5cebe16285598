// SPDX-License-Identifier: GPL-2.0
/*
 * Frames to peers.
 *
 *   marlin_xmit -> xmit_to -> xmit_move ---------------> ring in the peer's memory
 *                     | no room for another frame        |
 *                     v                                  v one bell for a burst, if the peer sleeps
 *                  xmit_wait: queue stopped ... marlin_xmit_wake, by the poll, once the tail moves
 *
 * A unicast frame goes to the peer that has its address, in that peer's queue. A multicast frame
 * goes to every peer; one that has no room at that moment misses it, as at a switch.
 */
#include <linux/etherdevice.h>
#include <linux/virtio_net.h>

#include "marlin/marlin.h"

static_assert(sizeof(struct marlin_offload) == sizeof(struct virtio_net_hdr));
static_assert(offsetof(struct marlin_offload, checksum_offset) ==
	      offsetof(struct virtio_net_hdr, csum_offset));

static struct marlin_peer *xmit_find(struct marlin_dev *md, const u8 *address)
{
	u64 mac = ether_addr_to_u64(address);

	for (unsigned int i = 0; mac && i < md->peer_count; i++)
		if (READ_ONCE(md->peers[i].mac) == mac)
			return &md->peers[i];
	return NULL;
}

u16 marlin_xmit_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev)
{
	struct marlin_dev *md = netdev_priv(dev);
	const u8 *address = ((const struct ethhdr *)skb->data)->h_dest;
	struct marlin_peer *peer;

	peer = is_multicast_ether_addr(address) ? NULL : xmit_find(md, address);
	return peer ? peer->index : md->peer_count;
}

static void xmit_count_drop(struct marlin_dev *md, enum marlin_drop why)
{
	atomic_long_inc(&md->drops[why]);
}

/* ---- room ---- */

/* Looks at the tail if the room known doesn't do. Caller holds out_lock. */
static bool xmit_has_room(struct marlin_peer *peer, u32 bytes)
{
	enum frames_fault fault;

	if (frames_out_fits(&peer->out, bytes))
		return true;
	fault = frames_out_learn(&peer->out);
	if (fault) {
		peer->out_live = false;
		marlin_link_fault(peer, frames_fault_name(fault));
		return false;
	}
	return frames_out_fits(&peer->out, bytes);
}

/* Stops the peer's queue until there is room for any frame. Caller holds out_lock. */
static void xmit_wait(struct marlin_peer *peer, struct netdev_queue *queue)
{
	if (xmit_has_room(peer, MARLIN_FRAME_BYTES_MAX) || !peer->out_live)
		return;
	netif_tx_stop_queue(queue);
	peer->out_waits = true;
	peer->out_stats.stops++;
	ring_doze(marlin_word(&marlin_peer_window(peer)->writer_sleeps));
	marlin_flush(peer);
	/* Room that came before the peer saw the flag. */
	if (xmit_has_room(peer, MARLIN_FRAME_BYTES_MAX) || !peer->out_live) {
		peer->out_waits = false;
		netif_tx_start_queue(queue);
	}
}

/* The peer may have moved its tail. */
void marlin_xmit_wake(struct marlin_peer *peer)
{
	bool wake = false;

	spin_lock(&peer->out_lock);
	if (peer->out_live && peer->out_waits) {
		if (xmit_has_room(peer, MARLIN_FRAME_BYTES_MAX)) {
			wake = true;
		} else if (peer->out_live) {
			/* The bell was for frames, or came for less room than that. */
			ring_doze(marlin_word(&marlin_peer_window(peer)->writer_sleeps));
			marlin_flush(peer);
			wake = xmit_has_room(peer, MARLIN_FRAME_BYTES_MAX);
		}
		if (wake)
			peer->out_waits = false;
	}
	spin_unlock(&peer->out_lock);
	if (wake)
		netif_tx_wake_queue(netdev_get_tx_queue(peer->md->dev, peer->index));
}

/*
 * The peer's queue has been stopped for NETDEV_TIMEOUT. The frames in it are charged to sockets
 * that send to other peers, too. So the link starts again, and the frames are dropped.
 */
void marlin_xmit_timeout(struct net_device *dev, unsigned int queue)
{
	struct marlin_dev *md = netdev_priv(dev);
	struct marlin_peer *peer;

	if (queue >= md->peer_count)
		return;
	peer = &md->peers[queue];
	spin_lock_bh(&peer->out_lock);
	if (peer->out_live && peer->out_waits) {
		peer->out_live = false;
		marlin_link_fault(peer, frames_fault_name(FRAMES_FAULT_STUCK));
	}
	spin_unlock_bh(&peer->out_lock);
}

/* ---- frames ---- */

/* Copies a frame into the peer's memory, by the CPU. Caller holds out_lock; the frame fits. */
static void xmit_move(struct marlin_peer *peer, const struct sk_buff *skb,
		      const struct virtio_net_hdr *offload)
{
	struct frames_span span = frames_out_span(&peer->out, skb->len);

	memcpy(frames_out_offload(&peer->out), offload, sizeof(*offload));
	skb_copy_bits(skb, 0, span.at[0], span.bytes[0]);
	if (span.bytes[1])
		skb_copy_bits(skb, span.bytes[0], span.at[1], span.bytes[1]);
	frames_out_close(&peer->out, skb->len);
	wmb(); /* stores may be combined on the way to the window */
	frames_out_post(&peer->out, skb->len);
	peer->out_unrung = true;
	peer->out_stats.packets++;
	peer->out_stats.bytes += skb->len;
}

/*
 * queue: the peer's own, which may be stopped, or NULL. NETDEV_TX_BUSY: the frame waits in it. The
 * caller frees the frame otherwise.
 */
static netdev_tx_t xmit_to(struct marlin_peer *peer, const struct sk_buff *skb,
			   struct netdev_queue *queue)
{
	enum marlin_drop drop = MARLIN_DROPS;
	struct virtio_net_hdr offload;
	netdev_tx_t result = NETDEV_TX_OK;

	spin_lock(&peer->out_lock);
	if (!peer->out_live) {
		drop = MARLIN_DROP_LINK;
	} else if (skb->len < MARLIN_FRAME_BYTES_MIN || skb->len > MARLIN_FRAME_BYTES_MAX ||
		   virtio_net_hdr_from_skb(skb, &offload, true, false, 0)) {
		drop = MARLIN_DROP_SIZE;
	} else if (xmit_has_room(peer, skb->len)) {
		xmit_move(peer, skb, &offload);
		if (queue)
			xmit_wait(peer, queue);
	} else if (!peer->out_live) {
		drop = MARLIN_DROP_LINK;
	} else if (queue) {
		xmit_wait(peer, queue);
		result = NETDEV_TX_BUSY;
	} else {
		drop = MARLIN_DROP_FULL;
	}
	spin_unlock(&peer->out_lock);
	if (drop != MARLIN_DROPS)
		xmit_count_drop(peer->md, drop);
	return result;
}

/* Rings a peer that sleeps, if frames were posted since the last bell. */
static void xmit_ring(struct marlin_peer *peer)
{
	spin_lock(&peer->out_lock);
	if (peer->out_live && peer->out_unrung) {
		marlin_flush(peer);
		if (ring_must_wake(marlin_word(&marlin_own_window(peer)->reader_sleeps))) {
			peer->out_stats.bells++;
			marlin_ring(peer);
		}
		peer->out_unrung = false;
	}
	spin_unlock(&peer->out_lock);
}

static void xmit_to_all(struct marlin_dev *md, const struct sk_buff *skb)
{
	for (unsigned int i = 0; i < md->peer_count; i++) {
		if (!READ_ONCE(md->peers[i].mac))
			continue;
		xmit_to(&md->peers[i], skb, NULL);
		xmit_ring(&md->peers[i]);
	}
}

netdev_tx_t marlin_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct marlin_dev *md = netdev_priv(dev);
	u16 number = skb_get_queue_mapping(skb);
	struct netdev_queue *queue = netdev_get_tx_queue(dev, number);
	const u8 *address = ((const struct ethhdr *)skb->data)->h_dest;
	netdev_tx_t result = NETDEV_TX_OK;
	bool more = netdev_xmit_more();
	struct marlin_peer *peer;

	if (is_multicast_ether_addr(address)) {
		xmit_to_all(md, skb);
	} else {
		peer = xmit_find(md, address);
		if (!peer) {
			xmit_count_drop(md, MARLIN_DROP_UNKNOWN);
		} else if (peer->index == number) {
			result = xmit_to(peer, skb, queue);
		} else {
			/* The address was another machine's when the queue was chosen. */
			xmit_to(peer, skb, NULL);
			xmit_ring(peer);
		}
	}
	if (number < md->peer_count && (!more || netif_xmit_stopped(queue)))
		xmit_ring(&md->peers[number]);
	if (result == NETDEV_TX_OK)
		dev_consume_skb_any(skb);
	return result;
}
