# SPDX-License-Identifier: GPL-2.0 OR MIT
#
# Offloads as modules, for the kernel's memory node: each folder's file of its name.

obj-m += offload_chase.o offload_kv.o

offload_chase-y := tools/offloads/chase/chase.o
offload_kv-y := tools/offloads/kv/kv.o
