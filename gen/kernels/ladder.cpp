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
    {Rung::fa1, "fa1_fwd",
     "FlashAttention-1: fused, copies through registers, O normalised after every block, no "
     "overlap"},
    {Rung::fa2, "fa2_fwd",
     "FlashAttention-2: mma.sync, ldmatrix, cp.async under the products, split over Q"},
};

const RungName& name_of(Rung r) {
  for (const RungName& n : rung_names)
    if (n.rung == r) return n;
  throw Error("no such rung");
}

void add(LaunchFacts& f, const char* name, ParamKind kind, const std::string& meaning,
         bool written = false) {
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
  add(f, "q", ParamKind::pointer,
      type + " (batch, seqlen_q, heads_q, " + d + ") contiguous, 16-byte aligned");
  add(f, "k", ParamKind::pointer,
      type + " (batch, seqlen_k, heads_kv, " + d + ") contiguous, 16-byte aligned");
  add(f, "v", ParamKind::pointer,
      type + " (batch, seqlen_k, heads_kv, " + d + ") contiguous, 16-byte aligned");
  add(f, "o", ParamKind::pointer, type + " (batch, seqlen_q, heads_q, " + d + ") contiguous", true);
  add(f, "lse", ParamKind::pointer,
      "fp32 (batch, heads_q, seqlen_q), natural log, -inf for a row without keys; 0 = not wanted",
      true);
  add(f, "seqlen_q", ParamKind::u32, "query rows");
  add(f, "seqlen_k", ParamKind::u32, "keys; may be 0");
  add(f, "heads_q", ParamKind::u32, "query heads, a multiple of heads_kv");
  add(f, "heads_kv", ParamKind::u32, "key/value heads");
  add(f, "softmax_scale_log2", ParamKind::f32, "softmax_scale * log2(e), > 0");
  return f;
}

// The three kernels take what they need of the same list.
LaunchFacts unfused_facts(const LadderConfig& c) {
  LaunchFacts f = fused_facts(c);
  const std::string tile_q = std::to_string(c.tile_q()), tile_kv = std::to_string(c.tile_kv());
  ParamFact scores;
  scores.name = "s", scores.kind = ParamKind::pointer,
  scores.written = c.rung != Rung::unfused_output;
  scores.meaning = std::string(to_string(c.dtype)) +
                   " (batch, heads_q, seqlen_q, seqlen_k rounded up to 8), 16-byte aligned: S, "
                   "then P in its place";
  const auto drop = [&](std::initializer_list<const char*> names) {
    for (const char* n : names)
      std::erase_if(f.params, [&](const ParamFact& p) { return p.name == n; });
  };
  if (c.rung == Rung::unfused_scores) {
    drop({"v", "o", "lse", "softmax_scale_log2"});
    f.grid = "ceil(seqlen_k / " + tile_kv + "), ceil(seqlen_q / " + tile_q + "), batch * heads_q";
  } else if (c.rung == Rung::unfused_softmax) {
    drop({"q", "k", "v", "o"});
    f.grid = "seqlen_q, batch * heads_q";
  } else {
    drop({"q", "k", "lse", "softmax_scale_log2"});
    f.grid = "ceil(seqlen_q / " + tile_q + "), batch * heads_q";
  }
  f.params.insert(f.params.begin(), scores);
  f.shared_bytes = static_cast<std::uint32_t>(unfused_shared_bytes(c));
  return f;
}

bool is_fused(Rung r) { return r == Rung::fa1 || r == Rung::fa2; }

void emit_body(Kernel& k, const LadderConfig& c) {
  switch (c.rung) {
    case Rung::unfused_scores:
      return emit_unfused_scores(k, c);
    case Rung::unfused_softmax:
      return emit_unfused_softmax(k, c);
    case Rung::unfused_output:
      return emit_unfused_output(k, c);
    default:
      return emit_fused(k, c);
  }
}

const char* ladder_ptx_name(ParamKind kind) {
  return kind == ParamKind::pointer ? "u64" : kind == ParamKind::f32 ? "f32" : "u32";
}

}  // namespace

std::string LadderConfig::name() const {
  return std::string(name_of(rung).name) + "_" + to_string(dtype) + "_d" +
         std::to_string(head_dim) + "_" + to_string(mask);
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

EmittedKernel emit_ladder(const LadderConfig& c, std::string* line_table) {
  if (c.head_dim != 64 && c.head_dim != 128) throw Error(c.name() + ": head_dim must be 64 or 128");
  if (c.dtype != DataType::bf16 && c.dtype != DataType::f16)
    throw Error(c.name() + ": dtype must be bf16 or f16");
  EmittedKernel out;
  out.facts = is_fused(c.rung) ? fused_facts(c) : unfused_facts(c);
  Kernel k(c.name());
  k.line_info(line_table != nullptr);
  k.header(c.name());
  k.header("");
  k.header(name_of(c.rung).about);
  k.header("A rung of the ladder, kept to be compared with: attn_fwd_* is what to use.");
  k.header("");
  k.header("Launch: grid (" + out.facts.grid + "), block 128, dynamic shared memory " +
           std::to_string(out.facts.shared_bytes) +
           " bytes (raise MAX_DYNAMIC_SHARED_SIZE_BYTES first).");
  for (const ParamFact& p : out.facts.params) k.header("  " + p.name + ": " + p.meaning);
  for (const ParamFact& p : out.facts.params) k.param(p.name, ladder_ptx_name(p.kind));
  emit_body(k, c);
  k.ret();
  out.text = k.text();
  if (line_table) *line_table = k.line_table();
  return out;
}

std::vector<LadderConfig> ladder_catalog() {
  std::vector<LadderConfig> all;
  for (Rung r :
       {Rung::unfused_scores, Rung::unfused_softmax, Rung::unfused_output, Rung::fa1, Rung::fa2})
    all.push_back({r, DataType::bf16, 128, Mask::full});
  return all;
}

}  // namespace flashptx
