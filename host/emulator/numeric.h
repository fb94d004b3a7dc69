// Arithmetic of PTX on numbers: conversions, f32 and packed 16-bit arithmetic, approximations.
//
// Functions without state, so that every rule of the PTX ISA (rounding, .ftz, .sat, NaN) stands
// once and is tested alone, exhaustively where 8 or 16 bits allow it. Exact where PTX defines the
// result; approximations are rounded from a wider result, so they lie within the documented error
// of the hardware but need not equal its bits. Names follow the opcode: `cvt_rn_bf16x2_f32` does
// what cvt.rn.bf16x2.f32 does. Next: tensor_core.h (products), tensor_map.h (TMA).
#pragma once

#include <bit>
#include <cstdint>

namespace flashptx::emulator {

// rn: nearest, ties to even; rz: to zero; rm: down; rp: up; rna: nearest, ties away from zero.
// rni, rzi, rmi, rpi of float-to-integer conversions are rn, rz, rm, rp here.
enum class Round { rn, rz, rm, rp, rna };

inline constexpr std::uint32_t kNanF32 = 0x7fffffffu;  // canonical NaN (PTX ISA, floating point)
inline constexpr std::uint16_t kNan16 = 0x7fff;        // of f16 and of bf16
inline constexpr std::uint8_t kNan8 = 0x7f;            // of e4m3 and of e5m2

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
inline float float_of(std::uint32_t b) { return std::bit_cast<float>(b); }
inline double double_of(std::uint64_t b) { return std::bit_cast<double>(b); }
inline float canonical_nan() { return float_of(kNanF32); }

// Subnormal -> zero of the same sign; everything else unchanged.
inline float flush_f32(float x) {
  const std::uint32_t b = bits_of(x);
  return (b & 0x7f800000u) == 0 ? float_of(b & 0x80000000u) : x;
}
inline float flush_f32_if(float x, bool ftz) { return ftz ? flush_f32(x) : x; }

// ---- conversions
// ----------------------------------------------------------------------------------------

// Qualifiers of cvt. satfinite: beyond the largest finite value (infinity too) -> that value with
// the sign. relu: negative (and -0) -> +0. sat: clamp to [0, 1], NaN -> +0. ftz: subnormal f32
// input and output -> 0. NaN gives the canonical NaN of the destination unless sat.
struct ConvertMods {
  Round round = Round::rn;
  bool satfinite = false;
  bool relu = false;
  bool sat = false;
  bool ftz = false;
};

// A binary format of at most 32 bits: sign, exponent, mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // false: e4m3, where the top exponent holds numbers and only all ones is NaN
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr std::uint32_t infinity() const { return ((1u << exponent_bits) - 1u) << mantissa_bits; }
  constexpr std::uint32_t nan() const { return (1u << (bits() - 1)) - 1u; }
  constexpr std::uint32_t max_finite() const { return has_infinity ? infinity() - 1u : nan() - 1u; }
  constexpr std::uint32_t sign() const { return 1u << (bits() - 1); }
};
inline constexpr Format kF32{8, 23, true}, kF16{5, 10, true}, kBf16{8, 7, true}, kTf32{8, 10, true},
    kE4m3{4, 3, false}, kE5m2{5, 2, true};

// The one rounding of all conversions and narrow arithmetic: a double to the bits of `format`.
std::uint32_t round_to(const Format& format, double value, const ConvertMods& mods = {});

// Exact widening. A NaN of f16, e4m3, e5m2 becomes the canonical NaN; of bf16 it keeps its payload.
float f16_to_f32(std::uint16_t h);
inline float bf16_to_f32(std::uint16_t h) { return float_of(static_cast<std::uint32_t>(h) << 16); }
float e4m3_to_f32(std::uint8_t b);
float e5m2_to_f32(std::uint8_t b);
inline float tf32_to_f32(std::uint32_t t) {
  return float_of(t & 0xffffe000u);
}  // low 13 bits ignored

// mods.ftz flushes subnormal f32 inputs first; the results of these keep their subnormals.
std::uint16_t f32_to_f16(float x, const ConvertMods& mods = {});
std::uint16_t f32_to_bf16(float x, const ConvertMods& mods = {});
std::uint8_t f32_to_e4m3(float x, const ConvertMods& mods = {.satfinite = true});
std::uint8_t f32_to_e5m2(float x, const ConvertMods& mods = {.satfinite = true});
std::uint32_t f32_to_tf32(float x,
                          const ConvertMods& mods = {.round = Round::rna});  // an f32 pattern
float f64_to_f32(double x, const ConvertMods& mods = {});
double f32_to_f64(float x, bool ftz = false);
float f32_to_f32(float x,
                 const ConvertMods& mods);  // cvt{.ftz}{.sat}{.relu}.f32.f32, no integer rounding

// Packed forms. The FIRST source goes to the upper half (PTX ISA, cvt).
std::uint32_t f32_to_f16x2(float hi, float lo, const ConvertMods& mods = {});
std::uint32_t f32_to_bf16x2(float hi, float lo, const ConvertMods& mods = {});
std::uint16_t f32_to_e4m3x2(float hi, float lo, bool relu = false);  // .rn.satfinite
std::uint16_t f32_to_e5m2x2(float hi, float lo, bool relu = false);
std::uint16_t f16x2_to_e4m3x2(std::uint32_t a, bool relu = false);
std::uint16_t f16x2_to_e5m2x2(std::uint32_t a, bool relu = false);
std::uint32_t e4m3x2_to_f16x2(std::uint16_t a, bool relu = false);
std::uint32_t e5m2x2_to_f16x2(std::uint16_t a, bool relu = false);

// Float to a signed or unsigned integer of 8, 16, 32 or 64 bits; always clamped to its range.
// Result sign- or zero-extended to 64 bits. from_f64 only chooses the NaN result (PTX ISA, cvt): 0,
// or with an f64 source or a 64-bit result, the pattern 1 << (bits - 1).
std::int64_t float_to_signed(double x, Round round, int bits, bool from_f64 = false);
std::uint64_t float_to_unsigned(double x, Round round, int bits, bool from_f64 = false);
float signed_to_f32(std::int64_t x, Round round = Round::rn);
float unsigned_to_f32(std::uint64_t x, Round round = Round::rn);
double signed_to_f64(std::int64_t x, Round round = Round::rn);
double unsigned_to_f64(std::uint64_t x, Round round = Round::rn);
// cvt.{rni,rzi,rmi,rpi}{.ftz}{.sat}.f32.f32 and f64.f64
float round_to_integral_f32(float x, const ConvertMods& mods);
double round_to_integral_f64(double x, Round round);

// ---- f32 arithmetic
// -------------------------------------------------------------------------------------

struct MathMods {
  Round round = Round::rn;  // rna is not a mode of arithmetic
  bool ftz = false;         // inputs and result
  bool sat = false;         // clamp to [0, 1], NaN -> +0
};
// One rounding each, in every mode. NaN results are canonical.
float add_f32(float a, float b, const MathMods& mods = {});
float sub_f32(float a, float b, const MathMods& mods = {});
float mul_f32(float a, float b, const MathMods& mods = {});
float fma_f32(float a, float b, float c, const MathMods& mods = {});
float div_f32(float a, float b, const MathMods& mods = {});  // div.rnd
float rcp_f32(float a, const MathMods& mods = {});           // rcp.rnd
float sqrt_f32(float a, const MathMods& mods = {});          // sqrt.rnd
float abs_f32(float a, bool ftz = false);
float neg_f32(float a, bool ftz = false);
// The operand that is not NaN, unless nan (.NaN): then NaN if either is. -0 < +0.
float min_f32(float a, float b, bool ftz = false, bool nan = false);
float max_f32(float a, float b, bool ftz = false, bool nan = false);

// ---- packed 16-bit arithmetic
// ---------------------------------------------------------------------------

enum class HalfType { f16, bf16 };
struct HalfMods {
  bool ftz = false;   // f16 only
  bool sat = false;   // f16 only: clamp to [0, 1], NaN -> +0
  bool relu = false;  // negative -> +0, NaN stays the canonical NaN
};
float half_to_f32(HalfType t, std::uint16_t h);
std::uint16_t add_half(HalfType t, std::uint16_t a, std::uint16_t b, const HalfMods& mods = {});
std::uint16_t sub_half(HalfType t, std::uint16_t a, std::uint16_t b, const HalfMods& mods = {});
std::uint16_t mul_half(HalfType t, std::uint16_t a, std::uint16_t b, const HalfMods& mods = {});
std::uint16_t fma_half(HalfType t, std::uint16_t a, std::uint16_t b, std::uint16_t c,
                       const HalfMods& mods = {});
std::uint16_t min_half(HalfType t, std::uint16_t a, std::uint16_t b, bool ftz = false,
                       bool nan = false);
std::uint16_t max_half(HalfType t, std::uint16_t a, std::uint16_t b, bool ftz = false,
                       bool nan = false);
std::uint16_t ex2_approx_half(HalfType t, std::uint16_t a,
                              bool ftz);  // bf16: ftz is mandatory in PTX
std::uint16_t tanh_approx_half(HalfType t, std::uint16_t a);

// x2 of any of the above: applies f(lo, lo), f(hi, hi).
template <class F, class... Packed>
std::uint32_t for_halves(F&& f, Packed... packed) {
  const std::uint32_t lo = f(static_cast<std::uint16_t>(packed)...);
  const std::uint32_t hi = f(static_cast<std::uint16_t>(packed >> 16)...);
  return hi << 16 | (lo & 0xffffu);
}
std::uint32_t add_x2(HalfType t, std::uint32_t a, std::uint32_t b, const HalfMods& mods = {});
std::uint32_t sub_x2(HalfType t, std::uint32_t a, std::uint32_t b, const HalfMods& mods = {});
std::uint32_t mul_x2(HalfType t, std::uint32_t a, std::uint32_t b, const HalfMods& mods = {});
std::uint32_t fma_x2(HalfType t, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                     const HalfMods& mods = {});
std::uint32_t min_x2(HalfType t, std::uint32_t a, std::uint32_t b, bool ftz = false,
                     bool nan = false);
std::uint32_t max_x2(HalfType t, std::uint32_t a, std::uint32_t b, bool ftz = false,
                     bool nan = false);
std::uint32_t ex2_approx_x2(HalfType t, std::uint32_t a, bool ftz);
std::uint32_t tanh_approx_x2(HalfType t, std::uint32_t a);
// abs and neg of f16/bf16 are bit operations: & 0x7fff7fff, ^ 0x80008000 (a NaN may keep its
// payload).

// ---- approximations of f32 (MUFU)
// ----------------------------------------------------------------------- Special values as in the
// tables of the PTX ISA; ftz flushes input and result.

float ex2_approx_f32(float a, bool ftz);    // 2 ulp; ex2(-inf) = +0, ex2(+-0) = 1
float lg2_approx_f32(float a, bool ftz);    // lg2(+-0) = -inf, negative -> NaN
float rcp_approx_f32(float a, bool ftz);    // 1 ulp; rcp(+-0) = +-inf
float rsqrt_approx_f32(float a, bool ftz);  // rsqrt(+-0) = +-inf, negative -> NaN
float sqrt_approx_f32(float a, bool ftz);   // sqrt(-0) = -0
float sin_approx_f32(float a, bool ftz);    // sin(+-inf) = NaN
float cos_approx_f32(float a, bool ftz);
float tanh_approx_f32(float a);
// 0 (with the sign of the quotient) for 2^126 < |b| < 2^128 and finite a, as documented.
float div_approx_f32(float a, float b, bool ftz);
float div_full_f32(float a, float b, bool ftz);

// ---- arrays
// --------------------------------------------------------------------------------------------- n
// lanes at once, any n >= 0 (32 is the fast case); bit for bit the scalar functions. d may be a
// source.

void ex2_approx_ftz_f32(float* d, const float* a, int n);
void ex2_approx_f32(float* d, const float* a, int n);
void add_rn_f32(float* d, const float* a, const float* b, int n, bool ftz);
void sub_rn_f32(float* d, const float* a, const float* b, int n, bool ftz);
void mul_rn_f32(float* d, const float* a, const float* b, int n, bool ftz);
void fma_rn_f32(float* d, const float* a, const float* b, const float* c, int n, bool ftz);
void max_f32(float* d, const float* a, const float* b, int n, bool ftz);
void min_f32(float* d, const float* a, const float* b, int n, bool ftz);
void cvt_rn_bf16x2_f32(std::uint32_t* d, const float* hi, const float* lo, int n);
void cvt_rn_f16x2_f32(std::uint32_t* d, const float* hi, const float* lo, int n);
void cvt_rn_satfinite_e4m3x2_f32(std::uint16_t* d, const float* hi, const float* lo, int n);
void cvt_rn_satfinite_e5m2x2_f32(std::uint16_t* d, const float* hi, const float* lo, int n);
void cvt_f32_f16(float* d, const std::uint16_t* a, int n);

}  // namespace flashptx::emulator
