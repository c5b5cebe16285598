# SPDX-License-Identifier: GPL-2.0
#
# The network simulator.

# The same results on every machine: no contraction to fused operations.
$(call objects,opt,$(SIM_SRC)) $(call objects,asan,$(SIM_SRC)): override CXXFLAGS += -ffp-contract=off

out/bin/remora-sim: $(call objects,opt,$(SIM_SRC) $(HOST_SRC) $(SUPPORT_SRC)) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lfmt)

sim-paper: out/bin/remora-sim ## the experiments of EQDS (NSDI'22) in the simulator: out/sim (ARGS="--only perm")
	$(Q)tools/sim/paper $(ARGS)

sim-edm: out/bin/remora-sim ## the experiments of EDM (ASPLOS'25) in the simulator: out/sim-edm (ARGS="--only sweep")
	$(Q)tools/sim/edm $(ARGS)
