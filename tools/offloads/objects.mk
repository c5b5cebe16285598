# SPDX-License-Identifier: GPL-2.0 OR MIT
#
# Offloads as modules, for the kernel's memory node: a folder each.

obj-m += offload_chase.o offload_dlrm.o offload_filter.o offload_kv.o offload_tree.o offload_versions.o

offload_chase-y := tools/offloads/chase/chase.o
offload_dlrm-y := tools/offloads/dlrm/dlrm.o
offload_filter-y := tools/offloads/filter/filter.o
offload_kv-y := $(addprefix tools/offloads/kv/,change.o get.o item.o kv.o memory.o stage.o table.o)
offload_tree-y := tools/offloads/tree/tree.o
offload_versions-y := tools/offloads/versions/versions.o
