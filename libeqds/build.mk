# SPDX-License-Identifier: MIT
#
# libeqds: out/lib/libeqds.so, and its tool.

EQDS_SONAME = libeqds.so.1
EQDS_FILES := out/lib/$(EQDS_SONAME) out/lib/libeqds.so

out/lib/$(EQDS_SONAME): $(call objects,opt,$(LIBEQDS_SRC)) libeqds/libeqds.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) -shared -Wl,-soname,$(EQDS_SONAME) -Wl,-z,defs \
		-Wl,--version-script=libeqds/libeqds.map $(filter %.o,$^) -o $@

out/lib/libeqds.so: out/lib/$(EQDS_SONAME)
	$(Q)ln -sf $(EQDS_SONAME) $@

# Where it was built the library is found without being installed.
out/bin/eqdsperf: $(call objects,opt,$(EQDSPERF_SRC) $(SUPPORT_SRC)) out/lib/libeqds.so
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) $(filter %.o,$^) -Lout/lib -leqds -lfmt \
		'-Wl,-rpath,$$ORIGIN/../lib' -o $@
