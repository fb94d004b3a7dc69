// The one table of instructions: which forms exist, what operands they take, what they need.
//
// A form's opcode is written as in the PTX ISA with alternatives in braces: "bar{.sync|.arrive}".
// Operand kinds, in PTX order, separated by blanks:
//   pred b16 b32 b64 f32       a register of that type
//   imm  fimm                  an integer constant, a float constant
//   imm:count=24..256/8        a constant with a name (for the refusal), a range and a step
//   spec spec64                a special register of 32 or 64 bits
//   smem:8 gmem:8 pmem:8 mem:8 an address with a b32, a b64, any base register (a symbol is always
//   one);
//                              its constant offset must be a multiple of 8
//   tensor  map                a tensor address with as many coordinates as the opcode's .Nd; a
//   generic one b32[4] f32[]               a brace list of four, of any number of registers sym
//   label pair sink        a variable or parameter; a branch target; `_|%p` or `%a|%p`;  _ x|y
//   either;  ?x  may be absent (only at the end)
// Next: gen/isa/table_data_*.cpp (the rows, by PTX ISA chapter), gen/isa/table.cpp (the matcher).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "gen/isa/operand.h"

namespace flashptx::gen {

struct Form {
  const char* opcode;  // with {a|b} alternatives; <N> is wgmma's N
  const char* operands;
  int ptx_version;   // 80 = 8.0
  bool needs_sm90a;  // else sm_90
  const char* isa;   // PTX ISA section
};

const std::vector<Form>& forms();

// The form that `opcode` is spelt by and whose operand kinds fit, or nullptr; `why` says what is
// wrong.
const Form* find_form(const std::string& opcode, const std::vector<Operand>& operands,
                      std::string* why);

// Every spelling of a form's opcode (alternatives expanded), for tests.
std::vector<std::string> spellings(const Form& form);

std::string version_text(int ptx_version);  // 80 -> "8.0"
// The first driver branch that takes a PTX version: 80 -> "525 (CUDA 12.0)".
std::string driver_for(int ptx_version);

// One operand's kind taken apart: what `imm:count=24..256/8` says.
struct OperandKind {
  std::string base;  // "imm", "b32[4]", "smem"
  std::string name;  // "count"
  bool ranged = false;
  long low = 0, high = 0, step = 1;
  int alignment = 1;  // of an address
};
// The alternatives of each operand in order; `optional` counts those at the end that may be absent.
std::vector<std::vector<OperandKind>> operand_kinds(const Form& form, int* optional);

// The rows, by chapter.
namespace rows {
std::span<const Form> integer();   // 9.7.1, 9.7.2, 9.7.6, 9.7.8: arithmetic, compare, logic, bits
std::span<const Form> floating();  // 9.7.3 to 9.7.5: f32, f16, bf16, packed
std::span<const Form> convert();   // 9.7.9.21: cvt
std::span<const Form> memory();    // 9.7.9: mov, ld, st, prefetch, cp.async, policies
std::span<const Form> bulk();      // 9.7.9.25, 9.7.9.27: bulk and tensor copies, tensor maps
std::span<const Form> sync();      // 9.7.13: barriers, fences, mbarrier, warp votes, time, control
std::span<const Form> atomic();    // 9.7.13.6 to .8: atom, red
std::span<const Form> matrix();    // 9.7.14, 9.7.15: ldmatrix, mma.sync, wgmma
}  // namespace rows

}  // namespace flashptx::gen
