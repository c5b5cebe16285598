# SPDX-License-Identifier: GPL-2.0
#
# Three modules; rmem_node.ko and rmem.ko use the exports of remora_core.ko (core_main.c):
#
#	rmem_node.ko   rmem.ko		memory node | client and its devices
#	       \         /
#	     remora_core.ko		base, and the messages both ends share

obj-m += remora_core.o rmem_node.o rmem.o

base := kmod/core/base
core := kmod/core/rmem
rmem := kmod/rmem

remora_core-y := $(addprefix $(base)/, siphash.o crc32c.o hchacha.o) \
	$(addprefix $(core)/, types.o wire.o datagram.o plain.o seal.o) \
	$(addprefix $(rmem)/, core_main.o $(addprefix carrier/, cipher.o skb.o socket.o record.o))

rmem_node-y := $(addprefix $(core)/node/, atomic.o table.o alloc.o span.o name.o pool.o space.o traffic.o session.o node.o \
		request.o call.o call_session.o lanes.o queue.o) \
	$(addprefix $(core)/offload/, run.o memory.o) \
	$(addprefix $(rmem)/node/, main.o host.o request.o reply.o ports.o slow.o calls.o programs.o steps.o mem.o epoch.o count.o \
		netlink.o) \
	$(addprefix $(rmem)/transport/udp/, port.o answer.o outbox.o route.o)

rmem-y := $(addprefix $(core)/client/, seq.o rtt.o loss.o window.o incast.o op.o client.o session.o send.o) \
	$(addprefix $(rmem)/client/, main.o transport.o remote.o device.o region.o reserve.o status.o count.o trace.o channel.o blk.o chr.o chr_op.o \
		chr_data.o chr_uring.o chr_ioctl.o netlink.o) \
	$(addprefix $(rmem)/transport/udp/, udp.o address.o packet.o)
