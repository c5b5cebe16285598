# SPDX-License-Identifier: GPL-2.0
#
# The command line and the daemon.

out/bin/remora: $(call objects,opt,$(REMORA_SRC) $(COMMON_SRC)) out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt $(LIB_LIBS))

# Offloads call the functions of memory.c, which the program itself doesn't.
out/bin/remora-node: $(call objects,opt,$(NODE_SRC) $(COMMON_SRC) kmod/core/rmem/offload/memory.c) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt -lpthread -Wl$(comma)--export-dynamic-symbol=rmem_*)

# The front door of tools/offloads/kv.
out/bin/remora-kv: $(call objects,opt,$(KV_SRC) $(COMMON_SRC)) out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lfmt $(LIB_LIBS))

# The programs that remora-node runs beside the memory, as shared objects.
OFFLOADS := $(patsubst %.c,out/lib/offload/%.so,$(notdir $(OFFLOAD_SRC)))

define offload
out/lib/offload/$(notdir $(1:.c=.so)): $(call objects,opt,$1)
	$$(call say,LINK,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CC) $$(LDFLAGS) -shared $$< -o $$@
endef
$(foreach each,$(OFFLOAD_SRC),$(eval $(call offload,$(each))))
