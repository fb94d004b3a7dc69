// A forward problem as a caller states it, and everything that can be wrong with it.
//
// Checked completely before a kernel is chosen, so that neither the driver nor a kernel ever meets
// a value that it cannot handle: each refusal names the argument, its value and the limit. Next:
// host/attention.h (what happens to a problem that passed).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "gen/catalog.h"
#include "host/device.h"

namespace flashptx {

// In elements; the head dimension is contiguous.
struct Strides {
  std::int64_t batch = 0, seq = 0, head = 0;
};
Strides strides_bshd(std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim);
Strides strides_bhsd(std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim);

// fp32 scales of an 8-bit tensor, by (batch, head) or by (batch, head, block of rows) with the blocks contiguous: element
// x stands for scale * x. Strides in elements; 0: shared.
struct ScaleStrides {
  std::int64_t batch = 0, head = 0;
  std::int64_t block_rows = 0;  // rows that share a scale; 0: all of a head. Of K and V a multiple of 16 that divides 128 or
                                // is divided by it
};

struct ForwardProblem {
  DataType dtype = DataType::bf16;
  Mask mask = Mask::full;
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;                                    // 0 = head_dim
  float softmax_scale = std::numeric_limits<float>::quiet_NaN();  // NaN = 1 / sqrt(head_dim)
  Strides q, k, v, o;
  // 8 bit only
  std::optional<DataType> dtype_k, dtype_v;  // e4m3 or e5m2, of K and of V; none: that of Q, dtype
  DataType dtype_o = DataType::bf16;
  bool v_transposed = false;   // V is V^T as the transposition pass writes it: v.seq is the stride of its head_dim_v rows
  bool allow_workspace = false;  // V may be transposed by a pass of its own, into memory that run() is given
  bool fast = false;           // a faster kernel is welcome whose RMS error is up to 1.25 times plain e4m3's (gen/tile/exp_direct.cpp)
  ScaleStrides q_scale, k_scale, v_scale;
  std::int64_t q_scale_group = 1;  // query heads that share a scale

  bool eight_bit() const { return dtype == DataType::e4m3 || dtype == DataType::e5m2; }
  DataType type_k() const { return dtype_k.value_or(dtype); }
  DataType type_v() const { return dtype_v.value_or(dtype); }
  DataType output() const { return eight_bit() ? dtype_o : dtype; }
  bool block_scales() const { return q_scale.block_rows || k_scale.block_rows || v_scale.block_rows; }
  std::int64_t keys_padded() const { return (seqlen_k + 127) / 128 * 128; }  // of V^T

  std::int64_t value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
  bool empty() const { return batch == 0 || heads_q == 0 || seqlen_q == 0; }
  float scale() const;  // the default resolved
};

// One of Q, K, V, O as a strided view, extents and strides together.
struct TensorView {
  const char* name;
  std::int64_t batch, seq, heads, dim;
  Strides strides;
};
// Strides and size of elements of `size` bytes; `written`: no two rows may overlap.
Status check_view(const TensorView& t, int size, bool written);

TensorView view_q(const ForwardProblem& p);  // the tensors as the caller has them
TensorView view_k(const ForwardProblem& p);
TensorView view_v(const ForwardProblem& p);
TensorView view_o(const ForwardProblem& p);

int element_bytes(DataType t);
ElementType element_type(DataType t);

Status check_problem(const ForwardProblem& p);

struct ForwardPointers {
  std::uint64_t q = 0, k = 0, v = 0, o = 0;
  std::uint64_t lse = 0;  // 0 = not wanted
  std::uint64_t q_scale = 0, k_scale = 0, v_scale = 0;  // 8 bit: fp32; 0 = all scales are 1
  std::uint64_t workspace = 0;  // of ForwardPlan::workspace_bytes(), 16-byte aligned
  std::uint64_t trace = 0;  // of a kernel with marks: its buffer (gen/trace_events.h); 0 = not wanted
  std::uint32_t trace_capacity = 0;
};
// `p` has passed check_problem and is not empty.
Status check_pointers(const ForwardProblem& p, const ForwardPointers& at);

}  // namespace flashptx
