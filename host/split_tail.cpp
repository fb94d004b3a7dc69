// See host/split_tail.h.
#include "host/split_tail.h"

#include <algorithm>

#include "gen/kernels/attention_forward.h"

namespace flashptx {
namespace {

// Clocks that a tile's key block takes, a quarter more than what binds: tensor cores (4096 16-bit, 8192 8-bit
// operations a clock) or exponentials (16 a clock).
std::int64_t block_clocks(const KernelConfig& c) {
  const std::int64_t scores = std::int64_t{c.tile_q()} * c.plan.tile_kv;
  const std::int64_t tensor = scores * 2 * (c.problem.head_dim + c.problem.head_dim_v) / (c.problem.eight_bit() ? 8192 : 4096);
  return std::max(tensor, scores / 16) * 5 / 4;
}

// What a second part costs beside its blocks: Q, the first product and softmax without overlap, its store.
constexpr std::int64_t part_clocks = 6000;
// What the last wave must become shorter by: O is written and read in fp32 and weighed, by code that nobody has run before.
// From the time of one sequence of 1k at head_dim 256 (H200, 64 tiles, 7 of 16 blocks handed over, 8 % slower): some 20,000.
constexpr std::int64_t merge_clocks = 24000;

}  // namespace

std::int64_t forward_tiles(const ForwardProblem& p, const KernelConfig& c) {
  const __int128 tiles = static_cast<__int128>((p.seqlen_q + c.tile_q() - 1) / c.tile_q()) * p.heads_q * p.batch;
  return static_cast<std::int64_t>(std::min<__int128>(tiles, INT64_MAX));
}

// `cut` tiles are left for the last wave and `idle` CTAs without one. Each of these takes `parts` second parts; the
// shares are equal where blocks = parts * (all - blocks + overhead).
SplitTail split_tail(const ForwardProblem& p, const KernelConfig& c, std::int64_t ctas, bool always) {
  if (c.problem.mask != Mask::full || ctas < 2) return {};
  const std::int64_t tiles = forward_tiles(p, c), cut = tiles % ctas, idle = ctas - cut;
  const std::int64_t all = (p.seqlen_k + c.plan.tile_kv - 1) / c.plan.tile_kv;
  if (cut == 0 || cut > most_cut_tiles || all < 2) return {};
  const std::int64_t clocks = block_clocks(c), overhead = always ? 0 : (part_clocks + clocks - 1) / clocks;
  const std::int64_t parts = (cut + idle - 1) / idle;
  if (parts > most_parts) return {};
  const std::int64_t blocks = (parts * (all + overhead) + parts) / (parts + 1);
  if (blocks >= all || (!always && (all - blocks) * clocks < merge_clocks)) return {};
  SplitTail out;
  out.first = static_cast<std::uint32_t>(tiles - cut);
  out.parts = static_cast<std::uint32_t>(parts);
  out.blocks = static_cast<std::uint32_t>(blocks);
  out.grid = static_cast<std::uint32_t>(tiles > cut ? ctas : cut + (cut + parts - 1) / parts);
  out.workspace_bytes = static_cast<std::size_t>(2 * cut * c.tile_q() * (c.problem.head_dim_v + 2) * 4);
  return out;
}

bool let_split_tail(const ForwardProblem& p, std::int64_t ctas, KernelConfig* config) {
  // Spilled 56 bytes; the producer has more registers since, and its time has not been measured.
  if (config->problem.eight_bit() && !config->problem.v_transposed && config->problem.head_dim_v > 128) return false;
  // With overlap 32 to 112 bytes.
  if (config->problem.eight_bit() && config->problem.head_dim_v > std::max(192, config->problem.head_dim)) return false;
  if (split_tail(p, *config, ctas).parts == 0) return false;
  KernelConfig cut = *config;
  cut.plan.split_tail = true;
  if (!gen::check_forward(cut).empty()) return false;
  *config = cut;
  return true;
}

}  // namespace flashptx
