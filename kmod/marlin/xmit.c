// SPDX-License-Identifier: GPL-2.0
/*
 * Frames to peers.
 *
 *   marlin_xmit -> xmit_to -> xmit_move ---------------> ring in the peer's memory
 *                     | no room for another frame        |
 *                     v                                  v one bell for a burst, if the peer sleeps
 *                  xmit_wait: queue stopped ... marlin_xmit_wake, by the poll, once the tail moves
 *
 * A unicast frame goes to the peer that has its address, by a ring that its flow picks, and in that
 * ring's queue. A multicast frame goes to every peer; one without room at that moment misses it, as
 * at a switch.
 */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/jhash.h>
#include <linux/virtio_net.h>
#include <net/flow_dissector.h>

#include "marlin/marlin.h"

static_assert(sizeof(struct marlin_offload) == sizeof(struct virtio_net_hdr));
static_assert(offsetof(struct marlin_offload, checksum_offset) ==
	      offsetof(struct virtio_net_hdr, csum_offset));

/* A longer frame is no question: it carries bulk data. */
#define XMIT_QUESTION_BYTES_MAX 2048
/* A peer that makes no room for so long is taken for stuck. */
#define XMIT_STUCK (5 * HZ)

static struct marlin_peer *xmit_find(struct marlin_dev *md, const u8 *address)
{
	u64 mac = ether_addr_to_u64(address);

	for (unsigned int i = 0; mac && i < md->peer_count; i++)
		if (READ_ONCE(md->peers[i].mac) == mac)
			return &md->peers[i];
	return NULL;
}

/*
 * The ring of a frame's flow: the same for both directions of the flow, and at both machines, so
 * that an answer comes to the poll that waits for it. The hash has no secret: a machine whose flows
 * share a ring slows itself alone.
 */
static struct marlin_out *xmit_ring_of(struct marlin_peer *peer, const struct sk_buff *skb)
{
	unsigned int rings = READ_ONCE(peer->out_rings);
	struct flow_keys keys;
	u32 hash;

	if (rings <= 1 || !skb_flow_dissect_flow_keys(skb, &keys, 0))
		return &peer->out[0];
	hash = jhash_3words((__force u32)(flow_get_u32_src(&keys) ^ flow_get_u32_dst(&keys)),
			    (__force u32)(keys.ports.src ^ keys.ports.dst), keys.basic.ip_proto, 0);
	return &peer->out[hash & (rings - 1)];
}

u16 marlin_xmit_queue(struct net_device *dev, struct sk_buff *skb, struct net_device *sb_dev)
{
	struct marlin_dev *md = netdev_priv(dev);
	const u8 *address = ((const struct ethhdr *)skb->data)->h_dest;
	struct marlin_peer *peer;

	peer = is_multicast_ether_addr(address) ? NULL : xmit_find(md, address);
	return peer ? marlin_out_queue(xmit_ring_of(peer, skb)) : marlin_multicast_queue(md);
}

static void xmit_count_drop(struct marlin_dev *md, enum marlin_drop why)
{
	atomic_long_inc(&md->drops[why]);
}

/* ---- room ---- */

/* Looks at the tail if the room known doesn't do. */
static bool xmit_has_room(struct marlin_out *out, u32 bytes)
{
	enum frames_fault fault;

	lockdep_assert_held(&out->lock);
	if (frames_out_fits(&out->frames, bytes))
		return true;
	fault = frames_out_learn(&out->frames);
	if (fault) {
		out->live = false;
		marlin_link_fault(out->peer, frames_fault_name(fault));
		return false;
	}
	return frames_out_fits(&out->frames, bytes);
}

/* Says to the peer that this end waits for room. */
static void xmit_doze(struct marlin_out *out)
{
	lockdep_assert_held(&out->lock);
	out->stats.sleeps++;
	ring_doze(bus_word(&out->peer->bus,
			   &marlin_peer_window(out->peer, out->number)->writer_sleeps));
	marlin_flush(out->peer);
}

/* Stops the ring's queue until there is room for any frame. */
static void xmit_wait(struct marlin_out *out, struct netdev_queue *queue)
{
	lockdep_assert_held(&out->lock);
	if (xmit_has_room(out, MARLIN_FRAME_BYTES_MAX) || !out->live)
		return;
	netif_tx_stop_queue(queue);
	out->waits = true;
	mod_timer(&out->stuck, jiffies + XMIT_STUCK);
	out->stats.stops++;
	xmit_doze(out);
	/* Room that came before the peer saw the flag. */
	if (xmit_has_room(out, MARLIN_FRAME_BYTES_MAX) || !out->live) {
		out->waits = false;
		netif_tx_start_queue(queue);
	}
}

/* The peer may have moved its tail. */
void marlin_xmit_wake(struct marlin_out *out)
{
	bool wake = false;

	if (!READ_ONCE(out->waits))
		return;
	spin_lock(&out->lock);
	if (out->live && out->waits) {
		if (xmit_has_room(out, MARLIN_FRAME_BYTES_MAX)) {
			wake = true;
		} else if (out->live) {
			/* The bell was for frames, or came for less room than that. */
			xmit_doze(out);
			wake = xmit_has_room(out, MARLIN_FRAME_BYTES_MAX);
		}
		if (wake)
			out->waits = false;
	}
	spin_unlock(&out->lock);
	if (wake)
		netif_tx_wake_queue(netdev_get_tx_queue(out->peer->md->dev, marlin_out_queue(out)));
}

/*
 * A ring's queue has been stopped for XMIT_STUCK. The frames in it are charged to sockets that send
 * to other peers, too. So the link starts again, and the frames are dropped. Not by the stack's
 * watchdog, which takes a pause of a peer for a fault of this machine and warns.
 */
void marlin_xmit_stuck(struct timer_list *timer)
{
	struct marlin_out *out = container_of(timer, struct marlin_out, stuck);

	spin_lock(&out->lock);
	if (out->live && out->waits) {
		out->live = false;
		marlin_link_fault(out->peer, frames_fault_name(FRAMES_FAULT_STUCK));
	}
	spin_unlock(&out->lock);
}

/* ---- frames ---- */

/* The frame of so many bytes and its offload are written. */
static void xmit_post(struct marlin_out *out, u32 bytes)
{
	lockdep_assert_held(&out->lock);
	if (bus_carries(&out->peer->bus)) {
		frames_out_close(&out->frames, bytes);
		wmb(); /* stores may be combined on the way to the window */
		frames_out_post(&out->frames, bytes);
	} else {
		out->frames.head += frames_record_bytes(bytes);
	}
	out->unrung = true;
	out->stats.packets++;
	out->stats.bytes += bytes;
	marlin_spin_sent(&out->peer->in[out->number].spin, bytes > XMIT_QUESTION_BYTES_MAX);
}

/* Copies a frame into the peer's memory, by the CPU. Caller holds out->lock; the frame fits. */
static void xmit_move(struct marlin_out *out, const struct sk_buff *skb,
		      const struct virtio_net_hdr *offload)
{
	struct frames_span span = frames_out_span(&out->frames, skb->len);

	memcpy(frames_out_offload(&out->frames), offload, sizeof(*offload));
	skb_copy_bits(skb, 0, span.at[0], span.bytes[0]);
	if (span.bytes[1])
		skb_copy_bits(skb, span.bytes[0], span.at[1], span.bytes[1]);
	xmit_post(out, skb->len);
}

/*
 * queue: the ring's own, which may be stopped, or NULL. NETDEV_TX_BUSY: the frame waits in it. The
 * caller frees the frame otherwise; *sent: it went, and was not dropped.
 */
static netdev_tx_t xmit_to(struct marlin_out *out, const struct sk_buff *skb,
			   struct netdev_queue *queue, bool *sent)
{
	enum marlin_drop drop = MARLIN_DROPS;
	struct virtio_net_hdr offload;
	netdev_tx_t result = NETDEV_TX_OK;

	spin_lock(&out->lock);
	if (!out->live) {
		drop = MARLIN_DROP_LINK;
	} else if (skb->len < MARLIN_FRAME_BYTES_MIN || skb->len > MARLIN_FRAME_BYTES_MAX ||
		   virtio_net_hdr_from_skb(skb, &offload, true, false, 0) ||
		   (READ_ONCE(out->peer->plain) && (offload.flags || offload.gso_type))) {
		drop = MARLIN_DROP_SIZE;
	} else if (xmit_has_room(out, skb->len)) {
		xmit_move(out, skb, &offload);
		if (queue)
			xmit_wait(out, queue);
	} else if (!out->live) {
		drop = MARLIN_DROP_LINK;
	} else if (queue) {
		xmit_wait(out, queue);
		result = NETDEV_TX_BUSY;
	} else {
		drop = MARLIN_DROP_FULL;
	}
	spin_unlock(&out->lock);
	*sent = drop == MARLIN_DROPS;
	if (!*sent)
		xmit_count_drop(out->peer->md, drop);
	return result;
}

/*
 * Rings a peer that sleeps, if frames were posted since the last bell. The ring's poll looks for
 * the answer, if that is worth it.
 */
static void xmit_ring(struct marlin_out *out)
{
	struct marlin_peer *peer = out->peer;
	u32 *sleeps;

	spin_lock(&out->lock);
	if (out->live && out->unrung) {
		sleeps = marlin_word(&marlin_own_window(peer, out->number)->reader_sleeps);
		mb(); /* pairs with recv_doze(), whose load pushes the frames if it comes later */
		if (ring_must_wake(sleeps)) {
			out->stats.bells++;
			marlin_ring_frames(peer, out->number);
		}
		out->unrung = false;
	}
	spin_unlock(&out->lock);
	if (marlin_spin_is_due(peer->md, &peer->in[out->number].spin))
		napi_schedule(&peer->md->queues[out->number].napi);
}

/* ---- frames of XDP programs ---- */

static struct marlin_out *xmit_flat_ring(struct marlin_peer *peer, unsigned int ring)
{
	return &peer->out[ring < READ_ONCE(peer->out_rings) ? ring : 0];
}

static bool xmit_flat_to(struct marlin_out *out, const void *frame, u32 bytes)
{
	enum marlin_drop drop = MARLIN_DROPS;

	spin_lock(&out->lock);
	if (!out->live || (!xmit_has_room(out, bytes) && !out->live)) {
		drop = MARLIN_DROP_LINK;
	} else if (!frames_out_fits(&out->frames, bytes)) {
		drop = MARLIN_DROP_FULL;
	} else {
		struct frames_span span = frames_out_span(&out->frames, bytes);

		memset(frames_out_offload(&out->frames), 0, sizeof(struct marlin_offload));
		memcpy(span.at[0], frame, span.bytes[0]);
		memcpy(span.at[1], frame + span.bytes[0], span.bytes[1]);
		xmit_post(out, bytes);
	}
	spin_unlock(&out->lock);
	if (drop != MARLIN_DROPS)
		xmit_count_drop(out->peer->md, drop);
	return drop == MARLIN_DROPS;
}

/*
 * A frame in one piece, to the peers that its address names, by that ring or the first one. They
 * learn of it by marlin_xmit_flush(). False: it went to none, counted. BH disabled.
 */
bool marlin_xmit_flat(struct marlin_dev *md, unsigned int ring, const void *frame, u32 bytes)
{
	const u8 *address = ((const struct ethhdr *)frame)->h_dest;
	struct marlin_peer *peer;
	bool any = false;

	if (bytes < MARLIN_FRAME_BYTES_MIN || bytes > MARLIN_FRAME_BYTES_MAX) {
		xmit_count_drop(md, MARLIN_DROP_SIZE);
		return false;
	}
	if (is_multicast_ether_addr(address)) {
		for (unsigned int i = 0; i < md->peer_count; i++)
			if (READ_ONCE(md->peers[i].mac))
				any |= xmit_flat_to(&md->peers[i].out[0], frame, bytes);
		return any;
	}
	peer = xmit_find(md, address);
	if (!peer) {
		xmit_count_drop(md, MARLIN_DROP_UNKNOWN);
		return false;
	}
	return xmit_flat_to(xmit_flat_ring(peer, ring), frame, bytes);
}

/* The peers learn of frames posted by marlin_xmit_flat(). BH disabled. */
void marlin_xmit_flush(struct marlin_dev *md, unsigned int ring)
{
	for (unsigned int i = 0; i < md->peer_count; i++) {
		struct marlin_peer *peer = &md->peers[i];
		struct marlin_out *out = xmit_flat_ring(peer, ring);

		if (READ_ONCE(peer->out[0].unrung))
			xmit_ring(&peer->out[0]);
		if (out != &peer->out[0] && READ_ONCE(out->unrung))
			xmit_ring(out);
	}
}

/* ---- frames of the stack ---- */

/* Frames to a peer that wants them plain get no offload: the stack cuts and checks them. */
netdev_features_t marlin_xmit_features(struct sk_buff *skb, struct net_device *dev,
				       netdev_features_t features)
{
	struct marlin_dev *md = netdev_priv(dev);
	const u8 *address = ((const struct ethhdr *)skb->data)->h_dest;
	bool multicast = is_multicast_ether_addr(address), plain = false;
	u64 mac = ether_addr_to_u64(address);

	for (unsigned int i = 0; i < md->peer_count; i++)
		plain |= READ_ONCE(md->peers[i].plain) &&
			 (multicast || READ_ONCE(md->peers[i].mac) == mac);
	if (plain)
		features &= ~(NETIF_F_CSUM_MASK | NETIF_F_GSO_MASK);
	return vlan_features_check(skb, features);
}

/* Multicast frames stay in order, so they all go by one ring. True: to one peer at least. */
static bool xmit_to_all(struct marlin_dev *md, const struct sk_buff *skb)
{
	bool any = false, sent;

	for (unsigned int i = 0; i < md->peer_count; i++) {
		if (!READ_ONCE(md->peers[i].mac))
			continue;
		xmit_to(&md->peers[i].out[0], skb, NULL, &sent);
		any |= sent;
		xmit_ring(&md->peers[i].out[0]);
	}
	return any;
}

netdev_tx_t marlin_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct marlin_dev *md = netdev_priv(dev);
	u16 number = skb_get_queue_mapping(skb);
	struct netdev_queue *queue = netdev_get_tx_queue(dev, number);
	const u8 *address = ((const struct ethhdr *)skb->data)->h_dest;
	struct marlin_out *own = NULL;
	netdev_tx_t result = NETDEV_TX_OK;
	bool more = netdev_xmit_more(), sent = true;
	struct marlin_peer *peer;

	if (number < marlin_multicast_queue(md))
		own = &md->peers[number / md->rings_max].out[number % md->rings_max];
	if (is_multicast_ether_addr(address)) {
		sent = xmit_to_all(md, skb);
	} else {
		peer = xmit_find(md, address);
		if (!peer) {
			xmit_count_drop(md, MARLIN_DROP_UNKNOWN);
			sent = false;
		} else if (own && own->peer == peer && own->number < READ_ONCE(peer->out_rings)) {
			result = xmit_to(own, skb, queue, &sent);
		} else {
			/* Address and rings were others when the queue was chosen. */
			xmit_to(&peer->out[0], skb, NULL, &sent);
			xmit_ring(&peer->out[0]);
		}
	}
	if (own && (!more || netif_xmit_stopped(queue)))
		xmit_ring(own);
	if (result == NETDEV_TX_OK && sent)
		dev_consume_skb_any(skb);
	else if (result == NETDEV_TX_OK)
		dev_kfree_skb_any(skb);
	return result;
}
