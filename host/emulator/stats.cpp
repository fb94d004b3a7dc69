// What --stats prints: warp instructions by role and kind of work, the same for each loop and trip
// of it, and the lines whose shared-memory accesses lose passes to bank conflicts.
//
// A loop is a branch back; one that only polls an mbarrier belongs to what surrounds it. Work counts
// for the innermost loop around it. Next: machine.h (Counters).
#include "host/emulator/stats.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace flashptx::emulator {
namespace {

constexpr int roles = 3, kinds = 10;
const char* const role_names[roles] = {"-", "producer", "consumer"};
const char* const kind_names[kinds] = {"other",   "fma", "mufu",   "wgmma",   "tma",
                                       "convert", "alu", "memory", "shuffle", "sync"};

struct Sum {
  std::uint64_t work[kinds] = {}, all = 0, conflicts = 0;
  void add(const Instr& in, std::uint64_t executed, std::uint64_t lost) {
    work[static_cast<int>(in.work)] += executed;
    all += executed;
    conflicts += lost;
  }
};

struct Loop {
  std::uint32_t first = 0, last = 0;  // pc of the label, of the branch back
};

bool polls(const Program& program, const Loop& l) {
  if (l.last - l.first > 4) return false;
  for (std::uint32_t pc = l.first; pc <= l.last; ++pc)
    if (program.code[pc].text.rfind("mbarrier.t", 0) == 0) return true;
  return false;
}

// In the order of the text; two branches to one label are one loop.
std::vector<Loop> find_loops(const Program& program) {
  std::vector<Loop> loops;
  for (const Instr& in : program.code) {
    if (in.text.rfind("bra", 0) != 0 || in.target > in.pc) continue;
    Loop l{in.target, in.pc};
    if (polls(program, l)) continue;
    auto same = std::find_if(loops.begin(), loops.end(), [&](const Loop& x) { return x.first == l.first; });
    if (same == loops.end()) loops.push_back(l);
    else same->last = std::max(same->last, l.last);
  }
  std::sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.first < b.first; });
  return loops;
}

// The innermost loop around each instruction, or -1.
std::vector<int> innermost(const Program& program, const std::vector<Loop>& loops) {
  std::vector<int> at(program.code.size(), -1);
  std::vector<std::size_t> order(loops.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return loops[a].last - loops[a].first > loops[b].last - loops[b].first;
  });
  for (std::size_t i : order)
    std::fill(at.begin() + loops[i].first, at.begin() + loops[i].last + 1, static_cast<int>(i));
  return at;
}

void print(std::string& out, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  out += line;
}

void print_heading(std::string& out, const char* what, const char* count) {
  print(out, "%-9s %-24s %9s", what, "", count);
  for (const char* k : kind_names) print(out, " %8s", k);
  out += " conflicts\n";
}

void print_total(std::string& out, const char* role, const Sum& s) {
  print(out, "%-9s %-24s %9llu", role, "", static_cast<unsigned long long>(s.all));
  for (std::uint64_t v : s.work) print(out, " %8llu", static_cast<unsigned long long>(v));
  print(out, " %9llu\n", static_cast<unsigned long long>(s.conflicts));
}

void print_trip(std::string& out, const Program& program, const char* role, const Loop& l,
                std::uint64_t trips, const Sum& s) {
  const double n = static_cast<double>(trips);
  std::string name = program.labels[l.first].substr(0, 14) + " :" + std::to_string(program.code[l.first].line) +
                     "-" + std::to_string(program.code[l.last].line);
  print(out, "%-9s %-24s %9llu", role, name.c_str(), static_cast<unsigned long long>(trips));
  for (std::uint64_t v : s.work) print(out, " %8.4g", static_cast<double>(v) / n);
  print(out, " %9.4g\n", static_cast<double>(s.conflicts) / n);
}

void print_conflicts(std::string& out, const Program& program, const Counters& counters) {
  constexpr std::size_t shown = 8;
  std::vector<std::pair<std::uint64_t, std::size_t>> lost;
  for (std::size_t pc = 0; pc < program.code.size(); ++pc) {
    std::uint64_t n = 0;
    for (int r = 0; r < roles; ++r) n += counters.conflicts[r][pc];
    if (n) lost.push_back({n, pc});
  }
  if (lost.empty()) {
    out += "no bank conflicts of ld, st, ldmatrix and stmatrix\n";
    return;
  }
  std::stable_sort(lost.begin(), lost.end(), [](auto& a, auto& b) { return a.first > b.first; });
  out += "bank conflicts, passes beyond the ideal\n";
  for (std::size_t i = 0; i < std::min(lost.size(), shown); ++i) {
    const Instr& in = program.code[lost[i].second];
    print(out, "  line %-6u %-40s %llu\n", in.line, in.text.c_str(), static_cast<unsigned long long>(lost[i].first));
  }
  if (lost.size() > shown) print(out, "  and %zu more lines\n", lost.size() - shown);
}

}  // namespace

std::vector<std::uint64_t> counts_by_line(const Program& program, const Counters& counters) {
  std::vector<std::uint64_t> out;
  for (const Instr& in : program.code) {
    if (in.line >= out.size()) out.resize(in.line + 1);
    for (int r = 0; r < roles; ++r) out[in.line] += counters.executed[r][in.pc];
  }
  return out;
}

std::string describe_counters(const Program& program, const Counters& counters) {
  const std::vector<Loop> loops = find_loops(program);
  const std::vector<int> inside = innermost(program, loops);
  std::string out, trips;
  print_heading(out, "role", "all");
  for (int r = 0; r < roles; ++r) {
    Sum total;
    std::vector<Sum> sums(loops.size());
    for (std::size_t pc = 0; pc < program.code.size(); ++pc) {
      const std::uint64_t n = counters.executed[r][pc], lost = counters.conflicts[r][pc];
      total.add(program.code[pc], n, lost);
      if (inside[pc] >= 0) sums[static_cast<std::size_t>(inside[pc])].add(program.code[pc], n, lost);
    }
    if (!total.all) continue;
    print_total(out, role_names[r], total);
    for (std::size_t i = 0; i < loops.size(); ++i)
      if (const std::uint64_t n = counters.executed[r][loops[i].first])
        print_trip(trips, program, role_names[r], loops[i], n, sums[i]);
  }
  if (!trips.empty()) {
    out += "a warp and trip of each loop (label :lines), without the loops inside it\n";
    print_heading(out, "role", "trips");
    out += trips;
  }
  print_conflicts(out, program, counters);
  return out;
}

}  // namespace flashptx::emulator
