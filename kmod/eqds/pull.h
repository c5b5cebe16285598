/* SPDX-License-Identifier: GPL-2.0 */
/* Credit at the rate of the link. */
#ifndef KMOD_EQDS_PULL_H
#define KMOD_EQDS_PULL_H

#include "eqds/device.h"

int eqds_pull_set_rate(struct eqds_dev *ed, u32 mbits);
void eqds_pull_run(struct eqds_dev *ed, u64 now_ns, struct eqds_work *work);
enum hrtimer_restart eqds_pull_fire(struct hrtimer *timer);

#endif
