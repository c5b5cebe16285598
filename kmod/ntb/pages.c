// SPDX-License-Identifier: GPL-2.0
/*
 * Which pages of peers' RAM the switch lets this machine copy to and from. The driver reads the
 * ranges and tells its client of a change by a link event; the client keeps to them.
 */
#include "ivshmem.h"

static_assert(NTB_PAGES_RANGES == NTB_RANGES);

int ivshmem_pages_read(struct ntb_dev *ntb, int pidx, struct ntb_pages *pages)
{
	struct ivshmem_ntb *nt = to_ivshmem(ntb);
	const struct ntb_range *from;

	if (!ivshmem_is_peer(nt, pidx))
		return -EINVAL;
	pages->policy = ivshmem_read32(&nt->own->policy);
	rmb(); /* the ranges are read between the two looks at the number */
	from = nt->own->pages[nt->peers[pidx].port];
	for (unsigned int i = 0; i < NTB_RANGES; i++) {
		u64 first = ivshmem_read32(&from[i].first);

		pages->range[i].begin = first * NTB_PAGE_BYTES;
		pages->range[i].end = (first + ivshmem_read32(&from[i].count)) * NTB_PAGE_BYTES;
	}
	rmb(); /* as above */
	if (!pages->policy || ivshmem_read32(&nt->own->policy) != pages->policy)
		return -EAGAIN;
	return 0;
}

void ivshmem_pages_seen(struct ntb_dev *ntb, u32 policy)
{
	WRITE_ONCE(to_ivshmem(ntb)->own->policy_seen, cpu_to_le32(policy));
}

/* The client looks at links, and with them at the ranges. */
void ivshmem_pages_look(struct ivshmem_ntb *nt)
{
	u32 policy = ivshmem_read32(&nt->own->policy);

	/* Pairs with pci_ivshmem_probe(): what the event takes was made before. */
	if (!smp_load_acquire(&nt->registered))
		return;
	if (xchg(&nt->policy_told, policy) != policy)
		ntb_link_event(&nt->ntb);
}
