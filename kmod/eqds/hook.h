/* SPDX-License-Identifier: GPL-2.0 */
/* Packets of the link that a rule captures. */
#ifndef KMOD_EQDS_HOOK_H
#define KMOD_EQDS_HOOK_H

#include "eqds/device.h"

int eqds_hook_open(struct eqds_dev *ed);
void eqds_hook_close(struct eqds_dev *ed);

#endif
