// Problem -> kernel: a table of measured choices, and the reason as text.
//
// `flashptx tune` writes the measured rows (host/select_table.inc): a kernel's name, the figure
// that decided and the runner-up's. Where they have nothing for a class, the plain rules below them
// hold. Next: host/attention.cpp (its only user), gen/catalog.h (Plan), tools/flashptx/tune.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gen/catalog.h"
#include "host/device.h"
#include "host/problem.h"

namespace flashptx {

// One line of host/select_table.inc. The plan of `kernel` is taken, its class is the problem's own.
struct MeasuredRow {
  DataType dtype = DataType::bf16;
  Mask mask = Mask::full;
  int head_dim_min = 1, head_dim_max = 256;  // of max(head_dim, head_dim_v), as compiled
  std::int64_t seqlen_q_min = 1, seqlen_q_max = INT64_MAX;
  const char* kernel = "";           // a name that KernelConfig::parse reads
  std::int64_t measured_seqlen = 0;  // where the figures were taken; 0: the row was not measured
  double tflops = 0;
  const char* runner_up = "";
  double runner_up_tflops = 0;
  const char* source =
      "";  // device, driver, assembler and date; or the reason of an unmeasured row
  bool v_transposed() const;  // the kernel takes V^T: what it was given, or what a pass has written
};
std::span<const MeasuredRow> measured_rows();

constexpr std::uint32_t most_flagged_heads = 4096;  // heads of K and V, over all batches, whose V^T a launch keeps track of

// Where V by rows is turned into V^T by the attention kernel's idle warps (gen/tile/tile_background.cpp) if a workspace is allowed; here
// the range holds for keys too. Measured by hand: `flashptx tune` does not time these.
std::span<const MeasuredRow> background_rows();

DataType sibling(DataType type);  // of as many bits

// The rule for every size, listed or not:
//   1. the mask is the problem's, and whether the kernel takes V transposed; so is the type, but a type
//      without rows at this head dimension takes its sibling's, which runs at the same rates
//   2. the head dimension, as compiled, lies within the row's range
//   3. of these rows, the one whose range of query counts is nearest by ratio: 1 inside the range
// Query counts decide, not key counts: what differs between short and long is how many rows of a
// tile are wasted. Null if no row is left after 1 and 2.
const MeasuredRow* nearest_row(std::span<const MeasuredRow> rows, const ProblemClass& problem,
                               std::int64_t seqlen_q);

// What holds without a measured row. Tried from the top.
struct SelectRow {
  int dtypes = 0;          // bit set of 1 << DataType
  int head_dim_max = 256;  // compiled head dimension up to this one
  int masks = 0;           // bit set of 1 << Mask
  std::int64_t seqlen_q_min = 0, seqlen_q_max = INT64_MAX;
  std::int64_t seqlen_k_min = 0, seqlen_k_max = INT64_MAX;
  bool short_rows = false;  // which of standard_plan's plans
  const char* reason = "";
};
std::span<const SelectRow> select_table();

// As compiled: rounded up to a multiple of 16 (the depth of one 16-bit wgmma); TMA fills the rest
// with zeros.
int compiled_head_dim(std::int64_t head_dim);

struct Selection {
  KernelConfig config;
  std::string reason;
};
// Whether V is transposed by a pass of its own where a workspace is allowed.
bool transposition_pass_pays(const ForwardProblem& p);
// ProblemClass::scale_rows of a kernel that takes the problem's scales.
int kernel_scale_rows(const ForwardProblem& p);

// unsupported when no row fits. `p` has passed check_problem. 8 bit: measured rows hold for scales by head, else
// the plan is standard_plan's; beyond single_level_keys keys long_keys_plan makes of it one that sums in parts.
Status select_forward(const ForwardProblem& p, Selection* out);
// The same over other measured rows; with none only the plain rules are left.
Status select_among(std::span<const MeasuredRow> rows, const ForwardProblem& p, Selection* out);

// Whether direct and chord words of P (gen/tile/exp_direct.cpp) count exactly: they multiply scores by 2^-21 softmax_scale first, which
// must be a normal number where scores carry their own scales, of any size.
bool fast_mode_holds(const ForwardProblem& p);

// Whether the kernel `config`, asked for by name, computes problem `p`.
Status check_forced(const ForwardProblem& p, const KernelConfig& config);

}  // namespace flashptx
