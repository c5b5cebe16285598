/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_STATUS_H
#define REMORA_RMEM_STATUS_H

#include "rmem/client/types.h"

extern const struct attribute_group *rmem_status_groups[];

int rmem_status_start(void);
void rmem_status_stop(void);
void rmem_status_init(struct rmem_device *device);
/* The device has just become LIVE: announces earlier changes. rmem_devices_lock. */
void rmem_status_live(struct rmem_device *device);
/*
 * No announcement is under way after this. From DETACHING on none follows, but its work might still
 * be queued: call this once more when no event can come.
 */
void rmem_status_end(struct rmem_device *device);

/* Any context. The node has another boot; it owes answers; it gave a sign. */
void rmem_status_lost(struct rmem_device *device);
void rmem_status_silent(struct rmem_device *device);
void rmem_status_answers(struct rmem_device *device);

/* Process context: after LOST it has new sessions. */
void rmem_status_renewed(struct rmem_device *device);

static inline void rmem_status_heard(struct rmem_device *device)
{
	if (unlikely(READ_ONCE(device->remote->silent) ||
		     READ_ONCE(device->state) == RMEM_DEVICE_DOWN))
		rmem_status_answers(device);
}

#endif
