// The steps of a row on its way: RoPE and the Hadamard transform with random signs.
//
// Of log2(n) butterfly stages four are one product with H_16 on the tensor cores (below), which take the 16-bit words
// as they are; the others run between a thread's values in f32. So no value crosses lanes by a shuffle where four
// lanes share a row. Narrow rows, and RoPE whose result is stored, take f32 butterflies and shuffles throughout.
// Next: prepare_scales.cpp.
#include <cmath>

#include "gen/kernels/prepare_rows.h"

namespace flashptx::gen {
namespace {

constexpr int piece_elems = 8;

}  // namespace

// H_16 goes over bits 0, 1, 3 and 4 of the column: a pair, the words of half a piece, and the four lanes of an mma row.
bool mixes_by_mma(const PrepareConfig& c) {
  const RowLayout at = row_layout(c);
  return c.hadamard != Hadamard::none && at.lanes >= 4 && hadamard_size(c.head_dim) >= piece_elems * at.lanes &&
         !(c.rope != Rope::none && c.sink == Sink::store);
}

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
  }
  if (mixes_by_mma(c)) {
    make_h16();
  } else if (c.hadamard != Hadamard::none) {
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
  const bool forward = r_.c.hadamard == Hadamard::forward, by_mma = mixes_by_mma(r_.c);
  const bool rounds = r_.c.rope != Rope::none && forward && r_.c.sink != Sink::store;
  const int vectors = r_.at.vectors;
  if (r_.c.rope != Rope::none) {
    table_address(step);
    const int partner = r_.c.rope == Rope::half ? vectors / 2 : vectors;  // a pair's second vector is so much further
    for (int v = 0; v < partner; ++v)
      for (int part : {0, 1, 2})  // a vector at a time, so that few are unpacked at once
        for (int i = v; i < vectors; i += partner) {
          if (part == 0) unpack_vector(r_.c.in, step, i);
          if (part == 1 && i == v) rope(v);
          if (part == 2 && rounds) round_and_flip(step, i);
        }
    if (forward && !rounds) apply_signs_f32();
  } else if (forward) {
    for (int v = 0; v < vectors; ++v) flip(step, v);
  }
  const DataType type = rounds ? DataType::bf16 : r_.c.in;
  for (int v = 0; v < vectors; ++v) {
    if (by_mma) multiply_h16(step, v);
    else if (rounds || r_.c.rope == Rope::none) unpack_vector(type, step, v);
  }
  if (by_mma) rest_of_hadamard();
  else if (r_.c.hadamard != Hadamard::none) hadamard();
}

void Steps::flip(int step, int v) {
  load_signs(v);
  for (int j = 0; j < 4; ++j) {
    const Reg word = r_.vector(step, v)[static_cast<std::size_t>(j)];
    r_.k.xor_b32(word, word, signs_[j]);
  }
}

void Steps::unpack_vector(DataType type, int step, int v) {
  for (int j = 0; j < 4; ++j) {
    const int at = piece_elems * v + 2 * j;
    unpack(r_, type, r_.value[at], r_.value[at + 1], r_.vector(step, v)[static_cast<std::size_t>(j)]);
  }
}

// What RoPE made, as bf16 with the signs of the transform.
void Steps::round_and_flip(int step, int v) {
  for (int j = 0; j < 4; ++j) {
    const int at = piece_elems * v + 2 * j;
    r_.k.cvt_rn_x2_f32("bf16", r_.vector(step, v)[static_cast<std::size_t>(j)], r_.value[at + 1], r_.value[at]);
  }
  flip(step, v);
}

// B of m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane 4g + t holds k = 2t, 2t + 1 and 8 more of column
// n = g. H_16[k][n] = -1 where k & n has an odd number of bits, so that all four registers are one word up to its
// sign. Its magnitude is the whole power of two in 1 / sqrt(size), exact in both types.
void Steps::make_h16() {
  Kernel& k = r_.k;
  const bool f16 = mma_type() == DataType::f16;
  const int halvings = log2_of(hadamard_size(r_.c.head_dim)) / 2;
  const int one = f16 ? (15 - halvings) << 10 : (127 - halvings) << 7;
  h16_ = k.b32("h16_pair", 2), zero_ = k.f32("no_sum", 4);
  if (r_.at.lanes == 8) own_ = k.b32("own", 4), upper_ = k.b32("upper_mask");
  for (const Reg& z : zero_.all()) k.mov_f32(z, f32_imm(0));
  k.scope([&] {
    const Reg t = k.b32("h16_t"), g = k.b32("h16_g"), odd = k.b32("h16_odd"), sign = k.b32("h16_sign");
    k.and_b32(t, r_.thread, 3);
    k.shl_b32(t, t, 1);
    k.shr_u32(g, r_.thread, 2);
    k.and_b32(g, g, 7);
    k.and_b32(t, t, g);
    k.popc_b32(odd, t);
    k.shl_b32(sign, odd, 15);
    k.and_b32(sign, sign, hex(0x8000)).note("k = 2t");
    k.add_u32(odd, odd, g);
    k.shl_b32(odd, odd, 31).note("k = 2t + 1: bit 0 of n too");
    k.or_b32(sign, sign, odd);
    k.xor_b32(h16_[0], sign, hex(static_cast<std::uint32_t>(one) * 0x10001u));
    k.xor_b32(h16_[1], h16_[0], hex(0x80008000u));
    if (r_.at.lanes != 8) return;
    k.and_b32(t, r_.piece, 4);
    k.shl_b32(g, t, 13);
    k.shl_b32(upper_, t, 29);
    k.or_b32(upper_, upper_, g).note("0x80008000 in the upper four of a row's lanes");
  });
}

// Piece v through H_16. Its halves are two rows of A; columns n and n + 8 of the product are words 0 and 1 of a half.
// Where eight lanes share a row, bit 5 of the column is bit 2 of the lane: (own + other, other - own), summed by mma.
void Steps::multiply_h16(int step, int v) {
  Kernel& k = r_.k;
  const std::vector<Reg> w = r_.vector(step, v);
  const char* type = to_string(mma_type());
  const auto product = [&](const std::vector<Reg>& a, bool adds) {
    for (int n = 0; n < 2; ++n) {
      const int at = piece_elems * v + 2 * n;
      const std::vector<Reg> d = {r_.value[at], r_.value[at + 1], r_.value[at + 4], r_.value[at + 5]};
      k.mma_sync("m16n8k16", "f32", type, type, d, {a[0], a[2], a[1], a[3]}, {h16_[0], h16_[n]}, adds ? d : zero_.all());
    }
  };
  if (r_.at.lanes == 4) return product(w, false);
  for (int j = 0; j < 4; ++j) {
    k.xor_b32(own_[j], w[static_cast<std::size_t>(j)], upper_);
    k.shfl_sync_bfly_b32(w[static_cast<std::size_t>(j)], w[static_cast<std::size_t>(j)], 4);
  }
  product(w, false);
  product(own_.all(), true);
}

// The stages left, all within a thread: bit 2 of the column, and those between its pieces.
void Steps::rest_of_hadamard() {
  Kernel& k = r_.k;
  const int size = hadamard_size(r_.c.head_dim), count = r_.value.size(), in_thread = size / r_.at.lanes;
  const float half_power = static_cast<float>(std::sqrt(0.5));
  for (int m = 4; m < in_thread; m *= 2)
    for (int i = 0; i < count; ++i) {
      if (i & m) continue;
      if (m > 4 || log2_of(size) % 2 == 0) {
        butterfly(r_.value[i], r_.value[i + m]);
        continue;
      }
      k.mul_f32(other_, r_.value[i], f32_imm(half_power)).note(i ? "" : "what is left of 1 / sqrt(n)");
      k.fma_rn_f32(r_.value[i], r_.value[i + m], f32_imm(half_power), other_);
      k.fma_rn_f32(r_.value[i + m], r_.value[i + m], f32_imm(-half_power), other_);
    }
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
  const int size = r_.c.table == DataType::f32 ? 4 : 2;
  table_line(step, cosine_.size() * size);
}

// The lines of cos and sin of all steps to L1, while x is on its way: where registers hold the table of one row at a time
// each step would wait for L2 anew.
void Steps::prefetch_tables() {
  Kernel& k = r_.k;
  const int lines = (r_.c.head_dim / 2 * (r_.c.table == DataType::f32 ? 4 : 2) + 127) / 128;
  k.scope([&] {
    const Reg wanted = k.pred("wants_tables"), asks = k.pred("asks_for_table"), flag = k.b32("prefetch_tables"), line = k.b32("table_line");
    k.ld_param_u32(flag, "prefetch_tables");
    k.setp("ne", "u32", wanted, flag, 0);
    k.if_(wanted, [&] {
      for (int step = 0; step < r_.at.steps; ++step) {
        table_line(step, 128);
        for (int first = 0; first < lines; first += r_.at.lanes) {
          k.add_u32(line, r_.piece, first);
          k.setp("lt", "u32", asks, line, lines);
          for (const Reg& at : {cos_at_, sin_at_})
            k.emit("prefetch.global.L1", {address(at, 128 * first)}, Location::current()).when(asks);
        }
      }
    });
  });
}

void Steps::table_line(int step, int bytes_a_lane) {
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
    k.mad_wide_u32(offset, r_.piece, bytes_a_lane, offset);
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

// (a, b) -> (a cos - b sin, b cos + a sin), for the pairs of vector v
void Steps::rope(int v) {
  Kernel& k = r_.k;
  const bool half = r_.c.rope == Rope::half;
  load_table(v);
  for (int i = 0; i < cosine_.size(); ++i) {
    const Reg a = r_.value[piece_elems * v + (half ? i : 2 * i)];
    const Reg b = half ? r_.value[piece_elems * (v + r_.at.vectors / 2) + i] : r_.value[piece_elems * v + 2 * i + 1];
    k.mul_f32(turned_[0], b, sine_[i]);
    k.neg_f32(turned_[0], turned_[0]);
    k.mul_f32(turned_[1], a, sine_[i]);
    k.fma_rn_f32(a, a, cosine_[i], turned_[0]);
    k.fma_rn_f32(b, b, cosine_[i], turned_[1]);
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
