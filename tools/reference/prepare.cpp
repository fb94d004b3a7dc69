// See prepare.h. Next: tools/reference/numeric.h (the formats).
#include "tools/reference/prepare.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gen/hadamard_signs.h"
#include "gen/tile/key_order.h"
#include "tools/reference/numeric.h"

namespace flashptx::reference {
namespace {

constexpr std::uint8_t gap = 0xFF;  // NaN in every type: a kernel that reads or leaves a gap wrongly shows

std::int64_t index_of(const flashptx::Strides& s, std::int64_t b, std::int64_t row, std::int64_t h) {
  return b * s.batch + row * s.seq + h * s.head;
}

double input_value(const std::string& inputs, std::uint64_t seed, std::uint64_t i) {
  const double z = normal(seed, i), u = uniform(seed + 77, i);
  if (inputs == "zeros") return i % 3 == 0 ? -0.0 : 0.0;
  if (inputs == "ramp") return static_cast<double>(i % 17) - 8;
  if (inputs == "tiny") return z * 1e-38;
  if (inputs == "outliers") return u < 0.001 ? z + 10 * normal(seed + 5, i) : z;
  if (inputs == "not_finite") {
    if (u < 0.002) return std::numeric_limits<double>::infinity();
    if (u < 0.004) return -std::numeric_limits<double>::infinity();
    if (u < 0.006) return std::numeric_limits<double>::quiet_NaN();
  }
  return z;
}

double largest_of(DataType t) { return t == DataType::e4m3 ? 448 : 57344; }

// Half the distance between neighbours of `type` around v.
double half_step(DataType type, double v) {
  const int bits = type == DataType::e4m3 ? 3 : type == DataType::e5m2 ? 2 : type == DataType::bf16 ? 7 : 10;
  const int least = type == DataType::e4m3 ? -6 : type == DataType::bf16 ? -126 : -14;
  const int e = v == 0 || !std::isfinite(v) ? least : std::max(least, std::ilogb(v));
  return std::ldexp(0.5, e - bits);
}

struct Row {
  std::vector<double> exact;     // without any rounding
  std::vector<double> y, doubt;  // by the kernels' rule; how far their f32 arithmetic may be from it
};

// RoPE in front of a transform that is quantised: what it makes is rounded to bf16 in between. Where f32 may land on
// the other side of a tie, the neighbour is as good.
void round_between(std::vector<double>* x, std::vector<double>* doubt) {
  for (std::size_t i = 0; i < x->size(); ++i) {
    const double v = (*x)[i], d = (*doubt)[i];
    if (!std::isfinite(v)) continue;
    const double low = decode(DataType::bf16, encode(DataType::bf16, v - d)), high = decode(DataType::bf16, encode(DataType::bf16, v + d));
    (*x)[i] = decode(DataType::bf16, encode(DataType::bf16, v));
    (*doubt)[i] = high - low;
  }
}

void rotate(const PrepareData& data, std::int64_t row, std::vector<double>* x, std::vector<double>* doubt) {
  const PrepareProblem& p = data.problem;
  const std::int64_t half = p.head_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double c = load(p.table, data.cos.data(), (p.position + row) * half + i);
    const double s = load(p.table, data.sin.data(), (p.position + row) * half + i);
    const std::size_t a = static_cast<std::size_t>(p.rope == Rope::half ? i : 2 * i);
    const std::size_t b = static_cast<std::size_t>(p.rope == Rope::half ? i + half : 2 * i + 1);
    const double u = (*x)[a], v = (*x)[b];
    (*x)[a] = u * c - v * s;
    (*x)[b] = v * c + u * s;
    (*doubt)[a] = (*doubt)[b] = 0x1p-22 * (std::fabs(u) + std::fabs(v));
  }
}

// Sums term by term: no butterfly to share with the kernel.
void mix(const PrepareProblem& p, std::vector<double>* x, std::vector<double>* doubt) {
  const std::size_t d = x->size(), n = d & ~(d - 1);
  std::vector<double> out(d), out_doubt(d);
  std::uint32_t signs[8];
  hadamard_signs(p.seed, signs);
  const auto sign = [&](std::size_t j) { return signs[j / 32] >> j % 32 & 1 ? -1.0 : 1.0; };
  const bool forward = p.hadamard == Hadamard::forward;
  for (std::size_t i = 0; i < d; ++i) {
    double sum = 0, norm = 0, inherited = 0;
    for (std::size_t j = i / n * n; j < i / n * n + n; ++j) {
      const double term = (__builtin_popcountll(i & j & (n - 1)) % 2 ? -1.0 : 1.0) * (forward ? sign(j) : 1) * (*x)[j];
      sum += term, norm += std::fabs(term), inherited += (*doubt)[j];
    }
    out[i] = (forward ? 1 : sign(i)) * sum / std::sqrt(static_cast<double>(n));
    out_doubt[i] = (inherited + norm * 0x1p-23 * (2 + std::log2(static_cast<double>(n)))) / std::sqrt(static_cast<double>(n));
  }
  *x = out, *doubt = out_doubt;
}

bool is_packed(const PrepareProblem& p) { return Prepare::kernels_of(p).back().packed; }

// Computed in pairs of bf16: no rounding is followed, but each of them (cos and sin, the product and the sum of RoPE, what leaves the
// matrix product, each stage behind its four) is off by up to 2^-8 of its value, 1.7e-3 in the mean. Six standard deviations of the
// sum of a row's errors, and the last two stages' of the value itself.
void doubt_packed(const PrepareProblem& p, const std::vector<double>& y, std::vector<double>* doubt) {
  const std::size_t d = y.size(), n = d & ~(d - 1);
  const double roundings = (p.rope != Rope::none ? 3 : 0) + 1 + std::log2(static_cast<double>(n)) - 4;
  for (std::size_t first = 0; first < d; first += n) {
    double squares = 0;
    for (std::size_t i = first; i < first + n; ++i) squares += y[i] * y[i];
    const double more = 6 * 1.7e-3 * std::sqrt(roundings * squares / static_cast<double>(n)) + 0x1p-130;
    for (std::size_t i = first; i < first + n; ++i)
      if (std::isfinite(more)) (*doubt)[i] += more + 2 * half_step(DataType::bf16, y[i]);
  }
}

Row exact_row(const PrepareData& data, std::int64_t b, std::int64_t row, std::int64_t h) {
  const PrepareProblem& p = data.problem;
  Row r;
  r.y.resize(static_cast<std::size_t>(p.head_dim));
  r.doubt.assign(r.y.size(), 0);
  load_row(p.in, data.x.data(), index_of(p.x, b, row, h), static_cast<int>(p.head_dim), r.y.data());
  if (p.rope != Rope::none) rotate(data, row, &r.y, &r.doubt);
  r.exact = r.y;
  if (p.hadamard == Hadamard::none) return r;
  std::vector<double> no_doubt = r.doubt;
  mix(p, &r.exact, &no_doubt);
  if (p.rope != Rope::none && p.quantizes() && !is_packed(p)) round_between(&r.y, &r.doubt);
  mix(p, &r.y, &r.doubt);
  if (is_packed(p)) doubt_packed(p, r.exact, &r.doubt);
  return r;
}

class Judge {
 public:
  Judge(const PrepareData& data, const Prepared& got) : data_(data), p_(data.problem), got_(got) {}
  PrepareVerdict run();

 private:
  struct Range {
    std::int64_t b0, b1, h0, h1, r0, r1;
  };
  bool transforms() const { return p_.rope != Rope::none || p_.hadamard != Hadamard::none; }
  bool holds_bf16() const { return transforms() && p_.scale_kind == ScaleKind::block; }
  void fail(const std::string& what) {
    if (verdict_.failure.empty()) verdict_.failure = what;
  }
  void group(const Range& g, std::size_t index);
  void check_scale(std::size_t index, double amax, double doubt);
  void check_row(const Row& exact, std::int64_t b, std::int64_t row, std::int64_t h);
  void check_quantized(const Row& row, std::size_t j, std::uint32_t bits, const std::string& where);
  void check_stored(double exact, double doubt, double got, const std::string& where);
  void check_gaps();

  const PrepareData& data_;
  const PrepareProblem& p_;
  const Prepared& got_;
  PrepareVerdict verdict_;
  float scale_ = 1, inverse_ = 1;  // of the group at hand: the scale as got, its reciprocal as it must be
  double squares_ = 0, errors_ = 0;
};

// The scale and, where the kernel tells it, the magnitude of one group.
void Judge::check_scale(std::size_t index, double amax, double doubt) {
  const float limit = static_cast<float>(largest_of(p_.out));
  const std::string name = "scale " + std::to_string(index);
  scale_ = got_.scales[index];
  if (p_.fixed_scale != 0) {
    inverse_ = 1 / p_.fixed_scale;
    if (scale_ != p_.fixed_scale) fail(name + " is not the fixed one");
    return;
  }
  if (holds_bf16()) doubt += 2 * half_step(DataType::bf16, amax);
  if (p_.scale_kind != ScaleKind::block && !(std::fabs(got_.amax[index] - amax) <= doubt))
    fail("amax " + std::to_string(index) + " is " + std::to_string(got_.amax[index]) + ", wanted " + std::to_string(amax));
  const float counted = std::max(static_cast<float>(amax), 0x1p-100f);
  const float wanted = amax == 0 ? 1 : counted / limit;
  inverse_ = amax == 0 ? 1 : limit / counted;
  if (!(std::fabs(scale_ - wanted) <= doubt / limit + (doubt > 0 ? wanted * 0x1p-22 : 0)))
    fail(name + " is " + std::to_string(scale_) + ", wanted " + std::to_string(wanted));
}

void Judge::check_quantized(const Row& row, std::size_t j, std::uint32_t bits, const std::string& where) {
  const double exact = row.y[j], doubt = row.doubt[j];
  const double limit = largest_of(p_.out), got = decode(p_.out, bits);
  const auto wrong = [&](double wanted) {
    fail(where + ": " + std::to_string(got) + ", wanted " + std::to_string(wanted) + " (" + std::to_string(exact) +
         " with scale " + std::to_string(scale_) + ")");
  };
  if (std::isnan(exact)) {
    if (!std::isnan(got)) wrong(exact);
    return;
  }
  if (!transforms()) {
    const double v = std::clamp(static_cast<double>(static_cast<float>(exact) * inverse_), -limit, limit);
    if (bits != encode(p_.out, v)) wrong(v);
  } else {
    const double v = std::clamp(exact / scale_, -limit, limit);
    const double off = std::isfinite(exact) ? doubt / scale_ : 0;  // and may lie where steps are wider
    double tolerance = half_step(p_.out, std::fabs(v) + off) * (1 + 1e-6) + std::fabs(v) * 0x1p-21 + off;
    if (holds_bf16()) tolerance += 2 * half_step(DataType::bf16, v);
    if (!(std::fabs(got - v) <= tolerance)) wrong(v);
  }
  if (!std::isfinite(exact)) return;
  squares_ += row.exact[j] * row.exact[j];
  errors_ += (got * scale_ - row.exact[j]) * (got * scale_ - row.exact[j]);
}

void Judge::check_stored(double exact, double doubt, double got, const std::string& where) {
  const bool right = std::isnan(exact) ? std::isnan(got)
                                       : got == exact || std::fabs(got - exact) <= half_step(p_.in, exact) * (1 + 1e-6) + doubt;
  if (!right) fail(where + ": " + std::to_string(got) + ", wanted " + std::to_string(exact));
  if (!std::isfinite(exact)) return;
  squares_ += exact * exact;
  errors_ += (got - exact) * (got - exact);
}

void Judge::check_row(const Row& exact, std::int64_t b, std::int64_t row, std::int64_t h) {
  const std::int64_t at = index_of(p_.y, b, row, h);
  for (std::size_t j = 0; j < exact.y.size() && verdict_.failure.empty(); ++j) {
    const std::string where = "batch " + std::to_string(b) + " row " + std::to_string(row) + " head " + std::to_string(h) +
                              " column " + std::to_string(j);
    const std::int64_t i = at + static_cast<std::int64_t>(j);
    if (p_.quantizes()) check_quantized(exact, j, got_.y[static_cast<std::size_t>(i)], where);
    else check_stored(exact.y[j], exact.doubt[j], load(p_.in, got_.y.data(), i), where);
  }
}

// Rows that share a scale.
void Judge::group(const Range& g, std::size_t index) {
  std::vector<Row> rows;
  double amax = 0, doubt = 0;
  for (std::int64_t b = g.b0; b < g.b1; ++b)
    for (std::int64_t h = g.h0; h < g.h1; ++h)
      for (std::int64_t r = g.r0; r < g.r1; ++r) {
        rows.push_back(exact_row(data_, b, r, h));
        for (std::size_t j = 0; j < rows.back().y.size(); ++j) {
          const double y = std::fabs(rows.back().y[j]);
          if (!std::isfinite(y)) continue;
          amax = std::max(amax, y);
          doubt = std::max(doubt, rows.back().doubt[j]);
        }
      }
  if (p_.quantizes()) check_scale(index, amax, doubt);
  std::size_t i = 0;
  for (std::int64_t b = g.b0; b < g.b1; ++b)
    for (std::int64_t h = g.h0; h < g.h1; ++h)
      for (std::int64_t r = g.r0; r < g.r1; ++r) check_row(rows[i++], b, r, h);
}

// What is not a row must have been left alone.
void Judge::check_gaps() {
  const std::size_t size = p_.quantizes() ? 1 : 2;
  std::vector<bool> covered(got_.y.size());
  for (std::int64_t b = 0; b < p_.batch; ++b)
    for (std::int64_t h = 0; h < p_.heads; ++h)
      for (std::int64_t r = 0; r < p_.seqlen; ++r) {
        const auto first = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index_of(p_.y, b, r, h)) * size);
        std::fill_n(covered.begin() + first, static_cast<std::size_t>(p_.head_dim) * size, true);
      }
  for (std::size_t i = 0; i < covered.size(); ++i)
    if (!covered[i] && got_.y[i] != gap) return fail("byte " + std::to_string(i) + " of y belongs to no row and was written");
}

PrepareVerdict Judge::run() {
  const bool whole = p_.quantizes() && p_.scale_kind == ScaleKind::tensor;
  const std::int64_t rows = p_.quantizes() && p_.scale_kind == ScaleKind::block ? p_.block_rows : std::max<std::int64_t>(p_.seqlen, 1);
  if (whole) {
    group({0, p_.batch, 0, p_.heads, 0, p_.seqlen}, 0);
  } else {
    std::size_t index = 0;
    for (std::int64_t b = 0; b < p_.batch; ++b)
      for (std::int64_t h = 0; h < p_.heads; ++h)
        for (std::int64_t r = 0; r < p_.seqlen; r += rows) group({b, b + 1, h, h + 1, r, std::min(r + rows, p_.seqlen)}, index++);
  }
  check_gaps();
  verdict_.rms = squares_ > 0 ? std::sqrt(errors_ / squares_) : 0;
  return verdict_;
}

std::vector<std::uint8_t> table(const PrepareProblem& p, bool cosine) {
  const std::int64_t half = p.head_dim / 2;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(p.table_rows * half) * (p.table == DataType::f32 ? 4 : 2));
  for (std::int64_t i = 0; i < p.table_rows; ++i)
    for (std::int64_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(i) * std::pow(10000.0, -static_cast<double>(j) / static_cast<double>(half));
      store(p.table, out.data(), i * half + j, cosine ? std::cos(angle) : std::sin(angle));
    }
  return out;
}

}  // namespace

std::vector<std::string> prepare_inputs() { return {"random", "outliers", "zeros", "not_finite", "tiny", "ramp"}; }

std::size_t extent_bytes(const PrepareProblem& p, const flashptx::Strides& s, DataType t) {
  if (p.empty()) return 0;
  return static_cast<std::size_t>(index_of(s, p.batch - 1, p.seqlen - 1, p.heads - 1) + p.head_dim) *
         static_cast<std::size_t>(bytes_of(t));
}

PrepareData make_prepare_data(const PrepareProblem& p, const std::string& inputs, std::uint64_t seed) {
  PrepareData data;
  data.problem = p;
  data.x.assign(extent_bytes(p, p.x, p.in), gap);
  std::uint64_t i = 0;
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t r = 0; r < p.seqlen; ++r)
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (std::int64_t j = 0; j < p.head_dim; ++j)
          store(p.in, data.x.data(), index_of(p.x, b, r, h) + j, input_value(inputs, seed, i++));
  if (p.rope != Rope::none) data.cos = table(p, true), data.sin = table(p, false);
  return data;
}

std::size_t output_bytes(const PrepareProblem& p) {
  if (!p.transpose) return extent_bytes(p, p.y, p.out);
  return static_cast<std::size_t>(p.batch * p.heads * p.head_dim * transposed_seqlen(p.seqlen));
}

PrepareVerdict judge(const PrepareData& data, const Prepared& got) {
  const PrepareProblem& p = data.problem;
  if (!p.transpose) return Judge(data, got).run();
  // V^T back to rows, with its padding looked at on the way.
  PrepareData rows = data;
  rows.problem.transpose = false;
  rows.problem.y = strides_bshd(p.seqlen, p.heads, p.head_dim);
  Prepared back = got;
  back.y.assign(extent_bytes(rows.problem, rows.problem.y, p.out), gap);
  const std::int64_t padded = transposed_seqlen(p.seqlen);
  for (std::size_t i = 0; i < got.y.size(); ++i) {
    const std::int64_t at = static_cast<std::int64_t>(i), row = at / padded, position = at % padded;
    const std::int64_t key = position / key_order_group * key_order_group + key_at_position(static_cast<int>(position % key_order_group));
    if (key >= p.seqlen) {
      if (got.y[i] != 0) return {"position " + std::to_string(position) + " of V^T is beyond the last key and not zero", 0};
      continue;
    }
    const std::int64_t b = row / p.head_dim / p.heads, h = row / p.head_dim % p.heads;
    back.y[static_cast<std::size_t>(index_of(rows.problem.y, b, key, h) + row % p.head_dim)] = got.y[i];
  }
  return Judge(rows, back).run();
}

}  // namespace flashptx::reference
