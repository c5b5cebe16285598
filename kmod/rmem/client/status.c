// SPDX-License-Identifier: GPL-2.0
/*
 * What a device tells of itself: state, counters, sysfs.
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
 * may wait for such I/O all the same, as others allocate under it: an event is sent under no lock
 * of ours, for detach --force, which ends that wait, takes those.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/device.h>
#include <linux/kobject.h>
#include <linux/sched/mm.h>
#include <linux/sysfs.h>

#include "rmem/client/channel.h"
#include "rmem/client/trace.h"

static struct workqueue_struct *announcer;

static const char *const state_name[] = {
	[RMEM_DEVICE_UP] = "up",
	[RMEM_DEVICE_DOWN] = "down",
	[RMEM_DEVICE_LOST] = "lost",
};

/* ---- state ---- */

static void log_state(const struct rmem_device *device, enum rmem_device_state state)
{
	if (state == RMEM_DEVICE_UP)
		pr_notice("%s: %s answers again\n", device->name,
			  device->wish.address.text);
	else if (state == RMEM_DEVICE_DOWN)
		pr_warn("%s: %s does not answer, I/O %s\n", device->name,
			device->wish.address.text,
			device->wish.session.fail_after_ms ? "will fail" : "waits for it");
	else
		pr_err("%s: %s restarted, the content is lost: %s\n", device->name,
		       device->wish.address.text,
		       device->wish.door->lost);
}

/* Any context. LOST stays, but for rmem_status_renewed(). */
static void set(struct rmem_device *device, enum rmem_device_state state)
{
	u8 before = READ_ONCE(device->state);

	do {
		if (before == state || before == RMEM_DEVICE_LOST)
			return;
	} while (!try_cmpxchg(&device->state, &before, state));

	trace_rmem_device_state(device, before, state);
	/* Attach itself tells its user what went wrong; rmem_status_live() follows it. */
	if (READ_ONCE(device->phase) != RMEM_LIVE)
		return;
	log_state(device, state);
	queue_work(announcer, &device->announce);
}

void rmem_status_live(struct rmem_device *device)
{
	u8 state;

	/* Pairs with try_cmpxchg() in set(): one of the two sees what the other wrote. */
	smp_mb();
	state = READ_ONCE(device->state);
	if (state != RMEM_DEVICE_UP)
		log_state(device, state);
	queue_work(announcer, &device->announce);
}

/* A device without I/O hears nothing from its node: another device's answers tell about both. */
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
	bool live;
	u8 state;

	mutex_lock(&rmem_devices_lock);
	live = device->phase == RMEM_LIVE;
	state = READ_ONCE(device->state);
	if (live)
		tell_others(device);
	mutex_unlock(&rmem_devices_lock);
	if (!live || state == device->announced)
		return;
	device->announced = state;
	snprintf(text, sizeof(text), "RMEM_STATE=%s", state_name[state]);
	noio = memalloc_noio_save();
	kobject_uevent_env(&device->wish.door->dev(device)->kobj, KOBJ_CHANGE, env);
	memalloc_noio_restore(noio);
}

void rmem_status_lost(struct rmem_device *device)
{
	set(device, RMEM_DEVICE_LOST);
}

void rmem_status_renewed(struct rmem_device *device)
{
	/* Pairs with file_connect(). */
	smp_store_release(&device->state, RMEM_DEVICE_UP);
	trace_rmem_device_state(device, RMEM_DEVICE_LOST, RMEM_DEVICE_UP);
	pr_notice("%s: %s is connected again, empty\n", device->name,
		  device->wish.address.text);
	queue_work(announcer, &device->announce);
}

void rmem_status_silent(struct rmem_device *device)
{
	WRITE_ONCE(device->remote->silent, true);
	set(device, RMEM_DEVICE_DOWN);
}

void rmem_status_answers(struct rmem_device *device)
{
	/* The work of a device that is being detached tells nobody. */
	if (READ_ONCE(device->remote->silent) && READ_ONCE(device->phase) != RMEM_DETACHING) {
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
	[RMEM_COUNT_ATOMIC] = "atomic",
	[RMEM_COUNT_PUT] = "put",
	[RMEM_COUNT_PUT_BYTES] = "put-bytes",
	[RMEM_COUNT_FENCE] = "fence",
	[RMEM_COUNT_FAILED] = "failed",
	[RMEM_COUNT_PATH + RMEM_PATH_COPIED] = "copied-packets",
	[RMEM_COUNT_PATH + RMEM_PATH_SPARE] = "spare-packets",
	[RMEM_COUNT_KICKED] = "kicked",
	[RMEM_COUNT_PATH + RMEM_PATH_NO_BUFFER] = "no-buffer",
	[RMEM_COUNT_PATH + RMEM_PATH_NO_ROUTE] = "no-route",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_GOOD] = NULL,
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_SHORT] = "drop-short",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_VERSION] = "drop-version",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_TYPE] = "drop-type",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_MALFORMED] = "drop-malformed",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_TAG] = "drop-tag",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_WIRE + RMEM_WIRE_DAMAGED] = NULL, /* the core's */
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_STRANGER] = "drop-stranger",
	[RMEM_COUNT_PATH + RMEM_PATH_DROP_NO_CHECKSUM] = "drop-no-checksum",
	[RMEM_COUNT_DROP_STOPPED] = "drop-stopped",
	/* In the order of struct rmem_client_counters. */
	[RMEM_COUNTS] = "sent",
	"received",
	"retries",
	"timeouts",
	"lost",
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

void rmem_status_count_op(struct rmem_device *device, const struct rmem_op *op)
{
	switch (op->type) {
	case RMEM_READ:
	case RMEM_READV:
		rmem_count(device, RMEM_COUNT_READ);
		rmem_count_add(device, RMEM_COUNT_READ_BYTES, op->len);
		break;
	case RMEM_WRITE:
	case RMEM_WRITEV:
		rmem_count(device, RMEM_COUNT_WRITE);
		rmem_count_add(device, RMEM_COUNT_WRITE_BYTES, op->len);
		break;
	case RMEM_DISCARD:
		rmem_count(device, RMEM_COUNT_DISCARD);
		break;
	case RMEM_ZERO:
		rmem_count(device, RMEM_COUNT_ZERO);
		break;
	case RMEM_ATOMIC:
		rmem_count(device, RMEM_COUNT_ATOMIC);
		break;
	case RMEM_PUT:
		rmem_count(device, RMEM_COUNT_PUT);
		rmem_count_add(device, RMEM_COUNT_PUT_BYTES, op->len);
		break;
	case RMEM_FENCE:
		rmem_count(device, RMEM_COUNT_FENCE);
		break;
	}
}

/* ---- times ---- */

static const char *const time_name[RMEM_TIMES] = {
	[RMEM_TIME_READ] = "read",
	[RMEM_TIME_WRITE] = "write",
	[RMEM_TIME_OTHER] = "other",
};

const char *rmem_status_time_name(enum rmem_time which)
{
	return time_name[which];
}

void rmem_status_count_time(struct rmem_device *device, const struct rmem_op *op, u64 now_ns)
{
	enum rmem_time which = RMEM_TIME_OTHER;

	if (rmem_type_reads(op->type))
		which = RMEM_TIME_READ;
	else if (op->type == RMEM_WRITE || op->type == RMEM_WRITEV)
		which = RMEM_TIME_WRITE;

	this_cpu_inc(device->counts->time[which][base_times_bucket(now_ns - op->submitted_ns)]);
}

unsigned int rmem_status_times(struct rmem_device *device, enum rmem_time which,
			       u64 times[BASE_TIMES_BUCKETS])
{
	unsigned int bucket, end = 0;
	int cpu;

	for (bucket = 0; bucket < BASE_TIMES_BUCKETS; bucket++) {
		times[bucket] = 0;
		for_each_possible_cpu(cpu)
			times[bucket] += per_cpu_ptr(device->counts, cpu)->time[which][bucket];
		if (times[bucket])
			end = bucket + 1;
	}
	return end;
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

/* ---- /sys/block/rmbN/rmem, /sys/class/rmem/rmemN/rmem ---- */

static struct rmem_device *device_of(struct device *dev)
{
	return dev_get_drvdata(dev);
}

static ssize_t state_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", state_name[READ_ONCE(device_of(dev)->state)]);
}
static DEVICE_ATTR_RO(state);

static ssize_t node_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", device_of(dev)->wish.address.text);
}
static DEVICE_ATTR_RO(node);

static ssize_t space_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", device_of(dev)->wish.session.space);
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
