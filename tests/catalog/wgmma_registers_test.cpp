// The machine code of every kernel keeps the registers of A until a wait covers the wgmma that reads them.
//
// P V takes P from registers while the warp goes on to the next block. Assemblers are known that gave such registers to
// something else too early, without a word. The check reads what ptxas made; tests/attention/exact_products_test.cpp asks
// the same of the results, of the driver's own assembler too. Next: tools/flashptx/sass_registers.cpp.
#include "gen/catalog.h"
#include "tests/support.h"
#include "tools/flashptx/sass.h"

using namespace flashptx;

namespace {

// The wgmma with A in registers.
int check(const KernelConfig& config, const sass::Tools& tools) {
  const EmittedKernel kernel = emit(config);
  const sass::Assembled assembled = sass::assemble(tools, kernel.text);
  int from_registers = 0, functions = 0;
  for (const sass::Function& f : sass::parse_disassembly(assembled.disassembly)) {
    ++functions;
    for (const sass::Instruction& i : f.code)
      if (i.kind == sass::Kind::wgmma) {
        const std::size_t comma = i.operands.find(", ");
        from_registers += comma != std::string::npos && i.operands[comma + 2] == 'R' && i.operands[comma + 3] != 'Z';
      }
    for (const sass::EarlyWrite& w : sass::early_writes_of_a(f))
      FAIL_CHECK(kernel.facts.entry << ": R" << w.reg << " is written by " << f.code[static_cast<std::size_t>(w.writer)].opcode
                                    << " (PTX line " << f.code[static_cast<std::size_t>(w.writer)].ptx_line
                                    << ") before a wait covers the wgmma of line "
                                    << f.code[static_cast<std::size_t>(w.wgmma)].ptx_line);
  }
  CHECK(functions == 1);
  return from_registers;
}

}  // namespace

TEST_SUITE("catalog/wgmma registers") {
  TEST_CASE("no kernel's machine code writes a register of A between a wgmma and the wait that covers it") {
    const sass::Tools tools = sass::find_tools();
    if (tools.ptxas.empty() || tools.disassembler.empty()) FLASHPTX_SKIP(tools.how_to_get);
    for (const KernelConfig& config : catalog()) CHECK_MESSAGE(check(config, tools) > 0, config.name());
  }
  TEST_CASE("nor that of the kernels for scales by blocks") {
    const sass::Tools tools = sass::find_tools();
    if (tools.ptxas.empty() || tools.disassembler.empty()) FLASHPTX_SKIP(tools.how_to_get);
    for (int d : {64, 128, 256})
      for (int rows : {128, 16}) {
        KernelConfig config;
        config.problem = {DataType::e4m3, d, d, Mask::causal};
        config.problem.scale_rows = rows;
        config.plan = rows == 128 ? standard_plan(config.problem) : long_keys_plan(config.problem);
        CHECK_MESSAGE(check(config, tools) > 0, config.name());
      }
  }
}
