// The two references. One template: Real = double rounds nothing, Real = float rounds P and O.
//
// Unfused on purpose (whole rows of S, then softmax, then P V), so that no trick of the kernels is shared. A
// small register-blocked product makes 16k sequences checkable in seconds. Next: tools/reference/error.h.
#include "tools/reference/attention.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <thread>
#include <type_traits>

#include "tools/reference/numeric.h"

// The widest vectors that the machine has, chosen at load time; sanitizers do not get along with ifuncs.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_UNDEFINED__)
#define FLASHPTX_WIDEST __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FLASHPTX_WIDEST
#endif

namespace flashptx::reference {
namespace {

constexpr int rows_per_block = 32;  // query rows that a task computes at once
constexpr int tile_rows = 4;

// C[4][n] += A[4][k] * B[k][n], n a multiple of 16: four rows share each load of B.
#define FLASHPTX_PRODUCT(Real)                                                                       \
  FLASHPTX_WIDEST void product(const Real* a, std::int64_t lda, const Real* b, std::int64_t ldb,     \
                               Real* c, std::int64_t ldc, std::int64_t n, std::int64_t k) {          \
    typedef Real Vec __attribute__((vector_size(16 * sizeof(Real)), aligned(sizeof(Real)), may_alias)); \
    for (std::int64_t j = 0; j < n; j += 16) {                                                       \
      Vec acc[tile_rows] = {};                                                                       \
      for (std::int64_t i = 0; i < k; ++i) {                                                         \
        const Vec row = *reinterpret_cast<const Vec*>(b + i * ldb + j);                              \
        acc[0] += row * a[i];                                                                        \
        acc[1] += row * a[lda + i];                                                                  \
        acc[2] += row * a[2 * lda + i];                                                              \
        acc[3] += row * a[3 * lda + i];                                                              \
      }                                                                                              \
      for (int r = 0; r < tile_rows; ++r) *reinterpret_cast<Vec*>(c + r * ldc + j) += acc[r];        \
    }                                                                                                \
  }
FLASHPTX_PRODUCT(double)
FLASHPTX_PRODUCT(float)
#undef FLASHPTX_PRODUCT

constexpr std::int64_t pad16(std::int64_t n) { return (n + 15) / 16 * 16; }

// K transposed and V of one (batch, kv head), converted once and padded with zeros.
template <class Real>
struct KeysValues {
  std::int64_t keys_padded, dim_v_padded;
  std::vector<Real> k_transposed, v;

  KeysValues(const Problem& p, std::int64_t b, std::int64_t head)
      : keys_padded(pad16(p.seqlen_k)), dim_v_padded(pad16(p.head_dim_v)),
        k_transposed(static_cast<std::size_t>(p.head_dim * keys_padded)),
        v(static_cast<std::size_t>(p.seqlen_k * dim_v_padded)) {
    std::vector<Real> row(static_cast<std::size_t>(p.head_dim));
    for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
      load_row(p.type_k(), p.k, b * p.k_strides.batch + j * p.k_strides.seqlen + head * p.k_strides.head,
               p.head_dim, row.data());
      for (int d = 0; d < p.head_dim; ++d)
        k_transposed[static_cast<std::size_t>(d * keys_padded + j)] = row[static_cast<std::size_t>(d)];
      load_row(p.type_v(), p.v, b * p.v_strides.batch + j * p.v_strides.seqlen + head * p.v_strides.head,
               p.head_dim_v, &v[static_cast<std::size_t>(j * dim_v_padded)]);
    }
  }
};

// Rounds probabilities (0 <= p <= 1) to nearest even. There are seqlen^2 of them, so the 16-bit formats are
// done on the bits, in a form that vectorises; f16 below 2^-14 is a multiple of 2^-24, which adding 1/2 rounds to.
void round_probabilities(DataType type, float* p, std::int64_t n) {
  if (type == DataType::f32) return;
  if (type != DataType::bf16 && type != DataType::f16) {
    for (std::int64_t i = 0; i < n; ++i) p[i] = static_cast<float>(round_to(type, p[i]));
    return;
  }
  const int shift = type == DataType::bf16 ? 16 : 13;
  const std::uint32_t half = (1u << (shift - 1)) - 1, keep = ~((1u << shift) - 1);
  const float small = type == DataType::f16 ? 0x1p-14f : 0.0f;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(p[i]);
    const float normal = std::bit_cast<float>((bits + half + ((bits >> shift) & 1)) & keep);
    const float subnormal = (p[i] + 0.5f) - 0.5f;
    p[i] = p[i] < small ? subnormal : normal;
  }
}

// Turns the first `visible` scores of a row into probabilities, the rest into zeros; returns the LSE.
template <class Real>
double softmax_row(const Problem& p, Real* s, std::int64_t visible, std::int64_t end) {
  std::fill(s + visible, s + end, Real(0));
  if (visible == 0) return -std::numeric_limits<double>::infinity();
  if (std::is_same_v<Real, float> && p.unfused_scores)
    for (std::int64_t j = 0; j < visible; ++j) s[j] = static_cast<Real>(round_to(p.dtype, s[j]));
  Real largest = -std::numeric_limits<Real>::infinity();
  for (std::int64_t j = 0; j < visible; ++j) {
    s[j] *= static_cast<Real>(p.scale);
    largest = std::max(largest, s[j]);
  }
  Real sum = 0;
  for (std::int64_t j = 0; j < visible; ++j) sum += s[j] = std::exp(s[j] - largest);
  if constexpr (std::is_same_v<Real, float>) {
    if (p.rounds_p_to_e4m3() && p.unfused_p) {
      for (std::int64_t j = 0; j < visible; ++j) s[j] *= 448 / sum;
      round_probabilities(DataType::e4m3, s, visible);
      for (std::int64_t j = 0; j < visible; ++j) s[j] /= 448;
      return static_cast<double>(largest + std::log(sum));
    }
    if (p.rounds_p_to_e4m3()) {
      for (std::int64_t j = 0; j < visible; ++j) s[j] *= 256;
      round_probabilities(DataType::e4m3, s, visible);
      for (std::int64_t j = 0; j < visible; ++j) s[j] /= 256 * sum;
      return static_cast<double>(largest + std::log(sum));
    }
  }
  for (std::int64_t j = 0; j < visible; ++j) s[j] /= sum;
  if constexpr (std::is_same_v<Real, float>) round_probabilities(p.dtype, s, visible);
  return static_cast<double>(largest + std::log(sum));
}

// Rows [first, first + rows_per_block) of the selection, for one query head.
template <class Real>
void attend_block(const Problem& p, const KeysValues<Real>& kv, std::int64_t b, std::int64_t head,
                  std::int64_t first, Result* out) {
  const std::int64_t count = std::min<std::int64_t>(rows_per_block, p.row_count() - first);
  const std::int64_t last_visible = p.visible(p.row(first + count - 1));  // rows ascend, so does visibility
  const std::int64_t keys = pad16(last_visible);
  const DataType out_type = p.output();
  std::vector<Real> q(static_cast<std::size_t>(rows_per_block * p.head_dim));
  std::vector<Real> s(static_cast<std::size_t>(rows_per_block * keys));
  std::vector<Real> o(static_cast<std::size_t>(rows_per_block * kv.dim_v_padded));
  for (std::int64_t r = 0; r < count; ++r)
    load_row(p.dtype, p.q,
             b * p.q_strides.batch + p.row(first + r) * p.q_strides.seqlen + head * p.q_strides.head,
             p.head_dim, &q[static_cast<std::size_t>(r * p.head_dim)]);
  for (std::int64_t r = 0; r < count; r += tile_rows)
    product(q.data() + r * p.head_dim, p.head_dim, kv.k_transposed.data(), kv.keys_padded,
            s.data() + r * keys, keys, keys, p.head_dim);
  for (std::int64_t r = 0; r < count; ++r)
    out->lse[static_cast<std::size_t>((b * p.heads_q + head) * p.row_count() + first + r)] =
        softmax_row(p, s.data() + r * keys, p.visible(p.row(first + r)), keys);
  for (std::int64_t r = 0; r < count; r += tile_rows)
    product(s.data() + r * keys, keys, kv.v.data(), kv.dim_v_padded, o.data() + r * kv.dim_v_padded,
            kv.dim_v_padded, kv.dim_v_padded, last_visible);
  for (std::int64_t r = 0; r < count; ++r) {
    double* to = &out->o[static_cast<std::size_t>(
        ((b * p.row_count() + first + r) * p.heads_q + head) * p.head_dim_v)];
    for (int d = 0; d < p.head_dim_v; ++d) {
      to[d] = static_cast<double>(o[static_cast<std::size_t>(r * kv.dim_v_padded + d)]);
      if constexpr (std::is_same_v<Real, float>) to[d] = round_to(out_type, to[d]);
    }
  }
}

template <class Real>
Result attention(const Problem& p) {
  Result out;
  out.o.resize(static_cast<std::size_t>(p.batch * p.row_count() * p.heads_q * p.head_dim_v));
  out.lse.resize(static_cast<std::size_t>(p.batch * p.heads_q * p.row_count()));
  if (out.lse.empty()) return out;
  const std::int64_t group = p.heads_q / p.heads_kv;
  const std::int64_t blocks = (p.row_count() + rows_per_block - 1) / rows_per_block;
  const auto run = [&](std::int64_t pair, int threads) {
    const std::int64_t b = pair / p.heads_kv, head_kv = pair % p.heads_kv;
    const KeysValues<Real> kv(p, b, head_kv);
    parallel_for(group * blocks, threads, [&](std::int64_t task) {
      attend_block(p, kv, b, head_kv * group + task / blocks, task % blocks * rows_per_block, &out);
    });
  };
  // Many pairs: one thread each. Few: the threads share the blocks of one pair.
  const std::int64_t pairs = p.batch * p.heads_kv;
  if (pairs >= 16) {
    parallel_for(pairs, p.threads, [&](std::int64_t pair) { run(pair, 1); });
  } else {
    for (std::int64_t pair = 0; pair < pairs; ++pair) run(pair, p.threads);
  }
  return out;
}

}  // namespace

void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body) {
  std::int64_t workers = threads > 0 ? threads : std::max(1u, std::thread::hardware_concurrency());
  workers = std::min(workers, count);
  std::atomic<std::int64_t> next{0};
  const auto work = [&] {
    for (std::int64_t i; (i = next.fetch_add(1)) < count;) body(i);
  };
  std::vector<std::thread> pool;
  for (std::int64_t i = 1; i < workers; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
}

Result attention_float64(const Problem& problem) { return attention<double>(problem); }
Result attention_plain(const Problem& problem) { return attention<float>(problem); }

}  // namespace flashptx::reference
