# FlashPTX: GNU make, g++ 12. Targets: all demo test bench format golden asan ubsan install help.
BUILD ?= build
CXX ?= g++
CXXFLAGS ?= -O2 -g1
CXXFLAGS += -std=c++20 -Wall -Wextra -Werror -MMD -MP -I. -fPIC -pthread -ffp-contract=off
LDLIBS += -ldl -pthread

LIB_SRC := $(shell find gen host -name '*.cpp')
CLI_SRC := $(shell find tools/flashptx -name '*.cpp')
TEST_SRC := $(shell find tests -name '*.cpp')
obj = $(patsubst %.cpp,$(BUILD)/%.o,$(1))

.PHONY: all lib cli tests test clean
all: lib cli tests
lib: $(BUILD)/libflashptx.a
# Everything of the command line but its main is linked into the tests as well.
CLI_TESTED := $(filter-out tools/flashptx/main.cpp,$(CLI_SRC))
cli: $(if $(wildcard tools/flashptx/main.cpp),$(BUILD)/flashptx)
tests: $(if $(wildcard tests/main.cpp),$(BUILD)/tests/run)
# The study tools alone, for a tree whose command line is not complete.
$(BUILD)/flashptx-study: $(call obj,tools/study/main.cpp $(CLI_TESTED)) $(BUILD)/libflashptx.a
	$(CXX) $(LDFLAGS) $^ -o $@ $(LDLIBS)

# The emulator's inner loops are written for the vectoriser, which -O2 keeps on a short leash.
$(BUILD)/host/emulator/%.o: EXTRA = -O3

$(BUILD)/%.o: %.cpp
	@mkdir -p $(dir $@)
	$(CXX) $(CXXFLAGS) $(EXTRA) -c $< -o $@

$(BUILD)/libflashptx.a: $(call obj,$(LIB_SRC))
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/flashptx: $(call obj,$(CLI_SRC)) $(BUILD)/libflashptx.a
	$(CXX) $(LDFLAGS) $^ -o $@ $(LDLIBS)

$(BUILD)/tests/run: $(call obj,$(TEST_SRC) $(CLI_TESTED)) $(BUILD)/libflashptx.a
	$(CXX) $(LDFLAGS) $^ -o $@ $(LDLIBS)

test: $(BUILD)/tests/run
	$(BUILD)/tests/run

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
