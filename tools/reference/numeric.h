// The number formats of attention, to and from float, and random numbers that are the same everywhere.
//
// The oracle must share nothing with what it judges, so these conversions are written from the formats'
// definitions (IEEE 754 binary16; bfloat16; OCP FP8 E4M3 and E5M2) and rounding is to nearest even.
// Next: tools/reference/attention.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gen/catalog.h"

namespace flashptx::reference {

int bytes_of(DataType type);
bool parse_data_type(const std::string& text, DataType* out);  // "bf16", "f16" or "fp16", "e4m3", ...

// One value, as bits in the low end. Overflow: infinity (f16, bf16, e5m2); e4m3 saturates to 448, as
// cvt.satfinite does. NaN stays NaN.
std::uint32_t encode(DataType type, double value);
double decode(DataType type, std::uint32_t bits);
inline double round_to(DataType type, double value) { return decode(type, encode(type, value)); }

// The distance from 1 to the next larger value: 2^-7 for bf16, 2^-10 for f16.
double epsilon(DataType type);

// Whole arrays: `stride` in elements.
void store(DataType type, void* base, std::int64_t index, double value);
double load(DataType type, const void* base, std::int64_t index);
// Decodes `count` contiguous elements; Real is float or double.
template <class Real>
void load_row(DataType type, const void* base, std::int64_t index, int count, Real* out);

// Counter-based: number `index` of stream `seed`, no state (splitmix64, then Box-Muller).
double uniform(std::uint64_t seed, std::uint64_t index);  // in (0, 1)
double normal(std::uint64_t seed, std::uint64_t index);

}  // namespace flashptx::reference
