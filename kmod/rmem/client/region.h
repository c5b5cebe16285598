/* SPDX-License-Identifier: GPL-2.0 */
/* A disk's region of the node's memory. Channel 0 is open, and has no other ops. */
#ifndef REMORA_RMEM_REGION_H
#define REMORA_RMEM_REGION_H

#include "rmem/client/types.h"

struct netlink_ext_ack;

/*
 * Sets addr and region_bytes. After an error region_bytes, if not 0, is still to be given back.
 * Sleeps, until attach_end at most.
 */
int rmem_region_get(struct rmem_device *device, struct netlink_ext_ack *extack);
/* False: the node might still hold it. */
bool rmem_region_free(struct rmem_device *device, unsigned int timeout_ms);

#endif
