/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where an NTB hardware driver that has a management host meets its clients, beside Linux' NTB API.
 * Its ops are Linux' struct ntb_dev_ops with more behind it, so a client finds them by the device
 * alone, also while the driver's module is being loaded. Other hardware has other drivers.
 *
 *   pages    pages of a peer's RAM that are open to this machine's copies
 *              kmod/ntb/pages.c reads the management host's words (include/remora/ntb.h, "Pages")
 *              kmod/marlin/link.c keeps to it
 *   epoch    whether a link was down, be it for an instant (kmod/ntb/event.c, kmod/marlin/link.c)
 *   bus      faults of the lab: a bridge's, which shared memory hasn't (kmod/ntb/bus.c). A
 *              client that wants them asks before each access (kmod/marlin/bus.h)
 */
#ifndef REMORA_NTB_OPS_H
#define REMORA_NTB_OPS_H

#include <linux/ntb.h>
#include <linux/pci.h>
#include <linux/string.h>
#include <linux/types.h>

#define NTB_HOST_DRIVER "ntb_hw_ivshmem"

#define NTB_PAGES_RANGES 4

struct ntb_pages {
	u32 policy; /* its number */
	struct {
		u64 begin, end; /* of the peer's RAM; equal: says nothing */
	} range[NTB_PAGES_RANGES];
};

/* Any context. pidx: a peer of the NTB API. */
struct ntb_host_ops {
	struct ntb_dev_ops ntb; /* Linux' */
	/* -EAGAIN: they are being changed, and a link event will follow. */
	int (*pages_read)(struct ntb_dev *ntb, int pidx, struct ntb_pages *pages);
	/* Nothing copies by an older policy any more. */
	void (*pages_seen)(struct ntb_dev *ntb, u32 policy);
	/* Another value than before if the link was down in between. */
	u32 (*link_epoch)(struct ntb_dev *ntb, int pidx);
	/* Are the lab's faults switched on? It doesn't change. */
	bool (*bus_is_on)(struct ntb_dev *ntb);
	/* False: stores to the peer are lost now, and loads from it give all ones. */
	bool (*bus_carries)(struct ntb_dev *ntb, int pidx);
	/* Takes as long as so many loads of up to 8 bytes do. */
	void (*bus_load)(struct ntb_dev *ntb, u32 loads);
};

/* NULL: another driver's device. */
static inline const struct ntb_host_ops *ntb_host_ops(const struct ntb_dev *ntb)
{
	const struct pci_driver *driver = ntb->pdev->driver;

	if (!driver || strcmp(driver->name, NTB_HOST_DRIVER))
		return NULL;
	/* An older driver that is still loaded has other ops. */
	if (!driver->driver.owner || !driver->driver.owner->version ||
	    strcmp(driver->driver.owner->version, REMORA_VERSION))
		return NULL;
	return container_of(ntb->ops, struct ntb_host_ops, ntb);
}

#endif
