// What a PTX instruction can name: typed virtual registers, immediates, addresses, lists.
//
// A register is a value (name, type); it is declared by Kernel::b32() and friends in the scope that
// is open, and printed as written, so that emitted PTX can be read without this generator. Next:
// gen/isa/kernel.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flashptx::gen {

enum class RegType { pred, b16, b32, b64, f32, f64 };
const char* ptx_type(RegType t);  // ".b32"

struct Reg {
  std::string name;  // without the leading %
  RegType type = RegType::b32;
  bool valid() const { return !name.empty(); }
};

// A named row of registers: `.reg .f32 %s_acc<64>;`, elements %s_acc0 ...
class Vec {
 public:
  Vec() = default;
  Vec(std::string name, RegType type, int count)
      : name_(std::move(name)), type_(type), count_(count) {}
  Reg operator[](int i) const;  // bounds are checked
  std::vector<Reg> slice(int first, int count, int step = 1) const;
  std::vector<Reg> all() const { return slice(0, count_); }
  int size() const { return count_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  RegType type_ = RegType::b32;
  int count_ = 0;
};

class Operand {
 public:
  enum class Kind { reg, imm, fimm, address, list, symbol, special, sink };
  // Conversions are implicit by design: instructions read like PTX.
  Operand(const Reg& r) : kind(Kind::reg), type(r.type), text("%" + r.name), regs{r} {}
  Operand(int v) : Operand(static_cast<std::int64_t>(v)) {}
  Operand(unsigned v) : Operand(static_cast<std::int64_t>(v)) {}
  Operand(std::int64_t v) : kind(Kind::imm), imm(v), text(std::to_string(v)) {}
  Operand(const std::vector<Reg>& regs);  // {%a, %b}
  Operand(Kind k, RegType t, std::string s) : kind(k), type(t), text(std::move(s)) {}

  Kind kind;
  RegType type = RegType::b32;  // of reg, special and list; of an address: of its base
  std::int64_t imm = 0;
  std::string text;
  std::vector<Reg> regs;    // every register that it names: of a list, an address, a pair too
  std::string base_symbol;  // a symbol, or the symbol that an address starts from
  std::int64_t offset = 0;  // of an address, in bytes
  int coordinates = 0;      // of a tensor address
};

Operand f32_imm(float v);                 // 0f3F800000
Operand hex(std::uint64_t v);             // 0x4000004000000000
Operand symbol(const std::string& name);  // a parameter, variable or label
Operand special(const std::string& name, RegType t = RegType::b32);          // "tid.x" -> %tid.x
Operand sink();                                                              // _
Operand address(const Operand& base, std::int64_t offset = 0);               // [%r+16], [param]
Operand tensor_address(const Reg& map, const std::vector<Operand>& coords);  // [%map, {%c0, %c1}]
Operand pred_pair(const Operand& first, const Reg& predicate);               // _|%p

// Width of a special register (32 or 64) by its name without % ("tid.x", "clock64"); 0 if there is
// none.
int special_width(const std::string& name);

}  // namespace flashptx::gen
