// What each named input holds, and what must come out:
//   random       N(0, 1) everywhere
//   outliers     N(0, 1) plus N(0, 100) on one element in a thousand (FlashAttention-3 paper, section 4.3)
//   ones         O = 1, LSE = scale * head_dim + ln(keys)
//   v_ramp       Q = 0 (every key weighs the same): O = (column + 3 head_kv + 7 batch) mod 256, exactly
//   one_hot      Q = 0, V[key] = e(key mod dim): O * keys counts the visible keys of each residue
//   identity_qk  query i and key j meet where i = j (mod dim), by 32 / scale: O is the mean of those keys' V = key mod 128
// Next: tests/reference/inputs_test.cpp.
#include "tools/reference/inputs.h"

#include <algorithm>
#include <cmath>

#include "tools/reference/numeric.h"

namespace flashptx::reference {
namespace {

enum class Role { q, k, v };

double value(Inputs inputs, Role role, std::uint64_t seed, std::uint64_t index, std::int64_t b, std::int64_t s,
             std::int64_t h, int d, int dim, float scale) {
  const std::uint64_t stream = 3 * seed + static_cast<std::uint64_t>(role);
  switch (inputs) {
    case Inputs::random: return normal(stream, index);
    case Inputs::outliers: {
      const bool outlier = uniform(stream + 0x5eed0000, index) < 1e-3;
      return normal(stream, index) + (outlier ? 10 * normal(stream + 0x0dd00000, index) : 0);
    }
    case Inputs::ones: return 1;
    case Inputs::v_ramp:
      if (role == Role::q) return 0;
      if (role == Role::k) return normal(stream, index);
      return static_cast<double>((d + 3 * h + 7 * b) % 256);
    case Inputs::one_hot:
      if (role == Role::q) return 0;
      if (role == Role::k) return normal(stream, index);
      return d == s % dim ? 1 : 0;
    case Inputs::identity_qk:
      if (role == Role::v) return static_cast<double>(s % 128);
      return d == s % dim ? std::sqrt(32 / scale) : 0;
  }
  return 0;
}

void fill(std::vector<std::uint8_t>* bytes, std::int64_t offset, const Problem& p, Role role, Strides strides,
          Inputs inputs, std::uint64_t seed) {
  const std::int64_t heads = role == Role::q ? p.heads_q : p.heads_kv;
  const std::int64_t seqlen = role == Role::q ? p.seqlen_q : p.seqlen_k;
  const int dim = role == Role::v ? p.head_dim_v : p.head_dim;
  const DataType type = role == Role::q ? p.dtype : role == Role::k ? p.type_k() : p.type_v();
  parallel_for(p.batch * heads, p.threads, [&](std::int64_t pair) {
    const std::int64_t b = pair / heads, h = pair % heads;
    for (std::int64_t s = 0; s < seqlen; ++s)
      for (int d = 0; d < dim; ++d) {
        // The number of an element does not depend on the layout: every layout gets the same values.
        const auto index = static_cast<std::uint64_t>(((b * heads + h) * seqlen + s) * dim + d);
        store(type, bytes->data() + offset, b * strides.batch + s * strides.seqlen + h * strides.head + d,
              value(inputs, role, seed, index, b, s, h, d, dim, p.scale));
      }
  });
}

}  // namespace

const char* to_string(Inputs inputs) {
  switch (inputs) {
    case Inputs::random: return "random";
    case Inputs::outliers: return "outliers";
    case Inputs::ones: return "ones";
    case Inputs::identity_qk: return "identity_qk";
    case Inputs::v_ramp: return "v_ramp";
    case Inputs::one_hot: return "one_hot";
  }
  return "?";
}

bool parse_inputs(const std::string& text, Inputs* out) {
  for (Inputs i : {Inputs::random, Inputs::outliers, Inputs::ones, Inputs::identity_qk, Inputs::v_ramp,
                   Inputs::one_hot})
    if (text == to_string(i)) {
      *out = i;
      return true;
    }
  return false;
}

bool parse_layout(const std::string& text, Layout* out) {
  if (text == "bshd") *out = Layout::bshd;
  else if (text == "bhsd") *out = Layout::bhsd;
  else if (text == "qkv") *out = Layout::qkv;
  else return false;
  return true;
}

Strides dense_strides(Layout layout, std::int64_t seqlen, std::int64_t heads, int dim) {
  if (layout == Layout::bhsd) return {heads * seqlen * dim, dim, seqlen * dim};
  return {seqlen * heads * dim, heads * dim, dim};
}

Tensors make_tensors(const Problem& shape, Layout layout, Inputs inputs, std::uint64_t seed) {
  Tensors t;
  t.problem = shape;
  Problem& p = t.problem;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements * bytes_of(p.dtype));
  };
  t.o_strides = dense_strides(layout, p.seqlen_q, p.heads_q, p.head_dim_v);
  t.o_elements = p.batch * p.seqlen_q * p.heads_q * p.head_dim_v;
  std::vector<std::uint8_t>*k = &t.k, *v = &t.v;
  if (layout == Layout::qkv) {
    const std::int64_t heads = p.heads_q + 2 * p.heads_kv;
    p.q_strides = p.k_strides = p.v_strides = dense_strides(Layout::bshd, p.seqlen_q, heads, p.head_dim);
    t.k_offset = p.heads_q * p.head_dim * bytes_of(p.dtype);
    t.v_offset = (p.heads_q + p.heads_kv) * p.head_dim * bytes_of(p.dtype);
    t.q.resize(bytes(p.batch * p.seqlen_q * heads * p.head_dim));
    k = v = &t.q;
  } else {
    p.q_strides = dense_strides(layout, p.seqlen_q, p.heads_q, p.head_dim);
    p.k_strides = dense_strides(layout, p.seqlen_k, p.heads_kv, p.head_dim);
    p.v_strides = dense_strides(layout, p.seqlen_k, p.heads_kv, p.head_dim_v);
    t.q.resize(bytes(p.batch * p.seqlen_q * p.heads_q * p.head_dim));
    t.k.resize(bytes(p.batch * p.seqlen_k * p.heads_kv * p.head_dim));
    t.v.resize(bytes(p.batch * p.seqlen_k * p.heads_kv * p.head_dim_v));
  }
  fill(&t.q, t.q_offset, p, Role::q, p.q_strides, inputs, seed);
  fill(k, t.k_offset, p, Role::k, p.k_strides, inputs, seed);
  fill(v, t.v_offset, p, Role::v, p.v_strides, inputs, seed);
  p.q = t.q.data() + t.q_offset;
  p.k = k->data() + t.k_offset;
  p.v = v->data() + t.v_offset;
  return t;
}

}  // namespace flashptx::reference
