// Independent definitions for the numeric tests: formats decoded from their definition and
// searched, and f32 inputs that rounding distinguishes. Next: tests/emulator/numeric_test.cpp,
// tests/emulator/arithmetic_test.cpp.
#pragma once

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <random>
#include <vector>

#include "host/emulator/numeric.h"

namespace flashptx::emulator::test {

// A format by its definition (fact: value = 2^(e - bias) (1 + m / 2^M), subnormals without the 1).
struct SlowFormat {
  int exponent_bits, mantissa_bits;
  bool infinity;
  std::vector<double> positive;  // value of every finite non-negative code, increasing

  SlowFormat(int e, int m, bool inf) : exponent_bits(e), mantissa_bits(m), infinity(inf) {
    const int codes = (inf ? ((1 << e) - 1) << m : (1 << (e + m)) - 1);
    for (int code = 0; code < codes; ++code) positive.push_back(decode(code));
  }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  double decode(int code) const {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const double fraction = mantissa / std::pow(2.0, mantissa_bits);
    return exponent == 0 ? std::pow(2.0, 1 - bias()) * fraction
                         : std::pow(2.0, exponent - bias()) * (1.0 + fraction);
  }
  unsigned sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  unsigned nan() const { return sign_bit() - 1; }
  unsigned max_code() const { return static_cast<unsigned>(positive.size()) - 1; }

  // Picks a neighbour in the table. The code after the largest stands for overflow.
  unsigned encode(double x, Round round, bool satfinite, bool relu) const {
    if (std::isnan(x)) return nan();
    if (relu && std::signbit(x)) return 0;
    const bool negative = std::signbit(x);
    const double value = std::fabs(x);
    const unsigned sign = negative ? sign_bit() : 0;
    const unsigned overflow = satfinite ? max_code() : infinity ? max_code() + 1 : nan();
    if (std::isinf(value)) return sign | overflow;
    const double top = positive.back() + (positive.back() - positive[positive.size() - 2]);
    if (value >= top) {
      const bool stays = round == Round::rz || round == (negative ? Round::rp : Round::rm);
      return sign | (stays ? max_code() : overflow);
    }
    const auto above = std::upper_bound(positive.begin(), positive.end(), value);
    const unsigned low = static_cast<unsigned>(above - positive.begin()) - 1;
    const double down = positive[low], up = above == positive.end() ? top : *above;
    if (down == value) return sign | low;
    bool take_up = false;
    if (round == Round::rn || round == Round::rna) {
      const double to_down = value - down, to_up = up - value;
      take_up = to_up < to_down || (to_up == to_down && (round == Round::rna || low % 2 == 1));
    } else {
      take_up = round == (negative ? Round::rm : Round::rp);
    }
    if (!take_up) return sign | low;
    return sign | (low == max_code() ? overflow : low + 1);
  }
};

inline const SlowFormat& slow_f16() {
  static const SlowFormat f(5, 10, true);
  return f;
}
inline const SlowFormat& slow_bf16() {
  static const SlowFormat f(8, 7, true);
  return f;
}
inline const SlowFormat& slow_e4m3() {
  static const SlowFormat f(4, 3, false);
  return f;
}
inline const SlowFormat& slow_e5m2() {
  static const SlowFormat f(5, 2, true);
  return f;
}

// Every upper half of an f32 with low halves around zero, the middle and the end.
template <class F>
void for_floats(F&& f) {
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu,
                              0x8000u, 0x8001u, 0xe000u, 0xefffu, 0xf000u, 0xffffu}) {
      f(float_of(upper << 16 | low));
    }
  }
}

inline std::vector<float> awkward_floats(int random, unsigned seed) {
  std::vector<float> v;
  for (std::uint32_t b :
       {0x0u, 0x1u, 0x7fffffu, 0x800000u, 0x3f800000u, 0x3f7fffffu, 0x3f800001u, 0x7f7fffffu,
        0x7f800000u, 0x7fc00000u, 0x7f800001u, 0x33800000u, 0x4b000000u, 0x4effffffu, 0x4f000000u,
        0x4f800000u, 0x3f000000u, 0x3fc00000u, 0x40200000u}) {
    v.push_back(float_of(b));
    v.push_back(float_of(b | 0x80000000u));
  }
  std::mt19937 rng(seed);
  for (int i = 0; i < random; ++i) v.push_back(float_of(static_cast<std::uint32_t>(rng())));
  return v;
}

inline bool same(float a, float b) { return bits_of(a) == bits_of(b); }

// The host's FPU in a directed mode: an oracle that shares nothing with the software rounding.
template <class F>
float in_mode(Round round, F&& f) {
  const int mode = round == Round::rz   ? FE_TOWARDZERO
                   : round == Round::rm ? FE_DOWNWARD
                   : round == Round::rp ? FE_UPWARD
                                        : FE_TONEAREST;
  std::fesetround(mode);
  volatile float r = f();
  std::fesetround(FE_TONEAREST);
  return std::isnan(r) ? canonical_nan() : r;
}

}  // namespace flashptx::emulator::test
