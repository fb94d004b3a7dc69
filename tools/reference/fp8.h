// What FP8 attention of 16-bit tensors costs in error: the same preparation, then the plain computation, on the CPU.
//
// quantized() gives Q, K and V as FP8 stands for them (dequantised, in f32); attention_fp8 the unfused attention of
// that with P in e4m3: the yardstick of the chain that a device runs, and "plain FP8" itself where the recipe is one
// scale a tensor. Next: host/fp8_attention.h (the recipe), tests/reference/fp8_test.cpp.
#pragma once

#include <vector>

#include "host/fp8_attention.h"
#include "tools/reference/attention.h"

namespace flashptx::reference {

// f32 tensors (batch, head, seqlen, dim), dense; `problem` points into them and is else the one given.
struct Operands {
  Operands() = default;
  Operands(Operands&&) = default;
  Operands& operator=(Operands&&) = default;
  Problem problem;
  std::vector<float> q, k, v;
};

// y = H D x / sqrt(n) of one row, or its inverse D H x / sqrt(n).
void hadamard_row(float* x, int head_dim, std::uint32_t seed, bool inverse);

// Q and K behind RoPE, V as it is; cos and sin as floats (table_rows, head_dim / 2), whatever `o.table` says.
Operands rotated(const Problem& p, const Fp8Options& o, const std::vector<float>& cos, const std::vector<float>& sin);
// Behind Hadamard and quantisation by `o`; its RoPE must have been done (rotated).
Operands quantized(const Problem& p, const Fp8Options& o);
// O has the type p.output(); with hadamard_v it is turned back and rounded once more.
Result attention_fp8(const Problem& p, const Fp8Options& o);

}  // namespace flashptx::reference
