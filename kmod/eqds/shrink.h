/* SPDX-License-Identifier: GPL-2.0 */
/* The shrinker of tunnels. */
#ifndef KMOD_EQDS_SHRINK_H
#define KMOD_EQDS_SHRINK_H

#include "eqds/device.h"

int eqds_shrink_open(struct eqds_dev *ed);
void eqds_shrink_close(struct eqds_dev *ed);

#endif
