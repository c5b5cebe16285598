// SPDX-License-Identifier: GPL-2.0
/*
 * Frames from peers: a NAPI poll over all rings, a few frames of each in turn.
 *
 *   doorbell -> marlin_recv_poll -> recv_peer: recv_frame copies -> GRO
 *                 | all rings are empty
 *                 v
 *               recv_doze: flags "I sleep" in the peers' memory, then a second look
 *
 * The peers may write while we read. A frame's word is read once; its offload and its bytes are
 * copied before anything looks at them.
 */
#include <linux/etherdevice.h>
#include <linux/virtio_net.h>

#include "marlin/marlin.h"

/* Frames of a peer before the next peer has its turn. */
#define RECV_TURN 8
/* A frame of at most so many bytes gets memory of its size: a socket is charged for little else. */
#define RECV_LINEAR_BYTES 2048
/* Of a longer frame so much is linear, with room for headers; the rest is whole pages. */
#define RECV_HEAD_BYTES 256

static struct sk_buff *recv_alloc(struct marlin_dev *md, u32 bytes)
{
	const u32 headroom = NET_SKB_PAD + NET_IP_ALIGN;
	struct sk_buff *skb;
	int err;

	if (bytes <= RECV_LINEAR_BYTES) {
		skb = napi_alloc_skb(&md->napi, bytes);
		if (skb)
			skb_put(skb, bytes);
		return skb;
	}
	skb = alloc_skb_with_frags(headroom + RECV_HEAD_BYTES, bytes - RECV_HEAD_BYTES,
				   PAGE_ALLOC_COSTLY_ORDER, &err, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	skb_reserve(skb, headroom);
	skb_put(skb, RECV_HEAD_BYTES);
	skb->data_len = bytes - RECV_HEAD_BYTES;
	skb->len = bytes;
	return skb;
}

/* Other kinds of GSO, or tiny segments, would make thousands of packets of a frame. */
static bool recv_offload_is_valid(const struct virtio_net_hdr *offload)
{
	switch (offload->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_NONE:
		return true;
	case VIRTIO_NET_HDR_GSO_TCPV4:
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return le16_to_cpu((__force __le16)offload->gso_size) >= MARLIN_GSO_BYTES_MIN;
	}
	return false;
}

/* A copy of the next frame, or NULL. Caller holds in_lock. */
static struct sk_buff *recv_frame(struct marlin_peer *peer, u32 bytes)
{
	struct marlin_dev *md = peer->md;
	struct frames_span span = frames_in_span(&peer->in, bytes);
	struct virtio_net_hdr offload;
	struct sk_buff *skb;

	memcpy(&offload, frames_in_offload(&peer->in), sizeof(offload));
	barrier(); /* the copy is what is checked */
	skb = recv_alloc(md, bytes);
	if (!skb) {
		peer->in_stats.drop_memory++;
		return NULL;
	}
	skb_store_bits(skb, 0, span.at[0], span.bytes[0]);
	if (span.bytes[1])
		skb_store_bits(skb, span.bytes[0], span.at[1], span.bytes[1]);
	if (!recv_offload_is_valid(&offload) || virtio_net_hdr_to_skb(skb, &offload, true)) {
		peer->in_stats.drop_offload++;
		kfree_skb(skb);
		return NULL;
	}
	skb->protocol = eth_type_trans(skb, md->dev);
	peer->in_stats.packets++;
	peer->in_stats.bytes += bytes;
	return skb;
}

/* Tells the peer of the room there is, and rings if the peer waits for it. Caller holds in_lock. */
static void recv_tell(struct marlin_peer *peer, bool now)
{
	if (!frames_in_tell(&peer->in, now))
		return;
	peer->in_stats.tells++;
	marlin_flush(peer);
	if (ring_must_wake(marlin_word(&marlin_own_window(peer)->writer_sleeps))) {
		peer->in_stats.bells++;
		marlin_ring(peer);
	}
}

/* Up to so many frames of one peer; returns how many records it took. */
static int recv_peer(struct marlin_peer *peer, int frames_max)
{
	enum frames_fault fault;
	struct sk_buff_head got;
	struct sk_buff *skb;
	int taken = 0;

	__skb_queue_head_init(&got);
	spin_lock(&peer->in_lock);
	while (peer->in_live && taken < frames_max) {
		u32 bytes = frames_in_record(&peer->in, &fault);

		if (fault) {
			peer->in_live = false;
			marlin_link_fault(peer, frames_fault_name(fault));
		}
		if (!bytes)
			break;
		skb = recv_frame(peer, bytes);
		if (skb)
			__skb_queue_tail(&got, skb);
		frames_in_take(&peer->in, bytes);
		recv_tell(peer, false);
		taken++;
	}
	spin_unlock(&peer->in_lock);
	while ((skb = __skb_dequeue(&got)))
		napi_gro_receive(&peer->md->napi, skb);
	return taken;
}

/* Says to the peer that this end sleeps; true: there is a record after all. */
static bool recv_doze(struct marlin_peer *peer)
{
	bool has_record = false;

	spin_lock(&peer->in_lock);
	if (peer->in_live) {
		recv_tell(peer, true);
		ring_doze(marlin_word(&marlin_peer_window(peer)->reader_sleeps));
		marlin_flush(peer);
		has_record = frames_in_has_record(&peer->in);
	}
	spin_unlock(&peer->in_lock);
	return has_record;
}

/* Rounds over all peers, until the budget is used or every ring was empty. */
static int recv_rounds(struct marlin_dev *md, int budget)
{
	unsigned int empty = 0;
	int done = 0;

	while (done < budget && empty < md->peer_count) {
		struct marlin_peer *peer = &md->peers[md->turn];
		int taken = recv_peer(peer, min(budget - done, RECV_TURN));

		md->turn = (md->turn + 1) % md->peer_count;
		empty = taken ? 0 : empty + 1;
		done += taken;
	}
	return done;
}

int marlin_recv_poll(struct napi_struct *napi, int budget)
{
	struct marlin_dev *md = container_of(napi, struct marlin_dev, napi);
	bool again = false;
	int done;

	for (unsigned int i = 0; i < md->peer_count; i++)
		marlin_xmit_wake(&md->peers[i]);
	done = recv_rounds(md, budget);
	if (done >= budget || !napi_complete_done(napi, done))
		return done;
	for (unsigned int i = 0; i < md->peer_count; i++)
		again |= recv_doze(&md->peers[i]);
	if (again)
		napi_schedule(napi);
	return done;
}
