// SPDX-License-Identifier: GPL-2.0
/*
 * XDP: a program sees each received frame before a packet is made of it.
 *
 *   recv_ring -> marlin_xdp_copy: the frame into a page, behind headroom      under in->lock
 *     '-------> marlin_xdp_run, behind the lock
 *                 PASS       a packet around the page -> GRO
 *                 TX         marlin_xmit_flat: to the peer with the frame's new address
 *                 REDIRECT   xdp_do_redirect; by marlin_xdp_xmit into this interface
 *                 otherwise  dropped, counted
 *   the end of the poll -> marlin_xdp_flush
 *
 * A program may write to a frame, so it gets a copy that no peer can reach. A frame takes one page,
 * which bounds the MTU. A program can't see what an offload leaves undone, so peers send plain
 * frames to a machine with a program (MARLIN_PLAIN): when the first one comes or the last one goes,
 * the links start again.
 */
#include <linux/bpf.h>
#include <linux/bpf_trace.h>
#include <linux/filter.h>
#include <linux/if_vlan.h>
#include <linux/rtnetlink.h>
#include <net/xdp.h>

#include "compat/compat.h"
#include "marlin/marlin.h"

#define XDP_FRAME_BYTES_MAX SKB_WITH_OVERHEAD(PAGE_SIZE - XDP_PACKET_HEADROOM)
#define XDP_MTU_MAX ((unsigned int)(XDP_FRAME_BYTES_MAX - VLAN_ETH_HLEN))

/* ---- received frames: of the poll ---- */

/* Copies the next frame. Caller holds in->lock, and calls this for a turn's frames at most. */
void marlin_xdp_copy(struct marlin_queue *queue, struct marlin_in *in, u32 bytes)
{
	struct frames_span span = frames_in_span(&in->frames, bytes);
	struct marlin_offload offload;
	struct page *page;
	u8 *to;

	memcpy(&offload, frames_in_offload(&in->frames), sizeof(offload));
	barrier(); /* the copy is what is checked */
	if (bytes > XDP_FRAME_BYTES_MAX || offload.flags || offload.gso_type) {
		in->stats.drop_offload++;
		return;
	}
	page = dev_alloc_page();
	if (!page) {
		in->stats.drop_memory++;
		return;
	}
	to = page_address(page);
	memcpy(to + XDP_PACKET_HEADROOM, span.at[0], span.bytes[0]);
	memcpy(to + XDP_PACKET_HEADROOM + span.bytes[0], span.at[1], span.bytes[1]);
	xdp_init_buff(&queue->xdp[queue->xdp_count], PAGE_SIZE, &queue->xdp_rxq);
	xdp_prepare_buff(&queue->xdp[queue->xdp_count++], to, XDP_PACKET_HEADROOM, bytes, true);
	in->stats.packets++;
	in->stats.bytes += bytes;
}

static void xdp_pass(struct marlin_queue *queue, struct marlin_in *in, struct xdp_buff *xdp)
{
	u32 meta_bytes = xdp->data - xdp->data_meta;
	struct sk_buff *skb = napi_build_skb(xdp->data_hard_start, PAGE_SIZE);

	if (!skb) {
		in->stats.drop_memory++;
		free_page((unsigned long)xdp->data_hard_start);
		return;
	}
	skb_reserve(skb, xdp->data - xdp->data_hard_start);
	skb_put(skb, xdp->data_end - xdp->data);
	if (meta_bytes)
		skb_metadata_set(skb, meta_bytes);
	skb_record_rx_queue(skb, queue->number);
	skb->protocol = eth_type_trans(skb, queue->md->dev);
	napi_gro_receive(&queue->napi, skb);
}

/* False: the frame is dropped, and its page still here. */
static bool xdp_act(struct marlin_queue *queue, struct marlin_in *in, struct bpf_prog *program,
		    struct xdp_buff *xdp)
{
	struct marlin_dev *md = queue->md;
	u32 act = bpf_prog_run_xdp(program, xdp);

	switch (act) {
	case XDP_PASS:
		xdp_pass(queue, in, xdp);
		return true;
	case XDP_TX:
		if (!marlin_xmit_flat(md, queue->number, xdp->data, xdp->data_end - xdp->data))
			break;
		in->stats.xdp_tx++;
		free_page((unsigned long)xdp->data_hard_start);
		return true;
	case XDP_REDIRECT:
		if (xdp_do_redirect(md->dev, xdp, program))
			break;
		in->stats.xdp_redirect++;
		return true;
	case XDP_DROP:
		return false;
	default:
		bpf_warn_invalid_xdp_action(md->dev, program, act);
		fallthrough;
	case XDP_ABORTED:
		break;
	}
	trace_xdp_exception(md->dev, program, act);
	return false;
}

/* Runs the program on the frames that were copied. BH disabled. */
void marlin_xdp_run(struct marlin_queue *queue, struct marlin_in *in, struct bpf_prog *program)
{
	for (unsigned int i = 0; i < queue->xdp_count; i++) {
		if (xdp_act(queue, in, program, &queue->xdp[i]))
			continue;
		in->stats.drop_xdp++;
		free_page((unsigned long)queue->xdp[i].data_hard_start);
	}
	queue->xdp_ran |= queue->xdp_count;
	queue->xdp_count = 0;
}

/* Frames that programs sent in this poll leave. */
void marlin_xdp_flush(struct marlin_queue *queue)
{
	if (!queue->xdp_ran)
		return;
	queue->xdp_ran = false;
	xdp_do_flush();
	marlin_xmit_flush(queue->md, queue->number);
}

/* ---- the interface ---- */

/* Frames that other interfaces' programs redirect here. */
int marlin_xdp_xmit(struct net_device *dev, int count, struct xdp_frame **frames, u32 flags)
{
	struct marlin_dev *md = netdev_priv(dev);
	unsigned int number = smp_processor_id() % md->rings_max;
	int sent = 0;

	if (flags & ~XDP_XMIT_FLAGS_MASK)
		return -EINVAL;
	while (sent < count && marlin_xmit_flat(md, number, frames[sent]->data, frames[sent]->len))
		xdp_return_frame_rx_napi(frames[sent++]);
	/* The callers flush at the end of their polls: a bell that is not needed costs more. */
	if (flags & XDP_XMIT_FLUSH)
		marlin_xmit_flush(md, number);
	return sent;
}

static int xdp_attach(struct marlin_dev *md, struct bpf_prog *program,
		      struct netlink_ext_ack *extack)
{
	struct bpf_prog *old = rtnl_dereference(md->xdp);
	bool up = false;

	if (program && md->dev->mtu > XDP_MTU_MAX) {
		NL_SET_ERR_MSG_FMT_MOD(extack, "XDP frames take one page: an MTU of %u at most",
				       XDP_MTU_MAX);
		return -EINVAL;
	}
	if (!program != !old)
		up = marlin_netdev_pause(md);
	rcu_assign_pointer(md->xdp, program);
	if (up)
		marlin_netdev_resume(md);
	if (old)
		bpf_prog_put(old);
	return 0;
}

int marlin_xdp(struct net_device *dev, struct netdev_bpf *command)
{
	if (command->command != XDP_SETUP_PROG)
		return -EINVAL;
	return xdp_attach(netdev_priv(dev), command->prog, command->extack);
}

int marlin_xdp_change_mtu(struct net_device *dev, int mtu)
{
	struct marlin_dev *md = netdev_priv(dev);

	if (rtnl_dereference(md->xdp) && mtu > XDP_MTU_MAX) {
		netdev_err(dev, "with an XDP program the MTU is %u at most\n", XDP_MTU_MAX);
		return -EINVAL;
	}
	WRITE_ONCE(dev->mtu, mtu);
	return 0;
}

int marlin_xdp_init(struct marlin_dev *md)
{
	int err = 0;

	compat_xdp_features(md->dev);
	for (unsigned int k = 0; k < md->rings_max && !err; k++) {
		struct marlin_queue *queue = &md->queues[k];

		err = xdp_rxq_info_reg(&queue->xdp_rxq, md->dev, k, queue->napi.napi_id);
		if (!err)
			err = xdp_rxq_info_reg_mem_model(&queue->xdp_rxq, MEM_TYPE_PAGE_ORDER0,
							 NULL);
	}
	if (err)
		marlin_xdp_free(md);
	return err;
}

void marlin_xdp_free(struct marlin_dev *md)
{
	for (unsigned int k = 0; k < md->rings_max; k++)
		if (xdp_rxq_info_is_reg(&md->queues[k].xdp_rxq))
			xdp_rxq_info_unreg(&md->queues[k].xdp_rxq);
}
