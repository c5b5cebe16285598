# SPDX-License-Identifier: GPL-2.0
#
# The two halves of the transport over Marlin: rmem_marlin.ko beside rmem.ko, rmem_node_marlin.ko beside rmem_node.ko.

obj-m += rmem_marlin.o rmem_node_marlin.o

rmem_marlin-y := kmod/rmem/transport/marlin/client.o
rmem_node_marlin-y := kmod/rmem/transport/marlin/port.o kmod/rmem/transport/marlin/port_loan.o
