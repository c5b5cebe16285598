/* SPDX-License-Identifier: GPL-2.0 */
#ifndef REMORA_RMEM_CHR_URING_H
#define REMORA_RMEM_CHR_URING_H

struct io_uring_cmd;

int rmem_chr_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags);
int rmem_chr_uring_start(void);
void rmem_chr_uring_stop(void);

#endif
