// Arithmetic of numeric.h, one lane. The exact result is held as a float64 rounded to odd (Boldo
// and Melquiond, "Emulation of FMA and correctly rounded sums"), which any narrower format can be
// rounded from once more, in any direction, without a double-rounding error. Next: numeric.cpp
// (conversions), numeric_arrays.cpp (the hot rules over 32 lanes).
#include <cmath>
#include <limits>

#include "host/emulator/numeric.h"

namespace flashptx::emulator {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// a * b + c as a float64 rounded to odd. a and b have at most 24 significant bits, so a * b is
// exact.
double fma_to_odd(double a, double b, double c) {
  const double p = a * b;
  const double s = p + c;
  if (!std::isfinite(s)) return s;
  const double from_p = s - c;  // two-sum: error of s
  const double error = (p - from_p) + (c - (s - from_p));
  if (error == 0.0) return s;
  std::uint64_t bits = bits_of(s);
  if (bits & 1) return s;                        // already odd
  const bool away = (error > 0.0) == (s > 0.0);  // the exact value lies farther from zero than s
  bits += away ? 1 : static_cast<std::uint64_t>(-1);
  return double_of(bits);
}

// Sign of an exact zero sum: + except with rm, where it is -, unless both terms are -0 (or +0).
double fix_zero_sum(double sum, double product, double addend, Round round) {
  if (sum != 0.0 || round != Round::rm) return sum;
  const bool both_positive = !std::signbit(product) && !std::signbit(addend);
  return product == 0.0 && addend == 0.0 && both_positive ? 0.0 : -0.0;
}

float finish(double value, const MathMods& mods) {
  ConvertMods c{.round = mods.round, .sat = mods.sat, .ftz = mods.ftz};
  return f64_to_f32(value, c);
}

float approx_out(double value, bool ftz) { return f64_to_f32(value, {.ftz = ftz}); }

std::uint16_t flush_f16(std::uint16_t h) { return (h & 0x7c00u) == 0 ? h & 0x8000u : h; }

const Format& format_of(HalfType t) { return t == HalfType::f16 ? kF16 : kBf16; }

std::uint16_t half_fma(HalfType t, float a, float b, float c, const HalfMods& mods) {
  const double sum = fma_to_odd(a, b, c);
  std::uint16_t h =
      static_cast<std::uint16_t>(round_to(format_of(t), sum, {.relu = mods.relu, .sat = mods.sat}));
  return mods.ftz && t == HalfType::f16 ? flush_f16(h) : h;
}

float half_in(HalfType t, std::uint16_t h, bool ftz) {
  return half_to_f32(t, ftz && t == HalfType::f16 ? flush_f16(h) : h);
}

std::uint16_t half_of_extremum(HalfType t, float x) {
  return static_cast<std::uint16_t>(round_to(format_of(t), x));
}

}  // namespace

// ---- f32
// ------------------------------------------------------------------------------------------------

float add_f32(float a, float b, const MathMods& mods) {
  const double x = flush_f32_if(a, mods.ftz), y = flush_f32_if(b, mods.ftz);
  if (mods.round == Round::rn && !mods.sat) {
    return f64_to_f32(static_cast<float>(x) + static_cast<float>(y), {.ftz = mods.ftz});
  }
  return finish(fix_zero_sum(fma_to_odd(x, 1.0, y), x, y, mods.round), mods);
}

float sub_f32(float a, float b, const MathMods& mods) { return add_f32(a, -b, mods); }

float mul_f32(float a, float b, const MathMods& mods) {
  return finish(static_cast<double>(flush_f32_if(a, mods.ftz)) * flush_f32_if(b, mods.ftz), mods);
}

float fma_f32(float a, float b, float c, const MathMods& mods) {
  const double x = flush_f32_if(a, mods.ftz), y = flush_f32_if(b, mods.ftz), z = flush_f32_if(c, mods.ftz);
  if (mods.round == Round::rn && !mods.sat) {
    const float r = std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z));
    return f64_to_f32(r, {.ftz = mods.ftz});
  }
  return finish(fix_zero_sum(fma_to_odd(x, y, z), x * y, z, mods.round), mods);
}

// A quotient or root of 24-bit numbers that is no float lies farther than 2^-50 (relative) from
// every float and every midpoint, so rounding the float64 result again is safe in all modes.
float div_f32(float a, float b, const MathMods& mods) {
  return finish(static_cast<double>(flush_f32_if(a, mods.ftz)) / flush_f32_if(b, mods.ftz), mods);
}
float rcp_f32(float a, const MathMods& mods) { return div_f32(1.0f, a, mods); }
float sqrt_f32(float a, const MathMods& mods) {
  return finish(std::sqrt(static_cast<double>(flush_f32_if(a, mods.ftz))), mods);
}

float abs_f32(float a, bool ftz) {
  return std::isnan(a) ? canonical_nan() : float_of(bits_of(flush_f32_if(a, ftz)) & 0x7fffffffu);
}
float neg_f32(float a, bool ftz) {
  return std::isnan(a) ? canonical_nan() : float_of(bits_of(flush_f32_if(a, ftz)) ^ 0x80000000u);
}

float min_f32(float a, float b, bool ftz, bool nan) {
  a = flush_f32_if(a, ftz);
  b = flush_f32_if(b, ftz);
  const bool a_nan = std::isnan(a), b_nan = std::isnan(b);
  if (a_nan || b_nan) return nan || (a_nan && b_nan) ? canonical_nan() : a_nan ? b : a;
  if (a == b) return float_of(bits_of(a) | bits_of(b));  // -0 wins over +0
  return a < b ? a : b;
}
float max_f32(float a, float b, bool ftz, bool nan) {
  a = flush_f32_if(a, ftz);
  b = flush_f32_if(b, ftz);
  const bool a_nan = std::isnan(a), b_nan = std::isnan(b);
  if (a_nan || b_nan) return nan || (a_nan && b_nan) ? canonical_nan() : a_nan ? b : a;
  if (a == b) return float_of(bits_of(a) & bits_of(b));  // +0 wins over -0
  return a > b ? a : b;
}

// ---- packed 16 bit
// --------------------------------------------------------------------------------------

float half_to_f32(HalfType t, std::uint16_t h) {
  return t == HalfType::f16 ? f16_to_f32(h) : bf16_to_f32(h);
}

std::uint16_t add_half(HalfType t, std::uint16_t a, std::uint16_t b, const HalfMods& m) {
  return half_fma(t, half_in(t, a, m.ftz), 1.0f, half_in(t, b, m.ftz), m);
}
std::uint16_t sub_half(HalfType t, std::uint16_t a, std::uint16_t b, const HalfMods& m) {
  return half_fma(t, half_in(t, a, m.ftz), 1.0f, -half_in(t, b, m.ftz), m);
}
std::uint16_t mul_half(HalfType t, std::uint16_t a, std::uint16_t b, const HalfMods& m) {
  return half_fma(t, half_in(t, a, m.ftz), half_in(t, b, m.ftz), -0.0f,
                  m);  // x + -0 keeps every sign
}
std::uint16_t fma_half(HalfType t, std::uint16_t a, std::uint16_t b, std::uint16_t c,
                       const HalfMods& m) {
  return half_fma(t, half_in(t, a, m.ftz), half_in(t, b, m.ftz), half_in(t, c, m.ftz), m);
}
std::uint16_t min_half(HalfType t, std::uint16_t a, std::uint16_t b, bool ftz, bool nan) {
  return half_of_extremum(t, min_f32(half_in(t, a, ftz), half_in(t, b, ftz), false, nan));
}
std::uint16_t max_half(HalfType t, std::uint16_t a, std::uint16_t b, bool ftz, bool nan) {
  return half_of_extremum(t, max_f32(half_in(t, a, ftz), half_in(t, b, ftz), false, nan));
}
std::uint16_t ex2_approx_half(HalfType t, std::uint16_t a, bool ftz) {
  float x = half_to_f32(t, a);
  if (ftz && t == HalfType::bf16) x = flush_f32(x);  // bf16 has the exponents of f32
  std::uint16_t h = static_cast<std::uint16_t>(round_to(format_of(t), std::exp2(double{x})));
  if (ftz && t == HalfType::bf16 && (h & 0x7f80u) == 0) h &= 0x8000u;
  return h;
}
std::uint16_t tanh_approx_half(HalfType t, std::uint16_t a) {
  return static_cast<std::uint16_t>(round_to(format_of(t), std::tanh(double{half_to_f32(t, a)})));
}

std::uint32_t add_x2(HalfType t, std::uint32_t a, std::uint32_t b, const HalfMods& mods) {
  return for_halves([&](auto x, auto y) { return add_half(t, x, y, mods); }, a, b);
}
std::uint32_t sub_x2(HalfType t, std::uint32_t a, std::uint32_t b, const HalfMods& mods) {
  return for_halves([&](auto x, auto y) { return sub_half(t, x, y, mods); }, a, b);
}
std::uint32_t mul_x2(HalfType t, std::uint32_t a, std::uint32_t b, const HalfMods& mods) {
  return for_halves([&](auto x, auto y) { return mul_half(t, x, y, mods); }, a, b);
}
std::uint32_t fma_x2(HalfType t, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                     const HalfMods& mods) {
  return for_halves([&](auto x, auto y, auto z) { return fma_half(t, x, y, z, mods); }, a, b, c);
}
std::uint32_t min_x2(HalfType t, std::uint32_t a, std::uint32_t b, bool ftz, bool nan) {
  return for_halves([&](auto x, auto y) { return min_half(t, x, y, ftz, nan); }, a, b);
}
std::uint32_t max_x2(HalfType t, std::uint32_t a, std::uint32_t b, bool ftz, bool nan) {
  return for_halves([&](auto x, auto y) { return max_half(t, x, y, ftz, nan); }, a, b);
}
std::uint32_t ex2_approx_x2(HalfType t, std::uint32_t a, bool ftz) {
  return for_halves([&](auto x) { return ex2_approx_half(t, x, ftz); }, a);
}
std::uint32_t tanh_approx_x2(HalfType t, std::uint32_t a) {
  return for_halves([&](auto x) { return tanh_approx_half(t, x); }, a);
}

// ---- approximations
// -------------------------------------------------------------------------------------

float ex2_approx_f32(float a, bool ftz) {
  float d;
  if (ftz) ex2_approx_ftz_f32(&d, &a, 1);
  else ex2_approx_f32(&d, &a, 1);
  return d;
}
float lg2_approx_f32(float a, bool ftz) { return approx_out(std::log2(double{flush_f32_if(a, ftz)}), ftz); }
float rcp_approx_f32(float a, bool ftz) { return approx_out(1.0 / double{flush_f32_if(a, ftz)}, ftz); }
float rsqrt_approx_f32(float a, bool ftz) {
  return approx_out(1.0 / std::sqrt(double{flush_f32_if(a, ftz)}), ftz);
}
float sqrt_approx_f32(float a, bool ftz) { return approx_out(std::sqrt(double{flush_f32_if(a, ftz)}), ftz); }
float sin_approx_f32(float a, bool ftz) { return approx_out(std::sin(double{flush_f32_if(a, ftz)}), ftz); }
float cos_approx_f32(float a, bool ftz) { return approx_out(std::cos(double{flush_f32_if(a, ftz)}), ftz); }
float tanh_approx_f32(float a) { return approx_out(std::tanh(double{a}), false); }

float div_approx_f32(float a, float b, bool ftz) {
  const double x = flush_f32_if(a, ftz), y = flush_f32_if(b, ftz);
  if (std::fabs(y) > 0x1p126 && std::fabs(y) < kInfinity) {  // the reciprocal is flushed to zero
    if (std::isinf(x)) return canonical_nan();
    if (!std::isnan(x)) return std::signbit(x) != std::signbit(y) ? -0.0f : 0.0f;
  }
  return approx_out(x / y, ftz);
}
float div_full_f32(float a, float b, bool ftz) {
  return approx_out(double{flush_f32_if(a, ftz)} / double{flush_f32_if(b, ftz)}, ftz);
}

}  // namespace flashptx::emulator
