// SPDX-License-Identifier: GPL-2.0
/*
 * What a device tells of itself: state, counters, sysfs.
 *
 *   UP <-----> DOWN    no sign of the node while it owed answers, to this device or another
 *    |          |       of the same node; any answer to any of them ends that
 *    |          |
 *    +-> LOST <-+      another boot of the node answered: the content is gone, for good
 *
 * A change is logged where it is noticed, in softirq, and announced to udev by a work, as
 * uevents allocate. I/O never waits for that work, yet it must not wait for reclaim that
 * waits for I/O, so its queue has a rescuer and it allocates NOIO.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/sched/mm.h>
#include <linux/sysfs.h>

#include "rmem/channel.h"
#include "rmem/trace.h"

static struct workqueue_struct *announcer;

static const char *const state_name[] = {
	[RMEM_DEVICE_UP] = "up",
	[RMEM_DEVICE_DOWN] = "down",
	[RMEM_DEVICE_LOST] = "lost",
};

/* ---- state ---- */

/* Any context. LOST stays. */
static void set(struct rmem_device *device, enum rmem_device_state state)
{
	u8 before = READ_ONCE(device->state);

	do {
		if (before == state || before == RMEM_DEVICE_LOST)
			return;
	} while (!try_cmpxchg(&device->state, &before, state));

	trace_rmem_device_state(device, before, state);
	/* Attach itself tells its user what went wrong. */
	if (READ_ONCE(device->phase) != RMEM_LIVE)
		return;
	if (state == RMEM_DEVICE_UP)
		pr_notice("rmb%u: %pISpc answers again\n", device->index,
			  &device->wish.address.any);
	else if (state == RMEM_DEVICE_DOWN)
		pr_warn("rmb%u: %pISpc does not answer, I/O %s\n", device->index,
			&device->wish.address.any,
			device->wish.fail_after_ms ? "will fail" : "waits for it");
	else
		pr_err("rmb%u: %pISpc restarted, the content is lost: all I/O fails\n",
		       device->index, &device->wish.address.any);
	queue_work(announcer, &device->announce);
}

/*
 * The devices of one node share its window: while one's requests fill it, unanswered, those of
 * the others wait without a packet of their own to be missed. And who is idle is told, too.
 */
static void tell_others(struct rmem_device *device)
{
	struct rmem_device *other;

	list_for_each_entry(other, &device->remote->devices, of_remote) {
		if (other->phase == RMEM_LIVE && !atomic_read(&other->fences))
			set(other, READ_ONCE(device->remote->silent) ? RMEM_DEVICE_DOWN :
								       RMEM_DEVICE_UP);
	}
}

static void announce(struct work_struct *work)
{
	struct rmem_device *device = container_of(work, struct rmem_device, announce);
	char text[24];
	char *env[2] = { text };
	unsigned int noio;
	u8 state;

	mutex_lock(&rmem_devices_lock);
	state = READ_ONCE(device->state);
	if (device->phase == RMEM_LIVE && state != device->announced) {
		device->announced = state;
		snprintf(text, sizeof(text), "RMEM_STATE=%s", state_name[state]);
		noio = memalloc_noio_save();
		kobject_uevent_env(&disk_to_dev(device->disk)->kobj, KOBJ_CHANGE, env);
		memalloc_noio_restore(noio);
	}
	if (device->phase == RMEM_LIVE)
		tell_others(device);
	mutex_unlock(&rmem_devices_lock);
}

void rmem_status_lost(struct rmem_device *device)
{
	set(device, RMEM_DEVICE_LOST);
}

void rmem_status_silent(struct rmem_device *device)
{
	WRITE_ONCE(device->remote->silent, true);
	set(device, RMEM_DEVICE_DOWN);
}

void rmem_status_answers(struct rmem_device *device)
{
	if (READ_ONCE(device->remote->silent)) {
		WRITE_ONCE(device->remote->silent, false);
		queue_work(announcer, &device->announce);
	}
	if (!atomic_read(&device->fences))
		set(device, RMEM_DEVICE_UP);
}

void rmem_status_init(struct rmem_device *device)
{
	INIT_WORK(&device->announce, announce);
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

/* ---- counters ---- */

static const char *const counter_name[] = {
	[RMEM_COUNT_READ] = "read",
	[RMEM_COUNT_READ_BYTES] = "read-bytes",
	[RMEM_COUNT_WRITE] = "write",
	[RMEM_COUNT_WRITE_BYTES] = "write-bytes",
	[RMEM_COUNT_DISCARD] = "discard",
	[RMEM_COUNT_ZERO] = "zero",
	[RMEM_COUNT_FAILED] = "failed",
	[RMEM_COUNT_COPIED] = "copied-packets",
	[RMEM_COUNT_SPARE] = "spare-packets",
	[RMEM_COUNT_KICKED] = "kicked",
	[RMEM_COUNT_NO_BUFFER] = "no-buffer",
	[RMEM_COUNT_NO_ROUTE] = "no-route",
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_GOOD] = NULL,
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_SHORT] = "drop-short",
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_VERSION] = "drop-version",
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_TYPE] = "drop-type",
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_MALFORMED] = "drop-malformed",
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_TAG] = "drop-tag",
	[RMEM_COUNT_DROP_WIRE + RMEM_WIRE_DAMAGED] = NULL, /* the core's "damaged" */
	[RMEM_COUNT_DROP_STRANGER] = "drop-stranger",
	[RMEM_COUNT_DROP_NO_CHECKSUM] = "drop-no-checksum",
	[RMEM_COUNT_DROP_STOPPED] = "drop-stopped",
	/* In the order of struct rmem_client_counters. */
	[RMEM_COUNTS] = "sent",
	"received",
	"retries",
	"timeouts",
	"damaged",
	"busy",
	"reopened",
	"ignored",
	"bad",
};

static_assert(ARRAY_SIZE(counter_name) == RMEM_STATUS_COUNTERS);

const char *rmem_status_counter_name(unsigned int which)
{
	return counter_name[which];
}

void rmem_status_counters(struct rmem_device *device, u64 *values)
{
	unsigned int which, i;
	const u64 *core;
	int cpu;

	memset(values, 0, RMEM_STATUS_COUNTERS * sizeof(*values));
	for_each_possible_cpu(cpu) {
		for (which = 0; which < RMEM_COUNTS; which++)
			values[which] += per_cpu_ptr(device->counts, cpu)->count[which];
	}
	for (i = 0; i < device->channels; i++) {
		core = (const u64 *)&device->channel[i]->client.count;
		for (which = RMEM_COUNTS; which < RMEM_STATUS_COUNTERS; which++)
			values[which] += READ_ONCE(core[which - RMEM_COUNTS]);
	}
}

/* ---- /sys/block/rmbN/rmem ---- */

static struct rmem_device *device_of(struct device *dev)
{
	return dev_to_disk(dev)->private_data;
}

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", state_name[READ_ONCE(device_of(dev)->state)]);
}
static DEVICE_ATTR_RO(state);

static ssize_t node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%pISpc\n", &device_of(dev)->wish.address.any);
}
static DEVICE_ATTR_RO(node);

static ssize_t space_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", device_of(dev)->wish.space);
}
static DEVICE_ATTR_RO(space);

static struct attribute *attributes[] = {
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
