/* SPDX-License-Identifier: GPL-2.0 */
/* The device's sockets. */
#ifndef KMOD_EQDS_SOCK_H
#define KMOD_EQDS_SOCK_H

#include "eqds/device.h"

int eqds_sock_open(struct eqds_dev *ed);
void eqds_sock_close(struct eqds_dev *ed);

#endif
