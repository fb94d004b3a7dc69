// The tree as PTX text again: one instruction a line, constants in one notation each.
#include <cstdio>

#include "host/emulator/ptx_ast.h"

namespace flashptx::emulator {
namespace {

std::string hex(std::uint64_t v, int digits, const char* prefix) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%s%0*llX", prefix, digits,
                static_cast<unsigned long long>(v));
  return buffer;
}

std::string print_operand(const AstOperand& o);

std::string join(const std::vector<AstOperand>& items, const char* separator) {
  std::string s;
  for (const auto& item : items) s += (s.empty() ? "" : separator) + print_operand(item);
  return s;
}

std::string print_operand(const AstOperand& o) {
  using Kind = AstOperand::Kind;
  switch (o.kind) {
    case Kind::name: {
      std::string s = (o.negated ? "!" : "") + o.name;
      if (o.offset > 0) s += "+" + std::to_string(o.offset);
      if (o.offset < 0) s += std::to_string(o.offset);
      return s;
    }
    case Kind::integer:
      return o.is_signed ? std::to_string(static_cast<std::int64_t>(o.bits))
                         : std::to_string(o.bits);
    case Kind::float32:
      return hex(o.bits, 8, "0f");
    case Kind::float64:
      return hex(o.bits, 16, "0d");
    case Kind::vector:
      return "{" + join(o.items, ", ") + "}";
    case Kind::address:
      return "[" + join(o.items, ", ") + "]";
    case Kind::pair:
      return join(o.items, "|");
    case Kind::sink:
      return "_";
  }
  return "";
}

std::string print_variable(const AstVariable& v) {
  std::string s = v.linkage.empty() ? "" : "." + v.linkage + " ";
  s += "." + v.space;
  if (v.align) s += " .align " + std::to_string(v.align);
  if (v.vector > 1) s += " .v" + std::to_string(v.vector);
  s += " ." + v.type;
  if (v.pointer) {
    s += " .ptr" + (v.pointer_space.empty() ? "" : " ." + v.pointer_space);
    if (v.pointer_align) s += " .align " + std::to_string(v.pointer_align);
  }
  s += " " + v.name;
  if (v.is_array) s += v.elements ? "[" + std::to_string(v.elements) + "]" : "[]";
  if (!v.values.empty())
    s += " = " +
         (v.is_array || v.vector > 1 ? "{" + join(v.values, ", ") + "}" : join(v.values, ", "));
  return s;
}

void print_block(const std::vector<AstStatement>& block, int depth, std::string& out) {
  const std::string indent(static_cast<std::size_t>(depth) * 4, ' ');
  for (const auto& s : block) {
    switch (s.kind) {
      case AstStatement::Kind::label:
        out += s.label + ":\n";
        break;
      case AstStatement::Kind::registers: {
        out += indent + ".reg ." + s.register_type;
        const char* separator = " ";
        for (const auto& r : s.registers) {
          out += separator + r.name + (r.count >= 0 ? "<" + std::to_string(r.count) + ">" : "");
          separator = ", ";
        }
        out += ";\n";
        break;
      }
      case AstStatement::Kind::variable:
        out += indent + print_variable(s.variable) + ";\n";
        break;
      case AstStatement::Kind::block:
        out += indent + "{\n";
        print_block(s.block, depth + 1, out);
        out += indent + "}\n";
        break;
      case AstStatement::Kind::instruction: {
        const auto& i = s.instruction;
        out += indent;
        if (!i.guard.empty())
          out += std::string("@") + (i.guard_negated ? "!" : "") + i.guard + " ";
        out += i.mnemonic();
        if (!i.operands.empty()) out += " " + join(i.operands, ", ");
        out += ";\n";
        break;
      }
    }
  }
}

std::string triple(const char* directive, const std::uint32_t (&v)[3]) {
  if (!v[0]) return "";
  return std::string(directive) + " " + std::to_string(v[0]) + ", " + std::to_string(v[1]) + ", " +
         std::to_string(v[2]) + "\n";
}

}  // namespace

std::string print_ptx(const AstModule& m) {
  std::string out;
  if (!m.version.empty()) out += ".version " + m.version + "\n";
  if (!m.target.empty()) out += ".target " + m.target + "\n";
  out += ".address_size " + std::to_string(m.address_size) + "\n";
  for (const auto& v : m.variables) out += print_variable(v) + ";\n";
  for (const auto& k : m.kernels) {
    out += std::string(k.visible ? ".visible " : "") + ".entry " + k.name + "(";
    for (std::size_t i = 0; i < k.params.size(); ++i)
      out += (i ? ",\n    " : "\n    ") + print_variable(k.params[i]);
    out += k.params.empty() ? ")\n" : "\n)\n";
    out += triple(".reqntid", k.reqntid) + triple(".maxntid", k.maxntid) +
           triple(".reqnctapercluster", k.reqnctapercluster);
    if (k.explicit_cluster) out += ".explicitcluster\n";
    if (k.minnctapersm) out += ".minnctapersm " + std::to_string(k.minnctapersm) + "\n";
    if (k.maxnreg) out += ".maxnreg " + std::to_string(k.maxnreg) + "\n";
    if (k.maxclusterrank) out += ".maxclusterrank " + std::to_string(k.maxclusterrank) + "\n";
    out += "{\n";
    print_block(k.body, 1, out);
    out += "}\n";
  }
  return out;
}

}  // namespace flashptx::emulator
