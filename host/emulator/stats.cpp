// What --stats prints: warp instructions by role and loop (the label before them), by kind of work,
// and the shared-memory passes lost to bank conflicts.
#include "host/emulator/stats.h"

#include <cstdio>
#include <map>

namespace flashptx::emulator {

std::string describe_counters(const Program& program, const Counters& counters) {
  static const char* roles[] = {"-", "producer", "consumer"};
  static const char* kinds[] = {"other",   "fma", "mufu",   "wgmma",   "tma",
                                "convert", "alu", "memory", "shuffle", "sync"};
  struct Row {
    std::uint64_t work[10] = {}, conflicts = 0, total = 0;
  };
  std::string out;
  char line[256];
  std::snprintf(line, sizeof line, "%-9s %-20s %9s", "role", "label", "all");
  out += line;
  for (const char* k : kinds) std::snprintf(line, sizeof line, " %8s", k), out += line;
  out += " conflicts   (warp instructions)\n";
  for (int r = 0; r < 3; ++r) {
    std::vector<std::string> order;
    std::map<std::string, Row> rows;
    for (std::size_t pc = 0; pc < program.code.size(); ++pc) {
      std::uint64_t n = counters.executed[r][pc];
      if (!n) continue;
      auto [it, added] = rows.try_emplace(program.labels[pc]);
      if (added) order.push_back(program.labels[pc]);
      it->second.work[static_cast<int>(program.code[pc].work)] += n;
      it->second.total += n;
      it->second.conflicts += counters.conflicts[pc];
    }
    for (const auto& label : order) {
      const Row& row = rows[label];
      std::snprintf(line, sizeof line, "%-9s %-20s %9llu", roles[r],
                    label.empty() ? "(entry)" : label.c_str(),
                    static_cast<unsigned long long>(row.total));
      out += line;
      for (std::uint64_t v : row.work)
        std::snprintf(line, sizeof line, " %8llu", static_cast<unsigned long long>(v)), out += line;
      std::snprintf(line, sizeof line, " %9llu\n", static_cast<unsigned long long>(row.conflicts));
      out += line;
    }
  }
  return out;
}

}  // namespace flashptx::emulator
