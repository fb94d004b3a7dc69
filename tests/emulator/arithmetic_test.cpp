// Arithmetic of the emulator against the host's own rounding modes and sums of 113 bits;
// approximations against float64 and the documented errors. Next:
// tests/emulator/tensor_core_test.cpp.
#include <doctest/doctest.h>

#include "host/emulator/numeric.h"
#include "tests/emulator/slow_format.h"

using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

TEST_SUITE_BEGIN("emulator/arithmetic");

TEST_CASE("f32 add, mul, fma, div, sqrt equal the host's FPU in each rounding mode") {
  const std::vector<float> x = awkward_floats(20000, 4);
  std::mt19937 rng(5);
  for (Round round : {Round::rn, Round::rz, Round::rm, Round::rp}) {
    const MathMods mods{.round = round};
    int wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      volatile float a = x[i];
      // Neighbouring exponents as well as random ones, so that cancellation and rounding happen.
      volatile float b =
          i % 2 ? x[rng() % x.size()] : float_of(bits_of(x[i]) ^ (rng() & 0x80ffffffu));
      volatile float c = i % 3 ? x[rng() % x.size()] : static_cast<float>(-a * b) * 1.0000001f;
      wrong += !same(add_f32(a, b, mods), in_mode(round, [&] { return a + b; }));
      wrong += !same(sub_f32(a, b, mods), in_mode(round, [&] { return a - b; }));
      wrong += !same(mul_f32(a, b, mods), in_mode(round, [&] { return a * b; }));
      wrong += !same(fma_f32(a, b, c, mods), in_mode(round, [&] { return std::fma(a, b, c); }));
      wrong += !same(div_f32(a, b, mods), in_mode(round, [&] { return a / b; }));
      wrong += !same(sqrt_f32(a, mods), in_mode(round, [&] { return std::sqrt(a); }));
    }
    CAPTURE(static_cast<int>(round));
    CHECK(wrong == 0);
  }
}

TEST_CASE("an exact zero sum is negative only when rounding down") {
  CHECK(bits_of(add_f32(1.0f, -1.0f)) == 0u);
  CHECK(bits_of(add_f32(1.0f, -1.0f, {.round = Round::rm})) == 0x80000000u);
  CHECK(bits_of(add_f32(0.0f, 0.0f, {.round = Round::rm})) == 0u);
  CHECK(bits_of(add_f32(-0.0f, -0.0f)) == 0x80000000u);
  CHECK(bits_of(fma_f32(1.0f, 1.0f, -1.0f, {.round = Round::rm})) == 0x80000000u);
}

TEST_CASE("ftz flushes inputs and results with their sign; sat clamps and turns NaN into +0") {
  const float tiny = float_of(1), minus_tiny = float_of(0x80000001u), least = float_of(0x00800000u);
  CHECK(bits_of(add_f32(tiny, 0.0f, {.ftz = true})) == 0u);
  CHECK(bits_of(mul_f32(minus_tiny, 1e30f, {.ftz = true})) == 0x80000000u);
  CHECK(bits_of(mul_f32(least, -0.5f, {.ftz = true})) == 0x80000000u);
  CHECK(bits_of(mul_f32(least, -0.5f)) == 0x80400000u);
  CHECK(bits_of(max_f32(tiny, minus_tiny, true)) == 0u);
  CHECK(add_f32(2.0f, 3.0f, {.sat = true}) == 1.0f);
  CHECK(bits_of(add_f32(-2.0f, 1.0f, {.sat = true})) == 0u);
  CHECK(bits_of(add_f32(NAN, 1.0f, {.sat = true})) == 0u);
  CHECK(add_f32(0.25f, 0.5f, {.sat = true}) == 0.75f);
}

TEST_CASE("min and max prefer a number to a NaN, and order the zeros") {
  CHECK(max_f32(NAN, 1.0f) == 1.0f);
  CHECK(max_f32(1.0f, NAN) == 1.0f);
  CHECK(min_f32(NAN, -INFINITY) == -INFINITY);
  CHECK(bits_of(max_f32(NAN, -NAN)) == kNanF32);
  CHECK(bits_of(max_f32(NAN, 1.0f, false, true)) == kNanF32);
  CHECK(bits_of(max_f32(-0.0f, 0.0f)) == 0u);
  CHECK(bits_of(min_f32(0.0f, -0.0f)) == 0x80000000u);
  CHECK(max_half(HalfType::bf16, 0x7fff, 0x3f80) == 0x3f80);
  CHECK(max_half(HalfType::bf16, 0x7fff, 0x3f80, false, true) == kNan16);
  CHECK(min_half(HalfType::f16, 0x0000, 0x8000) == 0x8000);
  CHECK(max_half(HalfType::f16, 0x8001, 0x8000, true) == 0x8000);
  CHECK(max_x2(HalfType::f16, 0x3c00c000u, 0x40000000u) == 0x40000000u);
}

TEST_CASE("packed 16-bit sums, products and fma round the exact result once") {
  // 113 bits hold every f16 fma exactly, and the bf16 ones of these exponents.
  const auto round_exact = [](const SlowFormat& f, __float128 exact) {
    const double near = static_cast<double>(exact);
    // Nudge a rounded double back to the side where the exact value lies; neighbours are far apart.
    const __float128 error = exact - near;
    const double side = error == 0 ? near : std::nextafter(near, error > 0 ? INFINITY : -INFINITY);
    const double probe = error == 0 ? near : near + (side - near);  // one place off, same neighbour
    return static_cast<std::uint16_t>(f.encode(error == 0 ? near : probe, Round::rn, false, false));
  };
  std::mt19937 rng(7);
  for (HalfType t : {HalfType::f16, HalfType::bf16}) {
    const SlowFormat& f = t == HalfType::f16 ? slow_f16() : slow_bf16();
    const auto random_half = [&] {
      const std::uint32_t r = static_cast<std::uint32_t>(rng());
      if (t == HalfType::f16) return static_cast<std::uint16_t>(r % 0x7c00u | (r >> 16 & 0x8000u));
      return static_cast<std::uint16_t>((r % 0x1400u + 0x3500u) |
                                        (r >> 16 & 0x8000u));  // 2^-21..2^19
    };
    int wrong = 0;
    for (int i = 0; i < 200000; ++i) {
      const std::uint16_t a = random_half(), b = random_half();
      std::uint16_t c = random_half();
      const __float128 x = half_to_f32(t, a), y = half_to_f32(t, b);
      if (i % 2) {  // cancellation
        c = static_cast<std::uint16_t>(
            f.encode(-static_cast<double>(x * y), Round::rz, true, false));
      }
      const __float128 z = half_to_f32(t, c);
      wrong += x + y != 0 && add_half(t, a, b) != round_exact(f, x + y);
      wrong += x - y != 0 && sub_half(t, a, b) != round_exact(f, x - y);
      wrong += x * y != 0 && mul_half(t, a, b) != round_exact(f, x * y);
      wrong += x * y + z != 0 && fma_half(t, a, b, c) != round_exact(f, x * y + z);
    }
    CAPTURE(static_cast<int>(t));
    CHECK(wrong == 0);
  }
  CHECK(fma_half(HalfType::f16, 0x3c00, 0x3c00, 0xc000, {.relu = true}) == 0);
  CHECK(fma_half(HalfType::f16, 0x7e00, 0x3c00, 0xc000, {.relu = true}) == kNan16);
  CHECK(add_half(HalfType::f16, 0x3c00, 0x3c00, {.sat = true}) == 0x3c00);
  CHECK(mul_half(HalfType::f16, 0x0400, 0xb800, {.ftz = true}) == 0x8000);
  CHECK(mul_half(HalfType::f16, 0x0400, 0xb800) == 0x8200);
  CHECK(mul_half(HalfType::bf16, 0x8000, 0x3f80) == 0x8000);
  CHECK(fma_x2(HalfType::bf16, 0x3f804000u, 0x40004000u, 0x00003f80u) == 0x400040a0u);
}

TEST_CASE("ex2 stays within 2 ulp and has the special values of the PTX ISA") {
  for (bool ftz : {false, true}) {
    double worst = 0.0;
    int wrong = 0;
    for_floats([&](float x) {
      const double wanted = std::exp2(double{x});
      const float got = ex2_approx_f32(x, ftz);
      const int exponent = wanted > 0.0 ? std::ilogb(wanted) : -150;
      if (std::isnan(x)) wrong += bits_of(got) != kNanF32;
      else if (ftz && wanted < 0x1p-126) wrong += bits_of(got) != 0;
      else if (wanted >= 0x1p128) wrong += got != INFINITY;
      else
        worst = std::max(worst,
                         std::fabs(got - wanted) / std::ldexp(1.0, std::max(-149, exponent - 23)));
    });
    CHECK(worst <= 2.0);
    CHECK(wrong == 0);
  }
  for (int n = -126; n < 128; ++n)
    CHECK(ex2_approx_f32(static_cast<float>(n), true) == std::ldexp(1.0f, n));
  CHECK(bits_of(ex2_approx_f32(-INFINITY, true)) == 0u);
  CHECK(ex2_approx_f32(INFINITY, true) == INFINITY);
  CHECK(ex2_approx_f32(-0.0f, true) == 1.0f);
  CHECK(ex2_approx_f32(float_of(0x80000001u), true) == 1.0f);
  CHECK(ex2_approx_f32(-140.0f, false) == 0x1p-140f);
}

TEST_CASE("16-bit ex2 and tanh lie within the documented errors over every pattern") {
  double worst_f16 = 0.0, worst_bf16 = 0.0, worst_tanh = 0.0;
  for (unsigned c = 0; c < 0x10000; ++c) {
    const std::uint16_t h = static_cast<std::uint16_t>(c);
    const float x = f16_to_f32(h), y = bf16_to_f32(h);
    const double wanted = std::exp2(double{x}), wanted_b = std::exp2(double{y});
    if (wanted >= 0x1p-14 && wanted < 65504.0) {
      worst_f16 = std::max(
          worst_f16, std::fabs(f16_to_f32(ex2_approx_half(HalfType::f16, h, false)) / wanted - 1));
    }
    if (wanted_b >= 0x1p-126 && wanted_b < 3e38) {
      worst_bf16 =
          std::max(worst_bf16,
                   std::fabs(bf16_to_f32(ex2_approx_half(HalfType::bf16, h, true)) / wanted_b - 1));
    }
    if (!std::isnan(x)) {
      worst_tanh = std::max(worst_tanh, std::fabs(f16_to_f32(tanh_approx_half(HalfType::f16, h)) -
                                                  std::tanh(double{x})));
    }
  }
  CHECK(worst_f16 <= std::exp2(-9.9));
  CHECK(worst_bf16 <= std::exp2(-7.0));
  CHECK(worst_tanh <= std::exp2(-10.987));
  CHECK(ex2_approx_half(HalfType::f16, 0xfc00, false) == 0);
  CHECK(ex2_approx_half(HalfType::f16, 0x7e01, false) == kNan16);
  CHECK(ex2_approx_x2(HalfType::bf16, 0x3f80ff80u, true) == 0x40000000u);  // {1, -inf}
}

TEST_CASE("the other approximations have their special values and flushes") {
  CHECK(lg2_approx_f32(0.0f, true) == -INFINITY);
  CHECK(lg2_approx_f32(-0.0f, true) == -INFINITY);
  CHECK(lg2_approx_f32(float_of(1), true) == -INFINITY);
  CHECK(lg2_approx_f32(float_of(1), false) == -149.0f);
  CHECK(bits_of(lg2_approx_f32(-1.0f, true)) == kNanF32);
  CHECK(lg2_approx_f32(8.0f, true) == 3.0f);
  CHECK(rcp_approx_f32(0.0f, true) == INFINITY);
  CHECK(rcp_approx_f32(-0.0f, true) == -INFINITY);
  CHECK(bits_of(rcp_approx_f32(-INFINITY, true)) == 0x80000000u);
  CHECK(bits_of(rcp_approx_f32(0x1.8p127f, true)) == 0u);
  CHECK(rcp_approx_f32(0x1.8p127f, false) > 0.0f);
  CHECK(rsqrt_approx_f32(-0.0f, true) == -INFINITY);
  CHECK(bits_of(rsqrt_approx_f32(-1.0f, true)) == kNanF32);
  CHECK(rsqrt_approx_f32(16.0f, true) == 0.25f);
  CHECK(bits_of(sqrt_approx_f32(-0.0f, true)) == 0x80000000u);
  CHECK(bits_of(sin_approx_f32(INFINITY, true)) == kNanF32);
  CHECK(cos_approx_f32(0.0f, true) == 1.0f);
  CHECK(tanh_approx_f32(INFINITY) == 1.0f);
  CHECK(bits_of(div_approx_f32(-1.0f, 0x1.8p127f, false)) == 0x80000000u);
  CHECK(div_full_f32(1.0f, 4.0f, true) == 0.25f);
}

TEST_SUITE_END();
