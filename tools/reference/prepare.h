// What a preparation of FP8 operands must give, in float64, and the judgement of what a kernel gave.
//
// Quantisation alone is judged bit by bit; behind RoPE or Hadamard a value may be off by the rounding of the
// kernel's f32 arithmetic (bounded by the 1-norm of what was summed), of the 16-bit type that blocks are held in,
// and half a step of the output type. Next: host/prepare.h (the problem), tests/host/prepare_test.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/prepare.h"

namespace flashptx::reference {

struct PrepareData {
  PrepareProblem problem;
  std::vector<std::uint8_t> x, cos, sin;  // as on the device
};

// Inputs: "random" (normal), "outliers" (0.1 % of N(0, 100)), "zeros", "not_finite" (infinities and NaN among the
// normal), "tiny" (around 1e-38), "ramp" (small integers).
std::vector<std::string> prepare_inputs();
// Strides of p.x and p.y may be anything legal; gaps between rows are filled with a NaN pattern.
PrepareData make_prepare_data(const PrepareProblem& p, const std::string& inputs, std::uint64_t seed);

std::size_t extent_bytes(const PrepareProblem& p, const flashptx::Strides& s, DataType t);

struct Prepared {
  std::vector<std::uint8_t> y;
  std::vector<float> scales, amax;
};

// Bytes of y, of V^T with its padding where the problem transposes.
std::size_t output_bytes(const PrepareProblem& p);

struct PrepareVerdict {
  std::string failure;   // the first wrong value, "" if all are right
  double rms = 0;        // of y * scale against float64, relative to the RMS of the exact result
};
PrepareVerdict judge(const PrepareData& data, const Prepared& got);

}  // namespace flashptx::reference
