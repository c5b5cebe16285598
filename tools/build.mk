# SPDX-License-Identifier: GPL-2.0
#
# The command line and the daemon.

out/bin/remora: $(call objects,opt,$(REMORA_SRC) $(COMMON_SRC)) out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt $(LIB_LIBS))

out/bin/remora-node: $(call objects,opt,$(NODE_SRC) $(COMMON_SRC)) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt -lpthread)
