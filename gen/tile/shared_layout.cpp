// The shared-memory map of the forward kernel.
#include <algorithm>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

SharedLayout::SharedLayout(const KernelConfig& config) {
  const Plan& plan = config.plan;
  const ProblemClass& problem = config.problem;
  slab_columns = problem.eight_bit() ? 128 : 64;
  slabs_qk = (problem.head_dim + slab_columns - 1) / slab_columns;
  slabs_o = (problem.head_dim_v + 63) / 64;
  slab_bytes_kv = plan.tile_kv * 128;
  slabs_v = slabs_o;
  slab_bytes_v = slab_bytes_kv;
  if (problem.eight_bit()) {  // V^T: rows are columns of V, 128 keys in 128 bytes; 64 keys leave half of each row empty
    slabs_v = (plan.tile_kv + 127) / 128;
    slab_bytes_v = (problem.head_dim_v + (plan.p_sums ? kSumColumns : 0)) * 128;
  }
  q_slice_bytes = slabs_qk * slab_bytes_q;
  k_stage_bytes = slabs_qk * slab_bytes_kv;
  v_stage_bytes = slabs_v * slab_bytes_v;
  int at = 0;
  auto take = [&at](int bytes) {
    int here = at;
    at += bytes;
    return here;
  };
  q = take(plan.q_stages * plan.warpgroups * q_slice_bytes);
  k = take(plan.kv_stages * k_stage_bytes);
  v = take(plan.v_ring() * v_stage_bytes);
  if (problem.eight_bit() && !problem.v_transposed) {
    raw_stage_bytes = plan.tile_kv * 128;
    raw_slabs = (problem.head_dim_v + 127) / 128;
    raw_stages = plan.tile_kv < 128 ? 4 : 2;  // 64 keys: + 0.5 to 1 % over two
    raw = take(raw_stages * raw_stage_bytes);
  }
  if (plan.v_background) {
    unit_raw = take(128 * 128);
    unit_vt = take(std::clamp(problem.head_dim_v, 48, 128) * 128);  // three warps take 16 columns at a time
  }
  o = q;
  o_slabs = slabs_o;
  if (plan.o_own_buffer) {
    // As many slabs a warp as fit; the store then goes in that many columns a pass.
    int room = (kMaxDynamicBytes - 1023) / plan.teams - kBarrierBytes - at;
    while (o_slabs > 1 && plan.warpgroups * o_slabs * slab_bytes_q > room) o_slabs = (o_slabs + 1) / 2;
    o = take(plan.warpgroups * o_slabs * slab_bytes_q);
  }
  tile_slot = take(2 * 16);
  if (plan.v_background) unit_slot = take(2 * 16), complete_head = take(16);
  if (plan.split_tail) tile_part = take(2 * 8);
  if (problem.eight_bit()) tile_scales = take(2 * 8);
  if (problem.scale_rows) block_scales = take((plan.kv_stages * 8 * (plan.tile_kv / problem.scale_rows) + 15) / 16 * 16);
  if (plan.softmax == Softmax::guarded) {
    redo_tiles = take(16 * kRedoSlots);
    redo_mask = take(16);
    if (plan.split_tail) redo_parts = take(4 * kRedoSlots);
    if (plan.cluster > 1) peer_done = take(8);
  }
  if (plan.cluster > 1 && plan.dynamic_tiles) drawn_tile = take(2 * 8), drawn_full = take(2 * 8), drawn_empty = take(2 * 8);
  q_full = take(8 * plan.q_stages * plan.warpgroups);
  q_empty = take(8 * plan.q_stages * plan.warpgroups);
  k_full = take(8 * plan.kv_stages);
  k_empty = take(8 * plan.kv_stages);
  v_full = take(8 * plan.v_ring());
  v_empty = take(8 * plan.v_ring());
  if (raw_stages) {
    raw_full = take(8 * raw_stages);
    raw_empty = take(8 * raw_stages);
    raw_kind = take(8 * raw_stages);
  }
  if (plan.v_background) unit_full = take(8);
  tile_full = take(16);
  tile_empty = take(16);
  end = at;
  team_bytes = (end + 1023) / 1024 * 1024;
  all_teams = (plan.teams - 1) * team_bytes + end;
}

SharedLayout SharedLayout::of_team(int team) const {
  SharedLayout m = *this;
  for (int* at : {&m.q_full, &m.q_empty, &m.k_full, &m.k_empty, &m.v_full, &m.v_empty, &m.raw_full, &m.raw_empty, &m.unit_full, &m.tile_full, &m.tile_empty, &m.redo_mask, &m.peer_done})
    if (*at) *at += team * team_bytes;
  return m;
}

}  // namespace flashptx::gen
