// Inputs whose scores are chosen: the softmax sees what the test wants it to see, in any type.
//
// Column 0 of Q holds a number of the row, column 0 of K one of the key, and the score is scale times their
// product plus what the other columns add: noise, or nothing. Next: adversarial_test.cpp, redo_test.cpp.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "tools/flashptx/runner.h"
#include "tools/reference/attention.h"
#include "tools/reference/numeric.h"

namespace flashptx::test {

struct Scores {
  // Column 0 of Q at (head, row) and of K at (head, key); column 1 likewise where the score needs two.
  std::function<double(std::int64_t, std::int64_t)> q0, k0, q1, k1;
  double noise = 0.25;  // of Q in the columns left; K's is 1
};

// V is N(0, 1).
inline reference::Tensors scored_tensors(const reference::Problem& shape, const Scores& s, std::uint64_t seed = 1) {
  using namespace reference;
  Tensors t = make_tensors(shape, Layout::bshd, Inputs::random, seed);
  const Problem& p = t.problem;
  const auto fill = [&](std::vector<std::uint8_t>& bytes, bool is_q, std::int64_t heads, std::int64_t seqlen,
                        const reference::Strides& strides) {
    parallel_for(p.batch * heads, p.threads, [&](std::int64_t pair) {
      const std::int64_t b = pair / heads, h = pair % heads;
      for (std::int64_t r = 0; r < seqlen; ++r)
        for (int d = 0; d < p.head_dim; ++d) {
          const std::int64_t at = b * strides.batch + r * strides.seqlen + h * strides.head + d;
          const auto& chosen = d == 0 ? (is_q ? s.q0 : s.k0) : d == 1 ? (is_q ? s.q1 : s.k1) : nullptr;
          if (chosen) store(p.dtype, bytes.data(), at, chosen(h, r));
          else if (s.noise == 0) store(p.dtype, bytes.data(), at, 0);
          else if (is_q) store(p.dtype, bytes.data(), at, s.noise * load(p.dtype, bytes.data(), at));
        }
    });
  };
  fill(t.q, true, p.heads_q, p.seqlen_q, p.q_strides);
  fill(t.k, false, p.heads_kv, p.seqlen_k, p.k_strides);
  return t;
}
// rows: of each head that are compared; 0: all.
inline Case scored_case(const reference::Problem& shape, const Scores& s, std::uint64_t seed = 1, std::int64_t rows = 0) {
  return make_case(scored_tensors(shape, s, seed), reference::Layout::bshd, true, rows);
}

// Scores within one unit (log2) of another, but in the rows that `meets` picks the score of key 7, in the block done
// last, exceeds all others by `jump`. Sets the problem's scale.
inline Scores jumping_scores(reference::Problem* p, double jump,
                             std::function<bool(std::int64_t, std::int64_t)> meets) {
  p->scale = std::log(2.0f);
  Scores s;
  s.noise = 0;
  s.q0 = [meets](std::int64_t head, std::int64_t row) { return meets(head, row) ? 2.0 : 0.0; };
  const DataType type = p->dtype;
  const double whole = reference::round_to(type, jump / 2);
  s.k0 = [whole](std::int64_t, std::int64_t key) { return key == 7 ? whole : 0.0; };
  s.q1 = [](std::int64_t, std::int64_t) { return 1.0; };
  // What rounding left of the jump.
  s.k1 = [=](std::int64_t, std::int64_t key) {
    return key == 7 ? reference::round_to(type, jump - 2 * whole) : -static_cast<double>(key % 5) / 4;
  };
  return s;
}

}  // namespace flashptx::test
