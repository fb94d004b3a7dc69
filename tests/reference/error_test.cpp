// What the comparison must accept and what it must refuse: a judge that cannot say no proves nothing.
// Next: tests/reference/inputs_test.cpp.
#include "tools/reference/error.h"

#include <cmath>
#include <limits>

#include "tests/support.h"
#include "tools/reference/inputs.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::reference;

namespace {

struct Sample {
  Tensors tensors;
  Result exact, plain;
  std::vector<float> o, lse;  // starts as a good answer: the plain one
};

Sample make_case(std::int64_t seqlen_q, std::int64_t seqlen_k, Mask mask) {
  Problem p;
  p.heads_q = 2, p.heads_kv = 1, p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k, p.mask = mask;
  p.head_dim = p.head_dim_v = 64, p.scale = 0.125f;
  Sample c{make_tensors(p, Layout::bshd, Inputs::random, 11), {}, {}, {}, {}};
  c.exact = attention_float64(c.tensors.problem);
  c.plain = attention_plain(c.tensors.problem);
  c.o.assign(c.plain.o.begin(), c.plain.o.end());
  c.lse.assign(c.plain.lse.begin(), c.plain.lse.end());
  return c;
}
Error judge(const Sample& c) { return compare(c.tensors.problem, c.exact, c.plain, c.o, c.lse); }

}  // namespace

TEST_SUITE("reference/error") {
  TEST_CASE("accepts the plain computation and reports its size") {
    const Error e = judge(make_case(200, 300, Mask::causal));
    CHECK(e.ok);
    CHECK(e.first_failure == "");
    CHECK(e.max == e.plain_max);
    CHECK(e.rms == e.plain_rms);
    CHECK(e.max > 0);
    CHECK(e.lse_max < 1e-5);
  }

  TEST_CASE("refuses one element that is off by three times the allowance and names it") {
    Sample c = make_case(200, 300, Mask::full);
    const double allowed = judge(c).allowed_max;
    const std::size_t at = (150 * 2 + 1) * 64 + 17;
    c.o[at] += static_cast<float>(3 * allowed);
    const Error e = judge(c);
    CHECK_FALSE(e.ok);
    CHECK(e.first_failure.find("O[batch 0, row 150, head 1, column 17]") == 0);
  }

  TEST_CASE("refuses a wrong late row that the first rows' rounding would hide") {
    Sample c = make_case(4096, 4096, Mask::causal);
    // A tenth of the last row is less than what the rounding of row 0 allows, where |O| is far larger.
    double largest_change = 0;
    for (std::size_t i = (4095 * 2) * 64; i < c.o.size(); ++i) {
      largest_change = std::max(largest_change, std::fabs(0.1 * c.o[i]));
      c.o[i] *= 0.9f;
    }
    const Error e = judge(c);
    CHECK(largest_change < e.allowed_max);
    CHECK_FALSE(e.ok);
  }

  TEST_CASE("refuses NaN, and anything but zero in a row without keys") {
    Sample c = make_case(70, 20, Mask::causal);
    CHECK(judge(c).ok);
    c.o[3] = 1e-30f;
    CHECK_FALSE(judge(c).ok);
    c.o[3] = 0;
    c.o.back() = std::numeric_limits<float>::quiet_NaN();
    const Error e = judge(c);
    CHECK_FALSE(e.ok);
    CHECK(std::isnan(e.max));
  }

  TEST_CASE("refuses a base 2 LSE, a finite stand-in for -inf and a missing row") {
    Sample c = make_case(70, 20, Mask::causal);
    const std::vector<float> good = c.lse;
    c.lse[60] *= 1.442695f;
    CHECK_FALSE(judge(c).ok);
    c.lse = good;
    c.lse[0] = -5e4f;
    CHECK_FALSE(judge(c).ok);
    c.lse = good;
    c.lse.pop_back();
    CHECK_FALSE(judge(c).ok);
    c.lse.clear();  // not asked for
    CHECK(judge(c).ok);
  }
}
