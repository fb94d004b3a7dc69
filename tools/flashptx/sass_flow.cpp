// Loops of a function: basic blocks, dominators, natural loops. An mbarrier wait has a slow path
// out of line that jumps backwards; dominators tell it from a real loop, which addresses alone do
// not. Next: sass_report.cpp.
#include <algorithm>
#include <set>

#include "tools/flashptx/sass.h"

namespace flashptx::sass {

namespace {

struct Block {
  int first = 0, last = 0;  // instructions, inclusive
  std::vector<int> next, previous;
};

bool is(const Instruction& i, const char* opcode) { return i.opcode.rfind(opcode, 0) == 0; }

bool conditional(const Instruction& i) {
  return !i.predicate.empty() || i.operands.find("P") == 0 || i.operands.find("!P") == 0 ||
         is(i, "BRA.DIV") || is(i, "BRA.CONV") || i.operands.find("UP") == 0 ||
         i.operands.find("!UP") == 0;
}

bool ends_block(const Instruction& i) {
  return i.target >= 0 || is(i, "BRA") || is(i, "EXIT") || is(i, "RET") || is(i, "BRX");
}

bool falls_through(const Instruction& i) {
  return !(is(i, "BRA") || is(i, "EXIT") || is(i, "RET") || is(i, "BRX")) || conditional(i);
}

std::vector<Block> blocks_of(const Function& f) {
  const int n = static_cast<int>(f.code.size());
  std::vector<bool> leader(f.code.size() + 1, false);
  leader[0] = true;
  for (int i = 0; i < n; ++i) {
    if (f.code[i].target >= 0) leader[f.code[i].target] = true;
    if (ends_block(f.code[i])) leader[i + 1] = true;
  }
  std::vector<Block> blocks;
  std::vector<int> block_of(f.code.size());
  for (int i = 0; i < n; ++i) {
    if (leader[i]) blocks.push_back({i, i, {}, {}});
    blocks.back().last = i;
    block_of[i] = static_cast<int>(blocks.size()) - 1;
  }
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    const Instruction& end = f.code[blocks[b].last];
    auto edge = [&](int to) {
      blocks[b].next.push_back(to);
      blocks[to].previous.push_back(b);
    };
    if (end.target >= 0) edge(block_of[end.target]);
    if (falls_through(end) && b + 1 < static_cast<int>(blocks.size())) edge(b + 1);
  }
  return blocks;
}

// dominators[b] = blocks that every path from the entry to b passes (plain iteration: kernels have
// few blocks)
std::vector<std::set<int>> dominators_of(const std::vector<Block>& blocks) {
  std::set<int> all;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) all.insert(b);
  std::vector<std::set<int>> dom(blocks.size(), all);
  dom[0] = {0};
  for (bool changed = true; changed;) {
    changed = false;
    for (int b = 1; b < static_cast<int>(blocks.size()); ++b) {
      if (blocks[b].previous.empty()) continue;  // unreachable padding
      std::set<int> meet = dom[blocks[b].previous[0]];
      for (int p : blocks[b].previous) {
        std::set<int> both;
        std::set_intersection(meet.begin(), meet.end(), dom[p].begin(), dom[p].end(),
                              std::inserter(both, both.end()));
        meet = both;
      }
      meet.insert(b);
      if (meet != dom[b]) dom[b] = meet, changed = true;
    }
  }
  return dom;
}

std::set<int> natural_loop(const std::vector<Block>& blocks, int head, int tail) {
  std::set<int> body = {head, tail};
  std::vector<int> work = {tail};
  while (!work.empty()) {
    const int b = work.back();
    work.pop_back();
    if (b == head) continue;
    for (int p : blocks[b].previous)
      if (body.insert(p).second) work.push_back(p);
  }
  return body;
}

// A loop that only asks an mbarrier again, or retries setmaxnreg.
bool only_waits(const Function& f, const std::vector<int>& body) {
  bool asks = false;
  for (int i : body) {
    const Kind k = f.code[i].kind;
    if (k == Kind::mbarrier || is(f.code[i], "USETMAXREG")) asks = true;
    else if (is(f.code[i], "NOP") || is(f.code[i], "YIELD")) continue;
    else if (k != Kind::branch && k != Kind::move && k != Kind::integer && k != Kind::uniform &&
             k != Kind::vote)
      return false;
  }
  return asks && body.size() < 24;
}

}  // namespace

std::vector<int> successors(const Function& f, int index) {
  const Instruction& i = f.code[static_cast<std::size_t>(index)];
  std::vector<int> out;
  if (i.target >= 0) out.push_back(i.target);
  if (falls_through(i) && index + 1 < static_cast<int>(f.code.size())) out.push_back(index + 1);
  return out;
}

std::vector<Loop> find_loops(const Function& f) {
  const std::vector<Block> blocks = blocks_of(f);
  const std::vector<std::set<int>> dom = dominators_of(blocks);
  std::map<int, std::pair<std::set<int>, int>> by_head;  // head -> body, last closing block
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    if (b != 0 && blocks[b].previous.empty()) continue;
    for (int to : blocks[b].next) {
      if (!dom[b].count(to) || (to == b && f.code[blocks[b].last].target == blocks[b].last))
        continue;
      auto& entry = by_head.try_emplace(to, std::set<int>{}, b).first->second;
      const std::set<int> body = natural_loop(blocks, to, b);
      entry.first.insert(body.begin(), body.end());
      entry.second = std::max(entry.second, b);
    }
  }
  std::vector<Loop> loops;
  for (const auto& [head, found] : by_head) {
    Loop l;
    l.head = blocks[head].first;
    l.last = blocks[found.second].last;
    for (int b : found.first)
      for (int i = blocks[b].first; i <= blocks[b].last; ++i) l.body.push_back(i);
    std::sort(l.body.begin(), l.body.end());
    l.polling = only_waits(f, l.body);
    loops.push_back(l);
  }
  for (std::size_t i = 0; i < loops.size(); ++i)
    for (std::size_t j = 0; j < loops.size(); ++j) {
      const bool inside = i != j && std::includes(loops[j].body.begin(), loops[j].body.end(),
                                                  loops[i].body.begin(), loops[i].body.end());
      if (inside &&
          (loops[i].parent < 0 || loops[j].body.size() < loops[loops[i].parent].body.size()))
        loops[i].parent = static_cast<int>(j);
    }
  return loops;
}

}  // namespace flashptx::sass
