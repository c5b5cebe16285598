// SPDX-License-Identifier: GPL-2.0
/*
 * Attach and detach.
 *
 *   attach: index -> remote -> paths -> channel 0 opens -> region -> the others open -> disk
 *   detach: grab -> disk -> FREE, unless the region is kept -> channels close -> everything above,
 *           backwards
 *
 *   renew:  (device of programs, whose node restarted) channel 0 opens -> the others open
 *
 * A forced detach fails outstanding ops first, gives the region back only if the node answers at
 * once, and leaves to the last opener the things it holds: disk and device, but no path, no
 * channel, and nothing on the list.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "rmem/client/channel.h"
#include "rmem/client/device.h"
#include "rmem/client/region.h"
#include "rmem/client/remote.h"
#include "rmem/client/reserve.h"
#include "rmem/client/status.h"
#include "rmem/client/transport.h"

/* Answers to FREE and CLOSE: when they don't come in that time, the node is on its own. */
#define FREE_MS 3000U
#define FREE_FORCED_MS 1000U
#define CLOSE_MS 1000U

static DEFINE_XARRAY_ALLOC(devices); /* index -> device; rmem_devices_lock */
static bool hibernating;	     /* attaching is refused; rmem_devices_lock */
static unsigned int rollbacks;	     /* of this machine's memory; rmem_devices_lock */

/* ---- life of a device ---- */

static void device_free(struct rmem_device *device)
{
	free_percpu(device->counts);
	kfree_sensitive(device);
	module_put(THIS_MODULE);
}

static void device_release(struct kref *ref)
{
	device_free(container_of(ref, struct rmem_device, ref));
}

/*
 * For attach and detach only. This can put the last reference, and the module with it. The
 * module's text stays until they return: its exit unregisters the netlink family, which waits
 * for them.
 */
static void device_put(struct rmem_device *device)
{
	kref_put(&device->ref, device_release);
}

static void device_free_rcu(struct rcu_head *rcu)
{
	device_free(container_of(rcu, struct rmem_device, rcu));
}

static void device_release_late(struct kref *ref)
{
	call_rcu(&container_of(ref, struct rmem_device, ref)->rcu, device_free_rcu);
}

/*
 * The disk's. This can be the last reference to the module while the function returns, so it is put
 * after a grace period, and the module's exit waits for such callbacks.
 */
void rmem_device_put_late(struct rmem_device *device)
{
	kref_put(&device->ref, device_release_late);
}

/* The device takes over the caller's reference to the module. */
static struct rmem_device *device_new(const struct rmem_attach_params *params)
{
	struct rmem_device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return NULL;
	device->counts = alloc_percpu(struct rmem_counts);
	if (!device->counts) {
		kfree(device);
		return NULL;
	}
	device->params = *params;
	device->phase = RMEM_ATTACHING;
	device->state = RMEM_DEVICE_UP;
	device->announced = RMEM_DEVICE_UP;
	device->queues = params->queues ? min(params->queues, nr_cpu_ids) : num_online_cpus();
	device->channels = device->queues + params->ops->allocates;
	rmem_incast_share_init(&device->share);
	mutex_init(&device->calls);
	init_waitqueue_head(&device->changed);
	rmem_status_init(device);
	kref_init(&device->ref);
	return device;
}

/* The device that has this device's name, or NULL. */
static struct rmem_device *device_namesake(const struct rmem_device *device)
{
	struct rmem_device *other;
	unsigned long index;

	lockdep_assert_held(&rmem_devices_lock);
	xa_for_each(&devices, index, other) {
		if (*device->params.name && !strcmp(other->params.name, device->params.name))
			return other;
	}
	return NULL;
}

static int device_index_take(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	u32 wanted = device->params.index;
	struct rmem_device *other, *namesake;
	unsigned int noio;
	int err;

	mutex_lock(&rmem_devices_lock);
	device->rollbacks = rollbacks;
	namesake = hibernating ? NULL : device_namesake(device);
	noio = memalloc_noio_save(); /* see remote.c */
	if (hibernating)
		err = -EAGAIN;
	else if (namesake)
		err = -EEXIST;
	else if (wanted == RMEM_INDEX_ANY)
		err = xa_alloc(&devices, &device->index, device, XA_LIMIT(0, RMEM_INDEX_MAX),
			       GFP_KERNEL);
	else
		err = xa_insert(&devices, wanted, device, GFP_KERNEL);
	memalloc_noio_restore(noio);
	if (!err && wanted != RMEM_INDEX_ANY)
		device->index = wanted;
	if (!err) {
		snprintf(device->name, sizeof(device->name), "%s%u", device->params.ops->name,
			 device->index);
	} else if (namesake) {
		NL_SET_ERR_MSG_FMT(extack, "%s has the name %s: choose another",
				   namesake->name, namesake->params.name);
	} else if (err == -EBUSY && wanted != RMEM_INDEX_ANY) {
		other = xa_load(&devices, wanted);
		NL_SET_ERR_MSG_FMT(extack, "%s exists: choose another index, or none",
				   other->name);
	} else if (hibernating) {
		NL_SET_ERR_MSG(extack, "the machine is about to hibernate");
	} else if (err == -EBUSY) {
		NL_SET_ERR_MSG_FMT(extack, "all indices up to %u are taken", RMEM_INDEX_MAX);
	}
	mutex_unlock(&rmem_devices_lock);
	return err == -EBUSY ? -EEXIST : err;
}

static void device_index_give(struct rmem_device *device)
{
	mutex_lock(&rmem_devices_lock);
	xa_erase(&devices, device->index);
	mutex_unlock(&rmem_devices_lock);
}

bool rmem_device_open(struct rmem_device *device)
{
	bool may;

	mutex_lock(&rmem_devices_lock);
	may = device->phase != RMEM_DETACHING;
	device->openers += may;
	mutex_unlock(&rmem_devices_lock);
	return may;
}

void rmem_device_close(struct rmem_device *device)
{
	mutex_lock(&rmem_devices_lock);
	device->openers--;
	mutex_unlock(&rmem_devices_lock);
}

struct rmem_device *rmem_device_next(u32 *index)
{
	unsigned long at = *index;
	struct rmem_device *device;

	mutex_lock(&rmem_devices_lock);
	xa_for_each_start(&devices, at, device, at) {
		if (device->phase == RMEM_LIVE) {
			*index = at;
			return device;
		}
	}
	mutex_unlock(&rmem_devices_lock);
	return NULL;
}

void rmem_device_next_end(void)
{
	mutex_unlock(&rmem_devices_lock);
}

bool rmem_devices_hibernate(void)
{
	mutex_lock(&rmem_devices_lock);
	hibernating = xa_empty(&devices);
	mutex_unlock(&rmem_devices_lock);
	return hibernating;
}

void rmem_devices_awake(void)
{
	mutex_lock(&rmem_devices_lock);
	hibernating = false;
	mutex_unlock(&rmem_devices_lock);
}

static void device_roll_back(struct rmem_device *device)
{
	unsigned int i;

	device->rolled_back = device->region_bytes;
	for (i = 0; i < device->channels; i++)
		rmem_channel_rolled_back(device->channel[i]);
}

void rmem_devices_rolled_back(void)
{
	struct rmem_device *device;
	unsigned long index;

	mutex_lock(&rmem_devices_lock);
	rollbacks++;
	xa_for_each(&devices, index, device) {
		/* An attach that is under way looks at rollbacks when it is done. */
		if (device->phase == RMEM_LIVE)
			device_roll_back(device);
	}
	mutex_unlock(&rmem_devices_lock);
}

/* ---- channels ---- */

static void device_channels_free(struct rmem_device *device)
{
	unsigned int i;

	for (i = 0; i < device->channels; i++) {
		if (device->channel[i])
			rmem_channel_stop(device->channel[i]);
	}
	synchronize_net();
	for (i = 0; i < device->channels; i++) {
		if (device->channel[i])
			rmem_channel_free(device->channel[i]);
	}
	kfree(device->channel);
}

static int device_channels_new(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_channel *channel;
	unsigned int i;

	device->channel = kcalloc(device->channels, sizeof(*device->channel), GFP_KERNEL);
	if (!device->channel)
		return -ENOMEM;
	for (i = 0; i < device->channels; i++) {
		channel = rmem_channel_new(device, i);
		if (IS_ERR(channel)) {
			device_channels_free(device);
			if (PTR_ERR(channel) != -ENOMEM)
				NL_SET_ERR_MSG_FMT(extack,
						   "no path to the node (error %ld): is there a route to it?",
						   PTR_ERR(channel));
			return PTR_ERR(channel);
		}
		device->channel[i] = channel;
	}
	return 0;
}

/*
 * Payload per message: as much as the path carries; whole blocks if that is at least one, so that a
 * page of swap is one packet.
 */
static int device_piece_choose(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_path *path = device->channel[0]->path;
	struct rmem_limits *limits = &device->limits;
	int err = path->transport->limits(path, limits, extack);

	if (err)
		return err;
	if (device->params.session.integrity == RMEM_LINK && !limits->checks_payload) {
		NL_SET_ERR_MSG(extack, "nothing on this path checks data: use INTEGRITY digest");
		return -EINVAL;
	}
	device->piece_bytes = round_down(limits->payload_bytes,
					 limits->payload_bytes < RMEM_BLOCK_BYTES ?
						 8 :
						 RMEM_BLOCK_BYTES);
	return 0;
}

static bool device_channels_settled(struct rmem_device *device, unsigned int from, unsigned int end)
{
	unsigned int i;

	if (READ_ONCE(device->gone))
		return true;
	for (i = from; i < end; i++) {
		if (rmem_channel_state(device->channel[i]) == RMEM_CHANNEL_OPENING)
			return false;
	}
	return true;
}

static bool device_channels_open(struct rmem_device *device, unsigned int from, unsigned int end)
{
	unsigned int i;

	for (i = from; i < end; i++) {
		if (rmem_channel_state(device->channel[i]) != RMEM_CHANNEL_OPEN)
			return false;
	}
	return true;
}

static int device_say_refused(const struct rmem_device *device, u8 status,
			      struct netlink_ext_ack *extack)
{
	bool seals = device->params.session.integrity == RMEM_SEALED;

	if (status == RMEM_BUSY) {
		NL_SET_ERR_MSG(extack,
			       "the node has no session left: raise its number of sessions");
		return -EBUSY;
	}
	if (status == RMEM_PERM && !seals) {
		NL_SET_ERR_MSG(extack, "the space is for clients that seal: use INTEGRITY sealed");
		return -EACCES;
	}
	if (status == RMEM_INVALID && seals) {
		NL_SET_ERR_MSG(extack, "the node can't seal: use INTEGRITY full");
		return -EOPNOTSUPP;
	}
	NL_SET_ERR_MSG_FMT(extack, "the node refuses a session (status %u)", status);
	return -EREMOTEIO;
}

static int device_open_error(struct rmem_device *device, unsigned int from,
			     struct netlink_ext_ack *extack)
{
	unsigned int i;
	u8 status;

	for (i = from; i < device->channels; i++) {
		status = READ_ONCE(device->channel[i]->client.open_status);
		if (status != RMEM_OK)
			return device_say_refused(device, status, extack);
	}
	if (extack)
		extack->_msg = device->params.transport->no_answer;
	return -EHOSTDOWN;
}

/* Open channels from up to end. */
static int device_channels_connect(struct rmem_device *device, unsigned int from, unsigned int end,
				   struct netlink_ext_ack *extack)
{
	unsigned int i;
	long left;

	for (i = from; i < end; i++)
		rmem_channel_open(device->channel[i], device->boot);
	left = wait_event_interruptible_timeout(device->changed,
						device_channels_settled(device, from, end),
						msecs_to_jiffies(rmem_attach_left_ms(device)));
	if (left < 0)
		return -EINTR;
	if (device_channels_open(device, from, end))
		return 0;
	if (!left)
		return device_open_error(device, from, extack);
	NL_SET_ERR_MSG(extack, "the node restarted meanwhile: try again");
	return -ESTALE;
}

static bool device_channels_closed(struct rmem_device *device)
{
	unsigned int i;

	for (i = 0; i < device->channels; i++) {
		enum rmem_client_state state = rmem_channel_state(device->channel[i]);

		if (state != RMEM_CHANNEL_CLOSED && state != RMEM_CHANNEL_LOST)
			return false;
	}
	return true;
}

static bool device_channels_close(struct rmem_device *device)
{
	unsigned int i;

	for (i = 0; i < device->channels; i++)
		rmem_channel_close(device->channel[i]);
	return wait_event_timeout(device->changed, device_channels_closed(device),
				  msecs_to_jiffies(CLOSE_MS));
}

/* Copies the node's properties from the first session's OPEN. */
static void device_note_node(struct rmem_device *device)
{
	const struct rmem_client *client = &device->channel[0]->client;

	device->boot = client->boot;
	device->memory_bytes = client->node.memory_bytes;
	device->page_bytes = client->node.page_bytes;
	device->piece_bytes = client->piece;
}

/*
 * Region, unless it stays for the next client, and sessions; with channels that have no ops. false:
 * the node might still hold them.
 */
static bool device_give_back(struct rmem_device *device, unsigned int timeout_ms)
{
	bool given = true;

	if (READ_ONCE(device->state) == RMEM_DEVICE_LOST) {
		if (!device->rolled_back)
			return true; /* the node's restart freed it */
		/*
		 * A new client gives back the region that this machine, restored, no longer holds.
		 */
		device->attach_end = jiffies + msecs_to_jiffies(timeout_ms);
		if (device_channels_connect(device, 0, 1, NULL))
			return false;
	}
	if (device->region_bytes && !device->keeps)
		given = rmem_region_free(device, timeout_ms);
	/* A node that doesn't answer one doesn't answer the other. */
	return given && device_channels_close(device);
}

/* ---- attach ---- */

static int device_bring_up(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	int err;

	device->attach_end = jiffies + msecs_to_jiffies(device->params.timeout_ms);
	err = rmem_remote_join(device);
	if (err)
		return err;
	err = device_channels_new(device, extack);
	if (err)
		goto leave_remote;
	err = device_piece_choose(device, extack);
	if (err)
		goto free_channels;
	err = device_channels_connect(device, 0, 1, extack);
	if (!err)
		device_note_node(device);
	if (!err && device->params.bytes)
		err = rmem_region_get(device, extack);
	if (!err)
		err = device_channels_connect(device, 1, device->channels, extack);
	if (err)
		goto give_back;
	err = device->params.ops->add(device);
	if (err) {
		NL_SET_ERR_MSG_FMT(extack, "no device could be made (error %d)", err);
		goto give_back;
	}
	return 0;

give_back:
	if (!device_give_back(device, FREE_MS) && device->region_bytes)
		pr_warn("%s: a region of %llu bytes could not be given back\n",
			device->params.address.text, device->region_bytes);
free_channels:
	device_channels_free(device);
leave_remote:
	rmem_remote_leave(device);
	return err;
}

/* A machine with less can stand still while it swaps; reserve.h tells how. */
static void device_warn_of_min_free(const struct rmem_device *device,
				    struct netlink_ext_ack *extack)
{
	unsigned long kib = rmem_reserve_min_free_kib();

	/* Each zone's part is rounded down. */
	if (device->params.ops->kind == RMEM_KIND_DISK && kib + 64 < RMEM_MIN_FREE_KIB)
		NL_SET_ERR_MSG_FMT(extack,
				   "vm.min_free_kbytes is %lu: for swap 'sysctl vm.min_free_kbytes=%u'",
				   kib, RMEM_MIN_FREE_KIB);
}

/* The reference to the transport that params has is the device's, if it is made. */
int rmem_device_attach(const struct rmem_attach_params *params, u32 *index,
		       struct netlink_ext_ack *extack)
{
	struct rmem_device *device;
	int err;

	if (!try_module_get(THIS_MODULE)) {
		NL_SET_ERR_MSG(extack, "the module is being removed");
		return -ENODEV;
	}
	device = device_new(params);
	if (!device) {
		module_put(THIS_MODULE);
		return -ENOMEM;
	}
	err = device_index_take(device, extack);
	if (err)
		goto put;
	err = device_bring_up(device, extack);
	if (err)
		goto give_index;
	*index = device->index;
	dev_info(device->params.ops->dev(device),
		 "%llu MiB at %s:%s, %u channels, %u bytes per packet\n",
		 (device->params.bytes ?: device->memory_bytes) >> 20,
		 device->params.transport->name, device->params.address.text, device->channels,
		 device->piece_bytes);
	device_warn_of_min_free(device, extack);
	mutex_lock(&rmem_devices_lock);
	device->phase = RMEM_LIVE;
	if (device->rollbacks != rollbacks)
		device_roll_back(device);
	rmem_status_live(device);
	mutex_unlock(&rmem_devices_lock);
	return 0;

give_index:
	device_index_give(device);
	rmem_status_end(device);
put:
	device_put(device);
	return err;
}

/* ---- renew ---- */

static int device_sessions_renew(struct rmem_device *device)
{
	int err;

	device->attach_end = jiffies + msecs_to_jiffies(device->params.timeout_ms);
	device->boot = 0;
	err = device_piece_choose(device, NULL);
	if (!err)
		err = device_channels_connect(device, 0, 1, NULL);
	if (err)
		return err;
	device_note_node(device);
	return device_channels_connect(device, 1, device->channels, NULL);
}

/* With the lock, under which a channel that is lost tells the device so. */
static bool device_any_lost(struct rmem_device *device)
{
	struct rmem_channel *channel;
	unsigned int i;
	bool lost;

	for (i = 0; i < device->channels; i++) {
		channel = device->channel[i];
		spin_lock_bh(&channel->lock);
		lost = channel->client.state == RMEM_CHANNEL_LOST;
		spin_unlock_bh(&channel->lock);
		if (lost)
			return true;
	}
	return false;
}

int rmem_device_renew(struct rmem_device *device)
{
	unsigned int i;
	int err;

	lockdep_assert_held(&device->calls);
	/* If not gone, its channels stay until device->calls is dropped: chr_remove() takes it. */
	if (READ_ONCE(device->gone))
		return -ENODEV;
	/* Pairs with chr_file_connect(): who has this one doesn't see the state before LOST. */
	smp_store_release(&device->generation, device->generation + 1);
	/* From now on submitters see the new generation, or LOST, and leave the channels alone. */
	synchronize_rcu();
	for (i = 0; i < device->channels; i++)
		rmem_channel_cancel(device->channel[i], RMEM_CLIENT_LOST);
	err = device_sessions_renew(device);
	if (err) {
		/* Close the open sessions; a node that doesn't answer evicts them by itself. */
		device_channels_close(device);
		return READ_ONCE(device->gone) ? -ENODEV : err;
	}
	rmem_status_renewed(device);
	/* The node has restarted again, while the device was lost still. */
	if (device_any_lost(device))
		rmem_status_lost(device);
	return 0;
}

/* ---- detach ---- */

static void device_abandon(struct rmem_device *device)
{
	unsigned int i;

	/* Seen under each channel's lock by whoever submits after the cancelling. */
	WRITE_ONCE(device->gone, true);
	for (i = 0; i < device->channels; i++)
		rmem_channel_cancel(device->channel[i], RMEM_CLIENT_CANCELLED);
}

static bool device_is_swap(struct rmem_device *device)
{
	return device->params.ops->is_swap && device->params.ops->is_swap(device);
}

/* The live device that the caller may take down: from now on it can't be opened. */
static struct rmem_device *device_grab(const struct rmem_device_ops *ops, u32 index, bool force,
				       struct netlink_ext_ack *extack)
{
	struct rmem_device *device, *swap = NULL;
	int err = 0;

	mutex_lock(&rmem_devices_lock);
	device = xa_load(&devices, index);
	if (!device || (ops && device->params.ops != ops)) {
		NL_SET_ERR_MSG_FMT(extack, "there is no %s%u: 'remora status' lists them",
				   ops ? ops->name : "device ", index);
		err = -ENODEV;
	} else if (device->phase != RMEM_LIVE) {
		NL_SET_ERR_MSG_FMT(extack, "%s is just being attached or detached", device->name);
		err = -EBUSY;
	} else if (device->openers && !force) {
		NL_SET_ERR_MSG_FMT(extack, "%s is in use: %s, or use force", device->name,
				   device->params.ops->in_use);
		err = -EBUSY;
	} else if (force && device_is_swap(device) && READ_ONCE(device->state) == RMEM_DEVICE_UP) {
		NL_SET_ERR_MSG_FMT(extack, "%s is swap, and its node answers: swapoff it first",
				   device->name);
		err = -EBUSY;
	} else if (force && device_is_swap(device)) {
		NL_SET_ERR_MSG_FMT(extack,
				   "%s is swap: its I/O fails from now on: swapoff, detach it",
				   device->name);
		swap = device;
		kref_get(&swap->ref);
		err = -EBUSY;
	} else {
		device->phase = RMEM_DETACHING;
	}
	mutex_unlock(&rmem_devices_lock);
	if (swap) {
		device_abandon(swap);
		device_put(swap);
	}
	return err ? ERR_PTR(err) : device;
}

int rmem_device_detach(const struct rmem_device_ops *ops, u32 index, bool force,
		       struct netlink_ext_ack *extack)
{
	struct rmem_device *device = device_grab(ops, index, force, extack);
	bool given = false;

	if (IS_ERR(device))
		return PTR_ERR(device);
	if (force)
		device_abandon(device);
	/* An event must not find its device half removed. */
	rmem_status_end(device);
	device->params.ops->remove(device);
	if (!force || READ_ONCE(device->state) == RMEM_DEVICE_UP)
		given = device_give_back(device, force ? FREE_FORCED_MS : FREE_MS);
	device_channels_free(device);
	rmem_transport_put(device->params.transport);
	rmem_remote_leave(device);
	device_index_give(device);
	rmem_status_end(device);
	if (!given) {
		pr_warn("%s: detached, but %s did not answer and might still hold the memory\n",
			device->name, device->params.address.text);
		NL_SET_ERR_MSG(extack,
			       "detached, but the node did not answer: it might hold the memory");
	}
	device->params.ops->put(device);
	device_put(device);
	return 0;
}
