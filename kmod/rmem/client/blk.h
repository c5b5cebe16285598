/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_BLK_H
#define REMORA_RMEM_BLK_H

struct rmem_device_ops;

extern const struct rmem_device_ops rmem_blk_device_ops;

#endif
