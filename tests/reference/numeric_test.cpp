// The number formats of the oracle against facts that do not come from its code.
// Next: tests/reference/attention_test.cpp.
#include <cmath>
#include <limits>

#include "tests/support.h"
#include "tools/reference/numeric.h"

using namespace flashptx;
using namespace flashptx::reference;

TEST_SUITE("reference/numeric") {
  TEST_CASE("every bit pattern survives decode and encode") {
    for (DataType type : {DataType::f16, DataType::bf16, DataType::e4m3, DataType::e5m2})
      for (std::uint32_t bits = 0; bits < (1u << (8 * bytes_of(type))); ++bits) {
        const double value = decode(type, bits);
        if (std::isnan(value)) continue;
        CHECK_MESSAGE(encode(type, value) == bits, bytes_of(type), " byte(s), bits ", bits);
      }
  }

  TEST_CASE("known values of each format") {
    CHECK(decode(DataType::f16, 0x3c00) == 1.0);
    CHECK(decode(DataType::f16, 0x7bff) == 65504.0);
    CHECK(decode(DataType::f16, 0x0001) == std::ldexp(1.0, -24));
    CHECK(decode(DataType::bf16, 0x3f80) == 1.0);
    CHECK(decode(DataType::bf16, 0xc2f7) == -123.5);
    CHECK(decode(DataType::e4m3, 0x7e) == 448.0);
    CHECK(decode(DataType::e4m3, 0x38) == 1.0);
    CHECK(decode(DataType::e4m3, 0x01) == std::ldexp(1.0, -9));
    CHECK(std::isnan(decode(DataType::e4m3, 0x7f)));
    CHECK(decode(DataType::e5m2, 0x7b) == 57344.0);
    CHECK(std::isinf(decode(DataType::e5m2, 0x7c)));
  }

  TEST_CASE("rounds halves to even and carries into the exponent") {
    CHECK(round_to(DataType::bf16, 1 + 0x1p-8) == 1.0);               // tie, down to even
    CHECK(round_to(DataType::bf16, 1 + 3 * 0x1p-8) == 1 + 0x1p-6);    // tie, up to even
    CHECK(round_to(DataType::bf16, 1 + 0x1.01p-8) == 1 + 0x1p-7);     // just above the tie
    CHECK(round_to(DataType::f16, 2 - 0x1p-12) == 2.0);
    CHECK(round_to(DataType::f16, 0x1p-25) == 0.0);                   // tie with the smallest subnormal
    CHECK(round_to(DataType::f16, 0x1.8p-25) == 0x1p-24);
    CHECK(round_to(DataType::e4m3, 17) == 16.0);
    CHECK(round_to(DataType::e4m3, 19) == 20.0);
  }

  TEST_CASE("overflow is infinity, but saturates in e4m3") {
    const double infinity = std::numeric_limits<double>::infinity();
    CHECK(round_to(DataType::f16, 65519.0) == 65504.0);
    CHECK(round_to(DataType::f16, 65520.0) == infinity);
    CHECK(round_to(DataType::f16, -1e30) == -infinity);
    CHECK(round_to(DataType::bf16, infinity) == infinity);
    CHECK(round_to(DataType::e4m3, 1e6) == 448.0);
    CHECK(round_to(DataType::e4m3, -infinity) == -448.0);
    CHECK(std::isnan(round_to(DataType::bf16, std::nan(""))));
    CHECK(std::isnan(round_to(DataType::e4m3, std::nan(""))));
  }

  TEST_CASE("random numbers are normal and do not depend on the order") {
    double sum = 0, squares = 0, fourth = 0;
    constexpr int n = 200000;
    for (int i = 0; i < n; ++i) {
      const double x = normal(7, static_cast<std::uint64_t>(i));
      sum += x, squares += x * x, fourth += x * x * x * x;
    }
    CHECK(std::fabs(sum / n) < 0.01);
    CHECK(squares / n == doctest::Approx(1).epsilon(0.01));
    CHECK(fourth / n == doctest::Approx(3).epsilon(0.03));
    CHECK(normal(7, 5) == normal(7, 5));
    CHECK(normal(7, 5) != normal(8, 5));
  }
}
