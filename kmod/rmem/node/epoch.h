/* SPDX-License-Identifier: GPL-2.0 */
/* A new boot epoch when the machine's memory was rolled back. */
#ifndef REMORA_RMEM_NODE_EPOCH_H
#define REMORA_RMEM_NODE_EPOCH_H

#include <linux/types.h>

/* Once for the module; each event takes node_control. */
int node_epoch_register(void);
void node_epoch_unregister(void);
u64 node_epoch_random(void);
/* node_control. A hibernation has begun and isn't over. */
bool node_epoch_hibernates(void);

#endif
