// Operands: printing, and the checks that need no instruction.
#include "gen/isa/operand.h"

#include <cstdio>
#include <cstring>

#include "gen/isa/error.h"

namespace flashptx::gen {

const char* ptx_type(RegType t) {
  switch (t) {
    case RegType::pred: return ".pred";
    case RegType::b16: return ".b16";
    case RegType::b32: return ".b32";
    case RegType::b64: return ".b64";
    case RegType::f32: return ".f32";
    case RegType::f64: return ".f64";
  }
  return "?";
}

Reg Vec::operator[](int i) const {
  if (i < 0 || i >= count_)
    throw Error("%" + name_ + "<" + std::to_string(count_) + ">: element " + std::to_string(i) +
                " does not exist");
  return Reg{name_ + std::to_string(i), type_};
}

std::vector<Reg> Vec::slice(int first, int count, int step) const {
  std::vector<Reg> out;
  for (int i = 0; i < count; ++i) out.push_back((*this)[first + i * step]);
  return out;
}

Operand::Operand(const std::vector<Reg>& r) : kind(Kind::list), regs(r) {
  text = "{";
  for (std::size_t i = 0; i < r.size(); ++i) text += (i ? ", %" : "%") + r[i].name;
  text += "}";
  if (!r.empty()) type = r[0].type;
}

Operand f32_imm(float v) {
  std::uint32_t bits;
  std::memcpy(&bits, &v, 4);
  char buf[16];
  std::snprintf(buf, sizeof buf, "0f%08X", bits);
  return Operand(Operand::Kind::fimm, RegType::f32, buf);
}

Operand hex(std::uint64_t v) {
  char buf[24];
  std::snprintf(buf, sizeof buf, "0x%llX", static_cast<unsigned long long>(v));
  Operand o(static_cast<std::int64_t>(v));
  o.text = buf;
  return o;
}

Operand symbol(const std::string& name) {
  return Operand(Operand::Kind::symbol, RegType::b64, name);
}
Operand special(const std::string& name, RegType t) {
  return Operand(Operand::Kind::special, t, "%" + name);
}
Operand sink() { return Operand(Operand::Kind::sink, RegType::b64, "_"); }

Operand address(const Operand& base, std::int64_t offset) {
  if (base.kind != Operand::Kind::reg && base.kind != Operand::Kind::symbol)
    throw Error("address base must be a register or a symbol, got " + base.text);
  std::string s = "[" + base.text;
  if (offset) s += (offset > 0 ? "+" : "") + std::to_string(offset);
  return Operand(Operand::Kind::address, base.type, s + "]");
}

Operand tensor_address(const Reg& map, const std::vector<Operand>& coords) {
  if (map.type != RegType::b64) throw Error("tensor map address %" + map.name + " must be .b64");
  if (coords.empty() || coords.size() > 5)
    throw Error("a tensor address takes 1 to 5 coordinates, got " + std::to_string(coords.size()));
  std::string s = "[%" + map.name + ", {";
  for (std::size_t i = 0; i < coords.size(); ++i) s += (i ? ", " : "") + coords[i].text;
  return Operand(Operand::Kind::address, RegType::b64, s + "}]");
}

Operand pred_pair(const Operand& first, const Reg& predicate) {
  return Operand(Operand::Kind::symbol, RegType::pred, first.text + "|%" + predicate.name);
}

}  // namespace flashptx::gen
