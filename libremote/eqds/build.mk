# SPDX-License-Identifier: MIT
#
# libeqds: out/lib/libeqds.so, its pkg-config file, and its tool.

EQDS_SONAME = libeqds.so.0
EQDS_FILES := out/lib/$(EQDS_SONAME) out/lib/libeqds.so out/lib/pkgconfig/libeqds.pc

out/lib/$(EQDS_SONAME): $(call objects,opt,$(LIBEQDS_SRC)) libremote/eqds/libeqds.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) -shared -Wl,-soname,$(EQDS_SONAME) -Wl,-z,defs \
		-Wl,--version-script=libremote/eqds/libeqds.map $(filter %.o,$^) -o $@

out/lib/libeqds.so: out/lib/$(EQDS_SONAME)
	$(Q)ln -sf $(EQDS_SONAME) $@

# $(call eqds_pkgconfig,LIBDIR,INCLUDEDIR,MORE): the .pc file's text
eqds_pkgconfig = printf '%s\n' 'Name: libeqds' 'Description: packets through EQDS tunnels' 'Version: 0.1' \
	'Libs: -L$1 $3-leqds' 'Cflags: -I$2'

out/lib/pkgconfig/libeqds.pc: Makefile libremote/eqds/build.mk
	$(Q)mkdir -p $(@D) && \
		$(call eqds_pkgconfig,$(CURDIR)/out/lib,$(CURDIR)/include,-Wl$(comma)-rpath$(comma)$(CURDIR)/out/lib ) > $@

# Both halves of the UDP layer include its headers as udp/...
out/opt/libremote/eqds/udp/%.o out/opt/tools/eqds-run/%.o: CXXFLAGS += -Ilibremote/eqds

# Preloaded into programs, so it needs nothing but the C library, and shows them nothing but socket functions: the
# C++ runtime in it must not stand in for theirs.
out/lib/remora/libeqds-udp.so: $(call objects,opt,$(EQDSUDP_SRC))
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) -shared -static-libstdc++ -static-libgcc \
		-Wl,--exclude-libs,ALL -Wl,-z,defs $(filter %.o,$^) -o $@

out/bin/eqds-run: $(call objects,opt,$(EQDSRUN_SRC) $(SUPPORT_SRC)) out/lib/libeqds.so out/lib/remora/libeqds-udp.so
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) $(filter %.o,$(filter-out %.so,$^)) -Lout/lib -leqds -lfmt \
		$(RPATH) -o $@

# Where it was built the library is found without being installed.
out/bin/eqdsperf: $(call objects,opt,$(EQDSPERF_SRC) $(SUPPORT_SRC)) out/lib/libeqds.so
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) $(filter %.o,$^) -Lout/lib -leqds -lfmt \
		$(RPATH) -o $@
