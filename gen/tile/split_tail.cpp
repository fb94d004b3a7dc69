// The last, incomplete wave of tiles, cut along the keys so that every CTA has something to do in it.
//
// With 1024 tiles for 132 CTAs (head_dim 256, 16,384 tokens) the eighth wave has 100 tiles and 32 CTAs stand idle: 3 % of
// the time; with 1376 (head_dim 128, 192 rows) 5 %. Tiles from tail_first on are therefore computed in two parts: the
// last tail_blocks key blocks by CTA tile - tail_first, the others by a CTA that has no first part, which takes
// tail_parts of those. Either leaves its rows of O (normalised, fp32, as the threads hold them), of each its reference m
// (log2 units) and its sum s of 2^(score - m) in global memory and says so, warp by warp; the second of the two to do so
// weighs and stores at its CTA's end: O = (w_0 O_0 + w_1 O_1) / (w_0 + w_1), w_i = s_i 2^(m_i - max(m_0, m_1))
// (flash-decoding's combination; FlashAttention-2, section 3.1). Not by LSE alone: next to a large maximum fp32 forgets the sum.
// Nobody waits for anybody, so no order of CTAs can hang, and the formula does not ask who was second, so that O is the
// same bits in every run. How many blocks go where: host/split_tail.cpp.
//
// By count (blocks handed over as a share of all waves, less 8 us for the merge) and as measured on an H200 in turns with the
// kernel that does not cut (bf16, full, 4k / 8k / 16k, three starts of the machine): head_dim 128 1.5 / 3.8 / 4.2 % and 1.0 to 1.6 /
// 4.0 to 4.4 / 4.4 to 4.8 %, 64 0.6 / 1.4 / 1.7 % and 1.0 / 1.3 to 2.0 / 2.2 to 2.4 %; 256 0.8 / 1.6 / 2.0 %, of which nothing was seen beyond
// what one kernel's place in the round makes (0.5 % to 8k, 1.9 % at 16k); 8 bit, 128: 2.2 to 4.1 % at 8k and 16k. With four launches in a
// row, at the power limit, 4.4 to 4.6 % at 128 and 16k (tools/bench/results/README.md). What did not pay: publishing at the CTA's end
// only (a CTA with four second parts then merges four tiles one after the other: -4 % at 256, 2k).
// Next: gen/tile/tile_load.cpp (the producer's order of tiles), gen/tile/epilogue.cpp.
#include <algorithm>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {
namespace {

int rows_bytes(ForwardContext& f) { return f.config.tile_q() * f.dv() * 4; }
int part_bytes(ForwardContext& f) { return f.config.tile_q() * (f.dv() + 2) * 4; }

// Where the partials of part number `part` begin.
void emit_part_base(ForwardContext& f, const Reg& at, const Operand& part) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg index = k.b32("part_index"), base = k.b64("partials");
    k.ld_param_u64(base, "tail_partials");
    k.emit("cvta.to.global.u64", {base, base}, Location::current());
    k.sub_u32(index, part, 1);
    k.mul_wide_u32(at, index, part_bytes(f));
    k.add_s64(at, at, base);
  });
}

// From there to this thread's first four elements of O; the next four follow 128 threads on.
void emit_own_rows(ForwardContext& f, const Reg& at) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg thread = k.b32("thread_of_wg"), own = k.b64("own");
    k.mov_b32(thread, special("tid.x"));
    k.and_b32(thread, thread, 127);
    k.mul_wide_u32(own, thread, 16);
    k.add_s64(at, at, own);
    k.mul_wide_u32(own, f.warpgroup, 64 * f.dv() * 4);
    k.add_s64(at, at, own);
  });
}

}  // namespace

void emit_enter_tail(ForwardContext& f, const Reg& bound) {
  Kernel& k = f.k;
  k.comment("the cut tiles: this CTA's parts");
  k.scope([&] {
    Reg first = k.b32("tail_first"), cut = k.b32("cut_tiles"), parts = k.b32("tail_parts");
    Reg has_first = k.pred("has_first_part");
    k.ld_param_u32(first, "tail_first");
    k.ld_param_u32(parts, "tail_parts");
    k.sub_u32(cut, f.tiles, first);
    k.mov_b32(f.tile, special("ctaid.x"));
    k.setp("lt", "u32", has_first, f.tile, cut);
    k.if_else(has_first, [&] {
      k.mad_lo_u32(f.part, f.tile, 2, 1);
      k.add_u32(f.tile, f.tile, first);
      k.add_u32(bound, f.tile, 1);
    }, [&] {
      k.sub_u32(f.tile, f.tile, cut);
      k.mul_lo_u32(f.tile, f.tile, parts);
      k.mad_lo_u32(f.part, f.tile, 2, 2);
      k.add_u32(f.tile, f.tile, first);
      k.add_u32(bound, f.tile, parts);
      k.min_u32(bound, bound, f.tiles).note("tail_parts 0: none");
    });
  });
}

void emit_part_range(ForwardContext& f, const Reg& blocks) {
  Kernel& k = f.k;
  k.mov_b32(f.first_block, 0);
  k.scope([&] {
    Reg is_part = k.pred("is_part");
    k.setp("ne", "u32", is_part, f.part, 0);
    k.if_(is_part, [&] {
      Reg own = k.b32("first_part_blocks"), odd = k.b32("odd"), first = k.pred("is_first_part");
      k.comment("the last tail_blocks blocks, or the others");
      k.ld_param_u32(own, "tail_blocks");
      k.and_b32(odd, f.part, 1);
      k.setp("ne", "u32", first, odd, 0);
      k.sub_u32(blocks, blocks, own);
      k.mov_b32(f.first_block, blocks).when(first);
      k.mov_b32(blocks, own).when(first);
    }, "all of the tile's keys");
  });
}

void emit_part_sums(ForwardContext& f, const Reg& at, const Operand& part, int r) {
  Kernel& k = f.k;
  emit_part_base(f, at, part);
  k.scope([&] {
    Reg row = k.b32("part_row"), own = k.b64("own");
    k.mad_lo_u32(row, f.warpgroup, 64, f.warp_row);
    k.mul_wide_u32(own, row, 8);
    k.add_s64(at, at, own);
    k.add_s64(at, at, rows_bytes(f) + 64 * r);
  });
}

namespace {

// Where this CTA's part number `part` stands among its own: the bit of it in parts_done.
void emit_part_bit(ForwardContext& f, const Reg& bit, const Reg& part) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg own = k.b32("own_part"), cut = k.b32("cut_tiles"), has_first = k.pred("has_first_part"), parts = k.b32("tail_parts");
    k.comment("a CTA's second parts follow each other");
    k.sub_u32(own, part, 1);
    k.shr_u32(own, own, 1).note("cut tile");
    k.and_b32(cut, part, 1);
    k.setp("ne", "u32", has_first, cut, 0);
    k.ld_param_u32(parts, "tail_parts");
    k.max_u32(parts, parts, 1);
    k.div_u32(cut, own, parts);
    k.mul_lo_u32(cut, cut, parts);
    k.sub_u32(own, own, cut);
    k.mov_b32(own, 0).when(has_first);
    k.mov_b32(bit, 1);
    k.shl_b32(bit, bit, own);
  });
}

// Says that this warp's rows of the part are there. `second`, in the whole warp: the other part's are there too; the
// tile's field of two bits for this warp is zero again then.
void emit_arrive(ForwardContext& f, const Reg& second, const Reg& part) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg at = k.b64("arrivals_at"), own = k.b64("own"), index = k.b32("cut_tile"), shift = k.b32("field");
    Reg bit = k.b32("field_bit"), before = k.b32("before"), clears = k.pred("clears");
    k.ld_param_u64(at, "tail_arrivals");
    k.emit("cvta.to.global.u64", {at, at}, Location::current());
    k.sub_u32(index, part, 1);
    k.shr_u32(index, index, 1);
    k.mul_wide_u32(own, index, 4);
    k.add_s64(at, at, own);
    k.shr_u32(shift, f.warp_row, 4);
    k.mad_lo_u32(shift, f.warpgroup, 4, shift);
    k.shl_b32(shift, shift, 1).note("two bits a warp of the tile");
    k.mov_b32(bit, 1);
    k.shl_b32(bit, bit, shift);
    k.mov_b32(before, 0);
    k.bar_warp_sync();
    k.if_(f.is_lane0, [&] {
      k.fence_acq_rel_gpu().note("this warp's rows of O and their sums, before");
      k.atom_global_add_u32(before, address(at), bit);
      k.and_b32(before, before, bit);
      k.setp("ne", "u32", clears, before, 0);
      k.if_(clears, [&] {
        Reg two = k.b32("two"), unused = k.b32("unused");
        k.shl_b32(two, bit, 1);
        k.sub_s32(two, 0, two);
        k.atom_global_add_u32(unused, address(at), two);
      });
      k.fence_acq_rel_gpu().note("the other part's, after");
    });
    k.bar_warp_sync();
    k.shfl_sync_idx_b32(before, before, 0);
    k.setp("ne", "u32", second, before, 0);
  });
}

}  // namespace

void emit_is_published(ForwardContext& f, const Reg& out, const Reg& part) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg bit = k.b32("part_bit");
    emit_part_bit(f, bit, part);
    k.and_b32(bit, bit, f.parts_done);
    k.setp("ne", "u32", out, bit, 0);
  });
}

// What is published stands: a warp that was in range has nothing to add when the tile is done anew for another's sake.
void emit_store_part(ForwardContext& f, const Reg& failed) {
  Kernel& k = f.k;
  k.comment("a part: O stays in fp32, for whoever comes second");
  k.scope([&] {
    Reg at = k.b64("part_at"), bit = k.b32("part_bit"), done = k.b32("done_before"), writes = k.pred("writes_part");
    emit_part_bit(f, bit, f.out_part);
    k.and_b32(done, bit, f.parts_done);
    k.setp("eq", "u32", writes, done, 0);
    k.if_(writes, [&] {
      emit_part_base(f, at, f.out_part);
      emit_own_rows(f, at);
      for (int i = 0; i < f.o_acc.size(); i += 4)
        k.st_global("v4.f32", address(at, 512 * i),
                    std::vector<Reg>{f.o_acc[i], f.o_acc[i + 1], f.o_acc[i + 2], f.o_acc[i + 3]});
      k.unless(failed, [&] {
        Reg second = k.pred("is_second");
        k.or_b32(f.parts_done, f.parts_done, bit);
        emit_arrive(f, second, f.out_part);
        k.shl_b32(bit, bit, 16);
        k.or_b32(f.parts_done, f.parts_done, bit).when(second);
      }, "the tile is done anew");
    }, "published in the pass before");
  });
}

namespace {

// Both parts' rows into o_acc, weighed; LSE of both. All loads that registers are there for are issued before the first is
// used (S's registers are free by now).
void emit_weigh(ForwardContext& f, const Reg& part) {
  Kernel& k = f.k;
  Reg other = k.b32("second_part"), at = k.b64("first_at"), other_at = k.b64("second_at");
  Vec reference = k.f32("reference", 4), weight = k.f32("weight", 4);
  Vec lse = k.f32("lse_of_both", 2);
  Reg most = k.f32("most"), sum = k.f32("weights"), empty = k.pred("is_empty");
  k.add_u32(other, part, 1);
  for (int r = 0; r < 2; ++r) {
    emit_part_sums(f, at, part, r);
    emit_part_sums(f, other_at, other, r);
    k.ld_global_v2_f32(std::vector<Reg>{reference[r], weight[r]}, address(at));
    k.ld_global_v2_f32(std::vector<Reg>{reference[2 + r], weight[2 + r]}, address(other_at));
  }
  emit_part_base(f, at, part);
  emit_own_rows(f, at);
  k.add_s64(other_at, at, part_bytes(f));
  auto load = [&](const Vec& to, int first, int count, const Reg& from) {
    for (int i = 0; i < count; i += 4)
      k.ld_global_v4_f32(std::vector<Reg>{to[i], to[i + 1], to[i + 2], to[i + 3]}, address(from, 512 * (first + i)));
  };
  const int all = f.o_acc.size();
  // By blocks the scales' registers are not free: 4 to 12 bytes of spills at head_dim 240 and 256. 4 at 240 without.
  const bool narrow = f.scales_blocks() || (f.eight_bit() && f.dv() == 240);
  const int batch = std::min(all, narrow ? (f.config.plan.two_level ? 16 : 32) : f.s_acc.size() / 4 * 4);
  load(f.o_acc, 0, all, at);
  load(f.s_acc, 0, batch, other_at);
  for (int r = 0; r < 2; ++r) {
    k.max_f32(most, reference[r], reference[2 + r]);
    for (int i : {r, 2 + r}) {
      k.sub_f32(reference[i], reference[i], most);
      k.ex2_approx_ftz_f32(reference[i], reference[i]);
      k.mul_f32(weight[i], weight[i], reference[i]);
    }
    k.add_f32(sum, weight[r], weight[2 + r]);
    k.lg2_approx_ftz_f32(lse[r], sum);
    k.add_f32(lse[r], lse[r], most);
    k.mul_f32(lse[r], lse[r], f32_imm(0.693147180559945f)).note("ln 2");
    k.setp("eq", "f32", empty, sum, f32_imm(0.0f));
    k.rcp_approx_ftz_f32(sum, sum);
    k.mov_f32(sum, f32_imm(0.0f)).when(empty);
    k.mul_f32(weight[r], weight[r], sum);
    k.mul_f32(weight[2 + r], weight[2 + r], sum);
  }
  for (int from = 0; from < all; from += batch) {
    const int count = std::min(batch, all - from);
    if (from) load(f.s_acc, from, count, other_at);
    for (int i = 0; i < count; ++i) {
      const Reg& o = f.o_acc[from + i];
      k.mul_f32(f.s_acc[i], f.s_acc[i], weight[2 + i / 2 % 2]);
      k.fma_rn_f32(o, o, weight[i / 2 % 2], f.s_acc[i]);
    }
    // For ptxas 13.0: ahead of the sums its addresses spill at head_dim 240 in bf16. In 8 bit the store keeps the second
    // batch's loads, which would else be drawn forward, behind the first's sums: spills at 224 and 256.
    const bool writes_lse = f.eight_bit() ? from == 0 : from + batch >= all;
    for (int r = 0; r < 2 && writes_lse; ++r) emit_write_lse(f, r, lse[r]);
  }
}

}  // namespace

void emit_merge_parts(ForwardContext& f) {
  Kernel& k = f.k;
  k.section("the cut tiles: who comes second stores");
  k.scope([&] {
    Reg bound = k.b32("tile_bound"), bit = k.b32("part_bit"), any = k.pred("has_parts"), second = k.pred("is_second");
    f.tile = k.b32("tile");
    f.q_block = k.b32("q_block");
    emit_tile_counts(f);
    emit_enter_tail(f, bound);
    k.setp("lt", "u32", any, f.tile, bound);
    k.if_(any, [&] {
      k.loop("cut tile", [&] {
        Reg part = k.b32("first_part");
        k.mov_b32(part, f.part);
        emit_decode_tile(f);
        k.mad_lo_u32(f.own_q_row0, f.warpgroup, 64, f.q_row0);
        emit_part_bit(f, bit, part);
        k.shl_b32(bit, bit, 16);
        k.and_b32(bit, bit, f.parts_done);
        k.setp("ne", "u32", second, bit, 0);
        k.if_(second, [&] {
          k.sub_u32(part, part, 1);
          k.emit("or.b32", {part, part, 1}, Location::current());
          k.mov_b32(f.out_row0, f.own_q_row0);
          k.mov_b32(f.out_head, f.head);
          k.mov_b32(f.out_batch, f.batch_index);
          emit_weigh(f, part);
          if (!f.config.plan.o_own_buffer) {
            k.if_(f.is_lane0, [&] { k.cp_async_bulk_wait_group_read(0).note("O stored last has left its slice of Q"); });
            k.bar_warp_sync();
          }
          emit_store_rows(f);
        }, "first: nothing more to do");
        k.add_u32(f.tile, f.tile, 1);
        k.add_u32(f.part, f.part, 2);
        k.setp("lt", "u32", any, f.tile, bound);
        return any;
      });
    }, "no part was this CTA's");
  });
}

}  // namespace flashptx::gen
