// The list. Published figures: FlashAttention papers and blog posts, H100 SXM5, forward, head_dim 128, no mask.
#include "tools/flashptx/ladder_rungs.h"

#include <cmath>

namespace flashptx {
namespace {

// Tile and ring that all Hopper rungs share, so that one decision differs at a time.
KernelConfig hopper(const LadderShape& s, const char* schedule, bool ping_pong, bool symmetric) {
  KernelConfig c;
  c.problem = {.dtype = s.dtype, .head_dim = s.head_dim, .head_dim_v = s.head_dim, .mask = s.mask};
  c.plan.warpgroups = 2, c.plan.tile_kv = 128, c.plan.kv_stages = 2;
  c.plan.schedule = schedule, c.plan.ping_pong = ping_pong, c.plan.symmetric = symmetric;
  c.plan.take(Softmax::plain);
  return c;
}

KernelConfig ours(const LadderShape& s) {
  KernelConfig c = hopper(s, "overlap", true, false);
  c.plan = standard_plan(c.problem);
  return c;
}

// 8 bit without any of the techniques: V transposed in the kernel, since wgmma takes nothing else.
KernelConfig eight_bit(const LadderShape& s, bool all) {
  KernelConfig c = hopper(s, "serial", false, false);
  c.plan.o_own_buffer = true;  // 16 bits a value: O does not fit on Q's slice
  if (all) c.plan = standard_plan(c.problem);
  return c;
}

LadderRung earlier(const char* key, const char* name, Rung rung, double published, const char* words) {
  LadderRung r{key, name, RungGroup::before_wgmma, rung, {}, published, published, words};
  return r;
}

LadderRung later(const char* key, const char* name, RungGroup group, const KernelConfig& c, double low,
                 double high, const char* words) {
  return {key, name, group, {}, c, low, high, words};
}

}  // namespace

std::vector<LadderRung> ladder_rungs(const LadderShape& s) {
  return {
      earlier("unfused", "standard attention, 3 kernels", Rung::unfused_scores, 0, "-"),
      earlier("fa1", "FlashAttention-1", Rung::fa1, 247, "about 25 % of peak"),
      earlier("fa2", "FlashAttention-2", Rung::fa2, 350, "350, 35 % of peak"),
      later("wgmma_tma", "wgmma + TMA, all warps alike", RungGroup::hopper, hopper(s, "serial", false, true), 0, 0, "-"),
      later("specialised", "+ warp specialisation", RungGroup::hopper, hopper(s, "serial", false, false), 540, 570,
            "540 to 570"),
      later("ping_pong", "+ ping-pong", RungGroup::hopper, hopper(s, "serial", true, false), 620, 620, "620"),
      later("overlap", "+ overlap inside a warpgroup", RungGroup::hopper, hopper(s, "overlap", true, false), 640, 660,
            "640 to 660"),
      later("ours", "FlashPTX", RungGroup::ours, ours(s), 740, 740, "FlashAttention-3: 740"),
  };
}

LadderShape fp8_shape(LadderShape s) {
  s.dtype = DataType::e4m3;
  return s;
}

std::vector<LadderRung> fp8_rungs(const LadderShape& shape) {
  const LadderShape s = fp8_shape(shape);
  const char* words = "FlashAttention-3: 1250 to 1300";
  return {
      later("fp8_plain", "FP8, specialised, nothing else", RungGroup::fp8, eight_bit(s, false), 0, 0, "-"),
      later("fp8_ours", "FlashPTX in FP8", RungGroup::fp8, eight_bit(s, true), 1250, 1300, words),
  };
}

LadderShape ablation_shape() { return {DataType::f16, 128, Mask::full, 4, 8448, 16}; }

std::vector<LadderRung> ablation_rungs() {
  const LadderShape s = ablation_shape();
  const RungGroup g = RungGroup::ablation;
  return {
      later("ablation_all", "all three techniques", g, hopper(s, "overlap", true, false), 661, 661, "661"),
      later("ablation_no_overlap", "no overlap in a warpgroup", g, hopper(s, "serial", true, false), 582, 582, "582"),
      later("ablation_no_specialisation", "no specialisation", g, hopper(s, "overlap", false, true), 570, 570, "570"),
      later("ablation_no_ping_pong", "no ping-pong", g, hopper(s, "overlap", false, false), 0, 0, "-"),
      later("ablation_ours", "FlashPTX", g, ours(s), 0, 0, "-"),
  };
}

reference::Problem problem_of(const LadderShape& s) {
  reference::Problem p;
  p.dtype = s.dtype, p.mask = s.mask;
  p.batch = s.batch, p.heads_q = p.heads_kv = s.heads, p.seqlen_q = p.seqlen_k = s.seqlen;
  p.head_dim = p.head_dim_v = s.head_dim;
  p.scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  return p;
}

}  // namespace flashptx
