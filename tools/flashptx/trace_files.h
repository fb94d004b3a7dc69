// The files that a timeline becomes, and the table that says how far the model is from what was measured.
// Next: trace.h.
#pragma once

#include <iostream>
#include <string>

#include "tools/flashptx/trace.h"

namespace flashptx {

// PREFIX.svg, PREFIX.json (Chrome's trace format), PREFIX.csv; says so there. Leaves with exit_usage.
void write_trace_files(const std::string& prefix, const Trace& trace, const Trace& model, int trips,
                       std::ostream& say = std::cout);

struct TraceCost {
  double without_marks_ms = 0, with_marks_ms = 0;  // medians of the kernel
  double ratio = 1;  // of the two, turn by turn: their median
  double slow_down_percent() const { return 100 * (ratio - 1); }
};

// Appends one row: kernel, what marks cost, clocks of a steady trip measured and modelled, and each step's.
void append_trace_row(const std::string& path, const Trace& measured, const TraceSummary& summary,
                      const TraceSummary& model, const TraceCost& cost);

}  // namespace flashptx
