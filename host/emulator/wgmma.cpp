// The product of wgmma: both operands are decoded once into float64 scratch laid out for the inner
// loop, then multiplied eight rows (one half of a warp's fragment) at a time.
//
// Scratch layouts: A [row][k]; B [column / 8][k][8] and D [row][column / 8][8], where the 8 columns
// of a block stand in the order 0 2 4 6 1 3 5 7: the even columns are one register of the D
// fragment, the odd ones the next, so a register's lanes are stored as they stand. Next:
// tensor_core.cpp (addresses), numeric.h (formats).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "host/emulator/clones.h"
#include "host/emulator/numeric.h"
#include "host/emulator/tensor_core.h"

namespace flashptx::emulator {
namespace {

constexpr int kRows = 8;  // of a strip: one warp, one value of h in "row = 16 warp + g + 8 h"

struct Scratch {
  alignas(64) double a[64 * 32];
  alignas(64) double b[256 * 32];
  alignas(64) double d[kRows * 256];
};

struct Float8Table {
  double e4m3[256], e5m2[256];
  Float8Table() {
    for (int i = 0; i < 256; ++i) {
      e4m3[i] = e4m3_to_f32(static_cast<std::uint8_t>(i));
      e5m2[i] = e5m2_to_f32(static_cast<std::uint8_t>(i));
    }
  }
};
const Float8Table& float8_table() {
  static const Float8Table table;
  return table;
}

FLASHPTX_INLINE float decode16(bool bf16, std::uint32_t h) {
  if (bf16) return float_of(h << 16);
  const std::uint32_t m = h & 0x7fffu;
  const float subnormal = float_of((m << 13) + 0x38800000u) - 0x1p-14f;
  const std::uint32_t finite = m < 0x400u ? bits_of(subnormal) : (m << 13) + (112u << 23);
  const std::uint32_t bits = m < 0x7c00u ? finite : m == 0x7c00u ? 0x7f800000u : kNanF32;
  return float_of(bits | (h & 0x8000u) << 16);
}

// 16 bytes to 16 / element-size values. Constant trip counts keep each case a few vector
// instructions.
FLASHPTX_INLINE void decode_chunk(MatrixType type, const std::uint8_t* from, double* to) {
  if (type == MatrixType::f16 || type == MatrixType::bf16) {
    std::uint16_t h[8];
    std::memcpy(h, from, 16);
    if (type == MatrixType::bf16) {
      for (int i = 0; i < 8; ++i) to[i] = decode16(true, h[i]);
    } else {
      for (int i = 0; i < 8; ++i) to[i] = decode16(false, h[i]);
    }
  } else if (type == MatrixType::tf32) {
    std::uint32_t w[4];
    std::memcpy(w, from, 16);
    for (int i = 0; i < 4; ++i) to[i] = tf32_to_f32(w[i]);
  } else if (type == MatrixType::s8) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<std::int8_t>(from[i]);
  } else if (type == MatrixType::u8) {
    for (int i = 0; i < 16; ++i) to[i] = from[i];
  } else {
    const Float8Table& t = float8_table();
    const double* table = type == MatrixType::e4m3 ? t.e4m3 : t.e5m2;
    for (int i = 0; i < 16; ++i) to[i] = table[from[i]];
  }
}

// Place of column c (0..7) inside its block of 8.
constexpr int kPlace[8] = {0, 4, 1, 5, 2, 6, 3, 7};

FLASHPTX_CLONES void decode_a_shared(const SharedOperand& operand, const SharedView& shared,
                                     double* a) {
  std::uint32_t chunk[512];
  const int count = operand_chunks(operand, chunk);
  const int per_chunk = 16 / matrix_element_bytes(operand.type);
  if (!operand.mn_major) {
    for (int i = 0; i < count; ++i) {
      decode_chunk(operand.type, shared.bytes + (chunk[i] - shared.base), a + i * per_chunk);
    }
    return;
  }
  for (int i = 0; i < count; ++i) {  // chunk k * 8 + mn8: eight rows at one k
    double t[16] = {};
    decode_chunk(operand.type, shared.bytes + (chunk[i] - shared.base), t);
    for (int r = 0; r < 8; ++r) a[(i % 8 * 8 + r) * 16 + i / 8] = t[r];
  }
}

FLASHPTX_CLONES void decode_b(const SharedOperand& operand, const SharedView& shared, double* b) {
  std::uint32_t chunk[512];
  const int count = operand_chunks(operand, chunk);
  const int per_chunk = 16 / matrix_element_bytes(operand.type), k_count = 2 * per_chunk;
  double t[16] = {};
  if (!operand.mn_major) {
    for (int i = 0; i < count; ++i) {
      const int n = i / 2, k0 = i % 2 * per_chunk;
      decode_chunk(operand.type, shared.bytes + (chunk[i] - shared.base), t);
      double* to = b + (n / 8 * k_count + k0) * 8 + kPlace[n % 8];
      for (int k = 0; k < per_chunk; ++k) to[k * 8] = t[k];
    }
    return;
  }
  const int blocks = operand.rows / 8;
  for (int i = 0; i < count; ++i) {
    decode_chunk(operand.type, shared.bytes + (chunk[i] - shared.base), t);
    double* to = b + (i % blocks * k_count + i / blocks) * 8;
    for (int c = 0; c < 8; ++c) to[kPlace[c]] = t[c];
  }
}

// The four A registers of each warp: a register holds 4 bytes of one row, at byte 16 * (r / 2) + 4
// * (l % 4).
FLASHPTX_CLONES void decode_a_registers(MatrixType type, const WarpFragments (&warps)[4],
                                        double* a) {
  const int per_register = 4 / matrix_element_bytes(type), k_count = 8 * per_register;
  for (int w = 0; w < 4; ++w) {
    for (int g = 0; g < 8; ++g) {
      for (int h = 0; h < 2; ++h) {
        std::uint8_t row[32];
        std::memcpy(row, warps[w].a[h] + 4 * g, 16);  // r = h: K bytes 0..15 from four lanes
        std::memcpy(row + 16, warps[w].a[2 + h] + 4 * g, 16);  // r = 2 + h
        double* to = a + (16 * w + g + 8 * h) * k_count;
        decode_chunk(type, row, to);
        decode_chunk(type, row + 16, to + 4 * per_register);
      }
    }
  }
}

// ---- D fragments to and from a strip
// --------------------------------------------------------------------

// Registers of block j of a strip with row half h: f32 and s32 4j + 2h (even columns) and + 1; f16
// 2j + h.
template <AccumulatorType kType>
FLASHPTX_INLINE void load_strip(const WarpFragments& warp, int h, int n, double* d) {
  for (int j = 0; j < n / 8; ++j) {
    for (int odd = 0; odd < 2; ++odd) {
      double* to = d + 8 * j + 4 * odd;
      const std::uint32_t* from =
          kType == AccumulatorType::f16 ? warp.d[2 * j + h] : warp.d[4 * j + 2 * h + odd];
      for (int row = 0; row < kRows; ++row) {
        for (int t = 0; t < 4; ++t) {
          const std::uint32_t bits = from[4 * row + t];
          double value;
          if constexpr (kType == AccumulatorType::f32) value = float_of(bits);
          else if constexpr (kType == AccumulatorType::s32) value = static_cast<std::int32_t>(bits);
          else value = decode16(false, odd ? bits >> 16 : bits & 0xffffu);
          to[row * n + t] = value;
        }
      }
    }
  }
}

FLASHPTX_INLINE std::uint32_t round_f32(double value) {
  const std::uint32_t bits = bits_of(static_cast<float>(value));
  return (bits & 0x7fffffffu) > 0x7f800000u ? kNanF32 : bits;
}

std::uint32_t round_s32(double value, bool saturate) {
  if (saturate) value = std::min(std::max(value, -0x1p31), 0x1p31 - 1);
  return static_cast<std::uint32_t>(static_cast<std::int64_t>(value));  // wraps
}

template <AccumulatorType kType>
FLASHPTX_INLINE void store_strip(const double* d, bool saturate, int h, int n,
                                 const WarpFragments& warp) {
  for (int j = 0; j < n / 8; ++j) {
    for (int row = 0; row < kRows; ++row) {
      const double* even = d + row * n + 8 * j;
      const double* odd = even + 4;
      for (int t = 0; t < 4; ++t) {
        const int lane = 4 * row + t;
        if constexpr (kType == AccumulatorType::f32) {
          warp.d[4 * j + 2 * h][lane] = round_f32(even[t]);
          warp.d[4 * j + 2 * h + 1][lane] = round_f32(odd[t]);
        } else if constexpr (kType == AccumulatorType::s32) {
          warp.d[4 * j + 2 * h][lane] = round_s32(even[t], saturate);
          warp.d[4 * j + 2 * h + 1][lane] = round_s32(odd[t], saturate);
        } else {
          warp.d[2 * j + h][lane] = round_to(kF16, odd[t]) << 16 | round_to(kF16, even[t]);
        }
      }
    }
  }
}

// ---- inner loops
// ----------------------------------------------------------------------------------------

typedef double Vector8 __attribute__((vector_size(64)));

// d[4 rows][kBlocks][8] += a[4 rows][k] * b[kBlocks][k][8], sums held in registers.
template <int kBlocks>
FLASHPTX_INLINE void multiply_block(const double* a, const double* b, int k_count, double* d,
                                    int n) {
  Vector8 sum[4][kBlocks];
  for (int r = 0; r < 4; ++r) {
    for (int j = 0; j < kBlocks; ++j)
      sum[r][j] = *reinterpret_cast<const Vector8*>(d + r * n + 8 * j);
  }
  for (int k = 0; k < k_count; ++k) {
    for (int j = 0; j < kBlocks; ++j) {
      const Vector8 column = *reinterpret_cast<const Vector8*>(b + (j * k_count + k) * 8);
      for (int r = 0; r < 4; ++r) sum[r][j] += column * a[r * k_count + k];
    }
  }
  for (int r = 0; r < 4; ++r) {
    for (int j = 0; j < kBlocks; ++j) *reinterpret_cast<Vector8*>(d + r * n + 8 * j) = sum[r][j];
  }
}

FLASHPTX_INLINE void multiply_strip(const double* a, const double* b, int k_count, double* d,
                                    int n) {
  int block = 0;
  for (; block + 2 <= n / 8; block += 2) {
    for (int r = 0; r < kRows; r += 4) {
      multiply_block<2>(a + r * k_count, b + block * k_count * 8, k_count, d + r * n + 8 * block,
                        n);
    }
  }
  for (; block < n / 8; ++block) {
    for (int r = 0; r < kRows; r += 4) {
      multiply_block<1>(a + r * k_count, b + block * k_count * 8, k_count, d + r * n + 8 * block,
                        n);
    }
  }
}

// Hopper's FP8 accumulation as reported by DeepSeek-V3: the addends of one step (products and the
// old D) are aligned to the largest exponent among them and cut, toward zero, below 14 bits.
FLASHPTX_INLINE void multiply_strip_narrow(const double* a, const double* b, int k_count, double* d,
                                           int n) {
  constexpr double kGuard = 0x1p-13;  // 14 bits: the leading one and 13 below
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < n / 8; ++j) {
      const double* column = b + j * k_count * 8;
      double* old = d + row * n + 8 * j;
      double largest[8], product[32 * 8];
      std::int32_t sum[8];
      for (int c = 0; c < 8; ++c) largest[c] = std::fabs(old[c]);
      bool finite = true;
      for (int k = 0; k < k_count; ++k) {
        for (int c = 0; c < 8; ++c) {
          const double p = a[row * k_count + k] * column[k * 8 + c];
          product[k * 8 + c] = p;
          largest[c] = std::fabs(p) > largest[c] ? std::fabs(p) : largest[c];
          finite &= std::fabs(p) <= 0x1p1023;
        }
      }
      for (int c = 0; c < 8; ++c) finite &= std::fabs(old[c]) <= 0x1p1023;
      if (!finite) {  // infinities and NaN add as they are
        for (int k = 0; k < k_count; ++k) {
          for (int c = 0; c < 8; ++c) old[c] += product[k * 8 + c];
        }
        continue;
      }
      double quantum[8], inverse[8];
      for (int c = 0; c < 8; ++c) {
        const std::uint64_t exponent = bits_of(largest[c]) & 0x7ff0000000000000ull;
        quantum[c] = exponent == 0 ? 1.0 : double_of(exponent) * kGuard;
        inverse[c] = 1.0 / quantum[c];  // exact: a power of two
        sum[c] = static_cast<std::int32_t>(old[c] * inverse[c]);
      }
      for (int k = 0; k < k_count; ++k) {
        for (int c = 0; c < 8; ++c) {
          sum[c] += static_cast<std::int32_t>(product[k * 8 + c] * inverse[c]);  // cuts toward zero
        }
      }
      for (int c = 0; c < 8; ++c) old[c] = sum[c] * quantum[c];
    }
  }
}

template <AccumulatorType kType, bool kNarrow>
FLASHPTX_INLINE void all_strips(const WgmmaOp& op, const WarpFragments (&warps)[4], Scratch& s) {
  const int n = op.n, k_count = op.k();
  for (int w = 0; w < 4; ++w) {
    for (int h = 0; h < 2; ++h) {
      if (op.scale_d) load_strip<kType>(warps[w], h, n, s.d);
      else std::memset(s.d, 0, sizeof(double) * static_cast<std::size_t>(kRows * n));
      const double* a = s.a + (16 * w + 8 * h) * k_count;
      if constexpr (kNarrow) multiply_strip_narrow(a, s.b, k_count, s.d, n);
      else multiply_strip(a, s.b, k_count, s.d, n);
      store_strip<kType>(s.d, op.saturate, h, n, warps[w]);
    }
  }
}

// Fusing a * b + c changes nothing in these: the products of all the input formats are exact in
// float64.
#define FLASHPTX_PRODUCT FLASHPTX_CLONES __attribute__((optimize("fp-contract=fast")))

FLASHPTX_PRODUCT void product_f32(const WgmmaOp& op, const WarpFragments (&warps)[4], Scratch& s) {
  all_strips<AccumulatorType::f32, false>(op, warps, s);
}
FLASHPTX_CLONES void product_f32_narrow(const WgmmaOp& op, const WarpFragments (&warps)[4],
                                        Scratch& s) {
  all_strips<AccumulatorType::f32, true>(op, warps, s);
}
void product_f16(const WgmmaOp& op, const WarpFragments (&warps)[4], Scratch& s) {
  if (op.narrow_accumulator) all_strips<AccumulatorType::f16, true>(op, warps, s);
  else all_strips<AccumulatorType::f16, false>(op, warps, s);
}
void product_s32(const WgmmaOp& op, const WarpFragments (&warps)[4], Scratch& s) {
  all_strips<AccumulatorType::s32, false>(op, warps, s);
}

}  // namespace

Status wgmma(const WgmmaOp& op, const SharedView& shared, const WarpFragments (&warps)[4]) {
  if (Status s = check_wgmma(op, shared); !s.ok()) return s;
  Scratch s;
  if (op.a_in_registers) decode_a_registers(op.a_type, warps, s.a);
  else decode_a_shared(op.a_operand(), shared, s.a);
  decode_b(op.b_operand(), shared, s.b);
  if (op.a_negate != op.b_negate) {
    for (int i = 0; i < 64 * op.k(); ++i) s.a[i] = -s.a[i];
  }
  const bool narrow =
      op.narrow_accumulator && (op.a_type == MatrixType::e4m3 || op.a_type == MatrixType::e5m2);
  if (op.d_type == AccumulatorType::s32) product_s32(op, warps, s);
  else if (op.d_type == AccumulatorType::f16) product_f16(op, warps, s);
  else if (narrow) product_f32_narrow(op, warps, s);
  else product_f32(op, warps, s);
  return {};
}

}  // namespace flashptx::emulator
