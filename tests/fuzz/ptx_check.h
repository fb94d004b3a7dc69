// What must hold for any bytes that are given to the emulator as PTX text.
//
// Shared by the fuzzer (ptx_parser_fuzz.cpp, clang) and by a test of the runner that replays the corpus
// (ptx_corpus_test.cpp, any compiler). Next: host/emulator/ptx_ast.h.
#pragma once

#include <string>

#include "host/emulator/decode.h"
#include "host/emulator/ptx_ast.h"

namespace flashptx::emulator::test {

struct PtxOutcome {
  bool parsed = false;
  int decoded = 0;        // kernels that became programs
  std::string complaint;  // what is wrong with the emulator; "" when nothing
  std::string refusal;    // the message of a refused text
};

// A refusal is a PtxError with "file:line:column: "; text that parses prints to text that parses to the same
// print. Any other exception propagates: it is a finding.
inline PtxOutcome check_ptx(const std::string& text) {
  PtxOutcome result;
  AstModule module;
  try {
    module = parse_ptx(text, "fuzz.ptx");
    result.parsed = true;
  } catch (const PtxError& e) {
    result.refusal = e.what();
    if (result.refusal.rfind("fuzz.ptx:", 0) != 0) result.complaint = "refusal without a place: " + result.refusal;
    return result;
  }
  const std::string once = print_ptx(module);
  try {
    const std::string twice = print_ptx(parse_ptx(once, "printed.ptx"));
    if (twice != once) result.complaint = "print, parse, print differs:\n" + once + "----\n" + twice;
  } catch (const PtxError& e) {
    result.complaint = std::string("printed text does not parse: ") + e.what() + "\n" + once;
  }
  std::uint64_t next_global = 1 << 20;
  const GlobalAllocator globals = [&](const AstVariable&, std::size_t bytes, const std::vector<std::uint8_t>&) {
    const std::uint64_t at = next_global;
    next_global += (bytes + 255) / 256 * 256;
    return at;
  };
  for (const AstKernel& kernel : module.kernels) {
    try {
      const Program program = decode_program(module, kernel.name, globals);
      ++result.decoded;
    } catch (const PtxError& e) {
      result.refusal = e.what();
      if (result.refusal.rfind("fuzz.ptx:", 0) != 0) result.complaint = "refusal without a place: " + result.refusal;
    }
  }
  return result;
}

}  // namespace flashptx::emulator::test
