// SPDX-License-Identifier: GPL-2.0
/*
 * softdma.ko: the device, its life, and its parameters.
 *
 * A driver that is unbound (echo softdma > .../drivers/softdma/unbind) ends while clients hold its
 * channels, as a device that is pulled out: their descriptors are aborted, and they get no new
 * ones. The engine's memory is freed after the last channel (device_release).
 */
#include <linux/dma-mapping.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "dma/softdma.h"

#define MAIN_CHANNELS_MAX 16
#define MAIN_RING_MIN 2
#define MAIN_RING_MAX 65536

struct softdma_cost softdma_cost;
struct softdma_faults softdma_faults;

static unsigned int channels = 4;
module_param(channels, uint, 0444);
MODULE_PARM_DESC(channels, "channels, 1 to 16 (default: 4)");

unsigned int softdma_ring = 1024;
module_param_named(ring, softdma_ring, uint, 0444);
MODULE_PARM_DESC(ring, "descriptors of a channel, 2 to 65536 (default: 1024)");

bool softdma_shuffle;
module_param_named(shuffle, softdma_shuffle, bool, 0444);
MODULE_PARM_DESC(shuffle, "complete descriptors in any order (default: no)");

module_param_named(transaction_ns, softdma_cost.transaction_ns, uint, 0644);
MODULE_PARM_DESC(transaction_ns, "time to begin a transaction (default: 0)");
module_param_named(descriptor_ns, softdma_cost.descriptor_ns, uint, 0644);
MODULE_PARM_DESC(descriptor_ns, "time for each descriptor (default: 0)");
module_param_named(interrupt_ns, softdma_cost.interrupt_ns, uint, 0644);
MODULE_PARM_DESC(interrupt_ns, "time for each interrupt, of all channels one at a time (default: 0)");
module_param_named(mbps, softdma_cost.mbps, uint, 0644);
MODULE_PARM_DESC(mbps, "Mbit/s of all channels together; 0, the default: as fast as the copy");
module_param_named(unaligned_percent, softdma_cost.unaligned_percent, uint, 0644);
MODULE_PARM_DESC(unaligned_percent, "more time for bytes that begin at no multiple of 64 (default: 0)");

module_param_named(fail_every, softdma_faults.fail_every, uint, 0644);
MODULE_PARM_DESC(fail_every, "every n-th descriptor of a channel fails; 0, the default: none");
module_param_named(hang_every, softdma_faults.hang_every, uint, 0644);
MODULE_PARM_DESC(hang_every, "every n-th descriptor of a channel never ends; 0, the default: none");

static struct platform_device *main_device;
static struct workqueue_struct *main_queue;

static bool main_no_channel(struct dma_chan *chan, void *context)
{
	return false;
}

static void main_free_work(struct work_struct *work)
{
	struct softdma *engine = container_of(work, struct softdma, free_work);
	dma_cap_mask_t mask;

	/* Takes the mutex under which dma_release_channel() uses the channel still. */
	dma_cap_zero(mask);
	dma_request_channel(mask, main_no_channel, NULL);
	put_device(engine->dev);
	kfree(engine);
}

/* The last client has given its channel back, and the driver is unbound. */
static void main_release(struct dma_device *dma)
{
	struct softdma *engine = container_of(dma, struct softdma, dma);

	queue_work(main_queue, &engine->free_work);
}

static void main_init(struct softdma *engine, struct device *dev)
{
	struct dma_device *dma = &engine->dma;

	engine->dev = get_device(dev);
	engine->count = channels;
	spin_lock_init(&engine->clock_lock);
	INIT_WORK(&engine->free_work, main_free_work);
	INIT_LIST_HEAD(&dma->channels);
	for (unsigned int i = 0; i < engine->count; i++)
		softdma_channel_init(engine, &engine->channels[i]);
	dma_cap_set(DMA_MEMCPY, dma->cap_mask);
	/* For clients that ask for it: a processor's own copies are faster. */
	dma_cap_set(DMA_PRIVATE, dma->cap_mask);
	if (softdma_shuffle)
		dma_cap_set(DMA_COMPLETION_NO_ORDER, dma->cap_mask);
	dma->dev = dev;
	dma->copy_align = DMAENGINE_ALIGN_1_BYTE;
	dma->residue_granularity = DMA_RESIDUE_GRANULARITY_DESCRIPTOR;
	dma->device_alloc_chan_resources = softdma_alloc;
	dma->device_free_chan_resources = softdma_free;
	dma->device_prep_dma_memcpy = softdma_prepare;
	dma->device_issue_pending = softdma_issue;
	dma->device_terminate_all = softdma_terminate;
	dma->device_synchronize = softdma_synchronize;
	dma->device_tx_status = softdma_status;
	dma->device_release = main_release;
}

static void main_unbind(void *context)
{
	struct softdma *engine = context;

	for (unsigned int i = 0; i < engine->count; i++)
		softdma_unbind(&engine->channels[i]);
	dma_async_device_unregister(&engine->dma);
}

static int main_probe(struct platform_device *device)
{
	struct softdma *engine;
	int err;

	err = dma_coerce_mask_and_coherent(&device->dev, DMA_BIT_MASK(64));
	if (err)
		return err;
	engine = kzalloc(struct_size(engine, channels, channels), GFP_KERNEL);
	if (!engine)
		return -ENOMEM;
	main_init(engine, &device->dev);
	err = dma_async_device_register(&engine->dma);
	if (err) {
		main_release(&engine->dma);
		return err;
	}
	return devm_add_action_or_reset(&device->dev, main_unbind, engine);
}

static struct platform_driver main_driver = {
	.driver = { .name = "softdma" },
	.probe = main_probe,
};

static int __init main_module_init(void)
{
	int err;

	if (channels < 1 || channels > MAIN_CHANNELS_MAX || softdma_ring < MAIN_RING_MIN ||
	    softdma_ring > MAIN_RING_MAX) {
		pr_err("softdma: needs 1 to %d channels, and a ring of %d to %d descriptors\n",
		       MAIN_CHANNELS_MAX, MAIN_RING_MIN, MAIN_RING_MAX);
		return -EINVAL;
	}
	main_queue = alloc_workqueue("softdma", 0, 0);
	if (!main_queue)
		return -ENOMEM;
	main_device = platform_device_register_simple("softdma", PLATFORM_DEVID_NONE, NULL, 0);
	if (IS_ERR(main_device)) {
		err = PTR_ERR(main_device);
		goto destroy_queue;
	}
	err = platform_driver_register(&main_driver);
	if (err)
		goto unregister_device;
	return 0;

unregister_device:
	platform_device_unregister(main_device);
destroy_queue:
	destroy_workqueue(main_queue);
	return err;
}

static void __exit main_module_exit(void)
{
	platform_driver_unregister(&main_driver);
	platform_device_unregister(main_device);
	destroy_workqueue(main_queue);
}

module_init(main_module_init);
module_exit(main_module_exit);

MODULE_DESCRIPTION("A DMA engine of kernel threads, with costs and faults to set");
MODULE_LICENSE("GPL");
MODULE_VERSION(REMORA_VERSION);
