// Tree to program. Each group of instructions (ops_*.cpp) registers, for its opcodes, a function
// that reads qualifiers and operands and picks the routine that runs it; whatever it does not take
// is refused by name.
//
// Next: ops_integer.cpp for the smallest example.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "host/emulator/program.h"

namespace flashptx::emulator {

// Finds or makes room for .global variables: returns the device address.
using GlobalAllocator = std::function<std::uint64_t(const AstVariable&, std::size_t bytes,
                                                    const std::vector<std::uint8_t>& init)>;

Program decode_program(const AstModule& module, const std::string& entry,
                       const GlobalAllocator& globals);

class Decoder;

// One instruction being decoded.
class OpDecoder {
 public:
  OpDecoder(Decoder& decoder, const AstInstruction& ast, Instr& in)
      : in(in), ast(ast), decoder_(decoder) {}

  Instr& in;
  const AstInstruction& ast;

  bool take(const char* qualifier);  // anywhere among those not yet taken
  std::string take_one_of(std::initializer_list<const char*> choices,
                          const char* what);  // "" never returned
  std::string take_optional(std::initializer_list<const char*> choices);
  const std::string& peek_qualifier() const;            // first not taken, or ""
  Type take_type(std::initializer_list<Type> allowed);  // first type among the remaining qualifiers
  void ignore(std::initializer_list<const char*> qualifiers);  // hints that change nothing here
  void finish();                                               // refuses what was not taken

  int operands() const { return static_cast<int>(ast.operands.size()); }
  const AstOperand& operand(int i) const;
  void count(int least, int most) const;
  bool is_sink(const AstOperand& o) const { return o.kind == AstOperand::Kind::sink; }
  Operand src(const AstOperand& o, Type t, bool wider = false);
  Operand src(int i, Type t, bool wider = false) { return src(operand(i), t, wider); }
  Operand dst(const AstOperand& o, Type t, bool wider = false);  // sink allowed: absent
  Operand dst(int i, Type t, bool wider = false) { return dst(operand(i), t, wider); }
  Operand pred_src(const AstOperand& o);
  Operand constant(std::uint64_t bits, int width = 8);
  bool immediate(int i, std::uint64_t* out) const;
  std::uint64_t need_immediate(int i, const char* what) const;
  // [base+offset] into in.a / in.offset or the given operand.
  void address(const AstOperand& o, Space space, Operand* base, std::int64_t* offset);
  Space take_space(
      std::initializer_list<const char*> allowed);  // .shared::cta, .global, ... or generic
  std::uint32_t label(int i);
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_at(const AstOperand& o, const std::string& what) const;
  Program& program();

 private:
  Decoder& decoder_;
  std::vector<bool> taken_ = std::vector<bool>(ast.qualifiers.size(), false);
};

// The effect of what has none here.
inline Step nothing(Warp&, const Instr&, std::uint32_t) { return Step::next; }

using DecodeOp = void (*)(OpDecoder&);
using OpTable = std::unordered_map<std::string, DecodeOp>;

void register_integer_ops(OpTable& table);
void register_float_ops(OpTable& table);
void register_move_ops(OpTable& table);
void register_convert_ops(OpTable& table);
void register_control_ops(OpTable& table);
void register_memory_ops(OpTable& table);
void register_warp_ops(OpTable& table);
void register_barrier_ops(OpTable& table);
void register_mbarrier_ops(OpTable& table);
void register_async_ops(OpTable& table);
void register_wgmma_ops(OpTable& table);

// Opcodes that share a first word ("mbarrier", "wgmma") dispatch on qualifiers themselves.
const OpTable& op_table();

}  // namespace flashptx::emulator
