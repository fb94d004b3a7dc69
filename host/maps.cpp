// See host/maps.h.
#include "host/maps.h"

#include <algorithm>

namespace flashptx {
namespace {

struct Extent {
  std::int64_t extent = 0;
  std::int64_t stride_elems = 0;
};

// One of the names that ParamFact.dims may use, for the tensor `t`.
bool evaluate(const std::string& formula, const TensorView& t, bool transposed, Extent* out) {
  if (formula == "keys_padded") *out = {t.dim, 1};
  else if (formula == "head_dim_v" && transposed) *out = {t.seq, t.strides.seq};
  else if (formula == "head_dim" || formula == "head_dim_v") *out = {t.dim, 1};
  else if (formula == "seqlen_q" || formula == "seqlen_k") *out = {t.seq, t.strides.seq};
  else if (formula == "heads_q" || formula == "heads_kv") *out = {t.heads, t.strides.head};
  else if (formula == "batch") *out = {t.batch, t.strides.batch};
  else return false;
  return true;
}

Status describe_one(const ParamFact& fact, const TensorView& t, DataType dtype, TensorMapDesc* d) {
  const auto fail = [&](const std::string& why) {
    return Status::error(StatusCode::internal, "kernel parameter '" + fact.name + "' " + why);
  };
  if (fact.dims.size() < 2 || fact.dims.size() > 5 || fact.box.size() != fact.dims.size())
    return fail("must give 2 to 5 dims and a box of the same rank");
  d->name = t.name;
  d->type = element_type(dtype);
  d->rank = static_cast<int>(fact.dims.size());
  d->swizzle_bytes = fact.swizzle_bytes;
  // A dimension of extent 1 is never stepped over, whatever its stride says; give it one that TMA
  // takes.
  const std::int64_t size = element_bytes(dtype);
  const std::int64_t legal = (t.dim * size + 15) / 16 * 16;
  for (int i = 0; i < d->rank; ++i) {
    Extent e;
    if (!evaluate(fact.dims[i], t, fact.dims[0] == "keys_padded", &e)) return fail("has a dimension '" + fact.dims[i] + "'");
    if (i == 0 && e.stride_elems != 1) return fail("must have head_dim innermost");
    d->dims[i] = static_cast<std::uint64_t>(std::max<std::int64_t>(1, e.extent));
    d->box[i] = static_cast<std::uint32_t>(fact.box[i]);
    if (i > 0)
      d->stride_bytes[i - 1] =
          static_cast<std::uint64_t>(e.extent <= 1 ? legal : e.stride_elems * size);
  }
  return {};
}

// K or V when there are no keys: the smallest legal view, so that it may point at O.
TensorView without_keys(TensorView t) {
  t.batch = t.seq = t.heads = 1;
  return t;
}

Status describe_named(const char* name, const TensorView& view, DataType type, const LaunchFacts& facts, TensorMapDesc* desc) {
  const auto fact = std::find_if(facts.params.begin(), facts.params.end(),
                                 [&](const ParamFact& f) { return f.name == name; });
  if (fact == facts.params.end())
    return Status::error(StatusCode::internal, "kernel " + facts.entry + " has no parameter '" + name + "'");
  if (Status s = describe_one(*fact, view, type, desc); !s.ok()) return s;
  TensorMapDesc probe = *desc;
  probe.address = 16;  // any legal address: the others are checked now rather than at the first call
  return check_tensor_map(probe);
}

}  // namespace

Status describe_maps(const ForwardProblem& p, const LaunchFacts& facts, TensorMapDesc descs[4]) {
  const char* const names[] = {"q_map", "k_map", "v_map", "o_map"};
  TensorView views[] = {view_q(p), view_k(p), view_v(p), view_o(p)};
  if (p.seqlen_k == 0) {
    views[1] = without_keys(views[1]);
    views[2] = without_keys(views[2]);
  }
  const DataType types[] = {p.dtype, p.type_k(), p.type_v(), p.output()};
  for (int i = 0; i < 4; ++i)
    if (Status s = describe_named(names[i], views[i], types[i], facts, &descs[i]); !s.ok()) return s;
  return {};
}

Status describe_background_maps(const ForwardProblem& rows, const ForwardProblem& p, const LaunchFacts& facts, TensorMapDesc descs[2]) {
  TensorView from = view_v(rows), to = view_v(p);
  if (p.seqlen_k == 0) from = without_keys(from), to = without_keys(to);
  if (Status s = describe_named("v_rows_map", from, p.type_v(), facts, &descs[0]); !s.ok()) return s;
  return describe_named("vt_store_map", to, p.type_v(), facts, &descs[1]);
}

}  // namespace flashptx
