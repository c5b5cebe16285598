// SPDX-License-Identifier: GPL-2.0
/*
 * Nodes, as the devices that use them share them.
 *
 * A thread that holds rmem_devices_lock doesn't wait for I/O to free memory: that might be swap on
 * a silent device, and the forced detach that would end that wait takes the lock.
 */
#include <linux/slab.h>

#include "rmem/client/remote.h"
#include "rmem/client/types.h"

DEFINE_MUTEX(rmem_devices_lock); /* list of devices, their phase and openers; list of remotes */
static LIST_HEAD(remotes); /* rmem_devices_lock */

int rmem_remote_join(struct rmem_device *device)
{
	const struct rmem_attach_params *params = &device->params;
	struct rmem_remote *remote, *fresh = kzalloc(sizeof(*fresh), GFP_KERNEL);

	if (!fresh)
		return -ENOMEM;
	fresh->transport = params->transport;
	fresh->address = params->address;
	INIT_LIST_HEAD(&fresh->devices);
	rmem_base_init(&fresh->base);
	mutex_lock(&rmem_devices_lock);
	list_for_each_entry(remote, &remotes, entry) {
		if (remote->transport == params->transport &&
		    !memcmp(remote->address.bytes, params->address.bytes,
			    sizeof(params->address.bytes)))
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

void rmem_remote_leave(struct rmem_device *device)
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
