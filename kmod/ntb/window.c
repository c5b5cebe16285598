// SPDX-License-Identifier: GPL-2.0
/*
 * Memory windows, whose translation is fixed.
 *
 *     our CPU                                                RAM of peer q
 *     BAR 2 of q's ivshmem-plain  [.......[ window ].......]
 *                                             ^ out_base         = windows_base + i * window_bytes
 *
 * A client maps an outbound window before the peer says where its buffer is, and ivshmem can't
 * move what a BAR shows. So the buffer comes to the window: memory for it, which clients of the NTB
 * API allocate for this device, is given out by DMA operations of our own. They give the window's
 * memory, which the kernel does not use for anything else (memmap=).
 *
 * There is one window from each peer. An allocation doesn't say for which peer it is, but before it
 * a client asks for that window's limits: the task that asked gets the window it asked for last.
 * ntb_mw_set_trans() then accepts the window's own memory and nothing else.
 *
 * With ram=1 there are as many windows again, numbered behind those: each shows all of a machine's
 * RAM, as a real bridge does that was programmed once at boot. Their translation is the identity.
 */
#include <linux/dma-map-ops.h>
#include <linux/io.h>
#include <linux/moduleparam.h>
#include <linux/sched.h>
#include <linux/sizes.h>

#include "ivshmem.h"

/* Off: clients such as Linux' count windows, and take each for memory of their own. */
static bool ram;
module_param(ram, bool, 0444);
MODULE_PARM_DESC(ram, "offer clients windows that show all RAM of each peer (default: no)");

/* ---- memory of inbound windows ---- */

/* The window to serve the current task with. */
static struct ivshmem_window *window_choose(struct ivshmem_ntb *nt, unsigned int *number)
{
	struct ivshmem_window *best = NULL;
	unsigned int i;

	lockdep_assert_held(&nt->lock);
	for (i = 0; i < nt->peer_count; i++) {
		struct ivshmem_window *window = &nt->peers[i].in;

		if (window->used || (window->asked_by != current && nt->peer_count > 1))
			continue;
		if (!best || window->asked_at > best->asked_at) {
			best = window;
			*number = i;
		}
	}
	return best;
}

static void *window_alloc(struct device *dev, size_t bytes, dma_addr_t *handle, gfp_t gfp,
			  unsigned long attrs)
{
	struct ivshmem_ntb *nt = dev_get_drvdata(dev);
	struct ivshmem_window *window;
	unsigned int number = 0;
	unsigned long flags;
	void *memory;

	if (bytes > nt->window_bytes)
		return NULL;
	spin_lock_irqsave(&nt->lock, flags);
	window = window_choose(nt, &number);
	if (window)
		window->used = true;
	spin_unlock_irqrestore(&nt->lock, flags);
	if (!window)
		return NULL;

	memory = nt->windows + number * nt->window_bytes;
	memset(memory, 0, nt->window_bytes);
	*handle = nt->windows_base + number * nt->window_bytes;
	return memory;
}

static void window_free(struct device *dev, size_t bytes, void *memory, dma_addr_t handle,
			unsigned long attrs)
{
	struct ivshmem_ntb *nt = dev_get_drvdata(dev);
	unsigned long flags;

	spin_lock_irqsave(&nt->lock, flags);
	nt->peers[(memory - nt->windows) / nt->window_bytes].in.used = false;
	spin_unlock_irqrestore(&nt->lock, flags);
}

/* Peers see all of our RAM at its physical address. */
static dma_addr_t window_map_page(struct device *dev, struct page *page, unsigned long offset,
				  size_t bytes, enum dma_data_direction dir, unsigned long attrs)
{
	return page_to_phys(page) + offset;
}

static void window_unmap_page(struct device *dev, dma_addr_t handle, size_t bytes,
			      enum dma_data_direction dir, unsigned long attrs)
{
}

static const struct dma_map_ops window_dma_ops = {
	.alloc = window_alloc,
	.free = window_free,
	.map_page = window_map_page,
	.unmap_page = window_unmap_page,
};

/* ---- where windows are ---- */

/*
 * Whether a physical address of RAM is its offset in what peers see. From 4 GiB on it isn't: the
 * hole below is not in the BAR.
 */
static bool window_ram_is_flat(u64 ram_bytes)
{
	resource_size_t end = min_t(u64, ram_bytes, SZ_4G);

	return region_intersects(end, PHYS_ADDR_MAX - end, IORESOURCE_SYSTEM_RAM,
				 IORES_DESC_NONE) == REGION_DISJOINT;
}

struct window_map {
	u64 ram_bytes, base, bytes;
};

/* Reads the switch's map of a port once, and checks it. */
static int window_map_read(struct ivshmem_ntb *nt, unsigned int port, struct window_map *map)
{
	struct ntb_port_map *from = &nt->switch_page->map[port];

	map->ram_bytes = ivshmem_read64(&from->ram_bytes);
	map->base = ivshmem_read64(&from->windows_base);
	map->bytes = ivshmem_read64(&from->window_bytes);
	if (!map->bytes || !PAGE_ALIGNED(map->base | map->bytes) || map->base > map->ram_bytes ||
	    map->bytes > (map->ram_bytes - map->base) / nt->peer_count) {
		dev_err(&nt->ntb.pdev->dev,
			"port %u: windows of %#llx bytes at %#llx in RAM of %#llx make no sense\n",
			port, map->bytes, map->base, map->ram_bytes);
		return -EINVAL;
	}
	return 0;
}

static void window_dma_undo(void *dev)
{
	set_dma_ops(dev, NULL);
}

int ivshmem_windows_init(struct ivshmem_ntb *nt)
{
	struct device *dev = &nt->ntb.pdev->dev;
	struct window_map map;
	resource_size_t bytes;
	int err;

	if (!IS_ENABLED(CONFIG_ARCH_HAS_DMA_OPS)) {
		dev_err(dev, "needs a kernel with CONFIG_ARCH_HAS_DMA_OPS\n");
		return -EOPNOTSUPP;
	}
	err = window_map_read(nt, nt->port, &map);
	if (err)
		return err;
	if (ram && !window_ram_is_flat(map.ram_bytes)) {
		dev_err(dev, "ram=1 needs all RAM below 4 GiB and in the BAR of %#llx bytes: give the machine less\n",
			map.ram_bytes);
		return -EINVAL;
	}
	bytes = map.bytes * nt->peer_count;
	if (region_intersects(map.base, bytes, IORESOURCE_SYSTEM_RAM, IORES_DESC_NONE) !=
	    REGION_DISJOINT) {
		dev_err(dev, "the kernel uses the windows' memory: boot it with memmap=%lluK$%lluK\n",
			bytes >> 10, map.base >> 10);
		return -EBUSY;
	}
	if (!devm_request_mem_region(dev, map.base, bytes, KBUILD_MODNAME))
		return -EBUSY;
	nt->windows = devm_memremap(dev, map.base, bytes, MEMREMAP_WB);
	if (IS_ERR(nt->windows))
		return PTR_ERR(nt->windows);
	nt->windows_base = map.base;
	nt->window_bytes = map.bytes;
	nt->ram_bytes = map.ram_bytes;
	nt->ram = ram;
	set_dma_ops(dev, &window_dma_ops);
	/* The next driver of the device knows nothing of these. */
	return devm_add_action_or_reset(dev, window_dma_undo, dev);
}

/* memory: the device whose BAR shows the peer's RAM */
int ivshmem_window_init_out(struct ivshmem_ntb *nt, struct ivshmem_peer *peer,
			    struct pci_dev *memory)
{
	unsigned int number = nt->port < peer->port ? nt->port : nt->port - 1;
	struct window_map map;
	int err;

	err = window_map_read(nt, peer->port, &map);
	if (err)
		return err;
	if (map.ram_bytes != pci_resource_len(memory, 2)) {
		dev_err(&nt->ntb.pdev->dev, "port %u has %#llx bytes of RAM, its BAR shows %#llx\n",
			peer->port, map.ram_bytes, (u64)pci_resource_len(memory, 2));
		return -EINVAL;
	}
	peer->out_translation = map.base + number * map.bytes;
	peer->out_base = pci_resource_start(memory, 2) + peer->out_translation;
	peer->out_bytes = map.bytes;
	peer->ram_base = pci_resource_start(memory, 2);
	peer->ram_bytes = map.ram_bytes;
	return 0;
}

/* Windows of each direction. */
unsigned int ivshmem_window_count(struct ivshmem_ntb *nt)
{
	return nt->ram ? 2 * nt->peer_count : nt->peer_count;
}

/* Whether a window shows whole RAM; its peer is that of the window peer_count before it. */
bool ivshmem_window_is_ram(struct ivshmem_ntb *nt, int widx)
{
	return nt->ram && widx >= (int)nt->peer_count && widx < (int)(2 * nt->peer_count);
}

/*
 * The peer an outbound window leads to: window w to peer w. ntb_perf numbers windows by the place
 * of the sender among all ports, so there is a number more than peers; it means the last window,
 * unless windows that show whole RAM have the numbers behind.
 */
struct ivshmem_peer *ivshmem_window_out(struct ivshmem_ntb *nt, int widx)
{
	if (ivshmem_window_is_ram(nt, widx))
		widx -= nt->peer_count;
	if (widx < 0 || (unsigned int)widx > nt->peer_count)
		return NULL;
	return &nt->peers[min_t(unsigned int, widx, nt->peer_count - 1)];
}

/* Whether an inbound window is the one a peer has into our RAM, by the peer's number for it. */
static bool window_is_in(struct ivshmem_ntb *nt, int pidx, int widx)
{
	unsigned int ours;

	if (!ivshmem_is_peer(nt, pidx) || widx < 0 ||
	    ((unsigned int)widx > nt->peer_count && !ivshmem_window_is_ram(nt, widx)))
		return false;
	ours = nt->port < nt->peers[pidx].port ? nt->port : nt->port - 1;
	if (ivshmem_window_is_ram(nt, widx))
		return widx - nt->peer_count == ours;
	return min_t(unsigned int, widx, nt->peer_count - 1) == ours;
}

int ivshmem_window_limits(struct ivshmem_ntb *nt, int pidx, int widx)
{
	struct ivshmem_window *window;
	unsigned long flags;

	if (!window_is_in(nt, pidx, widx))
		return -EINVAL;
	if (ivshmem_window_is_ram(nt, widx))
		return 0;
	window = &nt->peers[pidx].in;
	spin_lock_irqsave(&nt->lock, flags);
	window->asked_by = current;
	window->asked_at = ++nt->asked_count;
	spin_unlock_irqrestore(&nt->lock, flags);
	return 0;
}

/* bytes: 0 clears the translation, which stays as it is. */
int ivshmem_window_set(struct ivshmem_ntb *nt, int pidx, int widx, u64 address, u64 bytes)
{
	if (!window_is_in(nt, pidx, widx))
		return -EINVAL;
	if (!bytes)
		return 0;
	if (ivshmem_window_is_ram(nt, widx))
		return address || bytes != nt->ram_bytes ? -EINVAL : 0;
	if (address != nt->windows_base + pidx * nt->window_bytes || bytes > nt->window_bytes) {
		dev_warn_ratelimited(&nt->ntb.dev,
				     "window from port %u: %#llx bytes at %#llx are not its own memory\n",
				     nt->peers[pidx].port, bytes, address);
		return -EINVAL;
	}
	return 0;
}
