// The table of names behind host/arguments.h. A new kernel parameter is one field there and one row
// here.
#include "host/arguments.h"

#include <cstddef>
#include <string>

namespace flashptx {
namespace {

struct KnownArgument {
  const char* name;
  ParamKind kind;
  std::size_t offset;
};

constexpr KnownArgument known_arguments[] = {
    {"q_map", ParamKind::tensor_map, offsetof(ForwardArguments, q_map)},
    {"k_map", ParamKind::tensor_map, offsetof(ForwardArguments, k_map)},
    {"v_map", ParamKind::tensor_map, offsetof(ForwardArguments, v_map)},
    {"o_map", ParamKind::tensor_map, offsetof(ForwardArguments, o_map)},
    {"v_rows_map", ParamKind::tensor_map, offsetof(ForwardArguments, v_rows_map)},
    {"vt_store_map", ParamKind::tensor_map, offsetof(ForwardArguments, vt_store_map)},
    {"lse", ParamKind::pointer, offsetof(ForwardArguments, lse)},
    {"tile_counter", ParamKind::pointer, offsetof(ForwardArguments, tile_counter)},
    {"v_flags", ParamKind::pointer, offsetof(ForwardArguments, v_flags)},
    {"seqlen_q", ParamKind::u32, offsetof(ForwardArguments, seqlen_q)},
    {"seqlen_k", ParamKind::u32, offsetof(ForwardArguments, seqlen_k)},
    {"heads_q", ParamKind::u32, offsetof(ForwardArguments, heads_q)},
    {"heads_kv", ParamKind::u32, offsetof(ForwardArguments, heads_kv)},
    {"batch", ParamKind::u32, offsetof(ForwardArguments, batch)},
    {"tail_first", ParamKind::u32, offsetof(ForwardArguments, tail_first)},
    {"tail_parts", ParamKind::u32, offsetof(ForwardArguments, tail_parts)},
    {"tail_blocks", ParamKind::u32, offsetof(ForwardArguments, tail_blocks)},
    {"tail_partials", ParamKind::pointer, offsetof(ForwardArguments, tail_partials)},
    {"tail_arrivals", ParamKind::pointer, offsetof(ForwardArguments, tail_arrivals)},
    {"head_group", ParamKind::u32, offsetof(ForwardArguments, head_group)},
    {"softmax_scale_log2", ParamKind::f32, offsetof(ForwardArguments, softmax_scale_log2)},
    {"q_scale", ParamKind::pointer, offsetof(ForwardArguments, q_scale)},
    {"k_scale", ParamKind::pointer, offsetof(ForwardArguments, k_scale)},
    {"v_scale", ParamKind::pointer, offsetof(ForwardArguments, v_scale)},
    {"q_scale_batch", ParamKind::u32, offsetof(ForwardArguments, q_scale_batch)},
    {"q_scale_head", ParamKind::u32, offsetof(ForwardArguments, q_scale_head)},
    {"k_scale_batch", ParamKind::u32, offsetof(ForwardArguments, k_scale_batch)},
    {"k_scale_head", ParamKind::u32, offsetof(ForwardArguments, k_scale_head)},
    {"v_scale_batch", ParamKind::u32, offsetof(ForwardArguments, v_scale_batch)},
    {"v_scale_head", ParamKind::u32, offsetof(ForwardArguments, v_scale_head)},
    {"q_scale_group", ParamKind::u32, offsetof(ForwardArguments, q_scale_group)},
    {"q_scale_rows", ParamKind::u32, offsetof(ForwardArguments, q_scale_rows)},
    {"k_scale_rows", ParamKind::u32, offsetof(ForwardArguments, k_scale_rows)},
    {"v_scale_rows", ParamKind::u32, offsetof(ForwardArguments, v_scale_rows)},
    {"trace", ParamKind::pointer, offsetof(ForwardArguments, trace)},
    {"trace_capacity", ParamKind::u32, offsetof(ForwardArguments, trace_capacity)},
};

bool same_kind(ParamKind wanted, ParamKind have) {
  if (wanted == ParamKind::u64) wanted = ParamKind::pointer;  // an address, either way
  return wanted == have;
}

}  // namespace

Status bind(const LaunchFacts& facts, Binding* out) {
  if (facts.params.size() > Binding::max_params)
    return Status::error(StatusCode::internal, "kernel " + facts.entry + " has " +
                                                   std::to_string(facts.params.size()) +
                                                   " parameters: the host passes at most " +
                                                   std::to_string(Binding::max_params));
  *out = {};
  for (const ParamFact& p : facts.params) {
    const KnownArgument* found = nullptr;
    for (const KnownArgument& k : known_arguments)
      if (p.name == k.name) found = &k;
    if (found == nullptr)
      return Status::error(StatusCode::internal, "kernel " + facts.entry + " has a parameter '" +
                                                     p.name + "' that the host does not know");
    if (!same_kind(p.kind, found->kind))
      return Status::error(StatusCode::internal, "kernel " + facts.entry + " declares parameter '" +
                                                     p.name +
                                                     "' with a kind that the host does not pass");
    out->offset[out->count++] = static_cast<std::uint16_t>(found->offset);
    if (p.name == "tile_counter") out->tile_counter = true;
    if (p.name == "tail_arrivals") out->tail = true;
    if (p.name == "v_flags") out->v_flags = true;
  }
  return {};
}

}  // namespace flashptx
