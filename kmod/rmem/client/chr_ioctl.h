/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_CHR_IOCTL_H
#define REMORA_RMEM_CHR_IOCTL_H

struct file;

long rmem_chr_ioctl(struct file *file, unsigned int cmd, unsigned long arg);

#endif
