/* SPDX-License-Identifier: GPL-2.0 */
/* Packets of programs. */
#ifndef KMOD_EQDS_NATIVE_TX_H
#define KMOD_EQDS_NATIVE_TX_H

#include "eqds/native_types.h"

int eqds_native_kick(struct eqds_native *native);

#endif
