# SPDX-License-Identifier: GPL-2.0
#
# The command line and the daemon.

out/bin/remora: $(call objects,opt,$(REMORA_SRC) $(COMMON_SRC)) out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt $(LIB_LIBS))

# The text of each counter is in the program, which also prints it with remora export.
out/man/man7/remora-counters.7: out/bin/remora
	$(call say,MAN,$@)
	$(Q)mkdir -p $(@D) && $< __counters >$@

# Offloads call the functions of memory.c, which the program itself doesn't. Their links are libremote's.
out/bin/remora-node: $(call objects,opt,$(sort $(NODE_SRC) $(COMMON_SRC) $(LIB_SRC)) kmod/core/rmem/offload/memory.c) \
		out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt $(LIB_LIBS) -Wl$(comma)--export-dynamic-symbol=rmem_*)

# The front door of tools/offloads/kv.
out/bin/remora-kv: $(call objects,opt,$(KV_SRC) $(COMMON_SRC)) out/lib/libremote.a
	$(call say,LINK,$@)
	$(call link,opt,-lfmt $(LIB_LIBS))

# The programs that remora-node runs beside the memory, as shared objects.
OFFLOADS := $(OFFLOAD_NAMES:%=out/lib/offload/%.so)

OFFLOAD_tx := kmod/core/base/crc32c.c

define offload
out/lib/offload/$1.so: $(call objects,opt,$(call offload_src,$1) $(OFFLOAD_$1))
	$$(call say,LINK,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CC) $$(LDFLAGS) -shared $$^ -o $$@
endef
$(foreach each,$(OFFLOAD_NAMES),$(eval $(call offload,$(each))))

# Programs that use remote memory: tools/apps/NAME is out/bin/remora-NAME, linked with app_NAME_SRC and app_NAME_LIBS.
app_image_LIBS = -lturbojpeg
app_tx_SRC = kmod/core/base/crc32c.c

define app
out/bin/remora-$1: $$(call objects,opt,$$(wildcard tools/apps/$1/*.cpp) $$(COMMON_SRC) $$(app_$1_SRC)) out/lib/libremote.a
	$$(call say,LINK,$$@)
	$$(call link,opt,-lfmt $$(app_$1_LIBS) $$(LIB_LIBS))
endef
APPS := $(sort $(notdir $(patsubst %/,%,$(dir $(APPS_SRC)))))
$(foreach each,$(APPS),$(eval $(call app,$(each))))

# Plug-ins by which other programs use libremote. Neither is part of `user`: each needs headers of its own.
FRONT_FLAGS := -std=gnu11 -O2 -g -fPIC $(WARN) -Wshadow -Iinclude
NBDKIT_PLUGIN := out/lib/nbdkit/plugins/nbdkit-remora-plugin.so

nbdkit: $(NBDKIT_PLUGIN) ## a plug-in of nbdkit, which serves disks in remote memory to NBD's clients

# The plug-in looks for libremote.so two folders above itself, here and where both are installed.
$(NBDKIT_PLUGIN): tools/nbdkit/remora.c $(wildcard include/remote/*.h) out/lib/libremote.so
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(FRONT_FLAGS) -fvisibility=hidden $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared $< -Lout/lib -lremote \
		$(if $(RPATH),'-Wl$(comma)-rpath$(comma)$$ORIGIN/../..') -o $@

fio: out/lib/fio/remora-fio.so ## an engine of the installed fio, whose source it fetches

# fio's headers have parameters and signs that the project's warnings refuse.
out/lib/fio/remora-fio.so: tools/fio/remora.c tools/build/fio $(wildcard include/remote/*.h) out/lib/libremote.so
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && source=$$(tools/build/fio) && $(CC) $(FRONT_FLAGS) -D_GNU_SOURCE -isystem $$source \
		-include $$source/config-host.h $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -shared $< -Lout/lib -lremote '-Wl,-rpath,$$ORIGIN/..' -o $@

# Programs in BPF, and their loader. Offloads whose loops are all over steps are here.
BPF_OFFLOADS := $(addprefix out/lib/offload/,$(addsuffix .bpf.o,chase tree))

bpf: out/bin/remora-bpf $(BPF_OFFLOADS) ## programs in BPF for the kernel's node, and their loader

out/libbpf/libbpf.a: tools/build/libbpf
	$(call say,LIBBPF,$@)
	$(Q)$<

$(call objects,opt,$(BPF_SRC)): out/libbpf/libbpf.a
$(call objects,opt,$(BPF_SRC)): CXXFLAGS += -isystem out/libbpf/include

out/bin/remora-bpf: $(call objects,opt,$(BPF_SRC) $(SUPPORT_SRC)) out/libbpf/libbpf.a
	$(call say,LINK,$@)
	$(call link,opt,-lfmt -lelf -lz)

BPF_CFLAGS := -target bpf -mcpu=v3 -O2 -g -std=gnu11 $(WARN) $(INCLUDES) -Itools \
	-idirafter /usr/include/$(shell $(CC) -print-multiarch)

define bpf_offload
out/lib/offload/%.bpf.o: $1/%.c Makefile
	$$(call say,BPF,$$@)
	$$(Q)mkdir -p $$(@D) && $$(CLANG) $$(BPF_CFLAGS) -MMD -MP -c $$< -o $$@
endef
$(foreach each,$(wildcard tools/offloads/*/.),$(eval $(call bpf_offload,$(each:%/.=%))))

-include $(if $(compiled),$(BPF_OFFLOADS:.o=.d))
