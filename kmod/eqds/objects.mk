# SPDX-License-Identifier: GPL-2.0
#
# One module: the protocol of EQDS tunnels (core_main.c). It uses what remora_core.ko exports.

obj-m += eqds_core.o

eqds_core-y := kmod/eqds/core_main.o \
	$(addprefix kmod/core/eqds/, config.o wire.o cookie.o class.o path.o sender.o drr.o receiver.o asl.o pifo.o \
		rate.o)
