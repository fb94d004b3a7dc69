// Standard attention in three kernels: S = Q K^T to memory, P = softmax(S) in place, O = P V. What
// FlashAttention replaced.
//
// S and P are 16-bit matrices (batch, heads_q, seqlen_q, pitch), pitch = seqlen_k rounded up to 8:
// a row of keys starts on 16 bytes. The products use the same tiles and mma.sync as the fused
// rungs; they wait for their copies, because the time goes into the matrices' way to memory and
// back. Next: ladder_tiles.h.
#include "gen/kernels/ladder_kernels.h"
#include "gen/kernels/ladder_tiles.h"

namespace flashptx::gen {
namespace {

constexpr int softmax_threads = 128;

// Sizes and this CTA's place: z = batch * heads_q + head.
struct Sizes {
  explicit Sizes(Kernel& kernel, const char* head_axis) : k(kernel) {
    k.ld_param_u32(seqlen_q, "seqlen_q");
    k.ld_param_u32(seqlen_k, "seqlen_k");
    k.ld_param_u32(heads_q, "heads_q");
    k.ld_param_u32(heads_kv, "heads_kv");
    k.mov_b32(matrix, special(head_axis));
    k.div_u32(batch, matrix, heads_q);
    k.rem_u32(head, matrix, heads_q);
    k.div_u32(head_kv, heads_q, heads_kv);
    k.div_u32(head_kv, head, head_kv);
    k.add_u32(pitch, seqlen_k, 7);
    k.and_b32(pitch, pitch, hex(0xFFFFFFF8)).note("elements from one row of S to the next");
  }
  // d = address of element (row, column) of this CTA's S
  void score_address(const Reg& d, const Reg& row, const Operand& column) {
    k.scope([&] {
      Reg index = k.b64("index"), wide = k.b64("wide");
      k.ld_param_u64(d, "s");
      k.mul_wide_u32(index, matrix, seqlen_q);
      k.cvt_u64_u32(wide, row);
      k.add_u64(index, index, wide);
      k.cvt_u64_u32(wide, pitch);
      k.mul_lo_u64(index, index, wide);
      k.cvt_u64_u32(wide, column);
      k.add_u64(index, index, wide);
      k.mul_lo_u64(index, index, 2);
      k.add_u64(d, d, index);
    });
  }
  Kernel& k;
  Reg seqlen_q = k.b32("n_q"), seqlen_k = k.b32("n_k"), heads_q = k.b32("n_heads_q"),
      heads_kv = k.b32("n_heads_kv");
  Reg matrix = k.b32("matrix"), batch = k.b32("batch_index"), head = k.b32("head"),
      head_kv = k.b32("head_kv"), pitch = k.b32("pitch");
};

Reg aligned_tile(Kernel& k) {
  Reg tile = k.b32("tile");
  k.mov_b32(tile, symbol("smem"));
  k.add_u32(tile, tile, 1023);
  k.and_b32(tile, tile, hex(0xFFFFFC00));
  return tile;
}

// rows_left = valid rows from this thread's first one, of a tile that starts at `start` of `total`.
void rows_left_of(LadderTiles& t, const Reg& d, const Reg& total, const Reg& start) {
  t.k.sub_s32(d, total, start);
  t.k.sub_s32(d, d, t.copy_row);
}

// acc = A B^T or A B over `steps` steps of 16, A at `a`, B at `b`; transposed: B's rows run along
// k.
void product(LadderTiles& t, LadderTiles& a_tiles, const Vec& acc, int n_tiles, const Reg& a_addr,
             const Reg& b_addr, int steps, bool transposed) {
  Kernel& k = t.k;
  k.scope([&] {
    Vec a = k.b32("a_frag", 4 * t.m_tiles()), b = k.b32("b_frag", 4);
    Reg a_step = k.b32("a_step"), b_step = k.b32("b_step");
    for (int step = 0; step < steps; ++step) {
      at_step(a_tiles, a_step, a_addr, step);
      for (int m = 0; m < t.m_tiles(); ++m)
        k.ldmatrix(a.slice(4 * m, 4), address(a_step, 16 * m * a_tiles.row_bytes()));
      for (int n = 0; n < n_tiles; n += 2) {
        at_step(t, b_step, b_addr, transposed ? n / 2 : step);
        if (transposed) k.ldmatrix_trans(b.all(), address(b_step, 16 * step * t.row_bytes()));
        else k.ldmatrix(b.all(), address(b_step, 8 * n * t.row_bytes()));
        mma_pair(t, acc, n_tiles, n, a, b.all());
      }
    }
  });
}

// Calls store(register of two packed values, row tile r of this lane, column tile n) for every pair
// of the accumulator.
template <class Row, class Pair>
void for_rows(LadderTiles& t, const Vec& acc, int n_tiles, const Reg& row0, const Reg& rows,
              Row&& begin_row, Pair&& store) {
  Kernel& k = t.k;
  Reg row = k.b32("row"), packed = k.b32("packed"), valid = k.pred("is_valid");
  for (int r = 0; r < 2 * t.m_tiles(); ++r) {
    k.shr_u32(row, t.lane, 2);
    k.mad_lo_u32(row, t.warp, t.config.warp_rows(), row);
    k.add_u32(row, row, row0);
    k.add_u32(row, row, 8 * r);
    k.setp("lt", "u32", valid, row, rows);
    k.if_(valid, [&] {
      begin_row(row);
      for (int n = 0; n < n_tiles; ++n) {
        const int first = 4 * (r / 2 * n_tiles + n) + 2 * (r % 2);
        k.cvt_rn_x2_f32(t.type(), packed, acc[first + 1], acc[first]);
        store(packed, n);
      }
    });
  }
}

// 2 * (lane % 4): the first column of this lane in a tile of 8.
Reg first_column(LadderTiles& t) {
  Reg column = t.k.b32("first_col");
  t.k.and_b32(column, t.lane, 3);
  t.k.shl_b32(column, column, 1);
  return column;
}

void cta_reduce(Kernel& k, const Reg& x, bool maximum) {
  Reg other = k.f32("other"), slot = k.b32("slot"), lane = k.b32("lane_r");
  const auto combine = [&] {
    if (maximum) k.max_f32(x, x, other);
    else k.add_f32(x, x, other);
  };
  for (int lane_xor : {16, 8, 4, 2, 1}) {
    k.shfl_sync_bfly_b32(other, x, lane_xor);
    combine();
  }
  k.mov_b32(lane, special("tid.x"));
  k.mov_b32(slot, symbol("partial"));
  k.shr_u32(lane, lane, 5);
  k.mad_lo_u32(lane, lane, 4, slot);
  k.bar_sync_all(0);
  k.st_shared_f32(address(lane), x).note("all lanes of a warp hold the same");
  k.bar_sync_all(0);
  k.ld_shared_f32(x, address(slot));
  for (int w = 1; w < softmax_threads / 32; ++w) {
    k.ld_shared_f32(other, address(slot, 4 * w));
    combine();
  }
}

// Both halves of a packed word as f32.
void unpack(Kernel& k, const std::string& type, const Reg& low, const Reg& high, const Reg& word) {
  k.scope([&] {
    Reg l = k.b16("low16"), h = k.b16("high16");
    k.mov_b32({l, h}, word);
    k.emit("cvt.f32." + type, {low, l}, Location::current());
    k.emit("cvt.f32." + type, {high, h}, Location::current());
  });
}

}  // namespace

int unfused_shared_bytes(const LadderConfig& c) {
  if (c.rung == Rung::unfused_softmax) return 0;
  if (c.rung == Rung::unfused_scores) return 1023 + 2 * c.head_dim * (c.tile_q() + c.tile_kv());
  return 1023 + 2 * c.tile_kv() * c.tile_q() + 2 * c.head_dim * c.tile_kv();
}

// grid (ceil(seqlen_k / tile_kv), ceil(seqlen_q / 128), batch * heads_q)
void emit_unfused_scores(Kernel& k, const LadderConfig& c) {
  k.dynamic_shared("smem", 1024);
  k.threads(128);
  LadderTiles t(k, c);
  k.section("coordinates");
  setup_tiles(t);
  Sizes at(k, "ctaid.z");
  Reg q0 = k.b32("q0"), key0 = k.b32("key0"), row0 = k.b32("row0"), left = k.b32("rows_left"),
      from = k.b64("source"), pass = k.b64("pass_bytes");
  k.mov_b32(q0, special("ctaid.y"));
  k.mul_lo_u32(q0, q0, c.tile_q());
  k.mov_b32(key0, special("ctaid.x"));
  k.mul_lo_u32(key0, key0, c.tile_kv());
  if (c.mask == Mask::causal) {
    Reg last = k.b32("last_seen"), above = k.pred("above_diagonal");
    k.sub_s32(last, at.seqlen_k, at.seqlen_q);
    k.add_s32(last, last, q0);
    k.add_s32(last, last, c.tile_q() - 1);
    k.setp("gt", "s32", above, key0, last);
    k.ret().when(above);
  }
  Reg tile = aligned_tile(k);
  k.section("copy Q and K");
  k.mad_lo_u32(row0, at.batch, at.seqlen_q, q0);
  copy_source(t, from, pass, "q", row0, at.heads_q, at.head);
  rows_left_of(t, left, at.seqlen_q, q0);
  copy_tile(t, tile, 0, from, pass, c.tile_q(), left, true);
  k.mad_lo_u32(row0, at.batch, at.seqlen_k, key0);
  copy_source(t, from, pass, "k", row0, at.heads_kv, at.head_kv);
  rows_left_of(t, left, at.seqlen_k, key0);
  copy_tile(t, tile, c.tile_q() * t.row_bytes(), from, pass, c.tile_kv(), left, true);
  k.cp_async_commit_group();
  k.cp_async_wait_group(0);
  k.bar_sync_all(0);
  k.section("S = Q K^T");
  const int n_tiles = c.tile_kv() / 8;
  Reg a = k.b32("q_addr"), b = k.b32("k_addr");
  fragment_address_a(t, a, tile, 0);
  fragment_address_b(t, b, tile, c.tile_q() * t.row_bytes());
  Vec s = k.f32("s_acc", 4 * t.m_tiles() * n_tiles);
  for (const Reg& x : s.all()) k.mov_f32(x, f32_imm(0));
  product(t, t, s, n_tiles, a, b, c.head_dim / 16, false);
  k.section("S to memory");
  Reg column = first_column(t), to = k.b64("to"), inside = k.pred("is_inside"),
      first = k.b32("first_key");
  k.add_u32(first, key0, column);
  for_rows(
      t, s, n_tiles, q0, at.seqlen_q, [&](const Reg& row) { at.score_address(to, row, first); },
      [&](const Reg& packed, int n) {
        k.sub_u32(row0, at.pitch, 8 * n);
        k.setp("lt", "s32", inside, first, row0)
            .note(n == 0 ? "the pitch is even: both or neither" : "");
        k.st_global("b32", address(to, 16 * n), packed).when(inside);
      });
}

// grid (seqlen_q, batch * heads_q): one CTA a row, 8 keys a thread and step.
void emit_unfused_softmax(Kernel& k, const LadderConfig& c) {
  k.static_shared("partial", 4 * softmax_threads / 32, 4);
  k.threads(softmax_threads);
  const std::string type = c.dtype == DataType::f16 ? "f16" : "bf16";
  k.section("coordinates");
  Sizes at(k, "ctaid.y");
  Reg row = k.b32("row"), seen = k.b32("keys_seen"), scale = k.f32("scale_log2"),
      base = k.b64("base"), first = k.b32("first_key"), zero = k.b32("zero");
  k.mov_b32(row, special("ctaid.x"));
  k.ld_param_f32(scale, "softmax_scale_log2");
  k.mov_b32(seen, at.seqlen_k);
  if (c.mask == Mask::causal) {
    k.sub_s32(seen, seen, at.seqlen_q);
    k.add_s32(seen, seen, row);
    k.add_s32(seen, seen, 1);
    k.min_s32(seen, seen, at.seqlen_k);
    k.max_s32(seen, seen, 0);
  }
  k.mov_b32(zero, 0);
  at.score_address(base, row, zero);
  k.mov_b32(first, special("tid.x"));
  k.shl_b32(first, first, 3);

  Vec x = k.f32("x", 8), words = k.b32("words", 4);
  Reg key = k.b32("key"), end = k.b32("end"), ptr = k.b64("ptr"), wide = k.b64("wide_key"),
      inside = k.pred("is_inside"), left = k.b32("left");
  // Runs body over this thread's groups of 8 keys below `end`; x holds the scores, -inf beyond the
  // keys seen.
  const auto over_row = [&](const char* name, const Reg& limit, bool load,
                            const std::function<void()>& body) {
    k.mov_b32(end, limit);
    k.mov_b32(key, first);
    k.scope([&] {
      Reg any = k.pred("is_any");
      k.setp("lt", "s32", any, key, end);
      k.if_(any, [&] {
        k.loop(name, [&] {
          Reg more = k.pred("goes_on");
          k.mul_wide_u32(wide, key, 2);
          k.add_u64(ptr, base, wide);
          if (load) {
            k.ld_global("v4.b32", words.all(), address(ptr));
            k.sub_s32(left, seen, key);
            for (int i = 0; i < 4; ++i) unpack(k, type, x[2 * i], x[2 * i + 1], words[i]);
            for (int i = 0; i < 8; ++i) {
              k.setp("gt", "s32", inside, left, i);
              k.selp_f32(x[i], x[i], f32_imm(-f32_infinity), inside);
            }
          }
          body();
          k.add_u32(key, key, 8 * softmax_threads);
          k.setp("lt", "s32", more, key, end);
          return more;
        });
      });
    });
  };

  Reg largest = k.f32("largest"), sum = k.f32("sum"), offset = k.f32("offset"),
      inverse = k.f32("inverse"), empty = k.pred("is_empty");
  k.section("row maximum");
  k.mov_f32(largest, f32_imm(-f32_infinity));
  over_row("max", seen, true, [&] {
    for (const Reg& v : x.all()) k.max_f32(largest, largest, v);
  });
  k.scope([&] { cta_reduce(k, largest, true); });
  k.setp("eq", "f32", empty, largest, f32_imm(-f32_infinity));
  k.selp_f32(offset, f32_imm(0), largest, empty);
  k.mul_f32(offset, offset, scale);
  k.neg_f32(offset, offset);
  const auto exponentials = [&] {
    for (const Reg& v : x.all()) {
      k.fma_rn_ftz_f32(v, v, scale, offset);
      k.ex2_approx_ftz_f32(v, v);
    }
  };
  k.section("row sum");
  k.mov_f32(sum, f32_imm(0));
  over_row("sum", seen, true, [&] {
    exponentials();
    for (const Reg& v : x.all()) k.add_f32(sum, sum, v);
  });
  k.scope([&] { cta_reduce(k, sum, false); });
  k.setp("eq", "f32", empty, sum, f32_imm(0));
  k.rcp_approx_ftz_f32(inverse, sum);
  k.selp_f32(inverse, f32_imm(0), inverse, empty);
  k.section("P, zeros beyond the keys seen");
  over_row("write", at.pitch, true, [&] {
    exponentials();
    for (const Reg& v : x.all()) k.mul_f32(v, v, inverse);
    for (int i = 0; i < 4; ++i) k.cvt_rn_x2_f32(type, words[i], x[2 * i + 1], x[2 * i]);
    k.st_global("v4.b32", address(ptr), words.all());
  });
  k.section("LSE");
  Reg lse_ptr = k.b64("lse_ptr"), index = k.b64("lse_index"), leads = k.pred("leads"),
      wanted = k.pred("is_wanted"), lse = k.f32("lse_value");
  k.ld_param_u64(lse_ptr, "lse");
  k.setp("ne", "u64", wanted, lse_ptr, 0);
  k.setp("eq", "and", "u32", leads, first, 0, wanted);
  k.mul_wide_u32(index, at.matrix, at.seqlen_q);
  k.cvt_u64_u32(wide, row);
  k.add_u64(index, index, wide);
  k.mul_lo_u64(index, index, 4);
  k.add_u64(lse_ptr, lse_ptr, index);
  k.lg2_approx_ftz_f32(lse, sum);
  k.sub_f32(lse, lse, offset);
  k.mul_f32(lse, lse, f32_imm(0.693147180559945f));
  k.st_global_f32(address(lse_ptr), lse).when(leads);
}

// grid (ceil(seqlen_q / 128), batch * heads_q)
void emit_unfused_output(Kernel& k, const LadderConfig& c) {
  k.dynamic_shared("smem", 1024);
  k.threads(128);
  LadderConfig p_config = c;
  p_config.head_dim = c.tile_kv();  // a tile of P has tile_kv columns
  LadderTiles t(k, c), pt(k, p_config);
  k.section("coordinates");
  setup_tiles(t);
  pt.thread = t.thread, pt.lane = t.lane, pt.warp = t.warp;
  pt.copy_row = k.b32("p_copy_row"), pt.copy_chunk = k.b32("p_copy_chunk"),
  pt.copy_to = k.b32("p_copy_to");
  setup_copy(pt);
  Sizes at(k, "ctaid.y");
  Reg tile = aligned_tile(k), q0 = k.b32("q0"), key0 = k.b32("key0"), row = k.b32("p_row"),
      column = k.b32("p_col"), row0 = k.b32("row0"), q_left = k.b32("q_rows_left"),
      left = k.b32("rows_left"), p_from = k.b64("p_from"), p_pass = k.b64("p_pass"),
      from = k.b64("v_from"), pass = k.b64("v_pass"), v_block = k.b64("v_block_bytes"),
      any = k.pred("has_keys"), end = k.b32("end");
  k.mov_b32(q0, special("ctaid.x"));
  k.mul_lo_u32(q0, q0, c.tile_q());
  k.add_u32(row, q0, pt.copy_row);
  k.shl_b32(column, pt.copy_chunk, 3);
  at.score_address(p_from, row, column);
  k.mul_wide_u32(p_pass, at.pitch, 2 * pt.rows_per_pass());
  rows_left_of(pt, q_left, at.seqlen_q, q0);
  k.mul_lo_u32(row0, at.batch, at.seqlen_k);
  copy_source(t, from, pass, "v", row0, at.heads_kv, at.head_kv);
  k.mul_wide_u32(v_block, at.heads_kv, t.row_bytes() * c.tile_kv());
  Reg a = k.b32("p_addr"), b = k.b32("v_addr");
  fragment_address_a(pt, a, tile, 0);
  fragment_address_bt(t, b, tile, c.tile_q() * pt.row_bytes());
  const int n_tiles = c.head_dim / 8;
  Vec o = k.f32("o_acc", 4 * t.m_tiles() * n_tiles);
  for (const Reg& x : o.all()) k.mov_f32(x, f32_imm(0));
  k.mov_b32(key0, 0);
  k.mov_b32(end, at.seqlen_k);
  if (c.mask == Mask::causal) {
    k.sub_s32(end, end, at.seqlen_q);
    k.add_s32(end, end, q0);
    k.add_s32(end, end, c.tile_q());
    k.min_s32(end, end, at.seqlen_k);
  }
  k.setp("gt", "s32", any, end, 0);
  k.if_(any, [&] {
    k.loop("keys", [&] {
      Reg more = k.pred("goes_on"), chunk_left = k.b32("chunk_left"),
          outside = k.pred("is_outside"), none = k.b32("none");
      k.section("copy P and V");
      k.bar_sync_all(0);
      k.mov_b32(none, 0);
      k.add_u32(chunk_left, key0, column);
      k.setp("ge", "u32", outside, chunk_left, at.pitch).note("a chunk beyond the row of P: zeros");
      k.selp_b32(chunk_left, none, q_left, outside);
      copy_tile(pt, tile, 0, p_from, p_pass, c.tile_q(), chunk_left, true);
      rows_left_of(t, left, at.seqlen_k, key0);
      copy_tile(t, tile, c.tile_q() * pt.row_bytes(), from, pass, c.tile_kv(), left, true);
      k.cp_async_commit_group();
      k.cp_async_wait_group(0);
      k.bar_sync_all(0);
      k.section("O += P V");
      product(t, pt, o, n_tiles, a, b, c.tile_kv() / 16, true);
      k.add_u64(p_from, p_from, 2 * c.tile_kv());
      k.add_u64(from, from, v_block);
      k.add_u32(key0, key0, c.tile_kv());
      k.setp("lt", "s32", more, key0, end);
      return more;
    });
  });
  k.section("O to memory");
  Reg to = k.b64("to"), line = k.b64("line"), wide = k.b64("wide_head"), index = k.b32("index"),
      base = k.b64("o_ptr");
  Reg col = first_column(t);
  k.ld_param_u64(base, "o");
  for_rows(
      t, o, n_tiles, q0, at.seqlen_q,
      [&](const Reg& r) {
        k.mad_lo_u32(index, at.batch, at.seqlen_q, r);
        k.mul_wide_u32(line, index, at.heads_q);
        k.cvt_u64_u32(wide, at.head);
        k.add_u64(line, line, wide);
        k.mul_lo_u64(line, line, t.row_bytes());
        k.add_u64(to, base, line);
        k.mul_wide_u32(line, col, 2);
        k.add_u64(to, to, line);
      },
      [&](const Reg& packed, int n) { k.st_global("b32", address(to, 16 * n), packed); });
}

}  // namespace flashptx::gen
