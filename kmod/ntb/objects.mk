# SPDX-License-Identifier: GPL-2.0
#
# A non-transparent bridge for virtual machines. It uses what Linux' ntb.ko exports.

obj-m += ntb_hw_ivshmem.o

ntb_hw_ivshmem-y := $(addprefix kmod/ntb/, pci.o ops.o event.o window.o pages.o bus.o)
