// Whether the registers that hold A of a wgmma keep their values until a wait covers it.
//
// wgmma reads A from registers while the warp goes on; PTX forbids touching them before wgmma.wait_group, and an assembler
// that assigns them anew too early breaks a right text. So each path through the machine code is followed: a register of A
// has an age, the number of groups committed after its own, and DEPBAR.LE gsb0, n retires ages of n and above. Where
// paths meet the youngest counts. Next: sass_flow.cpp.
#include <algorithm>
#include <cstdlib>

#include "tools/flashptx/sass.h"

namespace flashptx::sass {

namespace {

bool has(const std::string& s, const char* what) { return s.find(what) != std::string::npos; }
bool starts(const std::string& s, const char* what) { return s.rfind(what, 0) == 0; }

std::vector<std::string> operands_of(const Instruction& i) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (char c : i.operands) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) out.emplace_back();
    else if (c != ' ') out.back().push_back(c);
  }
  return out;
}

// "R120" or "R120.reuse" to 120; -1 for anything else, RZ too.
int register_of(const std::string& operand) {
  if (operand.size() < 2 || operand[0] != 'R' || operand[1] < '0' || operand[1] > '9') return -1;
  return std::atoi(operand.c_str() + 1);
}

bool is_predicate(const std::string& o) {
  const std::string s = o.substr(!o.empty() && o[0] == '!');
  return (s.size() == 2 && s[0] == 'P') || (s.size() == 3 && starts(s, "UP")) || s == "UPT";
}

bool writes_nothing(const std::string& opcode) {
  for (const char* o : {"ST", "RED.", "BRA", "EXIT", "RET", "BAR", "WARPSYNC", "MEMBAR", "FENCE", "UTMA", "CCTL", "R2UR",
                        "SYNCS.ARRIVE", "BSSY", "BSYNC", "NANOSLEEP", "UBLKCP", "ERRBAR", "DEPBAR", "WARPGROUP", "FCHK"})
    if (starts(opcode, o)) return true;
  return false;
}

int width_of(const Instruction& i) {
  const std::string& o = i.opcode;
  if (starts(o, "LDSM") || starts(o, "LDMATRIX")) return has(o, ".4") ? 4 : has(o, ".2") ? 2 : 1;
  if (has(o, ".128")) return 4;
  if (has(o, ".64") || has(o, ".WIDE") || starts(o, "D") || starts(o, "CS2R")) return 2;
  return 1;
}

// By register: the youngest wgmma that reads it as A, and the groups committed after that one's; -1 while its own is
// open. Flat, for it is kept for each instruction.
constexpr int none = 127, oldest = 8, register_count = 256;
struct Ages {
  std::int8_t age[register_count];
  std::int32_t wgmma[register_count];
  Ages() { std::fill(age, age + register_count, static_cast<std::int8_t>(none)); }
};

bool meet(Ages* into, const Ages& other) {
  bool changed = false;
  for (int r = 0; r < register_count; ++r)
    if (other.age[r] < into->age[r]) into->age[r] = other.age[r], into->wgmma[r] = other.wgmma[r], changed = true;
  return changed;
}

void step(const Instruction& i, int index, Ages* ages) {
  if (i.kind == Kind::wgmma) {
    const std::vector<std::string> o = operands_of(i);
    const int a = o.size() > 1 ? register_of(o[1]) : -1;
    for (int r = a; a >= 0 && r < a + 4 && r < register_count; ++r)  // 64 x 32 bytes: four registers a thread
      ages->age[r] = -1, ages->wgmma[r] = index;
    if (!has(i.operands, "gsb0")) return;
    for (std::int8_t& age : ages->age)
      if (age < oldest) ++age;
  } else if (i.kind == Kind::wgmma_wait) {
    const std::size_t at = i.operands.rfind("0x");
    const int open = at == std::string::npos ? 0 : static_cast<int>(std::strtol(i.operands.c_str() + at, nullptr, 16));
    for (std::int8_t& age : ages->age)
      if (age >= open) age = none;
  }
}

}  // namespace

std::vector<int> registers_written(const Instruction& i) {
  if (writes_nothing(i.opcode) || i.kind == Kind::wgmma) return {};  // accumulators are not written at once
  const std::vector<std::string> o = operands_of(i);
  std::size_t first = 0;
  while (first < o.size() && is_predicate(o[first])) ++first;  // "LOP3.LUT P0, R4, ...", "SHFL.BFLY PT, R3, ..."
  const int reg = first < o.size() ? register_of(o[first]) : -1;
  std::vector<int> out;
  if (reg < 0 || (first > 0 && has(i.opcode, "SETP"))) return out;
  for (int r = reg; r < reg + width_of(i); ++r) out.push_back(r);
  return out;
}

std::vector<EarlyWrite> early_writes_of_a(const Function& f) {
  if (f.code.empty()) return {};
  std::vector<Ages> before(f.code.size());
  std::vector<bool> reached(f.code.size(), false);
  std::vector<int> work{0};
  reached[0] = true;
  while (!work.empty()) {
    const int at = work.back();
    work.pop_back();
    Ages ages = before[static_cast<std::size_t>(at)];
    step(f.code[static_cast<std::size_t>(at)], at, &ages);
    for (int next : successors(f, at)) {
      const auto n = static_cast<std::size_t>(next);
      const bool changed = meet(&before[n], ages);
      if (changed || !reached[n]) work.push_back(next);
      reached[n] = true;
    }
  }
  std::vector<EarlyWrite> out;
  for (std::size_t i = 0; i < f.code.size(); ++i)
    for (int reg : registers_written(f.code[i]))
      if (reg < register_count && before[i].age[reg] != none) out.push_back({before[i].wgmma[reg], static_cast<int>(i), reg});
  return out;
}

}  // namespace flashptx::sass
