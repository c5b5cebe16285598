# SPDX-License-Identifier: GPL-2.0
#
# edm.ko: the scheduler, and a machine's membership at one. It uses the exports of remora_core.ko.

obj-m += edm.o

edm-y := $(addprefix kmod/edm/, main.o netlink.o service.o member.o way.o) \
	$(addprefix kmod/core/edm/, demand.o match.o sched.o link.o flow.o act.o host.o wire.o)
