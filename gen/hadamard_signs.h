// The random signs of incoherent processing: y = H D x / sqrt(n), D = diag(+-1).
//
// Q and K must be turned by the same D, or Q K^T changes; a program that prepares one of them itself needs the
// same signs. So they are a small stated hash of (seed, column) and no table: the kernels get them as bits.
#pragma once

#include <cstdint>

namespace flashptx {

// The finaliser of MurmurHash3 over seed and column; its upper bit is the sign.
constexpr bool hadamard_negates(std::uint32_t seed, std::uint32_t column) {
  std::uint32_t h = seed ^ (column + 1) * 0x9E3779B9u;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return (h ^ h >> 16) >> 31;
}

// Bit j % 32 of word j / 32 is set where column j < 256 is negated: the kernels' parameters signs_0 ...
constexpr void hadamard_signs(std::uint32_t seed, std::uint32_t words[8]) {
  for (std::uint32_t w = 0; w < 8; ++w) {
    words[w] = 0;
    for (std::uint32_t j = 0; j < 32; ++j) words[w] |= std::uint32_t{hadamard_negates(seed, 32 * w + j)} << j;
  }
}

}  // namespace flashptx
