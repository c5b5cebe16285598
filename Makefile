# SPDX-License-Identifier: GPL-2.0
#
# The one door: `make help` lists what it opens. Everything it makes is below out/.
#
# The protocol cores (kmod/core) are compiled once per purpose, from the same sources:
#
#	out/opt/	-O2, no float, no libc	-> out/lib, out/bin, the model checker
#	out/asan/	ASan + UBSan		-> unit tests
#	out/tsan/	TSan			-> unit tests of what runs concurrently
#	out/fuzz/	clang, libFuzzer	-> fuzz targets
#	out/modules/RELEASE/			-> the kernel modules (Kbuild)

MAKEFLAGS += --no-builtin-rules --no-builtin-variables
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -ec
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := all

CC = gcc
CXX = g++
CLANG = clang
CLANGXX = clang++
AR = ar
PREFIX = /usr/local
MANDIR = $(PREFIX)/share/man
LIBDIR = $(PREFIX)/lib
PYTHON = python3

# What make modules builds for when KDIR doesn't say.
KERNEL = 6.12
KERNELS = 6.12 6.1 debug
FUZZ_SECONDS = 600
SUITES =

DEMO = tools/lab/lab run demo
BENCH_RMB = tools/bench/rmb
BENCH_LIB = tools/bench/lib/run
# Where tools/bench/lib/peers unpacked what bench-lib alone is built with; bench-lib says it.
PEERS =
PEERS_LIB = $(PEERS)/usr/lib/x86_64-linux-gnu
PEERS_LDFLAGS = $(if $(PEERS),-L$(PEERS_LIB) -Wl$(comma)-rpath-link$(comma)$(PEERS_LIB))
BENCH_CORE = out/bin/bench-core --benchmark_repetitions=5 --benchmark_display_aggregates_only=true \
	--benchmark_enable_random_interleaving=true

Q := $(if $(V),,@)
# Tools that call make themselves do so with a job server of their own.
alone := $(Q)env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL
say = $(if $(V),,@printf '  %-8s%s\n' '$1' '$2')

# ---- sources ------------------------------------------------------------------------------------

dirs3 = $(wildcard $1/$2 $1/*/$2 $1/*/*/$2 $1/*/*/*/$2)

CORE_SRC := $(wildcard kmod/core/*/*.c)
SUPPORT_SRC := $(wildcard libremote/support/*.cpp)
HOST_SRC := $(wildcard libremote/node/*.cpp)
LIB_SRC := $(wildcard libremote/src/*.cpp) $(HOST_SRC) $(SUPPORT_SRC)
COMMON_SRC := $(wildcard tools/common/*.cpp) $(SUPPORT_SRC)
REMORA_SRC := $(wildcard tools/remora/*.cpp)
NODE_SRC := $(wildcard tools/remora-node/*.cpp) $(HOST_SRC)
# What a test may link of the programs: all but their main().
TESTABLE_SRC := $(COMMON_SRC) $(filter-out %/main.cpp,$(REMORA_SRC) $(NODE_SRC))
# test_*.cpp hold the tests, other files what several of them share; tsan_*.cpp have a build of their own.
UNIT_SRC := $(filter-out $(call dirs3,selftests/unit,tsan_*.cpp),$(call dirs3,selftests/unit,*.cpp))
LIBTEST_SRC := $(wildcard selftests/lib/*.cpp)
ASAN_SRC := $(UNIT_SRC) $(TESTABLE_SRC) $(LIBTEST_SRC) $(LIB_SRC)
TSAN_UNIT_SRC := $(call dirs3,selftests/unit,tsan_*.cpp)
TSAN_SRC := $(TSAN_UNIT_SRC) $(LIBTEST_SRC) $(LIB_SRC) $(TESTABLE_SRC)
MODEL_SRC := $(call dirs3,selftests/model,*.cpp)
FUZZ_SRC := $(call dirs3,selftests/fuzz,fuzz_*.cpp)
CONFORMANCE_SRC := $(wildcard selftests/node/*.cpp)
BENCH_CORE_SRC := $(wildcard tools/bench/core/*.cpp)
BENCH_LIB_SRC := $(wildcard tools/bench/lib/*.cpp)
OPT_SRC := $(LIBTEST_SRC) $(CONFORMANCE_SRC) $(COMMON_SRC) $(REMORA_SRC) $(NODE_SRC) $(MODEL_SRC) $(BENCH_CORE_SRC) \
	$(BENCH_LIB_SRC) $(LIB_SRC)
MAN8 := $(wildcard tools/*/*.8)
MAN3 := $(wildcard libremote/man/*.3)

# ---- flags --------------------------------------------------------------------------------------

INCLUDES := -Iinclude -Iinclude/uapi -Ikmod
WARN := -Wall -Wextra -Werror -Wundef -Wvla -Wpointer-arith -Wwrite-strings -Wformat=2 \
	-Wimplicit-fallthrough -Wno-unused-parameter -Wno-missing-field-initializers
WARN_C := $(WARN) -Wshadow -Wmissing-prototypes -Wstrict-prototypes -Wold-style-definition \
	-Wdeclaration-after-statement
WARN_CXX := $(WARN) -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual

CORE_CFLAGS := -std=gnu11 -ffreestanding -fno-common -g $(WARN_C) $(INCLUDES)
# shadow=local: in C a function may have the name of a struct, which C++ would warn of.
# The wire headers are C and check themselves by _Static_assert, which g++ knows by another name.
CXXFLAGS_ALL := -std=c++20 -g $(WARN_CXX) -D_Static_assert=static_assert $(INCLUDES) -Ilibremote -Itools

# general-regs-only makes a float in a core a compile error, as it would be in the kernel.
opt_CC = $(CC)
opt_CXX = $(CXX)
# Position-independent, for the library is made of the same objects as the tools.
opt_CFLAGS := -O2 -fPIC -fvisibility=hidden -mgeneral-regs-only
opt_FLAGS := -O2 -fPIC -fvisibility=hidden

asan_CC = $(CC)
asan_CXX = $(CXX)
asan_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all

tsan_CC = $(CC)
tsan_CXX = $(CXX)
# Fences are not understood: what relies on them has to hold without, for TSan.
tsan_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan

fuzz_CC = $(CLANG)
fuzz_CXX = $(CLANGXX)
fuzz_FLAGS := -O1 -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined \
	-fno-sanitize-recover=all -Wno-unknown-warning-option

# ---- rules --------------------------------------------------------------------------------------

# $(call objects,VARIANT,SOURCES)
objects = $(addprefix out/$1/,$(addsuffix .o,$(basename $2)))

define variant
out/$1/kmod/core/%.o: kmod/core/%.c Makefile
	$$(call say,CC,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$($1_CC) $$(CORE_CFLAGS) $$(if $$($1_CFLAGS),$$($1_CFLAGS),$$($1_FLAGS)) $$(CFLAGS) -MMD -MP -c $$< -o $$@

out/$1/%.o: %.cpp Makefile
	$$(call say,CXX,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)$$($1_CXX) $$(CXXFLAGS_ALL) $$($1_FLAGS) $$(CXXFLAGS) -MMD -MP -c $$< -o $$@

out/$1/libremora_core.a: $(call objects,$1,$(CORE_SRC))
	$$(call say,AR,$$@)
	$$(Q)mkdir -p $$(@D)
	$$(Q)rm -f $$@ && $$(AR) rcsD $$@ $$^

-include $(patsubst %.o,%.d,$(call objects,$1,$(CORE_SRC) $($2)))
endef

UNIT_LINK := -lgtest_main -lgtest -lpthread

$(eval $(call variant,opt,OPT_SRC))
$(eval $(call variant,asan,ASAN_SRC))
$(eval $(call variant,tsan,TSAN_SRC))
$(eval $(call variant,fuzz,FUZZ_SRC))

# $(call link,VARIANT,LIBRARIES)
link = $(Q)mkdir -p $(@D) && $($1_CXX) $($1_FLAGS) $(LDFLAGS) $(filter %.o %.a,$^) $2 -o $@

out/lib/libremora_core.a: out/opt/libremora_core.a
	$(Q)mkdir -p $(@D) && cp $< $@

out/bin/remora: $(call objects,opt,$(REMORA_SRC) $(COMMON_SRC))
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt)

out/bin/remora-node: $(call objects,opt,$(NODE_SRC) $(COMMON_SRC)) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lmnl -lfmt -lpthread)

out/asan/libtools.a: $(call objects,asan,$(TESTABLE_SRC))
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) rcsD $@ $^

out/bin/unit: $(call objects,asan,$(UNIT_SRC)) out/asan/libtools.a out/asan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,asan,$(UNIT_LINK) -lmnl -lfmt)

out/bin/tsan: $(call objects,tsan,$(TSAN_UNIT_SRC)) out/tsan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,tsan,$(UNIT_LINK))

out/bin/node-conformance: $(call objects,opt,$(CONFORMANCE_SRC) $(COMMON_SRC) \
		$(filter-out %/main.cpp,$(NODE_SRC))) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lgtest -lmnl -lfmt -lpthread)

out/bin/model/%: out/opt/selftests/model/%.o out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,)

out/bin/bench-core: $(call objects,opt,$(BENCH_CORE_SRC)) out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lbenchmark -lpthread)

$(call objects,opt,$(BENCH_LIB_SRC)): override CXXFLAGS += $(if $(PEERS),-isystem $(PEERS)/usr/include)

# Of the library what programs get, the shared one; besides, how it reads texts, and the core's allocator.
out/bin/bench-lib: $(call objects,opt,$(BENCH_LIB_SRC) $(SUPPORT_SRC) libremote/src/order.cpp) out/lib/libremora_core.a \
		out/lib/libremote.so
	$(call say,LINK,$@)
	$(call link,opt,-Lout/lib -Wl$(comma)-rpath$(comma)$(CURDIR)/out/lib -lremote $(PEERS_LDFLAGS) \
		-lmemcached -lhiredis -lfmt -lpthread)

out/bin/fuzz/%: out/fuzz/selftests/fuzz/%.o out/fuzz/libremora_core.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(fuzz_CXX) $(fuzz_FLAGS) -fsanitize=fuzzer $^ -o $@

# ---- the library ----

comma := ,

LIB_VERSION = 0.1
LIB_SONAME = libremote.so.0
LIB_LIBS = -lfmt -luring -lpthread
LIB_FILES := out/lib/$(LIB_SONAME) out/lib/libremote.so out/lib/libremote.a out/lib/pkgconfig/libremote.pc

out/lib/$(LIB_SONAME): $(call objects,opt,$(LIB_SRC)) out/opt/libremora_core.a libremote/libremote.map
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CXX) $(opt_FLAGS) $(LDFLAGS) -shared -Wl,-soname,$(LIB_SONAME) -Wl,-z,defs \
		-Wl,--version-script=libremote/libremote.map $(filter %.o %.a,$^) $(LIB_LIBS) -o $@

out/lib/libremote.so: out/lib/$(LIB_SONAME)
	$(Q)ln -sf $(LIB_SONAME) $@

out/lib/libremote.a: $(call objects,opt,$(LIB_SRC) $(CORE_SRC))
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) rcsD $@ $^

# $(call pkgconfig,LIBDIR,INCLUDEDIR,MORE): a .pc file's text
pkgconfig = printf '%s\n' 'Name: libremote' 'Description: memory on other machines' 'Version: $(LIB_VERSION)' \
	'Libs: -L$1 $3-lremote' 'Libs.private: -lfmt -luring -lstdc++ -lm -lpthread' 'Cflags: -I$2'

# Not installed, the library is found where it was built.
out/lib/pkgconfig/libremote.pc: Makefile
	$(Q)mkdir -p $(@D) && $(call pkgconfig,$(CURDIR)/out/lib,$(CURDIR)/include,-Wl$(comma)-rpath$(comma)$(CURDIR)/out/lib ) > $@

out/bin/lib: $(call objects,asan,$(LIBTEST_SRC) $(LIB_SRC) $(filter-out %/main.cpp,$(NODE_SRC))) \
		$(call objects,asan,tools/common/node_report.cpp) out/asan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,asan,-lgtest $(LIB_LIBS))

out/bin/lib-tsan: $(call objects,tsan,$(LIBTEST_SRC) $(LIB_SRC) $(filter-out %/main.cpp,$(NODE_SRC))) \
		$(call objects,tsan,tools/common/node_report.cpp) out/tsan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,tsan,-lgtest $(LIB_LIBS))

# The same without a sanitizer, for the lab's machines.
out/bin/lib-lab: $(call objects,opt,$(LIBTEST_SRC) $(LIB_SRC) $(filter-out %/main.cpp,$(NODE_SRC))) \
		$(call objects,opt,tools/common/node_report.cpp) out/opt/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lgtest $(LIB_LIBS))

LIBTEST_BIN := $(if $(LIBTEST_SRC),out/bin/lib out/bin/lib-tsan)
USER_BIN := $(if $(REMORA_SRC),out/bin/remora) $(if $(NODE_SRC),out/bin/remora-node)
UNIT_BIN := $(if $(UNIT_SRC),out/bin/unit)
TSAN_BIN := $(if $(TSAN_UNIT_SRC),out/bin/tsan)
MODEL_BIN := $(MODEL_SRC:selftests/model/%.cpp=out/bin/model/%)
CONFORMANCE_BIN := $(if $(CONFORMANCE_SRC),out/bin/node-conformance)
FUZZ_BIN := $(FUZZ_SRC:selftests/fuzz/%.cpp=out/bin/fuzz/%)

# ---- targets ------------------------------------------------------------------------------------

.PHONY: all user lib modules modules-all demo check style unit tsan model conformance fuzz-build fuzz bench-rmb \
	bench-core bench-lib bench-dev selftests libtest compile_commands.json install modules_install clean help deps

all: user modules ## user space, and the modules for KERNEL or KDIR

user: out/lib/libremora_core.a $(USER_BIN) lib ## out/lib and out/bin

lib: $(LIB_FILES) ## libremote, usable from out/lib (PKG_CONFIG_PATH=out/lib/pkgconfig)

modules: ## out/modules/RELEASE/*.ko (KDIR=... for any kernel, else KERNEL=6.12)
	$(alone) tools/build/modules $(or $(KDIR),$(KERNEL))

modules-all: ## the modules for every kernel of the lab
	$(alone) tools/build/modules $(KERNELS)

deps: ## install what is missing of the tools
	$(Q)tools/lab/deps

demo: ## remote memory at work, between virtual machines
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory all
	$(Q)$(DEMO)

check: ## tests every change has to pass (SUITES="unit model" for some, SUITES=all for all there are)
	$(Q)tools/lab/deps
	$(alone) tools/check/run $(SUITES)

style: ## layers, licences, checkpatch, sparse, clang-tidy ... (tools/style/run NAME for one)
	$(alone) tools/style/run

unit: $(UNIT_BIN)
tsan: $(TSAN_BIN)
model: $(MODEL_BIN)
conformance: $(CONFORMANCE_BIN)
fuzz-build: $(FUZZ_BIN)
libtest: $(LIBTEST_BIN)
selftests: unit tsan model conformance fuzz-build libtest ## build the native tests without running them

fuzz: fuzz-build ## every fuzz target for FUZZ_SECONDS=600 each, new inputs in out/fuzz/corpus
	$(Q)for target in $(notdir $(FUZZ_BIN)); do \
		tools/check/fuzz $$target -max_total_time=$(FUZZ_SECONDS); \
	done

bench-rmb: ## /dev/rmbN against other network block devices, side by side (ARGS="--rounds 3")
	$(Q)tools/lab/deps
	+$(Q)$(MAKE) --no-print-directory all
	$(Q)$(BENCH_RMB) $(ARGS)

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

compile_commands.json: ## for clangd and clang-tidy
	$(alone) $(PYTHON) tools/build/compile_commands > $@.tmp && mv $@.tmp $@

install: user ## programs, library and man pages into DESTDIR/PREFIX
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(MANDIR)/man8 $(DESTDIR)$(MANDIR)/man3
	install -m 755 $(USER_BIN) $(DESTDIR)$(PREFIX)/bin
	install -m 644 $(MAN8) $(DESTDIR)$(MANDIR)/man8
	install -m 644 $(MAN3) $(DESTDIR)$(MANDIR)/man3
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(PREFIX)/include/remote
	install -m 755 out/lib/$(LIB_SONAME) $(DESTDIR)$(LIBDIR)
	ln -sf $(LIB_SONAME) $(DESTDIR)$(LIBDIR)/libremote.so
	install -m 644 out/lib/libremote.a $(DESTDIR)$(LIBDIR)
	install -m 644 $(wildcard include/remote/*) $(DESTDIR)$(PREFIX)/include/remote
	$(Q)$(call pkgconfig,$(LIBDIR),$(PREFIX)/include,) > $(DESTDIR)$(LIBDIR)/pkgconfig/libremote.pc

modules_install: ## modules into INSTALL_MOD_PATH (or DESTDIR), and depmod (KDIR=... as for modules)
	$(alone) INSTALL_MOD_PATH=$(abspath $(or $(INSTALL_MOD_PATH),$(DESTDIR))) \
		tools/build/modules --install $(or $(KDIR),$(KERNEL))

clean: ## remove out/
	rm -rf out compile_commands.json

help: ## this list
	@sed -nE 's/^([a-z_.-]+):[^#]*## (.*)/  \1\t\2/p' Makefile | expand -t 26
