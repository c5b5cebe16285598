# SPDX-License-Identifier: GPL-2.0
#
# Benches: what they are made of, and the targets that run them.

BENCH_RMB = tools/bench/rmb
BENCH_LIB = tools/bench/lib/run
# Where tools/bench/lib/peers unpacked what bench-lib alone is built with; bench-lib says it.
PEERS =
PEERS_LIB = $(PEERS)/usr/lib/x86_64-linux-gnu
PEERS_LDFLAGS = $(if $(PEERS),-L$(PEERS_LIB) -Wl$(comma)-rpath-link$(comma)$(PEERS_LIB))
BENCH_CORE = out/bin/bench-core --benchmark_repetitions=5 --benchmark_display_aggregates_only=true \
	--benchmark_enable_random_interleaving=true

out/bin/bench-core: $(call objects,opt,$(BENCH_CORE_SRC) $(SEAL_SRC)) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lbenchmark -lfmt -lcrypto -lpthread)

$(call objects,opt,$(BENCH_LIB_SRC)): override CXXFLAGS += $(if $(PEERS),-isystem $(PEERS)/usr/include)

# Of the library what programs get, the shared one; besides, how it reads texts, and the core's allocator.
out/bin/bench-lib: $(call objects,opt,$(BENCH_LIB_SRC) $(SUPPORT_SRC) libremote/src/backend/order.cpp) out/lib/libremora_core.a \
		out/lib/libremote.so
	$(call say,LINK,$@)
	$(call link,opt,-Lout/lib -Wl$(comma)-rpath$(comma)$(CURDIR)/out/lib -lremote $(PEERS_LDFLAGS) \
		-lmemcached -lhiredis -lfmt -lpthread)

out/bin/bench-calls: $(call objects,opt,$(BENCH_CALLS_SRC) $(SUPPORT_SRC)) out/lib/libremote.so
	$(call say,LINK,$@)
	$(call link,opt,-Lout/lib -Wl$(comma)-rpath$(comma)$(CURDIR)/out/lib -lremote -lfmt -lpthread)

bench-calls: ## functions at a remora-node beside reads, without emulation (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory user out/bin/bench-calls
	$(Q)tools/bench/calls/run $(ARGS)

bench-nbdkit: ## nbdkit's plug-in beside nbdkit's memory plug-in, without emulation (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory out/bin/remora-node nbdkit
	$(Q)tools/bench/nbdkit $(ARGS)

out/bin/bench-kv: $(call objects,opt,$(BENCH_KV_SRC) $(SUPPORT_SRC)) out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lfmt $(LIB_LIBS))

bench-bpf: ## a program in BPF beside the same one in C, between emulated machines (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)NTB=n $(MAKE) --no-print-directory out/bin/remora out/bin/chaser bpf modules KERNEL=6.12
	$(Q)tools/bench/bpf $(ARGS)

out/bin/bench-tx: $(call objects,opt,$(BENCH_TX_SRC) $(filter-out %/main.cpp,$(wildcard tools/apps/tx/*.cpp)) $(SUPPORT_SRC) kmod/core/base/crc32c.c) \
		out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lfmt $(LIB_LIBS))

bench-tx: ## transactions in a chain of two nodes, beside one operation a tuple (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory user out/bin/bench-tx
	$(Q)tools/bench/tx/run $(ARGS)

bench-rmb: ## /dev/rmbN against other network block devices, side by side (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory all
	+$(Q)$(MAKE) --no-print-directory modules KERNEL=uml # for its native rows
	$(Q)$(BENCH_RMB) $(ARGS)

bench-eqds: ## EQDS tunnels beside plain, without emulation but for RDMA (ARGS="--cases throughput")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory out/bin/remora out/lib/libremote.so modules KERNEL=uml
	+$(Q)NTB=n $(MAKE) --no-print-directory modules KERNEL=6.12
	$(Q)tools/bench/eqds $(ARGS)

bench-edm: ## remote memory by EDM beside udp and EQDS, without emulation (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory out/bin/remora modules KERNEL=uml
	$(Q)tools/bench/edm $(ARGS)

bench-marlin: ## Marlin beside Linux' ntb_netdev, and beside UDP, between emulated machines (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)peers=$$(tools/bench/lib/peers) && \
		$(MAKE) --no-print-directory modules KERNEL=6.12 && \
		$(MAKE) --no-print-directory user out/bin/bench-lib PEERS=$$peers && \
		tools/bench/marlin --peers $$peers $(ARGS)

bench-core: out/bin/bench-core ## CPU nanoseconds of the protocol core (ARGS="--benchmark_filter=wire")
	$(Q)mkdir -p out/bench
	$(Q)$(BENCH_CORE) --benchmark_out=out/bench/core.json $(ARGS)

bench-lib: ## libremote beside memcached, redis and bare UDP, without emulation (ARGS="--quick" to try)
	$(Q)tools/lab/deps
	+$(Q)peers=$$(tools/bench/lib/peers) && \
		$(MAKE) --no-print-directory user out/bin/bench-lib PEERS=$$peers && \
		$(BENCH_LIB) --peers $$peers $(ARGS)

bench-dev: ## libremote by /dev/rmemN beside libremote by UDP, in the lab (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)peers=$$(tools/bench/lib/peers) && \
		$(MAKE) --no-print-directory all out/bin/bench-lib PEERS=$$peers && \
		tools/bench/dev --peers $$peers $(ARGS)

bench-kv: ## key-value tables beside memcached and redis, without emulation (ARGS="--keys 1024 --rounds 3")
	$(Q)tools/lab/deps
	+$(Q)peers=$$(tools/bench/lib/peers) && \
		$(MAKE) --no-print-directory user out/bin/bench-kv && \
		tools/bench/kv/run --peers $$peers $(ARGS)

bench-dlrm: ## sums of embedding rows at a remora-node, without emulation (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory user
	$(Q)tools/bench/dlrm $(ARGS)

bench-image: ## pictures of 1 to 64 users in remote memory, without emulation (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory user
	$(Q)tools/bench/image $(ARGS)
