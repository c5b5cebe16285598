/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Programs in BPF beside the memory: declarations for the files of rmem_bpf.ko.
 *
 *   main.c     module: life
 *   ops.c      a program as a whole: checked, registered with the node, replaced, removed
 *   kfuncs.c   the functions that it calls (remora/offload_bpf.h)
 *
 * A program can read all that the type information of this module tells it to find from a call. So
 * no file here includes a header of the node, which has other clients' calls and keys.
 */
#ifndef REMORA_RMEM_BPF_H
#define REMORA_RMEM_BPF_H

#include "rmem_offload_ops.h"

struct rmem_call {
	u8 opaque;
};

int bpf_ops_register(void);
int bpf_kfuncs_register(void);

/* Programs alone call these. */
struct bpf_iter_rmem_steps;

u32 bpf_rmem_function(const struct rmem_call *call);
u32 bpf_rmem_args_bytes(const struct rmem_call *call);
const u8 *bpf_rmem_args(struct rmem_call *call, u32 rdonly_buf_size);
u8 *bpf_rmem_result(struct rmem_call *call, u32 rdwr_buf_size);
u8 *bpf_rmem_scratch(struct rmem_call *call, u32 rdwr_buf_size);
const u8 *bpf_rmem_look(struct rmem_call *call, u64 addr, u32 rdonly_buf_size);
u8 *bpf_rmem_at(struct rmem_call *call, u64 addr, u32 rdwr_buf_size);
int bpf_rmem_read(struct rmem_call *call, u64 addr, void *to, u32 to__sz);
int bpf_rmem_write(struct rmem_call *call, u64 addr, const void *from, u32 from__sz);
int bpf_rmem_error(const struct rmem_call *call);
void bpf_rmem_prefetch(struct rmem_call *call, u64 addr);
int bpf_iter_rmem_steps_new(struct bpf_iter_rmem_steps *it, struct rmem_call *call);
u32 *bpf_iter_rmem_steps_next(struct bpf_iter_rmem_steps *it);
void bpf_iter_rmem_steps_destroy(struct bpf_iter_rmem_steps *it);

#endif
