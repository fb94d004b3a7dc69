// Names, parameters and headers of the ladder's kernels.
// Next: fused_mma_sync.cpp.
#include "gen/kernels/ladder.h"

#include "gen/kernels/ladder_kernels.h"

namespace flashptx {
namespace {

using namespace gen;

struct RungName {
  Rung rung;
  const char* name;
  const char* about;
};
constexpr RungName rung_names[] = {
    {Rung::unfused_scores, "unfused_scores", "S = Q K^T, written to memory"},
    {Rung::unfused_softmax, "unfused_softmax", "P = softmax(S), from memory to memory"},
    {Rung::unfused_output, "unfused_output", "O = P V, P read from memory"},
    {Rung::fa1, "fa1_fwd", "FlashAttention-1: fused, copies through registers, O normalised after every block, no overlap"},
    {Rung::fa2, "fa2_fwd", "FlashAttention-2: mma.sync, ldmatrix, cp.async under the products, split over Q"},
};

const RungName& name_of(Rung r) {
  for (const RungName& n : rung_names)
    if (n.rung == r) return n;
  throw Error("no such rung");
}

void add(LaunchFacts& f, const char* name, ParamKind kind, const std::string& meaning, bool written = false) {
  ParamFact p;
  p.name = name, p.kind = kind, p.meaning = meaning, p.written = written;
  f.params.push_back(p);
}

LaunchFacts fused_facts(const LadderConfig& c) {
  LaunchFacts f;
  f.entry = c.name();
  f.grid = "ceil(seqlen_q / " + std::to_string(c.tile_q()) + "), heads_q, batch";
  f.block_threads = 128;
  f.shared_bytes = static_cast<std::uint32_t>(fused_shared_bytes(c));
  f.ptx_version = "7.8";
  f.driver_min = "520 (CUDA 11.8)";
  const std::string type = to_string(c.dtype), d = std::to_string(c.head_dim);
  add(f, "q", ParamKind::pointer, type + " (batch, seqlen_q, heads_q, " + d + ") contiguous, 16-byte aligned");
  add(f, "k", ParamKind::pointer, type + " (batch, seqlen_k, heads_kv, " + d + ") contiguous, 16-byte aligned");
  add(f, "v", ParamKind::pointer, type + " (batch, seqlen_k, heads_kv, " + d + ") contiguous, 16-byte aligned");
  add(f, "o", ParamKind::pointer, type + " (batch, seqlen_q, heads_q, " + d + ") contiguous", true);
  add(f, "lse", ParamKind::pointer, "fp32 (batch, heads_q, seqlen_q), natural log, -inf for a row without keys; 0 = not wanted", true);
  add(f, "seqlen_q", ParamKind::u32, "query rows");
  add(f, "seqlen_k", ParamKind::u32, "keys; may be 0");
  add(f, "heads_q", ParamKind::u32, "query heads, a multiple of heads_kv");
  add(f, "heads_kv", ParamKind::u32, "key/value heads");
  add(f, "softmax_scale_log2", ParamKind::f32, "softmax_scale * log2(e), > 0");
  return f;
}

const char* ptx_name(ParamKind kind) { return kind == ParamKind::pointer ? "u64" : kind == ParamKind::f32 ? "f32" : "u32"; }

}  // namespace

std::string LadderConfig::name() const {
  return std::string(name_of(rung).name) + "_" + to_string(dtype) + "_d" + std::to_string(head_dim) + "_" + to_string(mask);
}

bool LadderConfig::parse(const std::string& name, LadderConfig* out) {
  for (const RungName& n : rung_names)
    for (DataType t : {DataType::bf16, DataType::f16})
      for (int d : {64, 128})
        for (Mask m : {Mask::full, Mask::causal}) {
          const LadderConfig c{n.rung, t, d, m};
          if (c.name() == name) return *out = c, true;
        }
  return false;
}

EmittedKernel emit_ladder(const LadderConfig& c) {
  if (c.rung != Rung::fa1 && c.rung != Rung::fa2) throw Error(c.name() + ": this rung has no kernel yet");
  if (c.head_dim != 64 && c.head_dim != 128) throw Error(c.name() + ": head_dim must be 64 or 128");
  if (c.dtype != DataType::bf16 && c.dtype != DataType::f16) throw Error(c.name() + ": dtype must be bf16 or f16");
  EmittedKernel out;
  out.facts = fused_facts(c);
  Kernel k(c.name());
  k.header(c.name());
  k.header("");
  k.header(name_of(c.rung).about);
  k.header("A rung of the ladder, kept to be compared with: attn_fwd_* is what to use.");
  k.header("");
  k.header("Launch: grid (" + out.facts.grid + "), block 128, dynamic shared memory " + std::to_string(out.facts.shared_bytes) +
           " bytes (raise MAX_DYNAMIC_SHARED_SIZE_BYTES first).");
  for (const ParamFact& p : out.facts.params) k.header("  " + p.name + ": " + p.meaning);
  for (const ParamFact& p : out.facts.params) k.param(p.name, ptx_name(p.kind));
  emit_fused(k, c);
  k.ret();
  out.text = k.text();
  return out;
}

std::vector<LadderConfig> ladder_catalog() {
  std::vector<LadderConfig> all;
  for (Rung r : {Rung::fa1, Rung::fa2}) all.push_back({r, DataType::bf16, 128, Mask::full});
  return all;
}

}  // namespace flashptx
