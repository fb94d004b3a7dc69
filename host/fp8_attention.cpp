// See host/fp8_attention.h: checks and the layout of the workspace at planning, then launches in order.
// Next: host/prepare.cpp, host/attention.cpp.
#include "host/fp8_attention.h"

#include "gen/tile/key_order.h"
#include "host/refusal.h"

namespace flashptx {
namespace {

constexpr std::int64_t default_block_rows = 128;
constexpr std::size_t part_alignment = 256;  // of the workspace's parts, from its beginning

// The same refusal, of a tensor that the caller knows by another name than the preparation does.
Status named(const char* tensor, Status s) {
  if (!s.ok()) s.message = "preparation of " + std::string(tensor) + ": " + s.message;
  return s;
}

Status check_options(const ForwardProblem& p, const Fp8Options& o) {
  if (p.dtype != DataType::f16 && p.dtype != DataType::bf16)
    return unsupported("dtype is " + text(static_cast<int>(p.dtype)) + ": must be f16 or bf16, FP8 is used inside");
  for (const auto& [name, type] : {std::pair{"dtype", o.dtype}, std::pair{"dtype_k", o.type_k()}, std::pair{"dtype_v", o.type_v()}})
    if (type != DataType::e4m3 && type != DataType::e5m2)
      return unsupported("fp8 " + std::string(name) + " is " + text(static_cast<int>(type)) + ": must be e4m3 or e5m2");
  if (o.scale_kind != ScaleKind::tensor && o.scale_kind != ScaleKind::head && o.scale_kind != ScaleKind::block)
    return invalid("scale_kind is " + text(static_cast<int>(o.scale_kind)) +
                   ": must be 0 (tensor), 1 (head) or 2 (block)");
  if (o.block_rows != 0 && o.scale_kind != ScaleKind::block)
    return invalid("block_rows is " + text(o.block_rows) + ": must be 0 unless the scales are per block");
  if (o.block_rows < 0) return invalid("block_rows is " + text(o.block_rows) + ": must be >= 0");
  if (o.rope != Rope::none && o.rope != Rope::interleaved && o.rope != Rope::half)
    return invalid("rope is " + text(static_cast<int>(o.rope)) + ": must be 0 (none), 1 (interleaved) or 2 (half)");
  if (o.rope == Rope::none && (o.position_q != 0 || o.position_k != 0 || o.table_rows != 0))
    return invalid("rope is 0 while position_q, position_k or table_rows is not");
  return {};
}

// How one of Q, K, V becomes an operand: dense (batch, seqlen, heads, head_dim) of 8 bits, or V^T.
PrepareProblem prepared(const ForwardProblem& p, const Fp8Options& o, const TensorView& t, DataType type) {
  PrepareProblem r;
  r.in = p.dtype, r.out = type;
  r.batch = t.batch, r.seqlen = t.seq, r.heads = t.heads, r.head_dim = t.dim;
  r.x = t.strides, r.y = strides_bshd(t.seq, t.heads, t.dim);
  r.scale_kind = o.scale_kind;
  if (o.scale_kind == ScaleKind::block) r.block_rows = o.block_rows == 0 ? default_block_rows : o.block_rows;
  r.seed = o.seed;
  return r;
}

// V^T in one pass with the quantisation saves the kernel its transposition; Hadamard and blocks of other than 128
// rows that pass does not do.
bool one_pass_v(const ForwardProblem& p, const Fp8Options& o, const PrepareProblem& v) {
  if (o.hadamard_v || p.seqlen_k == 0) return false;
  return v.scale_kind != ScaleKind::block || v.block_rows == key_order_padding;
}

// Of the scales as the preparation lays them out: (batch, head), (batch, head, block) or one.
ScaleStrides scale_strides(const PrepareProblem& p) {
  if (p.scale_kind == ScaleKind::tensor) return {};
  if (p.scale_kind == ScaleKind::head) return {p.heads, 1, 0};
  const std::int64_t blocks = (p.seqlen + p.block_rows - 1) / p.block_rows;
  return {p.heads * blocks, blocks, p.block_rows};
}

ForwardProblem inner_problem(const ForwardProblem& p, const Fp8Options& o, const PrepareProblem& q,
                             const PrepareProblem& k, const PrepareProblem& v) {
  ForwardProblem f = p;
  f.dtype = o.dtype, f.dtype_k = o.dtype_k, f.dtype_v = o.dtype_v, f.dtype_o = p.dtype, f.fast = o.fast;
  f.softmax_scale = p.scale();
  f.q = q.y, f.k = k.y, f.v = v.y;
  f.v_transposed = v.transpose;
  if (v.transpose) f.v = strides_bhsd(v.head_dim, v.heads, f.keys_padded());
  f.allow_workspace = true;  // for V^T where V is not written so, and for parts of O
  f.q_scale_group = 1;
  f.q_scale = scale_strides(q), f.k_scale = scale_strides(k), f.v_scale = scale_strides(v);
  return f;
}

std::size_t data_bytes(const PrepareProblem& p) {
  const std::int64_t rows = p.transpose ? transposed_seqlen(p.seqlen) : p.seqlen;
  return static_cast<std::size_t>(p.batch * rows * p.heads * p.head_dim);
}

std::string recipe(const PrepareProblem& p) {
  std::string s;
  if (p.rope != Rope::none) s += "rope, ";
  if (p.hadamard != Hadamard::none) s += "hadamard, ";
  s += std::string(to_string(p.out));
  s += p.scale_kind == ScaleKind::tensor ? ", one scale"
       : p.scale_kind == ScaleKind::head ? ", a scale a head"
                                         : ", a scale each " + text(p.block_rows) + " rows";
  return s + (p.transpose ? ", transposed" : "");
}

}  // namespace

// ---- Planning

Status plan_fp8_attention(Attention& attention, const ForwardProblem& problem, const Fp8Options& o,
                          const ForwardChoice& choice, std::unique_ptr<Fp8Plan>* out) {
  Prepare& prepare = attention.prepare();
  if (Status s = check_options(problem, o); !s.ok()) return s;
  if (Status s = check_problem(problem); !s.ok()) return s;
  auto plan = std::make_unique<Fp8Plan>();
  plan->prepare_ = &prepare;
  plan->problem_ = problem;
  PrepareProblem& q = plan->q_.problem = prepared(problem, o, view_q(problem), o.dtype);
  PrepareProblem& k = plan->k_.problem = prepared(problem, o, view_k(problem), o.type_k());
  PrepareProblem& v = plan->v_.problem = prepared(problem, o, view_v(problem), o.type_v());
  for (PrepareProblem* p : {&q, &k}) {
    if (o.hadamard) p->hadamard = Hadamard::forward;
    p->rope = o.rope, p->table = o.table, p->table_rows = o.table_rows;
  }
  q.position = o.position_q, k.position = o.position_k;
  if (o.hadamard_v) v.hadamard = Hadamard::forward;
  v.transpose = one_pass_v(problem, o, v);
  plan->turns_o_ = o.hadamard_v;
  if (o.hadamard_v) {
    PrepareProblem& turn = plan->turn_o_ = prepared(problem, o, view_o(problem), o.dtype);
    turn.out = turn.in, turn.y = turn.x, turn.scale_kind = ScaleKind::head, turn.block_rows = 0;
    turn.hadamard = Hadamard::inverse;
  }

  std::size_t end = 0;
  const auto part = [&](std::size_t bytes) {
    const std::size_t at = end;
    end += (bytes + part_alignment - 1) / part_alignment * part_alignment;
    return at;
  };
  const struct {
    const char* name;
    Fp8Plan::Operand* operand;
  } operands[] = {{"Q", &plan->q_}, {"K", &plan->k_}, {"V", &plan->v_}};
  for (const auto& [name, operand] : operands) {
    if (Status s = named(name, prepare.load(operand->problem)); !s.ok()) return s;
    operand->data = part(data_bytes(operand->problem));
    operand->scales = part(4 * static_cast<std::size_t>(operand->problem.scale_count()));
    operand->amax = part(4 * static_cast<std::size_t>(operand->problem.scale_count()));
  }
  if (plan->turns_o_)
    if (Status s = named("O", prepare.load(plan->turn_o_)); !s.ok()) return s;

  const ForwardProblem inner = inner_problem(problem, o, q, k, v);
  if (Status s = attention.plan_forward(inner, choice, &plan->forward_); !s.ok()) return s;
  plan->forward_workspace_ = part(plan->forward_->workspace_bytes());
  plan->workspace_bytes_ = problem.empty() ? 0 : end;
  plan->description_ = plan->forward_->describe() + "before:  " +
                       (q.out == k.out ? "Q and K " + recipe(q) : "Q " + recipe(q) + "; K " + recipe(k)) + "; V " + recipe(v) +
                       (plan->turns_o_ ? "; O turned back after" : "") + "; workspace " +
                       std::to_string(plan->workspace_bytes_) + " bytes\n";
  *out = std::move(plan);
  return {};
}

// ---- Launching

Status Fp8Plan::check(const Fp8Pointers& at) const {
  ForwardPointers outer;
  outer.q = at.q, outer.k = at.k, outer.v = at.v, outer.o = at.o, outer.lse = at.lse;
  if (Status s = check_pointers(problem_, outer); !s.ok()) return s;
  if (at.workspace == 0)
    return invalid("workspace is a null pointer: the plan wants " + std::to_string(workspace_bytes_) + " bytes");
  if (at.workspace % 16 != 0)
    return invalid("workspace is address " + std::to_string(at.workspace) + ": must be a multiple of 16 bytes");
  const struct {
    const char* name;
    std::uint64_t address;
    bool wanted;
  } pointers[] = {{"q", at.q, true},     {"k", at.k, problem_.seqlen_k > 0}, {"v", at.v, problem_.seqlen_k > 0},
                  {"o", at.o, true},     {"lse", at.lse, at.lse != 0},
                  {"cos", at.cos, q_.problem.rope != Rope::none},           {"sin", at.sin, q_.problem.rope != Rope::none}};
  for (const auto& p : pointers) {
    if (p.wanted && p.address == 0) return invalid(std::string(p.name) + " is a null pointer");
    if (p.wanted && p.address >= at.workspace && p.address - at.workspace < workspace_bytes_)
      return invalid(std::string(p.name) + " lies inside the workspace");
  }
  for (const auto& [name, address] : {std::pair{"cos", at.cos}, std::pair{"sin", at.sin}})
    if (address != 0 && q_.problem.rope == Rope::none)
      return invalid(std::string(name) + " is given: the plan has no rope");
  return {};
}

Status Fp8Plan::prepare_operand(const Operand& operand, const char* name, std::uint64_t x, const Fp8Pointers& at,
                                Stream stream) {
  PreparePointers p;
  p.x = x, p.y = at.workspace + operand.data;
  p.scales = at.workspace + operand.scales, p.amax = at.workspace + operand.amax;
  if (operand.problem.rope != Rope::none) p.cos = at.cos, p.sin = at.sin;
  return named(name, prepare_->run(operand.problem, p, stream));
}

Status Fp8Plan::run(const Fp8Pointers& at, Stream stream) {
  if (problem_.empty()) return {};
  if (Status s = check(at); !s.ok()) return s;
  if (Status s = prepare_operand(q_, "Q", at.q, at, stream); !s.ok()) return s;
  if (Status s = prepare_operand(k_, "K", at.k, at, stream); !s.ok()) return s;
  if (Status s = prepare_operand(v_, "V", at.v, at, stream); !s.ok()) return s;
  ForwardPointers inner;
  inner.q = at.workspace + q_.data, inner.k = at.workspace + k_.data, inner.v = at.workspace + v_.data;
  inner.o = at.o, inner.lse = at.lse;
  inner.q_scale = at.workspace + q_.scales;
  if (problem_.seqlen_k > 0)
    inner.k_scale = at.workspace + k_.scales, inner.v_scale = at.workspace + v_.scales;
  if (forward_->workspace_bytes() != 0) inner.workspace = at.workspace + forward_workspace_;
  if (Status s = forward_->run(inner, stream); !s.ok() || !turns_o_) return s;
  PreparePointers turn;
  turn.x = turn.y = at.o;
  return named("O", prepare_->run(turn_o_, turn, stream));
}

}  // namespace flashptx
