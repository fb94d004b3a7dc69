// Single mutants of a kernel's text: the mistakes that a person makes who edits asynchronous PTX.
//
// Lines keep their numbers (what is dropped leaves an empty line, what is added joins a line), so
// that a fault's line can be compared with the mutated one. Next: mutation_test.cpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace flashptx::emulator::test {

struct Mutant {
  std::string kind;      // "drop wgmma.fence", "flip parity", ...
  std::string before;    // the statement as it was
  std::string change;    // what was done to it
  std::size_t line = 0;  // from 1
  std::vector<std::pair<std::size_t, std::string>> edits;  // index of a line, its new text

  std::string text(const std::string& clean) const;  // the whole kernel
};

std::vector<Mutant> make_mutants(const std::string& text);

// What a fault may call the barrier that line `line` of `text` speaks of: byte offsets from the
// start of dynamic shared memory (mbarriers, the whole ring), or "barrier N".
struct BarrierNames {
  std::vector<unsigned> mbarrier_offsets;
  std::string named;
};
BarrierNames barriers_of_line(const std::string& text, std::size_t line);

}  // namespace flashptx::emulator::test
