// SPDX-License-Identifier: GPL-2.0
/*
 * Frames from peers: a NAPI poll for ring k of each peer, a few frames of each in turn.
 *
 *   doorbell -> marlin_recv_poll -> recv_ring: recv_frame copies -> GRO
 *                 | all rings are empty
 *                 v
 *               recv_doze: flags "I sleep" in the peers' memory, then a second look
 *
 * The peers may write while we read. A frame's word is read once; its offload and its bytes are
 * copied before anything looks at them.
 */
#include <linux/etherdevice.h>
#include <linux/virtio_net.h>

#include "compat/compat.h"
#include "marlin/marlin.h"

/* A frame of at most so many bytes gets memory of its size: a socket is charged for little else. */
#define RECV_LINEAR_BYTES 2048
/* Of a longer frame so much is linear, with room for headers. */
#define RECV_HEAD_BYTES 256
/*
 * The rest is in pages that the queue's pool takes back when the reader has copied them: a kernel
 * that zeroes what it allocates would write each frame's memory twice. So many wait in a pool.
 */
#define RECV_POOL_ORDER PAGE_ALLOC_COSTLY_ORDER
#define RECV_POOL_BYTES ((u32)PAGE_SIZE << RECV_POOL_ORDER)
#define RECV_POOL_PAGES 64

/* Memory for up to so many bytes more. Returns how many; 0: there is none. */
static u32 recv_add_page(struct marlin_queue *queue, struct sk_buff *skb, u32 bytes)
{
	u32 part = min(bytes, RECV_POOL_BYTES), size = RECV_POOL_BYTES;
	unsigned int offset = 0;
	struct page *page;

	/*
	 * A small part is charged by its size, so it must not keep a page that a large one shares;
	 * a large one is charged the whole page.
	 */
	if (part > RECV_POOL_BYTES / 2) {
		page = compat_page_pool_whole(queue->pool);
	} else {
		size = ALIGN(part, SMP_CACHE_BYTES);
		page = page_pool_dev_alloc_frag(queue->pool, &offset, size);
	}
	if (!page) {
		page = dev_alloc_page();
		if (!page)
			return 0;
		part = min_t(u32, part, PAGE_SIZE);
		size = PAGE_SIZE;
		offset = 0;
	}
	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, offset, part, size);
	return part;
}

static struct sk_buff *recv_alloc(struct marlin_queue *queue, u32 bytes)
{
	const u32 head_bytes = bytes <= RECV_LINEAR_BYTES ? bytes : RECV_HEAD_BYTES;
	struct sk_buff *skb = napi_alloc_skb(&queue->napi, head_bytes);
	u32 part;

	if (!skb)
		return NULL;
	skb_put(skb, head_bytes);
	skb_mark_for_recycle(skb);
	for (bytes -= head_bytes; bytes; bytes -= part) {
		part = recv_add_page(queue, skb, bytes);
		if (!part) {
			kfree_skb(skb);
			return NULL;
		}
	}
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

/* A copy of the next frame, or NULL. */
static struct sk_buff *recv_frame(struct marlin_queue *queue, struct marlin_in *in, u32 bytes)
{
	struct frames_span span = frames_in_span(&in->frames, bytes);
	struct virtio_net_hdr offload;
	struct sk_buff *skb;

	lockdep_assert_held(&in->lock);
	memcpy(&offload, frames_in_offload(&in->frames), sizeof(offload));
	barrier(); /* the copy is what is checked */
	skb = recv_alloc(queue, bytes);
	if (!skb) {
		in->stats.drop_memory++;
		return NULL;
	}
	skb_store_bits(skb, 0, span.at[0], span.bytes[0]);
	if (span.bytes[1])
		skb_store_bits(skb, span.bytes[0], span.at[1], span.bytes[1]);
	if (!recv_offload_is_valid(&offload) || virtio_net_hdr_to_skb(skb, &offload, true)) {
		in->stats.drop_offload++;
		kfree_skb(skb);
		return NULL;
	}
	skb_record_rx_queue(skb, queue->number);
	skb->protocol = eth_type_trans(skb, queue->md->dev);
	in->stats.packets++;
	in->stats.bytes += bytes;
	return skb;
}

/* Tells the peer of the room, and rings if the peer waits for it. */
static void recv_tell(struct marlin_in *in, bool now)
{
	struct marlin_peer *peer = in->peer;

	lockdep_assert_held(&in->lock);
	in->frames.tail = bus_word(&peer->bus, &marlin_peer_window(peer, in->number)->tail);
	if (!frames_in_tell(&in->frames, now))
		return;
	in->stats.tells++;
	mb(); /* pairs with xmit_doze(), whose load pushes the tail if it comes later */
	if (ring_must_wake(marlin_word(&marlin_own_window(peer, in->number)->writer_sleeps))) {
		in->stats.bells++;
		marlin_ring_frames(peer, in->number);
	}
}

/* Up to so many frames of one peer; returns how many records it took. */
static int recv_ring(struct marlin_queue *queue, struct marlin_in *in, int frames_max)
{
	struct bpf_prog *program = rcu_dereference_bh(queue->md->xdp);
	enum frames_fault fault;
	struct sk_buff_head got;
	struct sk_buff *skb;
	int taken = 0;

	__skb_queue_head_init(&got);
	spin_lock(&in->lock);
	while (in->live && taken < frames_max) {
		u32 bytes = frames_in_record(&in->frames, &fault);

		if (fault) {
			in->live = false;
			marlin_link_fault(in->peer, frames_fault_name(fault));
		}
		if (!bytes)
			break;
		if (program)
			marlin_xdp_copy(queue, in, bytes);
		skb = program ? NULL : recv_frame(queue, in, bytes);
		if (skb)
			__skb_queue_tail(&got, skb);
		frames_in_take(&in->frames, bytes);
		marlin_spin_got(queue->md, &in->spin);
		recv_tell(in, false);
		taken++;
	}
	spin_unlock(&in->lock);
	if (program)
		marlin_xdp_run(queue, in, program);
	while ((skb = __skb_dequeue(&got)))
		napi_gro_receive(&queue->napi, skb);
	return taken;
}

bool marlin_recv_has_frame(struct marlin_in *in)
{
	bool has_frame;

	spin_lock(&in->lock);
	has_frame = in->live && frames_in_has_record(&in->frames);
	spin_unlock(&in->lock);
	return has_frame;
}

/* "I sleep", in the peer's memory. */
static u32 *recv_flag(struct marlin_in *in)
{
	return bus_word(&in->peer->bus, &marlin_peer_window(in->peer, in->number)->reader_sleeps);
}

/* Says to the peer that this end is awake: a bell too many is all that a late word costs. */
void marlin_recv_rise(struct marlin_in *in)
{
	spin_lock(&in->lock);
	if (in->live)
		ring_rise(recv_flag(in));
	spin_unlock(&in->lock);
}

/* Says to the peer that this end sleeps; true: there is a record after all. */
static bool recv_doze(struct marlin_in *in)
{
	bool has_record = false;

	spin_lock(&in->lock);
	if (in->live) {
		recv_tell(in, true);
		in->stats.sleeps++;
		ring_doze(recv_flag(in));
		marlin_flush(in->peer);
		has_record = frames_in_has_record(&in->frames);
	}
	spin_unlock(&in->lock);
	return has_record;
}

/* Rounds over all peers, until the budget is used or every ring was empty. */
static int recv_rounds(struct marlin_queue *queue, int budget)
{
	struct marlin_dev *md = queue->md;
	unsigned int empty = 0;
	int done = 0;

	while (done < budget && empty < md->peer_count) {
		struct marlin_in *in = &md->peers[queue->turn].in[queue->number];
		int taken = recv_ring(queue, in, min(budget - done, MARLIN_RECV_TURN));

		queue->turn = (queue->turn + 1) % md->peer_count;
		empty = taken ? 0 : empty + 1;
		done += taken;
	}
	return done;
}

int marlin_recv_poll(struct napi_struct *napi, int budget)
{
	struct marlin_queue *queue = container_of(napi, struct marlin_queue, napi);
	struct marlin_dev *md = queue->md;
	bool again = false;
	int done;

	for (unsigned int i = 0; i < md->peer_count; i++)
		marlin_xmit_wake(&md->peers[i].out[queue->number]);
	done = recv_rounds(queue, budget);
	/* Frames go up when the poll ends, so only a poll that received none may wait. */
	if (!done && marlin_spin(queue))
		done = recv_rounds(queue, budget);
	marlin_xdp_flush(queue);
	if (done >= budget || !napi_complete_done(napi, done))
		return done;
	marlin_bells_rise(md, marlin_bell_frames(md, queue->number));
	for (unsigned int i = 0; i < md->peer_count; i++)
		again |= recv_doze(&md->peers[i].in[queue->number]);
	if (again)
		napi_schedule(napi);
	return done;
}

int marlin_recv_init(struct marlin_dev *md)
{
	for (unsigned int k = 0; k < md->rings_max; k++) {
		struct page_pool_params params = {
			.flags = COMPAT_PAGE_POOL_FRAGS,
			.order = RECV_POOL_ORDER,
			.pool_size = RECV_POOL_PAGES,
			.nid = NUMA_NO_NODE,
		};
		struct page_pool *pool;

		compat_page_pool_napi(&params, &md->queues[k].napi);
		pool = page_pool_create(&params);
		if (IS_ERR(pool)) {
			marlin_recv_free(md);
			return PTR_ERR(pool);
		}
		md->queues[k].pool = pool;
	}
	return 0;
}

/* Pages that sockets still hold are freed when these have read them. */
void marlin_recv_free(struct marlin_dev *md)
{
	for (unsigned int k = 0; k < md->rings_max; k++)
		page_pool_destroy(md->queues[k].pool);
}
