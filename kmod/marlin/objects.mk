# SPDX-License-Identifier: GPL-2.0
#
# A client of Linux' NTB core, whose exports it uses.

obj-m += marlin.o

marlin-y := kmod/core/ring/ring.o $(addprefix kmod/core/marlin/, frames.o pair.o claim.o grants.o loans.o scatter.o locks.o) \
	$(addprefix kmod/marlin/, main.o link.o bus.o netdev.o xmit.o recv.o xdp.o spin.o messages.o loan.o ethtool.o \
		cmmc.o grant.o copy.o uring.o pin.o hrdma.o hrdma_channel.o hrdma_engine.o \
		lock.o trace.o)

# Measures bulk data without programs.
obj-m += marlin_perf.o

marlin_perf-y := kmod/marlin/perf/perf.o
