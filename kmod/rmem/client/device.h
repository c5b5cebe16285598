/* SPDX-License-Identifier: GPL-2.0 */
/* Life of a device: attach, detach, and all between that isn't I/O. */
#ifndef REMORA_RMEM_DEVICE_H
#define REMORA_RMEM_DEVICE_H

#include "rmem/client/types.h"

struct netlink_ext_ack;

/* Sleeps, until the device is there or a signal arrives; *index is then valid. */
int rmem_device_attach(const struct rmem_attach_params *params, u32 *index,
		       struct netlink_ext_ack *extack);
/* ops: NULL, or which device that is. */
int rmem_device_detach(const struct rmem_device_ops *ops, u32 index, bool force,
		       struct netlink_ext_ack *extack);

/*
 * Connects a character device to its restarted node. Files opened before are of another generation.
 * -ENODEV: the device is being detached. Other errors are those of attach.
 */
int rmem_device_renew(struct rmem_device *device) __must_hold(&device->calls);

/*
 * Open and release of the device's file. False: it is being detached. A plain detach is refused
 * from open up to close.
 */
bool rmem_device_open(struct rmem_device *device);
void rmem_device_close(struct rmem_device *device);

/* The first live device from *index on, or NULL; holds rmem_devices_lock if there is one. */
struct rmem_device *rmem_device_next(u32 *index);
void rmem_device_next_end(void);

/* Refuses attaches from now on, if no device is there; else false. */
bool rmem_devices_hibernate(void);
void rmem_devices_awake(void);
/* This machine's memory is that of an earlier time: all devices are LOST. Process context. */
void rmem_devices_rolled_back(void);
/* The disk's reference, an open file's. */
void rmem_device_put_late(struct rmem_device *device);

#endif
