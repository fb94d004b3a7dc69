// RoPE, random signs and Hadamard of two rows, two values a register: what is loaded once for each CTA, and what is done to each head.
//
//   RoPE       half: x1 c - x2 s, x2 c + x1 s in bf16x2. Interleaved: x c and x s only, as the product below adds them. cos and sin,
//              rounded to bf16, stand in shared memory, each thread's own, for all heads that the CTA does in turn.
//   D, H_16    mma with a row of each of two steps as its two rows of A; the signs are in B, made once for each CTA.
//              Interleaved: x s by another B, whose pairs are turned.
//   the rest   bit 2 and bits from 5 on, between a thread's words: bf16x2; f16x2 where the scale is known (quantize), as then no
//              partial sum is above what the 8-bit type holds.
// Next: prepare_packed.cpp, prepare_scales.cpp.
#include <cmath>

#include "gen/kernels/prepare_packed.h"

namespace flashptx::gen {
namespace {

constexpr int fragment_bytes = 16 * 32;  // two n8 tiles of B

}  // namespace

PackedSteps::PackedSteps(Rows& rows, const Scales& scales) : k(rows.k), r(rows), scales_(scales) {
  b_ = k.b32("b_pair", 8), sum_ = k.f32("sum", 8), zero_ = k.f32("no_sum", 4), other_ = k.b32("other");
  factor_ = k.b32("factor", 8), product_ = k.b32("product", 8);
  for (const Reg& z : zero_.all()) k.mov_f32(z, f32_imm(0));
}

// ---- cos and sin

// Words of this thread alone: no thread waits for another's. Half: cos of four pairs, then sin; interleaved: (cos, sin) of four.
void PackedSteps::share_tables() {
  k.dynamic_shared("tables", 16);
  tables_at_ = k.b32("tables_at");
  k.mov_b32(tables_at_, symbol("tables"));
  k.mad_lo_u32(tables_at_, r.thread, 16, tables_at_);
  apart(2 * vectors(), [&] {
    k.bar_sync_all(0).note("for ptxas, which would ask L2 only when the rows are loaded");
    k.section("cos and sin to shared memory");
    const Reg cos = k.b64("cos_at"), sin = k.b64("sin_at");
    const Vec words = k.b32("table_word", 4), value = k.f32("table_value", 8);
    const int quad_bytes = 4 * (r.c.table == DataType::f32 ? 4 : 2);
    for (int s = 0; s < r.at.steps; ++s) {
      table_lines(r, s, r.end, cos, sin);
      for (int slot = 0; slot < vectors(); ++slot) {
        if (half()) load_half(words, value, cos, sin, slot / 2 * r.at.lanes * 2 * quad_bytes + slot % 2 * quad_bytes);
        else load_interleaved(words, value, cos, sin, slot * r.at.lanes * quad_bytes);
        k.st_shared_v4_b32(address(tables_at_, 16 * r.at.threads * (s * vectors() + slot)), words.all());
      }
    }
  });
}

void PackedSteps::load_half(const Vec& words, const Vec& value, const Reg& cos, const Reg& sin, int offset) {
  if (r.c.table == DataType::f32) {
    k.ld_global("v4.f32", value.slice(0, 4), address(cos, offset));
    k.ld_global("v4.f32", value.slice(4, 4), address(sin, offset));
    for (int i = 0; i < 4; ++i) k.cvt_rn_x2_f32("bf16", words[i], value[2 * i + 1], value[2 * i]);
  } else {
    k.ld_global("v2.b32", words.slice(0, 2), address(cos, offset));
    k.ld_global("v2.b32", words.slice(2, 2), address(sin, offset));
  }
}

void PackedSteps::load_interleaved(const Vec& words, const Vec& value, const Reg& cos, const Reg& sin, int offset) {
  if (r.c.table == DataType::f32) {
    k.ld_global("v4.f32", value.slice(0, 4), address(cos, offset));
    k.ld_global("v4.f32", value.slice(4, 4), address(sin, offset));
    for (int i = 0; i < 4; ++i) k.cvt_rn_x2_f32("bf16", words[i], value[4 + i], value[i]);
    return;
  }
  k.scope([&] {
    const Vec narrow = k.b32("narrow_pair", 4);
    k.ld_global("v2.b32", narrow.slice(0, 2), address(cos, offset));
    k.ld_global("v2.b32", narrow.slice(2, 2), address(sin, offset));
    for (int i = 0; i < 4; ++i) k.prmt_b32(words[i], narrow[i / 2], narrow[2 + i / 2], hex(i % 2 ? 0x7632 : 0x5410));
  });
}

// Of two rows.
void PackedSteps::load_factors(int slot) {
  for (int s : {0, 1})
    k.ld_shared_v4_b32(factor_.slice(4 * s, 4), address(tables_at_, 16 * r.at.threads * (s * vectors() + slot)));
}

// ---- B: H_16 with the signs

// B of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4g + t holds k = 2t, 2t + 1 and 8 more of column n = g. k and n
// are alike: bit 0 the pair, bits 1 and 2 the lane, bit 3 the word of half a piece. H_16[k][n] = -1 where k & n has an odd number of
// bits; row k has the sign of its column. A warp makes those of a piece: signs of 32 columns are one parameter.
// Magnitude 2^-ceil(log2(n) / 2), exact: rescale() is what is left.
void PackedSteps::share_fragments() {
  k.section("H_16 with the signs of each piece to shared memory");
  const int halvings = (log2_of(hadamard_size(r.c.head_dim)) + 1) / 2, warps = r.at.threads / 32;
  k.static_shared("fragments", fragment_bytes * fragments() * vectors(), 16);
  fragments_at_ = k.b32("fragments_at");
  k.scope([&] {
    const Reg warp = k.b32("fragment_warp"), lane = k.b32("fragment_lane"), t = k.b32("fragment_t"), g = k.b32("fragment_g"),
              odd = k.b32("odd_bits"), plus = k.b32("h16_pair"), signs = k.b32("piece_signs"), at = k.b32("fragment_at");
    k.shr_u32(warp, r.thread, 5);
    k.and_b32(lane, r.thread, 31);
    k.mov_b32(fragments_at_, symbol("fragments"));
    k.mad_lo_u32(fragments_at_, lane, 16, fragments_at_);
    k.shl_b32(t, r.piece, 1);
    k.shr_u32(g, lane, 2);
    k.and_b32(t, t, g);
    k.popc_b32(odd, t);
    k.shl_b32(plus, odd, 15);
    k.and_b32(plus, plus, hex(0x8000)).note("k = 2t");
    k.add_u32(odd, odd, g);
    k.shl_b32(odd, odd, 31).note("k = 2t + 1: bit 0 of n too");
    k.or_b32(plus, plus, odd);
    k.xor_b32(plus, plus, hex(static_cast<std::uint32_t>(127 - halvings) * 0x00800080u));
    k.shl_b32(t, r.piece, 3).note("columns of this lane's piece");
    for (int first = 0; first < vectors(); first += warps) {
      k.mov_b32(signs, 0);
      k.scope([&] {
        const Reg is_it = k.pred("is_this_piece"), exists = k.pred("piece_exists");
        for (int v = first; v < std::min(first + warps, vectors()); ++v) {
          k.setp("eq", "u32", is_it, warp, v - first);
          k.ld_param_u32(signs, "signs_" + std::to_string(v)).when(is_it);
        }
        k.mad_lo_u32(at, warp, fragment_bytes * fragments(), fragments_at_);
        k.shr_u32(signs, signs, t);
        k.setp("lt", "u32", exists, warp, std::min(warps, vectors() - first));
        k.if_(exists, [&] { fragments_of(at, signs, plus, first); });
      });
    }
  });
}

void PackedSteps::fragments_of(const Reg& at, const Reg& signs, const Reg& plus, int v) {
  k.scope([&] {
    const Vec word = k.b32("b_word", 2);
    const Reg low = k.b32("low_sign"), minus = k.b32("b_minus");
    const int base = fragment_bytes * fragments() * v;
    for (int h : {0, 1}) {
      for (int w : {0, 1}) {
        const int bit = 4 * h + 2 * w;
        k.shl_b32(word[w], signs, 30 - bit);
        k.and_b32(word[w], word[w], hex(0x80000000));
        k.shl_b32(low, signs, 15 - bit);
        k.lop3_b32(word[w], low, hex(0x8000), word[w], 0xEA).note("(a & b) | c");
        k.xor_b32(word[w], word[w], plus);
      }
      k.xor_b32(minus, word[1], hex(0x80008000)).note("k and n both of the second word");
      k.st_shared_v4_b32(address(at, base + fragment_bytes * h), std::vector<Reg>{word[0], word[1], word[0], minus});
      if (half()) continue;
      // x s of a pair's first goes to its second, that of the second, with a minus, to the first.
      for (int w : {0, 1}) {
        k.prmt_b32(word[w], word[w], word[w], hex(0x1032));
        k.xor_b32(word[w], word[w], hex(0x80000000));
      }
      k.xor_b32(minus, word[1], hex(0x80008000));
      k.st_shared_v4_b32(address(at, base + fragment_bytes * (2 + h)), std::vector<Reg>{word[0], word[1], word[0], minus}).note("turned");
    }
  });
}

// ---- A head's rows

// A branch that is always taken: ptxas would load the tables and fragments of all pieces first, and spill what they displace.
// `i` differs, lest it makes one branch of two.
void PackedSteps::apart(int i, const std::function<void()>& body) {
  k.scope([&] {
    const Reg count = k.b32("row_count"), always = k.pred("has_rows");
    k.ld_param_u32(count, "seqlen");
    k.add_u32(count, count, i);
    k.setp("ne", "u32", always, count, 0);
    k.if_(always, body);
  });
}

void PackedSteps::transform() {
  k.section("RoPE, signs, Hadamard");
  int i = 0;
  for (int v = 0; v < (half() ? vectors() / 2 : vectors()); ++v)
    for (int h : {0, 1})
      apart(i++, [&] {
        if (half()) rotate(v, h);
        else turn(v, h);
      });
  between_pieces();
}

// To b_, the one that is to be number `to`.
void PackedSteps::load_fragment(int to, int v, int i) {
  k.ld_shared_v4_b32(b_.slice(4 * to, 4), address(fragments_at_, fragment_bytes * (fragments() * v + i)));
}

// Words 2h and 2h + 1 of two rows, as A: rows g and g + 8.
std::vector<Reg> PackedSteps::half_of(int v, int h) const {
  const std::vector<Reg> a = r.vector(0, v), b = r.vector(1, v);
  const std::size_t w = static_cast<std::size_t>(2 * h);
  return {a[w], b[w], a[w + 1], b[w + 1]};
}

// (a, b) -> (a cos - b sin, b cos + a sin), for half of piece v and of the one half a row further. ptxas makes one fma of mul and sub.
// The further piece's fragment is asked for first: else ptxas spills (d = 128, quantize).
void PackedSteps::rotate(int v, int h) {
  const int further = v + vectors() / 2;
  const std::vector<Reg> first = half_of(v, h), second = half_of(further, h), to = product_.slice(0, 4), to_further = product_.slice(4, 4);
  load_fragment(1, further, h);
  load_fragment(0, v, h);
  load_factors(2 * v + h);
  for (std::size_t i = 0; i < 4; ++i) {
    const Reg a = first[i], b = second[i], cos = factor_[static_cast<int>(4 * (i % 2) + i / 2)], sin = factor_[static_cast<int>(4 * (i % 2) + i / 2) + 2];
    k.mul_bf16x2(to[i], b, sin);
    k.mul_bf16x2(to_further[i], a, cos);
    k.sub_bf16x2(to[i], to_further[i], to[i]);
    k.mul_bf16x2(to_further[i], a, sin);
    k.fma_rn_bf16x2(to_further[i], b, cos, to_further[i]);
  }
  multiply(v, h, {to});
  multiply(further, h, {to_further}, 1);
}

// x cos and x sin of half a piece: the product with H_16 whose pairs are turned makes RoPE's sums.
void PackedSteps::turn(int v, int h) {
  const std::vector<Reg> x = half_of(v, h), by_cos = product_.slice(0, 4), by_sin = product_.slice(4, 4);
  load_fragment(0, v, h);
  load_fragment(1, v, 2 + h);
  if (h == 0) load_factors(v);
  k.scope([&] {
    const Vec each = k.b16("cos_sin", 2);
    const Reg both = k.b32("cos_cos"), sines = k.b32("sin_sin");
    for (std::size_t i = 0; i < 4; ++i) {
      k.mov_b32({each[0], each[1]}, factor_[static_cast<int>(4 * (i % 2) + i / 2) + 2 * h]);
      k.mov_b32(both, {each[0], each[0]});
      k.mov_b32(sines, {each[1], each[1]});
      k.mul_bf16x2(by_cos[i], x[i], both);
      k.mul_bf16x2(by_sin[i], x[i], sines);
    }
  });
  multiply(v, h, {by_cos, by_sin});
}

// Half of piece v, by H_16 and the signs: bits 0, 1, 3 and 4. The sum over `a`, each with its fragment, the first with `fragment`.
void PackedSteps::multiply(int v, int h, const std::vector<std::vector<Reg>>& a, int fragment) {
  for (int tile : {0, 1}) {
    const std::vector<Reg> d = sum_.slice(4 * tile, 4);
    for (std::size_t i = 0; i < a.size(); ++i)
      k.mma_sync("m16n8k16", "f32", "bf16", "bf16", d, a[i], b_.slice(4 * (fragment + static_cast<int>(i)) + 2 * tile, 2), i > 0 ? d : zero_.all());
    for (int s : {0, 1}) pack(r.vector(s, v)[static_cast<std::size_t>(2 * h + tile)], d[static_cast<std::size_t>(2 * s)], d[static_cast<std::size_t>(2 * s + 1)]);
  }
}

void PackedSteps::pack(const Reg& word, const Reg& even, const Reg& odd) {
  if (to_f16()) {
    k.mul_f32(even, even, scales_.inverse);
    k.mul_f32(odd, odd, scales_.inverse);
  }
  k.cvt_rn_x2_f32(mixed_type(), word, odd, even);
}

// (a, b) -> (a + b, a - b)
void PackedSteps::butterfly(const Reg& a, const Reg& b) {
  const std::string type = std::string(mixed_type()) + "x2";
  k.emit("sub." + type, {other_, a, b}, Location::current());
  k.emit("add." + type, {a, a, b}, Location::current());
  k.mov_b32(b, other_);
}

// Bits 2 (a piece's halves), 5 and up.
void PackedSteps::between_pieces() {
  const int mixed = hadamard_size(r.c.head_dim) / 32;
  for (int s = 0; s < r.at.steps; ++s)
    for (int v = 0; v < vectors(); ++v)
      for (std::size_t w : {std::size_t{0}, std::size_t{1}}) butterfly(r.vector(s, v)[w], r.vector(s, v)[w + 2]);
  for (int m = mixed / 2; m >= 1; m /= 2)
    for (int s = 0; s < r.at.steps; ++s)
      for (int v = 0; v < vectors(); ++v)
        for (std::size_t w = 0; w < 4; ++w)
          if (!(v & m)) butterfly(r.vector(s, v)[w], r.vector(s, v + m)[w]);
}

// H_16 has the whole power of two in 1 / sqrt(n), up: half of an odd one is left. Neither sums nor words exceed the result so.
void PackedSteps::rescale(const Reg& value) {
  if (log2_of(hadamard_size(r.c.head_dim)) % 2 != 0) k.mul_f32(value, value, f32_imm(static_cast<float>(std::sqrt(2.0))));
}

}  // namespace flashptx::gen
