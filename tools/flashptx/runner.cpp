// Upload, plan, launch, download, compare. Next: run_command.cpp.
#include "tools/flashptx/runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tools/reference/numeric.h"

namespace flashptx {
namespace {

constexpr std::uint8_t guard_byte = 0xA5;

// About 10 GFLOP/s and core is what the float64 reference does: this is some seconds on two cores.
constexpr double reference_flops = 3e10;

flashptx::Strides host_strides(const reference::Strides& s) { return {s.batch, s.seqlen, s.head}; }

}  // namespace

std::vector<std::int64_t> choose_rows(const reference::Problem& p, std::int64_t check_rows) {
  std::int64_t wanted = check_rows;
  if (wanted == 0) {
    const double per_row = 2.0 * static_cast<double>(p.batch * p.heads_q * p.seqlen_k) *
                           (p.head_dim + p.head_dim_v);
    wanted = std::max<std::int64_t>(64, static_cast<std::int64_t>(reference_flops / std::max(per_row, 1.0)));
  }
  if (wanted >= p.seqlen_q) return {};
  std::vector<std::int64_t> rows;
  // Evenly spread, first and last included.
  for (std::int64_t i = 0; i < wanted; ++i)
    rows.push_back(wanted == 1 ? p.seqlen_q - 1 : i * (p.seqlen_q - 1) / (wanted - 1));
  return rows;
}

std::vector<float> gather_o(const Case& c, const std::vector<std::uint8_t>& bytes) {
  const reference::Problem& p = c.problem();
  const reference::Strides& s = c.tensors.o_strides;
  std::vector<float> o(c.exact.o.size());
  reference::parallel_for(p.batch * p.row_count(), 0, [&](std::int64_t i) {
    const std::int64_t b = i / p.row_count(), r = i % p.row_count();
    for (std::int64_t h = 0; h < p.heads_q; ++h)
      reference::load_row(p.output(), bytes.data(), b * s.batch + p.row(r) * s.seqlen + h * s.head, p.head_dim_v,
                          &o[static_cast<std::size_t>((i * p.heads_q + h) * p.head_dim_v)]);
  });
  return o;
}

std::vector<float> gather_lse(const Case& c, const std::vector<std::uint8_t>& bytes) {
  const reference::Problem& p = c.problem();
  std::vector<float> lse;
  if (!c.lse) return lse;
  for (std::int64_t pair = 0; pair < p.batch * p.heads_q; ++pair)
    for (std::int64_t r = 0; r < p.row_count(); ++r) {
      float value = 0;
      std::memcpy(&value, bytes.data() + (pair * p.seqlen_q + p.row(r)) * 4, 4);
      lse.push_back(value);
    }
  return lse;
}

Status first_error(std::initializer_list<Status> all) {
  for (const Status& s : all)
    if (!s.ok()) return s;
  return {};
}

Case make_case(const reference::Problem& shape, reference::Layout layout, reference::Inputs inputs,
               std::uint64_t seed, bool lse, std::int64_t check_rows) {
  return make_case(reference::make_tensors(shape, layout, inputs, seed), layout, lse, check_rows);
}

Case make_case(reference::Tensors tensors, reference::Layout layout, bool lse, std::int64_t check_rows) {
  Case c;
  c.tensors = std::move(tensors);
  c.tensors.problem.rows = choose_rows(c.problem(), check_rows);
  c.layout = layout;
  c.lse = lse;
  c.exact = reference::attention_float64(c.tensors.problem);
  c.plain = reference::attention_plain(c.tensors.problem);
  return c;
}

ForwardProblem host_problem(const Case& c) {
  const reference::Problem& p = c.problem();
  ForwardProblem f;
  f.dtype = p.dtype, f.dtype_k = p.dtype_k, f.dtype_v = p.dtype_v, f.dtype_o = p.dtype_o, f.mask = p.mask;
  f.batch = p.batch, f.heads_q = p.heads_q, f.heads_kv = p.heads_kv;
  f.seqlen_q = p.seqlen_q, f.seqlen_k = p.seqlen_k;
  f.head_dim = p.head_dim, f.head_dim_v = p.head_dim_v;
  f.softmax_scale = p.scale, f.fast = c.fast;
  f.allow_workspace = true;
  const auto scale_strides = [](std::int64_t heads, std::int64_t rows, std::int64_t block) {
    const std::int64_t blocks = block ? (rows + block - 1) / block : 1;
    return flashptx::ScaleStrides{heads * blocks, blocks, block};
  };
  f.q_scale = scale_strides(p.heads_q, p.seqlen_q, c.q_block), f.k_scale = scale_strides(p.heads_kv, p.seqlen_k, c.k_block);
  f.v_scale = scale_strides(p.heads_kv, p.seqlen_k, c.v_block);
  f.q = host_strides(p.q_strides), f.k = host_strides(p.k_strides), f.v = host_strides(p.v_strides);
  f.o = host_strides(c.tensors.o_strides);
  return f;
}

double flops(const reference::Problem& p) {
  const double all = 2.0 * static_cast<double>(p.seqlen_q) * static_cast<double>(p.seqlen_k) *
                     static_cast<double>(p.head_dim + p.head_dim_v) * static_cast<double>(p.heads_q * p.batch);
  return p.mask == Mask::causal ? all / 2 : all;
}

bool has_direct_p(const std::string& kernel) {
  KernelConfig config;
  return KernelConfig::parse(kernel, &config, nullptr) && config.plan.direct_of_16 != 0;
}

double lse_slack(const std::string& kernel) {
  KernelConfig config;
  return KernelConfig::parse(kernel, &config, nullptr) ? reference::lse_slack_of(config.plan) : 0;
}

std::string Outcome::complaint() const {
  if (!status.ok()) return status.message;
  if (!guards_untouched) return "bytes beside O, LSE or the workspace were overwritten";
  return error.first_failure;
}

Outcome run_case(Device& device, Attention& attention, const Case& c, const ForwardChoice& choice, int repeats) {
  Outcome out;
  const reference::Tensors& t = c.tensors;
  const reference::Problem& p = c.problem();
  std::unique_ptr<ForwardPlan> plan;
  out.status = attention.plan_forward(host_problem(c), choice, &plan);
  if (!out.status.ok()) return out;
  out.kernel = plan->kernel_name(), out.plan = plan->describe();

  const auto o_bytes = static_cast<std::size_t>(t.o_elements * reference::bytes_of(p.output()));
  const auto lse_bytes = static_cast<std::size_t>(p.batch * p.heads_q * p.seqlen_q * 4);
  GuardedBuffer q(device, t.q.size()), k(device, t.k.size()), v(device, t.v.size());
  GuardedBuffer o(device, o_bytes), lse(device, lse_bytes);
  out.status = first_error({q.allocate(0), k.allocate(0), v.allocate(0), o.allocate(0xff), lse.allocate(0xff)});
  if (!out.status.ok()) return out;
  out.status = first_error({q.upload(t.q), k.upload(t.k), v.upload(t.v)});
  if (!out.status.ok()) return out;

  const bool fused = c.layout == reference::Layout::qkv;
  ForwardPointers at;
  at.q = q.address() + static_cast<std::uint64_t>(t.q_offset);
  at.k = (fused ? q : k).address() + static_cast<std::uint64_t>(t.k_offset);
  at.v = (fused ? q : v).address() + static_cast<std::uint64_t>(t.v_offset);
  at.o = o.address();
  at.lse = c.lse ? lse.address() : 0;
  GuardedBuffer scales[] = {{device, 4 * c.q_scale.size()}, {device, 4 * c.k_scale.size()}, {device, 4 * c.v_scale.size()}};
  for (int i = 0; i < 3; ++i) {
    const std::vector<float>& given = i == 0 ? c.q_scale : i == 1 ? c.k_scale : c.v_scale;
    if (given.empty()) continue;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(given.data());
    if (out.status = scales[i].allocate(0); !out.status.ok()) return out;
    if (out.status = scales[i].upload({bytes, bytes + 4 * given.size()}); !out.status.ok()) return out;
    (i == 0 ? at.q_scale : i == 1 ? at.k_scale : at.v_scale) = scales[i].address();
  }
  GuardedBuffer workspace(device, plan->workspace_bytes());
  if (plan->workspace_bytes() != 0) {
    if (out.status = workspace.allocate(0xff); !out.status.ok()) return out;
    at.workspace = workspace.address();
  }
  out.status = plan->run(at, nullptr);
  if (out.status.ok()) out.status = device.synchronize(nullptr);
  if (!out.status.ok()) return out;

  bool o_guards = true, lse_guards = true, workspace_guards = true;
  std::vector<std::uint8_t> unused;
  out.status = first_error({o.download(&out.o_bytes, &o_guards), lse.download(&out.lse_bytes, &lse_guards)});
  if (out.status.ok() && at.workspace != 0) out.status = workspace.download(&unused, &workspace_guards);
  if (!out.status.ok()) return out;
  out.guards_untouched = o_guards && lse_guards && workspace_guards;
  if (!c.lse)  // not asked for, so not to be written
    for (std::uint8_t byte : out.lse_bytes) out.guards_untouched &= byte == 0xff;
  reference::Problem judged = p;
  judged.direct_p = has_direct_p(out.kernel), judged.lse_slack = lse_slack(out.kernel);
  out.error = reference::compare(judged, c.exact, c.plain, gather_o(c, out.o_bytes), gather_lse(c, out.lse_bytes));
  if (repeats > 0)
    out.status = device.time([&] { return plan->run(at, nullptr); }, 5, repeats, nullptr, &out.milliseconds);
  return out;
}

GuardedBuffer::~GuardedBuffer() {
  if (base_ != 0) device_.free(base_);
}

Status GuardedBuffer::allocate(std::uint8_t fill) {
  const std::size_t all = bytes_ + 2 * guard_bytes;
  Status s = device_.allocate(all, &base_);
  if (s.ok()) s = device_.fill(base_, guard_byte, all, nullptr);
  if (s.ok() && bytes_ > 0) s = device_.fill(address(), fill, bytes_, nullptr);
  if (s.ok()) s = device_.synchronize(nullptr);
  return s;
}

Status GuardedBuffer::upload(const std::vector<std::uint8_t>& bytes) {
  return bytes.empty() ? Status{} : device_.copy_to_device(address(), bytes.data(), bytes.size());
}

Status GuardedBuffer::download(std::vector<std::uint8_t>* bytes, bool* guards_untouched) {
  std::vector<std::uint8_t> all(bytes_ + 2 * guard_bytes);
  const Status s = device_.copy_from_device(all.data(), base_, all.size());
  if (!s.ok()) return s;
  const auto is_guard = [](std::uint8_t b) { return b == guard_byte; };
  *guards_untouched = std::all_of(all.begin(), all.begin() + guard_bytes, is_guard) &&
                      std::all_of(all.end() - guard_bytes, all.end(), is_guard);
  bytes->assign(all.begin() + guard_bytes, all.end() - guard_bytes);
  return {};
}

}  // namespace flashptx
