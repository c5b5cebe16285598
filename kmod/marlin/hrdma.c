// SPDX-License-Identifier: GPL-2.0
/*
 * A transaction: up to SCATTER_PARTS sub-transfers between own pages and a peer's RAM, by the CPU
 * that asks. As many run at once as there are copy words at the peer.
 */
#include <linux/io.h>

#include "marlin/cmmc.h"

/* parts: local addresses are of pages that are held; remote ones are in the peer's RAM. */
void cmmc_hrdma_move(struct marlin_cmmc *cmmc, const struct scatter_part *parts, u32 count,
		     bool write)
{
	for (u32 i = 0; i < count; i++) {
		void *local = phys_to_virt(parts[i].local);
		void *remote = cmmc->ram + parts[i].remote;

		if (write)
			memcpy(remote, local, parts[i].bytes);
		else
			memcpy(local, remote, parts[i].bytes);
	}
}
