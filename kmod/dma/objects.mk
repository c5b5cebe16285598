# SPDX-License-Identifier: GPL-2.0
#
# A DMA engine of kernel threads. Kernels without the subsystem of DMA engines don't get it: there
# the first of these two is y, and the second is empty.

ifneq ($(CONFIG_MODULES)$(CONFIG_DMA_ENGINE),y)
obj-m += softdma.o
endif

softdma-y := $(addprefix kmod/dma/, main.o channel.o thread.o map.o)
