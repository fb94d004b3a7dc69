// Conversions by way of the definition: a value is sign * significand * 2^exponent with p bits.
//
// One encoder serves the four small formats: it scales the value so that one unit in the last place is 1,
// rounds to nearest even and looks up nothing. Next: tools/reference/attention.cpp.
#include "tools/reference/numeric.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace flashptx::reference {
namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  double largest;
  bool has_infinity;
};

constexpr Format format_of(DataType type) {
  switch (type) {
    case DataType::f16: return {5, 10, 65504.0, true};
    case DataType::bf16: return {8, 7, 3.3895313892515355e38, true};
    case DataType::e4m3: return {4, 3, 448.0, false};
    case DataType::e5m2: return {5, 2, 57344.0, true};
    case DataType::f32: break;
  }
  return {8, 23, std::numeric_limits<float>::max(), true};
}

std::uint32_t encode_small(const Format& f, double value) {
  const int bits = 1 + f.exponent_bits + f.mantissa_bits;
  const std::uint32_t sign = std::signbit(value) ? 1u << (bits - 1) : 0u;
  const std::uint32_t all_ones_exponent = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  const std::uint32_t largest_bits =
      f.has_infinity ? all_ones_exponent - 1 : all_ones_exponent + (1u << f.mantissa_bits) - 2;
  if (std::isnan(value)) return sign | all_ones_exponent | ((1u << f.mantissa_bits) - 1);
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return sign;
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int exponent = std::isinf(magnitude) ? 2 * bias : std::max(std::ilogb(magnitude), 1 - bias);
  // Units of the last place; nearbyint rounds to even in the default mode. The result may carry into the
  // next exponent, which the addition below handles.
  const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
  const double rounded = std::ldexp(units, exponent - f.mantissa_bits);
  if (rounded > f.largest) return sign | (f.has_infinity ? all_ones_exponent : largest_bits);
  const auto significand = static_cast<std::uint32_t>(units);
  const std::uint32_t hidden = 1u << f.mantissa_bits;
  if (significand < hidden) return sign | significand;  // subnormal
  const auto biased = static_cast<std::uint32_t>(exponent + bias);
  return sign | ((biased << f.mantissa_bits) + (significand - hidden));
}

double decode_small(const Format& f, std::uint32_t bits) {
  const bool negative = (bits >> (f.exponent_bits + f.mantissa_bits)) & 1;
  const auto exponent = static_cast<int>((bits >> f.mantissa_bits) & ((1u << f.exponent_bits) - 1));
  const std::uint32_t mantissa = bits & ((1u << f.mantissa_bits) - 1);
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int top = (1 << f.exponent_bits) - 1;
  double value;
  if (exponent == top && f.has_infinity)
    value = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == top && mantissa == (1u << f.mantissa_bits) - 1)
    value = std::numeric_limits<double>::quiet_NaN();  // e4m3 has one NaN and no infinity
  else if (exponent == 0)
    value = std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
  else
    value = std::ldexp(mantissa + (1u << f.mantissa_bits), exponent - bias - f.mantissa_bits);
  return negative ? -value : value;
}

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

int bytes_of(DataType type) {
  return type == DataType::f32 ? 4 : type == DataType::e4m3 || type == DataType::e5m2 ? 1 : 2;
}

bool parse_data_type(const std::string& text, DataType* out) {
  if (text == "f16" || text == "fp16") *out = DataType::f16;
  else if (text == "bf16") *out = DataType::bf16;
  else if (text == "e4m3") *out = DataType::e4m3;
  else if (text == "e5m2") *out = DataType::e5m2;
  else if (text == "f32") *out = DataType::f32;
  else return false;
  return true;
}

std::uint32_t encode(DataType type, double value) {
  if (type == DataType::f32) return std::bit_cast<std::uint32_t>(static_cast<float>(value));
  return encode_small(format_of(type), value);
}

double decode(DataType type, std::uint32_t bits) {
  if (type == DataType::f32) return std::bit_cast<float>(bits);
  if (type == DataType::bf16) return std::bit_cast<float>(bits << 16);
  return decode_small(format_of(type), bits);
}

double epsilon(DataType type) { return std::ldexp(1.0, -format_of(type).mantissa_bits); }

void store(DataType type, void* base, std::int64_t index, double value) {
  const std::uint32_t bits = encode(type, value);
  const int bytes = bytes_of(type);
  std::memcpy(static_cast<char*>(base) + index * bytes, &bits, static_cast<std::size_t>(bytes));
}

double load(DataType type, const void* base, std::int64_t index) {
  std::uint32_t bits = 0;
  const int bytes = bytes_of(type);
  std::memcpy(&bits, static_cast<const char*>(base) + index * bytes, static_cast<std::size_t>(bytes));
  return decode(type, bits);
}

template <class Real>
void load_row(DataType type, const void* base, std::int64_t index, int count, Real* out) {
  for (int i = 0; i < count; ++i) out[i] = static_cast<Real>(load(type, base, index + i));
}
template void load_row<float>(DataType, const void*, std::int64_t, int, float*);
template void load_row<double>(DataType, const void*, std::int64_t, int, double*);

double uniform(std::uint64_t seed, std::uint64_t index) {
  return (static_cast<double>(mix(mix(seed) ^ index) >> 11) + 0.5) * 0x1p-53;
}

double normal(std::uint64_t seed, std::uint64_t index) {
  const double radius = std::sqrt(-2 * std::log(uniform(seed, 2 * index)));
  return radius * std::cos(6.283185307179586 * uniform(seed, 2 * index + 1));
}

}  // namespace flashptx::reference
