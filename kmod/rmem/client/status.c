// SPDX-License-Identifier: GPL-2.0
/*
 * A device tells its state: to the log, udev, sysfs.
 *
 *   UP <-----> DOWN    no sign of the node while it owed answers, to this device or another
 *    |          |       of the same node; any answer to any of them ends that
 *    |          |
 *    +-> LOST <-+      another boot of the node answered: the content is gone. A disk stays so; a
 *                      device of programs, which has no content of its own, is UP when it has
 *                      been connected again
 *
 * A change is logged where it is noticed, in softirq, and announced to udev by a work, as
 * uevents allocate. I/O never waits for that work, yet it must not wait for reclaim that
 * waits for I/O, so its queue has a rescuer and it allocates NOIO. The kernel's uevent_sock_mutex
 * can wait for such I/O all the same, as others allocate under it: an event is sent under none
 * of the module's locks, because detach --force takes them and ends that wait.
 */
#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/sched/mm.h>
#include <linux/sysfs.h>

#include "rmem/client/remote.h"
#include "rmem/client/status.h"
#include "rmem/client/trace.h"

static struct workqueue_struct *announcer;

static const char *const state_name[] = {
	[RMEM_DEVICE_UP] = "up",
	[RMEM_DEVICE_DOWN] = "down",
	[RMEM_DEVICE_LOST] = "lost",
};

/* ---- state ---- */

/* By the device, so that journalctl /dev/rmb0 has the lines. */
static void status_log(struct rmem_device *device, enum rmem_device_state state)
{
	struct device *dev = device->params.ops->dev(device);
	const char *node = device->params.address.text;

	if (state == RMEM_DEVICE_UP)
		dev_notice(dev, "%s answers again\n", node);
	else if (state == RMEM_DEVICE_DOWN)
		dev_warn(dev, "%s does not answer, I/O %s\n", node,
			 device->params.session.fail_after_ms ? "will fail" : "waits for it");
	else
		dev_err(dev, "%s or this machine restarted, the content is lost: %s\n", node,
			device->params.ops->lost);
}

/* Any context. LOST stays, but for rmem_status_renewed(). */
static void status_set(struct rmem_device *device, enum rmem_device_state state)
{
	u8 before = READ_ONCE(device->state);

	do {
		if (before == state || before == RMEM_DEVICE_LOST)
			return;
	} while (!try_cmpxchg(&device->state, &before, state));

	trace_rmem_device_state(device, before, state);
	/* Attach itself tells its user the error; rmem_status_live() follows it. */
	if (READ_ONCE(device->phase) != RMEM_LIVE)
		return;
	status_log(device, state);
	queue_work(announcer, &device->announce);
}

void rmem_status_live(struct rmem_device *device)
{
	u8 state;

	lockdep_assert_held(&rmem_devices_lock);
	/* Pairs with try_cmpxchg() in status_set(): one of the two sees the other's write. */
	smp_mb();
	state = READ_ONCE(device->state);
	if (state != RMEM_DEVICE_UP)
		status_log(device, state);
	queue_work(announcer, &device->announce);
}

/* A device without I/O hears nothing from its node: another device's answers tell about both. */
static void status_tell_others(struct rmem_device *device)
{
	struct rmem_device *other;

	list_for_each_entry(other, &device->remote->devices, of_remote) {
		if (other->phase == RMEM_LIVE && !atomic_read(&other->fences))
			status_set(other,
				   READ_ONCE(device->remote->silent) ?
				   RMEM_DEVICE_DOWN : RMEM_DEVICE_UP);
	}
}

static void status_announce(struct work_struct *work)
{
	struct rmem_device *device = container_of(work, struct rmem_device, announce);
	char text[24];
	char *env[2] = { text };
	unsigned int noio;
	bool live;
	u8 state;

	mutex_lock(&rmem_devices_lock);
	live = device->phase == RMEM_LIVE;
	state = READ_ONCE(device->state);
	if (live)
		status_tell_others(device);
	mutex_unlock(&rmem_devices_lock);
	if (!live || state == device->announced)
		return;
	device->announced = state;
	snprintf(text, sizeof(text), "RMEM_STATE=%s", state_name[state]);
	noio = memalloc_noio_save();
	kobject_uevent_env(&device->params.ops->dev(device)->kobj, KOBJ_CHANGE, env);
	memalloc_noio_restore(noio);
}

void rmem_status_lost(struct rmem_device *device)
{
	status_set(device, RMEM_DEVICE_LOST);
}

void rmem_status_renewed(struct rmem_device *device)
{
	/* Pairs with chr_file_connect(). */
	smp_store_release(&device->state, RMEM_DEVICE_UP);
	trace_rmem_device_state(device, RMEM_DEVICE_LOST, RMEM_DEVICE_UP);
	dev_notice(device->params.ops->dev(device), "%s is connected again, empty\n",
		   device->params.address.text);
	queue_work(announcer, &device->announce);
}

void rmem_status_silent(struct rmem_device *device)
{
	WRITE_ONCE(device->remote->silent, true);
	status_set(device, RMEM_DEVICE_DOWN);
}

void rmem_status_answers(struct rmem_device *device)
{
	/* The work of a device that is being detached tells nobody. */
	if (READ_ONCE(device->remote->silent) && READ_ONCE(device->phase) != RMEM_DETACHING) {
		WRITE_ONCE(device->remote->silent, false);
		queue_work(announcer, &device->announce);
	}
	if (!atomic_read(&device->fences))
		status_set(device, RMEM_DEVICE_UP);
}

void rmem_status_init(struct rmem_device *device)
{
	INIT_WORK(&device->announce, status_announce);
}

void rmem_status_end(struct rmem_device *device)
{
	cancel_work_sync(&device->announce);
}

int rmem_status_start(void)
{
	announcer = alloc_workqueue("rmem", WQ_MEM_RECLAIM, 0);
	return announcer ? 0 : -ENOMEM;
}

void rmem_status_stop(void)
{
	destroy_workqueue(announcer);
}

/* ---- /sys/block/rmbN/rmem, /sys/class/rmem/rmemN/rmem ---- */

static struct rmem_device *status_device_of(struct device *dev)
{
	return dev_get_drvdata(dev);
}

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", state_name[READ_ONCE(status_device_of(dev)->state)]);
}
static DEVICE_ATTR_RO(state);

static ssize_t node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", status_device_of(dev)->params.address.text);
}
static DEVICE_ATTR_RO(node);

static ssize_t space_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", status_device_of(dev)->params.session.space);
}
static DEVICE_ATTR_RO(space);

static ssize_t name_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", status_device_of(dev)->params.name);
}
static DEVICE_ATTR_RO(name);

static struct attribute *attributes[] = {
	&dev_attr_name.attr,
	&dev_attr_state.attr,
	&dev_attr_node.attr,
	&dev_attr_space.attr,
	NULL,
};

static const struct attribute_group group = {
	.name = "rmem",
	.attrs = attributes,
};

const struct attribute_group *rmem_status_groups[] = { &group, NULL };
