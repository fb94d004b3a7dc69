// What `.loc` lines of an attention kernel point at: the schedule's table, so that a profiler's source page shows
// steps against machine code. The steady trip's steps have the rows of the drawn table; what is peeled off it, and the
// sections outside of trips, have lines of their own below.
// Next: gen/isa/kernel_text.cpp (writes the lines), tools/flashptx/emit_command.cpp (writes the table's file).
#include "gen/kernels/schedule_lines.h"

#include <sstream>

#include "gen/kernels/attention_forward.h"
#include "gen/kernels/attention_symmetric.h"
#include "gen/kernels/forward_parts.h"

namespace flashptx {

Schedule drawn_schedule(const Plan& plan) {
  Schedule s = *plan.table();
  if (!plan.ping_pong || plan.warpgroups < 2)
    std::erase_if(s.steps, [](const Step& step) { return step.what == Do::token_wait || step.what == Do::token_pass; });
  return s;
}

EmittedKernel emit_with_lines(const KernelConfig& config, std::string* line_table) {
  return config.plan.symmetric ? gen::emit_attention_symmetric(config, line_table) : gen::emit_attention_forward(config, line_table);
}

namespace gen {
namespace {

std::vector<std::string> table_lines(const Schedule& s) {
  std::vector<std::string> out;
  std::istringstream rows(draw(s, 3));
  for (std::string row; std::getline(rows, row);) out.push_back(row.substr(0, row.find_last_not_of(' ') + 1));
  return out;
}

}  // namespace

// The line that a step's instructions point at: its row of the table, or where it is peeled off one of its own.
std::string step_line(const ForwardContext& f, const PlannedStep& step, Trip trip) {
  if (trip != Trip::steady)
    return std::string(trip == Trip::peeled ? "trip 0 of a tile: " : "after the last trip: ") + to_string(step.what);
  const Schedule s = drawn_schedule(f.config.plan);
  for (std::size_t i = 0; i < s.steps.size(); ++i)
    if (s.steps[i].what == step.what) return table_lines(s)[1 + i];
  return to_string(step.what);
}

void point_at_schedule(Kernel& k, const KernelConfig& c) {
  const Schedule s = drawn_schedule(c.plan);
  std::vector<std::string> head = {"Schedule \"" + s.name + "\": " + s.about, ""};
  for (const std::string& row : table_lines(s)) head.push_back(row);
  head.insert(head.end(), {"", "Outside the steady trip:"});
  k.line_table_begins(head);
  k.line_info(true);
}

}  // namespace gen
}  // namespace flashptx
