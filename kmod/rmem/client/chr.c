// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/rmemN: made, opened, removed. Programs issue operations by chr_uring.c and chr_ioctl.c.
 */
#include <linux/cdev.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "compat/compat.h"
#include "rmem/client/chr.h"
#include "rmem/client/chr_ioctl.h"
#include "rmem/client/chr_op.h"
#include "rmem/client/chr_types.h"
#include "rmem/client/chr_uring.h"
#include "rmem/client/device.h"
#include "rmem/client/status.h"

static dev_t first;
static struct class *class;

static struct rmem_chr_file *chr_file_new(struct rmem_device *device)
{
	struct rmem_chr_file *mine = kzalloc(sizeof(*mine), GFP_KERNEL);

	if (!mine)
		return NULL;
	mine->device = device;
	spin_lock_init(&mine->lock);
	INIT_LIST_HEAD(&mine->ops);
	init_waitqueue_head(&mine->ended);
	return mine;
}

static void chr_file_free(struct rmem_chr_file *file)
{
	struct rmem_device *device = file->device;

	kfree(file);
	rmem_device_close(device);
	rmem_device_put_late(device);
}

/* Sessions at the node as it is now, if that has restarted. */
static int chr_file_connect(struct rmem_chr_file *file)
{
	struct rmem_device *device = file->device;
	int err = 0;

	/* Pairs with rmem_status_renewed(): an open that sees UP reads the new generation. */
	if (likely(smp_load_acquire(&device->state) != RMEM_DEVICE_LOST)) {
		/* Pairs with rmem_device_renew(). */
		file->generation = smp_load_acquire(&device->generation);
		return 0;
	}
	if (mutex_lock_killable(&device->calls))
		return -EINTR;
	if (READ_ONCE(device->state) == RMEM_DEVICE_LOST)
		err = rmem_device_renew(device);
	file->generation = device->generation;
	mutex_unlock(&device->calls);
	return err;
}

static int chr_open(struct inode *inode, struct file *file)
{
	struct rmem_device *device = container_of(inode->i_cdev, struct rmem_device, chr.cdev);
	struct rmem_chr_file *mine = chr_file_new(device);
	int err;

	if (!mine)
		return -ENOMEM;
	if (!rmem_device_open(device)) {
		kfree(mine);
		return -ENXIO;
	}
	mine->channel = (unsigned int)atomic_fetch_inc(&device->chr.turn) % device->queues;
	kref_get(&device->ref);
	err = chr_file_connect(mine);
	if (err) {
		chr_file_free(mine);
		return err == -EINTR ? -ERESTARTSYS : err;
	}
	file->private_data = mine;
	return nonseekable_open(inode, file);
}

static int chr_release(struct inode *inode, struct file *file)
{
	chr_file_free(file->private_data);
	return 0;
}

static const struct file_operations fops = {
	.owner = THIS_MODULE,
	.open = chr_open,
	.flush = rmem_chr_flush,
	.release = chr_release,
	.uring_cmd = rmem_chr_uring_cmd,
	.unlocked_ioctl = rmem_chr_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static void chr_free(struct device *dev)
{
	rmem_device_put_late(dev_get_drvdata(dev));
}

static int chr_add(struct rmem_device *device)
{
	struct device *dev = &device->chr.dev;
	int err;

	device_initialize(dev);
	dev->class = class;
	dev->devt = first + device->index;
	dev->release = chr_free;
	dev->groups = rmem_status_groups;
	dev_set_drvdata(dev, device);
	/* chr_free() puts it. */
	kref_get(&device->ref);
	cdev_init(&device->chr.cdev, &fops);
	device->chr.cdev.owner = THIS_MODULE;
	err = dev_set_name(dev, "%s", device->name);
	if (!err)
		err = cdev_device_add(&device->chr.cdev, dev);
	if (err)
		put_device(dev);
	return err;
}

static void chr_remove(struct rmem_device *device)
{
	/* Operations of files that are still open are refused from now on. */
	WRITE_ONCE(device->gone, true);
	/* An open that is connecting the device gives up. */
	wake_up_all(&device->changed);
	mutex_lock(&device->calls);
	mutex_unlock(&device->calls);
	cdev_device_del(&device->chr.cdev, &device->chr.dev);
}

static void chr_put(struct rmem_device *device)
{
	put_device(&device->chr.dev);
}

static struct device *chr_dev(struct rmem_device *device)
{
	return &device->chr.dev;
}

const struct rmem_device_ops rmem_chr_device_ops = {
	.name = "rmem",
	.in_use = "end the programs that have it open first",
	.lost = "I/O fails until it is opened anew",
	.kind = RMEM_KIND_PROGRAMS,
	.allocates = true,
	.add = chr_add,
	.remove = chr_remove,
	.put = chr_put,
	.dev = chr_dev,
};

int rmem_chr_start(void)
{
	int err = rmem_chr_uring_start();

	if (err)
		return err;
	err = alloc_chrdev_region(&first, 0, RMEM_INDEX_MAX + 1, "rmem");
	if (err)
		goto stop_op;
	class = compat_class_create("rmem");
	if (IS_ERR(class)) {
		err = PTR_ERR(class);
		goto unregister;
	}
	return 0;

unregister:
	unregister_chrdev_region(first, RMEM_INDEX_MAX + 1);
stop_op:
	rmem_chr_uring_stop();
	return err;
}

void rmem_chr_stop(void)
{
	class_destroy(class);
	unregister_chrdev_region(first, RMEM_INDEX_MAX + 1);
	rmem_chr_uring_stop();
}
