// Findings: counts a loop, what lies between each wgmma and its wait, what ptxas moved, what it
// complained about. Next: sass_print.cpp (how it is shown), sass_command.cpp.
#include <algorithm>
#include <set>

#include "tools/flashptx/pattern.h"
#include "tools/flashptx/sass.h"

namespace flashptx::sass {

namespace {

bool contains(const std::string& s, const char* part) { return s.find(part) != std::string::npos; }

bool commits(const Instruction& i) { return i.kind == Kind::wgmma && contains(i.operands, "gsb0"); }

int wait_limit(const Instruction& i) {
  const auto hex = i.operands.rfind("0x");
  return hex == std::string::npos ? 0 : std::stoi(i.operands.substr(hex), nullptr, 16);
}

int mufu_of(const Counts& c) { return c[static_cast<int>(Kind::mufu)]; }

// "64x32x16" of an opcode, "64x32x16" of a PTX line's m64n32k16
std::string shape_of_opcode(const std::string& opcode) {
  Match m;
  return Pattern("([0-9]+x[0-9]+x[0-9]+)").search(opcode, &m) ? m[1] : "";
}
std::string shape_of_ptx(const std::string& line) {
  Match m;
  if (!Pattern("\\.m([0-9]+)n([0-9]+)k([0-9]+)").search(line, &m)) return "";
  return m[1] + "x" + m[2] + "x" + m[3];
}

std::string event_of(const Instruction& i) {
  switch (i.kind) {
    case Kind::wgmma:
      return "wgmma " + shape_of_opcode(i.opcode);
    case Kind::wgmma_wait:
      return "wait until <= " + std::to_string(wait_limit(i)) + " open";
    case Kind::barrier:
      return i.opcode.rfind("BAR.ARV", 0) == 0 ? "bar.arrive" : "bar.sync";
    case Kind::mbarrier:
      return contains(i.opcode, "PHASECHK") ? "mbarrier wait" : "mbarrier arrive";
    default:
      return "";
  }
}

// Slow paths (the second try of an mbarrier wait, behind the code) are no part of the timeline.
bool in_line(const Loop& l, int index) { return index <= l.last; }

// One pass over the loop in layout order. `open` goes in as the groups open at the head.
std::vector<Stretch> stretches_of(const Function& f, const Loop& l, int* open) {
  std::vector<Stretch> out;
  auto start = [&](const Instruction& i, const std::string& event) {
    out.push_back({event, static_cast<int>(i.address), i.ptx_line, i.step, *open, {}});
  };
  start(f.code[l.head], "loop head");
  int repeat = 0;
  for (int n : l.body) {
    const Instruction& i = f.code[n];
    if (!in_line(l, n)) continue;
    const std::string event = event_of(i);
    const bool quiet = out.back().counts == Counts{};
    if (i.kind == Kind::wgmma) {
      // A run of wgmma with only descriptor arithmetic between them is one event.
      const Counts& c = out.back().counts;
      const int between =
          std::max({c[static_cast<int>(Kind::mufu)], c[static_cast<int>(Kind::fma)],
                    c[static_cast<int>(Kind::fmnmx)], c[static_cast<int>(Kind::convert)]});
      const bool same = repeat > 0 && between == 0 && out.back().event.rfind(event, 0) == 0;
      if (same) {
        out.back().event = event + " x" + std::to_string(++repeat);
        out.back().counts = Counts{};
      } else {
        start(i, event);
        repeat = 1;
      }
      if (commits(i)) {
        ++*open;
        out.back().event += ", committed";
        repeat = 0;
      }
      out.back().in_flight = *open + (commits(i) ? 0 : 1);
    } else if (!event.empty()) {
      if (i.kind == Kind::wgmma_wait) *open = std::min(*open, wait_limit(i));
      const bool poll_again = quiet && out.back().event == event && i.kind == Kind::mbarrier;
      if (!poll_again) start(i, event);
      repeat = 0;
    } else {
      ++out.back().counts[static_cast<int>(i.kind)];
    }
  }
  return out;
}

// MUFU that the PTX puts before a wait of this loop and the machine code behind it.
int moved_behind_wait(const Function& f, const Loop& l) {
  int moved = 0;
  for (int n : l.body) {
    const Instruction& m = f.code[n];
    if (m.kind != Kind::mufu || m.ptx_line == 0 || !in_line(l, n)) continue;
    const bool behind = std::any_of(l.body.begin(), l.body.end(), [&](int w) {
      const Instruction& wait = f.code[w];
      return wait.kind == Kind::wgmma_wait && w < n && wait.ptx_line > m.ptx_line;
    });
    moved += behind;
  }
  return moved;
}

// The PTX label that the closing branch names, else the line of the head.
std::string loop_name(const Function& f, const Loop& l, const PtxText& ptx) {
  Match m;
  for (auto it = l.body.rbegin(); it != l.body.rend(); ++it) {
    const Instruction& i = f.code[*it];
    const std::string line = ptx.line(i.ptx_line);
    if (i.target == l.head &&
        Pattern("\\bbra(\\.uni)?\\s+([$%\\w]+)").search(line, &m))
      return m[2];
  }
  const int line = f.code[l.head].ptx_line;
  return line ? "line " + std::to_string(line) : "at " + std::to_string(f.code[l.head].address);
}

LoopReport report_loop(const Function& f, const Loop& l, const PtxText& ptx) {
  LoopReport r;
  r.loop = l;
  r.loop.name = loop_name(f, l, ptx);
  r.first_address = f.code[l.head].address;
  r.last_address = f.code[l.last].address;
  for (int n : l.body) {
    if (!in_line(l, n)) continue;
    ++r.instructions;
    r.stall_clocks += std::max(1, f.code[n].control.stall);
    ++r.counts[static_cast<int>(f.code[n].kind)];
  }
  int open = 0;
  stretches_of(f, l, &open);  // first trip: finds what stays open over the back edge
  r.stretches = stretches_of(f, l, &open);
  r.mufu = mufu_of(r.counts);
  for (const Stretch& s : r.stretches)
    if (s.in_flight > 0) r.mufu_under_wgmma += mufu_of(s.counts);
  r.mufu_moved = moved_behind_wait(f, l);
  return r;
}

std::string at(const Instruction& i) {
  char text[64];
  std::snprintf(text, sizeof text, "0x%04x", i.address);
  return std::string(text) + (i.ptx_line ? " (PTX line " + std::to_string(i.ptx_line) + ")" : "");
}

void warn_about_wgmma(const Function& f, const PtxText& ptx, std::vector<std::string>* warnings) {
  for (const Instruction& i : f.code) {
    const std::string line = ptx.line(i.ptx_line);
    if (i.kind == Kind::wgmma && contains(line, "wgmma.mma_async") &&
        !shape_of_opcode(i.opcode).empty() && shape_of_ptx(line) != shape_of_opcode(i.opcode))
      warnings->push_back("wgmma shape not as asked at " + at(i) + ": " + shape_of_ptx(line) +
                          " became " + i.opcode);
    if (i.kind == Kind::wgmma_wait && !line.empty() && !contains(line, "wgmma.wait_group"))
      warnings->push_back("ptxas inserted a wgmma wait at " + at(i));
  }
}

void warn_about_loops(const Report& r, std::vector<std::string>* warnings) {
  for (const LoopReport& l : r.loops) {
    if (l.mufu_moved > 0)
      warnings->push_back("loop " + l.loop.name + ": ptxas moved " + std::to_string(l.mufu_moved) +
                          " of " + std::to_string(l.mufu) +
                          " MUFU behind a wgmma wait that follows them in the PTX");
    const bool innermost = std::none_of(r.loops.begin(), r.loops.end(), [&](const LoopReport& o) {
      return o.loop.head != l.loop.head &&
             std::binary_search(l.loop.body.begin(), l.loop.body.end(), o.loop.head);
    });
    if (innermost && l.counts[static_cast<int>(Kind::local)] > 0)
      warnings->push_back("loop " + l.loop.name + ": " +
                          std::to_string(l.counts[static_cast<int>(Kind::local)]) +
                          " local-memory accesses a trip (spilled registers)");
  }
}

}  // namespace

AssemblerFacts parse_assembler_log(const std::string& log, const std::string& entry) {
  AssemblerFacts facts;
  Match m;
  std::string rest = log, line;
  bool ours = false;
  for (std::size_t at = 0; at < log.size();
       at = log.find('\n', at) == std::string::npos ? log.size() : log.find('\n', at) + 1) {
    line = log.substr(at, log.find('\n', at) - at);
    if (Pattern("Compiling entry function '([^']+)'").search(line, &m))
      ours = m[1] == entry;
    if (Pattern("\\(C[0-9]{4}\\)|\\bC7[0-9]{3}\\b").search(line, &m) &&
        (contains(line, entry.c_str()) || !contains(line, "'")))
      facts.remarks.push_back(line);
    else if (contains(line, "warning") && !contains(line, "fatal")) facts.remarks.push_back(line);
    if (!ours) continue;
    if (Pattern("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, "
                                     "([0-9]+) bytes spill loads").search(line, &m)) {
      facts.known = true;
      facts.stack_bytes = std::stoi(m[1]);
      facts.spill_store_bytes = std::stoi(m[2]);
      facts.spill_load_bytes = std::stoi(m[3]);
    }
    if (Pattern("Used ([0-9]+) registers").search(line, &m))
      facts.known = true, facts.registers = std::stoi(m[1]);
  }
  return facts;
}

namespace {

// ptxas gives most wgmma the line of an instruction beside it. They stay in order, among themselves and with the PTX's:
// where there are as many, the n-th is the n-th of the text.
void line_up_wgmma(Function& f, const PtxText& ptx) {
  std::vector<int> asked;
  bool ours = false, any_entry = false;
  for (std::size_t n = 0; n < ptx.lines.size(); ++n) {
    const std::string code = ptx.lines[n].substr(0, ptx.lines[n].find("//"));
    if (contains(code, ".entry")) any_entry = true, ours = contains(code, (" " + f.name + "(").c_str());
    if ((ours || !any_entry) && contains(code, "wgmma.mma_async")) asked.push_back(static_cast<int>(n) + 1);
  }
  std::vector<Instruction*> got;
  for (Instruction& i : f.code)
    if (i.kind == Kind::wgmma) got.push_back(&i);
  if (asked.size() != got.size()) return;
  for (std::size_t n = 0; n < got.size(); ++n) got[n]->ptx_line = asked[n];
}

}  // namespace

Report analyse(Function& f, const PtxText& ptx, const AssemblerFacts& facts) {
  line_up_wgmma(f, ptx);
  for (Instruction& i : f.code)
    if (i.ptx_line >= 1 && i.ptx_line <= static_cast<int>(ptx.section.size()))
      i.step = ptx.section[static_cast<std::size_t>(i.ptx_line - 1)];
  Report r;
  r.name = f.name;
  r.facts = facts;
  for (const Instruction& i : f.code)
    if (i.opcode != "NOP") ++r.counts[static_cast<int>(i.kind)];
  for (const Loop& l : find_loops(f))
    if (!l.polling) r.loops.push_back(report_loop(f, l, ptx));
  for (const std::string& remark : facts.remarks) r.warnings.push_back(remark);
  if (facts.spill_store_bytes + facts.spill_load_bytes > 0)
    r.warnings.push_back("spills: " + std::to_string(facts.spill_store_bytes) + " bytes stored, " +
                         std::to_string(facts.spill_load_bytes) + " bytes loaded");
  const bool asks = std::any_of(ptx.lines.begin(), ptx.lines.end(), [](const std::string& s) {
    return s.find("setmaxnreg") < s.find("//");
  });
  const bool has = std::any_of(f.code.begin(), f.code.end(), [](const Instruction& i) {
    return i.opcode.rfind("USETMAXREG", 0) == 0;
  });
  if (asks && !has)
    r.warnings.push_back("the PTX has setmaxnreg and the machine code has none: ptxas dropped it");
  warn_about_wgmma(f, ptx, &r.warnings);
  for (const EarlyWrite& w : early_writes_of_a(f)) {
    const auto line = [&](int i) { return std::to_string(f.code[static_cast<std::size_t>(i)].ptx_line); };
    r.warnings.push_back("R" + std::to_string(w.reg) + ", of the A operand of the wgmma at PTX line " + line(w.wgmma) +
                         ", may be written by " + f.code[static_cast<std::size_t>(w.writer)].opcode + " at line " +
                         line(w.writer) + " before a wait covers that wgmma");
  }
  warn_about_loops(r, &r.warnings);
  return r;
}

}  // namespace flashptx::sass
