# SPDX-License-Identifier: GPL-2.0
#
# rmem_bpf.ko: programs in BPF beside the memory. For kernels where a module can register struct_ops, with links (6.11), and
# has type information; elsewhere it isn't built. Without a kernel it is listed.

obj-$(if $(srctree),$(and $(CONFIG_BPF_JIT),$(CONFIG_DEBUG_INFO_BTF_MODULES),$(shell grep -s \
	'update.*old_kdata$(comma) struct bpf_link' $(srctree)/include/linux/bpf.h),m),m) += rmem_bpf.o

rmem_bpf-y := $(addprefix kmod/rmem/bpf/, main.o ops.o kfuncs.o)
