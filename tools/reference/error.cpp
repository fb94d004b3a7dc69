// The comparison with float64. Next: tests/reference/error_test.cpp shows what it must refuse.
#include "tools/reference/error.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/reference/numeric.h"

namespace flashptx::reference {
namespace {

constexpr std::int64_t rows_at_once = 64;
constexpr double rms_factor_8bit = 1.25;

struct Tile {
  double max = 0, plain_max = 0, largest = 0, max_wanted = 0, max_got = 0;
  std::int64_t row = 0;
  int dim = 0;
};

std::string sentence(const char* what, const Problem& p, std::int64_t b, std::int64_t head, std::int64_t row,
                     int dim, double wanted, double got, double allowed) {
  char text[320];
  std::snprintf(text, sizeof text,
                "%s[batch %lld, row %lld, head %lld, column %d]: wanted %.9g, got %.9g, off by %.3g, allowed %.3g",
                what, static_cast<long long>(b), static_cast<long long>(p.row(row)),
                static_cast<long long>(head), dim, wanted, got, std::fabs(got - wanted), allowed);
  return text;
}

struct Totals {
  double squares = 0, plain_squares = 0, largest = 0;
  std::int64_t elements = 0;
};

// Half a unit in the last place of the largest value is what rounding O alone costs: a tile whose plain error
// happens to be smaller (few elements, or exact values) is still allowed that.
// 8 bit: four times, as FlashAttention-3's own tests, and 2^-5 of the largest: the largest of a row's P is exact in the plain
// computation, and one that came late need not be in the kernel's (e4m3 is off by up to 2^-4, times its weight in the
// row, at most a half: gen/tile/softmax.cpp). So wide a bound of one element says little, which is why the whole tensor's RMS is judged too.
double allowance(double plain_max, double largest, const Problem& p) {
  const double small = 0.5 * epsilon(p.output()) * largest + 1e-5 * largest;
  return p.eight_bit() ? 4 * plain_max + small + 0x1p-5 * largest : 2 * plain_max + small;
}

void compare_tile(const Problem& p, const Result& exact, const Result& plain, const std::vector<float>& o,
                  std::int64_t b, std::int64_t head, std::int64_t first, Totals* totals,
                  Error* error) {
  Tile tile;
  for (std::int64_t r = first; r < std::min(first + rows_at_once, p.row_count()); ++r) {
    const auto base = static_cast<std::size_t>(((b * p.row_count() + r) * p.heads_q + head) * p.head_dim_v);
    for (int d = 0; d < p.head_dim_v; ++d) {
      const std::size_t i = base + static_cast<std::size_t>(d);
      const double off = std::fabs(o[i] - exact.o[i]), plain_off = std::fabs(plain.o[i] - exact.o[i]);
      const bool empty_row_filled = p.visible(p.row(r)) == 0 && o[i] != 0;
      const bool same_nan = std::isnan(o[i]) && std::isnan(exact.o[i]);
      if ((std::isnan(off) && !same_nan) || empty_row_filled) {
        error->ok = false;
        if (error->first_failure.empty())
          error->first_failure = sentence("O", p, b, head, r, d, exact.o[i], o[i], 0);
        if (std::isnan(off)) error->max = off;
        continue;
      }
      if (same_nan) continue;
      if (off > tile.max) {
        tile.max = off, tile.row = r, tile.dim = d;
        tile.max_wanted = exact.o[i], tile.max_got = o[i];
      }
      tile.plain_max = std::max(tile.plain_max, plain_off);
      tile.largest = std::max(tile.largest, std::fabs(exact.o[i]));
      totals->squares += off * off;
      totals->plain_squares += plain_off * plain_off;
      ++totals->elements;
    }
  }
  totals->largest = std::max(totals->largest, tile.largest);
  const double allowed = allowance(tile.plain_max, tile.largest, p);
  if (tile.max > allowed) {
    error->ok = false;
    if (error->first_failure.empty())
      error->first_failure =
          sentence("O", p, b, head, tile.row, tile.dim, tile.max_wanted, tile.max_got, allowed);
  }
  if (!std::isnan(error->max)) error->max = std::max(error->max, tile.max);
  error->plain_max = std::max(error->plain_max, tile.plain_max);
}

// fp32 sums of fp32 products: a few units of the last place of the largest score, and of the logarithm. 8 bit: the tensor
// cores keep about 14 bits of a score's sum.
void compare_lse(const Problem& p, const Result& exact, const Result& plain, const std::vector<float>& lse,
                 Error* error) {
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) % p.row_count();
    const auto head = static_cast<std::int64_t>(i) / p.row_count() % p.heads_q;
    const auto b = static_cast<std::int64_t>(i) / p.row_count() / p.heads_q;
    const double wanted = exact.lse[i], got = lse[i];
    double off = std::fabs(got - wanted);
    if (std::isinf(wanted) && got == wanted) off = 0;
    if (std::isnan(wanted) && std::isnan(got)) off = 0;
    const double plain_off = std::isinf(wanted) ? 0 : std::fabs(plain.lse[i] - wanted);
    const double size = std::isinf(wanted) ? 0 : std::fabs(wanted);
    // The tensor cores cut each addend of a score below the sum's last bit: 2^-23 for each of up to 16 steps.
    const double allowed = 2 * plain_off + 2e-5 + 2e-6 * size + (p.eight_bit() ? 0x1p-10 * (1 + size) : 0) + p.lse_slack;
    error->lse_allowed = std::max(error->lse_allowed, allowed);
    if (!(off <= allowed)) {
      error->ok = false;
      if (error->first_failure.empty())
        error->first_failure = sentence("LSE", p, b, head, row, 0, wanted, got, allowed);
    }
    if (!(off <= error->lse_max)) error->lse_max = off;
  }
}

}  // namespace

Error compare(const Problem& p, const Result& exact, const Result& plain, const std::vector<float>& o,
              const std::vector<float>& lse) {
  Error error;
  if (o.size() != exact.o.size() || (!lse.empty() && lse.size() != exact.lse.size())) {
    error.ok = false;
    error.first_failure = "the result has another number of elements than the reference";
    return error;
  }
  Totals totals;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t head = 0; head < p.heads_q; ++head)
      for (std::int64_t first = 0; first < p.row_count(); first += rows_at_once)
        compare_tile(p, exact, plain, o, b, head, first, &totals, &error);
  const double n = static_cast<double>(std::max<std::int64_t>(totals.elements, 1));
  error.rms = std::sqrt(totals.squares / n);
  error.plain_rms = std::sqrt(totals.plain_squares / n);
  error.allowed_max = allowance(error.plain_max, totals.largest, p);
  double rms_allowed = rms_factor_8bit * error.plain_rms + 0.5 * epsilon(p.output()) * totals.largest;
  // Direct p are up to 8 % off: on scores without noise these errors do not average out as on the normal data of fast mode's rule.
  if (p.direct_p) rms_allowed += 0.02 * totals.largest;
  if (p.eight_bit() && error.ok && error.rms > rms_allowed) {
    error.ok = false;
    error.first_failure = "O's RMS error is " + std::to_string(error.rms) + ", allowed " + std::to_string(rms_allowed);
  }
  compare_lse(p, exact, plain, lse, &error);
  return error;
}

}  // namespace flashptx::reference
