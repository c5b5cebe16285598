/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_REMOTE_H
#define REMORA_RMEM_REMOTE_H

#include <linux/mutex.h>

struct rmem_device;

/* List of devices, their phase and openers; list of nodes, and of the devices of each. */
extern struct mutex rmem_devices_lock;

int rmem_remote_join(struct rmem_device *device);
void rmem_remote_leave(struct rmem_device *device);

#endif
