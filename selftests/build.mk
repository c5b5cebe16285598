# SPDX-License-Identifier: GPL-2.0
#
# The native tests: unit, tsan, models, conformance, fuzz targets, and the library's suite.

UNIT_LINK := -lgtest_main -lgtest -lpthread

out/asan/libtools.a: $(call objects,asan,$(TESTABLE_SRC))
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) qcsD $@ $^

out/bin/unit: $(call objects,asan,$(UNIT_SRC) $(OFFLOAD_SRC)) out/asan/libtools.a out/asan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,asan,$(UNIT_LINK) -lmnl -lfmt -lcrypto)

# Offloads over memory of the tests' own, each in a program with its sources alone: out/bin/offload/test_kv.
OFFLOADTEST_tx_log := tools/offloads/tx/log.c kmod/core/base/crc32c.c
OFFLOADTEST_tx_chain := $(call offload_src,tx) kmod/core/base/crc32c.c

define offload_test
out/bin/offload/test_$1: $$(call objects,asan,selftests/offloads/test_$1.cpp $$(or $$(OFFLOADTEST_$1),$$(call offload_src,$1)))
	$$(call say,LINK,$$@)
	$$(call link,asan,$$(UNIT_LINK))
endef
OFFLOADTESTS := $(OFFLOADTEST_SRC:selftests/offloads/test_%.cpp=%)
$(foreach each,$(OFFLOADTESTS),$(eval $(call offload_test,$(each))))

# For the lab's machines.
out/bin/chaser out/bin/caller: out/bin/%: selftests/lab/%.c tools/offloads/chase/chase.h out/lib/libremote.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(CC) -O2 $(WARN) -Iinclude -Itools $(filter %.c %.a,$^) $(LIB_LIBS) -lstdc++ -lm -o $@

out/bin/tsan: $(call objects,tsan,$(TSAN_UNIT_SRC)) out/tsan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,tsan,$(UNIT_LINK))

out/bin/node-conformance: $(call objects,opt,$(CONFORMANCE_SRC) $(COMMON_PARTS) $(NODE_PARTS)) \
		out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lgtest -lmnl -lfmt -lcrypto -lpthread)

out/bin/model/%: out/opt/selftests/model/%.o out/lib/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,)

out/bin/eqds-replay: $(call objects,asan,selftests/replay/eqds_replay.cpp) out/asan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,asan,)

out/bin/fuzz/fuzz_kv: $(call objects,fuzz,$(call offload_src,kv))

out/bin/fuzz/%: out/fuzz/selftests/fuzz/%.o out/fuzz/libremora_core.a
	$(call say,LINK,$@)
	$(Q)mkdir -p $(@D) && $(fuzz_CXX) $(fuzz_FLAGS) -fsanitize=fuzzer $^ -o $@

LIB_PARTS := $(LIBTEST_SRC) $(LIB_SRC) $(NODE_PARTS) tools/common/listener.cpp

out/bin/lib: $(call objects,asan,$(LIB_PARTS)) out/asan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,asan,-lgtest -lfmt $(LIB_LIBS))

out/bin/lib-tsan: $(call objects,tsan,$(LIB_PARTS)) out/tsan/libremora_core.a
	$(call say,LINK,$@)
	$(call link,tsan,-lgtest -lfmt $(LIB_LIBS))

# The same without a sanitizer, for the lab's machines.
out/bin/lib-lab: $(call objects,opt,$(LIB_PARTS)) out/opt/libremora_core.a
	$(call say,LINK,$@)
	$(call link,opt,-lgtest -lfmt $(LIB_LIBS))

LIBTEST_BIN := $(if $(LIBTEST_SRC),out/bin/lib out/bin/lib-tsan)
USER_BIN := $(if $(REMORA_SRC),out/bin/remora) $(if $(NODE_SRC),out/bin/remora-node) $(if $(SIM_SRC),out/bin/remora-sim) \
	out/bin/eqdsperf out/bin/eqds-run $(if $(KV_SRC),out/bin/remora-kv) \
	$(APPS:%=out/bin/remora-%)
OFFLOADTEST_BIN := $(OFFLOADTESTS:%=out/bin/offload/test_%)
UNIT_BIN := $(if $(UNIT_SRC),out/bin/unit)
TSAN_BIN := $(if $(TSAN_UNIT_SRC),out/bin/tsan)
MODEL_BIN := $(MODEL_SRC:selftests/model/%.cpp=out/bin/model/%)
CONFORMANCE_BIN := $(if $(CONFORMANCE_SRC),out/bin/node-conformance)
FUZZ_BIN := $(FUZZ_SRC:selftests/fuzz/%.cpp=out/bin/fuzz/%)

unit: $(UNIT_BIN)
tsan: $(TSAN_BIN)
model: $(MODEL_BIN)
conformance: $(CONFORMANCE_BIN)
fuzz-build: $(FUZZ_BIN)
libtest: $(LIBTEST_BIN)
offloadtest: $(OFFLOADTEST_BIN)
selftests: unit offloadtest tsan model conformance fuzz-build libtest ## build the native tests without running them

fuzz: fuzz-build ## every fuzz target for FUZZ_SECONDS=600 each, new inputs in out/fuzz/corpus
	$(Q)failed=; for target in $(notdir $(FUZZ_BIN)); do \
		tools/check/fuzz $$target -max_total_time=$(FUZZ_SECONDS) || failed="$$failed $$target"; \
	done; test -z "$$failed" || { echo "make fuzz: failed:$$failed"; exit 1; }
