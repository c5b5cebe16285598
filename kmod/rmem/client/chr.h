/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_CHR_H
#define REMORA_RMEM_CHR_H

struct rmem_device_ops;

extern const struct rmem_device_ops rmem_chr_device_ops;

int rmem_chr_start(void);
void rmem_chr_stop(void);

#endif
