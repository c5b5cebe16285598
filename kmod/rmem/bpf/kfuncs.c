// SPDX-License-Identifier: GPL-2.0
/*
 * Functions for programs in BPF: those of remora/offload.h by other names. The verifier knows by
 * the name of a parameter that it is the size of the slice, and forbids all access beyond.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/btf_ids.h>
#include <linux/log2.h>
#include <linux/module.h>

#include "rmem/bpf/bpf.h"

#define KFUNCS_COPY_BYTES_MAX 4096U

/* remora/offload_bpf.h has the same bytes, opaque. */
struct bpf_iter_rmem_steps {
	struct rmem_call *call;
	u32 turns;
	u32 reserved;
};

__bpf_kfunc_start_defs();

__bpf_kfunc u32 bpf_rmem_function(const struct rmem_call *call)
{
	return rmem_function(call);
}

__bpf_kfunc u32 bpf_rmem_args_bytes(const struct rmem_call *call)
{
	return rmem_args_bytes(call);
}

/* The verifier takes a slice of 0 bytes for one of 1. */
__bpf_kfunc const u8 *bpf_rmem_args(struct rmem_call *call, u32 rdonly_buf_size)
{
	return rdonly_buf_size ? rmem_args(call, rdonly_buf_size) :
				 rmem_call_fails(call, -EINVAL);
}

__bpf_kfunc u8 *bpf_rmem_result(struct rmem_call *call, u32 rdwr_buf_size)
{
	return rdwr_buf_size ? rmem_result(call, rdwr_buf_size) :
			       rmem_call_fails(call, -EINVAL);
}

__bpf_kfunc u8 *bpf_rmem_scratch(struct rmem_call *call, u32 rdwr_buf_size)
{
	return rdwr_buf_size ? rmem_scratch(call, rdwr_buf_size) :
			       rmem_call_fails(call, -EINVAL);
}

__bpf_kfunc const u8 *bpf_rmem_look(struct rmem_call *call, u64 addr, u32 rdonly_buf_size)
{
	return rmem_offload_access(call) ? rmem_look(call, addr, rdonly_buf_size) : NULL;
}

/*
 * The verifier knows of no address where a slice begins. An atomic access across two cache lines
 * would stop some processors' kernels.
 */
static bool kfuncs_is_aligned(u64 addr, u32 bytes)
{
	return !(addr & (bytes < sizeof(u64) ? rounddown_pow_of_two(bytes) - 1 : sizeof(u64) - 1));
}

__bpf_kfunc u8 *bpf_rmem_at(struct rmem_call *call, u64 addr, u32 rdwr_buf_size)
{
	if (!rmem_offload_access(call))
		return NULL;
	if (!rdwr_buf_size || !kfuncs_is_aligned(addr, rdwr_buf_size))
		return rmem_call_fails(call, -EINVAL);
	return rmem_at(call, addr, rdwr_buf_size);
}

__bpf_kfunc int bpf_rmem_read(struct rmem_call *call, u64 addr, void *to, u32 to__sz)
{
	if (to__sz > KFUNCS_COPY_BYTES_MAX)
		return -EINVAL;
	return rmem_offload_access(call) ? rmem_read(call, addr, to, to__sz) : -ETIME;
}

__bpf_kfunc int bpf_rmem_write(struct rmem_call *call, u64 addr, const void *from, u32 from__sz)
{
	if (from__sz > KFUNCS_COPY_BYTES_MAX)
		return -EINVAL;
	return rmem_offload_access(call) ? rmem_write(call, addr, from, from__sz) : -ETIME;
}

__bpf_kfunc int bpf_rmem_error(const struct rmem_call *call)
{
	return rmem_error(call);
}

__bpf_kfunc void bpf_rmem_prefetch(struct rmem_call *call, u64 addr)
{
	if (rmem_offload_access(call))
		rmem_prefetch(call, addr);
}

/* The call counts turns, so loops in loops, and those that are left early, end together. */
__bpf_kfunc int bpf_iter_rmem_steps_new(struct bpf_iter_rmem_steps *it, struct rmem_call *call)
{
	it->call = call;
	rmem_offload_turn(call);
	return 0;
}

__bpf_kfunc u32 *bpf_iter_rmem_steps_next(struct bpf_iter_rmem_steps *it)
{
	return rmem_offload_turn(it->call) ? &it->turns : NULL;
}

__bpf_kfunc void bpf_iter_rmem_steps_destroy(struct bpf_iter_rmem_steps *it)
{
}

__bpf_kfunc_end_defs();

BTF_KFUNCS_START(kfuncs_ids)
BTF_ID_FLAGS(func, bpf_rmem_function, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_rmem_args_bytes, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_rmem_args, KF_TRUSTED_ARGS | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_rmem_result, KF_TRUSTED_ARGS | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_rmem_scratch, KF_TRUSTED_ARGS | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_rmem_look, KF_TRUSTED_ARGS | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_rmem_at, KF_TRUSTED_ARGS | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_rmem_read, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_rmem_write, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_rmem_error, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_rmem_prefetch, KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_iter_rmem_steps_new, KF_ITER_NEW | KF_TRUSTED_ARGS)
BTF_ID_FLAGS(func, bpf_iter_rmem_steps_next, KF_ITER_NEXT | KF_RET_NULL)
BTF_ID_FLAGS(func, bpf_iter_rmem_steps_destroy, KF_ITER_DESTROY)
BTF_KFUNCS_END(kfuncs_ids)

static const struct btf_kfunc_id_set kfuncs_set = {
	.owner = THIS_MODULE,
	.set = &kfuncs_ids,
};

int bpf_kfuncs_register(void)
{
	return register_btf_kfunc_id_set(BPF_PROG_TYPE_STRUCT_OPS, &kfuncs_set);
}
