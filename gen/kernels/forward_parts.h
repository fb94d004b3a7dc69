// What the specialised and the symmetric forward kernel share: setup, the steps of a trip, parameters, header.
//
// All of it is defined in attention_forward.cpp, in the order in which a kernel uses it.
// Next: attention_symmetric.cpp, the shorter of the two kernels.
#pragma once

#include <functional>
#include <initializer_list>
#include <vector>

#include "gen/catalog.h"
#include "gen/schedule/schedule.h"
#include "gen/tile/forward_context.h"

namespace flashptx::gen {

// Marks of the steady loop, for the budget in the header.
struct Budget {
  std::size_t from = 0, to = 0;
  std::vector<StepCost> steps = {};
};

void emit_params(Kernel& k, const KernelConfig& c);
void emit_barrier_init(ForwardContext& f);
void emit_consumer_setup(ForwardContext& f);
// This warpgroup's share of the tile: its rows, its key blocks, where masking starts.
void emit_warpgroup_range(ForwardContext& f);
void emit_wait_q(ForwardContext& f);
void emit_step(ForwardContext& f, const PlannedStep& step, bool looked_ahead = false);
enum class Trip { peeled, steady, epilogue };
std::vector<StepCost> emit_trip(ForwardContext& f, const std::vector<PlannedStep>& steps, Trip trip);
std::string step_line(const ForwardContext& f, const PlannedStep& step, Trip trip);
// The kernel's `.loc` lines point at the schedule's table.
void point_at_schedule(Kernel& k, const KernelConfig& c);
// Trips 1 .. blocks - 1, after trip 0 has been emitted; `more` is a predicate of the caller's scope. `ahead` runs at each
// trip's head.
Budget emit_kv_loop(ForwardContext& f, const std::vector<PlannedStep>& steady, const Reg& more,
                    const std::function<void()>& ahead = {});
// What the epilogue stores for rows without keys.
void emit_empty_rows(ForwardContext& f);
std::vector<PlannedStep> without(std::vector<PlannedStep> steps, std::initializer_list<Do> dropped);
LaunchFacts launch_facts(const KernelConfig& c, const Kernel& k, const SharedLayout& m);
void emit_header(Kernel& k, const KernelConfig& c, const LaunchFacts& facts, const SharedLayout& m,
                 const Schedule& schedule, const Budget& budget);

}  // namespace flashptx::gen
