// The matcher over the instruction table. ptxas judges the rows' spellings in
// tests/gen/isa_forms_test.cpp.
#include "gen/isa/table.h"

#include <cstring>
#include <map>

namespace flashptx::gen {
namespace {

void expand(const std::string& pattern, std::string done, std::vector<std::string>* out) {
  auto open = pattern.find('{');
  if (open == std::string::npos) {
    out->push_back(done + pattern);
    return;
  }
  auto close = pattern.find('}', open);
  done += pattern.substr(0, open);
  std::string alternatives = pattern.substr(open + 1, close - open - 1),
              rest = pattern.substr(close + 1);
  std::size_t from = 0;
  while (true) {
    auto bar = alternatives.find('|', from);
    expand(rest, done + alternatives.substr(from, bar == std::string::npos ? bar : bar - from),
           out);
    if (bar == std::string::npos) break;
    from = bar + 1;
  }
}

// Does the pattern, alternatives in braces, spell exactly this opcode?
bool spells(const char* pattern, const char* opcode) {
  while (*pattern && *pattern != '{') {
    if (*pattern != *opcode) return false;
    ++pattern;
    ++opcode;
  }
  if (!*pattern) return !*opcode;
  const char* close = std::strchr(pattern, '}');
  for (const char* from = pattern + 1; from <= close;) {
    const char* to = from;
    while (*to != '|' && *to != '}') ++to;
    auto length = static_cast<std::size_t>(to - from);
    if (std::strncmp(opcode, from, length) == 0 && spells(close + 1, opcode + length)) return true;
    from = to + 1;
  }
  return false;
}

std::vector<std::string> split(const std::string& s, char sep) {
  std::vector<std::string> out;
  std::size_t from = 0;
  while (from < s.size()) {
    auto to = s.find(sep, from);
    if (to == std::string::npos) to = s.size();
    if (to > from) out.push_back(s.substr(from, to - from));
    from = to + 1;
  }
  return out;
}

OperandKind parse_kind(const std::string& text) {
  OperandKind k;
  auto colon = text.find(':');
  k.base = text.substr(0, colon);
  if (colon == std::string::npos) return k;
  std::string rest = text.substr(colon + 1);
  auto equals = rest.find('=');
  if (equals == std::string::npos) {
    k.alignment = std::stoi(rest);
    return k;
  }
  k.name = rest.substr(0, equals);
  for (char& c : k.name) c = c == '_' ? ' ' : c;
  k.ranged = true;
  k.low = std::stol(rest.substr(equals + 1));
  k.high = std::stol(rest.substr(rest.find("..") + 2));
  auto slash = rest.find('/');
  if (slash != std::string::npos) k.step = std::stol(rest.substr(slash + 1));
  return k;
}

struct Signature {
  std::vector<std::vector<OperandKind>> kinds;
  std::vector<std::string> texts;  // as in the table, without ranges, for refusals
  std::size_t required = 0;
};

Signature parse_signature(const Form& form) {
  Signature s;
  for (std::string text : split(form.operands, ' ')) {
    if (text[0] == '?') text = text.substr(1);
    else s.required = s.kinds.size() + 1;
    std::vector<OperandKind> alternatives;
    std::string shown;
    for (const std::string& one : split(text, '|')) {
      alternatives.push_back(parse_kind(one));
      shown += (shown.empty() ? "" : "|") + alternatives.back().base;
    }
    s.kinds.push_back(alternatives);
    s.texts.push_back(shown);
  }
  return s;
}

bool list_fits(const std::string& kind, const Operand& o) {
  auto bracket = kind.find('[');
  if (o.kind != Operand::Kind::list || o.regs.empty()) return false;
  std::string count = kind.substr(bracket + 1, kind.size() - bracket - 2);
  if (!count.empty() && std::stoul(count) != o.regs.size()) return false;
  for (const Reg& r : o.regs)
    if (kind.substr(0, bracket) != ptx_type(r.type) + 1) return false;
  return true;
}

bool kind_fits(const std::string& kind, const Operand& o) {
  using K = Operand::Kind;
  if (kind.back() == ']') return list_fits(kind, o);
  bool symbolic = !o.base_symbol.empty();
  if (kind == "imm") return o.kind == K::imm;
  if (kind == "fimm") return o.kind == K::fimm;
  if (kind == "spec") return o.kind == K::special && special_width(o.text.substr(1)) == 32;
  if (kind == "spec64") return o.kind == K::special && special_width(o.text.substr(1)) == 64;
  if (kind == "mem" || kind == "pmem") return o.kind == K::address && !o.coordinates;
  if (kind == "smem")
    return o.kind == K::address && !o.coordinates && (symbolic || o.type == RegType::b32);
  if (kind == "gmem" || kind == "map")
    return o.kind == K::address && !o.coordinates && (symbolic || o.type == RegType::b64);
  if (kind == "tensor") return o.kind == K::address && o.coordinates;
  if (kind == "sym" || kind == "label") return o.kind == K::symbol && symbolic;
  if (kind == "pair") return o.kind == K::symbol && !symbolic;
  if (kind == "sink") return o.kind == K::sink;
  return o.kind == K::reg && kind == ptx_type(o.type) + 1;
}

// Limits on constants that ptxas would report far from the caller, or not at all.
std::string limit_misfit(const OperandKind& k, const Operand& o) {
  if (k.ranged && o.kind == Operand::Kind::imm) {
    long v = static_cast<long>(o.imm);
    if (v >= k.low && v <= k.high && (v - k.low) % k.step == 0) return "";
    std::string wanted = "in [" + std::to_string(k.low) + ", " + std::to_string(k.high) + "]";
    if (k.low == k.high) wanted = std::to_string(k.low);
    else if (k.low + k.step == k.high)
      wanted = std::to_string(k.low) + " or " + std::to_string(k.high);
    else if (k.step > 1) wanted = "a multiple of " + std::to_string(k.step) + " " + wanted;
    return k.name + " " + std::to_string(v) + " must be " + wanted;
  }
  if (o.kind == Operand::Kind::address && o.offset % k.alignment)
    return "offset of " + o.text + " must be a multiple of " + std::to_string(k.alignment);
  return "";
}

struct Misfit {
  std::string what;
  std::size_t rank = 0;  // how far the operands did fit: the deepest misfit is the one to tell
};

Misfit misfit(const Signature& s, const std::vector<Operand>& operands) {
  for (std::size_t i = 0; i < s.kinds.size(); ++i) {
    if (i >= operands.size()) {
      if (i >= s.required) break;
      return {"operand " + std::to_string(i + 1) + " (" + s.texts[i] + ") is missing", 2 * i};
    }
    bool fits = false;
    std::string limit;
    for (const OperandKind& k : s.kinds[i]) {
      if (!kind_fits(k.base, operands[i])) continue;
      limit = limit_misfit(k, operands[i]);
      fits = true;
      if (limit.empty()) break;
    }
    if (!limit.empty()) return {limit, 2 * i + 1};
    if (!fits)
      return {"operand " + std::to_string(i + 1) + " must be " + s.texts[i] + ", got " +
                  operands[i].text,
              2 * i};
  }
  if (operands.size() > s.kinds.size())
    return {"takes " + std::to_string(s.kinds.size()) + " operands, got " +
                std::to_string(operands.size()),
            2 * s.kinds.size()};
  return {};
}

// PTX ISA 9.7.15.5: N is a multiple of 8 in 8..256; D holds N/2 f32, or N/4 registers of f16 pairs.
std::string wgmma_misfit(int n, const std::vector<Operand>& operands) {
  if (n < 8 || n > 256 || n % 8)
    return "N = " + std::to_string(n) + " must be a multiple of 8 in [8, 256]";
  bool half = operands[0].type == RegType::b32;
  auto wanted = static_cast<std::size_t>(half ? n / 4 : n / 2);
  if (operands[0].regs.size() != wanted)
    return std::string("D must hold ") + (half ? "N/4 = " : "N/2 = ") + std::to_string(wanted) +
           " registers, got " + std::to_string(operands[0].regs.size());
  return "";
}

// ".3d" in a tensor copy's opcode against the coordinates that its address has.
std::string tensor_misfit(const std::string& opcode, const std::vector<Operand>& operands) {
  auto at = opcode.find("d.", opcode.find(".tensor."));
  int rank = opcode[at - 1] - '0';
  for (const Operand& o : operands)
    if (o.coordinates && o.coordinates != rank)
      return "takes " + std::to_string(rank) + " coordinates, got " + std::to_string(o.coordinates);
  return "";
}

struct Row {
  const Form* form;
  Signature signature;
};

// Rows by the opcode's first word, so that a look-up compares a handful of patterns.
const std::multimap<std::string, Row>& index() {
  static const std::multimap<std::string, Row> map = [] {
    std::multimap<std::string, Row> m;
    for (const Form& f : forms()) {
      std::string opcode = f.opcode;
      auto end = opcode[0] == '{' ? opcode.find('}') + 1 : opcode.find_first_of(".{");
      std::vector<std::string> stems;
      expand(opcode.substr(0, end), "", &stems);
      for (const std::string& stem : stems)
        m.emplace(stem.substr(0, stem.find('.')), Row{&f, parse_signature(f)});
    }
    return m;
  }();
  return map;
}

// "wgmma...m64n128k16..." -> the spelling with <N>, and N.
std::string generic_n(const std::string& opcode, int* n) {
  auto at = opcode.find(".m64n");
  if (at == std::string::npos || opcode.rfind("wgmma", 0) != 0) return opcode;
  auto digits = at + 5, end = opcode.find_first_not_of("0123456789", digits);
  if (end == std::string::npos || end == digits) return opcode;
  *n = std::stoi(opcode.substr(digits, end - digits));
  return opcode.substr(0, digits) + "<N>" + opcode.substr(end);
}

}  // namespace

const std::vector<Form>& forms() {
  static const std::vector<Form> all = [] {
    std::vector<Form> v;
    for (auto chapter : {rows::integer(), rows::floating(), rows::convert(), rows::memory(),
                         rows::bulk(), rows::sync(), rows::atomic(), rows::matrix()})
      v.insert(v.end(), chapter.begin(), chapter.end());
    return v;
  }();
  return all;
}

std::string version_text(int v) { return std::to_string(v / 10) + "." + std::to_string(v % 10); }

std::string driver_for(int ptx_version) {
  static const std::pair<int, const char*> kDrivers[] = {
      {78, "520 (CUDA 11.8)"}, {80, "525 (CUDA 12.0)"}, {81, "530 (CUDA 12.1)"},
      {82, "535 (CUDA 12.2)"}, {83, "545 (CUDA 12.3)"}, {84, "550 (CUDA 12.4)"},
      {85, "555 (CUDA 12.5)"}, {86, "565 (CUDA 12.7)"}, {87, "570 (CUDA 12.8)"},
      {88, "575 (CUDA 12.9)"}, {90, "580 (CUDA 13.0)"}};
  for (auto [version, driver] : kDrivers)
    if (ptx_version <= version) return driver;
  return "newer than 580 (CUDA 13.0)";
}

std::vector<std::string> spellings(const Form& form) {
  std::vector<std::string> out;
  expand(form.opcode, "", &out);
  return out;
}

std::vector<std::vector<OperandKind>> operand_kinds(const Form& form, int* optional) {
  Signature s = parse_signature(form);
  *optional = static_cast<int>(s.kinds.size() - s.required);
  return s.kinds;
}

const Form* find_form(const std::string& opcode, const std::vector<Operand>& operands,
                      std::string* why) {
  int n = -1;
  std::string spelling = generic_n(opcode, &n);
  Misfit deepest{"no such instruction in the table (gen/isa/table_data_*.cpp)", 0};
  bool known = false;
  auto [from, to] = index().equal_range(opcode.substr(0, opcode.find('.')));
  for (auto it = from; it != to; ++it) {
    const Row& row = it->second;
    if (!spells(row.form->opcode, spelling.c_str())) continue;
    Misfit bad = misfit(row.signature, operands);
    if (bad.what.empty()) {
      if (n >= 0) bad = {wgmma_misfit(n, operands), 100};
      else if (opcode.find(".tensor.") != std::string::npos)
        bad = {tensor_misfit(opcode, operands), 100};
    }
    if (bad.what.empty()) return row.form;
    if (!known || bad.rank > deepest.rank) deepest = bad;
    known = true;
  }
  *why = opcode + ": " + deepest.what;
  return nullptr;
}

}  // namespace flashptx::gen
