/* SPDX-License-Identifier: GPL-2.0 */
/* /dev/eqds, and devices that go. */
#ifndef KMOD_EQDS_NATIVE_H
#define KMOD_EQDS_NATIVE_H

#include "eqds/device.h"

int eqds_native_register(void);
void eqds_native_unregister(void);
void eqds_native_detach(struct eqds_dev *ed);

#endif
