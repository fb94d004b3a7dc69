// The hot rules of numeric.h over 32 lanes, branch-free, so that the compiler turns each loop into
// a few vector instructions. Every function works on a block of 32 held in local arrays (constant
// trip count, no aliasing to prove) and gives the bits of its scalar twin;
// tests/emulator/numeric_test.cpp compares them. Next: numeric.cpp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "host/emulator/clones.h"
#include "host/emulator/numeric.h"

namespace flashptx::emulator {
namespace {

constexpr int kLanes = 32;

template <class T>
struct Block {
  alignas(64) T lane[kLanes];
  Block() = default;
  Block(const T* from, int n) {
    if (n < kLanes) std::memset(lane, 0, sizeof lane);
    std::memcpy(lane, from, static_cast<std::size_t>(n) * sizeof(T));
  }
  void store(T* to, int n) const { std::memcpy(to, lane, static_cast<std::size_t>(n) * sizeof(T)); }
};

FLASHPTX_INLINE std::uint32_t pick(bool condition, std::uint32_t yes, std::uint32_t no) {
  return condition ? yes : no;
}
FLASHPTX_INLINE float canonical(float r) {
  return float_of(pick((bits_of(r) & 0x7fffffffu) > 0x7f800000u, kNanF32, bits_of(r)));
}
template <bool kFtz>
FLASHPTX_INLINE float flush(float x) {
  return kFtz
             ? float_of(pick((bits_of(x) & 0x7f800000u) == 0, bits_of(x) & 0x80000000u, bits_of(x)))
             : x;
}

// 2^x = 2^n * 2^f with n the nearest integer: a degree 7 polynomial for 2^f on [-1/2, 1/2]
// (relative error below 2^-27 before the last rounding; 2^0 is exactly 1), n added to the exponent.
template <bool kFtz>
FLASHPTX_INLINE float exp2_lane(float a) {
  const float in_range =
      flush<kFtz>(a) > -160.0f ? flush<kFtz>(a) : -160.0f;  // NaN too: see the end
  const float x = in_range < 130.0f ? in_range : 130.0f;
  constexpr float kMagic =
      0x1.8p23f;  // adding it leaves the nearest integer in the low mantissa bits
  const float shifted = x + kMagic;
  const float n = shifted - kMagic;
  const float f = x - n;
  float p = 1.52527338e-5f;  // ln(2)^i / i!
  p = p * f + 1.54035304e-4f;
  p = p * f + 1.33335581e-3f;
  p = p * f + 9.61812911e-3f;
  p = p * f + 5.55041087e-2f;
  p = p * f + 2.40226507e-1f;
  p = p * f + 6.93147181e-1f;
  p = p * f + 1.0f;
  // Two factors keep each power of two a normal number; only the second product can round.
  const std::int32_t whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  const float first = float_of(static_cast<std::uint32_t>(half + 127) << 23);
  const float second = float_of(static_cast<std::uint32_t>(whole - half + 127) << 23);
  const float r = flush<kFtz>(p * first * second);
  return float_of(pick((bits_of(a) & 0x7fffffffu) > 0x7f800000u, kNanF32, bits_of(r)));
}

FLASHPTX_INLINE std::uint32_t bf16_lane(float x) {
  const std::uint32_t b = bits_of(x);
  const std::uint32_t rounded = (b + 0x7fffu + (b >> 16 & 1u)) >> 16;
  return pick((b & 0x7fffffffu) > 0x7f800000u, kNan16, rounded);
}

FLASHPTX_INLINE std::uint32_t f16_lane(float x) {
  const std::uint32_t b = bits_of(x), m = b & 0x7fffffffu, sign = b >> 16 & 0x8000u;
  const std::uint32_t normal = (m + 0xfffu + (m >> 13 & 1u) - (112u << 23)) >> 13;
  // Adding 1/2 puts the last place of an f16 subnormal, 2^-24, at the last place of the float.
  const std::uint32_t subnormal = bits_of(float_of(m) + 0.5f) - bits_of(0.5f);
  std::uint32_t r = pick(m < 0x38800000u, subnormal, normal);
  r = pick(m >= 0x477ff000u, 0x7c00u, r);  // 65520 and above
  return pick(m > 0x7f800000u, kNan16, r | sign);
}

FLASHPTX_INLINE std::uint32_t e4m3_lane(float x) {
  const std::uint32_t b = bits_of(x), sign = b >> 24 & 0x80u;
  const std::uint32_t raw = b & 0x7fffffffu;
  const std::uint32_t m = pick(raw > 0x43e00000u, 0x43e00000u, raw);  // 448
  const std::uint32_t normal = (m + 0x7ffffu + (m >> 20 & 1u) - (120u << 23)) >> 20;
  const std::uint32_t subnormal =
      bits_of(float_of(m) + 0x1p14f) - bits_of(0x1p14f);             // 2^-9 at the end
  const std::uint32_t r = pick(m < 0x3c800000u, subnormal, normal);  // 2^-6
  return pick(raw > 0x7f800000u, kNan8, r | sign);
}

FLASHPTX_INLINE std::uint32_t e5m2_lane(float x) {
  const std::uint32_t b = bits_of(x), sign = b >> 24 & 0x80u;
  const std::uint32_t raw = b & 0x7fffffffu;
  const std::uint32_t m = pick(raw > 0x47600000u, 0x47600000u, raw);  // 57344
  const std::uint32_t normal = (m + 0xfffffu + (m >> 21 & 1u) - (112u << 23)) >> 21;
  const std::uint32_t subnormal =
      bits_of(float_of(m) + 0x1p7f) - bits_of(0x1p7f);               // 2^-16 at the end
  const std::uint32_t r = pick(m < 0x38800000u, subnormal, normal);  // 2^-14
  return pick(raw > 0x7f800000u, kNan8, r | sign);
}

template <bool kFtz>
FLASHPTX_INLINE float max_lane(float x, float y) {
  const float a = flush<kFtz>(x), b = flush<kFtz>(y);
  // Equal values differ at most in the sign of zero: + has fewer bits set.
  const std::uint32_t equal = bits_of(a) & bits_of(b);
  const std::uint32_t larger = pick(a > b, bits_of(a), pick(a == b, equal, bits_of(b)));
  const bool a_nan = (bits_of(a) & 0x7fffffffu) > 0x7f800000u;
  const bool b_nan = (bits_of(b) & 0x7fffffffu) > 0x7f800000u;
  return canonical(float_of(pick(b_nan, bits_of(a), pick(a_nan, bits_of(b), larger))));
}

template <bool kFtz>
FLASHPTX_INLINE float min_lane(float x, float y) {
  const float a = flush<kFtz>(x), b = flush<kFtz>(y);
  const std::uint32_t equal = bits_of(a) | bits_of(b);
  const std::uint32_t smaller = pick(a < b, bits_of(a), pick(a == b, equal, bits_of(b)));
  const bool a_nan = (bits_of(a) & 0x7fffffffu) > 0x7f800000u;
  const bool b_nan = (bits_of(b) & 0x7fffffffu) > 0x7f800000u;
  return canonical(float_of(pick(b_nan, bits_of(a), pick(a_nan, bits_of(b), smaller))));
}

template <class F>
FLASHPTX_INLINE void unary(float* d, const float* a, int n, F f) {
  for (int at = 0; at < n; at += kLanes) {
    const int count = std::min(kLanes, n - at);
    Block<float> x(a + at, count), r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = f(x.lane[i]);
    r.store(d + at, count);
  }
}

template <class T, class F>
FLASHPTX_INLINE void binary(T* d, const float* a, const float* b, int n, F f) {
  for (int at = 0; at < n; at += kLanes) {
    const int count = std::min(kLanes, n - at);
    Block<float> x(a + at, count), y(b + at, count);
    Block<T> r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = static_cast<T>(f(x.lane[i], y.lane[i]));
    r.store(d + at, count);
  }
}

template <class F>
FLASHPTX_INLINE void ternary(float* d, const float* a, const float* b, const float* c, int n, F f) {
  for (int at = 0; at < n; at += kLanes) {
    const int count = std::min(kLanes, n - at);
    Block<float> x(a + at, count), y(b + at, count), z(c + at, count), r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = f(x.lane[i], y.lane[i], z.lane[i]);
    r.store(d + at, count);
  }
}

}  // namespace

FLASHPTX_CLONES void ex2_approx_ftz_f32(float* d, const float* a, int n) {
  unary(d, a, n, exp2_lane<true>);
}
FLASHPTX_CLONES void ex2_approx_f32(float* d, const float* a, int n) {
  unary(d, a, n, exp2_lane<false>);
}

#define FLASHPTX_BINARY(name, expression)                                                \
  FLASHPTX_CLONES void name(float* d, const float* a, const float* b, int n, bool ftz) { \
    if (ftz) {                                                                           \
      constexpr bool kFtz = true;                                                        \
      binary(d, a, b, n, [](float x, float y) FLASHPTX_LAMBDA { return expression; });   \
    } else {                                                                             \
      constexpr bool kFtz = false;                                                       \
      binary(d, a, b, n, [](float x, float y) FLASHPTX_LAMBDA { return expression; });   \
    }                                                                                    \
  }
FLASHPTX_BINARY(add_rn_f32, canonical(flush<kFtz>(flush<kFtz>(x) + flush<kFtz>(y))))
FLASHPTX_BINARY(sub_rn_f32, canonical(flush<kFtz>(flush<kFtz>(x) - flush<kFtz>(y))))
FLASHPTX_BINARY(mul_rn_f32, canonical(flush<kFtz>(flush<kFtz>(x) * flush<kFtz>(y))))
FLASHPTX_BINARY(max_f32, max_lane<kFtz>(x, y))
FLASHPTX_BINARY(min_f32, min_lane<kFtz>(x, y))

FLASHPTX_CLONES void fma_rn_f32(float* d, const float* a, const float* b, const float* c, int n,
                                bool ftz) {
  if (ftz) {
    ternary(d, a, b, c, n, [](float x, float y, float z) FLASHPTX_LAMBDA {
      return canonical(flush<true>(__builtin_fmaf(flush<true>(x), flush<true>(y), flush<true>(z))));
    });
  } else {
    ternary(d, a, b, c, n, [](float x, float y, float z) FLASHPTX_LAMBDA {
      return canonical(__builtin_fmaf(x, y, z));
    });
  }
}

FLASHPTX_CLONES void cvt_rn_bf16x2_f32(std::uint32_t* d, const float* hi, const float* lo, int n) {
  binary(d, hi, lo, n,
         [](float h, float l) FLASHPTX_LAMBDA { return bf16_lane(h) << 16 | bf16_lane(l); });
}
FLASHPTX_CLONES void cvt_rn_f16x2_f32(std::uint32_t* d, const float* hi, const float* lo, int n) {
  binary(d, hi, lo, n,
         [](float h, float l) FLASHPTX_LAMBDA { return f16_lane(h) << 16 | f16_lane(l); });
}
FLASHPTX_CLONES void cvt_rn_satfinite_e4m3x2_f32(std::uint16_t* d, const float* hi, const float* lo,
                                                 int n) {
  binary(d, hi, lo, n,
         [](float h, float l) FLASHPTX_LAMBDA { return e4m3_lane(h) << 8 | e4m3_lane(l); });
}
FLASHPTX_CLONES void cvt_rn_satfinite_e5m2x2_f32(std::uint16_t* d, const float* hi, const float* lo,
                                                 int n) {
  binary(d, hi, lo, n,
         [](float h, float l) FLASHPTX_LAMBDA { return e5m2_lane(h) << 8 | e5m2_lane(l); });
}

FLASHPTX_CLONES void cvt_f32_f16(float* d, const std::uint16_t* a, int n) {
  for (int at = 0; at < n; at += kLanes) {
    const int count = std::min(kLanes, n - at);
    Block<std::uint16_t> x(a + at, count);
    Block<float> r;
    for (int i = 0; i < kLanes; ++i) {
      const std::uint32_t h = x.lane[i], sign = (h & 0x8000u) << 16, m = h & 0x7fffu;
      const float small =
          float_of((m << 13) + 0x38800000u) - 0x1p-14f;  // no subnormal operand: slow
      const std::uint32_t finite =
          pick(m < 0x400u, bits_of(small), (m << 13) + (112u << 23)) | sign;
      const std::uint32_t special = pick(m > 0x7c00u, kNanF32, 0x7f800000u | sign);
      r.lane[i] = float_of(pick(m >= 0x7c00u, special, finite));
    }
    r.store(d + at, count);
  }
}

}  // namespace flashptx::emulator
