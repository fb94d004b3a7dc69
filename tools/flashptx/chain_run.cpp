// See chain_run.h.
#include "tools/flashptx/chain_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/reference/fp8.h"
#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

void make_tables(ChainCase* c, const reference::Problem& p) {
  Fp8Options& o = c->options;
  if (o.rope == Rope::none) return;
  o.position_q = std::max<std::int64_t>(0, p.seqlen_k - p.seqlen_q);
  o.position_k = std::max<std::int64_t>(0, p.seqlen_q - p.seqlen_k);
  o.table_rows = std::max(p.seqlen_q, p.seqlen_k);
  o.table = DataType::f32;
  const int half = p.head_dim / 2;
  for (std::int64_t row = 0; row < o.table_rows; ++row)
    for (int i = 0; i < half; ++i) {
      const double angle = static_cast<double>(row) * std::pow(10000.0, -static_cast<double>(i) / half);
      c->cos.push_back(static_cast<float>(std::cos(angle)));
      c->sin.push_back(static_cast<float>(std::sin(angle)));
    }
}

std::vector<std::uint8_t> bytes_of(const std::vector<float>& v) {
  const auto* b = reinterpret_cast<const std::uint8_t*>(v.data());
  return {b, b + 4 * v.size()};
}

// The kernel and the unfused computation share what quantisation did to Q, K and V and differ in how P was rounded: by at
// most sqrt(2) * 2.6 % of P, where the whole error of that computation is 5 % (of P, V and the scores). Fast mode: the
// kernel's 2.6 % may be 1.25 times as much.
constexpr double largest_share = 0.75, largest_share_fast = 0.85;

void check_same(const ChainCase& c, const std::vector<float>& o, bool fast, reference::Error* error) {
  double largest = 0;
  for (double x : c.base.exact.o) largest = std::max(largest, std::fabs(x));
  const Difference d = difference({o.begin(), o.end()}, c.base.plain.o);
  const double allowed = (fast ? largest_share_fast : largest_share) * error->plain_rms + 0.5 * reference::epsilon(c.base.problem().dtype) * largest;
  if (!error->ok || d.rms <= allowed) return;
  error->ok = false;
  error->first_failure = "O is off the unfused computation of the same recipe by RMS " + std::to_string(d.rms) +
                         ", allowed " + std::to_string(allowed);
}

// LSE has no tile to be judged by: its largest error over all rows, by the factor of a largest O. Where a value stands out,
// one step of its rounding is most of a row's error, and f32 in another order may take the other step.
void check_lse(const Case& c, const std::vector<float>& lse, double slack, reference::Error* error) {
  double plain = 0, largest = 0;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < lse.size(); ++i) {
    const double wanted = c.exact.lse[i], got = lse[i];
    const double off = std::isinf(wanted) && got == wanted ? 0 : std::fabs(got - wanted);
    if (!(off <= error->lse_max)) error->lse_max = off, worst = i;
    if (std::isinf(wanted)) continue;
    plain = std::max(plain, std::fabs(c.plain.lse[i] - wanted));
    largest = std::max(largest, std::fabs(wanted));
  }
  error->lse_allowed = 4 * plain + 0x1p-11 * (1 + largest) + slack;
  if (error->lse_max <= error->lse_allowed || !error->ok) return;
  error->ok = false;
  error->first_failure = "LSE[" + std::to_string(worst) + "]: wanted " + std::to_string(c.exact.lse[worst]) + ", got " +
                         std::to_string(lse[worst]) + ", allowed " + std::to_string(error->lse_allowed);
}

}  // namespace

Difference difference(const std::vector<double>& a, const std::vector<double>& b) {
  Difference d;
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double off = std::fabs(a[i] - b[i]);
    if (!(off <= d.max)) d.max = off;
    squares += off * off;
  }
  d.rms = std::sqrt(squares / static_cast<double>(std::max<std::size_t>(a.size(), 1)));
  return d;
}

ChainCase make_chain_case(const reference::Problem& shape, reference::Layout layout, reference::Inputs inputs,
                          std::uint64_t seed, bool lse, std::int64_t check_rows, const Fp8Options& options) {
  ChainCase c;
  c.options = options;
  c.base.tensors = reference::make_tensors(shape, layout, inputs, seed);
  c.base.layout = layout, c.base.lse = lse;
  reference::Problem& p = c.base.tensors.problem;
  p.rows = choose_rows(shape, check_rows);
  make_tables(&c, p);
  Fp8Options plain;
  plain.dtype = options.dtype, plain.dtype_k = options.dtype_k, plain.dtype_v = options.dtype_v, plain.scale_kind = ScaleKind::tensor;
  const auto judge_by = [&](const reference::Problem& seen) {
    c.base.exact = reference::attention_float64(seen);
    c.base.plain = reference::attention_fp8(seen, options);
    const Difference d = difference(reference::attention_fp8(seen, plain).o, c.base.exact.o);
    c.baseline_max = d.max, c.baseline_rms = d.rms;
  };
  if (options.rope == Rope::none) judge_by(p);
  else judge_by(reference::rotated(p, c.options, c.cos, c.sin).problem);
  return c;
}

Outcome run_chain(Device& device, Attention& attention, const ChainCase& c, const ForwardChoice& choice,
                  int repeats) {
  Outcome out;
  const reference::Tensors& t = c.base.tensors;
  const reference::Problem& p = c.base.problem();
  ForwardProblem problem = host_problem(c.base);
  problem.allow_workspace = false, problem.q_scale = problem.k_scale = problem.v_scale = {};
  std::unique_ptr<Fp8Plan> plan;
  out.status = plan_fp8_attention(attention, problem, c.options, choice, &plan);
  if (!out.status.ok()) return out;
  out.kernel = plan->kernel_name(), out.plan = plan->describe();

  const auto o_bytes = static_cast<std::size_t>(t.o_elements * reference::bytes_of(p.dtype));
  const auto lse_bytes = static_cast<std::size_t>(p.batch * p.heads_q * p.seqlen_q * 4);
  GuardedBuffer q(device, t.q.size()), k(device, t.k.size()), v(device, t.v.size()), o(device, o_bytes);
  GuardedBuffer lse(device, lse_bytes), cos(device, 4 * c.cos.size()), sin(device, 4 * c.sin.size());
  GuardedBuffer workspace(device, plan->workspace_bytes());
  out.status = first_error({q.allocate(0), k.allocate(0), v.allocate(0), o.allocate(0xff), lse.allocate(0xff),
                            cos.allocate(0), sin.allocate(0), workspace.allocate(0xff)});
  if (!out.status.ok()) return out;
  out.status = first_error({q.upload(t.q), k.upload(t.k), v.upload(t.v), cos.upload(bytes_of(c.cos)),
                            sin.upload(bytes_of(c.sin))});
  if (!out.status.ok()) return out;

  const bool fused = c.base.layout == reference::Layout::qkv, rope = c.options.rope != Rope::none;
  Fp8Pointers at;
  at.q = q.address() + static_cast<std::uint64_t>(t.q_offset);
  at.k = (fused ? q : k).address() + static_cast<std::uint64_t>(t.k_offset);
  at.v = (fused ? q : v).address() + static_cast<std::uint64_t>(t.v_offset);
  at.o = o.address(), at.lse = c.base.lse ? lse.address() : 0;
  if (rope) at.cos = cos.address(), at.sin = sin.address();
  at.workspace = workspace.address();
  out.status = plan->run(at, nullptr);
  if (out.status.ok()) out.status = device.synchronize(nullptr);
  if (!out.status.ok()) return out;

  bool o_guards = true, lse_guards = true, workspace_guards = true;
  std::vector<std::uint8_t> unused;
  out.status = first_error({o.download(&out.o_bytes, &o_guards), lse.download(&out.lse_bytes, &lse_guards),
                            workspace.download(&unused, &workspace_guards)});
  if (!out.status.ok()) return out;
  out.guards_untouched = o_guards && lse_guards && workspace_guards;
  if (!c.base.lse)
    for (std::uint8_t byte : out.lse_bytes) out.guards_untouched &= byte == 0xff;
  reference::Problem judged = p;  // by the allowance of 8 bits
  judged.dtype = c.options.dtype, judged.dtype_o = p.dtype;
  const std::vector<float> gathered = gather_o(c.base, out.o_bytes);
  out.error = reference::compare(judged, c.base.exact, c.base.plain, gathered, {});
  const bool fast = has_direct_p(out.kernel);
  check_same(c, gathered, fast, &out.error);
  check_lse(c.base, gather_lse(c.base, out.lse_bytes), lse_slack(out.kernel), &out.error);
  if (repeats > 0)
    out.status = device.time([&] { return plan->run(at, nullptr); }, 5, repeats, nullptr, &out.milliseconds);
  return out;
}

}  // namespace flashptx
