# SPDX-License-Identifier: GPL-2.0
#
# The one door: `make help` lists the targets. Everything it makes is below out/.
#
# The protocol cores (kmod/core) are compiled once per purpose, from the same sources:
#
#	out/opt/	-O2, no float, no libc	-> out/lib, out/bin, the model checker
#	out/asan/	ASan + UBSan		-> unit tests
#	out/tsan/	TSan			-> unit tests of concurrent code
#	out/fuzz/	clang, libFuzzer	-> fuzz targets
#	out/modules/RELEASE/			-> the kernel modules (Kbuild)
#
# Each subsystem has its rules and targets in a build.mk, included below.

MAKEFLAGS += --no-builtin-rules --no-builtin-variables
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

# Where ccache is installed, clones share compiled objects. Only debug information names the clone that made one.
CCACHE := $(shell command -v ccache)
export CCACHE_NOHASHDIR = 1
export CCACHE_SLOPPINESS = pch_defines,time_macros,include_file_mtime,include_file_ctime
CC = $(CCACHE) gcc
CXX = $(CCACHE) g++
CLANG = $(CCACHE) clang
CLANGXX = $(CCACHE) clang++
AR = ar
PREFIX = /usr/local
MANDIR = $(PREFIX)/share/man
LIBDIR = $(PREFIX)/lib
# For files that Remora's own programs load.
PRIVATEDIR = $(PREFIX)/lib/remora
# A program finds the libraries that it was built with: beside it, or where it is installed with them.
RPATH = '-Wl,-rpath,$$ORIGIN/../lib'
PYTHON = python3
# Debian's folder for Python packages. Other distributions have site-packages.
PYTHONDIR = $(PREFIX)/lib/python$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')/dist-packages

# Kernel that make modules builds for without KDIR.
KERNEL = 6.12
KERNELS = 6.12 6.1 debug uml uml-debug
FUZZ_SECONDS = 600
SUITES =

DEMO = tools/lab/lab run demo

Q := $(if $(V),,@)
# Tools that call make themselves do so with a job server of their own.
alone := $(Q)env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL
say = $(if $(V),,@printf '  %-8s%s\n' '$1' '$2')

# ---- sources ------------------------------------------------------------------------------------

dirs3 = $(wildcard $1/$2 $1/*/$2 $1/*/*/$2 $1/*/*/*/$2)

CORE_SRC := $(call dirs3,kmod/core,*.c)
SUPPORT_SRC := $(wildcard libremote/support/*.cpp)
HOST_SRC := $(wildcard libremote/node/*.cpp)
SEAL_SRC := $(wildcard libremote/seal/*.cpp)
LIB_SRC := $(wildcard libremote/src/*/*.cpp) $(HOST_SRC) $(SEAL_SRC) $(SUPPORT_SRC)
LIBEQDS_SRC := $(wildcard libremote/eqds/src/*.cpp)
EQDSPERF_SRC := $(wildcard tools/eqdsperf/*.cpp)
EQDSUDP_SRC := $(wildcard libremote/eqds/udp/*.cpp)
EQDSRUN_SRC := $(wildcard tools/eqds-run/*.cpp)
KV_SRC := $(wildcard tools/remora-kv/*.cpp)
BPF_SRC := $(wildcard tools/remora-bpf/*.cpp)
COMMON_SRC := $(wildcard tools/common/*.cpp) $(SUPPORT_SRC)
REMORA_SRC := $(wildcard tools/remora/*.cpp tools/mh/*.cpp)
NODE_SRC := $(wildcard tools/remora-node/*.cpp) $(HOST_SRC) $(SEAL_SRC)
SIM_SRC := $(wildcard tools/sim/*.cpp tools/sim/*/*.cpp)
# The programs' parts that tests link: not those of the command lines, which a sanitizer makes slow to compile.
without = $(filter-out $(patsubst %,\%/%.cpp,$1),$2)
NODE_PARTS := $(call without,main options command operator status link,$(NODE_SRC))
COMMON_PARTS := $(call without,control_client,$(COMMON_SRC))
TESTABLE_SRC := $(COMMON_PARTS) $(NODE_PARTS) $(call without,main options report trace,$(SIM_SRC)) \
	tools/apps/dlrm/data.cpp tools/apps/dlrm/memo.cpp tools/apps/tx/client.cpp tools/remora-node/link.cpp \
	libremote/cmmc/wake.cpp
# test_*.cpp hold the tests, other files their shared parts; tsan_*.cpp have a build of their own.
UNIT_SRC := $(filter-out $(call dirs3,selftests/unit,tsan_*.cpp),$(call dirs3,selftests/unit,*.cpp))
LIBTEST_SRC := $(wildcard selftests/lib/*.cpp)
OFFLOADTEST_SRC := $(wildcard selftests/offloads/*.cpp)
ASAN_SRC := $(UNIT_SRC) $(TESTABLE_SRC) $(LIBTEST_SRC) $(OFFLOADTEST_SRC) $(LIB_SRC)
TSAN_UNIT_SRC := $(call dirs3,selftests/unit,tsan_*.cpp)
TSAN_SRC := $(TSAN_UNIT_SRC) $(LIBTEST_SRC) $(LIB_SRC) $(TESTABLE_SRC)
MODEL_SRC := $(call dirs3,selftests/model,*.cpp)
FUZZ_SRC := $(call dirs3,selftests/fuzz,fuzz_*.cpp)
CONFORMANCE_SRC := $(wildcard selftests/conformance/*.cpp)
BENCH_CORE_SRC := $(wildcard tools/bench/core/*.cpp)
BENCH_LIB_SRC := $(wildcard tools/bench/lib/*.cpp)
BENCH_CALLS_SRC := $(wildcard tools/bench/calls/*.cpp)
BENCH_KV_SRC := $(wildcard tools/bench/kv/*.cpp)
BENCH_TX_SRC := $(wildcard tools/bench/tx/*.cpp)
APPS_SRC := $(wildcard tools/apps/*/*.cpp)
OPT_SRC := $(LIBTEST_SRC) $(CONFORMANCE_SRC) $(COMMON_SRC) $(REMORA_SRC) $(NODE_SRC) $(SIM_SRC) $(MODEL_SRC) \
	$(BENCH_CORE_SRC) \
	$(BENCH_LIB_SRC) $(BENCH_CALLS_SRC) $(LIB_SRC) $(wildcard libremote/cmmc/*.cpp) $(LIBEQDS_SRC) $(EQDSPERF_SRC) \
	$(EQDSUDP_SRC) $(EQDSRUN_SRC) $(KV_SRC) $(BPF_SRC) $(BENCH_KV_SRC) $(BENCH_TX_SRC) $(APPS_SRC)
# Programs that nodes run beside the memory: each a folder. In tests, the folder's name is a part of their symbol.
OFFLOAD_SRC := $(wildcard tools/offloads/*/*.c)
OFFLOAD_NAMES := $(sort $(patsubst tools/offloads/%/,%,$(dir $(OFFLOAD_SRC))))
offload_src = $(wildcard tools/offloads/$1/*.c)
NBDKIT_MAN := tools/nbdkit/nbdkit-remora-plugin.1
MAN8 := $(wildcard tools/*/*.8 tools/apps/*/*.8)
MAN7 := $(wildcard tools/*/*.7)
MAN5 := $(wildcard tools/*/*.5)
MAN3 := $(wildcard libremote/man/*.3 libremote/eqds/man/*.3)

# ---- flags --------------------------------------------------------------------------------------

INCLUDES := -Iinclude -Iinclude/uapi -Ikmod
WARN := -Wall -Wextra -Werror -Wundef -Wvla -Wpointer-arith -Wwrite-strings -Wformat=2 \
	-Wimplicit-fallthrough -Wno-unused-parameter -Wno-missing-field-initializers
WARN_C := $(WARN) -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wold-style-definition \
	-Wdeclaration-after-statement
WARN_CXX := $(WARN) -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual

CORE_CFLAGS := -std=gnu11 -ffreestanding -fno-common -g $(WARN_C) $(INCLUDES)
# shadow=local: in C a function can have the name of a struct, which C++ would warn of.
# The wire headers are C and check themselves by _Static_assert, which g++ knows by another name.
CXXFLAGS_ALL := -std=c++20 -g $(WARN_CXX) -D_Static_assert=static_assert $(INCLUDES) -Ilibremote -Itools

# general-regs-only makes a float in a core a compile error, as it would be in the kernel.
opt_CC = $(CC)
opt_CXX = $(CXX)
# Position-independent, for the library is made of the same objects as the tools.
# Kbuild says why GCC shall clear and copy structs by stores.
STRUCTS_BY_STORES := -mmemset-strategy=unrolled_loop:256:noalign,libcall:-1:noalign \
	-mmemcpy-strategy=unrolled_loop:256:noalign,libcall:-1:noalign
opt_CFLAGS := -O2 -fPIC -fvisibility=hidden -mgeneral-regs-only \
	$(shell $(CC) $(STRUCTS_BY_STORES) -E -x c /dev/null >/dev/null 2>&1 && echo $(STRUCTS_BY_STORES))
opt_FLAGS := -O2 -fPIC -fvisibility=hidden
# Under sanitizers -O1 takes the compiler half as long again as -Og, and the unit tests run no faster for it.
opt_TEST_FLAGS := -g1
asan_TEST_FLAGS := -Og
tsan_TEST_FLAGS := -Og

asan_CC = $(CC)
asan_CXX = $(CXX)
# A sanitizer's report needs the lines; all of -g would take a third more of the compiler's time.
asan_FLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all

tsan_CC = $(CC)
tsan_CXX = $(CXX)
# TSan doesn't understand fences: code that relies on them has to hold without.
tsan_FLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan

fuzz_CC = $(CLANG)
fuzz_CXX = $(CLANGXX)
fuzz_FLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all -Wno-unknown-warning-option

# ---- rules --------------------------------------------------------------------------------------

# Tests read GoogleTest's header as the compiler kept it. ccache takes -fpch-preprocess to keep such objects.
GTEST_SRC := $(UNIT_SRC) $(TSAN_UNIT_SRC) $(LIBTEST_SRC) $(OFFLOADTEST_SRC) $(CONFORMANCE_SRC)

# Without these goals make reads no list of headers: while it makes modules, another one might be writing some.
compiled := $(filter-out modules modules-% kernel-% guest-tools,$(or $(MAKECMDGOALS),all))

# $(call objects,VARIANT,SOURCES)
objects = $(addprefix out/$1/,$(addsuffix .o,$(basename $2)))

# $(call tests,VARIANT,SOURCES)
define tests
$(call objects,$1,$2): private TEST_FLAGS = $($1_TEST_FLAGS) -fpch-preprocess -include out/$1/gtest.hpp
$(call objects,$1,$2): out/$1/gtest.hpp.gch

out/$1/gtest.hpp.gch: Makefile
	$$(call say,PCH,$$@)
	$$(Q)mkdir -p $$(@D) && echo '#include <gtest/gtest.h>' >out/$1/gtest.hpp
	$$(Q)$$($1_CXX) $$(CXXFLAGS_ALL) $$($1_FLAGS) $$($1_TEST_FLAGS) $$(CPPFLAGS) $$(CXXFLAGS) -MD -MP -MF out/$1/gtest.d -MT $$@ \
		-x c++-header out/$1/gtest.hpp -o $$@

-include $(if $(compiled),out/$1/gtest.d)
endef

define variant
out/$1/kmod/core/%.o: kmod/core/%.c Makefile
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$($1_CC) $$(CORE_CFLAGS) $$(if $$($1_CFLAGS),$$($1_CFLAGS),$$($1_FLAGS)) $$(CPPFLAGS) $$(CFLAGS) -MMD -MP -c $$< -o $$@

out/$1/tools/offloads/%.o: tools/offloads/%.c Makefile
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$($1_CC) -std=gnu11 -g $$(WARN_C) $$(INCLUDES) $$($1_FLAGS) $(if $(filter-out opt,$1),-Drmem_offload=offload_$$(*D)) \
		$$(CPPFLAGS) $$(CFLAGS) -MMD -MP -c $$< -o $$@

out/$1/%.o: %.cpp Makefile
	$$(call say,CXX,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$($1_CXX) $$(CXXFLAGS_ALL) $$($1_FLAGS) $$(TEST_FLAGS) $$(CPPFLAGS) $$(CXXFLAGS) -MMD -MP -c $$< -o $$@

$(call tests,$1,$(filter $(GTEST_SRC),$($2)))

out/$1/libremora_core.a: $(call objects,$1,$(CORE_SRC))
	$$(call say,AR,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $$(AR) qcsD $$@ $$^

-include $(if $(compiled),$(patsubst %.o,%.d,$(call objects,$1,$(CORE_SRC) $(OFFLOAD_SRC) $($2))))
endef

$(eval $(call variant,opt,OPT_SRC))
$(eval $(call variant,asan,ASAN_SRC))
$(eval $(call variant,tsan,TSAN_SRC))
$(eval $(call variant,fuzz,FUZZ_SRC))

# $(call link,VARIANT,LIBRARIES)
link = $(Q)mkdir -p $(@D) && $($1_CXX) $($1_FLAGS) $(LDFLAGS) $(filter %.o %.a,$^) $2 -o $@

out/lib/libremora_core.a: out/opt/libremora_core.a
	$(Q)mkdir -p $(@D) && cp $< $@

# ---- subsystems --------------------------------------------------------------------------------

comma := ,

include tools/build.mk tools/sim/build.mk libremote/build.mk libremote/eqds/build.mk selftests/build.mk tools/bench/build.mk

# ---- targets ------------------------------------------------------------------------------------

.PHONY: all user lib modules modules-all bpf nbdkit fio demo demo-marlin demo-eqds demo-edm demo-offload check style unit offloadtest tsan model conformance fuzz-build fuzz \
	bench-rmb bench-core bench-lib bench-calls bench-bpf bench-kv bench-tx bench-dlrm bench-image bench-nbdkit bench-dev bench-edm bench-marlin sim-paper sim-edm abi selftests libtest compile_commands.json install modules_install deb clean help deps guest-tools

all: user modules ## user space, and the modules for KERNEL or KDIR

user: out/lib/libremora_core.a $(USER_BIN) $(OFFLOADS) lib out/man/man3 out/man/man7/remora-counters.7 ## out/lib and out/bin

lib: $(LIB_FILES) $(EQDS_FILES) ## libremote and libeqds, usable from out/lib (PKG_CONFIG_PATH=out/lib/pkgconfig)

modules: ## out/modules/RELEASE/*.ko (KDIR=... for any kernel, else KERNEL=6.12)
	$(alone) tools/build/modules $(or $(KDIR),$(KERNEL))

modules-all: ## the modules for every kernel of the lab
	$(alone) tools/build/modules $(KERNELS)

modules-%:
	$(alone) tools/build/modules $*

kernel-%:
	$(Q)tools/lab/kernel fetch $*

guest-tools:
	$(Q)tools/lab/guest-tools >/dev/null

deps: ## install what is missing of the tools
	$(Q)tools/lab/deps

demo: ## remote memory at work, between virtual machines
	$(Q)tools/lab/deps
	+$(Q)NTB=n $(MAKE) --no-print-directory all # without: it would bring the kernel's source
	$(Q)$(DEMO)

demo-marlin: ## Marlin at work, among three machines whose RAM is in each other's PCI BARs
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory out/bin/remora out/bin/remora-cmmc-file modules
	$(Q)tools/lab/lab run ntb3 tools/lab/topo/demo_marlin.py

demo-eqds: ## nine senders to one receiver, plain and by EQDS tunnels, in a User Mode Linux
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory modules KERNEL=uml
	$(Q)tools/lab/lab run --kernel uml solo tools/lab/topo/demo_eqds.py

demo-edm: ## eight writers and a reader of one node, by udp, EQDS and EDM, in a User Mode Linux
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory out/bin/remora modules KERNEL=uml
	$(Q)tools/lab/lab run --kernel uml solo tools/lab/topo/demo_edm.py

demo-offload: ## a tree searched where it lies, by a program that the kernel verified
	$(Q)tools/lab/deps
	+$(Q)NTB=n $(MAKE) --no-print-directory out/bin/remora out/bin/remora-tree out/bin/caller bpf modules
	$(Q)tools/lab/lab run pair tools/lab/topo/demo_offload.py

check: ## tests every change has to pass (SUITES="unit model" for some, SUITES=all for all there are)
	$(Q)tools/lab/deps
	$(alone) tools/check/run $(SUITES)

style: ## layers, licences, checkpatch, sparse, clang-tidy ... (tools/style/run NAME for one)
	$(alone) tools/style/run

compile_commands.json: ## for clangd and clang-tidy
	$(alone) $(PYTHON) tools/build/compile_commands > $@.tmp && mv $@.tmp $@

install: user ## programs, library and man pages into DESTDIR/PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(MANDIR)/man8 $(DESTDIR)$(MANDIR)/man7 $(DESTDIR)$(MANDIR)/man3
	install -m 755 $(USER_BIN) $(DESTDIR)$(PREFIX)/bin
	install -d $(DESTDIR)$(PRIVATEDIR)/offload
	install -m 755 $(OFFLOADS) $(DESTDIR)$(PRIVATEDIR)/offload
	$(if $(wildcard out/bin/remora-bpf),install -m 755 out/bin/remora-bpf $(DESTDIR)$(PREFIX)/bin)
	$(if $(wildcard out/bin/remora-bpf),install -m 644 $(wildcard out/lib/offload/*.bpf.o) $(DESTDIR)$(PRIVATEDIR)/offload)
	install -m 644 $(MAN8) $(DESTDIR)$(MANDIR)/man8
	$(if $(wildcard $(NBDKIT_PLUGIN)),install -D -t $(DESTDIR)$(LIBDIR)/nbdkit/plugins $(NBDKIT_PLUGIN))
	$(if $(wildcard $(NBDKIT_PLUGIN)),install -D -m 644 -t $(DESTDIR)$(MANDIR)/man1 $(NBDKIT_MAN))
	install -D -m 644 -t $(DESTDIR)$(PYTHONDIR)/remora $(wildcard libremote/python/remora/*.py) libremote/python/remora/py.typed
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/python3-remora/examples $(wildcard libremote/python/examples/*.py)
	install -d $(DESTDIR)$(MANDIR)/man5
	install -m 644 $(MAN5) $(DESTDIR)$(MANDIR)/man5
	$(Q)tools/systemd/install "$(DESTDIR)" $(PREFIX)
	install -m 644 out/man/man3/* $(DESTDIR)$(MANDIR)/man3
	install -m 644 out/man/man7/* $(MAN7) $(DESTDIR)$(MANDIR)/man7
	install -D -m 644 tools/remora/completion/remora.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/remora
	install -D -m 644 tools/remora/completion/_remora $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions/_remora
	install -d $(DESTDIR)$(PREFIX)/share/remora/monitor
	install -m 644 tools/monitor/alerts.yaml tools/monitor/dashboard.json $(DESTDIR)$(PREFIX)/share/remora/monitor
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/remote $(DESTDIR)$(PREFIX)/include/eqds
	install -m 755 out/lib/$(LIB_SONAME) $(DESTDIR)$(LIBDIR)
	ln -sf $(LIB_SONAME) $(DESTDIR)$(LIBDIR)/libremote.so
	install -m 755 out/lib/$(CMMC_SONAME) $(DESTDIR)$(LIBDIR)
	ln -sf $(CMMC_SONAME) $(DESTDIR)$(LIBDIR)/libcmmc.so
	install -m 644 out/lib/libremote.a out/lib/libcmmc.a $(DESTDIR)$(LIBDIR)
	install -m 755 out/lib/$(EQDS_SONAME) $(DESTDIR)$(LIBDIR)
	ln -sf $(EQDS_SONAME) $(DESTDIR)$(LIBDIR)/libeqds.so
	install -m 755 out/lib/remora/libeqds-udp.so $(DESTDIR)$(PRIVATEDIR)
	install -m 644 $(wildcard include/eqds/*) $(DESTDIR)$(PREFIX)/include/eqds
	install -m 644 $(wildcard include/remote/*) $(DESTDIR)$(PREFIX)/include/remote
	install -d $(DESTDIR)$(PREFIX)/include/remora/offloads
	install -m 644 include/remora/offload.h include/remora/offload_bpf.h $(DESTDIR)$(PREFIX)/include/remora
	install -m 644 $(foreach each,$(OFFLOAD_NAMES),tools/offloads/$(each)/$(each).h) $(DESTDIR)$(PREFIX)/include/remora/offloads
	$(Q)$(call pkgconfig,$(LIBDIR),$(PREFIX)/include,) > $(DESTDIR)$(LIBDIR)/pkgconfig/libremote.pc
	$(Q)$(call eqds_pkgconfig,$(LIBDIR),$(PREFIX)/include,) > $(DESTDIR)$(LIBDIR)/pkgconfig/libeqds.pc

modules_install: ## modules into INSTALL_MOD_PATH (or DESTDIR), and depmod (KDIR=... as for modules)
	$(alone) INSTALL_MOD_PATH=$(abspath $(or $(INSTALL_MOD_PATH),$(DESTDIR))) \
		tools/build/modules --install $(or $(KDIR),$(KERNEL))

deb: ## Debian packages: out/package/*.deb (KERNEL= or KDIR=: of the prebuilt modules)
	$(Q)tools/lab/deps
	$(alone) tools/package/deb $(or $(KDIR),$(KERNEL))

deb-%:
	$(alone) tools/package/deb $*

clean: ## remove out/
	rm -rf out compile_commands.json

help: ## this list
	@sed -nE 's/^([a-z_.-]+):[^#]*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | sort | expand -t 26
	@printf '\nOne test: out/bin/unit --gtest_filter=Client.*, selftests/lab/test_X.py NAME --kernel uml, ...: see CONTRIBUTING.md\n'
