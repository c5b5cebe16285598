// SPDX-License-Identifier: GPL-2.0
/*
 * ntb_hw_ivshmem.ko: a non-transparent bridge made of QEMU's ivshmem devices.
 *
 *     slot s           ivshmem-doorbell   the NTB device, port p: registers and interrupts
 *     slot s - p + q   ivshmem-plain      RAM of port q
 *
 * The driver binds to the doorbell device. It takes the plain devices on its bus along, as they are
 * no devices by themselves: it enables them and claims their BARs.
 */
#include <linux/io.h>
#include <linux/module.h>
#include <linux/random.h>

#include "ivshmem.h"

#define IVSHMEM_VENDOR 0x1af4
#define IVSHMEM_DEVICE 0x1110
#define POSITION_REGISTER 8 /* of BAR 0: the device's ID */

static void pci_put(void *device)
{
	pci_dev_put(device);
}

static void pci_release(void *device)
{
	pci_release_region(device, 2);
	pci_disable_device(device);
}

/* Claims the device that shows a peer's RAM, until the driver is unbound. */
static struct pci_dev *pci_memory_claim(struct ivshmem_ntb *nt, unsigned int port)
{
	struct pci_dev *pdev = nt->ntb.pdev;
	int slot = PCI_SLOT(pdev->devfn) - (int)nt->port + (int)port;
	struct pci_dev *memory;
	int err;

	memory = slot < 0 || slot > 31 ? NULL : pci_get_slot(pdev->bus, PCI_DEVFN(slot, 0));
	if (!memory || memory->vendor != IVSHMEM_VENDOR || memory->device != IVSHMEM_DEVICE ||
	    memory->msix_cap) {
		pci_dev_put(memory);
		dev_err(&pdev->dev, "no ivshmem-plain device in slot %#x for the RAM of port %u\n",
			slot, port);
		return ERR_PTR(-ENODEV);
	}
	err = devm_add_action_or_reset(&pdev->dev, pci_put, memory);
	if (err)
		return ERR_PTR(err);
	err = pci_enable_device_mem(memory);
	if (err)
		return ERR_PTR(err);
	err = pci_request_region(memory, 2, KBUILD_MODNAME);
	if (err) {
		pci_disable_device(memory);
		return ERR_PTR(err);
	}
	err = devm_add_action_or_reset(&pdev->dev, pci_release, memory);
	return err ? ERR_PTR(err) : memory;
}

/* Maps the registers, and checks the switch's count of ports and the device's own port. */
static int pci_map_registers(struct ivshmem_ntb *nt)
{
	struct pci_dev *pdev = nt->ntb.pdev;
	resource_size_t bytes = pci_resource_len(pdev, 2);
	u32 magic, version, ports;
	int err;

	if (bytes < NTB_PAGE_BYTES)
		return dev_err_probe(&pdev->dev, -ENODEV,
				     "%llu bytes of shared memory are no NTB's\n", (u64)bytes);
	/* Released with the device, which pcim_enable_device() has enabled. */
	err = pci_request_regions(pdev, KBUILD_MODNAME);
	if (err)
		return err;
	nt->registers = pcim_iomap(pdev, 0, 0);
	if (!nt->registers)
		return -ENOMEM;
	nt->switch_page = devm_memremap(&pdev->dev, pci_resource_start(pdev, 2), bytes,
					MEMREMAP_WB);
	if (IS_ERR(nt->switch_page))
		return PTR_ERR(nt->switch_page);

	magic = ivshmem_read32(&nt->switch_page->magic);
	version = ivshmem_read32(&nt->switch_page->version);
	ports = ivshmem_read32(&nt->switch_page->ports);
	nt->port = readl(nt->registers + POSITION_REGISTER);
	if (magic != NTB_MAGIC || version != NTB_VERSION)
		return dev_err_probe(&pdev->dev, -ENODEV,
				     "the shared memory is no NTB's of version %u\n", NTB_VERSION);
	if (ports < 2 || ports > NTB_PORTS_MAX || nt->port >= ports ||
	    bytes / NTB_PAGE_BYTES < ports + 1)
		return dev_err_probe(&pdev->dev, -EINVAL,
				     "port %u of %u in %llu bytes of registers makes no sense\n",
				     nt->port, ports, (u64)bytes);
	nt->peer_count = ports - 1;
	return 0;
}

static struct ntb_port_page *pci_page_of(struct ivshmem_ntb *nt, unsigned int port)
{
	return (void *)nt->switch_page + (port + 1) * NTB_PAGE_BYTES;
}

static int pci_find_peers(struct ivshmem_ntb *nt)
{
	unsigned int i;
	int err;

	nt->own = pci_page_of(nt, nt->port);
	for (i = 0; i < nt->peer_count; i++) {
		struct ivshmem_peer *peer = &nt->peers[i];
		struct pci_dev *memory;

		peer->port = i < nt->port ? i : i + 1;
		peer->page = pci_page_of(nt, peer->port);
		memory = pci_memory_claim(nt, peer->port);
		if (IS_ERR(memory))
			return PTR_ERR(memory);
		err = ivshmem_window_init_out(nt, peer, memory);
		if (err)
			return err;
	}
	return 0;
}

static void pci_events_stop(void *nt)
{
	irq_work_sync(&((struct ivshmem_ntb *)nt)->events);
}

/* The timer enables an interrupt, so it ends before that is freed. */
static void pci_rest_stop(void *context)
{
	struct ivshmem_ntb *nt = context;

	disable_irq(nt->vectors[NTB_VECTOR_EVENT].irq);
	del_timer_sync(&nt->event_rest);
}

static int pci_start_interrupts(struct ivshmem_ntb *nt)
{
	struct pci_dev *pdev = nt->ntb.pdev;
	unsigned int i;
	int err;

	pci_set_master(pdev);
	err = pci_alloc_irq_vectors(pdev, NTB_VECTORS, NTB_VECTORS, PCI_IRQ_MSIX);
	if (err < 0)
		return dev_err_probe(&pdev->dev, err, "needs %u MSI-X vectors\n", NTB_VECTORS);
	init_irq_work(&nt->events, ivshmem_events);
	timer_setup(&nt->event_rest, ivshmem_event_rest_end, 0);
	/* After the interrupts, which are freed first, nothing queues it. */
	err = devm_add_action_or_reset(&pdev->dev, pci_events_stop, nt);
	for (i = 0; i < NTB_VECTORS && !err; i++) {
		nt->vectors[i] = (struct ivshmem_vector){ nt, i, pci_irq_vector(pdev, i) };
		err = devm_request_irq(&pdev->dev, nt->vectors[i].irq, ivshmem_interrupt, 0,
				       KBUILD_MODNAME, &nt->vectors[i]);
	}
	return err ?: devm_add_action_or_reset(&pdev->dev, pci_rest_stop, nt);
}

static int pci_ivshmem_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct ivshmem_ntb *nt;
	int err;

	if (!pdev->msix_cap)
		return -ENODEV; /* a peer's RAM, or no part of an NTB */
	nt = devm_kzalloc(&pdev->dev, sizeof(*nt), GFP_KERNEL);
	if (!nt)
		return -ENOMEM;
	nt->ntb.pdev = pdev;
	nt->ntb.topo = NTB_TOPO_SWITCH;
	nt->ntb.ops = &ivshmem_ops.ntb;
	spin_lock_init(&nt->lock);
	nt->doorbell_mask = IVSHMEM_DOORBELLS_ALL;
	nt->message_mask = IVSHMEM_MESSAGES_IN | IVSHMEM_MESSAGES_OUT;
	/* At random, so that a peer tells this life of the driver from the one before. */
	nt->generation = get_random_u32() & ~NTB_LINK_UP;
	pci_set_drvdata(pdev, nt);

	err = pcim_enable_device(pdev);
	if (!err)
		err = pci_map_registers(nt);
	if (!err)
		err = pci_find_peers(nt);
	if (!err)
		err = ivshmem_windows_init(nt);
	if (!err)
		err = pci_start_interrupts(nt);
	if (!err)
		err = ntb_register_device(&nt->ntb);
	if (err)
		return err;
	/* Pairs with ivshmem_pages_look(). */
	smp_store_release(&nt->registered, true);
	irq_work_queue(&nt->events);
	dev_info(&pdev->dev, "port %u of %u, windows of %zu KiB\n", nt->port, nt->peer_count + 1,
		 nt->window_bytes >> 10);
	return 0;
}

static void pci_ivshmem_remove(struct pci_dev *pdev)
{
	struct ivshmem_ntb *nt = pci_get_drvdata(pdev);

	ntb_unregister_device(&nt->ntb);
	ivshmem_link_set(nt, false);
}

static const struct pci_device_id ivshmem_ids[] = {
	{ PCI_DEVICE(IVSHMEM_VENDOR, IVSHMEM_DEVICE) },
	{}
};
MODULE_DEVICE_TABLE(pci, ivshmem_ids);

static struct pci_driver ivshmem_driver = {
	.name = KBUILD_MODNAME,
	.id_table = ivshmem_ids,
	.probe = pci_ivshmem_probe,
	.remove = pci_ivshmem_remove,
};
module_pci_driver(ivshmem_driver);

MODULE_DESCRIPTION("NTB between virtual machines, of QEMU's ivshmem devices");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
