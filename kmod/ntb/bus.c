// SPDX-License-Identifier: GPL-2.0
/*
 * Faults of the lab's bus, for clients that ask (../ntb_ops.h): memory that is shared carries
 * stores on while a cable is out, and its loads cost nothing.
 *
 *   bus=1          stores are lost and loads give all ones while a port is not present
 *   bus_load_ns    the time of each load of up to 8 bytes
 */
#include <linux/delay.h>
#include <linux/moduleparam.h>

#include "ivshmem.h"

#define BUS_LOAD_NS_MAX 100000

static bool bus;
module_param(bus, bool, 0444);
MODULE_PARM_DESC(bus, "lose stores without a link, as a bridge does, for tests (default: no)");

static unsigned int bus_load_ns;
module_param(bus_load_ns, uint, 0644);
MODULE_PARM_DESC(bus_load_ns, "with bus=1: the time of a load, 0 to 100000 ns (default: 0)");

bool ivshmem_bus_is_on(struct ntb_dev *ntb)
{
	return bus;
}

/* Not by the links as the driver knows them: the client is to be told late. */
bool ivshmem_bus_carries(struct ntb_dev *ntb, int pidx)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	u32 both = BIT(nt->port) | BIT(nt->peers[pidx].port);

	return (ivshmem_read32(&nt->switch_page->present) & both) == both;
}

void ivshmem_bus_load(struct ntb_dev *ntb, u32 loads)
{
	u64 left_ns = (u64)loads * min_t(u32, READ_ONCE(bus_load_ns), BUS_LOAD_NS_MAX);

	for (; left_ns > NSEC_PER_MSEC; left_ns -= NSEC_PER_MSEC)
		udelay(USEC_PER_MSEC);
	ndelay(left_ns);
}
