// The measured ladder as table, CSV, JSON and bar chart. Next: ladder_command.cpp.
#pragma once

#include <string>
#include <vector>

#include "tools/flashptx/ladder_rungs.h"

namespace flashptx {

struct LadderRow {
  LadderRung rung;
  LadderShape shape;  // as timed
  double teraflops = 0, milliseconds = 0, relative_spread = 0;
  double error = 0, plain_error = 0;  // of the small problem: this kernel, and plain 16-bit attention
  std::string failure;                // "": right
  std::vector<float> samples;         // milliseconds, of all rounds
  std::string kernel() const;         // its name; of standard attention the first of three
};

// One line a rung; `timed`: with figures.
std::string ladder_line(const LadderRow& row, bool timed);
std::string ladder_csv(const std::vector<LadderRow>& rows);
// Rows of a CSV that ladder_csv wrote; throws std::runtime_error with the line.
std::vector<LadderRow> read_ladder_csv(const std::string& text);
std::string ladder_json(const std::vector<LadderRow>& rows, const std::string& device);
std::string ladder_svg(const std::vector<LadderRow>& rows, const std::string& device);
std::string describe(const LadderShape& shape);

}  // namespace flashptx
