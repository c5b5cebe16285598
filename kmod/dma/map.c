// SPDX-License-Identifier: GPL-2.0
/*
 * The memory behind a DMA address, for the thread's processor.
 *
 *   DMA address --dma_to_phys--> physical --RAM--------------------> the kernel's own mapping
 *                                         --else: a bridge's BAR---> mapped here, in pieces
 *
 * The device has no IOMMU, so its DMA addresses are physical ones. Memory beyond RAM is mapped
 * write-combining, as clients of a bridge have its windows; the kernel refuses a second kind of
 * mapping, and the descriptor then fails. The pieces used last stay mapped.
 */
#include <linux/dma-direct.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/pfn.h>

#include "dma/softdma.h"

static struct softdma_map *map_find(struct softdma_channel *channel, phys_addr_t address)
{
	struct softdma_map *oldest = &channel->maps[0];

	for (int i = 0; i < SOFTDMA_MAPS; i++) {
		struct softdma_map *map = &channel->maps[i];

		if (map->memory && map->address == address)
			return map;
		if (!map->memory || (oldest->memory && map->used < oldest->used))
			oldest = map;
	}
	if (oldest->memory)
		iounmap((void __iomem *)oldest->memory);
	oldest->address = address;
	oldest->memory = (__force void *)ioremap_wc(address, SOFTDMA_MAP_BYTES);
	return oldest;
}

void *softdma_memory(struct softdma_channel *channel, dma_addr_t address, size_t *bytes)
{
	phys_addr_t physical = dma_to_phys(channel->engine->dev, address);
	phys_addr_t within = physical & (SOFTDMA_MAP_BYTES - 1);
	unsigned long pfn = PHYS_PFN(physical);
	struct softdma_map *map;

	/* Reserved pages may be the kernel's own, or memory that it leaves alone. */
	if (pfn_valid(pfn) && (!PageReserved(pfn_to_page(pfn)) || page_is_ram(pfn)))
		return phys_to_virt(physical);
	*bytes = min_t(size_t, *bytes, SOFTDMA_MAP_BYTES - within);
	map = map_find(channel, physical - within);
	map->used = ++channel->map_clock;
	return map->memory ? map->memory + within : NULL;
}

/* The thread has ended. */
void softdma_maps_free(struct softdma_channel *channel)
{
	for (int i = 0; i < SOFTDMA_MAPS; i++) {
		if (channel->maps[i].memory)
			iounmap((void __iomem *)channel->maps[i].memory);
		channel->maps[i].memory = NULL;
	}
}
