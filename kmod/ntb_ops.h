/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where an NTB hardware driver that has a management host meets its clients, beside Linux' NTB API:
 * which pages of a peer's RAM this machine may copy to and from.
 *
 *   kmod/ntb/pages.c    reads the management host's words (include/remora/ntb.h, "Pages")
 *   kmod/marlin/link.c  keeps to it; finds these functions by symbol_get(), for other hardware has
 *                       other drivers
 */
#ifndef REMORA_NTB_OPS_H
#define REMORA_NTB_OPS_H

#include <linux/types.h>

struct ntb_dev;

#define NTB_PAGES_RANGES 4

struct ntb_pages {
	u32 policy; /* its number */
	struct {
		u64 begin, end; /* of the peer's RAM; equal: says nothing */
	} range[NTB_PAGES_RANGES];
};

/*
 * -EAGAIN: they are being changed, and a link event will follow; -EOPNOTSUPP: the device is another
 * driver's. Any context.
 */
int ntb_pages_read(struct ntb_dev *ntb, int pidx, struct ntb_pages *pages);
/* Nothing copies by an older policy any more. */
void ntb_pages_seen(struct ntb_dev *ntb, u32 policy);

#endif
