# SPDX-License-Identifier: MIT
#
# The library: out/lib/libremote.so, .a, and its pkg-config file.

LIB_VERSION = 0.1
LIB_SONAME = libremote.so.0
LIB_LIBS = -luring -lcrypto -lpthread
LIB_FILES := out/lib/$(LIB_SONAME) out/lib/libremote.so out/lib/libremote.a out/lib/pkgconfig/libremote.pc

# Threads of its own run on after dlclose(): nodelete.
out/lib/$(LIB_SONAME): $(call objects,opt,$(LIB_SRC)) out/opt/libremora_core.a libremote/libremote.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) -shared -Wl,-soname,$(LIB_SONAME) -Wl,-z,defs \
		-Wl,-z,nodelete -Wl,--version-script=libremote/libremote.map $(filter %.o %.a,$^) $(LIB_LIBS) -o $@

out/lib/libremote.so: out/lib/$(LIB_SONAME)
	$(Q)ln -sf $(LIB_SONAME) $@

# One object, which has the names of libremote.map alone: a program can have others of its own. Names that C++ has
# once in a program aren't localized before they are weak; names the object asks others for stay strong, or a linker
# could leave them at 0.
LIB_CORE_SRC := $(filter kmod/core/base/% kmod/core/edm/% kmod/core/ring/% kmod/core/rmem/%,$(CORE_SRC))
out/lib/libremote.a: $(call objects,opt,$(LIB_SRC) $(LIB_CORE_SRC)) libremote/libremote.map
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && ld -r --force-group-allocation $(filter %.o,$^) -o out/opt/libremote.o && \
		sed -n 's/^\t\(remote_.*\);/\1/p' libremote/libremote.map > out/opt/libremote.names && \
		nm --defined-only -j out/opt/libremote.o | sed -n '/^_Z/p' > out/opt/libremote.weak && \
		objcopy --weaken-symbols=out/opt/libremote.weak out/opt/libremote.o && \
		objcopy --keep-global-symbols=out/opt/libremote.names out/opt/libremote.o && $(AR) qcsD $@ out/opt/libremote.o

# Copies between programs of two machines, by /dev/cmmc: a library of its own.
CMMC_SONAME = libcmmc.so.0
CMMC_SRC := $(wildcard libremote/cmmc/*.cpp)
LIB_FILES += out/lib/$(CMMC_SONAME) out/lib/libcmmc.so out/lib/libcmmc.a

out/lib/$(CMMC_SONAME): $(call objects,opt,$(CMMC_SRC)) libremote/cmmc/libcmmc.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) -shared -Wl,-soname,$(CMMC_SONAME) -Wl,-z,defs \
		-Wl,-z,nodelete -Wl,--version-script=libremote/cmmc/libcmmc.map $(filter %.o,$^) -o $@

out/lib/libcmmc.so: out/lib/$(CMMC_SONAME)
	$(Q)ln -sf $(CMMC_SONAME) $@

out/lib/libcmmc.a: $(call objects,opt,$(CMMC_SRC))
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) qcsD $@ $^

out/bin/remora-cmmc-file: libremote/examples/cmmc_file.c out/lib/libcmmc.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -O2 $(WARN_C) -Iinclude $^ -o $@

# For the lab's machines; elsewhere as README.md says.
out/bin/quickstart: libremote/examples/quickstart.c out/lib/libremote.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -O2 $(WARN_C) -Iinclude $^ $(LIB_LIBS) -lstdc++ -lm -o $@

# $(call pkgconfig,LIBDIR,INCLUDEDIR,MORE): a .pc file's text
pkgconfig = printf '%s\n' 'Name: libremote' 'Description: memory on other machines' 'Version: $(LIB_VERSION)' \
	'Libs: -L$1 $3-lremote' 'Libs.private: -luring -lcrypto -lstdc++ -lm -lpthread' 'Cflags: -I$2'

# Not installed, the library is found where it was built.
out/lib/pkgconfig/libremote.pc: Makefile libremote/build.mk
	$(Q)mkdir -p $(@D) && $(call pkgconfig,$(CURDIR)/out/lib,$(CURDIR)/include,-Wl$(comma)-rpath$(comma)$(CURDIR)/out/lib ) > $@

# ---- the interface ----------------------------------------------------------------------------

# The record of each library's exports and their types; selftests/lib holds the libraries to it.
ABI_FLAGS = --exported-interfaces-only --drop-private-types --no-show-locs --no-corpus-path --no-comp-dir-path
abi: lib ## record the libraries' interfaces as they are now, after a change of them that CHANGES.md tells
	$(Q)for each in libremote:remote libcmmc:remote libeqds:eqds; do \
		abidw $(ABI_FLAGS) --headers-dir include/$${each#*:} out/lib/$${each%:*}.so > out/abi.xml && \
			mv out/abi.xml selftests/lib/abi/$${each%:*}.xml || exit; \
	done

# ---- the manual -------------------------------------------------------------------------------

# A page's NAME line lists all it is about; each other name there is a page that leads to it.
out/man/man3: $(MAN3) libremote/build.mk
	$(call say,MAN,$@)
	$(Q)rm -rf $@ && mkdir -p $@ && cp $(MAN3) $@ && for page in $(MAN3); do \
		for name in $$(sed -n '/^\.SH NAME/{n;s/ \\-.*//;s/,//g;p;q}' $$page); do \
			[ -e $@/$$name.3 ] || echo ".so man3/$${page##*/}" > $@/$$name.3; \
		done; \
	done
