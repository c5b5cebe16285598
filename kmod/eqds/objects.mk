# SPDX-License-Identifier: GPL-2.0
#
# The protocol of EQDS tunnels (core_main.c). It uses what remora_core.ko exports.

obj-m += eqds_core.o

eqds_core-y := kmod/eqds/core_main.o \
	$(addprefix kmod/core/eqds/, config.o wire.o cookie.o tag.o class.o path.o proof.o flight.o sender.o drr.o receiver.o asl.o pifo.o \
		rate.o reply.o roce.o)

# `ip link add ... type eqds`: the protocol between sockets and skbs.
obj-m += eqds.o

eqds-y := $(addprefix kmod/eqds/, netdev.o ethtool.o tunnel.o memory.o xmit.o recv.o train.o whole.o reply.o rule.o key.o hook.o rdma.o pull.o udp.o icmp.o netlink.o \
	native.o native_io.o)

# `tc qdisc add ... trim`: the switch.
obj-m += sch_trim.o

sch_trim-y := kmod/eqds/trim.o
