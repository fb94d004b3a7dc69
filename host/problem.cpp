// The checks of host/problem.h, in the order in which a reader of the call would make them: types,
// sizes, head dimensions, scale, strides, total size, overlap of O. Pointers come last, at each
// call. Next: host/tensor_map_check.cpp (the rules of TMA itself, checked once more when a map is
// made).
#include "host/problem.h"

#include <algorithm>
#include <cmath>

#include "host/refusal.h"

namespace flashptx {
namespace {

constexpr std::int64_t max_stride_bytes = std::int64_t{1} << 40;  // cuTensorMapEncodeTiled
constexpr std::int64_t max_bytes = std::int64_t{1} << 62;

Status check_extents(const ForwardProblem& p) {
  const struct {
    const char* name;
    std::int64_t value;
  } extents[] = {{"batch", p.batch},
                 {"heads_q", p.heads_q},
                 {"heads_kv", p.heads_kv},
                 {"seqlen_q", p.seqlen_q},
                 {"seqlen_k", p.seqlen_k}};
  for (const auto& e : extents) {
    if (e.value < 0)
      return invalid(std::string(e.name) + " is " + text(e.value) + ": must be >= 0");
    if (e.value > max_extent)
      return unsupported(std::string(e.name) + " is " + text(e.value) + ": the limit is 2^31 - 1");
  }
  if (p.heads_q > 0 && p.heads_kv == 0)
    return invalid("heads_kv is 0 while heads_q is " + text(p.heads_q) + ": must be >= 1");
  if (p.heads_kv > 0 && p.heads_q % p.heads_kv != 0)
    return invalid("heads_q is " + text(p.heads_q) + ": must be a multiple of heads_kv, which is " +
                   text(p.heads_kv));
  return {};
}

Status check_head_dim(const char* name, std::int64_t d) {
  if (d < 1) return invalid(std::string(name) + " is " + text(d) + ": must be >= 1");
  if (d % 8 != 0)
    return unsupported(std::string(name) + " is " + text(d) +
                       ": must be a multiple of 8 (TMA moves rows in units of 16 bytes)");
  if (d > 256) return unsupported(std::string(name) + " is " + text(d) + ": the limit is 256");
  return {};
}

Status check_scale(const ForwardProblem& p) {
  if (std::isnan(p.softmax_scale)) return {};
  // The kernel forms scale * log2(e) * score in fp32: beyond this, scores of everyday size overflow
  // and inf - inf is NaN. fp16 inputs give scores up to 256 * 65504^2 = 1.1e12.
  if (!std::isfinite(p.softmax_scale) || p.softmax_scale < 0 || p.softmax_scale > 1e20f)
    return invalid("softmax_scale is " + std::to_string(p.softmax_scale) +
                   ": must be >= 0 and at most 1e20");
  return {};
}

Status check_stride(const TensorView& t, const char* which, std::int64_t extent,
                    std::int64_t stride, int size) {
  if (extent <= 1) return {};  // never used: replaced by a legal one
  const std::string name = std::string(t.name) + " " + which + " stride";
  if (stride < 0) return unsupported(name + " is " + text(stride) + " elements: must be >= 0");
  if (stride >= max_stride_bytes / size)
    return unsupported(name + " is " + text(stride) + " elements: must be below 2^40 bytes = " +
                       text(max_stride_bytes / size) + " elements");
  if (stride * size % 16 != 0)
    return unsupported(name + " is " + text(stride) + " elements = " + text(stride * size) +
                       " bytes: must be a multiple of 16 bytes");
  return {};
}

// A product beyond 64 bits becomes a stride that check_stride refuses.
std::int64_t saturated(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

// Rows do not overlap if, taken by growing stride, each stride clears all that the smaller ones
// span.
Status check_overlap(const TensorView& t) {
  struct Dim {
    const char* name;
    std::int64_t extent, stride;
  };
  Dim dims[] = {{"seq", t.seq, t.strides.seq},
                {"head", t.heads, t.strides.head},
                {"batch", t.batch, t.strides.batch}};
  std::stable_sort(std::begin(dims), std::end(dims),
                   [](const Dim& a, const Dim& b) { return a.stride < b.stride; });
  std::int64_t span = t.dim;
  for (const Dim& d : dims) {
    if (d.extent <= 1) continue;
    if (d.stride < span)
      return invalid(std::string(t.name) + " " + d.name + " stride is " + text(d.stride) +
                     " elements: rows of " + t.name + " would overlap, must be >= " + text(span));
    span += d.stride * (d.extent - 1);  // check_size has shown that this fits
  }
  return {};
}

Status check_size(const TensorView& t, int size) {
  __int128 last = t.dim;
  const std::int64_t extent[] = {t.batch, t.seq, t.heads};
  const std::int64_t stride[] = {t.strides.batch, t.strides.seq, t.strides.head};
  for (int i = 0; i < 3; ++i)
    if (extent[i] > 1) last += static_cast<__int128>(extent[i] - 1) * stride[i];
  if (last * size > max_bytes)
    return unsupported(std::string(t.name) + " spans more than 2^62 bytes: extents (" +
                       text(t.batch) + ", " + text(t.seq) + ", " + text(t.heads) + "), strides (" +
                       text(t.strides.batch) + ", " + text(t.strides.seq) + ", " +
                       text(t.strides.head) + ") for (batch, seq, head)");
  return {};
}

}  // namespace

Status check_view(const TensorView& t, int size, bool written) {
  if (t.batch == 0 || t.seq == 0 || t.heads == 0) return {};
  if (Status s = check_stride(t, "batch", t.batch, t.strides.batch, size); !s.ok()) return s;
  if (Status s = check_stride(t, "seq", t.seq, t.strides.seq, size); !s.ok()) return s;
  if (Status s = check_stride(t, "head", t.heads, t.strides.head, size); !s.ok()) return s;
  if (Status s = check_size(t, size); !s.ok()) return s;
  return written ? check_overlap(t) : Status{};
}

Strides strides_bshd(std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t row = saturated(heads, head_dim);
  return {saturated(seqlen, row), row, head_dim};
}

Strides strides_bhsd(std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t plane = saturated(seqlen, head_dim);
  return {saturated(heads, plane), head_dim, plane};
}

float ForwardProblem::scale() const {
  return std::isnan(softmax_scale)
             ? static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))
             : softmax_scale;
}

TensorView view_q(const ForwardProblem& p) {
  return {"Q", p.batch, p.seqlen_q, p.heads_q, p.head_dim, p.q};
}
TensorView view_k(const ForwardProblem& p) {
  return {"K", p.batch, p.seqlen_k, p.heads_kv, p.head_dim, p.k};
}
TensorView view_v(const ForwardProblem& p) {
  if (p.v_transposed) return {"V^T", p.batch, p.value_dim(), p.heads_kv, p.keys_padded(), p.v};
  return {"V", p.batch, p.seqlen_k, p.heads_kv, p.value_dim(), p.v};
}
TensorView view_o(const ForwardProblem& p) {
  return {"O", p.batch, p.seqlen_q, p.heads_q, p.value_dim(), p.o};
}

int element_bytes(DataType t) { return element_bytes(element_type(t)); }

ElementType element_type(DataType t) {
  switch (t) {
    case DataType::f16:
      return ElementType::f16;
    case DataType::bf16:
      return ElementType::bf16;
    case DataType::f32:
      return ElementType::f32;
    default:
      return ElementType::u8;  // TMA has no FP8 type
  }
}

namespace {

Status check_scale_strides(const char* name, const ScaleStrides& s) {
  for (const auto& [which, stride] : {std::pair{"batch", s.batch}, std::pair{"head", s.head}})
    if (stride < 0 || stride > UINT32_MAX)
      return unsupported(std::string(name) + " " + which + " stride is " + text(stride) +
                         ": must be in [0, 2^32) elements");
  if (s.block_rows < 0 || s.block_rows > max_extent)
    return invalid(std::string(name) + " block_rows is " + text(s.block_rows) + ": must be in [0, 2^31)");
  return {};
}

// A block of keys has one scale, or a whole number of them.
Status check_key_blocks(const char* name, const ScaleStrides& s) {
  const std::int64_t rows = s.block_rows;
  if (rows == 0 || rows % 128 == 0 || rows == 16 || rows == 32 || rows == 64) return {};
  return unsupported(std::string(name) + " block_rows is " + text(rows) + ": must be 16, 32, 64 or a multiple of 128");
}

// Only e4m3 and e5m2 mix (PTX ISA, wgmma.mma_async: .atype and .btype of FP8).
Status check_types(const ForwardProblem& p) {
  for (const auto& [name, type] : {std::pair{"dtype_k", p.type_k()}, std::pair{"dtype_v", p.type_v()}}) {
    if (type == p.dtype) continue;
    if (type != DataType::e4m3 && type != DataType::e5m2)
      return unsupported(std::string(name) + " is " + text(static_cast<int>(type)) + ": must be that of Q, or e4m3 or e5m2 beside a Q of those");
    if (!p.eight_bit())
      return unsupported(std::string(name) + " is " + to_string(type) + " while dtype is " + to_string(p.dtype) +
                         ": K and V have types of their own only where Q is e4m3 or e5m2");
  }
  return {};
}

Status check_eight_bit(const ForwardProblem& p) {
  if (Status s = check_types(p); !s.ok()) return s;
  if (!p.eight_bit()) {
    if (p.v_transposed) return unsupported("v_transposed is set: only e4m3 and e5m2 take V transposed");
    if (p.fast) return unsupported("fast is set: only e4m3 and e5m2 have a fast mode");
    return {};
  }
  if (p.dtype_o != DataType::f16 && p.dtype_o != DataType::bf16)
    return unsupported("dtype_o is " + text(static_cast<int>(p.dtype_o)) + ": must be f16 or bf16");
  if (Status s = check_scale_strides("q_scale", p.q_scale); !s.ok()) return s;
  if (Status s = check_scale_strides("k_scale", p.k_scale); !s.ok()) return s;
  if (Status s = check_scale_strides("v_scale", p.v_scale); !s.ok()) return s;
  if (Status s = check_key_blocks("k_scale", p.k_scale); !s.ok()) return s;
  if (Status s = check_key_blocks("v_scale", p.v_scale); !s.ok()) return s;
  if (p.q_scale_group < 1 || (p.heads_q > 0 && p.heads_q % p.q_scale_group != 0))
    return invalid("q_scale_group is " + text(p.q_scale_group) + ": must be >= 1 and divide heads_q, which is " +
                   text(p.heads_q));
  return {};
}

}  // namespace

Status check_problem(const ForwardProblem& p) {
  if (p.dtype != DataType::f16 && p.dtype != DataType::bf16 && !p.eight_bit())
    return unsupported("dtype is " + text(static_cast<int>(p.dtype)) + ": must be f16, bf16, e4m3 or e5m2");
  if (Status s = check_eight_bit(p); !s.ok()) return s;
  if (p.mask != Mask::full && p.mask != Mask::causal)
    return invalid("mask is " + text(static_cast<int>(p.mask)) + ": must be full or causal");
  if (Status s = check_extents(p); !s.ok()) return s;
  if (Status s = check_head_dim("head_dim", p.head_dim); !s.ok()) return s;
  if (Status s = check_head_dim("head_dim_v", p.value_dim()); !s.ok()) return s;
  if (Status s = check_scale(p); !s.ok()) return s;
  if (p.empty()) return {};
  const int size = element_bytes(p.dtype);
  if (Status s = check_view(view_q(p), size, false); !s.ok()) return s;
  if (Status s = check_view(view_k(p), size, false); !s.ok()) return s;
  if (Status s = check_view(view_v(p), size, false); !s.ok()) return s;
  if (Status s = check_view(view_o(p), element_bytes(p.output()), true); !s.ok()) return s;
  const __int128 lse_bytes = static_cast<__int128>(p.batch) * p.heads_q * p.seqlen_q * 4;
  if (lse_bytes > max_bytes)
    return unsupported(
        "batch * heads_q * seqlen_q is above 2^60: LSE would span more than 2^62 bytes");
  return {};
}

Status check_pointers(const ForwardProblem& p, const ForwardPointers& at) {
  const struct {
    const char* name;
    std::uint64_t address;
    bool needed;
  } tensors[] = {{"q", at.q, true},
                 {"k", at.k, p.seqlen_k > 0},
                 {"v", at.v, p.seqlen_k > 0},
                 {"o", at.o, true}};
  for (const auto& t : tensors) {
    if (!t.needed) continue;
    if (t.address == 0) return invalid(std::string(t.name) + " is a null pointer");
    if (t.address % 16 != 0)
      return invalid(std::string(t.name) + " is address " + std::to_string(t.address) +
                     ": must be a multiple of 16 bytes");
  }
  for (const auto& t : tensors)
    if (&t != &tensors[3] && t.needed && t.address == at.o)
      return invalid(std::string("o is the address of ") + t.name + ": O must not overlap Q, K or V");
  const struct {
    const char* name;
    std::uint64_t address;
  } scales[] = {{"q_scale", at.q_scale}, {"k_scale", at.k_scale}, {"v_scale", at.v_scale}};
  for (const auto& s : scales) {
    if (s.address != 0 && !p.eight_bit())
      return invalid(std::string(s.name) + " is given: only e4m3 and e5m2 take scales");
    if (s.address % 4 != 0)
      return invalid(std::string(s.name) + " is address " + std::to_string(s.address) +
                     ": must be a multiple of 4 bytes");
  }
  if (at.lse % 4 != 0)
    return invalid("lse is address " + std::to_string(at.lse) + ": must be a multiple of 4 bytes");
  return {};
}

}  // namespace flashptx
