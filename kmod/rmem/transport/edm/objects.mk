# SPDX-License-Identifier: GPL-2.0
#
# The two halves of the transport by EDM: rmem_edm.ko beside rmem.ko, rmem_node_edm.ko beside rmem_node.ko.

obj-m += rmem_edm.o rmem_node_edm.o

rmem_edm-y := kmod/rmem/transport/edm/client.o
rmem_node_edm-y := kmod/rmem/transport/edm/port.o
