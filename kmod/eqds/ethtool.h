/* SPDX-License-Identifier: GPL-2.0 */
/* Policies and counters. */
#ifndef KMOD_EQDS_ETHTOOL_H
#define KMOD_EQDS_ETHTOOL_H

#include <linux/ethtool.h>

extern const struct ethtool_ops eqds_ethtool_ops;

#endif
