// Problem -> kernel: a table of measured choices, and the reason as text.
//
// A row says for which problems it holds and which Plan won there; the first row that fits is
// taken. The tuner writes such rows with the figures that decided; until then the rows are the
// plain choices of the papers. Next: host/attention.cpp (its only user), gen/catalog.h (Plan).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "gen/catalog.h"
#include "host/device.h"
#include "host/problem.h"

namespace flashptx {

struct SelectRow {
  int dtypes = 0;          // bit set of 1 << DataType
  int head_dim_max = 256;  // compiled head dimension up to this one
  int masks = 0;           // bit set of 1 << Mask
  std::int64_t seqlen_q_min = 0, seqlen_q_max = INT64_MAX;
  std::int64_t seqlen_k_min = 0, seqlen_k_max = INT64_MAX;
  bool short_rows = false;  // which of standard_plan's plans
  const char* reason = "";  // why this plan; with TFLOP/s once measured
};

std::span<const SelectRow> select_table();

// As compiled: rounded up to a multiple of 16 (the depth of one 16-bit wgmma); TMA fills the rest
// with zeros.
int compiled_head_dim(std::int64_t head_dim);

struct Selection {
  KernelConfig config;
  std::string reason;
};
// unsupported when no row fits. `p` has passed check_problem.
Status select_forward(const ForwardProblem& p, Selection* out);

// Whether the kernel `config`, asked for by name, computes problem `p`.
Status check_forced(const ForwardProblem& p, const KernelConfig& config);

}  // namespace flashptx
