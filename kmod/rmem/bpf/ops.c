// SPDX-License-Identifier: GPL-2.0
/*
 * A program in BPF as a whole: struct rmem_offload_ops filled in by user space, as
 * tcp_congestion_ops is. While the kernel checks a program it calls ops_check_member() and
 * ops_init_member(); its link then calls ops_reg(), ops_update() and ops_unreg().
 *
 * The verifier proves that a program reaches no memory but its slices. It doesn't prove that the
 * program ends soon: bpf_loop(), iterators of the kernel's own, may_goto and functions that are
 * verified by themselves run for hours. So all these are refused, and helpers. That leaves loops
 * that the verifier follows to their end (a million instructions, whose accesses to memory fail
 * once they take too long), and rmem_for_steps(), which looks at the clock.
 */
#include <linux/bpf.h>
#include <linux/bpf_verifier.h>
#include <linux/btf.h>
#include <linux/filter.h>
#include <linux/module.h>

#include "rmem/bpf/bpf.h"

static bool ops_is_valid_access(int off, int size, enum bpf_access_type type,
				const struct bpf_prog *prog, struct bpf_insn_access_aux *info)
{
	return bpf_tracing_btf_ctx_access(off, size, type, prog, info);
}

static const struct bpf_func_proto *ops_get_func_proto(enum bpf_func_id id,
						       const struct bpf_prog *prog)
{
	return NULL;
}

static const struct bpf_verifier_ops ops_verifier = {
	.is_valid_access = ops_is_valid_access,
	.get_func_proto = ops_get_func_proto,
};

static int ops_init(struct btf *btf)
{
	return 0;
}

/* off: the place of a module's BTF among the program's files; 0: the kernel's own. */
static bool ops_calls_the_kernel(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg == BPF_PSEUDO_KFUNC_CALL &&
	       !insn->off;
}

static bool ops_is_may_goto(const struct bpf_insn *insn)
{
	return insn->code == (BPF_JMP | BPF_JCOND);
}

/* Each is verified by itself, so a loop of calls counts for one of them. */
static bool ops_has_global_function(const struct bpf_prog_aux *aux)
{
	u32 n;

	for (n = 1; n < aux->func_info_cnt; n++) {
		if (aux->func_info_aux[n].linkage == BTF_FUNC_GLOBAL)
			return true;
	}
	return false;
}

/* remora-bpf has words for these errnos. */
static int ops_check_member(const struct btf_type *type, const struct btf_member *member,
			    const struct bpf_prog *prog)
{
	u32 n;

	if (prog->sleepable)
		return -EDEADLK;
	if (ops_has_global_function(prog->aux))
		return -EMLINK;
	for (n = 0; n < prog->len; n++) {
		if (ops_calls_the_kernel(&prog->insnsi[n]))
			return -EOPNOTSUPP;
		if (ops_is_may_goto(&prog->insnsi[n]))
			return -ELOOP;
	}
	return 0;
}

/* 1: copied here; 0: a function, which the kernel fills in. */
static int ops_init_member(const struct btf_type *type, const struct btf_member *member,
			   void *kdata, const void *udata)
{
	u32 at = __btf_member_bit_offset(type, member) / 8;

	/* With the first member all plain data, which stands before step. */
	if (!at)
		memcpy(kdata, udata, offsetof(struct rmem_offload_ops, step));
	return at < offsetof(struct rmem_offload_ops, step);
}

static int ops_validate(void *kdata)
{
	return rmem_offload_check(kdata);
}

static int ops_reg(void *kdata, struct bpf_link *link)
{
	return rmem_offload_register(kdata, THIS_MODULE);
}

static void ops_unreg(void *kdata, struct bpf_link *link)
{
	rmem_offload_unregister(kdata);
}

static int ops_update(void *kdata, void *old_kdata, struct bpf_link *link)
{
	return rmem_offload_replace(old_kdata, kdata);
}

/* Never called: a program without a step is refused. */
static int ops_step(struct rmem_call *call)
{
	return -EINVAL;
}

static struct rmem_offload_ops ops_stubs = { .step = ops_step };

static struct bpf_struct_ops ops_type = {
	.verifier_ops = &ops_verifier,
	.init = ops_init,
	.check_member = ops_check_member,
	.init_member = ops_init_member,
	.validate = ops_validate,
	.reg = ops_reg,
	.unreg = ops_unreg,
	.update = ops_update,
	.cfi_stubs = &ops_stubs,
	.name = "rmem_offload_ops",
	.owner = THIS_MODULE,
};

int bpf_ops_register(void)
{
	return register_bpf_struct_ops(&ops_type, rmem_offload_ops);
}
