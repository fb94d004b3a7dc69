# FlashPTX: GNU make, g++ 12, no other build tool. `make help` lists the targets.
# Every .cpp below gen/ and host/ is the library, below tools/flashptx/ the command line, below tests/ the
# test runner; tools/reference/ (float64 attention) is linked into the last two. Nothing is written outside
# $(BUILD), except by `golden`, `format` and `install`.
BUILD ?= build
CXX ?= g++
CC ?= gcc
CXXFLAGS ?=
PREFIX ?= /usr/local
VERSION := 0.1.0
SOVERSION := 0

# Parallel by default: the one-line commands of README.md shall not be slow.
ifeq ($(filter -j% --jobserver%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 2)
endif

sources = $(sort $(shell find $(1) -name '*.cpp' 2>/dev/null))
LIB_SRC := $(call sources,gen host)
REF_SRC := $(call sources,tools/reference)
CLI_SRC := $(call sources,tools/flashptx)
# Everything of the command line but its main is linked into the tests as well.
CLI_TESTED := $(filter-out tools/flashptx/main.cpp,$(CLI_SRC))
# libFuzzer targets have their own main: see fuzz-parser.
FUZZ_SRC := $(wildcard tests/fuzz/*_fuzz.cpp)
TEST_SRC := $(filter-out $(FUZZ_SRC),$(call sources,tests))
TEST_C := $(sort $(shell find tests -name '*.c' 2>/dev/null))

# Most of the time that g++ spends on a file of ours goes to standard headers and to the same templates anew.
# So the files of an area are compiled as one text, up to $(TOGETHER) of them: a third of the time from clean. A
# group has the name of its first file. TOGETHER=1 compiles each file by itself, which is quicker after an
# edit; beside ccache that is the default. Files with the costliest headers come first, to share them.
TOGETHER ?= $(if $(findstring ccache,$(CXX)),1,32)
COSTLY := $(shell grep -lE '<(nlohmann/json.hpp|CLI/CLI.hpp|regex)>' $(CLI_SRC) $(TEST_SRC))
costly_first = $(filter $(COSTLY),$(1)) $(filter-out $(COSTLY),$(1))
objects = $(patsubst %.cpp,$(BUILD)/%.o,$(1))
# An area is a folder; these join another, which has the same flags and no name that clashes.
AREA-gen/ := gen/isa/
AREA-gen/schedule/ := gen/isa/
AREA-gen/tile/ := gen/kernels/
AREA-host/driver/ := host/
AREA-host/emulator/ := host/
AREA-host/emulator/checkers/ := host/
AREA-tests/catalog/ := tests/tools/
AREA-tests/fuzz/ := tests/gpu/
AREA-tests/reference/ := tests/gpu/
AREA-tests/ := tests/gpu/
area = $(or $(AREA-$(dir $(1))),$(dir $(1)))
areas = $(sort $(foreach f,$(1),$(call area,$f)))
# tests/main.cpp includes doctest with its implementation; the other one names a namespace as a neighbour names a function.
ALONE := tests/main.cpp tests/attention/exact_products_test.cpp
grouped = $(if $(filter 1,$(TOGETHER)),$(call objects,$(1)),$(call objects,$(filter $(ALONE),$(1))) \
            $(call by_area,$(filter-out $(ALONE),$(1))))
by_area = $(foreach a,$(call areas,$(1)),\
            $(call groups,$(foreach f,$(1),$(if $(filter $a,$(call area,$f)),$f))))
groups = $(if $(1),$(call group,$(wordlist 1,$(TOGETHER),$(1))) $(call groups,$(call after_first_group,$(1))))
after_first_group = $(wordlist $(words x $(wordlist 1,$(TOGETHER),$(1))),$(words $(1)),$(1))
group = $(eval MEMBERS-$(call group_stem,$(1)) := $(1))$(call group_stem,$(1)).group.o
group_stem = $(patsubst %.cpp,$(BUILD)/%,$(firstword $(1)))
# What each instruction of an emulated kernel goes through.
HOT_SRC := $(filter $(addprefix host/emulator/,lanes% machine% mma_% numeric% ops_% tensor_core% wgmma%),$(LIB_SRC))
HOT_OBJ := $(call grouped,$(HOT_SRC))
# Of an inline function that several objects hold the linker keeps the first: of std::string's and containers' members thus
# the best optimised, so objects are linked in that order. With those of -O0 first emitting takes thrice as long.
UNOPTIMISED := $(BUILD)/gen/kernels/% $(BUILD)/gen/tile/%
by_optimisation = $(filter-out $(UNOPTIMISED),$(1)) $(filter $(UNOPTIMISED),$(1))
LIB_OBJ := $(call by_optimisation,$(HOT_OBJ) $(call grouped,$(filter-out $(HOT_SRC),$(LIB_SRC))))
REF_OBJ := $(call grouped,$(REF_SRC))
CLI_TESTED_OBJ := $(call grouped,$(call costly_first,$(CLI_TESTED)))
CLI_OBJ := $(REF_OBJ) $(CLI_TESTED_OBJ) $(call objects,$(filter-out $(CLI_TESTED),$(CLI_SRC)))
TEST_OBJ := $(REF_OBJ) $(call grouped,$(call costly_first,$(TEST_SRC))) $(CLI_TESTED_OBJ) $(patsubst %.c,$(BUILD)/%.c.o,$(TEST_C))
PTX := $(sort $(wildcard ptx/*.ptx))

# The CUDA toolkit is optional: only tests that ask ptxas, and `cubins`, need it. tools/setup.sh puts one
# into $(BUILD)/cuda where there is none.
PTXAS := $(firstword $(FLASHPTX_PTXAS) $(wildcard $(addsuffix /bin/ptxas,$(CUDA_HOME) $(CUDA_PATH))) \
           $(shell command -v ptxas 2>/dev/null) $(wildcard /usr/local/cuda/bin/ptxas) \
           $(lastword $(sort $(wildcard /usr/local/cuda-*/bin/ptxas))) \
           $(abspath $(wildcard build/cuda/nvidia/cu13/bin/ptxas)))
export FLASHPTX_PTXAS := $(PTXAS)
NO_PTXAS := no ptxas found (CUDA_HOME, PATH, /usr/local/cuda*, build/cuda): left out

BASE_CXXFLAGS := -std=c++20 -Wall -Wextra -Werror -MMD -MP -I. -fPIC -pthread -ffp-contract=off
# g++ collects its garbage again and again below some memory in use; it may have 400 MB.
BASE_CXXFLAGS += $(if $(findstring clang,$(CXX)),,--param=ggc-min-heapsize=400000)
ALL_CXXFLAGS = $(BASE_CXXFLAGS) $(OPT) $(CXXFLAGS) $(SANITIZE)
ALL_LDFLAGS = -pthread $(LDFLAGS) $(SANITIZE)
LDLIBS += -ldl
OPT = -O2
# Where speed does not matter, compile quickly: a clean build is to stay below a minute on two cores.
$(BUILD)/gen/%.o $(BUILD)/host/%.o: OPT = -O1
$(BUILD)/tools/flashptx/%.o: OPT = -O0
# doctest then leaves exceptions of an assertion to the test case, which fails as well: half the code.
$(BUILD)/tests/%.o: OPT = -O0 -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS
# These only call the builder: emitting a kernel takes as long at -O0, compiling them half as long.
$(BUILD)/gen/kernels/%.o $(BUILD)/gen/tile/%.o: OPT = -O0
$(BUILD)/tools/reference/%.o: OPT = -O3 -ffp-contract=fast
# g++ 12 sees overlap in every "text" + std::to_string(n) at this level (GCC bug 105651).
$(HOT_OBJ): OPT = -O2 -Wno-restrict

.PRECIOUS: $(BUILD)/%.group.cpp
.PHONY: all lib cli tests demo test bench format golden cubins asan ubsan fuzz fuzz-parser mutants install uninstall help \
        clean deps FORCE
all: lib cli tests
lib: $(BUILD)/libflashptx.a $(BUILD)/libflashptx.so
cli: $(if $(wildcard tools/flashptx/main.cpp),$(BUILD)/flashptx)
tests: $(BUILD)/tests/run

# Two stamps: a changed flag recompiles, an added or removed file links anew. The flags without OPT: that is
# specific to targets, and inherited by whatever such a target happens to have as its prerequisite.
FLAGS_TEXT := $(CXX) $(BASE_CXXFLAGS) $(CXXFLAGS) $(SANITIZE)
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD); echo '$(FLAGS_TEXT)' | cmp -s - $@ || echo '$(FLAGS_TEXT)' > $@
$(BUILD)/sources: FORCE
	@mkdir -p $(BUILD); echo '$(LIB_SRC) $(CLI_SRC) $(TEST_SRC) $(TEST_C) $(REF_SRC)' | cmp -s - $@ || \
	  echo '$(LIB_SRC) $(CLI_SRC) $(TEST_SRC) $(TEST_C) $(REF_SRC)' > $@

V ?= 0
say = $(if $(filter 0,$(V)),@echo '  $(1) $(2)';)
$(BUILD)/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(dir $@)
	$(call say,compile,$<)$(CXX) $(ALL_CXXFLAGS) -c $< -o $@
$(BUILD)/%.group.cpp: FORCE
	@mkdir -p $(dir $@); printf '#include "%s"\n' $(MEMBERS-$(BUILD)/$*) | cmp -s - $@ || \
	  printf '#include "%s"\n' $(MEMBERS-$(BUILD)/$*) > $@
# Where names of two files clash, or one has an error, each is compiled by itself: only that says which.
$(BUILD)/%.group.o: $(BUILD)/%.group.cpp $(BUILD)/flags
	$(call say,compile,$(MEMBERS-$(BUILD)/$*))$(CXX) $(ALL_CXXFLAGS) -c $< -o $@ 2>$@.log || { \
	  echo "  compile one by one: $$(grep -m1 error: $@.log)"; rm -f $@.d.*; n=0; parts=; \
	  for f in $(MEMBERS-$(BUILD)/$*); do n=$$((n + 1)); parts="$$parts $@.$$n.o"; \
	    $(CXX) $(ALL_CXXFLAGS) -MT $@ -MF $@.d.$$n -c $$f -o $@.$$n.o || exit 1; done; \
	  cat $@.d.* > $(@:.o=.d); ld -r -o $@ $$parts; }
# C, to prove that flashptx.h is C99.
$(BUILD)/%.c.o: %.c $(BUILD)/flags
	@mkdir -p $(dir $@)
	$(call say,compile,$<)$(CC) -std=c99 -pedantic -Wall -Wextra -Werror -MMD -MP -I. -O1 $(SANITIZE) -c $< -o $@

$(BUILD)/libflashptx.a: $(LIB_OBJ) $(BUILD)/sources
	@rm -f $@
	$(call say,archive,$@)ar rcs $@ $(LIB_OBJ)

$(BUILD)/libflashptx.so: $(LIB_OBJ) $(BUILD)/sources tools/install/exports.map
	$(call say,link   ,$@)$(CXX) -shared -Wl,-soname,libflashptx.so.$(SOVERSION) \
	  -Wl,--version-script=tools/install/exports.map $(ALL_LDFLAGS) $(LIB_OBJ) -o $@ $(LDLIBS)

# Objects, not the archive: a weak symbol must find its strong one.
$(BUILD)/flashptx: $(CLI_OBJ) $(LIB_OBJ) $(BUILD)/sources
	$(call say,link   ,$@)$(CXX) $(ALL_LDFLAGS) $(LIB_OBJ) $(CLI_OBJ) -o $@ $(LDLIBS)

$(BUILD)/tests/run: $(TEST_OBJ) $(LIB_OBJ) $(BUILD)/sources
	$(call say,link   ,$@)$(CXX) $(ALL_LDFLAGS) $(LIB_OBJ) $(TEST_OBJ) -o $@ $(LDLIBS)

demo: $(BUILD)/flashptx
	@$(BUILD)/flashptx demo

test: $(if $(ONLY_RUNNER),tests,all)
	@+BUILD=$(BUILD) tests/all.sh $(ARGS)

bench: $(BUILD)/flashptx
	@$(BUILD)/flashptx bench $(ARGS)

# make golden            rewrites every file of ptx/ and ptx/catalog.json
# make golden NAME=name  rewrites one and prints what changed
golden: $(BUILD)/flashptx
	@$(BUILD)/flashptx golden $(NAME)

cubins: $(if $(PTXAS),$(patsubst ptx/%.ptx,$(BUILD)/cubins/%.cubin,$(PTX)))
	@echo '$(if $(PTXAS),$(words $(PTX)) kernels assembled into $(BUILD)/cubins by $(PTXAS),cubins: $(NO_PTXAS))'
$(BUILD)/cubins/%.cubin: ptx/%.ptx
	@mkdir -p $(dir $@)
	$(call say,ptxas  ,$<)$(PTXAS) -arch=sm_90a -lineinfo $< -o $@

# The sanitizers' own code makes g++ 12 see uninitialised values within <regex>.
asan:
	@+$(MAKE) --no-print-directory BUILD=$(BUILD)/asan \
	  SANITIZE='-g1 -fsanitize=address -fno-omit-frame-pointer -Wno-maybe-uninitialized' ONLY_RUNNER=1 test
ubsan:
	@+$(MAKE) --no-print-directory BUILD=$(BUILD)/ubsan \
	  SANITIZE='-g1 -fsanitize=undefined -fno-sanitize-recover=all -Wno-maybe-uninitialized' ONLY_RUNNER=1 test

# Every single mutant of three kernels (KERNELS=catalog or a name: of others; STEP=5: each fifth of a kind) on the
# emulator, and the table of what noticed it. Ten to thirty minutes a kernel on one core.
mutants: tests
	@FLASHPTX_TEST_WORKERS=1 FLASHPTX_MUTANTS=$(or $(KERNELS),all) FLASHPTX_MUTANTS_STEP=$(or $(STEP),1) $(BUILD)/tests/run -ts='emulator/mutation'

# Random legal problems on the emulator against float64, until SECONDS have passed.
fuzz: $(BUILD)/flashptx
	@$(BUILD)/flashptx fuzz --seconds $(or $(SECONDS),60) $(ARGS)

# Bytes bent by libFuzzer through lexer, parser, printer and decoder of the emulator, under the address and
# undefined-behaviour sanitizers. Findings stay in $(BUILD)/fuzz as crash-*, timeout-*, oom-*.
CLANGXX ?= $(firstword $(shell command -v clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14 2>/dev/null))
FUZZ_FLAGS = -std=c++20 -O2 -g1 -I. -pthread -ffp-contract=off -fsanitize=address,undefined -fno-sanitize-recover=undefined
FUZZ_OBJ := $(patsubst %.cpp,$(BUILD)/fuzz/%.o,$(call sources,host/emulator) host/tensor_map_check.cpp tests/fuzz/ptx_parser_fuzz.cpp)
$(BUILD)/fuzz/%.o: %.cpp
	@mkdir -p $(dir $@)
	$(call say,fuzz   ,$<)$(CLANGXX) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c $< -o $@
$(BUILD)/fuzz/ptx_parser: $(FUZZ_OBJ)
	$(call say,link   ,$@)$(CLANGXX) $(FUZZ_FLAGS) -fsanitize=fuzzer $^ -o $@
fuzz-parser: $(if $(CLANGXX),$(BUILD)/fuzz/ptx_parser)
	@test -n '$(CLANGXX)' || { echo 'fuzz-parser needs clang++ with its fuzzer runtime'; exit 1; }
	@mkdir -p $(BUILD)/fuzz/corpus
	cd $(BUILD)/fuzz && ./ptx_parser corpus $(CURDIR)/tests/fuzz/corpus $(wildcard $(CURDIR)/tests/emulator/ptx) \
	  -dict=$(CURDIR)/tests/fuzz/ptx.dict -max_total_time=$(or $(SECONDS),60) -max_len=20000 -timeout=25 \
	  -rss_limit_mb=2048 -print_final_stats=1 $(ARGS)

format:
	@command -v clang-format >/dev/null || { echo 'clang-format is not installed'; exit 1; }
	clang-format -i $(shell find gen host tools tests -name '*.cpp' -o -name '*.h')

install: lib cli
	BUILD=$(BUILD) DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) VERSION=$(VERSION) SOVERSION=$(SOVERSION) \
	  tools/install/install.sh install
uninstall:
	DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) SOVERSION=$(SOVERSION) tools/install/install.sh uninstall

deps:
	@tools/setup.sh

# The assembler that tools/setup.sh fetched is kept: it is no product of the build.
clean:
	@test ! -d $(BUILD) || find $(BUILD) -mindepth 1 -maxdepth 1 ! -name cuda -exec rm -rf {} +

help:
	@echo 'make [all]        library (.a, .so), command line and test runner in $(BUILD)/'
	@echo 'make lib|cli|tests  one of the three'
	@echo 'make demo         attention on the GPU, or on the emulator where there is none, checked in float64'
	@echo 'make test         all tests; ARGS="-ts=reference/*" picks suites of the runner; FLASHPTX_TEST_WORKERS=1: one process'
	@echo 'make bench        the grid of the FlashAttention-3 paper; ARGS="--help" shows the choices'
	@echo 'make golden       write ptx/ and ptx/catalog.json anew; NAME=... one kernel, with its diff'
	@echo 'make cubins       assemble ptx/*.ptx into $(BUILD)/cubins (needs ptxas)'
	@echo 'make asan ubsan   the test runner under a sanitizer'
	@echo 'make fuzz         random problems on the emulator against float64; SECONDS=60'
	@echo 'make fuzz-parser  bent PTX text through the parser of the emulator (clang++, libFuzzer); SECONDS=60'
	@echo 'make mutants      single mutants of kernels on the emulator: what notices them; KERNELS=catalog|NAME STEP=5'
	@echo 'make install      library, header, command line, pkg-config, CMake; PREFIX=/usr/local DESTDIR='
	@echo 'make uninstall format clean deps help'
	@echo 'Variables: BUILD, CXX, CXXFLAGS, CUDA_HOME, V=1 (show commands).  ptxas: $(or $(PTXAS),none)'

-include $(FUZZ_OBJ:.o=.d) $(LIB_OBJ:.o=.d) $(CLI_OBJ:.o=.d) $(TEST_OBJ:.o=.d)
