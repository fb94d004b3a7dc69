// Conversions of numeric.h, one lane. All narrowing goes through round_to(), in software: no
// floating-point environment is touched, so threads and compilers cannot disturb a directed
// rounding. Next: numeric_math.cpp (arithmetic), numeric_arrays.cpp (the hot rules over 32 lanes).
#include "host/emulator/numeric.h"

#include <algorithm>
#include <cmath>

namespace flashptx::emulator {
namespace {

// The integer nearest to x >= 0 in the given direction; `negative` is the sign that x had.
double round_magnitude(double x, Round round, bool negative) {
  const double down = std::floor(x);
  const double rest = x - down;  // exact
  bool up = false;
  switch (round) {
    case Round::rn:
      up = rest > 0.5 || (rest == 0.5 && std::fmod(down, 2.0) != 0.0);
      break;
    case Round::rna:
      up = rest >= 0.5;
      break;
    case Round::rz:
      up = false;
      break;
    case Round::rm:
      up = rest > 0.0 && negative;
      break;
    case Round::rp:
      up = rest > 0.0 && !negative;
      break;
  }
  return up ? down + 1.0 : down;
}

bool overflow_saturates(Round round, bool negative) {
  return round == Round::rz || (round == Round::rm && !negative) ||
         (round == Round::rp && negative);
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
    // In units of the last place the value is an integer below 2^(mantissa_bits + 1), hidden bit
    // included.
    const double units =
        round_magnitude(std::ldexp(magnitude, f.mantissa_bits - exponent), mods.round, negative);
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
  return static_cast<std::uint16_t>(round_to(kF16, flush_f32_if(x, mods.ftz), mods));
}
std::uint16_t f32_to_bf16(float x, const ConvertMods& mods) {
  return static_cast<std::uint16_t>(round_to(kBf16, flush_f32_if(x, mods.ftz), mods));
}
std::uint8_t f32_to_e4m3(float x, const ConvertMods& mods) {
  return static_cast<std::uint8_t>(round_to(kE4m3, flush_f32_if(x, mods.ftz), mods));
}
std::uint8_t f32_to_e5m2(float x, const ConvertMods& mods) {
  return static_cast<std::uint8_t>(round_to(kE5m2, flush_f32_if(x, mods.ftz), mods));
}
std::uint32_t f32_to_tf32(float x, const ConvertMods& mods) {
  const std::uint32_t t = round_to(kTf32, flush_f32_if(x, mods.ftz), mods);
  return (t & kTf32.nan()) == kTf32.nan() ? kNanF32 : t << 13;
}

float f64_to_f32(double x, const ConvertMods& mods) {
  const bool nearest = mods.round == Round::rn && !mods.satfinite;
  if (std::isnan(x)) return mods.sat ? 0.0f : canonical_nan();
  float r;
  if (nearest && !mods.sat && !mods.relu) r = static_cast<float>(x);
  else r = float_of(round_to(kF32, x, mods));
  return flush_f32_if(r, mods.ftz);
}

double f32_to_f64(float x, bool ftz) { return std::isnan(x) ? canonical_nan() : flush_f32_if(x, ftz); }

float f32_to_f32(float x, const ConvertMods& mods) { return f64_to_f32(flush_f32_if(x, mods.ftz), mods); }

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

// ---- integers
// -------------------------------------------------------------------------------------------

double round_to_integral_f64(double x, Round round) {
  if (std::isnan(x)) return canonical_nan();
  if (std::isinf(x) || std::fabs(x) >= 0x1p53) return x;
  return std::copysign(round_magnitude(std::fabs(x), round, std::signbit(x)), x);
}

float round_to_integral_f32(float x, const ConvertMods& mods) {
  const double r = round_to_integral_f64(flush_f32_if(x, mods.ftz), mods.round);
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
  if (r >= std::ldexp(1.0, bits))
    return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
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
    case Round::rn:
      up = rest > half || (rest == half && (kept & 1));
      break;
    case Round::rna:
      up = rest >= half;
      break;
    case Round::rz:
      break;
    case Round::rm:
      up = rest != 0 && negative;
      break;
    case Round::rp:
      up = rest != 0 && !negative;
      break;
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
float unsigned_to_f32(std::uint64_t x, Round round) {
  return f64_to_f32(to_odd(x), {.round = round});
}
double signed_to_f64(std::int64_t x, Round round) { return to_f64(magnitude_of(x), x < 0, round); }
double unsigned_to_f64(std::uint64_t x, Round round) { return to_f64(x, false, round); }

}  // namespace flashptx::emulator
