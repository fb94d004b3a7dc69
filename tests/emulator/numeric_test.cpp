// Conversions of the emulator against definitions written in another way: a decoded table that is
// searched.
//
// Exhaustive over the 8- and 16-bit patterns; f32 inputs cover every upper half with the low halves
// that rounding distinguishes. Next: tests/emulator/arithmetic_test.cpp.
#include "host/emulator/numeric.h"

#include <doctest/doctest.h>

#include "tests/emulator/slow_format.h"

using namespace flashptx::emulator;
using namespace flashptx::emulator::test;

namespace {

constexpr Round kAllRounds[] = {Round::rn, Round::rz, Round::rm, Round::rp, Round::rna};

}  // namespace

TEST_SUITE_BEGIN("emulator/numeric");

TEST_CASE("every 8-bit and 16-bit pattern widens to the value of its definition") {
  const auto check = [](const SlowFormat& f, unsigned code, float got) {
    const unsigned magnitude = code & (f.sign_bit() - 1);
    const bool negative = (code & f.sign_bit()) != 0;
    if (magnitude <= f.max_code()) {
      const double wanted = f.decode(static_cast<int>(magnitude));
      return double{got} == (negative ? -wanted : wanted) && std::signbit(got) == negative;
    }
    if (f.infinity && magnitude == f.max_code() + 1)
      return std::isinf(got) && std::signbit(got) == negative;
    return std::isnan(got);
  };
  int wrong = 0;
  for (unsigned c = 0; c < 0x100; ++c) {
    wrong += !check(slow_e4m3(), c, e4m3_to_f32(static_cast<std::uint8_t>(c)));
    wrong += !check(slow_e5m2(), c, e5m2_to_f32(static_cast<std::uint8_t>(c)));
  }
  for (unsigned c = 0; c < 0x10000; ++c) {
    float array;
    const std::uint16_t h = static_cast<std::uint16_t>(c);
    cvt_f32_f16(&array, &h, 1);
    wrong += !check(slow_f16(), c, f16_to_f32(h)) + !same(array, f16_to_f32(h));
    wrong += !check(slow_bf16(), c, bf16_to_f32(h));
  }
  CHECK(wrong == 0);
  CHECK(slow_e4m3().positive.back() == 448.0);
  CHECK(slow_e5m2().positive.back() == 57344.0);
  CHECK(slow_f16().positive.back() == 65504.0);
}

TEST_CASE("narrowing picks the neighbour that the search of the decoded table picks") {
  for (Round round : kAllRounds) {
    for (int flags = 0; flags < 3; ++flags) {
      if (flags != 0 && round != Round::rn && round != Round::rz) continue;
      const bool satfinite = flags == 1, relu = flags == 2;
      const ConvertMods mods{.round = round, .satfinite = satfinite, .relu = relu};
      int wrong = 0;
      for_floats([&](float x) {
        wrong += f32_to_f16(x, mods) != slow_f16().encode(x, round, satfinite, relu);
        wrong += f32_to_bf16(x, mods) != slow_bf16().encode(x, round, satfinite, relu);
        wrong += f32_to_e4m3(x, mods) != slow_e4m3().encode(x, round, satfinite, relu);
        wrong += f32_to_e5m2(x, mods) != slow_e5m2().encode(x, round, satfinite, relu);
      });
      CAPTURE(static_cast<int>(round));
      CAPTURE(flags);
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE(
    "a value halfway between neighbours goes to the even one, and one place beside it does not") {
  int wrong = 0;
  for (unsigned c = 0; c < slow_f16().max_code(); ++c) {
    const double middle = (slow_f16().positive[c] + slow_f16().positive[c + 1]) / 2;
    const float m = static_cast<float>(middle);
    wrong += f32_to_f16(m) != (c % 2 == 0 ? c : c + 1);
    wrong += f32_to_f16(std::nextafter(m, 0.0f)) != c;
    wrong += f32_to_f16(std::nextafter(m, 1e9f)) != c + 1;
  }
  for (unsigned c = 0; c < slow_e4m3().max_code(); ++c) {
    const float m = static_cast<float>((slow_e4m3().positive[c] + slow_e4m3().positive[c + 1]) / 2);
    wrong += f32_to_e4m3(m) != (c % 2 == 0 ? c : c + 1);
    wrong += f32_to_e4m3(std::nextafter(m, 1e9f)) != c + 1;
  }
  CHECK(wrong == 0);
  CHECK(f32_to_f16(65519.996f) == 0x7bff);
  CHECK(f32_to_f16(65520.0f) == 0x7c00);
  CHECK(f32_to_e4m3(1e30f) == 0x7e);
  CHECK(f32_to_e4m3(-INFINITY) == 0xfe);
  CHECK(f32_to_e5m2(INFINITY) == 0x7b);
  CHECK(f32_to_e4m3(NAN) == 0x7f);
}

TEST_CASE("the upper half of a packed result is the first source") {
  CHECK(f32_to_bf16x2(1.0f, -2.0f) == 0x3f80c000u);
  CHECK(f32_to_f16x2(1.0f, -2.0f) == 0x3c00c000u);
  CHECK(f32_to_e4m3x2(1.0f, -2.0f) == 0x38c0u);
  CHECK(f32_to_e5m2x2(1.0f, -2.0f) == 0x3cc0u);
  CHECK(f16x2_to_e4m3x2(0x3c00c000u) == 0x38c0u);
  CHECK(e4m3x2_to_f16x2(0x38c0u) == 0x3c00c000u);
  CHECK(e5m2x2_to_f16x2(0x3cc0u) == 0x3c00c000u);
  CHECK(e5m2x2_to_f16x2(0x3cc0u, true) == 0x3c000000u);
}

TEST_CASE("tf32 rounds to 10 mantissa bits, away from zero on a tie with rna") {
  CHECK(f32_to_tf32(float_of(0x3f801000u)) == 0x3f802000u);
  CHECK(f32_to_tf32(float_of(0xbf801000u)) == 0xbf802000u);
  CHECK(f32_to_tf32(float_of(0x3f801000u), {.round = Round::rn}) == 0x3f800000u);
  CHECK(f32_to_tf32(float_of(0x3f803000u), {.round = Round::rn}) == 0x3f804000u);
  CHECK(f32_to_tf32(float_of(0x3f800fffu)) == 0x3f800000u);
  CHECK(f32_to_tf32(NAN) == kNanF32);
  CHECK(f32_to_tf32(float_of(0x7f7fffffu)) == 0x7f800000u);
  CHECK(f32_to_tf32(float_of(0x7f7fffffu), {.round = Round::rna, .satfinite = true}) ==
        0x7f7fe000u);
}

TEST_CASE("array forms give the bits of the scalar functions") {
  const std::vector<float> x = awkward_floats(40000, 1), y = awkward_floats(40000, 2),
                           z = awkward_floats(40000, 3);
  const int n = static_cast<int>(x.size());
  std::vector<float> d(x.size());
  std::vector<std::uint32_t> packed(x.size());
  std::vector<std::uint16_t> packed8(x.size());
  const auto count = [&](auto&& wanted) {
    int wrong = 0;
    for (int i = 0; i < n; ++i)
      wrong += !same(d[static_cast<std::size_t>(i)], wanted(static_cast<std::size_t>(i)));
    return wrong;
  };
  for (bool ftz : {false, true}) {
    const MathMods mods{.ftz = ftz};
    add_rn_f32(d.data(), x.data(), y.data(), n, ftz);
    CHECK(count([&](std::size_t i) { return add_f32(x[i], y[i], mods); }) == 0);
    sub_rn_f32(d.data(), x.data(), y.data(), n, ftz);
    CHECK(count([&](std::size_t i) { return sub_f32(x[i], y[i], mods); }) == 0);
    mul_rn_f32(d.data(), x.data(), y.data(), n, ftz);
    CHECK(count([&](std::size_t i) { return mul_f32(x[i], y[i], mods); }) == 0);
    fma_rn_f32(d.data(), x.data(), y.data(), z.data(), n, ftz);
    CHECK(count([&](std::size_t i) { return fma_f32(x[i], y[i], z[i], mods); }) == 0);
    max_f32(d.data(), x.data(), y.data(), n, ftz);
    CHECK(count([&](std::size_t i) { return max_f32(x[i], y[i], ftz); }) == 0);
    min_f32(d.data(), x.data(), y.data(), n, ftz);
    CHECK(count([&](std::size_t i) { return min_f32(x[i], y[i], ftz); }) == 0);
  }
  int wrong = 0;
  cvt_rn_bf16x2_f32(packed.data(), x.data(), y.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) wrong += packed[i] != f32_to_bf16x2(x[i], y[i]);
  cvt_rn_f16x2_f32(packed.data(), x.data(), y.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) wrong += packed[i] != f32_to_f16x2(x[i], y[i]);
  cvt_rn_satfinite_e4m3x2_f32(packed8.data(), x.data(), y.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) wrong += packed8[i] != f32_to_e4m3x2(x[i], y[i]);
  cvt_rn_satfinite_e5m2x2_f32(packed8.data(), x.data(), y.data(), n);
  for (std::size_t i = 0; i < x.size(); ++i) wrong += packed8[i] != f32_to_e5m2x2(x[i], y[i]);
  CHECK(wrong == 0);
}

TEST_CASE("array conversions pack every f32 that rounding distinguishes as the scalar ones do") {
  int wrong = 0;
  for_floats([&](float x) {
    std::uint32_t b, h;
    std::uint16_t e4, e5;
    cvt_rn_bf16x2_f32(&b, &x, &x, 1);
    cvt_rn_f16x2_f32(&h, &x, &x, 1);
    cvt_rn_satfinite_e4m3x2_f32(&e4, &x, &x, 1);
    cvt_rn_satfinite_e5m2x2_f32(&e5, &x, &x, 1);
    wrong += b != slow_bf16().encode(x, Round::rn, false, false) * 0x10001u;
    wrong += h != slow_f16().encode(x, Round::rn, false, false) * 0x10001u;
    wrong += e4 != slow_e4m3().encode(x, Round::rn, true, false) * 0x101u;
    wrong += e5 != slow_e5m2().encode(x, Round::rn, true, false) * 0x101u;
  });
  CHECK(wrong == 0);
}

TEST_CASE("float to integer rounds, clamps, and maps NaN as the PTX ISA says") {
  const struct {
    double x;
    Round round;
    std::int64_t s32;
    std::uint64_t u32;
  } rows[] = {{2.5, Round::rn, 2, 2},
              {3.5, Round::rn, 4, 4},
              {-2.5, Round::rn, -2, 0},
              {2.5, Round::rz, 2, 2},
              {-2.5, Round::rz, -2, 0},
              {2.5, Round::rm, 2, 2},
              {-2.5, Round::rm, -3, 0},
              {2.5, Round::rp, 3, 3},
              {-2.5, Round::rp, -2, 0},
              {0.1, Round::rp, 1, 1},
              {-0.1, Round::rm, -1, 0},
              {3e9, Round::rz, 2147483647, 3000000000},
              {5e9, Round::rz, 2147483647, 4294967295},
              {-5e9, Round::rz, -2147483648ll, 0},
              {-2147483647.0, Round::rz, -2147483647, 0},
              {4294967294.5, Round::rp, 2147483647, 4294967295},
              {NAN, Round::rz, 0, 0}};
  for (const auto& row : rows) {
    CAPTURE(row.x);
    CHECK(float_to_signed(row.x, row.round, 32) == row.s32);
    CHECK(float_to_unsigned(row.x, row.round, 32) == row.u32);
  }
  CHECK(float_to_signed(NAN, Round::rz, 64) == INT64_MIN);
  CHECK(float_to_unsigned(NAN, Round::rz, 64) == 0x8000000000000000ull);
  CHECK(float_to_signed(NAN, Round::rz, 32, true) == INT32_MIN);
  CHECK(float_to_signed(1e30, Round::rz, 64) == INT64_MAX);
  CHECK(float_to_signed(-1e30, Round::rz, 64) == INT64_MIN);
  CHECK(float_to_unsigned(1e30, Round::rz, 64) == UINT64_MAX);
  CHECK(float_to_signed(200.0, Round::rn, 8) == 127);
  CHECK(float_to_unsigned(70000.0, Round::rn, 16) == 65535);
}

TEST_CASE("integer to float equals the host's FPU in each mode") {
  std::mt19937_64 rng(6);
  for (Round round : {Round::rn, Round::rz, Round::rm, Round::rp}) {
    int wrong = 0;
    for (int i = 0; i < 20000; ++i) {
      // Every third has few bits set, so that a tie or an exact value is broken by the last bit
      // alone.
      const std::uint64_t bits = i % 3 ? rng() : 1ull << 62 | 1ull << (rng() % 64) | (rng() & 1);
      volatile std::int64_t s = static_cast<std::int64_t>(bits) >> (i % 3 ? rng() % 64 : 0);
      volatile std::uint64_t u = bits >> (i % 3 ? rng() % 64 : 0);
      wrong +=
          !same(signed_to_f32(s, round), in_mode(round, [&] { return static_cast<float>(s); }));
      wrong +=
          !same(unsigned_to_f32(u, round), in_mode(round, [&] { return static_cast<float>(u); }));
      double d = signed_to_f64(s, round);
      std::fesetround(round == Round::rz   ? FE_TOWARDZERO
                      : round == Round::rm ? FE_DOWNWARD
                      : round == Round::rp ? FE_UPWARD
                                           : FE_TONEAREST);
      volatile double wanted = static_cast<double>(s);
      std::fesetround(FE_TONEAREST);
      wrong += d != wanted;
    }
    CAPTURE(static_cast<int>(round));
    CHECK(wrong == 0);
  }
  CHECK(round_to_integral_f32(-2.5f, {.round = Round::rn}) == -2.0f);
  CHECK(bits_of(round_to_integral_f32(-0.25f, {.round = Round::rz})) == 0x80000000u);
  CHECK(round_to_integral_f32(0.25f, {.round = Round::rp}) == 1.0f);
  CHECK(f64_to_f32(1.0 + 0x1p-24, {.round = Round::rp}) == float_of(0x3f800001u));
  CHECK(f64_to_f32(1e300, {.round = Round::rz}) == float_of(0x7f7fffffu));
  CHECK(f64_to_f32(0x1.8p-127, {.ftz = true}) == 0.0f);
}

TEST_SUITE_END();
