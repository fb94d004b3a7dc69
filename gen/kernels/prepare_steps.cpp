// The steps of a row on its way: RoPE and the Hadamard transform with random signs, in f32 registers.
//
// Of log2(n) butterfly stages, three run within a 16-byte piece, some between a thread's pieces, and log2(lanes)
// over shuffles: 16 to 24 shuffles a piece, which memory bandwidth hides. 1 / sqrt(n) rides on the first stage.
// Next: prepare_scales.cpp.
#include <cmath>

#include "gen/kernels/prepare_rows.h"

namespace flashptx::gen {
namespace {

constexpr int piece_elems = 8;

}  // namespace

void unpack(Rows& r, DataType type, const Reg& even, const Reg& odd, const Reg& word) {
  Kernel& k = r.k;
  k.mov_b32({r.half[0], r.half[1]}, word);
  for (int i = 0; i < 2; ++i) {
    const Reg& to = i == 0 ? even : odd;
    if (type == DataType::bf16) k.cvt_f32_bf16(to, r.half[i]);
    else k.cvt_f32_f16(to, r.half[i]);
  }
}

Steps::Steps(Rows& rows) : r_(rows) {
  Kernel& k = r_.k;
  const PrepareConfig& c = r_.c;
  if (c.hadamard != Hadamard::none) {
    share_signs();
    signs_ = k.b32("sign_mask", 4);
    signs_at_ = k.b32("signs_at");
    k.mov_b32(signs_at_, symbol("sign_masks"));
    k.mad_lo_u32(signs_at_, r_.piece, 16, signs_at_);
    other_ = k.f32("other");
    lane_sign_ = k.f32("lane_sign", 3);
    k.scope([&] {
      const Reg bit = k.b32("lane_bit"), set = k.pred("is_upper_lane");
      for (int m = 1, i = 0; m < r_.at.lanes; m *= 2, ++i) {
        k.and_b32(bit, r_.piece, m);
        k.setp("ne", "u32", set, bit, 0);
        k.selp_f32(lane_sign_[i], f32_imm(-1), f32_imm(1), set);
      }
    });
  }
  if (c.rope != Rope::none) {
    const int n = c.rope == Rope::half ? 8 : 4;
    cosine_ = k.f32("cosine", n), sine_ = k.f32("sine", n);
    if (c.table == DataType::bf16) table_words_ = k.b32("table_pair", 4);
    cos_at_ = k.b64("cos_at"), sin_at_ = k.b64("sin_at");
    turned_ = k.f32("turned", 2);
  }
}

// The signs in shared memory as masks for pairs of 16-bit values, bits 15 and 31: 16 bytes cover a piece.
void Steps::share_signs() {
  Kernel& k = r_.k;
  const int pairs = r_.c.head_dim / 2, threads = r_.at.threads;
  k.section("signs to shared memory");
  k.static_shared("sign_masks", 4 * pairs, 16);
  k.scope([&] {
    const Reg pair = k.b32("column_pair"), word = k.b32("sign_bits"), which = k.b32("sign_word"), t = k.b32("sign_shift"),
              mask = k.b32("pair_mask"), is_it = k.pred("is_this_word"), exists = k.pred("pair_exists");
    for (int first = 0; first < pairs; first += threads) {
      k.add_u32(pair, r_.thread, first);
      k.setp("lt", "u32", exists, pair, pairs);
      k.shr_u32(which, pair, 4);
      k.mov_b32(word, 0);
      for (int w = 0; w < (pairs + 15) / 16; ++w) {
        k.setp("eq", "u32", is_it, which, w);
        k.ld_param_u32(word, "signs_" + std::to_string(w)).when(is_it);
      }
      k.and_b32(t, pair, 15);
      k.shl_b32(t, t, 1);
      k.shr_u32(word, word, t).note("bits 0 and 1: the pair's");
      k.shl_b32(mask, word, 15);
      k.and_b32(mask, mask, hex(0x8000));
      k.shl_b32(word, word, 30);
      k.lop3_b32(mask, word, hex(0x80000000), mask, 0xEA).note("(a & b) | c");
      k.mov_b32(t, symbol("sign_masks"));
      k.mad_lo_u32(t, pair, 4, t);
      k.st_shared_u32(address(t), mask).when(exists);
    }
  });
  k.bar_sync_all(0);
}

void Steps::load_signs(int v) { r_.k.ld_shared_v4_b32(signs_.all(), address(signs_at_, 16 * v * r_.at.lanes)); }

void Steps::apply(int step) {
  Kernel& k = r_.k;
  const bool forward = r_.c.hadamard == Hadamard::forward;
  const bool flip_words = forward && r_.c.rope == Rope::none;
  for (int v = 0; v < r_.at.vectors; ++v) {
    if (flip_words) load_signs(v);
    for (int j = 0; j < 4; ++j) {
      const Reg word = r_.vector(step, v)[static_cast<std::size_t>(j)];
      if (flip_words) k.xor_b32(word, word, signs_[j]);
      unpack(r_, r_.c.in, r_.value[piece_elems * v + 2 * j], r_.value[piece_elems * v + 2 * j + 1], word);
    }
  }
  if (r_.c.rope != Rope::none) {
    rope(step);
    if (forward) apply_signs_f32();
  }
  if (r_.c.hadamard != Hadamard::none) hadamard();
}

void Steps::pack(DataType type, int step) {
  Kernel& k = r_.k;
  const bool inverse = r_.c.hadamard == Hadamard::inverse;
  for (int v = 0; v < r_.at.vectors; ++v) {
    if (inverse) load_signs(v);
    for (int j = 0; j < 4; ++j) {
      const Reg word = r_.vector(step, v)[static_cast<std::size_t>(j)];
      k.cvt_rn_x2_f32(to_string(type), word, r_.value[piece_elems * v + 2 * j + 1], r_.value[piece_elems * v + 2 * j]);
      if (inverse) k.xor_b32(word, word, signs_[j]);
    }
  }
}

// A pair's first element has the lower half of the mask.
void Steps::apply_signs_f32() {
  Kernel& k = r_.k;
  k.scope([&] {
    const Reg bits = k.b32("bits"), sign = k.b32("sign");
    for (int i = 0; i < 8 * r_.at.vectors; ++i) {
      if (i % 8 == 0) load_signs(i / 8);
      const Reg mask = signs_[i % 8 / 2], value = r_.value[i];
      if (i % 2 == 0) k.shl_b32(sign, mask, 16);
      else k.and_b32(sign, mask, hex(0x80000000));
      k.mov_b32(bits, value);
      k.xor_b32(bits, bits, sign);
      k.mov_b32(value, bits);
    }
  });
}

// Lines of cos and sin for row `step`. Rows beyond the last take that one's: they are not stored.
void Steps::table_address(int step) {
  Kernel& k = r_.k;
  const int size = r_.c.table == DataType::f32 ? 4 : 2;
  k.scope([&] {
    const Reg line = k.b32("table_row"), last = k.b32("last_row"), offset = k.b64("table_offset");
    k.add_u32(line, r_.row, step * r_.at.rows_per_step());
    k.sub_u32(last, r_.seqlen, 1);
    k.min_u32(line, line, last);
    k.ld_param_u32(last, "position");
    k.add_u32(line, line, last);
    k.mul_wide_u32(offset, line, r_.c.head_dim / 2 * size);
    k.mad_wide_u32(offset, r_.piece, cosine_.size() * size, offset);
    k.ld_param_u64(cos_at_, "cos");
    k.add_u64(cos_at_, cos_at_, offset);
    k.ld_param_u64(sin_at_, "sin");
    k.add_u64(sin_at_, sin_at_, offset);
  });
}

// For the pairs of vector v: 4 of them (interleaved), or the 8 that it has with the other half's vector.
void Steps::load_table(int v) {
  Kernel& k = r_.k;
  const int count = cosine_.size(), size = r_.c.table == DataType::f32 ? 4 : 2;
  const int offset = v * r_.at.lanes * count * size;
  for (const auto& [to, from] : {std::pair{&cosine_, &cos_at_}, std::pair{&sine_, &sin_at_}}) {
    if (r_.c.table == DataType::f32) {
      for (int i = 0; i < count; i += 4) k.ld_global_nc("v4.f32", to->slice(i, 4), address(*from, offset + 4 * i));
      continue;
    }
    k.ld_global_nc(count == 8 ? "v4.b32" : "v2.b32", table_words_.slice(0, count / 2), address(*from, offset));
    for (int i = 0; i < count / 2; ++i) unpack(r_, DataType::bf16, (*to)[2 * i], (*to)[2 * i + 1], table_words_[i]);
  }
}

// (a, b) -> (a cos - b sin, b cos + a sin)
void Steps::rope(int step) {
  Kernel& k = r_.k;
  table_address(step);
  const bool half = r_.c.rope == Rope::half;
  const int vectors = half ? r_.at.vectors / 2 : r_.at.vectors;
  for (int v = 0; v < vectors; ++v) {
    load_table(v);
    for (int i = 0; i < cosine_.size(); ++i) {
      const Reg a = r_.value[piece_elems * v + (half ? i : 2 * i)];
      const Reg b = half ? r_.value[piece_elems * (v + vectors) + i] : r_.value[piece_elems * v + 2 * i + 1];
      k.mul_f32(turned_[0], b, sine_[i]);
      k.neg_f32(turned_[0], turned_[0]);
      k.mul_f32(turned_[1], a, sine_[i]);
      k.fma_rn_f32(a, a, cosine_[i], turned_[0]);
      k.fma_rn_f32(b, b, cosine_[i], turned_[1]);
    }
  }
}

// (a, b) -> (a + b, a - b)
void Steps::butterfly(const Reg& a, const Reg& b) {
  Kernel& k = r_.k;
  k.sub_f32(other_, a, b);
  k.add_f32(a, a, b);
  k.mov_f32(b, other_);
}

void Steps::hadamard() {
  Kernel& k = r_.k;
  const int size = hadamard_size(r_.c.head_dim), count = r_.value.size();
  const float norm = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
  for (int i = 0; i < count; i += 2) {
    k.mul_f32(other_, r_.value[i], f32_imm(norm)).note(i ? "" : "the first stage scales by 1 / sqrt(n)");
    k.fma_rn_f32(r_.value[i], r_.value[i + 1], f32_imm(norm), other_);
    k.fma_rn_f32(r_.value[i + 1], r_.value[i + 1], f32_imm(-norm), other_);
  }
  // In value's index: bits 1 and 2 stand within a piece, those above between the thread's pieces.
  const int in_thread = piece_elems * size / (piece_elems * r_.at.lanes);
  for (int m = 2; m < in_thread; m *= 2)
    for (int i = 0; i < count; ++i)
      if (!(i & m)) butterfly(r_.value[i], r_.value[i + m]);
  for (int m = 1, s = 0; m < r_.at.lanes; m *= 2, ++s)
    for (int i = 0; i < count; ++i) {
      k.shfl_sync_bfly_b32(other_, r_.value[i], m);
      k.fma_rn_f32(r_.value[i], r_.value[i], lane_sign_[s], other_).note(i ? "" : "between lanes");
    }
}

}  // namespace flashptx::gen
