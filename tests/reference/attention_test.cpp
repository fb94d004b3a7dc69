// The two references against three plain loops, and against answers known on paper.
// Next: tests/reference/error_test.cpp.
#include "tools/reference/attention.h"

#include <cmath>
#include <limits>

#include "tests/support.h"
#include "tools/reference/inputs.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::reference;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Problem shape(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seqlen_q,
              std::int64_t seqlen_k, int dim, Mask mask, DataType dtype = DataType::bf16) {
  Problem p;
  p.batch = batch, p.heads_q = heads_q, p.heads_kv = heads_kv, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.head_dim = p.head_dim_v = dim, p.mask = mask, p.dtype = dtype;
  p.scale = 1 / std::sqrt(static_cast<float>(dim));
  return p;
}

// One row of O by the definition, in long double, from the strided tensors.
std::vector<double> by_definition(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t i, double* lse) {
  const std::int64_t hk = h / (p.heads_q / p.heads_kv);
  long double sum = 0;
  std::vector<long double> o(static_cast<std::size_t>(p.head_dim_v));
  for (std::int64_t j = 0; j < p.seqlen_k; ++j) {
    if (p.mask == Mask::causal && j > i + p.seqlen_k - p.seqlen_q) continue;
    long double score = 0;
    for (int d = 0; d < p.head_dim; ++d)
      score += static_cast<long double>(load(p.dtype, p.q, b * p.q_strides.batch + i * p.q_strides.seqlen +
                                                               h * p.q_strides.head + d)) *
               load(p.dtype, p.k, b * p.k_strides.batch + j * p.k_strides.seqlen + hk * p.k_strides.head + d);
    const long double weight = std::exp(score * static_cast<long double>(p.scale));
    sum += weight;
    for (int d = 0; d < p.head_dim_v; ++d)
      o[static_cast<std::size_t>(d)] +=
          weight * load(p.dtype, p.v, b * p.v_strides.batch + j * p.v_strides.seqlen + hk * p.v_strides.head + d);
  }
  *lse = sum == 0 ? -infinity : static_cast<double>(std::log(sum));
  std::vector<double> result;
  for (long double x : o) result.push_back(sum == 0 ? 0 : static_cast<double>(x / sum));
  return result;
}

void check_all(const Problem& p) {
  const Result exact = attention_float64(p), plain = attention_plain(p);
  double worst = 0, worst_plain = 0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.heads_q; ++h)
      for (std::int64_t r = 0; r < p.row_count(); ++r) {
        double lse = 0;
        const auto o = by_definition(p, b, h, p.row(r), &lse);
        const double got = exact.lse[static_cast<std::size_t>((b * p.heads_q + h) * p.row_count() + r)];
        if (std::isinf(lse)) CHECK(got == lse);
        else CHECK(got == doctest::Approx(lse).epsilon(1e-12));
        for (int d = 0; d < p.head_dim_v; ++d) {
          const auto at =
              static_cast<std::size_t>(((b * p.row_count() + r) * p.heads_q + h) * p.head_dim_v + d);
          worst = std::max(worst, std::fabs(exact.o[at] - o[static_cast<std::size_t>(d)]));
          worst_plain = std::max(worst_plain, std::fabs(plain.o[at] - o[static_cast<std::size_t>(d)]));
        }
      }
  CHECK(worst < 1e-12);
  CHECK(worst_plain < 4 * epsilon(p.dtype));
  if (p.seqlen_k > 3) CHECK(worst_plain > 0);
}

}  // namespace

TEST_SUITE("reference/attention") {
  TEST_CASE("both agree with the definition in every layout, mask and head ratio") {
    for (Layout layout : {Layout::bshd, Layout::bhsd})
      for (Mask mask : {Mask::full, Mask::causal}) {
        check_all(make_tensors(shape(2, 6, 2, 37, 53, 24, mask), layout, Inputs::random, 1).problem);
        check_all(make_tensors(shape(1, 7, 1, 70, 33, 8, mask, DataType::f16), layout, Inputs::outliers, 2).problem);
      }
    check_all(make_tensors(shape(2, 4, 2, 21, 21, 16, Mask::causal), Layout::qkv, Inputs::random, 3).problem);
    check_all(make_tensors(shape(5, 4, 4, 3, 130, 40, Mask::causal), Layout::bshd, Inputs::random, 4).problem);
  }

  TEST_CASE("a selection of rows gives the same rows") {
    auto t = make_tensors(shape(1, 2, 1, 90, 90, 16, Mask::causal), Layout::bshd, Inputs::random, 5);
    t.problem.rows = {0, 1, 40, 63, 64, 89};
    check_all(t.problem);
  }

  TEST_CASE("the causal mask is aligned bottom right") {
    // one_hot: O * keys counts the visible keys of each residue, so its row sum times keys is the number seen.
    const auto keys_seen = [](std::int64_t seqlen_q, std::int64_t seqlen_k) {
      const auto t = make_tensors(shape(1, 1, 1, seqlen_q, seqlen_k, 8, Mask::causal), Layout::bshd,
                                  Inputs::one_hot, 1);
      const Result r = attention_float64(t.problem);
      std::vector<int> seen;
      for (double lse : r.lse) seen.push_back(std::isinf(lse) ? 0 : static_cast<int>(std::lround(std::exp(lse))));
      return seen;
    };
    CHECK(keys_seen(2, 5) == std::vector<int>{4, 5});
    CHECK(keys_seen(5, 2) == std::vector<int>{0, 0, 0, 1, 2});
    CHECK(keys_seen(3, 3) == std::vector<int>{1, 2, 3});
    CHECK(keys_seen(2, 0) == std::vector<int>{0, 0});
  }

  TEST_CASE("rows without keys are zero with LSE -inf") {
    const auto t = make_tensors(shape(1, 2, 2, 9, 4, 8, Mask::causal), Layout::bshd, Inputs::random, 1);
    for (const Result& r : {attention_float64(t.problem), attention_plain(t.problem)})
      for (int h = 0; h < 2; ++h)
        for (int i = 0; i < 9; ++i) {
          CHECK(std::isinf(r.lse[static_cast<std::size_t>(h * 9 + i)]) == (i < 5));
          for (int d = 0; d < 8; ++d) {
            const double o = r.o[static_cast<std::size_t>((i * 2 + h) * 8 + d)];
            CHECK((o == 0) == (i < 5));
          }
        }
  }

  TEST_CASE("scores far below zero do not look like a masked row") {
    // One key whose score is -524288 before scaling: O is V, LSE is the score itself.
    Problem p = shape(1, 1, 1, 1, 1, 128, Mask::full);
    std::vector<std::uint16_t> q(128), k(128), v(128);
    for (int d = 0; d < 128; ++d) {
      store(p.dtype, q.data(), d, 64), store(p.dtype, k.data(), d, -64), store(p.dtype, v.data(), d, d);
    }
    p.q = q.data(), p.k = k.data(), p.v = v.data();
    for (const Result& r : {attention_float64(p), attention_plain(p)}) {
      CHECK(r.lse[0] == doctest::Approx(-46340.95));
      for (int d = 0; d < 128; ++d) CHECK(r.o[static_cast<std::size_t>(d)] == d);
    }
  }

  TEST_CASE("LSE is the natural logarithm") {
    const auto t = make_tensors(shape(1, 1, 1, 2, 1000, 16, Mask::full), Layout::bshd, Inputs::v_ramp, 1);
    CHECK(attention_float64(t.problem).lse[1] == doctest::Approx(6.907755));
  }

  TEST_CASE("probabilities are rounded to the type, subnormal halves included") {
    // Two keys, weights w and 1 - w with V = (0, 1): O is the rounded weight, rounded again.
    Problem p = shape(1, 1, 1, 1, 2, 8, Mask::full, DataType::f16);
    p.scale = 1;
    for (double difference : {0.3, 2.5, 9.0, 12.0, 16.0}) {
      std::vector<std::uint16_t> q(8), k(16), v(16);
      store(p.dtype, q.data(), 0, 1), store(p.dtype, k.data(), 8, -difference);
      for (int d = 0; d < 8; ++d) store(p.dtype, v.data(), 8 + d, 1);
      p.q = q.data(), p.k = k.data(), p.v = v.data();
      p.k_strides.seqlen = p.v_strides.seqlen = 8;
      const double weight = 1 / (1 + std::exp(round_to(p.dtype, difference)));
      const Result plain = attention_plain(p);
      CHECK(plain.o[0] == round_to(p.dtype, plain.o[0]));
      CHECK(std::fabs(plain.o[0] - weight) <= 0.51 * std::max(epsilon(p.dtype) * weight, 0x1p-24));
    }
  }
}
