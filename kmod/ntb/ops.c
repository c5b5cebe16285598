// SPDX-License-Identifier: GPL-2.0
/*
 * The NTB API on the registers of include/remora/ntb.h.
 *
 * A doorbell that is rung rings at all peers with a link, for ntb_peer_db_set() has no peer. Each
 * has the mask to tell which bits concern it.
 */
#include "ivshmem.h"

/* ---- ports and links ---- */

static int ops_port_number(struct ntb_dev *ntb)
{
	return to_ivshmem(ntb)->port;
}

static int ops_peer_port_count(struct ntb_dev *ntb)
{
	return to_ivshmem(ntb)->peer_count;
}

static int ops_peer_port_number(struct ntb_dev *ntb, int pidx)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	return ivshmem_is_peer(nt, pidx) ? (int)nt->peers[pidx].port : -EINVAL;
}

static int ops_peer_port_idx(struct ntb_dev *ntb, int port)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	unsigned int i;

	for (i = 0; i < nt->peer_count; i++)
		if (port >= 0 && nt->peers[i].port == (unsigned int)port)
			return i;
	return -EINVAL;
}

/* Memory has neither lanes nor a generation. */
static u64 ops_link_is_up(struct ntb_dev *ntb, enum ntb_speed *speed, enum ntb_width *width)
{
	u64 linked = READ_ONCE(to_ivshmem(ntb)->linked);

	if (speed)
		*speed = linked ? NTB_SPEED_AUTO : NTB_SPEED_NONE;
	if (width)
		*width = linked ? NTB_WIDTH_AUTO : NTB_WIDTH_NONE;
	return linked;
}

static int ops_link_enable(struct ntb_dev *ntb, enum ntb_speed speed, enum ntb_width width)
{
	ivshmem_link_set(to_ivshmem(ntb), true);
	return 0;
}

static int ops_link_disable(struct ntb_dev *ntb)
{
	ivshmem_link_set(to_ivshmem(ntb), false);
	return 0;
}

/* ---- windows ---- */

static int ops_mw_count(struct ntb_dev *ntb, int pidx)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	return ivshmem_is_peer(nt, pidx) ? ivshmem_window_count(nt) : 0;
}

static int ops_mw_get_align(struct ntb_dev *ntb, int pidx, int widx, resource_size_t *addr_align,
			    resource_size_t *size_align, resource_size_t *size_max)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	bool ram = ivshmem_window_is_ram(nt, widx);
	int err = ivshmem_window_limits(nt, pidx, widx);

	if (err)
		return err;
	/* The whole RAM is aligned to its size, so address 0 is the only one there is. */
	if (addr_align)
		*addr_align = ram ? nt->ram_bytes : PAGE_SIZE;
	if (size_align)
		*size_align = ram ? nt->ram_bytes : 1;
	if (size_max)
		*size_max = ram ? nt->ram_bytes : nt->window_bytes;
	return 0;
}

static int ops_mw_set_trans(struct ntb_dev *ntb, int pidx, int widx, dma_addr_t addr,
			    resource_size_t size)
{
	return ivshmem_window_set(to_ivshmem(ntb), pidx, widx, addr, size);
}

static int ops_peer_mw_count(struct ntb_dev *ntb)
{
	return ivshmem_window_count(to_ivshmem(ntb));
}

static int ops_peer_mw_get_addr(struct ntb_dev *ntb, int widx, phys_addr_t *base,
				resource_size_t *size)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	struct ivshmem_peer *peer = ivshmem_window_out(nt, widx);
	bool ram = ivshmem_window_is_ram(nt, widx);

	if (!peer)
		return -EINVAL;
	if (base)
		*base = ram ? peer->ram_base : peer->out_base;
	if (size)
		*size = ram ? peer->ram_bytes : peer->out_bytes;
	return 0;
}

/* Accepts the translation that the window has, and that it is cleared (size 0). */
static int ops_peer_mw_set_trans(struct ntb_dev *ntb, int pidx, int widx, u64 addr,
				 resource_size_t size)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	struct ivshmem_peer *peer = ivshmem_window_out(nt, widx);

	if (!peer || !ivshmem_is_peer(nt, pidx) || peer != &nt->peers[pidx])
		return -EINVAL;
	if (ivshmem_window_is_ram(nt, widx))
		return size && (addr || size != peer->ram_bytes) ? -EINVAL : 0;
	if (size && (addr != peer->out_translation || size > peer->out_bytes))
		return -EINVAL;
	return 0;
}

/* ---- doorbells ---- */

static u64 ops_db_valid_mask(struct ntb_dev *ntb)
{
	return IVSHMEM_DOORBELLS_ALL;
}

static int ops_db_vector_count(struct ntb_dev *ntb)
{
	return NTB_DOORBELLS;
}

static u64 ops_db_vector_mask(struct ntb_dev *ntb, int vector)
{
	return vector < 0 || vector >= NTB_DOORBELLS ? 0 : BIT_ULL(vector);
}

static u64 ops_db_read(struct ntb_dev *ntb)
{
	return READ_ONCE(to_ivshmem(ntb)->doorbells);
}

static int ops_db_clear(struct ntb_dev *ntb, u64 bits)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	unsigned long flags;

	spin_lock_irqsave(&nt->lock, flags);
	nt->doorbells &= ~bits;
	spin_unlock_irqrestore(&nt->lock, flags);
	return 0;
}

static u64 ops_db_read_mask(struct ntb_dev *ntb)
{
	return READ_ONCE(to_ivshmem(ntb)->doorbell_mask);
}

/* Changes a mask of `valid` bits. */
static int ops_mask_change(struct ivshmem_ntb *nt, u64 *mask, u64 valid, u64 set, u64 clear)
{
	unsigned long flags;

	if ((set | clear) & ~valid)
		return -EINVAL;
	spin_lock_irqsave(&nt->lock, flags);
	*mask = (*mask | set) & ~clear;
	spin_unlock_irqrestore(&nt->lock, flags);
	return 0;
}

static int ops_db_set_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	return ops_mask_change(nt, &nt->doorbell_mask, IVSHMEM_DOORBELLS_ALL, bits, 0);
}

static int ops_db_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	int err = ops_mask_change(nt, &nt->doorbell_mask, IVSHMEM_DOORBELLS_ALL, 0, bits);

	if (err)
		return err;
	ivshmem_doorbells_rise(nt, bits);
	/* A client unmasks after each poll, so the work is spared if nothing was rung meanwhile. */
	if (READ_ONCE(nt->doorbells) & bits)
		irq_work_queue(&nt->events);
	return 0;
}

static int ops_peer_db_set(struct ntb_dev *ntb, u64 bits)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	u64 linked, rest;

	if (bits & ~IVSHMEM_DOORBELLS_ALL)
		return -EINVAL;
	for (linked = READ_ONCE(nt->linked); linked; linked &= linked - 1)
		for (rest = bits; rest; rest &= rest - 1)
			ivshmem_ring(nt, &nt->peers[__ffs64(linked)], __ffs64(rest));
	return 0;
}

/* ---- scratchpads ---- */

static bool ops_is_scratchpad(int sidx)
{
	return sidx >= 0 && sidx < NTB_SCRATCHPADS;
}

static int ops_spad_count(struct ntb_dev *ntb)
{
	return NTB_SCRATCHPADS;
}

static u32 ops_spad_read(struct ntb_dev *ntb, int sidx)
{
	return ops_is_scratchpad(sidx) ?
		       ivshmem_read32(&to_ivshmem(ntb)->own->scratchpad[sidx]) : 0;
}

static int ops_spad_write(struct ntb_dev *ntb, int sidx, u32 value)
{
	if (!ops_is_scratchpad(sidx))
		return -EINVAL;
	WRITE_ONCE(to_ivshmem(ntb)->own->scratchpad[sidx], cpu_to_le32(value));
	return 0;
}

static __le32 *ops_peer_scratchpad(struct ntb_dev *ntb, int pidx, int sidx)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	if (!ivshmem_is_peer(nt, pidx) || !ops_is_scratchpad(sidx))
		return NULL;
	return &nt->peers[pidx].page->scratchpad[sidx];
}

static u32 ops_peer_spad_read(struct ntb_dev *ntb, int pidx, int sidx)
{
	__le32 *word = ops_peer_scratchpad(ntb, pidx, sidx);

	return word ? ivshmem_read32(word) : 0;
}

static int ops_peer_spad_write(struct ntb_dev *ntb, int pidx, int sidx, u32 value)
{
	__le32 *word = ops_peer_scratchpad(ntb, pidx, sidx);

	if (!word)
		return -EINVAL;
	WRITE_ONCE(*word, cpu_to_le32(value));
	return 0;
}

static int ops_peer_spad_addr(struct ntb_dev *ntb, int pidx, int sidx, phys_addr_t *addr)
{
	__le32 *word = ops_peer_scratchpad(ntb, pidx, sidx);

	if (!word)
		return -EINVAL;
	*addr = pci_resource_start(ntb->pdev, 2) +
		((void *)word - (void *)to_ivshmem(ntb)->switch_page);
	return 0;
}

/* ---- messages ---- */

static bool ops_is_message(int midx)
{
	return midx >= 0 && midx < NTB_MESSAGES;
}

static int ops_msg_count(struct ntb_dev *ntb)
{
	return NTB_MESSAGES;
}

static u64 ops_msg_inbits(struct ntb_dev *ntb)
{
	return IVSHMEM_MESSAGES_IN;
}

static u64 ops_msg_outbits(struct ntb_dev *ntb)
{
	return IVSHMEM_MESSAGES_OUT;
}

static u64 ops_msg_read_sts(struct ntb_dev *ntb)
{
	return ivshmem_message_status(to_ivshmem(ntb));
}

/* Bits of no register are ignored: ntb_pingpong clears all 64. */
static int ops_msg_clear_sts(struct ntb_dev *ntb, u64 bits)
{
	ivshmem_message_clear(to_ivshmem(ntb), bits);
	return 0;
}

static int ops_msg_set_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	return ops_mask_change(nt, &nt->message_mask, IVSHMEM_MESSAGES_IN | IVSHMEM_MESSAGES_OUT,
			       bits, 0);
}

static int ops_msg_clear_mask(struct ntb_dev *ntb, u64 bits)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	int err = ops_mask_change(nt, &nt->message_mask,
				  IVSHMEM_MESSAGES_IN | IVSHMEM_MESSAGES_OUT, 0, bits);

	/* Events that become due come by irq_work. */
	if (!err && bits)
		irq_work_queue(&nt->events);
	return err;
}

static u32 ops_msg_read(struct ntb_dev *ntb, int *pidx, int midx)
{
	int sender;

	return ops_is_message(midx) ?
		ivshmem_message_read(to_ivshmem(ntb), pidx ? pidx : &sender, midx) : 0;
}

static int ops_peer_msg_write(struct ntb_dev *ntb, int pidx, int midx, u32 value)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);

	if (!ivshmem_is_peer(nt, pidx) || !ops_is_message(midx))
		return -EINVAL;
	if (!(READ_ONCE(nt->linked) & BIT_ULL(pidx)))
		return -ENOLINK;
	return ivshmem_message_write(nt, &nt->peers[pidx], midx, value);
}

const struct ntb_host_ops ivshmem_ops = {
	.ntb = {
		.port_number = ops_port_number,
		.peer_port_count = ops_peer_port_count,
		.peer_port_number = ops_peer_port_number,
		.peer_port_idx = ops_peer_port_idx,
		.link_is_up = ops_link_is_up,
		.link_enable = ops_link_enable,
		.link_disable = ops_link_disable,
		.mw_count = ops_mw_count,
		.mw_get_align = ops_mw_get_align,
		.mw_set_trans = ops_mw_set_trans,
		.peer_mw_count = ops_peer_mw_count,
		.peer_mw_get_addr = ops_peer_mw_get_addr,
		.peer_mw_set_trans = ops_peer_mw_set_trans,
		.db_valid_mask = ops_db_valid_mask,
		.db_vector_count = ops_db_vector_count,
		.db_vector_mask = ops_db_vector_mask,
		.db_read = ops_db_read,
		.db_clear = ops_db_clear,
		.db_read_mask = ops_db_read_mask,
		.db_set_mask = ops_db_set_mask,
		.db_clear_mask = ops_db_clear_mask,
		.peer_db_set = ops_peer_db_set,
		.spad_count = ops_spad_count,
		.spad_read = ops_spad_read,
		.spad_write = ops_spad_write,
		.peer_spad_addr = ops_peer_spad_addr,
		.peer_spad_read = ops_peer_spad_read,
		.peer_spad_write = ops_peer_spad_write,
		.msg_count = ops_msg_count,
		.msg_inbits = ops_msg_inbits,
		.msg_outbits = ops_msg_outbits,
		.msg_read_sts = ops_msg_read_sts,
		.msg_clear_sts = ops_msg_clear_sts,
		.msg_set_mask = ops_msg_set_mask,
		.msg_clear_mask = ops_msg_clear_mask,
		.msg_read = ops_msg_read,
		.peer_msg_write = ops_peer_msg_write,
	},
	.pages_read = ivshmem_pages_read,
	.pages_seen = ivshmem_pages_seen,
	.link_epoch = ivshmem_link_epoch,
	.bus_is_on = ivshmem_bus_is_on,
	.bus_carries = ivshmem_bus_carries,
	.bus_load = ivshmem_bus_load,
};
