// `.file` and `.loc` lines that point at a text beside the PTX (gen/isa/kernel.h, line_info): for an attention kernel its
// schedule's table, else the titles of its sections. Where a function below or of gen/kernels/ takes `line_table`,
// null means no such lines; else it gets the text of <entry>.schedule.
// Next: schedule_lines.cpp.
#pragma once

#include <string>

#include "gen/catalog.h"

namespace flashptx {

// The table as the kernel has it: without tokens where none is passed.
Schedule drawn_schedule(const Plan& plan);

// As emit(), with lines.
EmittedKernel emit_with_lines(const KernelConfig& config, std::string* line_table);

}  // namespace flashptx
