// Scalar rules of numeric.h. Directed rounding is done in software: the exact result is held as a float64
// rounded to odd (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums"), which any narrower
// format can be rounded from once more without a double-rounding error. No floating-point environment is
// touched, so threads and compilers cannot disturb it.
// Next: numeric_arrays.cpp, the same rules over 32 lanes.
#include "host/emulator/numeric.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flashptx::emulator {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The integer nearest to x >= 0 in the given direction; `negative` is the sign that x had.
double round_magnitude(double x, Round round, bool negative) {
  const double down = std::floor(x);
  const double rest = x - down;  // exact
  bool up = false;
  switch (round) {
    case Round::rn: up = rest > 0.5 || (rest == 0.5 && std::fmod(down, 2.0) != 0.0); break;
    case Round::rna: up = rest >= 0.5; break;
    case Round::rz: up = false; break;
    case Round::rm: up = rest > 0.0 && negative; break;
    case Round::rp: up = rest > 0.0 && !negative; break;
  }
  return up ? down + 1.0 : down;
}

bool overflow_saturates(Round round, bool negative) {
  return round == Round::rz || (round == Round::rm && !negative) || (round == Round::rp && negative);
}

// a * b + c as a float64 rounded to odd. a and b have at most 24 significant bits, so a * b is exact.
double fma_to_odd(double a, double b, double c) {
  const double p = a * b;
  const double s = p + c;
  if (!std::isfinite(s)) return s;
  const double from_p = s - c;  // two-sum: error of s
  const double error = (p - from_p) + (c - (s - from_p));
  if (error == 0.0) return s;
  std::uint64_t bits = bits_of(s);
  if (bits & 1) return s;  // already odd
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

float in(float x, bool ftz) { return ftz ? flush_f32(x) : x; }

float approx_out(double value, bool ftz) { return f64_to_f32(value, {.ftz = ftz}); }

std::uint16_t flush_f16(std::uint16_t h) { return (h & 0x7c00u) == 0 ? h & 0x8000u : h; }

const Format& format_of(HalfType t) { return t == HalfType::f16 ? kF16 : kBf16; }

std::uint16_t half_fma(HalfType t, float a, float b, float c, const HalfMods& mods) {
  const double sum = fma_to_odd(a, b, c);
  std::uint16_t h = static_cast<std::uint16_t>(
      round_to(format_of(t), sum, {.relu = mods.relu, .sat = mods.sat}));
  return mods.ftz && t == HalfType::f16 ? flush_f16(h) : h;
}

float half_in(HalfType t, std::uint16_t h, bool ftz) {
  return half_to_f32(t, ftz && t == HalfType::f16 ? flush_f16(h) : h);
}

std::uint16_t half_of_extremum(HalfType t, float x) {
  return static_cast<std::uint16_t>(round_to(format_of(t), x));
}

}  // namespace

std::uint32_t round_to(const Format& f, double value, const ConvertMods& mods) {
  if (std::isnan(value)) return mods.sat ? 0 : f.nan();
  if (mods.sat) value = value > 1.0 ? 1.0 : value > 0.0 ? value : 0.0;
  if (mods.relu && std::signbit(value)) value = 0.0;
  const bool negative = std::signbit(value);
  const std::uint32_t sign = negative ? f.sign() : 0;
  const double magnitude = std::fabs(value);
  if (magnitude == 0.0) return sign;
  const std::uint32_t largest = f.max_finite();
  if (std::isinf(magnitude)) {
    return sign | (mods.satfinite ? largest : f.has_infinity ? f.infinity() : f.nan());
  }
  const int min_exponent = 1 - f.bias();
  const int exponent = std::max(std::ilogb(magnitude), min_exponent);
  if (exponent <= f.bias() + 1) {
    // In units of the last place the value is an integer below 2^(mantissa_bits + 1), hidden bit included.
    const double units = round_magnitude(std::ldexp(magnitude, f.mantissa_bits - exponent),
                                         mods.round, negative);
    const std::uint32_t base = static_cast<std::uint32_t>(exponent - min_exponent)
                               << f.mantissa_bits;
    const std::uint32_t bits = base + static_cast<std::uint32_t>(units);
    if (bits <= largest) return sign | bits;
  }
  if (mods.satfinite || overflow_saturates(mods.round, negative)) return sign | largest;
  return sign | (f.has_infinity ? f.infinity() : f.nan());
}

float f16_to_f32(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t rest = h & 0x7fffu;
  if (rest > 0x7c00u) return canonical_nan();
  if (rest == 0x7c00u) return float_of(sign | 0x7f800000u);
  if (rest >= 0x400u) return float_of(((rest << 13) + (112u << 23)) | sign);  // bias 15 to 127
  return float_of(bits_of(static_cast<float>(rest) * 0x1p-24f) | sign);
}

float e4m3_to_f32(std::uint8_t b) {
  if ((b & 0x7fu) == 0x7fu) return canonical_nan();
  const std::uint32_t sign = static_cast<std::uint32_t>(b & 0x80u) << 24;
  const std::uint32_t rest = b & 0x7fu;
  if (rest >= 0x08u) return float_of(((rest << 20) + (120u << 23)) | sign);  // bias 7 to 127
  return float_of(bits_of(static_cast<float>(rest) * 0x1p-9f) | sign);
}

float e5m2_to_f32(std::uint8_t b) { return f16_to_f32(static_cast<std::uint16_t>(b << 8)); }

std::uint16_t f32_to_f16(float x, const ConvertMods& mods) {
  return static_cast<std::uint16_t>(round_to(kF16, in(x, mods.ftz), mods));
}
std::uint16_t f32_to_bf16(float x, const ConvertMods& mods) {
  return static_cast<std::uint16_t>(round_to(kBf16, in(x, mods.ftz), mods));
}
std::uint8_t f32_to_e4m3(float x, const ConvertMods& mods) {
  return static_cast<std::uint8_t>(round_to(kE4m3, in(x, mods.ftz), mods));
}
std::uint8_t f32_to_e5m2(float x, const ConvertMods& mods) {
  return static_cast<std::uint8_t>(round_to(kE5m2, in(x, mods.ftz), mods));
}
std::uint32_t f32_to_tf32(float x, const ConvertMods& mods) {
  const std::uint32_t t = round_to(kTf32, in(x, mods.ftz), mods);
  return (t & kTf32.nan()) == kTf32.nan() ? kNanF32 : t << 13;
}

float f64_to_f32(double x, const ConvertMods& mods) {
  const bool nearest = mods.round == Round::rn && !mods.satfinite;
  if (std::isnan(x)) return mods.sat ? 0.0f : canonical_nan();
  float r;
  if (nearest && !mods.sat && !mods.relu) r = static_cast<float>(x);
  else r = float_of(round_to(kF32, x, mods));
  return in(r, mods.ftz);
}

double f32_to_f64(float x, bool ftz) { return std::isnan(x) ? canonical_nan() : in(x, ftz); }

float f32_to_f32(float x, const ConvertMods& mods) { return f64_to_f32(in(x, mods.ftz), mods); }

std::uint32_t f32_to_f16x2(float hi, float lo, const ConvertMods& mods) {
  return static_cast<std::uint32_t>(f32_to_f16(hi, mods)) << 16 | f32_to_f16(lo, mods);
}
std::uint32_t f32_to_bf16x2(float hi, float lo, const ConvertMods& mods) {
  return static_cast<std::uint32_t>(f32_to_bf16(hi, mods)) << 16 | f32_to_bf16(lo, mods);
}
std::uint16_t f32_to_e4m3x2(float hi, float lo, bool relu) {
  const ConvertMods mods{.satfinite = true, .relu = relu};
  return static_cast<std::uint16_t>(f32_to_e4m3(hi, mods) << 8 | f32_to_e4m3(lo, mods));
}
std::uint16_t f32_to_e5m2x2(float hi, float lo, bool relu) {
  const ConvertMods mods{.satfinite = true, .relu = relu};
  return static_cast<std::uint16_t>(f32_to_e5m2(hi, mods) << 8 | f32_to_e5m2(lo, mods));
}
std::uint16_t f16x2_to_e4m3x2(std::uint32_t a, bool relu) {
  return f32_to_e4m3x2(f16_to_f32(static_cast<std::uint16_t>(a >> 16)),
                       f16_to_f32(static_cast<std::uint16_t>(a)), relu);
}
std::uint16_t f16x2_to_e5m2x2(std::uint32_t a, bool relu) {
  return f32_to_e5m2x2(f16_to_f32(static_cast<std::uint16_t>(a >> 16)),
                       f16_to_f32(static_cast<std::uint16_t>(a)), relu);
}
std::uint32_t e4m3x2_to_f16x2(std::uint16_t a, bool relu) {
  return f32_to_f16x2(e4m3_to_f32(static_cast<std::uint8_t>(a >> 8)),
                      e4m3_to_f32(static_cast<std::uint8_t>(a)), {.relu = relu});
}
std::uint32_t e5m2x2_to_f16x2(std::uint16_t a, bool relu) {
  return f32_to_f16x2(e5m2_to_f32(static_cast<std::uint8_t>(a >> 8)),
                      e5m2_to_f32(static_cast<std::uint8_t>(a)), {.relu = relu});
}

// ---- integers -------------------------------------------------------------------------------------------

double round_to_integral_f64(double x, Round round) {
  if (std::isnan(x)) return canonical_nan();
  if (std::isinf(x) || std::fabs(x) >= 0x1p53) return x;
  return std::copysign(round_magnitude(std::fabs(x), round, std::signbit(x)), x);
}

float round_to_integral_f32(float x, const ConvertMods& mods) {
  const double r = round_to_integral_f64(in(x, mods.ftz), mods.round);
  return f64_to_f32(r, {.relu = mods.relu, .sat = mods.sat});
}

std::int64_t float_to_signed(double x, Round round, int bits, bool from_f64) {
  const std::int64_t lowest = -(std::int64_t{1} << (bits - 2)) * 2;
  const std::int64_t highest = -(lowest + 1);
  if (std::isnan(x)) return from_f64 || bits == 64 ? lowest : 0;
  const double r = round_to_integral_f64(x, round);
  const double limit = std::ldexp(1.0, bits - 1);
  if (r >= limit) return highest;
  if (r < -limit) return lowest;
  return static_cast<std::int64_t>(r);
}

std::uint64_t float_to_unsigned(double x, Round round, int bits, bool from_f64) {
  if (std::isnan(x)) return from_f64 || bits == 64 ? std::uint64_t{1} << (bits - 1) : 0;
  const double r = round_to_integral_f64(x, round);
  if (r <= 0.0) return 0;
  if (r >= std::ldexp(1.0, bits)) return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  return static_cast<std::uint64_t>(r);
}

namespace {

// A 64-bit magnitude as a float64 rounded to odd: enough for one more rounding to f32.
double to_odd(std::uint64_t magnitude) {
  int shift = 0;
  while (magnitude >> 53) {
    magnitude = (magnitude >> 1) | (magnitude & 1);
    ++shift;
  }
  return std::ldexp(static_cast<double>(magnitude), shift);
}

double to_f64(std::uint64_t magnitude, bool negative, Round round) {
  const int shift = magnitude == 0 ? 0 : 64 - std::countl_zero(magnitude) - 53;
  if (shift <= 0) {
    const double exact = static_cast<double>(magnitude);
    return negative ? -exact : exact;
  }
  const std::uint64_t kept = magnitude >> shift;
  const std::uint64_t rest = magnitude - (kept << shift), half = std::uint64_t{1} << (shift - 1);
  bool up = false;
  switch (round) {
    case Round::rn: up = rest > half || (rest == half && (kept & 1)); break;
    case Round::rna: up = rest >= half; break;
    case Round::rz: break;
    case Round::rm: up = rest != 0 && negative; break;
    case Round::rp: up = rest != 0 && !negative; break;
  }
  const double r = std::ldexp(static_cast<double>(kept + up), shift);
  return negative ? -r : r;
}

std::uint64_t magnitude_of(std::int64_t x) {
  return x < 0 ? ~static_cast<std::uint64_t>(x) + 1 : static_cast<std::uint64_t>(x);
}

}  // namespace

float signed_to_f32(std::int64_t x, Round round) {
  const double m = to_odd(magnitude_of(x));
  return f64_to_f32(x < 0 ? -m : m, {.round = round});
}
float unsigned_to_f32(std::uint64_t x, Round round) { return f64_to_f32(to_odd(x), {.round = round}); }
double signed_to_f64(std::int64_t x, Round round) { return to_f64(magnitude_of(x), x < 0, round); }
double unsigned_to_f64(std::uint64_t x, Round round) { return to_f64(x, false, round); }

// ---- f32 ------------------------------------------------------------------------------------------------

float add_f32(float a, float b, const MathMods& mods) {
  const double x = in(a, mods.ftz), y = in(b, mods.ftz);
  if (mods.round == Round::rn && !mods.sat) {
    return f64_to_f32(static_cast<float>(x) + static_cast<float>(y), {.ftz = mods.ftz});
  }
  return finish(fix_zero_sum(fma_to_odd(x, 1.0, y), x, y, mods.round), mods);
}

float sub_f32(float a, float b, const MathMods& mods) { return add_f32(a, -b, mods); }

float mul_f32(float a, float b, const MathMods& mods) {
  return finish(static_cast<double>(in(a, mods.ftz)) * in(b, mods.ftz), mods);
}

float fma_f32(float a, float b, float c, const MathMods& mods) {
  const double x = in(a, mods.ftz), y = in(b, mods.ftz), z = in(c, mods.ftz);
  if (mods.round == Round::rn && !mods.sat) {
    const float r = std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z));
    return f64_to_f32(r, {.ftz = mods.ftz});
  }
  return finish(fix_zero_sum(fma_to_odd(x, y, z), x * y, z, mods.round), mods);
}

// A quotient or root of 24-bit numbers that is no float lies farther than 2^-50 (relative) from every float
// and every midpoint, so rounding the float64 result again is safe in all modes.
float div_f32(float a, float b, const MathMods& mods) {
  return finish(static_cast<double>(in(a, mods.ftz)) / in(b, mods.ftz), mods);
}
float rcp_f32(float a, const MathMods& mods) { return div_f32(1.0f, a, mods); }
float sqrt_f32(float a, const MathMods& mods) {
  return finish(std::sqrt(static_cast<double>(in(a, mods.ftz))), mods);
}

float abs_f32(float a, bool ftz) {
  return std::isnan(a) ? canonical_nan() : float_of(bits_of(in(a, ftz)) & 0x7fffffffu);
}
float neg_f32(float a, bool ftz) {
  return std::isnan(a) ? canonical_nan() : float_of(bits_of(in(a, ftz)) ^ 0x80000000u);
}

float min_f32(float a, float b, bool ftz, bool nan) {
  a = in(a, ftz);
  b = in(b, ftz);
  const bool a_nan = std::isnan(a), b_nan = std::isnan(b);
  if (a_nan || b_nan) return nan || (a_nan && b_nan) ? canonical_nan() : a_nan ? b : a;
  if (a == b) return float_of(bits_of(a) | bits_of(b));  // -0 wins over +0
  return a < b ? a : b;
}
float max_f32(float a, float b, bool ftz, bool nan) {
  a = in(a, ftz);
  b = in(b, ftz);
  const bool a_nan = std::isnan(a), b_nan = std::isnan(b);
  if (a_nan || b_nan) return nan || (a_nan && b_nan) ? canonical_nan() : a_nan ? b : a;
  if (a == b) return float_of(bits_of(a) & bits_of(b));  // +0 wins over -0
  return a > b ? a : b;
}

// ---- packed 16 bit --------------------------------------------------------------------------------------

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
  return half_fma(t, half_in(t, a, m.ftz), half_in(t, b, m.ftz), -0.0f, m);  // x + -0 keeps every sign
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

// ---- approximations -------------------------------------------------------------------------------------

float ex2_approx_f32(float a, bool ftz) {
  float d;
  if (ftz) ex2_approx_ftz_f32(&d, &a, 1);
  else ex2_approx_f32(&d, &a, 1);
  return d;
}
float lg2_approx_f32(float a, bool ftz) { return approx_out(std::log2(double{in(a, ftz)}), ftz); }
float rcp_approx_f32(float a, bool ftz) { return approx_out(1.0 / double{in(a, ftz)}, ftz); }
float rsqrt_approx_f32(float a, bool ftz) {
  return approx_out(1.0 / std::sqrt(double{in(a, ftz)}), ftz);
}
float sqrt_approx_f32(float a, bool ftz) { return approx_out(std::sqrt(double{in(a, ftz)}), ftz); }
float sin_approx_f32(float a, bool ftz) { return approx_out(std::sin(double{in(a, ftz)}), ftz); }
float cos_approx_f32(float a, bool ftz) { return approx_out(std::cos(double{in(a, ftz)}), ftz); }
float tanh_approx_f32(float a) { return approx_out(std::tanh(double{a}), false); }

float div_approx_f32(float a, float b, bool ftz) {
  const double x = in(a, ftz), y = in(b, ftz);
  if (std::fabs(y) > 0x1p126 && std::fabs(y) < kInfinity) {  // the reciprocal is flushed to zero
    if (std::isinf(x)) return canonical_nan();
    if (!std::isnan(x)) return std::signbit(x) != std::signbit(y) ? -0.0f : 0.0f;
  }
  return approx_out(x / y, ftz);
}
float div_full_f32(float a, float b, bool ftz) {
  return approx_out(double{in(a, ftz)} / double{in(b, ftz)}, ftz);
}

}  // namespace flashptx::emulator
