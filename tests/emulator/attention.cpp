// See attention.h.
#include "tests/emulator/attention.h"

#include <algorithm>

namespace flashptx::emulator::test {

AttentionCase make_attention(const KernelConfig& c, int seqlen_q, int seqlen_k,
                             reference::Inputs inputs, int heads) {
  reference::Problem p;
  p.dtype = c.problem.dtype, p.mask = c.problem.mask;
  p.heads_q = p.heads_kv = heads;
  p.seqlen_q = seqlen_q, p.seqlen_k = seqlen_k;
  p.head_dim = c.problem.head_dim, p.head_dim_v = c.problem.head_dim_v;
  p.scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim));
  p.threads = 1;
  return make_attention(c, reference::make_tensors(p, reference::Layout::bshd, inputs, 1));
}

AttentionCase make_attention(const KernelConfig& c, reference::Tensors tensors) {
  AttentionCase out;
  out.config = c;
  out.tensors = std::move(tensors);
  out.want = reference::attention_float64(out.tensors.problem);
  return out;
}

AttentionOutcome run_attention(const AttentionCase& c, const EmulatorOptions& options,
                               const std::string& ptx) {
  std::unique_ptr<Device> device;
  REQUIRE(open_emulator(options, &device).ok());
  const reference::Problem& p = c.tensors.problem;
  ForwardPointers at;
  auto upload = [&](const std::vector<std::uint8_t>& bytes, std::uint64_t* address) {
    REQUIRE(device->allocate(bytes.size(), address).ok());
    REQUIRE(device->copy_to_device(*address, bytes.data(), bytes.size()).ok());
  };
  upload(c.tensors.q, &at.q), upload(c.tensors.k, &at.k), upload(c.tensors.v, &at.v);
  std::size_t rows = static_cast<std::size_t>(p.heads_q * p.seqlen_q),
              elements = static_cast<std::size_t>(c.tensors.o_elements);
  REQUIRE(device->allocate(elements * 2, &at.o).ok());
  REQUIRE(device->allocate(rows * 4, &at.lse).ok());
  ForwardProblem f;
  f.dtype = p.dtype, f.mask = p.mask, f.batch = 1, f.heads_q = f.heads_kv = p.heads_q;
  f.seqlen_q = p.seqlen_q, f.seqlen_k = p.seqlen_k, f.head_dim = p.head_dim,
  f.head_dim_v = p.head_dim_v, f.softmax_scale = p.scale;
  f.allow_workspace = true;
  f.q_scale = f.k_scale = f.v_scale = {p.heads_q, 1};
  f.q = {p.q_strides.batch, p.q_strides.seqlen, p.q_strides.head};
  f.k = {p.k_strides.batch, p.k_strides.seqlen, p.k_strides.head};
  f.v = {p.v_strides.batch, p.v_strides.seqlen, p.v_strides.head};
  f.o = {c.tensors.o_strides.batch, c.tensors.o_strides.seqlen, c.tensors.o_strides.head};
  AttentionOutcome out;
  if (p.eight_bit()) out.o_allowed = 0.08;
  out.lse_allowed = std::max(out.lse_allowed, reference::lse_slack_of(c.config.plan));
  Attention attention(*device);
  std::unique_ptr<ForwardPlan> plan;
  ForwardChoice choice;
  choice.kernel = c.config.name(), choice.ptx = ptx;
  out.status = attention.plan_forward(f, choice, &plan);
  if (out.status.ok() && plan->workspace_bytes() != 0)
    out.status = device->allocate(plan->workspace_bytes(), &at.workspace);
  if (out.status.ok()) out.status = plan->run(at, nullptr);
  out.line_counts = emulator_line_counts(*device);
  if (!out.status.ok()) return out;
  std::vector<std::uint16_t> o(elements);
  std::vector<float> lse(rows);
  REQUIRE(device->copy_from_device(o.data(), at.o, elements * 2).ok());
  REQUIRE(device->copy_from_device(lse.data(), at.lse, rows * 4).ok());
  auto worse = [](double& worst, double e) {
    if (!std::isnan(worst) && !(e <= worst)) worst = e;  // a NaN stays
  };
  for (std::size_t i = 0; i < elements; ++i)
    worse(out.o_error, std::fabs((p.output() == DataType::f16 ? f16_to_f32(o[i])
                                                           : bf16_to_f32(o[i])) -
                                 c.want.o[i]));
  for (std::size_t i = 0; i < rows; ++i)
    if (!(std::isinf(c.want.lse[i]) && lse[i] == static_cast<float>(c.want.lse[i])))
      worse(out.lse_error, std::fabs(lse[i] - c.want.lse[i]));
  return out;
}

}  // namespace flashptx::emulator::test
