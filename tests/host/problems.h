// A sane problem that the tests of host/ then spoil in one place.
#pragma once

#include "host/problem.h"

namespace flashptx::test {

inline ForwardProblem bshd(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv,
                           std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t head_dim,
                           Mask mask = Mask::full, DataType dtype = DataType::bf16) {
  ForwardProblem p;
  p.dtype = dtype;
  p.mask = mask;
  p.batch = batch;
  p.heads_q = heads_q;
  p.heads_kv = heads_kv;
  p.seqlen_q = seqlen_q;
  p.seqlen_k = seqlen_k;
  p.head_dim = head_dim;
  p.q = p.o = strides_bshd(seqlen_q, heads_q, head_dim);
  p.k = p.v = strides_bshd(seqlen_k, heads_kv, head_dim);
  return p;
}

inline ForwardProblem usual() { return bshd(2, 8, 2, 300, 500, 128); }

}  // namespace flashptx::test
