// The one table of instructions: which forms exist, what operands they take, what they need.
//
// A form's opcode is written as in the PTX ISA with alternatives in braces: "bar{.sync|.arrive}".
// Operand kinds, in PTX order, separated by blanks:
//   pred b16 b32 b64 f32 f64   a register of that type
//   imm  fimm  spec            an integer constant, a float constant, a special register
//   mem                        an address, tensor addresses included
//   b32[4] f32[]               a brace list of four, of any number of registers
//   sym  sink                  a symbol or a `_|%p` pair;  _
//   x|y                        either;  ?x  may be absent (only at the end)
// Next: gen/isa/table.cpp.
#pragma once

#include <string>
#include <vector>

#include "gen/isa/operand.h"

namespace flashptx::gen {

struct Form {
  const char* opcode;    // with {a|b} alternatives
  const char* operands;
  int ptx_version;       // 80 = 8.0
  bool needs_sm90a;      // else sm_90
  const char* isa;       // PTX ISA section
};

const std::vector<Form>& forms();

// The form that `opcode` is spelt by and whose operand kinds fit, or nullptr; `why` says what is wrong.
const Form* find_form(const std::string& opcode, const std::vector<Operand>& operands,
                      std::string* why);

// Every spelling of a form's opcode (alternatives expanded), for tests.
std::vector<std::string> spellings(const Form& form);

}  // namespace flashptx::gen
