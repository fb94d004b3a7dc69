// The yardstick of FP8 attention against the definitions: Hadamard term by term, quantisation value by value.
// Next: tools/reference/fp8.h.
#include "tools/reference/fp8.h"

#include <bit>
#include <cmath>

#include "gen/hadamard_signs.h"
#include "tests/support.h"
#include "tools/reference/inputs.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::reference;

TEST_SUITE("reference/fp8") {
  TEST_CASE("a row of Hadamard is the sum that defines it, and its inverse undoes it") {
    for (int d : {16, 64, 96, 128, 256}) {
      CAPTURE(d);
      const int n = d & -d;
      std::vector<float> x(static_cast<std::size_t>(d)), y;
      for (int i = 0; i < d; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(normal(5, static_cast<std::uint64_t>(i)));
      y = x;
      hadamard_row(y.data(), d, 9, false);
      for (int i = 0; i < d; ++i) {
        double sum = 0;
        for (int j = i / n * n; j < i / n * n + n; ++j)
          sum += (std::popcount(static_cast<unsigned>(i & j & (n - 1))) % 2 ? -1 : 1) *
                 (hadamard_negates(9, static_cast<std::uint32_t>(j)) ? -1 : 1) * x[static_cast<std::size_t>(j)];
        CHECK(y[static_cast<std::size_t>(i)] == doctest::Approx(sum / std::sqrt(n)).epsilon(1e-4));
      }
      hadamard_row(y.data(), d, 9, true);
      for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::fabs(y[i] - x[i]) < 1e-5f);
    }
  }

  TEST_CASE("each value is the nearest that its scale allows, and what shares a scale is as asked") {
    Problem p;
    p.batch = 2, p.heads_q = 2, p.heads_kv = 2, p.seqlen_q = 5, p.seqlen_k = 7, p.head_dim = p.head_dim_v = 16;
    const Tensors t = make_tensors(p, Layout::bshd, Inputs::random, 1);
    Fp8Options o;
    o.scale_kind = ScaleKind::block, o.block_rows = 3;
    const Operands x = quantized(t.problem, o);
    for (std::int64_t pair = 0; pair < 4; ++pair)
      for (std::int64_t first = 0; first < 7; first += 3) {
        float amax = 0;
        const auto given = [&](std::int64_t r, int d) {
          const auto& s = t.problem.k_strides;
          return static_cast<float>(load(DataType::bf16, t.problem.k, pair / 2 * s.batch + r * s.seqlen + pair % 2 * s.head + d));
        };
        for (std::int64_t r = first; r < std::min<std::int64_t>(first + 3, 7); ++r)
          for (int d = 0; d < 16; ++d) amax = std::max(amax, std::fabs(given(r, d)));
        for (std::int64_t r = first; r < std::min<std::int64_t>(first + 3, 7); ++r)
          for (int d = 0; d < 16; ++d) {
            const float scale = amax / 448;
            const double wanted = scale * round_to(DataType::e4m3, given(r, d) * (448 / amax));
            CHECK(x.k[static_cast<std::size_t>((pair * 7 + r) * 16 + d)] == doctest::Approx(wanted).epsilon(1e-6));
          }
      }
  }

  TEST_CASE("finer scales and Hadamard lose less where values stand out") {
    Problem p;
    p.heads_q = p.heads_kv = 4, p.seqlen_q = 64, p.seqlen_k = 256, p.scale = 1 / std::sqrt(128.0f);
    const Tensors t = make_tensors(p, Layout::bshd, Inputs::outliers, 2);
    const Result exact = attention_float64(t.problem);
    const auto error = [&](ScaleKind kind, bool hadamard) {
      Fp8Options o;
      o.scale_kind = kind, o.hadamard = hadamard;
      const Result r = attention_fp8(t.problem, o);
      double squares = 0;
      for (std::size_t i = 0; i < r.o.size(); ++i) squares += (r.o[i] - exact.o[i]) * (r.o[i] - exact.o[i]);
      return std::sqrt(squares / static_cast<double>(r.o.size()));
    };
    const double plain = error(ScaleKind::tensor, false);
    CHECK(error(ScaleKind::tensor, true) < 0.8 * plain);
    CHECK(error(ScaleKind::block, true) < 0.8 * plain);
    CHECK(plain < 0.1);
  }
}
