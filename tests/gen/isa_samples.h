// Valid operands for every row of the instruction table, made from the row's own operand kinds.
//
// A new row is tested without a new test: each spelling of its opcode with the first alternative of
// every operand, and its first spelling with every alternative, both ends of every constant's
// range, and every number of optional operands. Next: tests/gen/isa_forms_test.cpp gives them to
// ptxas.
#pragma once

#include <string>
#include <vector>

#include "gen/isa/table.h"

namespace flashptx::test {

struct Sample {
  const gen::Form* form;
  std::string opcode;
  std::vector<gen::Operand> operands;
  bool first_operands;       // the default operands: what a version or target need is judged by
  std::string text() const;  // one PTX line, guarded where it would leave the kernel
};

std::vector<Sample> samples(const gen::Form& form);
std::vector<Sample> all_samples();

// A module with the samples, one a line, everything that they name declared.
struct SampleModule {
  std::string text;
  std::vector<long> sample_of_line;  // by line number; -1 where there is none
};
SampleModule sample_module(const std::vector<Sample>& samples, int ptx_version, bool sm90a);

}  // namespace flashptx::test
