// mma.sync m16n8kK on the fragments of one warp. Rare in Hopper kernels, so written for the reader:
// gather both matrices, multiply in float64, round once, scatter. Numerics as in wgmma.cpp.
// Fragments: PTX ISA, "Matrix Fragments for mma.m16n8k4 ... m16n8k32".
#include <algorithm>
#include <cmath>

#include "host/emulator/numeric.h"
#include "host/emulator/tensor_core.h"

namespace flashptx::emulator {
namespace {

double element(MatrixType type, std::uint32_t reg, int index) {
  const std::uint16_t half = static_cast<std::uint16_t>(reg >> (16 * (index & 1)));
  const std::uint8_t byte = static_cast<std::uint8_t>(reg >> (8 * (index & 3)));
  switch (type) {
    case MatrixType::f16:
      return f16_to_f32(half);
    case MatrixType::bf16:
      return bf16_to_f32(half);
    case MatrixType::tf32:
      return tf32_to_f32(reg);
    case MatrixType::e4m3:
      return e4m3_to_f32(byte);
    case MatrixType::e5m2:
      return e5m2_to_f32(byte);
    case MatrixType::s8:
      return static_cast<std::int8_t>(byte);
    case MatrixType::u8:
      return byte;
  }
  return 0.0;
}

double read_c(AccumulatorType type, const std::uint32_t* const* c, int index, int lane) {
  switch (type) {
    case AccumulatorType::f32:
      return float_of(c[index][lane]);
    case AccumulatorType::s32:
      return static_cast<std::int32_t>(c[index][lane]);
    case AccumulatorType::f16:
      return f16_to_f32(static_cast<std::uint16_t>(c[index / 2][lane] >> (16 * (index & 1))));
  }
  return 0.0;
}

void write_d(const MmaOp& op, double value, int index, int lane, std::uint32_t* const* d) {
  if (op.d_type == AccumulatorType::f32) {
    d[index][lane] = bits_of(f64_to_f32(value));
  } else if (op.d_type == AccumulatorType::f16) {
    std::uint32_t& reg = d[index / 2][lane];
    const int shift = 16 * (index & 1);
    reg = (reg & ~(0xffffu << shift)) | round_to(kF16, value) << shift;
  } else {
    if (op.saturate) value = std::clamp(value, -0x1p31, 0x1p31 - 1);
    d[index][lane] = static_cast<std::uint32_t>(static_cast<std::int64_t>(value));
  }
}

}  // namespace

void mma_sync(const MmaOp& op, std::uint32_t* const* d, const std::uint32_t* const* a,
              const std::uint32_t* const* b, const std::uint32_t* const* c) {
  const int per_reg = 4 / matrix_element_bytes(op.a_type);
  double left[16][32] = {}, right[32][8] = {}, sum[32][4];
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < op.a_registers(); ++r) {
      for (int e = 0; e < per_reg; ++e) {
        left[g + 8 * (r & 1)][4 * per_reg * (r >> 1) + t * per_reg + e] =
            element(op.a_type, a[r][lane], e);
      }
    }
    for (int r = 0; r < op.b_registers(); ++r) {
      for (int e = 0; e < per_reg; ++e) {
        right[4 * per_reg * r + t * per_reg + e][g] = element(op.b_type, b[r][lane], e);
      }
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const Element at = d_element(0, lane, i);
      double total = read_c(op.d_type, c, i, lane);
      for (int k = 0; k < op.k; ++k) total += left[at.row][k] * right[k][at.column];
      sum[lane][i] = total;
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 4; ++i) write_d(op, sum[lane][i], i, lane, d);
  }
}

}  // namespace flashptx::emulator
