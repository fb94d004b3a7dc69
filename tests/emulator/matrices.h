// Matrices of encodable values for the tests of matrix instructions.
// Next: tests/emulator/tensor_core_test.cpp, tests/emulator/layout_test.cpp.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "host/emulator/numeric.h"
#include "host/emulator/tensor_core.h"

namespace flashptx::emulator::test {

inline std::uint32_t encode(MatrixType t, double v) {
  const float x = static_cast<float>(v);
  switch (t) {
    case MatrixType::f16:
      return f32_to_f16(x);
    case MatrixType::bf16:
      return f32_to_bf16(x);
    case MatrixType::tf32:
      return f32_to_tf32(x);
    case MatrixType::e4m3:
      return f32_to_e4m3(x);
    case MatrixType::e5m2:
      return f32_to_e5m2(x);
    case MatrixType::s8:
      return static_cast<std::uint8_t>(static_cast<std::int8_t>(v));
    default:
      return static_cast<std::uint8_t>(v);
  }
}
inline double decode(MatrixType t, std::uint32_t bits) {
  switch (t) {
    case MatrixType::f16:
      return f16_to_f32(static_cast<std::uint16_t>(bits));
    case MatrixType::bf16:
      return bf16_to_f32(static_cast<std::uint16_t>(bits));
    case MatrixType::tf32:
      return tf32_to_f32(bits);
    case MatrixType::e4m3:
      return e4m3_to_f32(static_cast<std::uint8_t>(bits));
    case MatrixType::e5m2:
      return e5m2_to_f32(static_cast<std::uint8_t>(bits));
    case MatrixType::s8:
      return static_cast<std::int8_t>(bits);
    default:
      return static_cast<double>(bits & 0xff);
  }
}

// A matrix [mn][k] of encodable values.
struct Matrix {
  MatrixType type;
  int rows, k;
  std::vector<double> value;
  Matrix(MatrixType t, int r, int kk, const std::function<double(int, int)>& f)
      : type(t), rows(r), k(kk), value(static_cast<std::size_t>(r * kk)) {
    for (int i = 0; i < r; ++i) {
      for (int j = 0; j < kk; ++j) at(i, j) = decode(t, encode(t, f(i, j)));
    }
  }
  double& at(int i, int j) { return value[static_cast<std::size_t>(i * k + j)]; }
  double at(int i, int j) const { return value[static_cast<std::size_t>(i * k + j)]; }
};

inline std::function<double(int, int)> random_values(unsigned seed, MatrixType t, bool integers) {
  auto rng = std::make_shared<std::mt19937>(seed);
  const bool unsigned_type = t == MatrixType::u8,
             integer_type = unsigned_type || t == MatrixType::s8;
  return [=](int, int) {
    const int i = static_cast<int>((*rng)() % 9) - (unsigned_type ? 0 : 4);
    if (integers || integer_type) return static_cast<double>(i);
    return std::ldexp(static_cast<double>((*rng)()) / 4294967296.0 - 0.5,
                      static_cast<int>((*rng)() % 4));
  };
}

// Which key the hardware XORs into the chunk number of row r when rows are `span` bytes and packed.
inline int swizzle_key(int span, int row) {
  return span == 128 ? row & 7 : span == 64 ? row >> 1 & 3 : row >> 2 & 1;
}

}  // namespace flashptx::emulator::test
