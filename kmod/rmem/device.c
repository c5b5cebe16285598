// SPDX-License-Identifier: GPL-2.0
/*
 * Attach and detach.
 *
 *   attach: index -> remote -> sockets -> channel 0 opens -> ALLOC -> the others open -> disk
 *   detach: claim -> disk -> FREE -> channels close -> everything above, backwards
 *
 *   renew:  (device of programs, whose node restarted) channel 0 opens -> the others open
 *
 * A forced detach fails what is outstanding first, gives the region back only if the node
 * answers at once, and leaves to the last opener what it holds: disk and device, but no
 * socket, no channel, and nothing on the list.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/module.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/xarray.h>

#include "compat/compat.h"
#include "rmem/channel.h"

/* Answers to FREE and CLOSE: when they don't come in that time, the node is on its own. */
#define FREE_MS 3000U
#define FREE_FORCED_MS 1000U
#define CLOSE_MS 1000U

#define NO_ANSWER                                                                                  \
	"the node does not answer: is it started, is its UDP port open, do space id and key match?"

DEFINE_MUTEX(rmem_devices_lock); /* list of devices, their phase; list of remotes */
static DEFINE_XARRAY_ALLOC(devices); /* index -> device; rmem_devices_lock */
static LIST_HEAD(remotes);	     /* rmem_devices_lock */

/* ---- nodes ---- */

/*
 * Who holds rmem_devices_lock doesn't wait for I/O to free memory: it may be swap on a device
 * that is silent, and the forced detach that would end that wait takes the lock.
 */
static int remote_join(struct rmem_device *device)
{
	const union rmem_address *address = &device->wish.address;
	struct rmem_remote *remote, *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);

	if (!fresh)
		return -ENOMEM;
	fresh->address = *address;
	INIT_LIST_HEAD(&fresh->devices);
	rmem_window_init(&fresh->window);
	mutex_lock(&rmem_devices_lock);
	list_for_each_entry(remote, &remotes, entry) {
		if (!memcmp(&remote->address, address, sizeof(*address)))
			goto found;
	}
	remote = fresh;
	fresh = NULL;
	list_add(&remote->entry, &remotes);
found:
	list_add(&device->of_remote, &remote->devices);
	device->remote = remote;
	mutex_unlock(&rmem_devices_lock);
	kfree(fresh);
	return 0;
}

static void remote_leave(struct rmem_device *device)
{
	struct rmem_remote *remote = device->remote;

	mutex_lock(&rmem_devices_lock);
	list_del(&device->of_remote);
	if (list_empty(&remote->devices)) {
		list_del(&remote->entry);
		kfree(remote);
	}
	mutex_unlock(&rmem_devices_lock);
}

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

/* Attach's and detach's: netlink keeps the module while they run. */
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
 * The disk's. Nobody else may keep the module while this returns, so its reference goes
 * after a grace period, and the module's exit waits for such callbacks.
 */
void rmem_device_put_late(struct rmem_device *device)
{
	kref_put(&device->ref, device_release_late);
}

static struct rmem_device *device_new(const struct rmem_wish *wish)
{
	struct rmem_device *device = kzalloc(sizeof(*device), GFP_KERNEL);

	if (!device)
		return NULL;
	device->counts = alloc_percpu(struct rmem_counts);
	if (!device->counts) {
		kfree(device);
		return NULL;
	}
	__module_get(THIS_MODULE);
	device->wish = *wish;
	device->phase = RMEM_ATTACHING;
	device->state = RMEM_DEVICE_UP;
	device->announced = RMEM_DEVICE_UP;
	device->queues = wish->queues ? min(wish->queues, nr_cpu_ids) : num_online_cpus();
	device->channels = device->queues + (wish->door == &rmem_chr_door);
	mutex_init(&device->calls);
	init_waitqueue_head(&device->changed);
	rmem_status_init(device);
	kref_init(&device->ref);
	return device;
}

static int index_take(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	u32 wanted = device->wish.index;
	struct rmem_device *other;
	unsigned int noio;
	int err;

	mutex_lock(&rmem_devices_lock);
	noio = memalloc_noio_save(); /* see remote_join() */
	if (wanted == RMEM_INDEX_ANY)
		err = xa_alloc(&devices, &device->index, device, XA_LIMIT(0, RMEM_INDEX_MAX),
			       GFP_KERNEL);
	else
		err = xa_insert(&devices, wanted, device, GFP_KERNEL);
	memalloc_noio_restore(noio);
	if (!err && wanted != RMEM_INDEX_ANY)
		device->index = wanted;
	if (!err) {
		snprintf(device->name, sizeof(device->name), "%s%u", device->wish.door->name,
			 device->index);
	} else if (err == -EBUSY && wanted != RMEM_INDEX_ANY) {
		other = xa_load(&devices, wanted);
		NL_SET_ERR_MSG_FMT(extack, "%s exists: choose another index, or none",
				   other->name);
	} else if (err == -EBUSY) {
		NL_SET_ERR_MSG_FMT(extack, "all indices up to %u are taken", RMEM_INDEX_MAX);
	}
	mutex_unlock(&rmem_devices_lock);
	return err == -EBUSY ? -EEXIST : err;
}

static void index_give(struct rmem_device *device)
{
	mutex_lock(&rmem_devices_lock);
	xa_erase(&devices, device->index);
	mutex_unlock(&rmem_devices_lock);
}

static void phase_set(struct rmem_device *device, enum rmem_phase phase)
{
	mutex_lock(&rmem_devices_lock);
	device->phase = phase;
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

bool rmem_device_any(void)
{
	bool any;

	mutex_lock(&rmem_devices_lock);
	any = !xa_empty(&devices);
	mutex_unlock(&rmem_devices_lock);
	return any;
}

/* ---- channels ---- */

static void channels_free(struct rmem_device *device)
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

static int channels_new(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_channel *channel;
	unsigned int i;

	device->channel = kcalloc(device->channels, sizeof(*device->channel), GFP_KERNEL);
	if (!device->channel)
		return -ENOMEM;
	for (i = 0; i < device->channels; i++) {
		channel = rmem_channel_new(device, i);
		if (IS_ERR(channel)) {
			channels_free(device);
			if (PTR_ERR(channel) != -ENOMEM)
				NL_SET_ERR_MSG_FMT(extack,
						   "no socket to the node (error %ld): is there a route to it?",
						   PTR_ERR(channel));
			return PTR_ERR(channel);
		}
		device->channel[i] = channel;
	}
	return 0;
}

/*
 * Payload per packet: what the route's MTU leaves; whole blocks if that is at least one, so
 * that a page of swap is one packet.
 */
static int piece_choose(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_socket *socket = &device->channel[0]->socket;
	u32 below = rmem_socket_header_bytes(socket);
	u32 headers = below + RMEM_HDR_BYTES;
	bool offload;
	u32 mtu = rmem_socket_mtu_bytes(socket, &offload);

	if (!mtu) {
		NL_SET_ERR_MSG(extack, "there is no route to the node");
		return -EHOSTUNREACH;
	}
	if (mtu < headers + RMEM_PIECE_BYTES_MIN) {
		NL_SET_ERR_MSG_FMT(extack, "the route's MTU is %u, but %u is the least", mtu,
				   headers + RMEM_PIECE_BYTES_MIN);
		return -EMSGSIZE;
	}
	device->piece_bytes = min(mtu - headers, RMEM_PIECE_BYTES_MAX);
	device->piece_bytes = round_down(device->piece_bytes,
					 device->piece_bytes < RMEM_BLOCK_BYTES ? 8 :
										  RMEM_BLOCK_BYTES);
	device->datagram_bytes = min(mtu - below, RMEM_DATAGRAM_BYTES_MAX);
	/* A page that changes between its digest and the wire makes for a packet in vain. */
	device->stable_writes = device->wish.integrity != RMEM_LINK || !offload;
	return 0;
}

/* What is left of the time attach has for all its steps. */
static unsigned int left_ms(const struct rmem_device *device)
{
	long left = device->attach_end - jiffies;

	return left > 0 ? jiffies_to_msecs(left) : 0;
}

static bool channels_settled(struct rmem_device *device, unsigned int from, unsigned int end)
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

static bool channels_open(struct rmem_device *device, unsigned int from, unsigned int end)
{
	unsigned int i;

	for (i = from; i < end; i++) {
		if (rmem_channel_state(device->channel[i]) != RMEM_CHANNEL_OPEN)
			return false;
	}
	return true;
}

static int open_error(struct rmem_device *device, unsigned int from, struct netlink_ext_ack *extack)
{
	unsigned int i;

	for (i = from; i < device->channels; i++) {
		switch (READ_ONCE(device->channel[i]->client.open_status)) {
		case RMEM_OK:
			continue;
		case RMEM_BUSY:
			NL_SET_ERR_MSG(extack,
				       "the node has no session left: raise its number of sessions");
			return -EBUSY;
		default:
			NL_SET_ERR_MSG_FMT(extack, "the node refuses a session (status %u)",
					   device->channel[i]->client.open_status);
			return -EREMOTEIO;
		}
	}
	NL_SET_ERR_MSG(extack, NO_ANSWER);
	return -EHOSTDOWN;
}

/* Open channels from up to end. */
static int channels_connect(struct rmem_device *device, unsigned int from, unsigned int end,
			    struct netlink_ext_ack *extack)
{
	unsigned int i;
	long left;

	for (i = from; i < end; i++)
		rmem_channel_open(device->channel[i], device->boot);
	left = wait_event_interruptible_timeout(device->changed,
						channels_settled(device, from, end),
						msecs_to_jiffies(left_ms(device)));
	if (left < 0)
		return -EINTR;
	if (channels_open(device, from, end))
		return 0;
	if (!left)
		return open_error(device, from, extack);
	NL_SET_ERR_MSG(extack, "the node restarted meanwhile: try again");
	return -ESTALE;
}

static bool channels_closed(struct rmem_device *device)
{
	unsigned int i;

	for (i = 0; i < device->channels; i++) {
		enum rmem_client_state state = rmem_channel_state(device->channel[i]);

		if (state != RMEM_CHANNEL_CLOSED && state != RMEM_CHANNEL_LOST)
			return false;
	}
	return true;
}

static bool channels_close(struct rmem_device *device)
{
	unsigned int i;

	for (i = 0; i < device->channels; i++)
		rmem_channel_close(device->channel[i]);
	return wait_event_timeout(device->changed, channels_closed(device),
				  msecs_to_jiffies(CLOSE_MS));
}

/* ---- the region ---- */

static int region_refused(struct rmem_device *device, u8 status, struct netlink_ext_ack *extack)
{
	const struct rmem_client_node *node = &device->channel[0]->client.node;

	if (status == RMEM_NO_MEMORY) {
		NL_SET_ERR_MSG_FMT(extack,
				   "no memory, quota or region left (%llu of %llu MiB free): ask for less",
				   node->free_bytes >> 20, node->memory_bytes >> 20);
		return -ENOSPC;
	}
	if (status == RMEM_PERM) {
		NL_SET_ERR_MSG(extack, "SPACE is read-only: it has no room for a disk");
		return -EACCES;
	}
	NL_SET_ERR_MSG_FMT(extack, "the node refuses to allocate (status %u)", status);
	return -EREMOTEIO;
}

/*
 * The node keeps the region only if a later request of the same session shows that we know of it,
 * and the disk's may all go through other channels. So one does that changes nothing: a
 * discard of less than a page.
 */
static int region_confirm(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_call call = {
		.op = {
			.type = RMEM_DISCARD,
			.addr = device->addr,
			.len = RMEM_BLOCK_BYTES,
		},
	};
	int err = rmem_channel_call(device->channel[0], &call, left_ms(device));

	if (!err && call.result == RMEM_CLIENT_OK)
		return 0;
	if (!err && call.result == RMEM_CLIENT_REFUSED) {
		device->region_bytes = 0;
		NL_SET_ERR_MSG(extack, "the node took the memory back at once: try again");
		return -EAGAIN;
	}
	NL_SET_ERR_MSG(extack, "the node stopped answering while it was to allocate");
	return signal_pending(current) ? -EINTR : -EHOSTDOWN;
}

static int region_alloc(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	struct rmem_call call = {
		.op = {
			.type = RMEM_ALLOC,
			.alloc = {
				.bytes = device->wish.bytes,
				.perm = RMEM_PERM_READ | RMEM_PERM_WRITE,
			},
		},
	};
	int err;

	err = rmem_channel_call(device->channel[0], &call, left_ms(device));
	if (!err && call.result == RMEM_CLIENT_REFUSED)
		return region_refused(device, call.op.status, extack);
	if (err || call.result != RMEM_CLIENT_OK) {
		NL_SET_ERR_MSG(extack, "the node stopped answering while it was to allocate");
		return signal_pending(current) ? -EINTR : -EHOSTDOWN;
	}
	device->addr = call.op.range.addr;
	device->region_bytes = call.op.range.bytes;
	return region_confirm(device, extack);
}

/* What the first session's opening told. */
static void note_node(struct rmem_device *device)
{
	const struct rmem_client *client = &device->channel[0]->client;

	device->boot = client->boot;
	device->memory_bytes = client->node.memory_bytes;
	device->page_bytes = client->node.page_bytes;
	device->piece_bytes = client->piece;
}

/* Region and sessions; with channels that have no ops. false: the node may still hold them. */
static bool region_give_back(struct rmem_device *device, unsigned int timeout_ms)
{
	struct rmem_call call = {
		.op = {
			.type = RMEM_FREE,
			.range = { .addr = device->addr, .bytes = device->region_bytes },
		},
	};
	bool given = true;

	if (READ_ONCE(device->state) == RMEM_DEVICE_LOST)
		return true; /* it went with the node's boot */
	if (device->region_bytes)
		given = !rmem_channel_call(device->channel[0], &call, timeout_ms) &&
			(call.result == RMEM_CLIENT_OK || call.result == RMEM_CLIENT_LOST);
	/* A node that doesn't answer one doesn't answer the other. */
	return given && channels_close(device);
}

/* ---- attach ---- */

static int attach(struct rmem_device *device, struct netlink_ext_ack *extack)
{
	int err;

	device->attach_end = jiffies + msecs_to_jiffies(device->wish.timeout_ms);
	err = remote_join(device);
	if (err)
		return err;
	err = channels_new(device, extack);
	if (err)
		goto leave_remote;
	err = piece_choose(device, extack);
	if (err)
		goto free_channels;
	err = channels_connect(device, 0, 1, extack);
	if (!err)
		note_node(device);
	if (!err && device->wish.bytes)
		err = region_alloc(device, extack);
	if (!err)
		err = channels_connect(device, 1, device->channels, extack);
	if (err)
		goto give_back;
	err = device->wish.door->add(device);
	if (err) {
		NL_SET_ERR_MSG_FMT(extack, "no device could be made (error %d)", err);
		goto give_back;
	}
	return 0;

give_back:
	if (!region_give_back(device, FREE_MS) && device->region_bytes)
		pr_warn("%pISpc: a region of %llu bytes could not be given back\n",
			&device->wish.address.any, device->region_bytes);
free_channels:
	channels_free(device);
leave_remote:
	remote_leave(device);
	return err;
}

int rmem_device_attach(const struct rmem_wish *wish, u32 *index, struct netlink_ext_ack *extack)
{
	struct rmem_device *device = device_new(wish);
	int err;

	if (!device)
		return -ENOMEM;
	err = index_take(device, extack);
	if (err)
		goto put;
	err = attach(device, extack);
	if (err)
		goto give_index;
	*index = device->index;
	pr_info("%s: %llu MiB at %pISpc, %u channels, %u bytes per packet\n", device->name,
		(device->wish.bytes ?: device->memory_bytes) >> 20, &device->wish.address.any,
		device->channels, device->piece_bytes);
	phase_set(device, RMEM_LIVE);
	return 0;

give_index:
	index_give(device);
	rmem_status_end(device);
put:
	device_put(device);
	return err;
}

/* ---- renew ---- */

static int sessions_renew(struct rmem_device *device)
{
	int err;

	device->attach_end = jiffies + msecs_to_jiffies(device->wish.timeout_ms);
	device->boot = 0;
	err = piece_choose(device, NULL);
	if (!err)
		err = channels_connect(device, 0, 1, NULL);
	if (err)
		return err;
	note_node(device);
	return channels_connect(device, 1, device->channels, NULL);
}

/* With the lock, under which a channel that is lost tells the device so. */
static bool any_lost(struct rmem_device *device)
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

	/* Else channels stay until the lock is dropped; see remove. */
	if (READ_ONCE(device->gone))
		return -ENODEV;
	/* Pairs with file_connect(): who has this one doesn't see the state before LOST. */
	smp_store_release(&device->generation, device->generation + 1);
	/* After this whoever submits sees it, or LOST: the channels are ours. */
	synchronize_rcu();
	for (i = 0; i < device->channels; i++)
		rmem_channel_cancel(device->channel[i], RMEM_CLIENT_LOST);
	err = sessions_renew(device);
	if (err) {
		/* What was opened; a node that doesn't answer gives it up by itself. */
		channels_close(device);
		return READ_ONCE(device->gone) ? -ENODEV : err;
	}
	rmem_status_renewed(device);
	/* The node has restarted again, while the device was lost still. */
	if (any_lost(device))
		rmem_status_lost(device);
	return 0;
}

/* ---- detach ---- */

/* A live device becomes ours to take down. */
static struct rmem_device *device_grab(const struct rmem_door *door, u32 index,
				       struct netlink_ext_ack *extack)
{
	struct rmem_device *device;
	bool live;

	mutex_lock(&rmem_devices_lock);
	device = xa_load(&devices, index);
	if (device && door && device->wish.door != door)
		device = NULL;
	live = device && device->phase == RMEM_LIVE;
	if (live)
		device->phase = RMEM_DETACHING;
	mutex_unlock(&rmem_devices_lock);
	if (live)
		return device;
	if (device)
		NL_SET_ERR_MSG_FMT(extack, "%s is just being attached or detached", device->name);
	else
		NL_SET_ERR_MSG_FMT(extack, "there is no %s%u: 'remora status' lists them",
				   door ? door->name : "device ", index);
	return ERR_PTR(device ? -EBUSY : -ENODEV);
}

static int claim(struct rmem_device *device, bool force, struct netlink_ext_ack *extack)
{
	int err = device->wish.door->claim(device, force);

	if (err == -EBUSY)
		NL_SET_ERR_MSG_FMT(extack, "%s is in use: %s, or use force", device->name,
				   device->wish.door->in_use);
	return err;
}

static void abandon(struct rmem_device *device)
{
	unsigned int i;

	/* Seen under each channel's lock by whoever submits after the cancelling. */
	WRITE_ONCE(device->gone, true);
	for (i = 0; i < device->channels; i++)
		rmem_channel_cancel(device->channel[i], RMEM_CLIENT_CANCELLED);
}

int rmem_device_detach(const struct rmem_door *door, u32 index, bool force,
		       struct netlink_ext_ack *extack)
{
	struct rmem_device *device = device_grab(door, index, extack);
	bool given = false;
	int err;

	if (IS_ERR(device))
		return PTR_ERR(device);
	if (force)
		abandon(device);
	err = claim(device, force, extack);
	if (err) {
		phase_set(device, RMEM_LIVE);
		return err;
	}
	device->wish.door->remove(device);
	if (!force || READ_ONCE(device->state) == RMEM_DEVICE_UP)
		given = region_give_back(device, force ? FREE_FORCED_MS : FREE_MS);
	channels_free(device);
	remote_leave(device);
	index_give(device);
	rmem_status_end(device);
	if (!given) {
		pr_warn("%s: detached, but %pISpc did not answer and may still hold what it lent\n",
			device->name, &device->wish.address.any);
		NL_SET_ERR_MSG(extack,
			       "detached, but the node did not answer: it may still hold the memory");
	}
	device->wish.door->put(device);
	device_put(device);
	return 0;
}
