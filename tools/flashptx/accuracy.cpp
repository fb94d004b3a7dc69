// The three tests. See accuracy.h.
#include "tools/flashptx/accuracy.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/flashptx/runner.h"
#include "tools/reference/fp8.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

constexpr double margin = 6;              // needle: exp(margin) times the weight of all other keys
constexpr double needle_limit = 0.1;      // FP8 rounds V by 2.6 % and lets 0.3 % of other keys in
constexpr double constant_limit_16 = 0x1p-8;  // half a step of bf16, twice
constexpr double constant_limit_8 = 0.035;    // 3 % are lost of 2048 keys (gen/tile/fold.cpp); and a tenth of a step of e4m3

struct Method {
  std::string name;
  DataType dtype = DataType::bf16;  // of the tensors
  bool unfused = false, fp8 = false, in_memory = false;  // in_memory: unfused, with S (16 bit) or P (8 bit) kept as an
                                                         // unfused program keeps it
  Fp8Options recipe;
  double claimed = 0;
};

Method fp8(std::string name, ScaleKind kind, bool hadamard, double claimed = 0) {
  Method m;
  m.name = std::move(name), m.fp8 = true, m.claimed = claimed;
  m.recipe.scale_kind = kind, m.recipe.hadamard = hadamard, m.recipe.seed = 1;
  return m;
}

Method unfused(Method m, bool in_memory) {
  m.unfused = true, m.in_memory = in_memory;
  return m;
}

Method sixteen_bit(std::string name, DataType dtype, double claimed = 0) {
  Method m;
  m.name = std::move(name), m.dtype = dtype, m.claimed = claimed;
  return m;
}

std::vector<Method> outlier_methods() {
  return {unfused(sixteen_bit("f16, S too, unfused on the CPU", DataType::f16, 3.2e-4), true),
          unfused(sixteen_bit("f16, unfused on the CPU", DataType::f16), false),
          sixteen_bit("f16", DataType::f16, 1.9e-4),
          sixteen_bit("bf16", DataType::bf16),
          unfused(fp8("FP8, a scale a tensor, P's too, unfused on the CPU", ScaleKind::tensor, false, 2.4e-2), true),
          unfused(fp8("FP8, a scale a tensor, unfused on the CPU", ScaleKind::tensor, false), false),
          fp8("FP8, a scale a tensor", ScaleKind::tensor, false),
          fp8("FP8, a scale a head", ScaleKind::head, false),
          fp8("FP8, a scale a block", ScaleKind::block, false, 2.4e-2),
          fp8("FP8, a scale a head, Hadamard", ScaleKind::head, true),
          fp8("FP8, a scale a block, Hadamard", ScaleKind::block, true, 9.1e-3)};
}

std::vector<Method> long_methods() {
  return {sixteen_bit("bf16", DataType::bf16),
          fp8("FP8, a scale a head", ScaleKind::head, false),
          fp8("FP8, a scale a block, Hadamard", ScaleKind::block, true)};
}

reference::Problem shape_of(DataType dtype, int head_dim, std::int64_t heads, std::int64_t seqlen_q,
                            std::int64_t seqlen_k) {
  reference::Problem p;
  p.dtype = p.dtype_o = dtype, p.head_dim = p.head_dim_v = head_dim, p.heads_q = p.heads_kv = heads;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k, p.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  return p;
}

// The same kernel with another softmax; the plan's own where that is what it has.
ForwardChoice with_softmax(const std::string& kernel, Softmax softmax, bool fast) {
  KernelConfig c;
  std::string error;
  if (!KernelConfig::parse(kernel, &c, &error)) return {};
  c.plan.take(softmax);
  if (fast) c.plan = fast_plan(c.problem, c.plan);
  ForwardChoice choice;
  choice.kernel = c.name();
  return choice;
}

class Runner {
 public:
  Runner(Device& device, const AccuracySize& size, const std::function<void(const AccuracyRow&)>& done,
         AccuracyReport* out)
      : device_(device), attention_(device), size_(size), done_(done), out_(out) {}
  Status outliers(std::int64_t seqlen);
  Status constant(std::int64_t keys);
  Status needle(std::int64_t keys);

 private:
  using Judge = std::function<void(const std::vector<float>& o, AccuracyRow*)>;
  // O of the rows that the tensors' problem selects: (batch, row, head, dim), a row for each softmax.
  Status each_softmax(const reference::Tensors& t, const Method& m, AccuracyRow row, const Judge& judge);
  Status compute(const reference::Tensors& t, const Method& m, Softmax softmax, bool fast, std::string* kernel,
                 std::vector<float>* o);
  void add(const AccuracyRow& row) {
    out_->rows.push_back(row);
    if (done_) done_(row);
  }

  Device& device_;
  Attention attention_;
  const AccuracySize& size_;
  const std::function<void(const AccuracyRow&)>& done_;
  AccuracyReport* out_;
};

AccuracyRow row_of(AccuracyTest test, const Method& m, const reference::Problem& p) {
  AccuracyRow r;
  r.test = test, r.method = m.name, r.claimed = m.claimed;
  r.seqlen_q = p.seqlen_q, r.seqlen_k = p.seqlen_k, r.heads = p.heads_q, r.rows = p.row_count();
  return r;
}

Status Runner::compute(const reference::Tensors& t, const Method& m, Softmax softmax, bool fast, std::string* kernel,
                       std::vector<float>* o) {
  const reference::Problem& p = t.problem;
  Case c;
  c.tensors.problem = p, c.tensors.o_strides = t.o_strides;
  ForwardProblem problem = host_problem(c);
  problem.allow_workspace = false, problem.q_scale = problem.k_scale = problem.v_scale = {};
  std::unique_ptr<ForwardPlan> plain;
  std::unique_ptr<Fp8Plan> chain;
  const auto plan = [&](const ForwardChoice& choice) {
    const Status s = m.fp8 ? plan_fp8_attention(attention_, problem, m.recipe, choice, &chain)
                           : attention_.plan_forward(problem, choice, &plain);
    if (s.ok()) *kernel = m.fp8 ? chain->kernel_name() : plain->kernel_name();
    return s;
  };
  if (Status s = plan({}); !s.ok()) return s;
  if (Status s = plan(with_softmax(*kernel, softmax, fast)); !s.ok()) return s;
  const std::size_t workspace_bytes = m.fp8 ? chain->workspace_bytes() : 0;
  GuardedBuffer q(device_, t.q.size()), k(device_, t.k.size()), v(device_, t.v.size());
  GuardedBuffer out(device_, static_cast<std::size_t>(t.o_elements * 2)), workspace(device_, workspace_bytes);
  Status s = first_error({q.allocate(0), k.allocate(0), v.allocate(0), out.allocate(0xff), workspace.allocate(0xff)});
  if (s.ok()) s = first_error({q.upload(t.q), k.upload(t.k), v.upload(t.v)});
  if (!s.ok()) return s;
  if (m.fp8) {
    Fp8Pointers at;
    at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = out.address(), at.workspace = workspace.address();
    s = chain->run(at, nullptr);
  } else {
    ForwardPointers at;
    at.q = q.address(), at.k = k.address(), at.v = v.address(), at.o = out.address();
    s = plain->run(at, nullptr);
  }
  if (s.ok()) s = device_.synchronize(nullptr);
  std::vector<std::uint8_t> bytes;
  bool guards = true;
  if (s.ok()) s = out.download(&bytes, &guards);
  if (s.ok() && !guards) return Status::error(StatusCode::internal, "bytes beside O were overwritten");
  if (!s.ok()) return s;
  o->resize(static_cast<std::size_t>(p.batch * p.row_count() * p.heads_q * p.head_dim_v));
  for (std::int64_t r = 0; r < p.row_count(); ++r)
    for (std::int64_t h = 0; h < p.heads_q; ++h)
      reference::load_row(p.dtype, bytes.data(), p.row(r) * t.o_strides.seqlen + h * t.o_strides.head, p.head_dim_v,
                          &(*o)[static_cast<std::size_t>((r * p.heads_q + h) * p.head_dim_v)]);
  return {};
}

Status Runner::each_softmax(const reference::Tensors& t, const Method& m, AccuracyRow row, const Judge& judge) {
  for (int i = 0; i < (size_.fast && m.fp8 ? 3 : 2); ++i) {
    AccuracyRow r = row;
    const bool fast = i == 2;
    const Softmax softmax = i == 0 ? Softmax::plain : Softmax::guarded;
    r.softmax = fast ? "fast" : to_string(softmax);
    std::vector<float> o;
    const Status s = compute(t, m, softmax, fast, &r.kernel, &o);
    if (s.ok()) judge(o, &r);
    else if (s.code == StatusCode::unsupported || s.code == StatusCode::invalid_argument) r.note = "not run: " + s.message;
    else return s;
    if (r.ok() && !(r.error <= r.limit)) r.note = "the error is above its limit";
    add(r);
  }
  return {};
}

double rms(const std::vector<double>& a, const std::vector<double>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(a.size(), 1)));
}

// Limits: kernels may be 1.25 times as far off as the unfused computation of their kind; bf16 rounds eight times as
// coarsely as f16.
Status Runner::outliers(std::int64_t seqlen) {
  reference::Result exact[2];
  reference::Tensors tensors[2];
  for (DataType dtype : {DataType::f16, DataType::bf16}) {
    const int i = dtype == DataType::bf16;
    const reference::Problem shape = shape_of(dtype, size_.head_dim, size_.heads, seqlen, seqlen);
    tensors[i] = reference::make_tensors(shape, reference::Layout::bshd, reference::Inputs::outliers, size_.seed);
    tensors[i].problem.rows = choose_rows(shape, size_.rows);
    exact[i] = reference::attention_float64(tensors[i].problem);
  }
  double unfused_16 = 0, unfused_8 = 0;
  for (const Method& m : outlier_methods()) {
    const int i = m.dtype == DataType::bf16;
    const reference::Problem& p = tensors[i].problem;
    AccuracyRow row = row_of(AccuracyTest::outliers, m, p);
    if (m.unfused) {
      reference::Problem seen = p;
      seen.unfused_scores = m.in_memory && !m.fp8, seen.unfused_p = m.in_memory && m.fp8;
      const reference::Result r = m.fp8 ? reference::attention_fp8(seen, m.recipe) : reference::attention_plain(seen);
      row.error = (m.fp8 ? unfused_8 : unfused_16) = rms(r.o, exact[i].o);
      add(row);
      continue;
    }
    row.limit = 1.25 * (m.fp8 ? unfused_8 : m.dtype == DataType::bf16 ? 8 * unfused_16 : unfused_16);
    const Status s = each_softmax(tensors[i], m, row, [&](const std::vector<float>& o, AccuracyRow* r) {
      r->error = rms({o.begin(), o.end()}, exact[i].o);
    });
    if (!s.ok()) return s;
  }
  return {};
}

// Dense tensors (batch 1, bshd) of values by (row, column), one head.
reference::Tensors one_head(const reference::Problem& shape, const std::function<float(int, std::int64_t, int)>& value) {
  reference::Tensors t;
  t.problem = shape;
  reference::Problem& p = t.problem;
  p.q_strides = reference::dense_strides(reference::Layout::bshd, p.seqlen_q, 1, p.head_dim);
  p.k_strides = reference::dense_strides(reference::Layout::bshd, p.seqlen_k, 1, p.head_dim);
  p.v_strides = p.k_strides, t.o_strides = p.q_strides;
  t.o_elements = p.seqlen_q * p.head_dim;
  std::vector<std::uint8_t>* const all[] = {&t.q, &t.k, &t.v};
  for (int i = 0; i < 3; ++i) {
    const std::int64_t rows = i == 0 ? p.seqlen_q : p.seqlen_k;
    all[i]->resize(static_cast<std::size_t>(rows * p.head_dim * 2));
    reference::parallel_for(rows, 0, [&](std::int64_t r) {
      for (int d = 0; d < p.head_dim; ++d) reference::store(p.dtype, all[i]->data(), r * p.head_dim + d, value(i, r, d));
    });
  }
  p.q = t.q.data(), p.k = t.k.data(), p.v = t.v.data();
  return t;
}

float normal_at(std::uint64_t seed, int tensor, std::int64_t row, int d, int head_dim) {
  return static_cast<float>(reference::normal(3 * seed + static_cast<std::uint64_t>(tensor),
                                              static_cast<std::uint64_t>(row * head_dim + d)));
}

Status Runner::constant(std::int64_t keys) {
  const reference::Problem shape = shape_of(DataType::bf16, size_.head_dim, 1, size_.queries, keys);
  // Column d holds a value of its own between 0.5 and 1.5, so that no power of two hides what is dropped.
  const auto value = [&](int tensor, std::int64_t row, int d) {
    if (tensor == 0) return 0.0f;
    if (tensor == 1) return normal_at(size_.seed, 1, row % 1024, d, size_.head_dim);
    return 0.5f + static_cast<float>(d) / static_cast<float>(size_.head_dim);
  };
  const reference::Tensors t = one_head(shape, value);
  reference::Problem single = shape;  // one key: the same V after quantisation
  single.seqlen_q = single.seqlen_k = 1;
  const reference::Tensors one = one_head(single, value);
  for (const Method& m : long_methods()) {
    AccuracyRow row = row_of(AccuracyTest::constant, m, t.problem);
    row.limit = m.fp8 ? constant_limit_8 : constant_limit_16;
    std::vector<float> wanted(static_cast<std::size_t>(size_.head_dim));
    reference::load_row(DataType::bf16, one.v.data(), 0, size_.head_dim, wanted.data());
    if (m.fp8) wanted = reference::quantized(one.problem, m.recipe).v;
    const Status s = each_softmax(t, m, row, [&](const std::vector<float>& o, AccuracyRow* r) {
      for (std::size_t i = 0; i < o.size(); ++i) {
        const double c = wanted[i % wanted.size()], off = std::fabs(o[i] - c) / c;
        if (!(off <= r->error)) r->error = off;
      }
    });
    if (!s.ok()) return s;
  }
  return {};
}

// Index of the needle's value that `o` is nearest to, and the RMS distance to value `own`, relative to that of V.
std::int64_t nearest(const float* o, const std::vector<float>& values, int dim, std::int64_t own, double* distance) {
  std::int64_t best = -1;
  double least = INFINITY;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(values.size()) / dim; ++i) {
    double squares = 0, norm = 0;
    for (int d = 0; d < dim; ++d) {
      const double v = values[static_cast<std::size_t>(i * dim + d)];
      squares += (o[d] - v) * (o[d] - v), norm += v * v;
    }
    if (i == own) *distance = std::sqrt(squares / norm);
    if (squares < least) least = squares, best = i;
  }
  return best;
}

Status Runner::needle(std::int64_t keys) {
  const int dim = size_.head_dim;
  const std::int64_t n = std::min(size_.queries, keys);
  const reference::Problem shape = shape_of(DataType::bf16, dim, 1, n, keys);
  const auto position = [&](std::int64_t i) { return n == 1 ? keys - 1 : i * (keys - 1) / (n - 1); };
  // A query's scores are normal with deviation |q| scale; all of them together weigh keys exp(that^2 / 2).
  const auto q_at = [&](std::int64_t i, int d) { return normal_at(size_.seed, 0, i, d, dim); };
  std::vector<float> stretch(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    double norm = 0;
    for (int d = 0; d < dim; ++d) norm += std::pow(q_at(i, d), 2);
    const double s = shape.scale, score = std::log(static_cast<double>(keys)) + norm * s * s / 2 + margin;
    stretch[static_cast<std::size_t>(i)] = static_cast<float>(score / (norm * s));
  }
  std::vector<std::int64_t> needle_at(static_cast<std::size_t>(keys), -1);
  for (std::int64_t i = 0; i < n; ++i) needle_at[static_cast<std::size_t>(position(i))] = i;
  const reference::Tensors t = one_head(shape, [&](int tensor, std::int64_t row, int d) {
    if (tensor == 1)
      if (const std::int64_t i = needle_at[static_cast<std::size_t>(row)]; i >= 0)
        return q_at(i, d) * stretch[static_cast<std::size_t>(i)];
    return normal_at(size_.seed, tensor, row, d, dim);
  });
  std::vector<float> values(static_cast<std::size_t>(n * dim));
  for (std::int64_t i = 0; i < n; ++i)
    reference::load_row(DataType::bf16, t.v.data(), position(i) * dim, dim, &values[static_cast<std::size_t>(i * dim)]);
  for (const Method& m : long_methods()) {
    AccuracyRow row = row_of(AccuracyTest::needle, m, t.problem);
    row.limit = needle_limit, row.wanted = n;
    const Status s = each_softmax(t, m, row, [&](const std::vector<float>& o, AccuracyRow* r) {
      for (std::int64_t i = 0; i < n; ++i) {
        double distance = INFINITY;
        const bool own = nearest(&o[static_cast<std::size_t>(i * dim)], values, dim, i, &distance) == i;
        r->found += own && distance <= needle_limit;
        if (!(distance <= r->error)) r->error = distance;
      }
      if (r->found != n) r->note = std::to_string(n - r->found) + " needles were not found";
    });
    if (!s.ok()) return s;
  }
  return {};
}

}  // namespace

const char* to_string(AccuracyTest test) {
  return test == AccuracyTest::outliers ? "outliers" : test == AccuracyTest::constant ? "constant" : "needle";
}

AccuracySize accuracy_size(bool small) {
  AccuracySize s;
  if (small) {
    s.outlier_seqlens = {256}, s.constant_keys = {512, 1024}, s.needle_keys = {1024};
    s.heads = 2, s.rows = 256, s.queries = 64;
    return s;
  }
  s.outlier_seqlens = {512, 2048, 8192};
  s.constant_keys = {16384, 32768, 65536, 131072}, s.needle_keys = {65536, 131072};
  return s;
}

Status run_accuracy(Device& device, const AccuracySize& size, const std::vector<AccuracyTest>& tests,
                    const std::function<void(const AccuracyRow&)>& done, AccuracyReport* out) {
  Runner runner(device, size, done, out);
  for (AccuracyTest test : tests) {
    const auto& lengths = test == AccuracyTest::outliers   ? size.outlier_seqlens
                          : test == AccuracyTest::constant ? size.constant_keys
                                                           : size.needle_keys;
    for (std::int64_t n : lengths) {
      const Status s = test == AccuracyTest::outliers   ? runner.outliers(n)
                       : test == AccuracyTest::constant ? runner.constant(n)
                                                        : runner.needle(n);
      if (!s.ok()) return s;
    }
  }
  return {};
}

}  // namespace flashptx
