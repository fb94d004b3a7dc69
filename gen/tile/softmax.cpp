// Online softmax in registers (FlashAttention-3 paper, section 3.1), in base 2.
//
// With c = softmax_scale * log2(e) and m the row's reference, p = 2^(s*c - m*c) is one fma and one ex2.
//   mc = clamp(m*c, +-FLT_MAX) is rounded once and is *the* reference: p, alpha and LSE use the same value, so the
//   rounding is a common factor of the row and cancels. A row without keys has m = -inf, mc = -FLT_MAX, and
//   every p = 2^(-inf) = 0: no finite stand-in for -inf, no NaN.
//   `huge`: when some |mc| >= 2^22 the rounding of mc could reach whole powers of two. Then S is re-centred
//   in place (s - m, s clamped to FLT_MAX) and the offset becomes e = m*c - mc, so that p keeps the reference
//   mc; beyond |e| > 32 neighbouring scores differ by more than 2^32 and e is dropped. Rare, uniform branch. 8 bit: P has no
//   room for 2^e, so that the reference of a re-centred block is m*c itself, and e goes into alpha instead.
// guarded: see emit_guard and gen/tile/tile_load.cpp (redo_failed): most blocks take no maximum at all.
// plain: the reference is the running maximum. lazy: it moves only when a row's maximum has grown by more
// than 2^lazy_threshold_log2 (exact in the same sense; FlashAttention-4). A warp vote on thread-local
// maxima decides, so that the shuffles and the rescale sit behind a branch that normal data hardly takes.
// Measured on an H200 next to wgmma the maximum is the dearest part: max.f32 runs at half rate there.
//
// 8 bit: P is e4m3, whose range ends at 448 and whose normal numbers at 2^-6, so that P = 2^(s*c - mc + 8) fills it (256
// at the maximum; LSE takes the 8 off again). Without a maximum (guarded) nothing bounds P: there each thread's sum over
// its columns of the block, which is there anyway, bounds every p in it. A sum below 256 proves that none
// saturates; past it, or when a block outweighs all before it in some thread (rescale_block), P, O and the row's sum
// are scaled so that the sum falls to 56..112 and the block's largest p on a power of two, before P is rounded:
// never a redo unless a p overflowed fp32. That the largest p of a row is exact in e4m3 matters: where one key
// carries the row its rounding is the row's whole error. (plain has it exact always. Measured on outliers: without it
// the worst element was 7.5 times plain's; as it stands RMS on normal data is above plain's by 3 % at 1k keys, 5 % at 2k and 3.5 % at 8k with three checked
// blocks (gen/catalog.cpp). The second condition at half the row's sum gave 1 % with two, in an earlier state, and cost 1 to 6 % of the time; at a
// quarter the error is 7 % below plain's at 1k keys, 2 % above at 8k, since then every block's largest p tends to be
// exact, for 2 to 12 % of the time.) Rows whose first keys stand out keep offset 8; rows of many like scores end up lower, where nothing is
// lost: their mean p is what the 256 holds down. Cost in the usual block: four adds and minima, two compares, a vote. Issue slots are 62 % used
// at head_dim 64 and 4k (50 % at 128: counters_e4m3_h200.csv), and the vote stands in the one chain of each warpgroup: without it the best kernels are 8 to 12 % faster at head_dim 64,
// 7 to 8 % at 128, 4 % at 256, others from 4 % on; without the sums too 20, 9 and 6 % (tools/bench/results/vote_and_sums_e4m3_h200.csv; right on normal data alone). Behind its branch ptxas
// could issue the conversions of P only by themselves; where registers allow, all or half of P is therefore packed beside its exponentials (early_words): the
// conversions then stand between the ex2, and behind the vote is P V. Expected 64 to 80 of 1900 clocks; measured + 1 to 1.5 % at head_dim 64 full (16k 0)
// and 128 causal, + 1 to 4 % causal from 4k on, 128 full - 1 to + 1 (early_packing_e4m3_h200.csv: ratios to FlashAttention-3 of two runs one after the other, whose clocks differ). Packed apart while P V reads P it costs a move a word:
// - 0.5 % with 64 keys, - 3 % with 256. Up to head_dim 128 the tensor cores
// therefore sum P as packed, and a tile's end asks whether a p was cut (Plan::p_sums, gen/tile/p_sums.cpp); what is said here of votes and rescale_block is for the rest: head_dim above 128, scales by blocks. Tried and dropped: P V issued in front of the vote and taken back by the product of
// -P where the vote says so (expected 8 to 12 % at head_dim 64; measured - 1 to + 2 % with eight chord words of 128 keys where P V is waited for at once, which stays behind the rest, else 0 to - 14 %: P takes
// registers of its own beside S, and bar.red couples the warpgroup's four warps; late_vote_e4m3_h200.csv. bar.red's predicate needs a vote.sync behind it: without, ptxas
// takes the branch for divergent and keeps no uniform register behind it: `trailing` then loses 5 to 11 % more).
#include <cfloat>

#include "gen/tile/forward_context.h"

namespace flashptx::gen {

// Column elements of row r: i with i/2%2 == r.
std::vector<Reg> row_elements(ForwardContext& f, int r) {
  std::vector<Reg> out;
  for (int i = 0; i < f.s_acc.size(); ++i)
    if (i / 2 % 2 == r) out.push_back(f.s_acc[i]);
  return out;
}

namespace {

constexpr float kHuge = 4194304.0f;  // 2^22: ulp 0.5
constexpr float kHuge8 = 4096.0f;    // 8 bit: there offset - mc must round to within 2^-12 too
constexpr float kMostSum = 256.0f;   // e4m3 ends at 448
constexpr float kWantedSum = 112.0f;


// The maximum over the four lanes that share a row.
void quad_max_s32(Kernel& k, const Reg& value) {
  k.scope([&] {
    Reg mine = k.b32("quad_mine"), other = k.b32("quad_other");
    k.emit("mov.b32", {mine, value}, Location::current());
    for (int lane_xor : {1, 2}) {
      k.shfl_sync_bfly_b32(other, mine, lane_xor);
      k.emit("max.s32", {mine, mine, other}, Location::current());
    }
    k.emit("mov.b32", {value, mine}, Location::current());
  });
}
void quad_max_f32(Kernel& k, const Reg& value, const Reg& other) {
  for (int lane_xor : {1, 2}) {
    k.shfl_sync_bfly_b32(other, value, lane_xor);
    k.max_ftz_f32(value, value, other);
  }
}

// Maxima of the bits as signed integers: equal to the float maxima wherever those are >= 0, and negative
// otherwise (among negative floats the integer order is reversed). ptxas makes one VIMNMX3 of two max.s32, which
// max.f32 has no counterpart for on sm_90: half the instructions of the softmax's dearest part.
void integer_max(ForwardContext& f, const Vec& local) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec bits = k.b32("s_bits", f.s_acc.size()), partial = k.b32("partial_max", 4);
    Location at = Location::current();
    for (int i = 0; i < f.s_acc.size(); ++i) k.emit("mov.b32", {bits[i], f.s_acc[i]}, at);
    for (int r = 0; r < 2; ++r) {
      std::vector<Reg> s;
      for (int i = 0; i < bits.size(); ++i)
        if (i / 2 % 2 == r) s.push_back(bits[i]);
      for (std::size_t chain = 0; chain < 2; ++chain) {  // two chains a row hide the latency
        const Reg m = partial[2 * r + static_cast<int>(chain)];
        std::size_t half = s.size() / 2, from = half * chain;
        k.emit("max.s32", {m, s[from], s[from + 1]}, at);
        for (std::size_t i = 2; i < half; ++i) k.emit("max.s32", {m, m, s[from + i]}, at);
      }
      k.emit("max.s32", {partial[2 * r], partial[2 * r], partial[2 * r + 1]}, at);
      k.emit("mov.b32", {local[r], partial[2 * r]}, at);
    }
  });
}

// For rows whose maximum is negative (rare: every score of the block is): the float maximum, exactly.
void float_max(ForwardContext& f, const Vec& local) {
  Kernel& k = f.k;
  for (int r = 0; r < 2; ++r) {
    std::vector<Reg> s = row_elements(f, r);
    k.max_ftz_f32(local[r], s[0], s[1]);
    for (std::size_t i = 2; i < s.size(); ++i) k.max_ftz_f32(local[r], local[r], s[i]);
  }
}

// mc = clamp(m * c, +-FLT_MAX)
void log2_reference(ForwardContext& f, const Reg& mc, const Reg& m) {
  f.k.mul_f32(mc, m, f.score_unit());
  f.k.min_f32(mc, mc, f32_imm(FLT_MAX));
  f.k.max_f32(mc, mc, f32_imm(-FLT_MAX));
}

// m*c - mc, exact but for the clamps.
void reference_rest(ForwardContext& f, const Reg& rest, const Reg& m, const Reg& mc) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg finite = k.f32("m_finite"), minus = k.f32("minus_mc");
    k.min_f32(finite, m, f32_imm(FLT_MAX));
    k.max_f32(finite, finite, f32_imm(-FLT_MAX));
    k.neg_f32(minus, mc);
    k.fma_rn_f32(rest, finite, f.score_unit(), minus);
    k.min_f32(rest, rest, f32_imm(FLT_MAX));
    k.max_f32(rest, rest, f32_imm(-FLT_MAX));
  });
}

}  // namespace

void scale_o_by_alpha(ForwardContext& f) {
  Kernel& k = f.k;
  for (int r = 0; r < 2 && f.sums_p(); ++r) k.mul_ftz_f32(f.row_sum[r], f.row_sum[r], f.alpha[r]);
  for (int i = 0; i < f.o_acc.size(); ++i) k.mul_ftz_f32(f.o_acc[i], f.o_acc[i], f.alpha[i / 2 % 2]);
  for (int r = 0; r < 2 && f.folds(); ++r) k.mul_ftz_f32(f.fold_scale[r], f.fold_scale[r], f.alpha[r]);
}

namespace {

// alpha = 2^(mc_old - mc), and the rows' sums by it. 8 bit: of m*c where that is not mc.
void rescale_sums(ForwardContext& f, int r) {
  Kernel& k = f.k;
  k.ex2_approx_ftz_f32(f.alpha[r], f.alpha[r]).note("alpha = 2^(mc_old - mc); 0 for a first maximum");
  if (f.sums_p()) return;  // they go with O
  for (int i = 0; i < f.sums_per_row(); ++i) {
    const Reg sum = f.row_sum[f.sums_per_row() * r + i];
    k.mul_ftz_f32(sum, sum, f.alpha[r]);
  }
}

// New reference max(row_max, local) for both rows: exp_offset, alpha (unless first), huge.
void move_reference(ForwardContext& f, const Vec& local, bool first) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec other = k.f32("other", 2), mc = k.f32("mc", 2), mc_old = k.f32("mc_old", 2), m_old;
    const bool splits = f.eight_bit() && !first;  // the reference, into mc and the rest
    if (splits) m_old = k.f32("m_old", 2);
    Reg size = k.f32("mc_size"), big = k.pred("is_big"), any = k.pred("any_big"), nonempty = k.pred("nonempty");
    for (int r = 0; r < 2; ++r) quad_max_s32(k, local[r]);
    k.setp("lt", "f32", big, local[0], f32_imm(0.0f));
    k.setp("lt", "f32", any, local[1], f32_imm(0.0f));
    k.or_pred(any, any, big);
    k.vote_sync_any_pred(any, any);
    k.if_rare(any, [&] {
      float_max(f, local);
      for (int r = 0; r < 2; ++r) quad_max_f32(k, local[r], other[r]);
    }, "no row is negative throughout");
    for (int r = 0; r < 2 && f.scales_in_fma(); ++r) k.fma_rn_f32(local[r], local[r], f.qk_scale[r], f.v_shift);
    k.mov_pred(any, 0);
    for (int r = 0; r < 2; ++r) {
      if (!first) {
        log2_reference(f, mc_old[r], f.row_max[r]);
        if (splits) k.mov_f32(m_old[r], f.row_max[r]);
        k.max_ftz_f32(f.row_max[r], f.row_max[r], local[r]);
      } else {
        k.mov_f32(f.row_max[r], local[r]);
      }
      log2_reference(f, mc[r], f.row_max[r]);
      if (!first) {
        k.sub_f32(f.alpha[r], mc_old[r], mc[r]);
        if (!splits) rescale_sums(f, r);
      }
      if (f.checks_block_sums()) k.mov_f32(f.p_offset[r], f32_imm(static_cast<float>(f.p_offset_log2())));
      if (f.p_offset_log2()) k.sub_f32(f.exp_offset[r], f32_imm(static_cast<float>(f.p_offset_log2())), mc[r]);
      else k.neg_f32(f.exp_offset[r], mc[r]);
      k.abs_f32(size, mc[r]);
      k.setp("ge", "f32", big, size, f32_imm(f.eight_bit() ? kHuge8 : kHuge));
      k.setp("neu", "f32", nonempty, f.row_max[r], f32_imm(-__builtin_inff()));
      k.and_pred(big, big, nonempty);
      k.or_pred(any, any, big);
    }
    k.vote_sync_any_pred(f.huge, any);
    if (!splits) return;
    k.if_rare(f.huge, [&] {
      for (int r = 0; r < 2; ++r) {
        reference_rest(f, other[r], m_old[r], mc_old[r]);
        reference_rest(f, mc_old[r], f.row_max[r], mc[r]);
        k.sub_f32(other[r], other[r], mc_old[r]);
        k.add_f32(f.alpha[r], f.alpha[r], other[r]);
      }
    }, "m*c and mc are the same to 2^-12");
    for (int r = 0; r < 2; ++r) rescale_sums(f, r);
  });
}

// The rare form of one block's arguments: S becomes s - m, the offset m*c - mc. Where that is so large that P = 2^offset leaves
// its type (f16: past 2^8, from |mc| = 2^28 on; at 2^16 and 2^-25 P is infinite and 0) it is dropped: the next score that fp32 has
// is then farther away than P's range, but for two maxima with the same mc, which the products' own rounding does not tell apart.
void recentre_huge(ForwardContext& f) {
  Kernel& k = f.k;
  k.if_rare(f.huge, [&] {
    if (f.scales_in_fma()) {
      k.comment("S in log2 units in place; what V's scale adds is taken off with the maximum, and comes back with the offset");
      for (int i = 0; i < f.s_acc.size(); ++i) k.mul_f32(f.s_acc[i], f.s_acc[i], f.qk_scale[i / 2 % 2]);
      for (int r = 0; r < 2; ++r) k.mov_f32(f.qk_scale[r], f32_imm(1.0f));
    }
    k.scope([&] {
      Reg m = k.f32("m_finite"), mc = k.f32("mc_again"), size = k.f32("offset_size"), off = k.pred("drop");
      for (int r = 0; r < 2; ++r) {
        k.min_f32(m, f.row_max[r], f32_imm(FLT_MAX));
        k.max_f32(m, m, f32_imm(-FLT_MAX));
        if (f.checks_block_sums()) {
          k.mov_f32(f.exp_offset[r], f.p_offset[r]);
        } else if (f.eight_bit()) {
          k.mov_f32(f.exp_offset[r], f32_imm(static_cast<float>(f.p_offset_log2())));
        } else {
          log2_reference(f, mc, f.row_max[r]);
          k.neg_f32(mc, mc);
          k.fma_rn_f32(f.exp_offset[r], m, f.score_unit(), mc).note("m*c - mc, exact");
          k.abs_f32(size, f.exp_offset[r]);
          k.setp("gtu", "f32", off, size, f32_imm(f.config.problem.dtype == DataType::f16 ? 8.0f : 32.0f));
          k.mov_f32(f.exp_offset[r], f32_imm(0.0f)).when(off);
        }
        for (const Reg& s : row_elements(f, r)) {
          k.min_f32(s, s, f32_imm(FLT_MAX)).note("an overflowed product counts as the largest score");
          k.sub_f32(s, s, m);
        }
      }
    });
  }, "scores fit one fma");
}

}  // namespace

// The reference of the block's rows, moved where a row's maximum grew past the threshold.
void lazy_max(ForwardContext& f) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec local = k.f32("local_max", 2);
    Reg limit = k.f32("grow_limit"), past = k.pred("past_limit"), more = k.pred("row_grew");
    integer_max(f, local);
    k.mov_pred(past, 0);
    for (int r = 0; r < 2; ++r) {
      k.add_f32(limit, f.row_max[r], f.max_slack);
      if (f.scales_in_fma()) {
        Reg scaled = k.f32("scaled_max" + std::to_string(r));
        k.fma_rn_f32(scaled, local[r], f.qk_scale[r], f.v_shift);
        k.setp("gt", "f32", more, scaled, limit);
        k.or_pred(past, past, more);
        k.setp("lt", "f32", more, limit, f.v_shift).note("below what a score of 0 has the integer order says nothing");
      } else {
        k.setp("gt", "f32", more, local[r], limit);
        k.or_pred(past, past, more);
        k.setp("lt", "f32", more, limit, f32_imm(0.0f)).note("below 0 the integer order says nothing");
      }
      k.or_pred(past, past, more);
    }
    k.vote_sync_any_pred(f.grew, past);
    k.if_rare(f.grew, [&] {
      move_reference(f, local, false);
      if (f.scales_still_o()) scale_o_by_alpha(f);
    }, "no row's max grew past the threshold");
  });
}

void emit_mask_max(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  if (f.scales_blocks()) emit_block_units(f, first);
  const bool one_branch = !first && f.one_unusual_branch();
  if (!one_branch) emit_mask(f);
  if (first || f.config.plan.softmax == Softmax::plain) {
    k.scope([&] {
      Vec local = k.f32("local_max", 2);
      integer_max(f, local);
      if (f.beside_max) f.beside_max();
      if (first)
        for (const Reg& sum : f.row_sum.all()) k.mov_f32(sum, f32_imm(0.0f));
      move_reference(f, local, first);
    });
  } else if (f.config.plan.softmax == Softmax::lazy) {
    lazy_max(f);
  } else {
    k.scope([&] {
      Reg checks = k.pred("takes_max");
      if (!f.scales_still_o()) k.mov_pred(f.grew, 0);
      k.setp("ge", "s32", checks, f.block, f.first_unchecked);
      const auto check = [&] {
        k.if_rare(checks, [&] {
          if (one_branch) emit_mask(f);
          lazy_max(f);
        }, "the reference stands");
        if (one_branch) recentre_huge(f);
      };
      if (!one_branch) return check();
      Reg unusual = k.pred("unusual");
      if (f.sums_p()) {
        Reg next = k.b32("block_before"), settles = k.pred("settles_offset");
        k.add_s32(next, f.block, 1);
        k.setp("ge", "s32", settles, next, f.first_unchecked);
        k.or_pred(unusual, settles, f.huge);
        if (f.folds_early()) {
          Reg due = k.pred("folds");
          k.scope([&] {
            Reg turn = k.b32("unusual_turn");
            k.and_b32(turn, f.block, f.config.plan.fold_blocks - 1);
            k.setp("eq", "u32", due, turn, f.config.plan.fold_blocks - 1);
          });
          k.or_pred(unusual, unusual, due);
        }
        k.if_rare(unusual, [&] {
          k.setp("eq", "s32", settles, next, f.first_unchecked);
          k.if_rare(settles, [&] {
            emit_settle_offset(f);
            k.setp("ge", "s32", checks, f.block, f.first_unchecked);
          }, "not the first block without a maximum");
          check();
          if (f.folds_early()) emit_fold(f);
        }, "every key is visible, the reference stands, scores fit one fma");
        return;
      }
      k.or_pred(unusual, checks, f.huge);
      k.if_rare(unusual, check, "every key is visible, the reference stands, scores fit one fma");
    });
  }
  if (!one_branch) recentre_huge(f);
}

void emit_guard_sums(ForwardContext& f, const Reg& failed, const Reg& worst) {
  Kernel& k = f.k;
  // f16 P ends at 2^16, so no p may reach 2^15 unseen; bf16 has fp32's range, and 2^24 keeps O's products in it;
  // e4m3 P was looked after block by block, unless one of them was infinite.
  float limit = f.config.problem.dtype == DataType::f16 ? 32768.0f : 16777216.0f;
  if (f.eight_bit()) limit = FLT_MAX;
  if (f.eight_bit()) {
    k.add_f32(worst, f.row_sum[0], f.row_sum[1]).note("not the maximum: it would drop one row's NaN for the other's sum");
  } else {
    k.max_f32(worst, f.row_sum[0], f.row_sum[1]);
    for (int i = 2; i < f.row_sum.size(); ++i) k.max_f32(worst, worst, f.row_sum[i]);
  }
  k.setp("geu", "f32", failed, worst, f32_imm(limit));
  if (f.sums_p()) emit_p_out_of_range(f, failed);
}

void emit_guard_outputs(ForwardContext& f, const Reg& failed, const Reg& bad) {
  Kernel& k = f.k;
  if (!f.eight_bit()) {
    Vec probes = k.f32("guard_probe", 4);  // four chains hide the latency
    for (int i = 0; i < f.o_acc.size(); ++i)
      if (i < 4) k.mul_f32(probes[i], f.o_acc[i], f32_imm(0.0f)).note(i ? "" : "NaN if any output is not finite");
      else k.fma_rn_f32(probes[i % 4], f.o_acc[i], f32_imm(0.0f), probes[i % 4]);
    for (int i : {0, 2}) k.add_f32(probes[i], probes[i], probes[i + 1]);
    k.add_f32(probes[0], probes[0], probes[2]);
    k.setp("neu", "f32", bad, probes[0], f32_imm(0.0f));
    k.or_pred(failed, failed, bad);
  }
  k.vote_sync_any_pred(failed, failed);
  k.not_pred(bad, f.was_safe);
  k.and_pred(failed, failed, bad);
}

// guarded: 1 in `failed` if a row sum or an output of this warp left the range in which P and O are exact.
void emit_guard(ForwardContext& f, const Reg& failed) {
  f.k.scope([&] {
    Reg worst = f.k.f32("guard_sum"), bad = f.k.pred("out_of_range");
    emit_guard_sums(f, failed, worst);
    emit_guard_outputs(f, failed, bad);
  });
}

// P, the sums and O (in the step rescale_o) of all the warp's rows but those to which the block adds next to nothing, a sum below 16 or below 2^-12 of the row's:
// their largest p need not be exact, and scaling up block after block could overflow O.
void rescale_block(ForwardContext& f, const Vec& sum) {
  Kernel& k = f.k;
  k.scope([&] {
    Reg worst = k.f32("worst_sum"), other = k.f32("other_sum"), shift = k.b32("shift");
    Reg fall = k.f32("offset_fall"), top = k.f32("largest_p"), counts = k.pred("row_counts");
    for (int r = 0; r < 2; ++r) {
      k.mov_f32(worst, sum[r]);
      quad_max_f32(k, worst, other);
      k.mov_f32(top, f.row_sum[r]);
      quad_max_f32(k, top, other);
      k.mul_f32(top, top, f32_imm(0x1p-12f));
      k.max_f32(top, top, f32_imm(16.0f));
      k.min_f32(top, top, f32_imm(kMostSum)).note("past it every row; else one that is scaled up block after block would leave fp32");
      k.setp("gtu", "f32", counts, worst, top);
      std::vector<Reg> row = row_elements(f, r);
      k.max_f32(top, row[0], row[1]);
      for (std::size_t i = 2; i < row.size(); ++i) k.max_f32(top, top, row[i]);
      quad_max_f32(k, top, other);
      k.min_f32(top, top, f32_imm(FLT_MAX)).note("an infinite sum makes NaN below, and the tile is done again");
      k.comment("the largest p onto 2^shift, the largest power of two for which the sum stays within 112");
      k.mul_f32(worst, worst, f32_imm(0x1p-8f)).note("the inverse of a sum past 2^126 would be flushed to 0");
      k.rcp_approx_ftz_f32(worst, worst);
      k.mul_f32(worst, worst, top);
      k.mul_f32(worst, worst, f32_imm(0x1p-8f * kWantedSum));
      k.emit("mov.b32", {shift, worst}, Location::current());
      k.shr_u32(shift, shift, 23);
      k.sub_s32(shift, shift, 127);
      k.cvt_rn_f32_s32(worst, shift);
      k.lg2_approx_ftz_f32(fall, top);
      k.sub_f32(fall, fall, worst);
      k.emit("selp.f32", {fall, fall, f32_imm(0.0f), counts}, Location::current());
      k.sub_f32(f.exp_offset[r], f.exp_offset[r], fall);
      k.sub_f32(f.p_offset[r], f.p_offset[r], fall);
      k.neg_f32(fall, fall);
      k.ex2_approx_ftz_f32(f.alpha[r], fall);
      k.mul_f32(f.row_sum[r], f.row_sum[r], f.alpha[r]);
      k.mul_f32(sum[r], sum[r], f.alpha[r]);
      for (const Reg& p : row) k.mul_f32(p, p, f.alpha[r]);
    }
    if (f.scales_still_o()) scale_o_by_alpha(f);
    else k.mov_pred(f.grew, 1);
  });
}

// over: some row's sum of the block's P (`sum`) is above 256, or (`weighted`, without V's scale) above the row's sum of all blocks before.
void emit_sums_exceed(ForwardContext& f, const Reg& over, const Reg& also, const Reg& worst, const Vec& sum, const Vec& weighted) {
  Kernel& k = f.k;
  if (f.scales_blocks()) {
    k.mov_pred(over, 0);
    for (int r = 0; r < 2; ++r) {
      k.setp("gtu", "f32", also, sum[r], f32_imm(kMostSum));
      k.or_pred(over, over, also);
      k.setp("gtu", "f32", also, weighted[r], f.row_sum[r]);
      k.or_pred(over, over, also);
    }
    return;
  }
  for (int r = 0; r < 2; ++r) {
    k.min_f32(worst, f.row_sum[r], f32_imm(kMostSum));
    k.setp("gtu", "f32", r ? also : over, sum[r], worst);
  }
  k.or_pred(over, over, also);
}

namespace {

// Scales by blocks: the exponentials of S and their sums by group of keys; sum[r] of P as it stands, weighted[r] without V's scale.
void exp_sum_of_groups(ForwardContext& f, const Vec& sum, const Vec& weighted) {
  Kernel& k = f.k;
  const int groups = f.scale_groups(), elements = f.s_acc.size() / groups;
  k.scope([&] {
    Vec part = k.f32("block_sum", 4), offset = k.f32("block_offset", 2);
    Reg weight = k.f32("sum_weight");
    for (int r = 0; r < 2 && f.scales_in_fma(); ++r) k.add_f32(offset[r], f.exp_offset[r], f.v_shift);
    for (int g = 0; g < groups; ++g) {
      for (int i = 0; i < elements; ++i) {
        const Reg s = f.s_acc[g * elements + i], to = part[2 * (i / 2 % 2) + i % 2];
        if (f.scales_in_fma()) k.fma_rn_ftz_f32(s, s, f.qk_scale[i / 2 % 2], offset[i / 2 % 2]);
        else k.add_ftz_f32(s, s, f.exp_offset[i / 2 % 2]);
        k.ex2_approx_ftz_f32(s, s);
        if (i < 4) k.mov_f32(to, s);
        else k.add_ftz_f32(to, to, s);
      }
      emit_sum_weight(f, weight, g);
      for (int r = 0; r < 2; ++r) {
        k.add_ftz_f32(part[2 * r], part[2 * r], part[2 * r + 1]);
        if (g == 0) {
          k.mul_ftz_f32(weighted[r], part[2 * r], weight);
          k.mov_f32(sum[r], part[2 * r]);
        } else {
          k.fma_rn_ftz_f32(weighted[r], part[2 * r], weight, weighted[r]);
          k.add_ftz_f32(sum[r], sum[r], part[2 * r]);
        }
      }
    }
  });
}

void exp_sum_of_block(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec part;
    if (!f.scales_blocks()) part = k.f32("block_sum", 4);
    Vec sum = k.f32("row_block_sum", 2), weighted = sum;
    Reg worst = k.f32("worst"), over = k.pred("over"), also = k.pred("also_over"), free = k.pred("no_maximum");
    if (f.scales_blocks()) {
      weighted = k.f32("weighted_sum", 2);
      exp_sum_of_groups(f, sum, weighted);
    } else {
      for (int i = 0; i < f.s_acc.size(); ++i) {
        int r = i / 2 % 2, chain = 2 * r + i % 2;
        k.fma_rn_ftz_f32(f.s_acc[i], f.s_acc[i], f.scale_log2, f.exp_offset[r]);
        k.ex2_approx_ftz_f32(f.s_acc[i], f.s_acc[i]);
        if (i < 4) k.mov_f32(part[chain], f.s_acc[i]);
        else k.add_ftz_f32(part[chain], part[chain], f.s_acc[i]);
      }
      for (int r = 0; r < 2; ++r) k.add_ftz_f32(sum[r], part[2 * r], part[2 * r + 1]);
    }
    emit_pack_early(f);
    if (first) {  // below a true maximum no p exceeds 256
      for (int r = 0; r < 2; ++r) k.add_ftz_f32(f.row_sum[r], f.row_sum[r], weighted[r]);
      return;
    }
    emit_sums_exceed(f, over, also, worst, sum, weighted);
    k.setp("lt", "s32", free, f.block, f.first_unchecked).note("below a true maximum no p exceeds 256");
    k.and_pred(over, over, free);
    k.vote_sync_any_pred(over, over);
    k.if_rare(over, [&] {
      rescale_block(f, sum);
      emit_pack_early(f);
      for (int r = 0; r < 2 && f.scales_blocks(); ++r) k.mul_f32(weighted[r], weighted[r], f.alpha[r]);
    }, "no p can exceed 256");
    for (int r = 0; r < 2; ++r) k.add_ftz_f32(f.row_sum[r], f.row_sum[r], weighted[r]);
  });
}

}  // namespace

void emit_exp_sum(ForwardContext& f, bool first) {
  Kernel& k = f.k;
  if (f.saves_exps()) {
    emit_exp_sum_direct(f, first);
    return;
  }
  if (f.checks_block_sums() && !f.sums_p()) {
    exp_sum_of_block(f, first);
    return;
  }
  if (f.scales_blocks()) {
    k.scope([&] {
      Vec sum = k.f32("row_block_sum", 2), weighted = k.f32("weighted_sum", 2);
      exp_sum_of_groups(f, sum, weighted);
      for (int r = 0; r < 2; ++r) k.add_ftz_f32(f.row_sum[2 * r], f.row_sum[2 * r], weighted[r]);
    });
    return;
  }
  if (f.beside_exp) f.beside_exp();
  // Two partial sums a row: four independent add chains a thread.
  for (int i = 0; i < f.s_acc.size(); ++i) {
    int r = i / 2 % 2;
    k.fma_rn_ftz_f32(f.s_acc[i], f.s_acc[i], f.scale_log2, f.exp_offset[r]);
    k.ex2_approx_ftz_f32(f.s_acc[i], f.s_acc[i]);
    if (!f.sums_p()) k.add_ftz_f32(f.row_sum[2 * r + i % 2], f.row_sum[2 * r + i % 2], f.s_acc[i]);
  }
  if (!f.config.plan.pin_exp) return;
  // ptxas moves the exps behind the wait for P V, which undoes the overlap. A basic-block boundary that
  // consumes all row sums keeps them in front. It gains
  // nothing with the kernels of today (within 2 % at head_dim 128): the chain of exps binds, not its place.
  k.scope([&] {
    Reg total = k.f32("total"), over = k.pred("over"), any = k.pred("any_over");
    k.add_ftz_f32(total, f.row_sum[0], f.row_sum[1]);
    k.add_ftz_f32(total, total, f.row_sum[2]);
    k.add_ftz_f32(total, total, f.row_sum[3]);
    k.setp("gt", "f32", over, total, f32_imm(FLT_MAX));
    k.vote_sync_any_pred(any, over);
    k.if_rare(any, [&] {
      for (int i = 0; i < 4; ++i) k.min_f32(f.row_sum[i], f.row_sum[i], f32_imm(FLT_MAX));
    }, "keeps the exps before this point");
  });
}

namespace {

// 8 bit: A register {row half} of 32 keys takes four bytes: two of accumulator block 2h and two of 2h + 1, the keys
// that V^T holds at positions 4t .. 4t + 3 (gen/tile/key_order.h). No shuffle.
void pack_p_e4m3(ForwardContext& f, const Vec& p, int from, int end) {
  Kernel& k = f.k;
  k.scope([&] {
    Vec half = k.b16("p_half", 2);
    for (int i = from; i < end; ++i) {
      int r = i % 2, first = 16 * (i / 4) + 8 * (i / 2 % 2) + 2 * r;  // of S
      for (int h = 0; h < 2; ++h)
        k.cvt_rn_satfinite_fp8x2_f32("e4m3", half[h], f.s_acc[first + 4 * h + 1], f.s_acc[first + 4 * h]);
      k.mov_b32(p[i], half.all());
    }
  });
}

void pack_words(ForwardContext& f, const Vec& p, int first, int end) {
  if (first == end) return;
  if (f.saves_exps()) emit_pack_p_direct(f, p, first, end);
  else pack_p_e4m3(f, p, first, end);
}

}  // namespace

void emit_rescale_o(ForwardContext& f) {
  Kernel& k = f.k;
  if (f.scales_still_o()) return;
  if (f.config.plan.softmax == Softmax::plain) scale_o_by_alpha(f);
  else k.if_rare(f.grew, [&] { scale_o_by_alpha(f); }, "the reference did not move");
}

void emit_pack_early(ForwardContext& f) { pack_words(f, f.p_next, 0, f.early_words); }

void emit_pack_p(ForwardContext& f) {
  if (f.eight_bit()) {
    for (int i = 0; i < f.early_words && f.keeps_p(); ++i) f.k.mov_b32(f.p[i], f.p_next[i]);
    pack_words(f, f.p, f.early_words, f.p.size());
    return;
  }
  // A operand register r of key step t holds S elements 8t + 2r (low half) and 8t + 2r + 1: no shuffle.
  for (int i = 0; i < f.p.size(); ++i)
    f.k.cvt_rn_x2_f32(f.type(), f.p[i], f.s_acc[2 * i + 1], f.s_acc[2 * i]);
}

}  // namespace flashptx::gen
