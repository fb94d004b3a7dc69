// Stand-in for the generator until gen/catalog.cpp is there: facts of the agreed parameter list, a text of one
// line. Weak, so that the real one wins wherever both are linked.
#include "gen/catalog.h"

namespace flashptx {

#define WEAK __attribute__((weak))

WEAK const char* to_string(DataType t) { return t == DataType::f16 ? "f16" : "bf16"; }
WEAK const char* to_string(Mask m) { return m == Mask::full ? "full" : "causal"; }

WEAK std::string KernelConfig::name() const {
  return std::string("attn_fwd_") + to_string(problem.dtype) + "_d" + std::to_string(problem.head_dim) + "_" +
         to_string(problem.mask) + "__q" + std::to_string(tile_q()) + "_kv" + std::to_string(plan.tile_kv) +
         (plan.dynamic_tiles ? "_dyn" : "");
}

WEAK bool KernelConfig::parse(const std::string& name, KernelConfig* out, std::string* error) {
  for (DataType t : {DataType::f16, DataType::bf16})
    for (Mask m : {Mask::full, Mask::causal})
      for (int d = 16; d <= 256; d += 16) {
        KernelConfig c;
        c.problem = {t, d, d, m};
        c.plan.tile_kv = d > 128 ? 64 : 128;
        c.plan.dynamic_tiles = m == Mask::causal;
        if (c.name() == name) return *out = c, true;
      }
  *error = "unknown";
  return false;
}

WEAK EmittedKernel emit(const KernelConfig& config) {
  EmittedKernel k;
  k.text = "// " + config.name();
  LaunchFacts& f = k.facts;
  f.entry = config.name();
  f.grid = "min(tiles, multiprocessors)";
  f.block_threads = 128 * (config.plan.warpgroups + 1);
  f.shared_bytes = 200000;
  const auto map = [&](const char* name, const char* seq, const char* heads, int rows) {
    ParamFact p;
    p.name = name;
    p.kind = ParamKind::tensor_map;
    p.dims = {"head_dim", seq, heads, "batch"};
    p.box = {64, rows, 1, 1};
    p.swizzle_bytes = 128;
    f.params.push_back(p);
  };
  map("q_map", "seqlen_q", "heads_q", 64);
  map("k_map", "seqlen_k", "heads_kv", config.plan.tile_kv);
  map("v_map", "seqlen_k", "heads_kv", config.plan.tile_kv);
  map("o_map", "seqlen_q", "heads_q", 64);
  const auto scalar = [&](const char* name, ParamKind kind) {
    ParamFact p;
    p.name = name;
    p.kind = kind;
    f.params.push_back(p);
  };
  scalar("lse", ParamKind::pointer);
  if (config.plan.dynamic_tiles) scalar("tile_counter", ParamKind::pointer);
  for (const char* n : {"seqlen_q", "seqlen_k", "heads_q", "heads_kv", "batch"}) scalar(n, ParamKind::u32);
  scalar("softmax_scale_log2", ParamKind::f32);
  if (config.problem.mask == Mask::causal) scalar("head_group", ParamKind::u32);
  return k;
}

}  // namespace flashptx
