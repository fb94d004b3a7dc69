// Operands: printing, and the checks that need no instruction.
#include "gen/isa/operand.h"

#include <cstdio>
#include <cstring>

#include "gen/isa/error.h"

namespace flashptx::gen {

const char* ptx_type(RegType t) {
  switch (t) {
    case RegType::pred:
      return ".pred";
    case RegType::b16:
      return ".b16";
    case RegType::b32:
      return ".b32";
    case RegType::b64:
      return ".b64";
    case RegType::f32:
      return ".f32";
    case RegType::f64:
      return ".f64";
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
  Operand o(Operand::Kind::symbol, RegType::b64, name);
  o.base_symbol = name.substr(0, name.find('+'));
  return o;
}
Operand special(const std::string& name, RegType t) {
  return Operand(Operand::Kind::special, t, "%" + name);
}
Operand sink() { return Operand(Operand::Kind::sink, RegType::b64, "_"); }

Operand address(const Operand& base, std::int64_t offset) {
  if (base.kind != Operand::Kind::reg && base.kind != Operand::Kind::symbol)
    throw Error("address base must be a register or a symbol, got " + base.text);
  std::string s = "[" + base.text;
  if (offset) s += "+" + std::to_string(offset);  // "+-8": ptxas takes no "-8"
  Operand o(Operand::Kind::address, base.type, s + "]");
  o.regs = base.regs;
  o.base_symbol = base.base_symbol;
  o.offset = offset;
  return o;
}

Operand tensor_address(const Reg& map, const std::vector<Operand>& coords) {
  if (map.type != RegType::b64) throw Error("tensor map address %" + map.name + " must be .b64");
  if (coords.empty() || coords.size() > 5)
    throw Error("a tensor address takes 1 to 5 coordinates, got " + std::to_string(coords.size()));
  std::string s = "[%" + map.name + ", {";
  std::vector<Reg> named{map};
  for (std::size_t i = 0; i < coords.size(); ++i) {
    const Operand& c = coords[i];
    bool reg32 = c.kind == Operand::Kind::reg && c.type == RegType::b32;
    if (!reg32 && c.kind != Operand::Kind::imm)
      throw Error("tensor coordinate " + std::to_string(i) + " must be b32 or a constant, got " +
                  c.text);
    s += (i ? ", " : "") + c.text;
    named.insert(named.end(), c.regs.begin(), c.regs.end());
  }
  Operand o(Operand::Kind::address, RegType::b64, s + "}]");
  o.regs = named;
  o.coordinates = static_cast<int>(coords.size());
  return o;
}

Operand pred_pair(const Operand& first, const Reg& predicate) {
  if (predicate.type != RegType::pred) throw Error("%" + predicate.name + " must be a predicate");
  Operand o(Operand::Kind::symbol, RegType::pred, first.text + "|%" + predicate.name);
  o.regs = first.regs;
  o.regs.push_back(predicate);
  return o;
}

int special_width(const std::string& name) {
  static const char* const k64[] = {"clock64", "globaltimer", "gridid"};
  static const char* const k32[] = {"laneid",          "warpid",
                                    "nwarpid",         "smid",
                                    "nsmid",           "clock",
                                    "clock_hi",        "globaltimer_lo",
                                    "globaltimer_hi",  "lanemask_eq",
                                    "lanemask_le",     "lanemask_lt",
                                    "lanemask_ge",     "lanemask_gt",
                                    "cluster_ctarank", "cluster_nctarank",
                                    "total_smem_size", "dynamic_smem_size",
                                    "aggr_smem_size"};
  static const char* const kDim3[] = {"tid",       "ntid",       "ctaid",         "nctaid",
                                      "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"};
  for (const char* n : k64)
    if (name == n) return 64;
  for (const char* n : k32)
    if (name == n) return 32;
  for (const char* n : kDim3)
    for (const char* axis : {".x", ".y", ".z"})
      if (name == std::string(n) + axis) return 32;
  return 0;
}

}  // namespace flashptx::gen
