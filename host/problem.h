// A forward problem as a caller states it, and everything that can be wrong with it.
//
// Checked completely before a kernel is chosen, so that neither the driver nor a kernel ever meets
// a value that it cannot handle: each refusal names the argument, its value and the limit. Next:
// host/attention.h (what happens to a problem that passed).
#pragma once

#include <cstdint>
#include <limits>
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

struct ForwardProblem {
  DataType dtype = DataType::bf16;
  Mask mask = Mask::full;
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t head_dim = 0;
  std::int64_t head_dim_v = 0;                                    // 0 = head_dim
  float softmax_scale = std::numeric_limits<float>::quiet_NaN();  // NaN = 1 / sqrt(head_dim)
  Strides q, k, v, o;

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

TensorView view_q(const ForwardProblem& p);
TensorView view_k(const ForwardProblem& p);
TensorView view_v(const ForwardProblem& p);
TensorView view_o(const ForwardProblem& p);

int element_bytes(DataType t);
ElementType element_type(DataType t);

Status check_problem(const ForwardProblem& p);

struct ForwardPointers {
  std::uint64_t q = 0, k = 0, v = 0, o = 0;
  std::uint64_t lse = 0;  // 0 = not wanted
  std::uint64_t trace = 0;  // of a kernel with marks: its buffer (gen/trace_events.h); 0 = not wanted
  std::uint32_t trace_capacity = 0;
};
// `p` has passed check_problem and is not empty.
Status check_pointers(const ForwardProblem& p, const ForwardPointers& at);

}  // namespace flashptx
