// The diagnostic inputs give the whole numbers that tools/reference/inputs.cpp promises.
// Next: tools/reference/inputs.h.
#include "tools/reference/inputs.h"

#include <cmath>

#include "tests/support.h"

using namespace flashptx;
using namespace flashptx::reference;

namespace {

Problem shape() {
  Problem p;
  p.batch = 2, p.heads_q = 4, p.heads_kv = 2, p.seqlen_q = 50, p.seqlen_k = 130;
  p.head_dim = p.head_dim_v = 16, p.scale = 0.25f;
  return p;
}

template <class Expected>
void check_o(Inputs inputs, Expected expected) {
  const Tensors t = make_tensors(shape(), Layout::bhsd, inputs, 9);
  const Problem& p = t.problem;
  const Result r = attention_float64(p);
  for (int b = 0; b < p.batch; ++b)
    for (int i = 0; i < p.seqlen_q; ++i)
      for (int h = 0; h < p.heads_q; ++h)
        for (int d = 0; d < p.head_dim_v; ++d)
          CHECK(r.o[static_cast<std::size_t>(((b * p.seqlen_q + i) * p.heads_q + h) * p.head_dim_v + d)] ==
                doctest::Approx(expected(b, i, h, d)).epsilon(1e-10));
}

}  // namespace

TEST_SUITE("reference/inputs") {
  TEST_CASE("ones gives one") {
    check_o(Inputs::ones, [](int, int, int, int) { return 1.0; });
  }

  TEST_CASE("v_ramp names column, kv head and batch") {
    check_o(Inputs::v_ramp, [](int b, int, int h, int d) { return d + 3.0 * (h / 2) + 7.0 * b; });
  }

  TEST_CASE("one_hot counts the keys of each residue") {
    // 130 keys over 16 columns: residues 0 and 1 have nine keys, the others eight.
    check_o(Inputs::one_hot, [](int, int, int, int d) { return (d < 2 ? 9 : 8) / 130.0; });
  }

  TEST_CASE("identity_qk picks the keys of the query's residue") {
    check_o(Inputs::identity_qk, [](int, int i, int, int) {
      double sum = 0, keys = 0;
      for (int j = i % 16; j < 130; j += 16) sum += j % 128, ++keys;
      return sum / keys;
    });
  }

  TEST_CASE("every layout holds the same values") {
    Problem p = shape();
    p.seqlen_k = p.seqlen_q;
    const Result a = attention_float64(make_tensors(p, Layout::bshd, Inputs::random, 4).problem);
    const Tensors t = make_tensors(p, Layout::qkv, Inputs::random, 4);
    const Tensors u = make_tensors(p, Layout::bhsd, Inputs::random, 4);
    CHECK(attention_float64(t.problem).o == a.o);
    CHECK(attention_float64(u.problem).o == a.o);
    const Tensors other = make_tensors(p, Layout::bshd, Inputs::random, 5);
    CHECK(attention_float64(other.problem).o != a.o);
  }
}
