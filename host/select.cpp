// The two tables of host/select.h and how they are read: measured rows first, then plain rules.
//
// The plans of the rules stand in gen/catalog.cpp (standard_plan), with the figures that decided; a
// rule here says for which problems one holds. Keep the narrow ones above the wide ones.
// Next: host/select_table.inc (written by `flashptx tune`), gen/catalog.cpp.
#include "host/select.h"

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <vector>

#include "gen/kernels/attention_forward.h"

namespace flashptx {
namespace {

constexpr int bit(DataType t) { return 1 << static_cast<int>(t); }
constexpr int bit(Mask m) { return 1 << static_cast<int>(m); }
constexpr int sixteen_bit = bit(DataType::f16) | bit(DataType::bf16);

SelectRow row(int head_dim_max, Mask mask, std::int64_t seqlen_q_max, const char* reason) {
  SelectRow r;
  r.dtypes = sixteen_bit;
  r.head_dim_max = head_dim_max;
  r.masks = bit(mask);
  r.seqlen_q_max = seqlen_q_max;
  r.short_rows = seqlen_q_max != INT64_MAX;
  r.reason = reason;
  return r;
}

}  // namespace

std::span<const SelectRow> select_table() {
  static const SelectRow rows[] = {
      row(64, Mask::full, INT64_MAX,
          "head dim <= 64: exp binds; four warpgroups of 64 rows keep the special function unit "
          "busy"),
      row(64, Mask::causal, 2896, "head dim <= 64, causal, at most 2896 queries: as below, without the token"),
      row(64, Mask::causal, INT64_MAX,
          "head dim <= 64, causal: as full, tiles drawn heaviest first because they differ in "
          "length"),
      row(128, Mask::full, 1448,
          "head dim <= 128, at most 1448 queries: 128 x 128 tiles waste fewer rows than 192 x 64"),
      row(128, Mask::full, INT64_MAX,
          "head dim <= 128: 192 x 64 tiles, three warpgroups; power binds"),
      row(128, Mask::causal, 5792,
          "head dim <= 128, causal, at most 5792 queries: 192 x 64 tiles drawn heaviest first, without the token"),
      row(128, Mask::causal, INT64_MAX,
          "head dim <= 128, causal: 192 x 64 tiles drawn heaviest first"),
      row(192, Mask::full, INT64_MAX, "head dim <= 192: 128 x 80 tiles, two Q buffers; where V has at most 128: 128 x 128"),
      row(192, Mask::causal, INT64_MAX,
          "head dim <= 192, causal: 128 x 80 tiles drawn heaviest first; where V has at most 128: 128 x 96"),
      row(256, Mask::full, INT64_MAX,
          "head dim > 192: 128 x 64 tiles, S and O share 240 registers a thread"),
      row(256, Mask::causal, INT64_MAX,
          "head dim > 192, causal: 128 x 64 tiles drawn heaviest first"),
  };
  return rows;
}

int compiled_head_dim(std::int64_t head_dim) { return static_cast<int>((head_dim + 15) / 16 * 16); }

bool MeasuredRow::v_transposed() const { return std::string_view(kernel).find("_vt_") != std::string_view::npos; }

std::span<const MeasuredRow> measured_rows() {
  static const std::vector<MeasuredRow> rows = {
#include "host/select_table.inc"
  };
  return rows;
}

namespace {

// How far `n` lies outside [low, high], as a ratio; 1 inside.
double ratio_outside(std::int64_t n, std::int64_t low, std::int64_t high) {
  const auto ratio = [](std::int64_t large, std::int64_t small) {
    return static_cast<double>(large) / static_cast<double>(std::max<std::int64_t>(small, 1));
  };
  return n < low ? ratio(low, n) : n > high ? ratio(n, high) : 1;
}

const MeasuredRow* nearest_of_type(std::span<const MeasuredRow> rows, DataType dtype,
                                   const ProblemClass& c, std::int64_t seqlen_q) {
  const int dim = std::max(c.head_dim, c.head_dim_v);
  const MeasuredRow* best = nullptr;
  double best_ratio = 0;
  for (const MeasuredRow& r : rows) {
    if (r.dtype != dtype || r.mask != c.mask || dim < r.head_dim_min || dim > r.head_dim_max ||
        r.v_transposed() != c.v_transposed)
      continue;
    const double ratio = ratio_outside(seqlen_q, r.seqlen_q_min, r.seqlen_q_max);
    if (best == nullptr || ratio < best_ratio) best = &r, best_ratio = ratio;
  }
  return best;
}

std::string reason_of(const MeasuredRow& r) {
  if (r.tflops <= 0) return r.source;
  char text[512];
  std::snprintf(text, sizeof text, "measured: %.0f TFLOP/s at %lld queries and keys, %s %.0f (%s)",
                r.tflops, static_cast<long long>(r.measured_seqlen), r.runner_up,
                r.runner_up_tflops, r.source);
  return text;
}

// The row's plan for a class that may be smaller, or wider in V, than the one it was measured with.
bool plan_of(const MeasuredRow& row, KernelConfig* config) {
  KernelConfig measured;
  if (!KernelConfig::parse(row.kernel, &measured, nullptr)) return false;
  config->plan = measured.plan;
  if (gen::check_forward(*config).empty()) return true;
  config->plan.o_own_buffer = true;  // O staged on Q's slice must fit there
  return gen::check_forward(*config).empty();
}

}  // namespace

DataType sibling(DataType t) {
  switch (t) {
    case DataType::f16: return DataType::bf16;
    case DataType::bf16: return DataType::f16;
    case DataType::e4m3: return DataType::e5m2;
    case DataType::e5m2: return DataType::e4m3;
    case DataType::f32: break;
  }
  return t;
}

const MeasuredRow* nearest_row(std::span<const MeasuredRow> rows, const ProblemClass& problem,
                               std::int64_t seqlen_q) {
  if (const MeasuredRow* own = nearest_of_type(rows, problem.dtype, problem, seqlen_q)) return own;
  return nearest_of_type(rows, sibling(problem.dtype), problem, seqlen_q);
}

int kernel_scale_rows(const ForwardProblem& p) {
  if (!p.block_scales()) return 0;
  std::int64_t rows = 128;
  for (const ScaleStrides* s : {&p.k_scale, &p.v_scale})
    if (s->block_rows != 0) rows = std::min(rows, s->block_rows);
  return static_cast<int>(rows);
}

// V by rows in the kernel beside the pass and a kernel that takes V^T, TFLOP/s. Full, from the rows that host/select_table.inc had then: head_dim 64:
// 626 and 625 at 2k, 650 and 674 at 4k; 128: 979 and 958 at 2k, 990 and 1002 at 4k; 256: 992 and 989 at 1k; since then V by rows has
// gained at 256 (seven warps transpose): in turns 1177 and 1233 at 2k (tools/bench/results/seven_transposers_e4m3_h200.csv). Causal, with one checked block
// (causal_one_check_e4m3_h200.csv): 64: 525 and 522 at 2k, 602 and 610 at 4k; 128: 883 and 874 at 4k, 968 and 981 at 8k; 256: 808
// and 681 at 1k, 888 and 901 at 2k, in another start 994 and 988. With sums of P as rounded (p_sums_e4m3_h200.csv): causal 64 785 and 771 at 4k, 795 and
// 813 at 8k; 128 1098 and 1096, 1193 and 1235; full 128 1127 and 1176 at 4k.
bool transposition_pass_pays(const ForwardProblem& p) {
  if (!p.eight_bit() || !p.allow_workspace || p.value_dim() % 16 != 0) return false;
  // Query rows that read each key: what the pass's time is divided by.
  const bool causal = p.mask == Mask::causal;
  const std::int64_t rows = p.seqlen_q * (p.heads_q / std::max<std::int64_t>(1, p.heads_kv)) / (causal ? 2 : 1);
  return rows >= (p.value_dim() > 128 ? 2048 : 4096);
}

std::span<const MeasuredRow> background_rows() {
  static constexpr const char* source = "NVIDIA H200, driver 580.159.04, 2026-11-30; beside V by rows or the pass";
  static const MeasuredRow rows[] = {
      {DataType::e4m3, Mask::full, 256, 256, 725, 1448, "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_plain_ob", 1024,
       1093.4, "attn_fwd_e4m3_d256_full__q128_kv128_s2_vw7__rotated_pp_plain_dyn_ob", 1044.0, source},
      {DataType::e4m3, Mask::full, 256, 256, 1449, 2896,
       "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_guarded3_dyn_ob", 2048, 1154.4,
       "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_qs2__overlap_pp_guarded3_ob", 1135.0, source},
      {DataType::e4m3, Mask::full, 256, 256, 2897, 5792, "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_vb__overlap_pp_guarded1_dyn_ob", 4096,
       1266.2, "attn_fwd_e4m3_d256_full_vt__q128_kv128_s2_qs2__overlap_guarded1_dyn_ob", 1256.3, source},
      {DataType::e4m3, Mask::causal, 256, 256, 1449, 2896,
       "attn_fwd_e4m3_d256_causal_vt__q128_kv128_s2_vb__overlap_pp_guarded1_dyn_ob", 2048, 923.1,
       "attn_fwd_e4m3_d256_causal__q128_kv128_s2_vw7__rotated_pp_plain_dyn_ob", 916.3, source},
  };
  return rows;
}

bool fast_mode_holds(const ForwardProblem& p) { return !p.block_scales() || p.scale() >= 1e-30f; }

namespace {

ProblemClass class_of(const ForwardProblem& p, bool v_transposed) {
  ProblemClass c;
  c.dtype = p.dtype, c.dtype_k = p.dtype_k, c.dtype_v = p.dtype_v;
  c.mask = p.mask;
  c.head_dim = compiled_head_dim(p.head_dim);
  c.head_dim_v = compiled_head_dim(p.value_dim());
  c.dtype_o = p.dtype_o, c.v_transposed = v_transposed;
  c.scale_rows = kernel_scale_rows(p);
  return c;
}

// The row whose head dimension and whose range of queries and keys are the problem's: what was measured, nothing near it. As many heads
// of V as of Q, and tiles of 128 rows for four waves: the heads behind the first ones are turned while those are computed.
const MeasuredRow* background_row(const ForwardProblem& p, const ProblemClass& c) {
  if (!c.eight_bit() || p.v_transposed || !p.allow_workspace || c.scale_rows != 0 || p.head_dim != c.head_dim ||
      p.value_dim() != p.head_dim || p.batch * p.heads_kv > most_flagged_heads || p.heads_q != p.heads_kv ||
      static_cast<double>((p.seqlen_q + 127) / 128) * static_cast<double>(p.heads_q) * static_cast<double>(p.batch) < 512)
    return nullptr;
  for (const MeasuredRow& r : background_rows())
    if (r.mask == c.mask && r.head_dim_min == c.head_dim && r.seqlen_q_min <= p.seqlen_q && p.seqlen_q <= r.seqlen_q_max &&
        r.seqlen_q_min <= p.seqlen_k && p.seqlen_k <= r.seqlen_q_max)
      return &r;
  return nullptr;
}

// Causal kernels are measured with as many queries as keys; where keys are many more, their rows see most of them.
void check_more_blocks(const ForwardProblem& p, KernelConfig* config) {
  if (p.eight_bit() && p.mask == Mask::causal && config->plan.softmax == Softmax::guarded && p.seqlen_k / 2 > p.seqlen_q)
    config->plan.guard_blocks = std::max(config->plan.guard_blocks, checked_blocks(config->plan.tile_kv, true, config->plan.p_sums));
}

// Full, sums of P as rounded: how many blocks are checked was settled with as many keys as queries, and the error is largest from 1k to
// 4k keys (gen/catalog.cpp, checked_blocks).
void check_for_keys(const ForwardProblem& p, const MeasuredRow& row, KernelConfig* config) {
  Plan& plan = config->plan;
  if (!plan.p_sums || p.mask != Mask::full || plan.softmax != Softmax::guarded || p.seqlen_k > single_level_keys) return;
  if (p.seqlen_k < row.seqlen_q_min || p.seqlen_k > row.seqlen_q_max) plan.guard_blocks = std::max(plan.guard_blocks, checked_blocks(plan.tile_kv, true, true));
}

Status select_exact(std::span<const MeasuredRow> rows, const ForwardProblem& p, Selection* out) {
  const ProblemClass c = class_of(p, p.v_transposed || transposition_pass_pays(p));
  const bool long_keys = c.eight_bit() && p.seqlen_k > single_level_keys;
  std::string about;
  if (c.eight_bit()) {
    about = p.v_transposed   ? "8 bit, V given transposed"
            : c.v_transposed ? "8 bit, V transposed by a pass of its own, into the workspace"
                             : "8 bit, V transposed by warps of the kernel";
    if (long_keys) about += "; sums in parts: more than " + std::to_string(single_level_keys) + " keys";
  }
  // Rows are by the larger head dimension; (192, 128) has tiles of its own (gen/catalog.cpp).
  const int dim = std::max(c.head_dim, c.head_dim_v);
  const bool narrow_v = !c.eight_bit() && dim > 128 && dim <= 192 && c.head_dim_v <= 128;
  // Measured were scales by head.
  if (const MeasuredRow* row = c.scale_rows == 0 && !narrow_v ? nearest_row(rows, c, p.seqlen_q) : nullptr) {
    KernelConfig config{c, {}};
    if (plan_of(*row, &config)) {
      if (long_keys) config.plan = long_keys_plan(c, config.plan);
      check_more_blocks(p, &config);
      check_for_keys(p, *row, &config);
      out->config = config;
      out->reason = about + (about.empty() ? "" : "; ") + reason_of(*row);
      return {};
    }
  }
  if (c.eight_bit()) {
    KernelConfig config{c, standard_plan(c)};
    if (long_keys) config.plan = long_keys_plan(c, config.plan);
    check_more_blocks(p, &config);
    out->config = config;
    out->reason = about;
    return {};
  }
  for (const SelectRow& r : select_table()) {
    const bool fits = (r.dtypes & bit(p.dtype)) != 0 && (r.masks & bit(p.mask)) != 0 &&
                      std::max(c.head_dim, c.head_dim_v) <= r.head_dim_max &&
                      p.seqlen_q >= r.seqlen_q_min && p.seqlen_q <= r.seqlen_q_max &&
                      p.seqlen_k >= r.seqlen_k_min && p.seqlen_k <= r.seqlen_k_max;
    if (!fits) continue;
    out->config = KernelConfig{c, standard_plan(c, r.short_rows)};
    out->reason = r.reason;
    return {};
  }
  return Status::error(StatusCode::unsupported,
                       std::string("no kernel for dtype ") + to_string(p.dtype) + ", head_dim " +
                           std::to_string(p.head_dim) + ", head_dim_v " +
                           std::to_string(p.value_dim()) + ", mask " + to_string(p.mask));
}

void apply_fast(const ForwardProblem& p, Selection* out) {
  if (!fast_mode_holds(p)) out->config.plan.chord_of_16 = 0;
  if (!p.fast) return;
  if (fast_mode_holds(p)) out->config.plan = fast_plan(out->config.problem, out->config.plan);
  check_more_blocks(p, &out->config);  // of a plain kernel
  const int words = out->config.plan.direct_of_16;
  out->reason = (words ? "fast mode, " + std::to_string(words) + " of 16 words of P direct, of the kernel chosen without it: "
                       : std::string("no fast mode for these scales or so many keys: ")) + out->reason;
}

}  // namespace

Status select_among(std::span<const MeasuredRow> rows, const ForwardProblem& p, Selection* out) {
  if (Status s = select_exact(rows, p, out); !s.ok()) return s;
  apply_fast(p, out);
  return {};
}

Status select_forward(const ForwardProblem& p, Selection* out) {
  KernelConfig config{class_of(p, true), {}};
  const MeasuredRow* row = background_row(p, config.problem);
  if (row == nullptr || !plan_of(*row, &config)) return select_among(measured_rows(), p, out);
  out->config = config;
  out->reason = "8 bit, V transposed in the background, into the workspace; " + reason_of(*row);
  apply_fast(p, out);
  return {};
}

Status check_forced(const ForwardProblem& p, const KernelConfig& config) {
  const ProblemClass& c = config.problem;
  const auto refuse = [&](const std::string& what) {
    return Status::error(StatusCode::invalid_argument, "kernel " + config.name() + " " + what);
  };
  if (c.dtype != p.dtype)
    return refuse(std::string("is for dtype ") + to_string(c.dtype) + ": the problem has " +
                  to_string(p.dtype));
  if (c.type_k() != p.type_k() || c.type_v() != p.type_v())
    return refuse("is for " + to_string(c.dtype, c.type_k(), c.type_v()) + ": the problem has " +
                  to_string(p.dtype, p.type_k(), p.type_v()));
  if (c.mask != p.mask)
    return refuse(std::string("is for mask ") + to_string(c.mask) + ": the problem has " +
                  to_string(p.mask));
  if (c.scale_rows != kernel_scale_rows(p))
    return refuse("has scale rows " + std::to_string(c.scale_rows) + ": the problem's scales want " + std::to_string(kernel_scale_rows(p)));
  if ((config.plan.direct_of_16 || config.plan.chord_of_16) && !fast_mode_holds(p))
    return refuse("has P without exponentials: softmax_scale is " + std::to_string(p.scale()) + ", with scales by blocks it must be at least 1e-30");
  if (p.eight_bit() && c.dtype_o != p.dtype_o)
    return refuse(std::string("writes ") + to_string(c.dtype_o) + ": the problem wants O in " + to_string(p.dtype_o));
  if (c.v_transposed && !p.v_transposed && p.allow_workspace && p.value_dim() % 16 == 0) {
    // the pass in front transposes, or the kernel's idle warps
  } else if (config.plan.v_background) {
    return refuse(p.v_transposed ? "transposes V itself: the problem has it transposed"
                                 : "transposes V into a workspace: the problem must allow one, and head_dim_v be a multiple of 16");
  } else if (c.v_transposed != p.v_transposed)
    return refuse(c.v_transposed ? "wants V transposed: the problem has it row by row"
                                 : "wants V row by row: the problem has it transposed");
  if (c.head_dim < p.head_dim)
    return refuse("is for head_dim up to " + std::to_string(c.head_dim) + ": the problem has " +
                  std::to_string(p.head_dim));
  if (c.head_dim_v < p.value_dim())
    return refuse("is for head_dim_v up to " + std::to_string(c.head_dim_v) + ": the problem has " +
                  std::to_string(p.value_dim()));
  return {};
}

}  // namespace flashptx
