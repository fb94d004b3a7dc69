// See host/sha256.h; the names follow FIPS 180-4, section 6.2. The constants are computed from
// their definition (fractional parts of cube and square roots of the first primes) in integer
// arithmetic.
#include "host/sha256.h"

#include <bit>
#include <cstring>

namespace flashptx {
namespace {

// First 32 bits of the fractional part of the n-th root of p: floor(p^(1/n) * 2^32) mod 2^32, by
// bisection.
constexpr std::uint32_t root_fraction(std::uint64_t p, int n) {
  using u128 = unsigned __int128;
  std::uint64_t low = 0, high = std::uint64_t{32} << 32;  // the roots in question are below 32
  while (high - low > 1) {
    const std::uint64_t x = low + (high - low) / 2;
    // x^n <= p * 2^(32 n), arranged so that nothing exceeds 128 bits (x < 2^37).
    const u128 square = static_cast<u128>(x) * x;
    const bool below = n == 2 ? square <= (static_cast<u128>(p) << 64)
                              : square * x <= (static_cast<u128>(p) << 96);
    (below ? low : high) = x;
  }
  return static_cast<std::uint32_t>(low);
}

struct Constants {
  std::uint32_t k[64] = {}, h[8] = {};
  constexpr Constants() {
    int count = 0;
    for (std::uint64_t p = 2; count < 64; ++p) {
      bool prime = true;
      for (std::uint64_t d = 2; d * d <= p; ++d) prime = prime && p % d != 0;
      if (!prime) continue;
      if (count < 8) h[count] = root_fraction(p, 2);
      k[count++] = root_fraction(p, 3);
    }
  }
};
constexpr Constants constants;
static_assert(constants.k[0] == 0x428a2f98 && constants.h[0] == 0x6a09e667);

void compress(std::uint32_t h[8], const std::uint8_t* block) {
  std::uint32_t w[64];
  for (int t = 0; t < 16; ++t)
    w[t] = std::uint32_t{block[4 * t]} << 24 | std::uint32_t{block[4 * t + 1]} << 16 |
           std::uint32_t{block[4 * t + 2]} << 8 | block[4 * t + 3];
  for (int t = 16; t < 64; ++t) {
    const std::uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const std::uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  std::uint32_t v[8];
  std::memcpy(v, h, sizeof v);
  for (int t = 0; t < 64; ++t) {
    const std::uint32_t a = v[0], e = v[4];
    const std::uint32_t t1 = v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & v[5]) ^ (~e & v[6])) + constants.k[t] + w[t];
    const std::uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                             ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    std::memmove(v + 1, v, 7 * sizeof v[0]);
    v[4] += t1;
    v[0] = t1 + t2;
  }
  for (int i = 0; i < 8; ++i) h[i] += v[i];
}

}  // namespace

Sha256 sha256(std::string_view data) {
  std::uint32_t h[8];
  std::memcpy(h, constants.h, sizeof h);
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(data.data());
  const std::size_t whole = data.size() / 64 * 64;
  for (std::size_t i = 0; i < whole; i += 64) compress(h, bytes + i);
  // Last one or two blocks: the rest, a 1 bit, zeros, the length in bits.
  std::uint8_t tail[128] = {};
  const std::size_t rest = data.size() - whole;
  if (rest != 0) std::memcpy(tail, bytes + whole, rest);
  tail[rest] = 0x80;
  const std::size_t tail_bytes = rest < 56 ? 64 : 128;
  const std::uint64_t bits = std::uint64_t{data.size()} * 8;
  for (int i = 0; i < 8; ++i) tail[tail_bytes - 1 - i] = static_cast<std::uint8_t>(bits >> (8 * i));
  for (std::size_t i = 0; i < tail_bytes; i += 64) compress(h, tail + i);
  Sha256 digest;
  for (int i = 0; i < 32; ++i)
    digest[i] = static_cast<std::uint8_t>(h[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

std::string to_hex(const Sha256& digest) {
  const char* const digits = "0123456789abcdef";
  std::string s;
  for (std::uint8_t b : digest) {
    s += digits[b >> 4];
    s += digits[b & 15];
  }
  return s;
}

}  // namespace flashptx
