# SPDX-License-Identifier: GPL-2.0
#
# The protocol of EQDS tunnels (core_main.c). It uses what remora_core.ko exports.

obj-m += eqds_core.o

eqds_core-y := kmod/eqds/core_main.o \
	$(addprefix kmod/core/eqds/, config.o wire.o cookie.o tag.o class.o path.o proof.o flight.o sender.o drr.o receiver.o asl.o pifo.o \
		rate.o reply.o roce.o)

# `ip link add ... type eqds`: the protocol between sockets and skbs.
obj-m += eqds.o

eqds-y := $(addprefix kmod/eqds/, table.o memory.o rule.o whole.o train.o key.o rdma.o native_rx.o native_report.o head.o unreachable.o \
	emit.o deliver.o reply.o send.o settle.o work.o life.o pull.o xmit.o recv.o icmp.o shrink.o sock.o hook.o untrack.o native_tx.o \
	configure.o native.o ethtool.o netlink.o netdev.o main.o)

# `tc qdisc add ... trim`: the switch.
obj-m += sch_trim.o

sch_trim-y := kmod/eqds/trim.o
