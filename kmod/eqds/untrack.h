/* SPDX-License-Identifier: GPL-2.0 */
/* Outer packets are not tracked. */
#ifndef KMOD_EQDS_UNTRACK_H
#define KMOD_EQDS_UNTRACK_H

#include "eqds/device.h"

int eqds_untrack_open(struct eqds_dev *ed);
void eqds_untrack_close(struct eqds_dev *ed);

#endif
