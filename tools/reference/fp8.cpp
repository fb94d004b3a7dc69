// See fp8.h. Quantisation follows the description in host/flashptx.h: amax over what shares a scale.
#include "tools/reference/fp8.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "gen/hadamard_signs.h"
#include "tools/reference/numeric.h"

namespace flashptx::reference {
namespace {

struct Shape {
  std::int64_t batch, heads, seqlen;
  int dim;
  std::int64_t rows() const { return batch * heads * seqlen; }
  std::size_t elements() const { return static_cast<std::size_t>(rows() * dim); }
  Strides strides() const { return {heads * seqlen * dim, dim, seqlen * dim}; }
};

Shape shape_q(const Problem& p) { return {p.batch, p.heads_q, p.seqlen_q, p.head_dim}; }
Shape shape_k(const Problem& p) { return {p.batch, p.heads_kv, p.seqlen_k, p.head_dim}; }
Shape shape_v(const Problem& p) { return {p.batch, p.heads_kv, p.seqlen_k, p.head_dim_v}; }

std::vector<float> dense(const Problem& p, const Shape& s, DataType type, const void* data, const Strides& strides) {
  std::vector<float> out(s.elements());
  parallel_for(s.batch * s.heads, p.threads, [&](std::int64_t pair) {
    const std::int64_t b = pair / s.heads, h = pair % s.heads;
    for (std::int64_t r = 0; r < s.seqlen; ++r)
      load_row(type, data, b * strides.batch + r * strides.seqlen + h * strides.head, s.dim,
               &out[static_cast<std::size_t>((pair * s.seqlen + r) * s.dim)]);
  });
  return out;
}

Operands operands_of(const Problem& p) {
  Operands x;
  x.q = dense(p, shape_q(p), p.dtype, p.q, p.q_strides);
  x.k = dense(p, shape_k(p), p.type_k(), p.k, p.k_strides);
  x.v = dense(p, shape_v(p), p.type_v(), p.v, p.v_strides);
  x.problem = p;
  x.problem.dtype_o = p.output();
  x.problem.dtype = DataType::f32, x.problem.dtype_k = x.problem.dtype_v = {}, x.problem.p_e4m3 = true;
  x.problem.q = x.q.data(), x.problem.k = x.k.data(), x.problem.v = x.v.data();
  x.problem.q_strides = shape_q(p).strides(), x.problem.k_strides = shape_k(p).strides();
  x.problem.v_strides = shape_v(p).strides();
  return x;
}

void rotate(std::vector<float>* x, const Shape& s, const Fp8Options& o, std::int64_t position,
            const std::vector<float>& cos, const std::vector<float>& sin) {
  const int half = s.dim / 2;
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    float* at = x->data() + row * s.dim;
    const std::int64_t line = (position + row % s.seqlen) * half;
    for (int i = 0; i < half; ++i) {
      float& a = at[o.rope == Rope::half ? i : 2 * i];
      float& b = at[o.rope == Rope::half ? i + half : 2 * i + 1];
      const double c = cos[static_cast<std::size_t>(line + i)], n = sin[static_cast<std::size_t>(line + i)];
      const double u = a, v = b;
      a = static_cast<float>(u * c - v * n), b = static_cast<float>(v * c + u * n);
    }
  }
}

float amax_of(const float* x, std::int64_t elements) {
  float amax = 0;
  for (std::int64_t i = 0; i < elements; ++i) amax = std::max(amax, std::fabs(x[i]));
  return amax;
}

// Values that share a scale, or a part of them.
void quantize_group(DataType type, float amax, float* x, std::int64_t elements) {
  if (amax == 0) return;
  const float limit = type == DataType::e4m3 ? 448.0f : 57344.0f, scale = amax / limit, inverse = limit / amax;
  for (std::int64_t i = 0; i < elements; ++i)
    x[i] = scale * static_cast<float>(round_to(type, std::clamp(x[i] * inverse, -limit, limit)));
}

void quantize(std::vector<float>* x, const Shape& s, const Fp8Options& o, DataType type, bool hadamard, bool rope, int threads) {
  const bool transformed = hadamard || rope;
  if (hadamard)
    parallel_for(s.batch * s.heads, threads, [&](std::int64_t pair) {
      for (std::int64_t r = 0; r < s.seqlen; ++r)
        hadamard_row(x->data() + (pair * s.seqlen + r) * s.dim, s.dim, o.seed, false);
    });
  // Blocks are held in bf16 between the two steps (host/flashptx.h).
  if (o.scale_kind == ScaleKind::block && transformed)
    parallel_for(s.rows(), threads, [&](std::int64_t r) {
      for (int d = 0; d < s.dim; ++d) {
        float& value = (*x)[static_cast<std::size_t>(r * s.dim + d)];
        value = static_cast<float>(round_to(DataType::bf16, value));
      }
    });
  const bool shared = o.scale_kind == ScaleKind::tensor;
  const float amax = shared ? amax_of(x->data(), s.rows() * s.dim) : 0;
  const std::int64_t rows = o.scale_kind != ScaleKind::block ? s.seqlen : o.block_rows == 0 ? 128 : o.block_rows;
  parallel_for(s.batch * s.heads, threads, [&](std::int64_t pair) {
    for (std::int64_t r = 0; r < s.seqlen; r += rows) {
      float* const at = x->data() + (pair * s.seqlen + r) * s.dim;
      const std::int64_t elements = std::min(rows, s.seqlen - r) * s.dim;
      quantize_group(type, shared ? amax : amax_of(at, elements), at, elements);
    }
  });
}

}  // namespace

void hadamard_row(float* x, int head_dim, std::uint32_t seed, bool inverse) {
  const int n = head_dim & -head_dim;
  const auto negate = [&] {
    for (int j = 0; j < head_dim; ++j)
      if (hadamard_negates(seed, static_cast<std::uint32_t>(j))) x[j] = -x[j];
  };
  if (!inverse) negate();
  for (int block = 0; block < head_dim; block += n)
    for (int step = 1; step < n; step *= 2)
      for (int i = block; i < block + n; ++i)
        if (((i - block) & step) == 0) {
          const float a = x[i], b = x[i + step];
          x[i] = a + b, x[i + step] = a - b;
        }
  const float factor = 1 / std::sqrt(static_cast<float>(n));
  for (int j = 0; j < head_dim; ++j) x[j] *= factor;
  if (inverse) negate();
}

Operands rotated(const Problem& p, const Fp8Options& o, const std::vector<float>& cos, const std::vector<float>& sin) {
  Operands x = operands_of(p);
  rotate(&x.q, shape_q(p), o, o.position_q, cos, sin);
  rotate(&x.k, shape_k(p), o, o.position_k, cos, sin);
  return x;
}

Operands quantized(const Problem& p, const Fp8Options& o) {
  Operands x = operands_of(p);
  quantize(&x.q, shape_q(p), o, o.dtype, o.hadamard, o.rope != Rope::none, p.threads);
  quantize(&x.k, shape_k(p), o, o.type_k(), o.hadamard, o.rope != Rope::none, p.threads);
  quantize(&x.v, shape_v(p), o, o.type_v(), o.hadamard_v, false, p.threads);
  return x;
}

Result attention_fp8(const Problem& p, const Fp8Options& o) {
  const Operands x = quantized(p, o);
  Result r = attention_plain(x.problem);
  if (!o.hadamard_v) return r;
  std::vector<float> row(static_cast<std::size_t>(p.head_dim_v));
  for (std::size_t at = 0; at < r.o.size(); at += row.size()) {
    for (std::size_t j = 0; j < row.size(); ++j) row[j] = static_cast<float>(r.o[at + j]);
    hadamard_row(row.data(), p.head_dim_v, o.seed, true);
    for (std::size_t j = 0; j < row.size(); ++j) r.o[at + j] = round_to(p.output(), row[j]);
  }
  return r;
}

}  // namespace flashptx::reference
